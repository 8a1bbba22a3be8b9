"""Certificates: the windows are the real ones, and the model on windows is the real model."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import digit_data, margin_by_program

from abc_calib import stages
from abc_calib.calibration.fits.base import sinks
from abc_calib.certification import check as checker
from abc_calib.certification import prove, shapes
from abc_calib.certification import repair as repairing
from abc_calib.certification.certificate import NOT_COMPARED, Certificate, difference
from abc_calib.certification.decide import (
    certify,
    decide,
    failing_sources,
)
from abc_calib.certification.export import export
from abc_calib.certification.network import Exact, Network
from abc_calib.certification.places import Case, Constant, Digit, Phase, Place, Written
from abc_calib.certification.prove import Undecided, check, prepare, run_exactly
from abc_calib.certification.repair import repair
from abc_calib.certification.sources import Realiser
from abc_calib.certification.verify import verify
from abc_calib.config import PRESETS, DecoderOptions, TransformerOptions
from abc_calib.data import DigitData
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import ALONE, Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.runs import Run
from abc_calib.runs.records import Record
from abc_calib.stages import predict
from tasks import Problems


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


def streaming(task: str, base: int, seed: int, most: int = 1):
    """A decoder-only model with random weights and lines, in source or output or both."""
    source = digit_data(task, base=base, format="free", seed=0, sampling="mixed", length=5)
    options = DecoderOptions(width=8, heads=2, feedforward=12, decoder_layers=2, scheme="none")
    model = build_model("decoder", options, source, seed).eval()
    drawn = random_lines(seed, 2, 2, len(source.layout_at(1).parts), most).sites
    rng, sites = random.Random(seed), {}
    for site in ("self", "cross"):
        sites[site] = tuple(tuple(map(list, heads)) for heads in drawn[site])
    for own, crossed in zip(sites["self"], sites["cross"], strict=True):
        for mine, other in zip(own, crossed, strict=True):
            against = any(line.direction == "diag" and line.segment for line in other)
            kept = rng.choice(["both", "self", "cross"][against * 2 :])
            mine[:] = [] if kept == "cross" else mine
            other[:] = [] if kept == "self" else other
    every: Any = {"encoder": (((ALONE,),) * 2,)}
    every |= {k: tuple(tuple(map(tuple, heads)) for heads in v) for k, v in sites.items()}
    model.set_lines(LineBias(every, stream=True))
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
    ("lines", "subtraction", 2, 10, 2), ("lines", "subtraction", 3, 11, 1),
    *(("stream", task, base, seed, most)
      for seed, (task, base, most) in enumerate(
          [("addition", 2, 1), ("addition", 3, 1), ("successor", 3, 2), ("parity", 2, 1),
           ("multiplication", 2, 1), ("addition", 2, 2)], 30)),
]  # fmt: skip


def build(kind: str, task: str, base: int, seed: int, last: int | None):
    if kind == "window":
        return windowed(task, base, seed, "sinusoidal" if last else "none", last)
    if kind == "stream":
        return streaming(task, base, seed, last or 1)
    return calibrated(task, base, seed, last or 1)


@pytest.mark.parametrize("given", MODELS, ids=lambda m: "-".join(map(str, m)))
def test_a_row_of_a_source_is_its_window(given):
    """Every row's window is listed, and the logits there are those of the dense model."""
    model, source = build(*given)
    proof = prepare(model, source)
    exact = Exact(model, proof.field)
    model = model.exact()
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
                assert (*values, int(batch.target[0, row])) in found[index], (length, row)
                network = Network(exact, windows)
                seen = network.logits(np.array([values], np.uint8))[0]
                torch.testing.assert_close(seen, logits[row], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("given", MODELS[:5] + MODELS[10:], ids=lambda m: "-".join(map(str, m)))
def test_no_window_is_invented(given):
    """By brute force over all sources of a width: its rows have exactly the listed windows."""
    model, source = build(*given)
    proof = prepare(model, source)
    widths = [w for w in range(1, 9) if source.task.base ** (w * len(proof.rule.operands)) < 800]
    seen: dict[int, set] = {}
    for width in widths:
        problems = proof.realiser.every(width)
        for k in range(len(problems)):
            for _, index, values in every_row(proof, one(problems, k)):
                seen.setdefault(index, set()).add(values)
    checked = 0
    for index, windows in enumerate(proof.windows):
        if windows.case.width in widths:
            assert seen[index] == set(map(tuple, windows.values.tolist())), windows.case
            checked += 1
    assert checked


@pytest.mark.parametrize("task", ["addition", "successor", "multiplication"])
@pytest.mark.parametrize("seed", range(5))
def test_a_sink_adds_nothing_to_what_a_row_sees(task, seed):
    """Whichever heads are closed, a row sees nothing that it would not see without them."""
    model, data = calibrated(task, 2, seed, most=1)
    heads = [(s, layer, h) for s in ("self", "cross") for layer in range(2) for h in range(2)]
    closed = sinks(len(data.layout_at(1).parts))

    def with_sinks(chosen: set) -> LineBias:
        return LineBias(
            {
                site: tuple(
                    tuple(
                        (closed[site],) if (site, at, h) in chosen else x for h, x in enumerate(k)
                    )
                    for at, k in enumerate(layers)
                )
                for site, layers in model.lines.sites.items()
            }
        )

    whole = prepare(model, data).field
    some = set(random.Random(seed).sample(heads, 3))
    for chosen in (some, set(heads)):
        less = replace(whole, bias=with_sinks(chosen))
        for case in whole.cases():
            seen = less.atoms(2, case.place, case)
            if chosen == some:
                assert seen <= whole.atoms(2, case.place, case)
            else:  # nothing but the token that the row reads
                assert seen <= {Written(Place(case.place.kind, case.place.at - 1))}


@pytest.mark.parametrize("given", [MODELS[0], MODELS[4], MODELS[10]], ids=str)
def test_a_window_can_be_put_into_a_source(given):
    model, source = build(*given)
    proof = prepare(model, source)
    realiser = Realiser(source.task, proof.rule, proof.field.reach, proof.field.period)
    rng = np.random.default_rng(0)
    for index, windows in enumerate(proof.windows):
        for k in rng.integers(0, len(windows), 4):
            values, right = windows.values[k], int(windows.expected[k])
            drawn = realiser.sources(windows.case, windows.atoms, values, 2, 30, rng, False, right)
            assert len(drawn) == 2 or has_free(windows), windows.case
            for row, problem in drawn:
                rows = {r: (i, v) for r, i, v in every_row(proof, problem)}
                assert rows[row] == (index, tuple(values.tolist()))
                assert int(source.lay_out(problem).target[0, row]) == right


@pytest.mark.parametrize("given", [MODELS[k] for k in (0, 4, 10, 12, -6)], ids=str)
def test_windows_made_in_parts_are_the_same(given):
    """However few are held at once, and each of them once."""
    proof = prepare(*build(*given))
    for case, whole in zip(proof.cases, proof.windows, strict=True):
        parts = list(case.parts(max(40, len(whole) // 7)))
        assert len(parts) > 1 or len(whole) <= 40
        rows = [(*v, int(e)) for p in parts for v, e in zip(p.values, p.expected, strict=True)]
        assert len(set(rows)) == len(rows) == len(whole)
        assert set(rows) == {
            (*v, int(e)) for v, e in zip(whole.values, whole.expected, strict=True)
        }
        about = case.estimate(max(40, len(whole) // 7))
        assert len(whole) / 20 < about < len(whole) * 20


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
    assert certificate.margin > 1000 * certificate.rounding > 0
    assert certificate.decoded["wrong"] == 0 and certificate.decoded["sources"] > 20
    assert [row["sources"] for row in certificate.outright] == [10, 90, 900, 9000]
    model, source = certified.load_model(), certified.data
    proof = prepare(model, source)
    problems = proof.realiser.every(5)
    batch = source.lay_out(problems)
    assert len(batch) == 90_000 and exact_matches(model, batch).all()
    page = (certified.path / "certificate.md").read_text()
    assert (
        "right for every source of every length" in page
        and certificate.fingerprint["weights"] in page
    )


def test_verification_looks_again(certified):
    found = verify(certified, samples=20, sources=3).verified
    assert (
        found["wrong"] == 0
        and found["smallest_margin"] >= Certificate.load(certified).margin - 0.01
    )
    assert "dense attention" in (certified.path / "certificate.md").read_text()


def test_windows_that_cannot_be_held_get_the_same_verdict(certified, monkeypatch):
    """Made part by part, and twice: to count them, and to check them."""
    for name, value in (("PART", 900), ("HELD", 0)):
        monkeypatch.setattr(prove, name, value)
    monkeypatch.setattr(prove.prepare, "__defaults__", (900, 1e9))
    streamed = decide(certified, certified.load_model())
    assert all(windows is None for windows in streamed.proof.windows)
    assert not difference(streamed.certificate, Certificate.load(certified))


FALSE: dict[str, Any] = {
    "outcome": "unknown", "reason": "right", "task": "parity", "base": 9, "train_length": 3,
    "scheme": "rope", "windows": 10**9, "wrong": 1, "margin": 1e3, "rounding": 0.0,
    "reach": {"rows": 1, "columns": 1, "near": [0, 0], "period": 1}, "lines": {},
    "rule": {"base": 10}, "source": {"delimiters": [], "aligned": True}, "cases": [],
    "outright": [], "decoded": {"sources": 10**6},
    "counterexamples": [{"problem": "7", "answer": "8", "right": "8"}],
}  # fmt: skip


def test_a_changed_certificate_is_found_out(certified, tmp_path):
    """Any field; also where the hash of the fields is made to fit."""
    run = Run.open(copied(certified, tmp_path))
    path = run.path / "certificate.json"
    content = path.read_text()
    again = decide(run, run.load_model()).certificate
    fields = set(json.loads(content)) - set(NOT_COMPARED) - {"fingerprint"}
    assert set(FALSE) == fields and not difference(again, Certificate.load(run))
    for name, value in FALSE.items():
        path.write_text(content)
        change(path, **{name: value})
        with pytest.raises(AbcError, match="was changed after"):
            Certificate.load(run)
        forged = Certificate(**json.loads(path.read_text()))
        change(path, sha256=forged.seal())
        assert difference(again, Certificate.load(run)) == name
    with pytest.raises(AbcError, match="does not hold: it says counterexamples"):
        verify(run, samples=5, sources=2)


def test_a_refuted_certificate_cannot_be_made_a_certified_one(certified, tmp_path):
    run = biased(certified, tmp_path, 3, 100)
    assert certify(run).outcome == "refuted"
    forged = Certificate.load(run)
    forged.outcome, forged.wrong, forged.counterexamples = "certified", 0, []
    forged.save(run)
    with pytest.raises(AbcError, match="does not hold"):
        verify(run, samples=5, sources=2)


@pytest.mark.parametrize("name", ["fingerprint", "margin", "sha256", "more", "outcome"])
def test_a_damaged_certificate_is_no_certificate(certified, tmp_path, name):
    run = Run.open(copied(certified, tmp_path))
    path = run.path / "certificate.json"
    content = json.loads(path.read_text())
    if name == "outcome":
        path.write_text("[" * 100_000)
    else:
        path.write_text(json.dumps(content | {name: float("nan")}))
    with pytest.raises(AbcError, match="certify again"):
        Certificate.load(run)


def test_what_cancels_in_one_order_only_is_not_certified(certified, tmp_path):
    """Two units that are huge and cancel: any kernel may leave something of them."""
    run = Run.open(copied(certified, tmp_path))
    model = run.load_model()
    with torch.no_grad():
        first, second = model.layers[-1].feedforward[0], model.layers[-1].feedforward[-1]
        first.weight[1], first.bias[1] = first.weight[0], first.bias[0]
        first.bias[:2] += 5
        for column, sign in ((0, 1), (1, -1)):
            second.weight[:, column] = sign * 1e17 * torch.arange(1, 1 + len(second.weight))
    run.save_model(model)
    vouch(run)
    certificate = certify(run)
    assert certificate.outcome != "certified"


def test_dropout_left_on_changes_nothing(certified):
    model = certified.load_model()
    model.layers[0].dropout.p = 0.5
    batch = certified.data.test(20, 5, "random", 0)
    right = model.decode(batch.source, 23).ids
    assert torch.equal(model.train().decode(batch.source, 23).ids, right)


def test_bounds_of_rounding_hold(certified, monkeypatch):
    """With the unit of float32, float32 in batches and row by row stays within them."""
    from abc_calib.certification import rounding

    model, data = certified.load_model(), certified.data
    batch = data.test(12, 50, "hard", 0)
    exact = model.exact()
    with torch.inference_mode():
        right = exact(batch.source, batch.target)
        together = model(batch.source, batch.target)
        model.set_path("dense")
        dense = model(batch.source[:1], batch.target[:1])
    moved = max((together - right).abs().max(), (dense - right[:1]).abs().max())
    monkeypatch.setattr(rounding, "UNIT", 2.0**-23)
    proof = prepare(certified.load_model(), data)
    assert 0 < 2 * moved < max(c.rounding for c in check(proof))


def test_one_corrupted_weight_is_refuted(certified, tmp_path):
    run = Run.open(copied(certified, tmp_path))
    model = run.load_model()
    with torch.no_grad():
        model.head.weight[3, int(model.head.weight[3].abs().argmax())] *= -40
    run.save_model(model)
    vouch(run)
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
        if "where" in example:
            assert list(example["failing_window"]) == atoms[example["where"]]
    assert any("where" in example for example in certificate.counterexamples)
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
    vouch(run)
    rounds = []
    made = repair(run, out=tmp_path / "repaired", on_round=rounds.append)
    assert rounds[0].outcome == "refuted" and rounds[-1].outcome == "certified"
    history = Certificate.load(made).repair
    assert history and all(0 < entry["longest"] <= 5 for entry in history)
    assert predict(made, "9" * 40).correct


def test_a_round_of_repair_that_makes_it_worse_is_taken_back(certified, tmp_path, monkeypatch):
    """The weights from before it are kept, with their certificate, and the next one is slower."""
    run = biased(certified, tmp_path, 5, 6.0)
    monkeypatch.setattr(repairing, "LEARNING_RATE", 100.0)
    made = repair(run, rounds=1, out=tmp_path / "repaired")
    kept, now = run.load_model().state_dict(), made.load_model().state_dict()
    assert all(torch.equal(kept[name], now[name]) for name in kept)
    certificate = Certificate.load(made)
    (first,) = certificate.repair
    assert certificate.outcome == "refuted" and certificate.wrong == first["wrong"]
    *_, second = Certificate.load(repair(run, rounds=2, out=tmp_path / "again")).repair
    assert second["rate"] == repairing.SLOWER * first["rate"] and second["wrong"] == first["wrong"]


def copied(run: Run, folder) -> Path:
    return shutil.copytree(run.path, folder / "copy")


def biased(run: Run, folder, token: int, by: float) -> Run:
    """A copy of a run whose model writes a token more often."""
    made = Run.open(copied(run, folder))
    model: Any = made.load_model()
    with torch.no_grad():
        model.head.bias[token] += by
    made.save_model(model)
    vouch(made)
    return made


def vouch(run: Run) -> None:
    """Let the run stand for the weights that it has now."""
    ended: Any = run.result
    run.save_result({k: v for k, v in ended.items() if k not in Record.model_fields})


def change(path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# The checker that stands by itself


def run_check(folder) -> subprocess.CompletedProcess:
    command = [sys.executable, "-I", "-S", "-c", SITE.format(folder / "check.py")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


SITE = f"""
import runpy, sys
sys.path.append({str(Path(np.__file__).parents[1])!r})
for name in ("torch", "abc_calib", "transformers"):
    sys.modules[name] = None
runpy.run_path("{{}}", run_name="__main__")
"""


def test_the_exported_checker_agrees(certified, tmp_path):
    folder = export(certified, tmp_path / "export")
    assert len((folder / "check.py").read_text().splitlines()) <= 300
    found = run_check(folder)
    assert found.returncode == 0 and found.stdout.startswith("certified: right in each of")
    with pytest.raises(UsageError, match="name a new folder"):
        export(certified, folder)


TAMPERED = ("model.safetensors", "rule.json", "lines.json", "config.json", "model_config.json",
            "generation_config.json", "certificate.json")  # fmt: skip


def test_the_exported_checker_finds_out_what_was_changed(certified, tmp_path):
    folder = export(certified, tmp_path / "export")
    for name in TAMPERED:
        content = (folder / name).read_bytes()
        place = content.rindex(b"1") if name != "model.safetensors" else len(content) - 5
        (folder / name).write_bytes(content[:place] + b"2" + content[place + 1 :])
        found = run_check(folder)
        assert found.returncode == 1 and "was changed" in found.stderr, name
        (folder / name).write_bytes(content)


def test_the_exported_checker_finds_out_what_was_forged(certified, tmp_path):
    """A refuted model whose certificate says certified, its hashes made to fit."""
    run = biased(certified, tmp_path, 3, 100)
    forged = certify(run)
    assert forged.outcome == "refuted"
    assert "says refuted" in run_check(export(run, tmp_path / "refuted")).stderr
    forged.outcome, forged.margin, forged.rounding = "certified", 1.0, 1e-7
    forged.save(run)
    found = run_check(export(run, tmp_path / "forged"))
    assert found.returncode == 1 and "wrong at" in found.stderr


@pytest.mark.parametrize("given", MODELS, ids=lambda m: "-".join(map(str, m)))
def test_both_ways_to_list_and_to_compute_agree(given):
    """The smallest margins of random models, by cases and by concrete widths."""
    model, source = build(*given)
    proof = prepare(model, source)
    if any(map(has_free, proof.windows)):
        return  # what runs against the rows is listed more freely by cases
    least = margin_by_program(checker, checker.kinds, proof)
    assert least == pytest.approx(min(c.margin for c in check(proof)), rel=1e-6)


@pytest.mark.parametrize("part", [None, 64], ids=["held", "streamed"])
@pytest.mark.parametrize("given", MODELS, ids=lambda m: "-".join(map(str, m)))
def test_rows_that_are_computed_alike_have_the_same_margins(given, part, monkeypatch):
    """What is known of other rows' windows is what running each case by itself gives."""
    model, source = build(*given)
    proof = prepare(model, source)
    exact, shared = Exact(model, proof.field), proof
    monkeypatch.setattr(shapes, "FEW", 1)
    if part:
        most = max(len(windows) for windows in proof.windows)
        monkeypatch.setattr(prove, "PART", max(part, most // 3))
        shared = replace(proof, windows=[None] * len(proof.windows))
    for windows, checked in zip(proof.windows, check(shared), strict=True):
        margins, certain = run_exactly(exact, windows, lambda _: None).unbind(1)
        assert checked.windows == len(windows)
        assert checked.wrong == int((margins <= 0).sum())
        same = partial(pytest.approx, rel=1e-9, abs=1e-12)
        assert checked.margin == same(float(margins.min()))
        assert checked.certain == same(float(certain.min()))
        assert checked.rounding == pytest.approx(float((margins - certain).max()), rel=1e-3)
        worst = np.sort(margins[margins <= 0].numpy())[: prove.KEPT]
        assert checked.margins == same(worst)
        listed = set(zip(map(tuple, windows.values.tolist()), windows.expected, strict=True))
        failing = zip(map(tuple, checked.failing.tolist()), checked.expected, strict=True)
        assert set(failing) <= listed


@pytest.mark.parametrize("part", [None, 2000], ids=["held", "streamed"])
@pytest.mark.parametrize("given", [MODELS[2], MODELS[11]], ids=["lines", "cyclic"])
def test_most_windows_of_an_edge_are_known_from_the_inside(given, part, monkeypatch):
    model, source = build(*given)
    proof, ran = prepare(model, source), []
    monkeypatch.setattr(shapes, "FEW", 1)
    if part:
        monkeypatch.setattr(prove, "PART", min(part, max(proof.sizes) // 2))
        proof = replace(proof, windows=[None] * len(proof.windows))
    monkeypatch.setattr(
        prove, "run_exactly", lambda *given: ran.append(len(given[1])) or run_exactly(*given)
    )
    assert sum(checked.windows for checked in check(proof)) == proof.size
    assert sum(ran) < 0.6 * proof.size


# What cannot be decided


def reason(model, source) -> str:
    with pytest.raises(Undecided) as error:
        prepare(model, source)
    return str(error.value)


def test_an_unbounded_field_is_named():
    model, source = calibrated("addition", 10, 0)
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
    found = check(prepare(model, source))
    assert all(c.wrong == c.windows for c in found)


def test_relative_positions_do_not_matter_on_single_lines(model_for):
    source = digit_data("successor", base=3)
    model = model_for(source, scheme="rope")
    model.set_lines(random_lines(0, 1, 2, 1))
    assert sum(c.windows for c in check(prepare(model, source))) > 0


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


def test_a_first_training_that_is_not_done_goes_on_from_its_weights(tmp_path, monkeypatch, abc):
    shape, training, retraining = PRESETS["quick"]
    shape = shape.model_copy(update={"width": 8, "heads": 2, "feedforward": 8})
    training = training.model_copy(update={"steps": 20, "batch": 4, "validate_every": 10})
    monkeypatch.setitem(PRESETS, "quick", (shape, training, retraining))
    said = abc("certify", "--task", "successor", "--out", tmp_path / "a", "-q").error(1)
    assert "the model has not interpolated" in said
    runs = [
        Run.open(tmp_path / "a" / f"successor-seed0-vanilla{n}") for n in ("", "-2", "-3", "-4")
    ]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [r.path.name for r in runs]
    assert [r.config.parent for r in runs] == [None, *(str(r.path) for r in runs[:3])]
    assert {(r.config.train.early_stop_at, r.config.train.cooldown) for r in runs} == {(0.95, 100)}
    first, last = (r.load_model().state_dict() for r in (runs[0], runs[3]))
    assert any(not torch.equal(first[name], last[name]) for name in first)
    with pytest.raises(AbcError, match="has not interpolated"):
        stages.certified("successor", folder=tmp_path / "b", steps=20, progress=False)
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["successor-seed0-vanilla"]
    with pytest.raises(AbcError, match="has not interpolated"):  # a preset that is asked for
        how = {"preset": "quick", "steps": 20, "progress": False}
        stages.certified("successor", folder=tmp_path / "c", **how)
    asked = Run.open(tmp_path / "c" / "successor-seed0-vanilla").config.train
    assert (asked.early_stop_at, asked.cooldown) == (0.999, training.cooldown)


def test_windows_that_two_answers_fit_name_a_source_each(tiny, model_for):
    """A model that sees the row's own digit alone: a 9 is followed by 0 or by itself."""
    source = digit_data("successor", base=3)
    model = model_for(source, scheme="none")
    shape = model.options.heads, model.options.decoder_layers
    here = (((Line("anti", 1, 0),),) * shape[0],) * shape[1]
    own = (((Line("diag", 0, 0),),) * shape[0],) * shape[1]
    model.set_lines(LineBias({"self": own, "cross": here}))
    proof = prepare(model, source)
    checks = check(proof)
    assert sum(len(c.failing) for c in checks)
    found = list(failing_sources(proof, checks, 3, 12, np.random.default_rng(0)))
    assert found
    for case, number, text in found:
        checked, batch = checks[case], source.lay_out(source.task.parse(text))
        rows = {
            (tuple(v), int(batch.target[0, r]))
            for r, i, v in every_row(proof, source.task.parse(text))
            if i == case
        }
        window = tuple(checked.failing[number].tolist()), int(checked.expected[number])
        assert window in rows


@pytest.mark.parametrize(("task", "base"), [("addition3", 3), ("addition4", 4), ("addition3", 4)])
def test_sums_whose_last_carry_is_one_digit_are_rules(task, base):
    source = digit_data(task, base=base)
    rule = source.task.column_rule()
    rng = np.random.default_rng(0)
    problems = source.task.sample(rng, 200, 6, "mixed", exact=False)
    for k in range(200):
        operands = source.task.padded(one(problems, k).operands)
        columns = np.stack([o.values[0, ::-1] for o in operands])
        answer = one(problems, k).answer
        right = answer.values[0, answer.width - answer.lengths[0] :][::-1]
        assert rule.run(columns.T.tolist(), 0) == right.tolist()
    narrow = int(task[-1]) - 1
    assert narrow < 2 or digit_data(task, base=narrow).task.column_rule() is None


def test_lines_that_go_on_by_a_part_of_a_column_are_refused():
    source = digit_data("addition3", base=4, format="aligned")
    options = TransformerOptions(width=8, heads=1, feedforward=12, decoder_layers=1, scheme="none")
    model = build_model("transformer", options, source, 0).eval()
    own = (((Line("diag", 0, 0),),),)
    for stride in (1, 2, 4, 6):
        line = Line("anti", 2, 0, stride=stride)
        model.set_lines(LineBias({"self": own, "cross": (((line,),),)}))
        assert "drifts through the digits" in reason(model, source)
    far = Line("anti", 2, -9000, stride=3)
    model.set_lines(LineBias({"self": own, "cross": (((far,),),)}))
    assert "too far" in reason(model, source)
