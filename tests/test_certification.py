"""Certificates: the windows are the real ones, and the model on windows is the real model."""

from __future__ import annotations

import json
import random
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from conftest import digit_data

from abc_calib.certification.certificate import Certificate
from abc_calib.certification.decide import certify, every_problem
from abc_calib.certification.network import Network
from abc_calib.certification.places import Case, Constant, Digit, Phase, Place, Written
from abc_calib.certification.prove import Undecided, check, prepare
from abc_calib.certification.repair import repair
from abc_calib.certification.sources import Realiser
from abc_calib.certification.verify import verify
from abc_calib.config import TransformerOptions
from abc_calib.data import DigitData
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.runs import Run
from abc_calib.stages import predict
from tasks import Problems

ROOM = 3_000_000


def random_lines(seed: int, layers: int, heads: int, segments: int, most: int = 1) -> LineBias:
    """Short segment lines of every kind, up to ``most`` a head."""
    rng = random.Random(seed)

    def own() -> Line:
        kind: Any = rng.choice(["diag", "diag", "vert"])
        return Line(kind, 0, rng.choice([0, -1, -2]) if kind == "diag" else rng.choice([0, 0, 1]))

    def crossed() -> Line:
        kind: Any = rng.choice(["anti", "anti", "vert", "diag"])
        offset = rng.choice([-1, 0, 0, 1]) if kind != "vert" else rng.choice([0, 1, 2])
        return Line(kind, rng.randint(0, segments), offset, rng.choice([0.0, -0.5]))

    def layer(line):
        return tuple(head(line) for _ in range(heads))

    def head(line):
        drawn = [line() for _ in range(rng.randint(1, most))]
        against = [x for x in drawn if line is crossed and x.direction == "diag" and x.segment]
        return (against[0],) if against else tuple(drawn)  # a line against the rows is alone

    return LineBias(
        {
            "self": tuple(layer(own) for _ in range(layers)),
            "cross": tuple(layer(crossed) for _ in range(layers)),
        }
    )


def calibrated(task: str, base: int, seed: int, most: int = 1):
    """A model with random weights and random lines, and its data."""
    source = digit_data(task, base=base, format="free", seed=0, sampling="mixed", length=5)
    options = TransformerOptions(width=8, heads=2, feedforward=12, decoder_layers=2, scheme="none")
    model = build_model("transformer", options, source, seed).eval()
    model.set_lines(random_lines(seed, 2, 2, len(source.layout_at(1).parts), most))
    return model, source


def windowed(task: str, base: int, seed: int, scheme: str = "sinusoidal", cyclic: int | None = 3):
    """A model with random weights and the scaffolding's window, and its data."""
    source = digit_data(task, base=base, format="aligned", seed=0, sampling="mixed", length=5)
    options = TransformerOptions(
        width=8, heads=2, feedforward=12, decoder_layers=1, scheme=scheme, cyclic=cyclic,
        attention_window=1,
    )  # fmt: skip
    return build_model("transformer", options, source, seed).eval(), source


def atom_value(
    atom, problems: Problems, row: int, width: int, source: DigitData, period: int
) -> int:
    """What an atom is in a source, read off its digits."""
    if isinstance(atom, Phase):
        return (row if atom.of == "row" else width) % period
    operands = source.task.padded(problems.operands)
    if isinstance(atom, Constant):
        return int(operands[atom.operand].values[0, -1])
    kind, at = atom.column
    against = width - 1 - at
    column = {"near": row + at, "low": at, "top": against, "free": against - row}[kind]
    if isinstance(atom, Written):
        return int(problems.answer.values[0, -1 - column])
    assert isinstance(atom, Digit)
    return int(operands[atom.operand].values[0, -1 - column])


def every_row(proof, problems: Problems):
    """Each row of one source: its number, its windows' index, and its values as a window."""
    source, reach = proof.data, proof.field.reach
    width = int(max(o.lengths[0] for o in problems.operands))
    cases = {windows.case: i for i, windows in enumerate(proof.windows)}
    for row in range(int(problems.answer.lengths[0]) + 1):
        left = width - row
        case = Case(row if row < reach.rows else None, left if left < reach.columns else None)
        index = cases[case]
        values = [
            atom_value(atom, problems, row, width, source, proof.field.period)
            for atom in proof.windows[index].atoms
        ]
        yield row, index, tuple(values)


def one(problems: Problems, row: int) -> Problems:
    return problems.take(np.array([row]))


def has_free(windows) -> bool:
    """Is there a place that runs against the rows, of which the column is not known?"""
    return any(isinstance(a, Digit) and a.column.kind == "free" for a in windows.atoms)


MODELS = [
    *(("lines", task, base, seed, most)
      for seed, (task, base, most) in enumerate(
          [("addition", 2, 1), ("addition", 3, 1), ("successor", 3, 1), ("parity", 2, 1),
           ("multiplication", 3, 1), ("addition", 2, 2), ("successor", 2, 3),
           ("multiplication", 2, 2), ("parity", 2, 2), ("successor", 3, 2)])),
    ("window", "successor", 2, 0, 3), ("window", "addition", 2, 1, 3),
    ("window", "multiplication", 2, 2, 2), ("window", "parity", 2, 3, None),
]  # fmt: skip


def build(kind: str, task: str, base: int, seed: int, last: int | None):
    if kind == "window":
        return windowed(task, base, seed, "sinusoidal" if last else "none", last)
    return calibrated(task, base, seed, last or 1)


@pytest.mark.parametrize("given", MODELS, ids=lambda m: "-".join(map(str, m)))
def test_a_row_of_a_source_is_its_window(given):
    """Every row's window is listed, and the logits there are those of the dense model."""
    model, source = build(*given)
    proof = prepare(model, source, ROOM)
    model.set_path("dense")
    found = [
        {(*v, e) for v, e in zip(w.values.tolist(), w.expected.tolist(), strict=True)}
        for w in proof.windows
    ]
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 4, 6, 9, 14, 20):
        problems = source.task.sample(rng, 3, length, "mixed", exact=True)
        for k in range(3):
            problem = one(problems, k)
            batch = source.lay_out(problem)
            with torch.inference_mode():
                logits = model(batch.source, batch.target)[0]
            rows = list(every_row(proof, problem))
            assert len(rows) == batch.target.shape[1]
            for row, index, values in rows:
                windows = proof.windows[index]
                if not has_free(windows):
                    assert (*values, int(batch.target[0, row])) in found[index], (length, row)
                    network = Network(model, proof.field, windows)
                    seen = network.logits(np.array([values], np.uint8))[0]
                    torch.testing.assert_close(seen, logits[row], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("given", MODELS[:5] + MODELS[10:], ids=lambda m: "-".join(map(str, m)))
def test_no_window_is_invented(given):
    """By brute force over all sources of a width: its rows have exactly the listed windows."""
    model, source = build(*given)
    proof = prepare(model, source, ROOM)
    widths = [w for w in range(1, 9) if source.task.base ** (w * len(proof.rule.operands)) < 800]
    seen: dict[int, set] = {}
    for width in widths:
        problems = every_problem(proof, width)
        for k in range(len(problems)):
            for _, index, values in every_row(proof, one(problems, k)):
                seen.setdefault(index, set()).add(values)
    checked = 0
    for index, windows in enumerate(proof.windows):
        if windows.case.width in widths:
            assert seen[index] == set(map(tuple, windows.values.tolist())), windows.case
            checked += 1
    assert checked


@pytest.mark.parametrize("given", [MODELS[0], MODELS[4], MODELS[10]], ids=str)
def test_a_window_can_be_put_into_a_source(given):
    model, source = build(*given)
    proof = prepare(model, source, ROOM)
    realiser = Realiser(source.task, proof.rule, proof.field.reach, proof.field.period)
    rng = np.random.default_rng(0)
    for index, windows in enumerate(proof.windows):
        if has_free(windows):
            continue
        for k in rng.integers(0, len(windows), 4):
            drawn = realiser.sources(windows.case, windows.atoms, windows.values[k], 2, 30, rng)
            assert len(drawn) == 2, windows.case
            for row, problem in drawn:
                rows = {r: (i, v) for r, i, v in every_row(proof, problem)}
                assert rows[row] == (index, tuple(windows.values[k].tolist()))


# A trained model


@pytest.fixture(scope="module")
def certified(trained, tmp_path_factory) -> Run:
    """The trained and calibrated model of successors, certified."""
    path = tmp_path_factory.mktemp("certified") / "run"
    shutil.copytree(trained.root / "successor-calibrated-seed0-1", path)
    assert certify(path).outcome == "certified"
    return Run.open(path)


def test_a_certificate_agrees_with_brute_force(certified):
    certificate = Certificate.load(certified)
    assert certificate.windows > 100 and certificate.wrong == 0
    assert certificate.margin > 100 * certificate.rounding > 0
    assert abs(certificate.margin - certificate.margin_float64) < 1e-2
    assert [row["sources"] for row in certificate.outright] == [10, 90, 900, 9000]
    model, source = certified.load_model(), certified.data
    proof = prepare(model, source, ROOM)
    problems = every_problem(proof, 5)
    batch = source.lay_out(problems)
    assert len(batch) == 90_000 and exact_matches(model, batch).all()
    page = (certified.path / "certificate.md").read_text()
    assert "right for every source of every length" in page and certificate.weights in page


def test_verification_looks_again(certified):
    found = verify(certified, samples=20, sources=3).verified
    assert (
        found["wrong"] == 0
        and found["smallest_margin"] >= Certificate.load(certified).margin - 0.01
    )
    assert "dense attention" in (certified.path / "certificate.md").read_text()


def test_a_false_certificate_is_found_out(certified, tmp_path):
    run = copied(certified, tmp_path)
    change(run / "certificate.json", margin=1e3)
    with pytest.raises(AbcError, match="does not hold"):
        verify(run, samples=5, sources=2)


def test_one_corrupted_weight_is_refuted(certified, tmp_path):
    run = Run.open(copied(certified, tmp_path))
    model = run.load_model()
    with torch.no_grad():
        model.head.weight[3, int(model.head.weight[3].abs().argmax())] *= -40
    run.save_model(model)
    with pytest.raises(AbcError, match="other weights"):
        Certificate.load(run)
    certificate = certify(run)
    assert certificate.outcome == "refuted" and certificate.wrong > 0
    assert len(certificate.counterexamples) == min(20, certificate.wrong)
    atoms = {row["where"]: row["atoms"] for row in certificate.cases}
    for example in certificate.counterexamples:
        problem = example["problem"]
        try:
            answer = predict(run, problem).answer
        except AbcError:  # it writes no end
            answer = None
        assert answer != run.task.solve(problem) == example["right"]
        assert list(example["failing_window"]) == atoms[example["where"]]
    assert "Failing window" in (run.path / "certificate.md").read_text()
    with pytest.raises(UsageError, match="not certified but refuted"):
        verify(run)


def test_repair_learns_failing_windows_from_short_numbers(certified, tmp_path):
    run = Run.open(copied(certified, tmp_path))
    model = run.load_model()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight += 0.2 * weight.std() * torch.randn_like(weight)
    run.save_model(model)
    rounds = []
    made = repair(run, out=tmp_path / "repaired", on_round=rounds.append)
    assert rounds[0].outcome == "refuted" and rounds[-1].outcome == "certified"
    history = Certificate.load(made).repair
    assert history and all(0 < entry["longest"] <= 5 for entry in history)
    assert predict(made, "9" * 40).correct


def copied(run: Run, folder) -> object:
    return shutil.copytree(run.path, folder / "copy")


def change(path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# What cannot be decided


def reason(model, source, limit: int = ROOM) -> str:
    with pytest.raises(Undecided) as error:
        prepare(model, source, limit)
    return str(error.value)


def test_an_unbounded_field_is_named():
    model, source = calibrated("addition", 10, 0)
    assert "windows are too many" in reason(model, source, limit=50)
    lines = model.lines.sites
    heads = lines["cross"][0]
    model.set_lines(LineBias({**lines, "cross": (((), heads[1]), lines["cross"][1])}))
    assert "head 0 of layer 0 (cross-attention) is transparent" in reason(model, source)
    anti = ((Line("anti", 0, 0),), (Line("diag", 0, 0),))
    model.set_lines(LineBias({**lines, "self": (anti, lines["self"][1])}))
    assert "anti-diagonal in self-attention" in reason(model, source)
    corner = ((Line("diag", -1, 0),), (Line("diag", 0, 0),))
    model.set_lines(LineBias({**lines, "self": (corner, lines["self"][1])}))
    assert "corners of a matrix" in reason(model, source)
    model.set_lines(LineBias({"cross": lines["cross"]}))
    assert "not restricted to lines" in reason(model, source)


def test_lines_of_one_head_that_meet_in_some_rows_only_are_refused():
    """The model counts them once where they meet; a window cannot tell where that is."""
    model, source = calibrated("successor", 3, 0)
    lines = model.lines.sites
    head = (Line("diag", 1, 0), Line("anti", 1, 0), Line("vert", 1, 0))
    model.set_lines(LineBias({**lines, "cross": ((head, head[:1]), lines["cross"][1])}))
    assert "meet in some rows only" in reason(model, source)


def test_positions_and_paddings_that_grow_are_named(model_for):
    source = digit_data("successor")
    lines = random_lines(0, 1, 2, 1)
    for scheme in ("sinusoidal", "learned:size=64"):
        model = model_for(source, scheme=scheme)
        model.set_lines(lines)
        assert "absolute and grow with length" in reason(model, source)
    model = model_for(source, scheme="rope")
    model.set_lines(random_lines(1, 1, 2, 1, most=3))
    assert "scores depend on positions" in reason(model, source)
    model = model_for(source, scheme="none", encoder_layers=1)
    model.set_lines(lines)
    assert "encoder has 1 layers" in reason(model, source)
    fixed = digit_data("successor", format="fixed:9")
    model = model_for(fixed, scheme="none")
    model.set_lines(lines)
    assert "pads every operand to a fixed width" in reason(model, fixed)


def test_what_the_windows_leave_out_is_never_certified(model_for):
    """Penalised keys, value terms and drawn positions are seen by the model and not by a window."""
    source, lines = digit_data("successor"), random_lines(0, 1, 2, 1)
    model = model_for(source, scheme="none")
    model.set_lines(LineBias(lines.sites, -5.0))
    assert "only penalised (-5)" in reason(model, source)
    model = model_for(source, scheme="rpe:values=true")
    model.set_lines(lines)
    assert "values depend on distances" in reason(model, source)
    assert model.kept_rows is None
    model = model_for(source, scheme="randomized", cyclic=3)
    model.set_lines(lines)
    assert "drawn anew" in reason(model, source)


def test_what_is_no_number_is_wrong(model_for):
    source = digit_data("successor", base=3)
    model = model_for(source, scheme="none")
    model.set_lines(random_lines(0, 1, 2, 1))
    with torch.no_grad():
        model.head.bias[0] = torch.nan
    found = check(prepare(model, source, ROOM))
    assert all(c.wrong == c.windows for c in found)


def test_relative_positions_do_not_matter_on_single_lines(model_for):
    source = digit_data("successor", base=3)
    model = model_for(source, scheme="rope")
    model.set_lines(random_lines(0, 1, 2, 1))
    assert sum(c.windows for c in check(prepare(model, source, ROOM))) > 0


def test_a_vanilla_model_is_refuted_with_a_source(tiny):
    certificate = certify(tiny.vanilla)
    assert certificate.outcome == "refuted"
    assert "not restricted to lines" in certificate.reason
    (example,) = certificate.counterexamples
    assert not predict(tiny.vanilla, example["problem"]).correct


def test_places_have_a_name():
    from abc_calib.certification.places import atom_name

    near, low = Place("near", -1), Place("low", 2)
    names = [atom_name(a) for a in (Digit(1, near), Written(low), Constant(1), Phase("row"))]
    assert names == ["b[t-1]", "y[2]", "b", "row mod period"]


def test_from_nothing_goes_on_from_what_lies_there(trained, tmp_path, abc):
    names = {"vanilla": "successor-vanilla-seed0-1", "calibrated": "successor-calibrated-seed0-1"}
    for stage, name in names.items():
        shutil.copytree(trained.root / name, tmp_path / f"successor-seed0-{stage}")
    told = abc("certify", "--task", "successor", "--out", tmp_path, "--json", "-q").json()
    assert [c["outcome"] for c in told] == ["certified"]
    assert told[0]["verified"]["wrong"] == 0
    assert (tmp_path / "successor-seed0-calibrated" / "certificate.md").exists()
    said = abc("certify", "--task", "successor", "--out", tmp_path)
    assert said.out.startswith("certified") and "s in all" in said.err
