"""Certificates: no source has a smaller margin than the proof; what is not covered is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_CEILING
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import (
    CALIBRATED,
    TRAIN,
    VANILLA,
    assert_same_weights,
    change_json,
    changed_copy,
    quicker,
)
from hypothesis import given
from hypothesis import strategies as st
from random_models import drawn, sources
from safetensors.torch import load_file, save_file

from abc_calib import stages
from abc_calib.config import TransformerOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation import exact_matches
from abc_calib.evaluation.failures import margins
from abc_calib.nn.base import in_float64
from abc_calib.proof import check as checker
from abc_calib.proof import forms, prove, rounding, second_look, until, windows
from abc_calib.proof.certificate import NOT_COMPARED, Certificate, difference
from abc_calib.proof.decide import _number, decide
from abc_calib.proof.forms import Undecided
from abc_calib.proof.occurrence import TooMany
from abc_calib.proof.prove import check, parts, prepare
from abc_calib.proof.second_look import export, verify
from abc_calib.proof.witness import Witnesses
from abc_calib.reporting.card import card
from abc_calib.reporting.page.collect import certificate as shown_on_page
from abc_calib.runs import Run
from abc_calib.runs.records import file_hash
from abc_calib.stages import certify, predict, repair
from cli.runs import verdict_of
from tasks.ragged import from_integers

slow = pytest.mark.slow
MOST = 4_000
"""Windows of a random model that are run."""
ONE_HEAD = TransformerOptions(width=8, heads=1, feedforward=8, decoder_layers=1, scheme="none")


def judged(seed: int, sizes: int = 200) -> tuple[Any, Any, Any, list[Any]] | None:
    """A random model with its data, proof and checked windows; None where it has too many."""
    model, data = drawn(seed)
    with pytest.MonkeyPatch.context() as patch, suppress(Undecided, TooMany):
        patch.setattr(windows, "MOST_SIZES", sizes)
        proof = prepare(model, data, part=4 * MOST, most=MOST)
        return model, data, proof, check(proof)
    return None


def double(model: Any) -> Any:
    """The model in float64, by dense attention."""
    model = model.double()
    model.set_path("dense")
    return model


def smallest(model: Any, data: Any) -> float:
    """The smallest margin of any short source."""
    return min(float(margins(model, data.lay_out(some)).min()) for some in sources(data))


def test_a_proof_that_looks_at_too_few_sizes_is_found_out(monkeypatch):
    """The control: with every gap open from the start, sources below the proof are seen."""
    sign = forms.sign

    def careless(a: Any, b: Any) -> int:
        before = list(a.gaps.open)
        outcome = sign(a, b)
        a.gaps.open[:] = before
        return outcome

    monkeypatch.setattr(forms, "sign", careless)
    below = 0
    for model, data, _, checked in filter(None, map(judged, range(20))):
        proved = min((c.margin for c in checked), default=float("inf"))
        below += smallest(double(model), data) < proved - 1e-6
    assert below >= 2


def program_margin(model: Any, data: Any, proof: Any) -> tuple[int, float]:
    """The windows and the smallest margin as the exported program finds them."""
    e: Any = object.__new__(checker.Export)
    o, shape, ids = model.options, proof.listing.setup, data.vocabulary.ids
    config = {"d_model": o.width, "heads": o.heads, "decoder_layers": o.decoder_layers}
    config |= {"scheme": o.scheme, "cyclic": getattr(o, "cyclic", None)}
    config |= {"encoder_layers": getattr(o, "encoder_layers", 0)}
    config |= {"bos_token_id": model.sos, "eos_token_id": model.eos}
    delimiters = [ids[name] for name in shape.layout.delimiters]
    source = {"delimiters": delimiters, "aligned": shape.layout.aligned, "row": ids.get("|")}
    e.take_model(model.lines.to_dict(), config)
    e.take_rule(proof.rule.as_dict(), source)
    e.weights = {k: v.detach().double().numpy() for k, v in model.state_dict().items()}
    checker.rows_follow(e)
    checker.rows_end(e)
    nodes, least, windows = checker.Nodes(), float("inf"), 0
    for name, (code, count) in checker.kinds(e, nodes).items():
        values, right = code[:, None] // e.base ** np.arange(count) % e.base, code // e.base**count
        least = min(least, float(checker.Model(e, nodes, values).margins(name, right).min()))
        windows += len(code)
    return windows, least


@pytest.mark.parametrize("seed", [4, 9, 21, 36, 37, 54, 63])
def test_a_window_is_in_the_sources_that_are_made_of_it(seed):
    """With the margin there that the proof says; those that fail are found."""
    found = judged(seed)
    assert found is not None
    model, data, proof, checked = found
    model, rng, seen = double(model), np.random.default_rng(0), 0
    witnesses = Witnesses(data.task, proof.listing)
    for one in checked[:6]:
        for code, margin in zip(one.failing[:2].tolist(), one.margins[:2].tolist(), strict=True):
            for at, problems in witnesses.sources(one.node, code, 2, 8, rng):
                batch = data.lay_out(problems)
                right = code // proof.listing.radix(one.node)
                assert int(batch.target[0, at]) == right
                assert float(margins(model, batch)[0, at]) == pytest.approx(margin, abs=1e-6)
                seen += 1
    assert seen or not sum(c.wrong for c in checked)


@pytest.mark.parametrize("seed", [4, 25])
def test_windows_made_in_parts_are_the_same(seed, monkeypatch):
    """However few are held at once, each of them once, and with the margin of the whole."""
    found = judged(seed)
    assert found is not None
    _, _, proof, checked = found
    for node, whole in proof.codes.items():
        with suppress(TooMany):
            made = list(parts(proof.listing, node, max(200, len(whole) // 3)))
            assert np.array_equal(np.sort(np.concatenate(made)), whole)
    monkeypatch.setattr(prove, "PART", max(200, max(map(len, proof.codes.values())) // 3))
    streamed = check(replace(proof, codes=dict.fromkeys(proof.codes)))
    assert [(c.windows, c.wrong, pytest.approx(c.margin, rel=1e-9)) for c in streamed] == [
        (c.windows, c.wrong, c.margin) for c in checked
    ]


# A trained model


@pytest.fixture(scope="module")
def certified(trained, tmp_path_factory) -> Run:
    """The trained and calibrated model of successors, certified."""
    path = tmp_path_factory.mktemp("certified") / "run"
    shutil.copytree(trained.root / "successor-seed0-calibrated-1", path)
    assert certify(path).outcome == "certified"
    return Run.open(path)


def test_a_certificate_agrees_with_brute_force(certified):
    certificate = Certificate.load(certified)
    assert certificate.windows > 100 and certificate.wrong == 0
    assert certificate.margin > 1000 * certificate.rounding > 0
    assert certificate.decoded["wrong"] == 0 and certificate.decoded["sources"] > 20
    assert [row["sources"] for row in certificate.outright] == [10, 90, 900, 9000]
    model, source = certified.load_model(), certified.data
    every = from_integers(np.arange(10**4, 10**5), 10)
    batch = source.lay_out(source.task.problems(every))
    assert len(batch) == 90_000 and exact_matches(model, batch).all()
    found = verify(certified, sources=3).verified
    assert found["wrong"] == 0 and found["smallest_margin"] >= certificate.margin - 0.01
    assert found["made_again"] and found["check_py"]["windows"] == certificate.windows
    page = (certified.path / "certificate.md").read_text()
    weights = certificate.fingerprint["weights"]
    for text in ("right for every source of every length", "dense attention", weights):
        assert text in page


def test_card_and_page_say_whether_a_certificate_was_verified_here(certified, tmp_path):
    """Also of one that was forged and sealed anew after that."""
    run = Run.open(shutil.copytree(certified.path, tmp_path / "copy"))
    verify(run, sources=1)
    told = "verified on the machine where this card was written"

    def shown(folder: str, here: bool) -> None:
        written = (card(run, tmp_path / folder) / "README.md").read_text()
        assert f"It was {told}" * here + f"It was not {told}" * (not here) in written
        seen = shown_on_page(run)
        assert seen is not None and seen["verified_here"] == here

    shown("verified", True)
    forged = Certificate.load(run)
    forged.margin = 100.0
    forged.save(run)
    shown("forged", False)
    certify(run)
    shown("anew", False)


def test_a_fingerprint_is_of_the_weights_that_were_run(certified, tmp_path):
    """Not of those that stand in their place when the certificate is written."""
    run = Run.open(shutil.copytree(certified.path, tmp_path / "copy"))
    path, model = run.path / "model" / "model.safetensors", run.load_model()
    before = file_hash(path)
    weights = load_file(path)
    save_file({name: value * 1.5 for name, value in weights.items()}, path)
    found = decide(run, model).certificate
    assert found.outcome == "certified" and found.fingerprint["weights"] == before
    found.save(run)
    with pytest.raises(AbcError, match="was made with another file of weights than now"):
        Certificate.load(run)


def test_a_certificate_that_the_checker_does_not_confirm_is_refused(certified, monkeypatch):
    def lacking(run: Any, folder: Path) -> Path:
        export(run, folder)
        (folder / "lines.json").write_text("{}")
        return folder

    monkeypatch.setattr(second_look, "export", lacking)
    with pytest.raises(AbcError, match=r"not confirmed by check\.py: not certified: lines was"):
        verify(certified, sources=1)


FALSE: dict[str, Any] = {
    "outcome": "unknown", "reason": "right", "task": "parity", "base": 9, "train_length": 3,
    "scheme": "rope", "windows": 10**9, "wrong": 1, "margin": 1e3, "rounding": 0.0,
    "sizes": 1, "period": 2, "lines": {},
    "rule": {"base": 10}, "source": {"delimiters": [], "aligned": True}, "kinds": [],
    "outright": [], "decoded": {"sources": 10**6}, "compared": {"sources": 1, "longest": 1},
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
        change_json(path, **{name: value})
        with pytest.raises(AbcError, match="was changed after"):
            Certificate.load(run)
        forged = Certificate(**json.loads(path.read_text()))
        change_json(path, sha256=forged.seal())
        assert difference(again, Certificate.load(run)) == name
    with pytest.raises(AbcError, match="does not hold: it says counterexamples"):
        verify(run, sources=2)


def test_a_damaged_certificate_is_no_certificate(certified, tmp_path):
    run = Run.open(copied(certified, tmp_path))
    path = run.path / "certificate.json"
    content = json.loads(path.read_text())
    names = "fingerprint", "margin", "sha256", "more"
    for damaged in ("[" * 100_000, *(json.dumps(content | {n: float("nan")}) for n in names)):
        path.write_text(damaged)
        with pytest.raises(AbcError, match="certify again"):
            Certificate.load(run)


def test_what_cancels_in_one_order_only_is_not_certified(certified, tmp_path):
    """Two units that are huge and cancel: any kernel may leave something of them."""

    def change(model: Any) -> None:
        first, second = model.layers[-1].feedforward[0], model.layers[-1].feedforward[-1]
        first.weight[1], first.bias[1] = first.weight[0], first.bias[0]
        first.bias[:2] += 5
        for column, sign in ((0, 1), (1, -1)):
            second.weight[:, column] = sign * 1e17 * torch.arange(1, 1 + len(second.weight))

    assert certify(changed_copy(certified, tmp_path / "copy", change)).outcome != "certified"


def test_bounds_of_rounding_hold(certified, monkeypatch):
    """With the unit of float32, float32 in batches and row by row stays within them."""
    model, data = certified.load_model(), certified.data
    batch = data.test(12, 50, "hard", 0)
    exact = in_float64(model)
    with torch.inference_mode():
        right = exact(batch.source, batch.target)
        together = model(batch.source, batch.target)
        model.set_path("dense")
        dense = model(batch.source[:1], batch.target[:1])
    moved = max((together - right).abs().max(), (dense - right[:1]).abs().max())
    monkeypatch.setattr(rounding, "UNIT", 2.0**-23)
    proof = prepare(certified.load_model(), data)
    check(proof)
    assert 0 < 2 * moved < proof.evaluator.uncertain()


def test_the_verdict_on_a_task_that_is_not_known_here_is_marked(certified, monkeypatch):
    def unknown(_: Run) -> None:
        raise UsageError("unknown task")

    monkeypatch.setattr(Run, "task", property(unknown))
    assert verdict_of(certified) == "certified, unchecked"


def test_one_corrupted_weight_is_refuted(certified, tmp_path):
    def change(model: Any) -> None:
        model.head.weight[3, int(model.head.weight[3].abs().argmax())] *= -40

    run = changed_copy(certified, tmp_path / "copy", change)
    with pytest.raises(AbcError, match="another file of weights"):
        Certificate.load(run)
    assert (verdict_of(certified), verdict_of(run)) == ("certified", "out of date")
    certificate = certify(run)
    assert certificate.outcome == verdict_of(run) == "refuted" and certificate.wrong > 0
    assert len(certificate.counterexamples) == min(20, certificate.wrong)
    atoms = {row["where"]: row["atoms"] for row in certificate.kinds}
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
    def change(model: Any) -> None:
        torch.manual_seed(0)
        for weight in model.parameters():
            if weight.dim() > 1:
                weight += 0.2 * weight.std() * torch.randn_like(weight)

    run = changed_copy(certified, tmp_path / "copy", change)
    before = run.load_model()
    made = repair(run, out=tmp_path / "repaired")
    assert Certificate.load(run).outcome == "refuted"
    assert_same_weights(before, run.load_model())
    found = Certificate.load(made)
    assert found.outcome == "certified" and found.repair == [{"wrong": Certificate.load(run).wrong}]
    assert "A retraining from the weights" in (made.path / "certificate.md").read_text()
    ran, usual = made.result["ran"], run.config.train.learning_rate
    assert (ran["start"], ran["ends"], ran["learning_rate"]) == ("parent", "windows", usual / 4)
    assert [entry.get("over") for entry in made.history()][-1] == "windows"
    assert predict(made, "9" * 40).correct


def test_a_repair_without_a_problem_to_train_on_says_so(certified, tmp_path, monkeypatch):
    """None of at most the training length holds a window that fails."""
    run = biased(certified, tmp_path, 3, 100)
    monkeypatch.setattr(until, "failing_sources", lambda *_, **__: iter(()))
    with pytest.raises(AbcError, match=r"no training number of at most .* has a failing window"):
        repair(run, out=tmp_path / "repaired")


def copied(run: Run, folder) -> Path:
    return shutil.copytree(run.path, folder / "copy")


def biased(run: Run, folder, token: int, by: float) -> Run:
    """A copy of a run whose model writes a token more often."""

    def change(model: Any) -> None:
        model.head.bias[token] += by

    return changed_copy(run, folder / "copy", change)


# The checker that stands by itself


ALONE_WITH_NUMPY = """
import runpy, sys
sys.path.append(sys.argv[2])
for name in ("torch", "abc_calib", "transformers"):
    sys.modules[name] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_the_exported_checker_agrees(certified, tmp_path):
    """In a process that can import nothing but numpy."""
    folder = export(certified, tmp_path / "export")
    assert len((folder / "check.py").read_text().splitlines()) <= 1000
    given = ["-c", ALONE_WITH_NUMPY, str(folder / "check.py"), str(Path(np.__file__).parents[1])]
    found = subprocess.run([sys.executable, "-I", "-S", *given], capture_output=True, text=True)
    assert found.returncode == 0 and found.stdout.startswith("certified: right in each of")
    with pytest.raises(UsageError, match="name a new folder"):
        export(certified, folder)


def test_the_exported_checker_finds_out_what_was_changed(certified, tmp_path):
    folder = export(certified, tmp_path / "export")
    files = [path for path in folder.iterdir() if path.name != "check.py"]
    assert len(files) == 7
    for path in files:
        content = path.read_bytes()
        place = content.rindex(b"1") if path.suffix == ".json" else len(content) - 5
        path.write_bytes(content[:place] + b"2" + content[place + 1 :])
        with pytest.raises(SystemExit, match="was changed"):
            checker.check(folder)
        path.write_bytes(content)


def test_the_exported_checker_finds_out_what_was_forged(certified, tmp_path):
    """A refuted model whose certificate says certified, its hashes made to fit."""
    run = biased(certified, tmp_path, 3, 100)
    forged = certify(run)
    assert forged.outcome == "refuted"
    with pytest.raises(SystemExit, match="says refuted"):
        checker.check(export(run, tmp_path / "refuted"))
    forged.outcome, forged.margin, forged.rounding = "certified", 1.0, 1e-7
    forged.save(run)
    with pytest.raises(SystemExit, match="wrong at"):
        checker.check(export(run, tmp_path / "forged"))


def test_the_exported_checker_reads_all_that_a_loaded_model_follows(certified, tmp_path):
    """Other tokens or lines than those that are checked, with hashes made to fit."""
    folder = export(certified, tmp_path / "export")
    files = [folder / f"{name}.json" for name in ("generation_config", "model_config")]
    before = [path.read_text() for path in files]
    lines = json.loads(before[1])["line_bias"]
    lines["cross"][0][0][0]["offset"] += 1
    tokens = ("eos_token_id", "pad_token_id", "decoder_start_token_id")
    changes = [({name: 0}, first) for name in tokens for first in (files[:1], files)]
    for change, changed in ({}, []), ({"line_bias": lines}, files[1:]), *changes:
        for path in changed:
            change_json(path, **change)
        refit(folder)
        if changed:
            with pytest.raises(SystemExit, match="not certified"):
                checker.check(folder)
        else:
            assert checker.check(folder).startswith("certified")
        for path, text in zip(files, before, strict=True):
            path.write_text(text)


def refit(folder: Path) -> None:
    """Make the hashes of an export fit."""
    certificate = json.loads((folder / "certificate.json").read_text())
    for name in ("model_config", "generation_config"):
        certificate["fingerprint"][name] = checker.digest((folder / f"{name}.json").read_bytes())
    del certificate["sha256"]
    change_json(folder / "certificate.json", **certificate, sha256=checker.digest(certificate))


# What cannot be decided


def test_a_vanilla_model_is_refuted_with_a_source(tiny):
    certificate = certify(tiny.vanilla)
    assert certificate.outcome == "refuted"
    assert "not restricted to lines" in certificate.reason
    (example,) = certificate.counterexamples
    assert not predict(tiny.vanilla, example["problem"]).correct


def test_from_nothing_goes_on_from_what_lies_there(trained, tmp_path, monkeypatch, abc):
    for stage, name in {"vanilla": VANILLA, "calibrated": CALIBRATED}.items():
        shutil.copytree(trained.root / name, tmp_path / f"successor-seed0-{stage}")
    assert "holds a run of another" in abc("prove", "successor", "--out", tmp_path).error(2)
    again = {"steps": 400, "optimizer": "adam", "validate_every": 100, "cooldown": 0}
    quicker(monkeypatch, {}, {}, again)
    words = [word.lstrip("-").replace("-", "_") for word in TRAIN[2::2]]
    options = dict(zip(words, TRAIN[3::2], strict=True))
    options["length"] = options.pop("digits")
    run, certificate = stages.certified("successor", folder=tmp_path, **options)
    assert (certificate.outcome, certificate.verified["wrong"]) == ("certified", 0)
    assert run.path == tmp_path / "successor-seed0-calibrated"
    assert (run.path / "certificate.md").exists()
    repaired = shutil.copytree(run.path, tmp_path / "successor-seed0-repaired")
    (run.path / "certificate.json").unlink()  # what a repair made is kept as well
    again, _ = stages.certified("successor", folder=tmp_path, **options)
    assert again.path == repaired
    shutil.rmtree(repaired)
    longer = run.config.train.model_copy(update={"steps": 500})
    other = Run.create(run.config.model_copy(update={"train": longer}), repaired)
    shutil.copyfile(run.path / "bias.safetensors", other.path / "bias.safetensors")
    other.save_model(run.load_model())
    other.save_result(run.result)
    stages.certify(other)
    assert stages.verify(other).verified
    again, _ = stages.certified("successor", folder=tmp_path, **options)
    assert again.path == run.path  # what was repaired is of other options


def test_a_first_training_that_is_not_done_goes_on_from_its_weights(tmp_path, monkeypatch, abc):
    shape = {"width": 8, "heads": 2, "feedforward": 8}
    quicker(monkeypatch, shape, {"steps": 20, "batch": 4, "validate_every": 2}, {})
    said = abc("prove", "successor", "--out", tmp_path / "a", "-q")
    assert said.code == 1 and "has not learned its training problems" in said.err
    assert "half of the steps are done" in said.err
    runs = [
        Run.open(tmp_path / "a" / f"successor-seed0-vanilla{n}") for n in ("", "-2", "-3", "-4")
    ]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [r.path.name for r in runs]
    assert [r.config.parent for r in runs] == [None, *(str(r.path) for r in runs[:3])]
    assert {(r.config.train.early_stop_at, r.config.train.cooldown) for r in runs} == {(0.95, 100)}
    first, last = (r.load_model().state_dict() for r in (runs[0], runs[3]))
    assert any(not torch.equal(first[name], last[name]) for name in first)
    with pytest.raises(AbcError, match="has not learned"):  # steps that are asked for
        stages.certified("successor", folder=tmp_path / "b", steps=20, progress=False)
    assert len(list((tmp_path / "b").iterdir())) == 1


@given(st.floats(-1e9, 1e9))
def test_a_margin_is_rounded_to_what_is_true(value):
    down, up = _number(value), _number(value, ROUND_CEILING)
    assert down <= value <= up and down == pytest.approx(value, rel=1.01e-3)
