"""Models of transformers, tested: windows put into whole sources, and what folders generate."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import run_command as invoke
from conftest import vouch
from families import FAMILIES, tiny
from others import as_ids, saved, sums, tokenizer, train, write_pairs

import abc_calib as abc
from abc_calib import stages
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.failures import margins
from abc_calib.geometry import ALONE, Line, LineBias
from abc_calib.nn.foreign.inject import inject
from abc_calib.proof import blackbox, search
from abc_calib.proof import decide as decision
from abc_calib.proof.certificate import Certificate, fingerprint
from abc_calib.proof.decide import decide
from abc_calib.proof.forms import Undecided
from abc_calib.proof.prove import check, prepare
from abc_calib.proof.until import FLOOR, certain
from abc_calib.proof.witness import Witnesses

SUCCESSORS = [(f"{n}=", str(n + 1)[::-1]) for n in range(2000)]
OWN = (Line("diag", 0, 0),)


def lines_for(model, **how):
    """The digit of the row's own column and the one before, in every layer; the row itself."""
    here, before = (Line("anti", 1, 0),), (Line("anti", 1, -1),)
    if model.config.is_encoder_decoder:
        depth = 1 if model.config.model_type == "bart" else 2
        sites = {"encoder": ((how.get("inner", (ALONE,)),) * 4,) * depth, "self": ((OWN,) * 4,) * 2}
        return LineBias(sites | {"cross": ((here, before, here, here),) * 2})
    last = how.get("last", OWN)
    sites = {"cross": ((here, before, here, ()),) * 2, "self": (((), (), (), last),) * 2}
    return LineBias(sites, stream=True)


def folder_of(path, model, words, bias, pairs, neutral=True):
    """A model with lines and its pairs, as ``abc certify --hf`` takes them."""
    ids = (words("=")["input_ids"][0],) if len(pairs[0][0].split("+")) == 1 else (14, 15)
    if bias is not None:
        inject(model, bias, ids, neutral=neutral)
    folder = saved(model, words, path / "model")
    return folder, write_pairs(path / "pairs.jsonl", pairs)


def adopted(path, family="llama", neutral=True, pairs=SUCCESSORS, signs="=", **how):
    torch.manual_seed(0)
    far = {"max_position_embeddings": 2048} if family == "llama" else {}
    model = tiny(family, **far).eval()
    folder, data = folder_of(path, model, tokenizer(), lines_for(model, **how), pairs, neutral)
    return stages.adopt(folder, data, signs, lined=True, out=path / "run")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A run of random weights. Not to be changed."""
    return adopted(tmp_path_factory.mktemp("llama")).path


def opened(path):
    """Its model, its data, and what its windows are."""
    run = abc.Run.open(path)
    model, data = run.load_model(), run.data
    return model, data, prepare(model, data)


@pytest.mark.parametrize(
    "family, how",
    [
        *((family, {}) for family in FAMILIES),
        ("t5", {"inner": (Line("vert", 1, 0), ALONE)}),
        ("t5", {"inner": (ALONE, Line("diag", 0, 1))}),
        ("bart", {"inner": (Line("vert", 1, 0),)}),
    ],
)
def test_windows_are_all_that_rows_of_real_sources_see(family, how, tmp_path):
    """Every number of up to four digits has no other margins than the windows, least of all."""
    run = adopted(tmp_path, family, **how)
    model, data = run.load_model(), run.data
    proof = prepare(model, data)
    checked = check(proof)
    least = np.inf
    for _, problems in Witnesses(data.task.rule_task, proof.listing).short(20_000):
        least = min(least, float(margins(model, data.lay_out(data.task.render(problems))).min()))
    assert len(problems) == 9000
    assert least == pytest.approx(min(one.margin for one in checked), abs=1e-4)


def test_another_tokenizer_ends_a_certificate(tmp_path):
    """It stands in a folder that is not the run's own."""
    run = adopted(tmp_path)
    before, words = fingerprint(run), tokenizer()
    words.add_tokens(["777777"])
    words.save_pretrained(tmp_path / "model")
    after = fingerprint(abc.Run.open(run.path))
    assert [name for name in after if after[name] != before[name]] == ["tokenizer", "folder"]
    words.save_pretrained(run.path / "model")
    vouch(run.path)
    after = fingerprint(abc.Run(run.path))
    changed = [name for name in after if after[name] != before[name]]
    assert changed == ["tokenizer", "own_tokenizer", "folder"]


ENDS = json.loads(tokenizer(eos=True).backend_tokenizer.to_str())["post_processor"]


REFUSED: tuple[tuple[str, dict, str], ...] = (
    ("config.json", {"lines": 3}, "has lines that nothing can read"),
    ("config.json", {"delimiters": 3}, "has lines that nothing can read"),
    ("config.json", {"prefix": "1"}, "has lines that nothing can read"),
    ("adapter_config.json", {}, "holds an adapter"),
    ("tokenizer.json", {"post_processor": ENDS}, "the tokenizer ends sources with </s>"),
)


def test_a_folder_that_decodes_otherwise_is_refused(tmp_path):
    """What it does when it is loaded, and not what this program would make of it."""
    torch.manual_seed(0)
    model = tiny("llama").eval()
    whole, data = folder_of(tmp_path, model, tokenizer(), lines_for(model), SUCCESSORS)
    for number, (file, change, told) in enumerate(REFUSED):
        folder = shutil.copytree(whole, tmp_path / str(number))
        held = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        held.get("abc_calib", held).update(change)
        (folder / file).write_text(json.dumps(held))
        with pytest.raises(UsageError, match=told):
            stages.adopt(folder, data, "=", lined=True, out=tmp_path / "run")
        if file in ("config.json", "adapter_config.json"):
            with pytest.raises(UsageError, match=told):
                abc.load(folder)


@pytest.fixture(scope="module")
def successor(tmp_path_factory):
    """A Llama that was trained with its lines."""
    torch.manual_seed(0)
    model, words = tiny("llama", times=2), tokenizer()
    bias = lines_for(model)
    inject(model, bias, [15], neutral=True)
    train(model, *as_ids(words, SUCCESSORS), 400, 3e-3)
    path = tmp_path_factory.mktemp("successor")
    return folder_of(path, model, words, bias, SUCCESSORS)


def given(folder, pairs):
    return ["--hf", str(folder), "--data", str(pairs), "--delimiters", "="]


def test_a_llama_is_tested_and_not_certified(successor, runs_root, monkeypatch):
    assert blackbox.LENGTHS == (10, 30, 100, 300, 1000)
    monkeypatch.setattr(blackbox, "LENGTHS", (10, 100))
    found = invoke("certify", *given(*successor), "--json", "-q")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    assert told["outcome"] == "tested", told["reason"]
    assert told["windows"] == 319 and told["wrong"] == 0 and told["margin"] > 1
    assert told["decoded"] == {"sources": 50, "longest": 100, "wrong": 0}
    short = sum(row["sources"] for row in told["outright"])
    said = f"no error in 319 windows and {short + 50} sources of up to 100 digits; not a proof"
    assert told["reason"] == said and "rounding" in told and told["rounding"] is None
    run = abc.Run.open()
    assert run.config.stage == "calibrated"
    page = (run.path / "certificate.md").read_text()
    assert "Other sources may be wrong" in page and "certified" not in page
    for words in (["verify"], ["repair"], ["export", "certificate", "--out", "checked"]):
        assert "which proves nothing" in invoke(*words).error(2)
    assert "name one that is not" in invoke("calibrate").error(2)
    answer = abc.predict(run, "9" * 300 + "=").answer
    assert answer == "0" * 300 + "1"


PIECES = {
    "type": "Split",
    "pattern": {"Regex": ".{250}|."},
    "behavior": "Isolated",
    "invert": False,
}
"""Of texts of 250 characters and more."""


SETTINGS, WORDS = "generation_config.json", "tokenizer_config.json"


def changed(path, change):
    """A JSON file with some other entries."""
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


@pytest.mark.parametrize(
    ("file", "change", "digits", "answer"),
    [
        (SETTINGS, {"max_new_tokens": 3}, 10, "no end"),
        (SETTINGS, {"eos_token_id": [2, 11]}, 10, ""),
        (SETTINGS, {"no_repeat_ngram_size": 2}, 10, ""),
        (SETTINGS, {"cache_implementation": "static"}, 10, "an error: UsageError: its cache holds"),
        (WORDS, {"bos_token": "9"}, 10, ""),
        ("tokenizer.json", {"pre_tokenizer": PIECES}, 300, ""),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_a_folder_generates_is_what_is_judged(
    successor, file, change, digits, answer, tmp_path
):
    """Whatever its own settings and its tokenizer are, as its users load them."""
    folder = shutil.copytree(successor[0], tmp_path / "model")
    changed(folder / file, change)
    run = stages.adopt(folder, successor[1], "=", lined=True, out=tmp_path / "run")
    found = stages.certify(run)
    assert found.outcome == "refuted" and not found.wrong and found.decoded["longest"] == digits
    said = "its folder generates {wrong} of {sources} answers wrong".format(**found.decoded)
    assert found.reason == said
    for one in found.counterexamples:
        assert one["answer"] != one["right"] == run.task.solve(one["problem"])
    assert any((one["answer"] or "no end").startswith(answer) for one in found.counterexamples)
    changed(folder / SETTINGS, {"temperature": 0.5})
    with pytest.raises(AbcError, match="was made with another folder of the model than now"):
        Certificate.load(abc.Run(run.path))


def test_a_run_that_was_trained_here_is_judged_by_its_own_folder(successor, tmp_path):
    """Its configuration may have been changed since, and weights that count as loaded are not."""
    run = stages.adopt(*successor, "=", lined=True, out=tmp_path / "run")
    changed(run.path / "config.json", {"parent": str(tmp_path)})
    changed(run.path / "model" / "config.json", {"rms_norm_eps": 30.0})
    vouch(run.path)
    run = abc.Run(run.path)
    found = decide(run, run.load_model()).certificate
    assert found.outcome == "refuted" and not found.wrong and found.decoded["wrong"]


def test_the_verdict_says_what_was_run(successor, tmp_path, monkeypatch):
    run = stages.adopt(*successor, "=", lined=True, out=tmp_path / "run")
    monkeypatch.setattr(blackbox, "LENGTHS", (10,))
    monkeypatch.setattr(decision, "MOST_TESTED", 90)
    shown = []
    found = stages.certify(run, on_windows=lambda *seen: shown.append(seen))
    count = found.windows
    short = sum(row["sources"] for row in found.outright) + found.decoded["sources"]
    begins = f"no error in {count} of about 319 windows, drawn at random, and {short} sources of"
    assert 30 < count <= 90 and shown[-1] == (count, count)
    assert found.outcome == "tested" and found.reason.startswith(begins)

    def unlisted(*_, **__):
        raise Undecided("they are not")

    monkeypatch.setattr(decision, "prepare", unlisted)
    found = stages.certify(run)
    assert found.outcome == "tested" and found.windows == 0
    said = "sources of up to 10 digits; not a proof (its windows cannot be listed: they are not)"
    assert found.reason.endswith(said)


def test_windows_that_fail_are_never_passed_over(successor, tmp_path, monkeypatch):
    """Where no source with them is found, and the folder generates right answers."""
    run = stages.adopt(*successor, "=", lined=True, out=tmp_path / "run")
    model = run.load_model()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(blackbox, "LENGTHS", (10,))
    monkeypatch.setattr(decision, "outright", lambda *_: [])
    monkeypatch.setattr(search, "failing_sources", lambda *_: iter(()))
    found = decide(run, model).certificate
    assert found.outcome == "unknown" and found.wrong and not found.decoded["wrong"]
    assert found.reason.startswith(f"{found.wrong} windows fail, but no source was found")


def test_what_is_wrong_in_long_numbers_alone_is_refuted(successor, tmp_path, monkeypatch):
    """Right in the window's own source and wrong by a bias: the windows say where."""
    run = stages.adopt(*successor, "=", lined=True, out=tmp_path / "run")
    model = run.load_model()
    proof = prepare(model, run.data)
    margin = min(one.margin for one in check(proof))
    with torch.no_grad():  # noise until some windows are wrong
        rng = torch.Generator().manual_seed(1)
        while min(one.margin for one in check(prepare(model, run.data))) > 0:
            for weight in model.parameters():
                weight += 0.02 * torch.randn(weight.shape, generator=rng)
    assert margin > 0
    found = decide(run, model).certificate
    assert found.outcome == "refuted" and 0 < found.wrong < found.windows
    for one in found.counterexamples:
        assert one["answer"] != one["right"] == run.task.solve(one["problem"])


def test_a_retraining_is_shown_what_it_has_wrong(successor, tmp_path):
    """Problems with windows below the floor, inside training lengths, in its next batches."""
    run = stages.adopt(*successor, "=", lined=True, out=tmp_path / "run")
    model, data = run.load_model().train(), run.data
    ending = certain(model, data, 0)
    assert ending.look(model, 1) and not ending.hard and model.training
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2))
    assert not ending.look(model, 2) and len(ending.hard) > 10
    for text in ending.hard:
        one = data.task.parse(text)
        assert data.may_train(one) and data.size_of(one) <= 4
        assert float(margins(model.eval(), data.lay_out(one)).min()) <= FLOOR + 0.01
    held = data.task.pairs.source[int(np.flatnonzero(data.held_out)[0])]
    assert not data.may_train(data.task.parse(held))
    batch = ending.batch(data.training(0, 16), 3)
    assert len(batch) == 16 and set(batch.problems.source) & set(ending.hard)


def test_windows_without_a_number_are_wrong(llama):
    """A sevens' embedding that overflows float32: no margin, and so no certificate."""
    model, data, _ = opened(llama)
    with torch.no_grad():
        model.network.get_input_embeddings().weight[4 + 7] = torch.inf
    checked = check(prepare(model, data))
    assert min(one.margin for one in checked) == -torch.inf
    assert sum(one.wrong for one in checked) > 10


def test_what_cannot_be_certified_says_why(tmp_path):
    ways = {
        "its own": {"neutral": False},
        "a head has none": {"last": ()},
        "begin with their first digit": {"pairs": [(s, t[::-1]) for s, t in SUCCESSORS]},
        "pad them": {"pairs": sums(), "signs": "+,="},
    }
    for said, how in ways.items():
        run = adopted(tmp_path / said, **how)
        with pytest.raises(Undecided, match=said):
            prepare(run.load_model(), run.data)
    certificate = stages.certify(run)
    assert certificate.outcome == "refuted" and certificate.counterexamples


def test_lines_of_other_delimiters_are_refused(successor, tmp_path):
    folder, data = successor
    with pytest.raises(UsageError, match="has lines already"):
        stages.adopt(folder, data, "=", out=tmp_path / "run")
    pairs = write_pairs(tmp_path / "pairs.jsonl", [(f"{n}+", str(n)) for n in range(200)])
    with pytest.raises(UsageError, match="its lines count from the tokens"):
        stages.adopt(folder, pairs, "+", lined=True, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
