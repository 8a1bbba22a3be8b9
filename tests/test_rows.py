"""Outputs of several rows: tasks, geometry, decoding, windows, the fit."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from conftest import in_stream, written
from hypothesis import given, settings
from hypothesis import strategies as st
from test_hub import generated

from abc_calib import stages
from abc_calib.calibration.fits import Evidence
from abc_calib.calibration.fits.rows import Rows, candidates
from abc_calib.calibration.plan import resolve_defaults
from abc_calib.calibration.windows import disputed, hashed, smallest
from abc_calib.config import (
    MODEL_OPTIONS,
    CalibrationOptions,
    TrainOptions,
    build,
)
from abc_calib.data import make_data
from abc_calib.errors import AbcError
from abc_calib.geometry import Line, LineBias
from abc_calib.nn import hub
from abc_calib.nn.build import build_model
from abc_calib.nn.lines import LineGather
from abc_calib.nn.saved import save_weights
from abc_calib.proof import check as checker
from abc_calib.proof.decide import decide
from abc_calib.proof.forms import Undecided
from abc_calib.proof.page import atom_name
from abc_calib.proof.prove import prepare, setup_of
from abc_calib.proof.until import certain
from abc_calib.proof.windows import AllWindows
from abc_calib.proof.witness import Witnesses
from abc_calib.runs import Run
from tasks import ROW_TASKS, TaskError, get_task
from tasks.rows import ROW

OWN = Line("diag", 0, 0)


def long_rows(a: int, b: int, base: int) -> list[str]:
    """Each row of a product as it is written, last digit first; with Python's integers."""
    width, row, rows = len(written(a, base)) + 1, 0, []
    for digit in reversed(written(b, base)):
        row = row // base + a * int(digit, 36)
        rows.append(written(row, base).rjust(width, "0")[::-1])
    return [*rows, ""]


def sum_rows(numbers: list[int], base: int) -> list[str]:
    return [written(sum(numbers[: k + 1]), base)[::-1] for k in range(len(numbers))]


bases = st.sampled_from([2, 3, 7, 10, 16, 36])


@given(bases, st.data())
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_paper(base, data):
    number = st.integers(0, base ** data.draw(st.integers(1, 12)) - 1)
    a, b = data.draw(number), data.draw(number)
    task = get_task("long_multiplication", base=base)
    source = f"{written(a, base)}*{written(b, base)}"
    assert task.solve(source) == written(a * b, base)
    answer = task.digits_of(task.parse(source).answer, 0)
    assert answer[::-1] == ROW.join(long_rows(a, b, base))
    numbers = data.draw(st.lists(number, min_size=1, max_size=6))
    task = get_task("sum", base=base)
    source = "+".join(written(n, base) for n in numbers)
    assert task.solve(source) == written(sum(numbers), base)
    assert task.digits_of(task.parse(source).answer, 0)[::-1] == ROW.join(sum_rows(numbers, base))


@given(
    st.sampled_from(list(ROW_TASKS)),
    bases,
    st.sampled_from(["balanced", "carry", "mixed", "few"]),
    st.booleans(),
    st.integers(1, 6),
    st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_problems_are_of_their_size_and_right(name, base, law, exact, digits, rows):
    task = get_task(name, base=base)
    drawn = task.sample(np.random.default_rng(0), 12, (digits, rows), law, exact)
    families = task.families(np.random.default_rng(0), 5, (digits, rows)).values()
    for problems, whole in [(drawn, exact), *((family, False) for family in families)]:
        for row in range(len(problems)):
            source = task.write(problems, row)
            parts = source.replace("*", "+").split("+")
            assert all(part == "0" or part[0] != "0" for part in parts)
            assert task.parse(source).answer.lengths[0] == problems.answer.lengths[row]
            numbers = [int(part, base) for part in parts]
            right = np.prod(numbers, dtype=object) if name != "sum" else sum(numbers)
            assert int(task.read(task.digits_of(problems.answer, row)), base) == right
            widths = [len(part) for part in parts]
            if whole and name == "sum":
                assert widths == [digits] * rows
            elif whole:
                assert widths == [digits, rows]
            assert max(widths) <= max(digits, rows)


def test_sources_that_are_none():
    for name, source, said in (
        ("long_multiplication", "*3", "is not a source of long_multiplication"),
        ("long_multiplication", "2*3*4", "is not a source of long_multiplication"),
        ("long_multiplication", "1a*3", "'a' is not a digit of base 10"),
        ("sum", "1++2", "is not a source of sum"),
        ("sum", "", "is not a source of sum"),
        ("sum", "3-1", "'-' is not a digit"),
    ):
        with pytest.raises(TaskError, match=said):
            get_task(name).parse(source)


def test_outputs_that_do_not_fit_are_refused_with_what_does():
    with pytest.raises(TaskError, match="give at most 49 problems of this size, or smaller"):
        get_task("long_multiplication").sample(np.random.default_rng(0), 60, 1000, exact=True)
    with pytest.raises(TaskError, match=r"1 output of up to 100,020,000 tokens: .* 7,069 digits"):
        get_task("long_multiplication").parse(f"{'7' * 10_000}*{'3' * 10_000}")


# Geometry


def data_of(name: str, base: int = 10, **options):
    return make_data(get_task(name, base=base), TrainOptions(length=4, sampling="mixed", **options))


def model_of(data, lines: LineBias | None, layers: int = 2, seed: int = 0, kind="transformer"):
    sizes: Any = {"width": 16, "feedforward": 32, "heads": 4, "decoder_layers": layers}
    options: Any = MODEL_OPTIONS[kind]
    model: Any = build_model(kind, options(scheme="none", **sizes), data, seed).eval()
    model.set_lines(in_stream(lines, seed) if model.stream and lines else lines)
    return model


def product_lines(layers: int = 2, heads: int = 8) -> LineBias:
    """What a product needs: see docs/rows.md."""
    own = (Line("diag", 1, 1), Line("diag", 1, 2))
    crossed = (
        *(Line("anti", 1, 0), Line("anti", 1, -1)),
        *(Line("vert", 2, 1, beta=1), Line("vert", 2, 2, beta=1)),
    )
    first = tuple((own[h % 2],) for h in range(heads))
    across = tuple((crossed[h % 4],) for h in range(heads))
    above = ((OWN,),) * heads
    return LineBias({"self": (first, *(above,) * (layers - 1)), "cross": (across,) * layers})


grid_lines = {
    "self": st.builds(
        Line, st.sampled_from(["diag", "vert"]), st.integers(0, 2), st.integers(-3, 3)
    ),
    "cross": st.builds(
        Line,
        st.sampled_from(["diag", "anti", "vert"]),
        st.integers(0, 3),
        st.integers(-3, 3),
        beta=st.integers(-1, 2),
        part_step=st.integers(0, 1),
    ),
}


def slow_key(line: Line, site: str, opens: list[int], place: int, closes: list[int]) -> int:
    """The key of a line, transcribed from the definition in docs/rows.md with plain loops."""
    row = max(k for k, at in enumerate(opens) if at <= place)
    column = place - opens[row]
    if site == "self":
        above = max(row - line.segment, 0)
        low = opens[above]
        high = place if not line.segment else opens[max(row - line.segment + 1, 0)]
        key = low + line.offset + (column if line.direction == "diag" else 0)
    else:
        part = min(max(line.segment + line.part_step * row, 0), len(closes) - 1)
        opening = min(max(max(line.segment - 1, 0) + line.part_step * row, 0), len(closes) - 1)
        low, high = closes[opening], closes[part]
        move = line.beta * row
        if line.direction == "diag":
            key = low + 1 + column + line.offset + move
        elif line.direction == "anti":
            key = high - 1 - column - line.offset - move
        else:
            key = high - line.offset - move
    return min(max(key, low), high)


@given(st.sampled_from(["self", "cross"]), st.data())
@settings(max_examples=60, deadline=None)
def test_keys_of_lines_on_a_grid(site, draw):
    data = data_of("sum")
    line = draw.draw(grid_lines[site])
    if site == "cross" and line.segment == 3:
        line = replace(line, segment=1)
    model = model_of(data, None)
    batch = data.lay_out(data.task.sample(np.random.default_rng(1), 3, (3, 3), exact=True))
    frame = model.views(batch.source, batch.target)[site]
    keys = LineGather({site: ((line,),)}).positions(frame)[0]
    keys = keys[:, 0, :, 0].expand(len(batch), -1)
    bar, eos = data.vocabulary.ids[ROW], data.vocabulary.eos
    signs = {data.vocabulary.sos, data.vocabulary.ids["+"], eos}
    for i in range(len(batch)):
        read = model.shifted(batch.target)[i].tolist()
        opens = [0, *(k for k, token in enumerate(read) if token == bar)]
        closes = [k for k, token in enumerate(batch.source[i].tolist()) if token in signs]
        for place in range(int((batch.target[i] != model.pad).sum())):
            assert int(keys[i, place]) == slow_key(line, site, opens, place, closes)


@pytest.mark.parametrize("lined", [False, True])
@pytest.mark.parametrize("kind", ["transformer", "decoder"])
def test_a_saved_model_generates_the_rows_that_it_decodes(kind, lined, tmp_path):
    data = data_of("long_multiplication", 3)
    model = model_of(data, product_lines(heads=4) if lined else None, seed=2, kind=kind)
    with torch.no_grad():
        model.head.bias[model.tokens.rows[0]] += (
            0.5  # so that outputs have different numbers of rows
        )
    source = data.lay_out(data.task.sample(np.random.default_rng(0), 20, (5, 4))).source
    expected = model.decode(source, 30).ids
    assert len((expected == model.tokens.rows[0]).sum(1).unique()) > 3
    save_weights(tmp_path / "model", model, data.vocabulary)
    described = json.loads((tmp_path / "model" / "config.json").read_text())
    assert described["row_id"] == model.tokens.rows[0]
    assert torch.equal(generated(hub.load(tmp_path / "model"), source, 30), expected)


# Windows


def sum_lines(layers: int = 2, heads: int = 4) -> LineBias:
    """What a sum needs, one offset more of each, and what else a row may read."""
    own = (Line("diag", 1, 0), Line("diag", 1, 1), Line("diag", 1, 2), OWN)
    crossed = (
        *(Line("anti", 1, offset, part_step=1) for offset in (0, -1)),
        *(Line("vert", 1, offset, part_step=1) for offset in (0, 2)),
    )
    deeper = (Line("vert", 1, 0), Line("vert", 0, 0), Line("anti", 1, 1, part_step=1), crossed[0])
    first = tuple((own[h % 4],) for h in range(heads))
    above = tuple((Line("diag", 0, -h % 2),) for h in range(heads))
    across = [tuple((lines[h % 4],) for h in range(heads)) for lines in (crossed, deeper)]
    sites: Any = {"self": (first, *(above,) * (layers - 1)), "cross": tuple(across[:layers])}
    return LineBias(sites)


@pytest.mark.parametrize("name", ["long_multiplication", "sum"])
def test_what_fails_is_trained_on_within_the_training_sizes(name):
    """Problems of fewer rows than others stand in one batch with them."""
    data = data_of(name, 3 if name == "sum" else 2)
    model = model_of(data, sum_lines() if name == "sum" else product_lines(heads=4))
    found = certain(model, data, 0)
    assert found is not None and not found.look(model, 100) and found.hard
    parsed = [data.task.parse(text) for text in found.hard]
    assert all(data.may_train(one) for one in parsed)
    assert len({data.task.size_of(one.operands)[1] for one in parsed}) > 1
    pad, usual = model.pad, data.training(3, 40)
    batch = found.batch(usual, 3)
    texts = [data.task.plain(batch.problems, row) for row in range(len(batch))]
    added = [text for text in texts if text in found.hard]
    assert len(texts) == 40 and len(set(added)) > 1
    for text, target in zip(texts, batch.target, strict=True):
        alone = data.lay_out(data.task.parse(text)).target[0]
        assert torch.equal(target[: len(alone)], alone) and (target[len(alone) :] == pad).all()
    largest, one_more = {"sum": ("1+2+2+2", "+2")}.get(name, ("1010*1101", "1"))
    whole, larger = (data.task.parse(text) for text in (largest, largest + one_more))
    assert data.may_train(whole) == data.split.allows(whole, held_out=False)[0]
    assert not data.may_train(larger)


def test_lines_of_sums_that_no_window_holds():
    data = data_of("sum", 3)
    for line in (
        Line("anti", 1, 0),
        Line("vert", 1, 1),
        Line("vert", 1, 1, beta=1),
        Line("anti", 2, 0, part_step=1),
    ):
        lines = LineBias({**sum_lines().sites, "cross": (((line,),) * 4,) * 2})
        said = "sources that may have 1" if line.segment > 1 else "leaves the row's own operand"
        with pytest.raises(Undecided, match=said):
            prepare(model_of(data, lines), data)


# The fit


@pytest.mark.parametrize(("name", "source"), [("tape", "2 : 0 1 1"), ("division", "101/11")])
def test_later_rows_read_what_a_rule_reads_in_its_source(name, source):
    """A machine's tape is read by the first row alone: below it, lines rest on delimiters."""
    data: Any = make_data(get_task(name), TrainOptions(length=4, sampling="uniform"))
    layout = data.layout(data.task.parse(source))
    options = CalibrationOptions(dirs="diag,anti,vert")
    for line in candidates(2, options, data.coupling, data.above)["cross"]:
        if (line.direction, line.segment, line.offset) == ("anti", 2, 0):
            bias = LineBias({"cross": (((line,),),)}).matrix("cross", 0, layout, (4, 4))[0]
            read = {*np.isfinite(bias[4:]).nonzero()[1].tolist()}
            assert (read <= {*layout.closes}) == (name == "tape"), line


def test_no_smaller_set_of_lines_decides():
    """By brute force; and where every set does, none of the lines is needed."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        windows = rng.integers(0, 2, (300, 7))
        chosen = rng.choice(6, 3, replace=False)
        written = rng.integers(0, 2, 2**4)[windows[:, [*chosen, 6]] @ [1, 2, 4, 8]]
        best = next(
            size
            for size in range(7)
            for some in combinations(range(6), size)
            if not contradicted(windows[:, [*some, 6]], written)
        )
        found = smallest(windows, written, rng.random(6).tolist())
        assert len(found) == best
        assert not contradicted(windows[:, [*found, 6]], written)
        assert best == 0 or contradicted(windows[:, [6]], written) > 0
        assert smallest(windows, windows[:, 6], [1.0] * 6) == []


def contradicted(windows: np.ndarray, written: np.ndarray) -> int:
    """How many rows see what others see that write another token."""
    return disputed(hashed(windows).sum(1), written)[0]


def test_two_light_lines_that_decide_are_found_among_many_heavy_ones():
    """Each heavy one says a part of what both say, so that nearly all together decide as well."""
    rng = np.random.default_rng(2)
    light = rng.integers(0, 2**14, (4000, 2))
    heavy = np.stack([light[:, k % 2] >> k // 2 & 1 for k in range(28)], 1)
    windows = np.concatenate([heavy, light, np.zeros((4000, 1), int)], 1)
    written = light.sum(1) % 10
    assert not contradicted(windows[:, [*range(28), 30]], written)
    assert smallest(windows, written, [1.0] * 28 + [0.1] * 2) == [28, 29]


# From lines to a certificate


@pytest.mark.parametrize(
    "name, sign, covered, sizes",
    [
        pytest.param(
            *("sum", "+", "any number of numbers of digits", [(4, 3), (40, 20), (2, 120)]),
            marks=pytest.mark.slow,
        ),
        ("product", "*", "every number of rows", [(4, 3), (60, 40)]),
    ],
)
def test_outputs_of_rows_are_certified_checked_by_others_and_right(
    name, sign, covered, sizes, tmp_path
):
    run = Run.open(f"zoo:{name}")
    certificate = stages.certify(run, progress=False)
    assert certificate.outcome == "certified" and certificate.wrong == 0
    page = (run.path / "certificate.md").read_text()
    assert covered in page and "There are two inductions" in page
    assert stages.verify(run, sources=2).verified["wrong"] == 0

    folder = stages.export(run, tmp_path / "checked")
    said = checker.check(folder)
    assert said.startswith("certified: right in each of")
    margin = float(said.split("margin ")[1].split(":")[0])
    assert margin == pytest.approx(certificate.margin, rel=1e-3)
    rule = json.loads((folder / "rule.json").read_text())
    rule["later"]["written"][0][0][0] ^= 1
    (folder / "rule.json").write_text(json.dumps(rule))
    with pytest.raises(SystemExit, match="not certified: rule was changed"):
        checker.check(folder)

    table = stages.evaluate(run, sizes, samples=5, progress=False)
    assert table["rows"].tolist() == [rows for _, rows in sizes]
    assert (table["accuracy"] == 100).all()
    decoded = stages.evaluate(run, [(12, 9)], samples=3, greedy=True, progress=False)
    assert decoded["accuracy"].tolist() == [100]
    batch = run.data.test((12, 9), 3)
    written = generated(hub.load(run.path / "model"), batch.source, batch.target.shape[1])
    assert torch.equal(written, batch.target)
    a, b = 2**90 - 12345, 2**70 - 678
    right = a + b if sign == "+" else a * b
    assert stages.predict(run, f"{a:b}{sign}{b:b}").answer == f"{right:b}"


@pytest.mark.parametrize("name", ["sum", pytest.param("product", marks=pytest.mark.slow)])
def test_what_is_wrong_is_refuted_by_a_problem(name):
    run = Run.open(f"zoo:{name}")
    model = run.load_model()
    assert decide(run, model).certificate.outcome == "certified"
    torch.manual_seed(0)
    with torch.no_grad():
        model.head.bias += torch.randn(len(model.head.bias)) * 20
    certificate = decide(run, model).certificate
    assert certificate.outcome == "refuted" and certificate.counterexamples
    for one in certificate.counterexamples[:3]:
        assert run.task.solve(one["problem"]) == one["right"]


def test_a_fit_without_the_lines_it_needs_says_that_windows_contradict_each_other():
    """A model that was never trained gives no lines that decide."""
    data = make_data(get_task("long_multiplication"), TrainOptions(length=4, sampling="mixed"))
    model = model_of(data, None)
    batch = data.training(0, 64)
    options = resolve_defaults(build(CalibrationOptions, fit="rows", dirs=("vert",)))
    with pytest.raises(AbcError, match="no lines were found that decide what is written"):
        Rows(Evidence.of_run(model, data, batch, batch), options).bias(0.05)


@pytest.mark.parametrize(
    ("task", "own", "crossed", "window"),
    [
        (
            "long_multiplication",
            (Line("diag", 1, 2), Line("diag", 1, 1), Line("diag", 0, 0)),
            (Line("anti", 1, 0), Line("vert", 2, 1, beta=1), Line("anti", 1, -1)),
            {"y[t-1]": 0, "p[t+1]": 4, "p[t]": 8, "a[t]": 8, "b": 7, "a[t-1]": 5, "y[t]": 5},
        ),
        pytest.param(
            "division",
            (Line("diag", 1, 1), Line("diag", 1, 0), Line("vert", 0, 0), Line("diag", 0, 0)),
            (
                Line("anti", 2, 0),
                Line("vert", 1, 1, beta=1),
                Line("anti", 2, -1),
                Line("vert", 2, 0),
            ),
            {"y[t-1]": 6, "p[t]": 0, "p[t-1]": 2, "y[open]": 14, "b[t]": 9, "a": 10, "b[t-1]": 1}
            | {"y[t]": 6},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_rare_windows_of_late_rows_are_found_in_numbers_of_the_training_length(
    model_for, task, own, crossed, window
):
    made = get_task(task, base=10)
    data: Any = make_data(made, TrainOptions(length=4, sampling=made.sampling))
    shape = {"width": 4 * len(own), "heads": len(own), "feedforward": 8}
    model = model_for(data, scheme="none", **shape)
    sites: Any = {"self": [[(x,) for x in own]], "cross": [[(x,) for x in crossed]]}
    model.set_lines(LineBias(sites))
    shape = setup_of(model, data)
    listing, base = AllWindows(shape), shape.rule.base
    witnesses, rng, found = Witnesses(data.task.rule_task, listing), np.random.default_rng(0), 0
    for node, (place, *_) in listing.occurrences.items():
        names = [atom_name(place, atom) for atom in place.atoms]
        if {*names} == {*window} - {"y[t]"}:
            code = sum(window[name] * base**k for k, name in enumerate([*names, "y[t]"]))
            found += len(witnesses.sources(node, code, 1, 4, rng, near=True))
    assert found
