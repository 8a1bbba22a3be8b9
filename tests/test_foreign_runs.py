"""Somebody else's model from its folder to a calibrated run, and everything that is refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import run_command as invoke
from families import tiny as a_tiny
from others import as_ids, batch, reversals, saved, sums, tf, tokenizer, train, write_pairs
from tokenizers import Tokenizer, models, pre_tokenizers

import abc_calib as abc
from abc_calib.errors import UsageError
from abc_calib.reporting.page.commands import commands
from tasks import TaskError


@dataclass(frozen=True)
class Somebodys:
    """A folder that ``save_pretrained`` wrote, and pairs."""

    folder: Path
    pairs: Path


def test_positions_that_run_out_are_told(tmp_path, runs_root):
    """By every command that runs the model on longer problems."""
    model, pairs = a_tiny("gpt2", n_positions=24), write_pairs(tmp_path / "p.jsonl", sums())
    run = abc.adopt(saved(model, tokenizer(), tmp_path / "model"), pairs, "+,=")
    source = f"{'9' * 20}+{'1' * 20}="
    for words in (("eval", "--lengths", "20"), ("predict", source), ("stress", "--lengths", "20")):
        refused = invoke(*words)
        assert refused.code == 2 and "24 learned positions, too few for" in refused.err, refused.err
    assert run.task.follows is not None


def test_an_evaluation_of_pairs_without_a_rule_takes_the_lengths_that_there_are(reversing):
    run = abc.adopt(reversing.folder, reversing.pairs, "=")
    with pytest.raises(UsageError, match=r"length 9: .*; choose 1, 2, 3"):
        abc.evaluate(run, [1, 9])
    assert not (run.path / "eval.csv").exists()
    rows = abc.evaluate(run, samples=20)
    assert rows["length"].tolist() == [1, 2, 3] and rows["accuracy"].min() > 90


@pytest.fixture(scope="session", params=["llama", "t5"])
def reversing(request, tmp_path_factory) -> Somebodys:
    """A model that reverses up to three digits, trained by a plain loop."""
    root = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    words = tokenizer(eos=request.param == "t5")
    llama = request.param == "llama"
    layers = {} if llama else {"num_layers": 1, "num_decoder_layers": 1}
    model = a_tiny(request.param, times=2, **layers)
    pairs = reversals(3)
    train(model, *as_ids(words, pairs), 400, 5e-3 if llama else 8e-3)
    return Somebodys(saved(model, words, root / "model"), write_pairs(root / "p.jsonl", pairs))


QUICK = ("--threshold", "0.3", "--steps", "200", "--learning-rate", "8e-3", "--samples", "200")


def answers_alone(run: abc.Run, sources: list[str]) -> None:
    """What is written without this program's own decoding is the same, and right."""
    model, words = (
        load(run.path / "model") for load in (abc.load, tf.AutoTokenizer.from_pretrained)
    )
    for source in sources:
        ids = words(source, return_tensors="pt").input_ids
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20)
        written = out[0] if model.config.is_encoder_decoder else out[0, ids.shape[1] :]
        answer = words.decode(written, skip_special_tokens=True).replace(" ", "")
        assert answer == abc.predict(run, source).answer == source[-2::-1]
    if model.config.is_encoder_decoder:
        return  # transformers has no pipeline for it
    pipe = tf.pipeline("text-generation", model=model, tokenizer=words)
    how = {"max_new_tokens": 20, "do_sample": False, "return_full_text": False}
    for size in (1, 3):
        told = [one[0]["generated_text"] for one in pipe(sources, batch_size=size, **how)]
        assert [text.replace(" ", "") for text in told] == [s[-2::-1] for s in sources]


SOURCES = ["98765432101234=", "120=", "1="]


@pytest.mark.parametrize("reversing", ["t5"], indirect=True)
def test_from_a_folder_to_answers_of_any_length(reversing, tmp_path):
    """The commands, as a new user types them."""
    given = ["--hf", str(reversing.folder), "--data", str(reversing.pairs), "--delimiters", "="]
    made = invoke("calibrate", *given, *QUICK, "--json")
    assert made.code == 0, made.err
    assert "a bias of zeros changes logits by at most" in made.err
    run = abc.Run.open(json.loads(made.out)["run"])
    assert run.result is not None and run.result["validation_accuracy"] == 100

    rows = json.loads(invoke("eval", "--lengths", "1,2,3", "--json", "-q").out)["rows"]
    assert [row["accuracy"] for row in rows] == [100] * 3
    refused = invoke("eval", "--lengths", "9")
    assert refused.code == 2 and "follow no rule that is known" in refused.err
    told = json.loads(invoke("predict", "98765432101234=", "--json", "--show").out)
    assert told["answer"] == "43210123456789" and told["correct"] is None
    assert told["attended"][0][0]["place"] == "a0"
    assert json.loads(invoke("predict", "12=", "--json").out)["correct"] is True
    unread = invoke("predict", "12a=")
    assert unread.code == 2 and "'12a=': the tokenizer has no token for 'a'" in unread.err

    drawn = invoke("heatmap", "--digits", "8", "--format", "png", "--out", str(tmp_path), "-q")
    assert drawn.code == 0, drawn.err
    assert (tmp_path / "bias-cross-layer0.png").is_file()
    assert abc.export_lines(run).is_file()  # of the lengths that there are

    answers_alone(run, SOURCES)


@pytest.mark.parametrize("reversing", ["llama"], indirect=True)
def test_rounding_of_large_logits_is_no_difference(reversing, tmp_path):
    """A bias of zeros is tried in float64: in float32 logits of some thousands move by 1e-3."""
    model = tf.AutoModelForCausalLM.from_pretrained(reversing.folder)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1000)
    model.save_pretrained(tmp_path / "model")
    tf.AutoTokenizer.from_pretrained(reversing.folder).save_pretrained(tmp_path / "model")
    heard = []
    own = str(tmp_path / "own")
    run = abc.adopt(tmp_path / "model", reversing.pairs, "=", out=own, on_checked=heard.append)
    assert str(run.path) == own and heard[0] < 1e-6
    kept = run.load_model().network.get_output_embeddings().weight
    assert kept.dtype == torch.float32 and torch.equal(kept, model.get_output_embeddings().weight)
    (command,) = commands(run)  # which makes the same run again
    assert command.startswith("python -c ")
    said: dict[str, Any] = {}
    exec(shlex.split(command)[2].replace("; abc", "; again = abc"), said)
    assert said["again"].config.task_options == run.config.task_options


# In Python, from an object and its own batches


def test_capture_fit_inject(reversing):
    """The lines of a model object; and the same attention whichever way batches are cut."""
    words = tf.AutoTokenizer.from_pretrained(reversing.folder)
    seq2seq = "t5" in reversing.folder.parent.name
    kind = tf.T5ForConditionalGeneration if seq2seq else tf.LlamaForCausalLM
    model = kind.from_pretrained(reversing.folder).eval()
    texts = [("123=", "321"), ("40=", "04"), ("775=", "577"), ("9=", "9")]
    given = as_ids(words, texts)
    batches = [batch(rows, *given, stream=not seq2seq) for rows in ((0, 1), (2, 3))]
    equals = words.convert_tokens_to_ids("=")
    one, two = (abc.capture(model, batch, delimiters=[equals]) for batch in batches)
    both = abc.capture(model, batches, delimiters=[equals])
    assert [len(part.rows["cross"]) for part in both] == [2, 2]
    bias = abc.fit_lines(both, threshold=0.25)
    assert abc.fit_lines([*one, *two], threshold=0.25) == bias
    assert abc.unexplained([*one, *two], bias) == abc.unexplained(both, bias)
    assert bias.stream is not seq2seq
    assert "anti" in " ".join(line.direction for h in bias.sites["cross"][0] for line in h)
    report = abc.unexplained(both, bias)
    assert all(0 <= row["unexplained"] <= 1 for row in report)
    followed = [row for row in report if any("anti" in line for line in row["lines"])]
    assert followed and min(row["unexplained"] for row in followed) < 0.75
    injected = abc.inject(model, bias)
    assert injected is model and model.config.abc_calib["lines"] == bias.to_dict()


# Pairs


@pytest.fixture
def somebodys(tmp_path) -> Somebodys:
    """A model with random weights, and sums."""
    folder = saved(a_tiny("llama"), tokenizer(), tmp_path / "model")
    return Somebodys(folder, write_pairs(tmp_path / "p.jsonl", sums()))


def refusal(somebodys: Somebodys, delimiters: str = "+,=") -> str:
    """What is said, in one line, with nothing written."""
    given = ["--hf", str(somebodys.folder), "--data", str(somebodys.pairs)]
    found = invoke("calibrate", *given, "--delimiters", delimiters)
    assert found.code in (1, 2), found.out
    assert "Traceback" not in found.err
    said = [line for line in found.err.splitlines() if line.startswith("error:")]
    assert len(said) == 1, found.err
    return said[0]


def nothing_is_left(runs_root: Path) -> bool:
    return not any(runs_root.glob("*")) if runs_root.exists() else True


WRONG = [*sums()[:7], (sums()[7][0], "1"), sums()[8], (sums()[9][0], "99"), *sums()[10:]]


@pytest.mark.parametrize(
    ("pairs", "delimiters", "words"),
    [
        (WRONG, "+,=", f"2 of the {len(WRONG)} pairs in p.jsonl are wrong"),
        (WRONG, "+,=", f"the first is pair 8, '{WRONG[7][0]}' with '1'"),
        ([*reversals(3), ("12=", "12"), ("34=", "43"), ("12=", "21")], "=", "contradict"),
        ([(a, b + " " * (i % 2)) for i, (a, b) in enumerate(sums())], "+,=", "end in spaces"),
        ([(a, " " * (i % 2) + b) for i, (a, b) in enumerate(sums())], "+,=", "begin with spaces"),
        ([(a, f"{b}</s>") for a, b in reversals(3)], "=", "'</s>' stands in a text of the pairs"),
        ([(f"<s>{a}", b) for a, b in reversals(3)], "=", "'<s>' stands in a text of the pairs"),
        ([(f"{a}=", f"{a}"[::-1]) for a in range(100, 400)], "=", "all sources are 3 wide"),
        ("{", "=", "line 1 of"),
        ([*reversals(3)[:50], ("1x=", "x1")], "=", "no token for 'x'"),
        ([(a, f" {b}") for a, b in reversals(3)], "=", "no token for ' '"),
        ([*reversals(3)[:7], ("12=3", "321"), *reversals(3)[8:]], "=", "pair 8"),
        (None, "*,=", "the delimiter '*' is not a single token of this tokenizer"),
        (None, "<s>,=", "does not have the delimiters <s> = in this order"),
        (None, "=,+", "does not have the delimiters = + in this order"),
        (None, "+", "ends in no delimiter"),
    ],
    ids=str,
)  # fmt: skip
def test_pairs_and_delimiters_that_do_not_fit(somebodys, runs_root, pairs, delimiters, words):
    if isinstance(pairs, str):
        somebodys.pairs.write_text(pairs)
    elif pairs:
        write_pairs(somebodys.pairs, pairs)
    assert words in refusal(somebodys, delimiters) and nothing_is_left(runs_root)


def test_a_tokenizer_that_merges_digits_is_refused(somebodys, runs_root):
    plain = [*"0123456789+=", *(f"{n}" for n in range(10, 100))]
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", *plain])}
    merges = [(str(a), str(b)) for a in range(1, 10) for b in range(10)]
    merging = Tokenizer(models.BPE(vocabulary, merges))
    merging.pre_tokenizer = pre_tokenizers.Split("+", "isolated")
    words = tf.PreTrainedTokenizerFast(tokenizer_object=merging, eos_token="</s>")
    saved(a_tiny("llama", vocab_size=len(words)), words, somebodys.folder)
    said = refusal(somebodys)
    assert "the tokenizer merges digits: '" in said and "individual_digits=True" in said
    assert nothing_is_left(runs_root)


def test_a_model_that_is_not_right_is_refused_before_it_is_retrained(somebodys, runs_root):
    assert "the model has not learned its training problems" in refusal(somebodys)
    assert [path.name for path in runs_root.glob("pairs*")] == ["pairs-seed0-vanilla-1"]


def test_a_folder_that_is_no_model_is_refused(somebodys, tmp_path, runs_root):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no config.json" in refusal(Somebodys(empty, somebodys.pairs))
    shutil.copytree(somebodys.folder, tmp_path / "bare")
    (tmp_path / "bare" / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refusal(Somebodys(tmp_path / "bare", somebodys.pairs))
    shutil.copytree(somebodys.folder, tmp_path / "pointer")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (tmp_path / "pointer" / "model.safetensors").write_text(pointer)
    said = refusal(Somebodys(tmp_path / "pointer", somebodys.pairs))
    assert "is a pointer of Git LFS, not the file: fetch it with git lfs pull" in said
    config = json.loads((somebodys.folder / "config.json").read_text())
    for change, words in (
        ({"hidden_size": 24}, "does not load"),
        ({"architectures": ["LlamaModel"]}, "which writes nothing"),
        ({"architectures": ["NoSuch"]}, "which transformers"),
        ({"architectures": None}, "without a class"),
        ({"eos_token_id": None}, "which token ends an output"),
    ):
        other = tmp_path / "other"
        shutil.copytree(somebodys.folder, other, dirs_exist_ok=True)
        (other / "config.json").write_text(json.dumps({**config, **change}))
        (other / "generation_config.json").write_text("{}")
        assert words in refusal(Somebodys(other, somebodys.pairs))
    torch.manual_seed(0)
    shape = {"vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    mamba = tf.MambaForCausalLM(tf.MambaConfig(eos_token_id=2, **shape))
    saved(mamba, tokenizer(), tmp_path / "mamba")
    said = refusal(Somebodys(tmp_path / "mamba", somebodys.pairs))
    assert "takes no attention function" in said
    assert nothing_is_left(runs_root)


def test_options_that_belong_together(somebodys, runs_root):
    folder, pairs = str(somebodys.folder), str(somebodys.pairs)
    for given, words in (
        (["--hf", folder], "--data is missing"),
        (["--data", pairs], "--hf is missing"),
        (["--hf", folder, "--data", pairs], "--delimiters is missing"),
        (["run", "--hf", folder, "--data", pairs, "--delimiters", "="], "a run has its model"),
        (["--hf", folder, "--data", "nowhere", "--delimiters", "="], "there is no file"),
        (["--hf", "nowhere", "--data", pairs, "--delimiters", "="], "has no config.json"),
    ):
        found = invoke("calibrate", *given)
        assert found.code == 2 and words in found.err, found.err
    assert nothing_is_left(runs_root)


def test_pairs_that_were_changed_since_are_refused(somebodys):
    run = abc.adopt(somebodys.folder, somebodys.pairs, "+,=")
    write_pairs(somebodys.pairs, [*sums(), ("5000+1=", "1005")])
    with pytest.raises(TaskError, match="was changed since"):
        _ = abc.Run.open(run.path).task


# Judged


def test_a_model_that_is_wrong_is_refuted_with_its_shortest_source(somebodys, runs_root):
    given = ["--hf", str(somebodys.folder), "--data", str(somebodys.pairs), "--delimiters", "+,="]
    found = invoke("certify", *given, "--json", "-q")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    assert told["outcome"] == "refuted" and told["task"] == "pairs"
    (one,) = told["counterexamples"]
    assert one["digits"] == 1 and one["problem"] == "0+0=" and one["answer"] != one["right"] == "0"
    assert told["outright"][0]["sources"] == 100 and told["outright"][0]["wrong"] > 50


def test_what_cannot_be_judged_is_refused(somebodys, runs_root):
    given = ["--hf", str(somebodys.folder), "--data", str(somebodys.pairs), "--delimiters", "+,="]
    assert "are not multiplication" in invoke("certify", *given, "--task", "multiplication").err
    assert "choose one of successor" in invoke("certify", *given, "--task", "nothing").err
    assert "leave out it or --hf" in invoke("certify", "run", *given).err
    write_pairs(somebodys.pairs, reversals(3))
    given = [*given[:-1], "="]
    assert "follow no rule that is known" in invoke("certify", *given).err


PAGE = (Path(__file__).parent.parent / "docs" / "foreign-models.md").read_text()


@pytest.mark.parametrize("reversing", ["llama"], indirect=True)
def test_the_page_is_executed(reversing, tmp_path, monkeypatch, capsys):
    """Its commands, with fewer steps and a model that turns numbers around, and its Python."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(reversing.folder, "my-model")
    shutil.copy(reversing.pairs, "pairs.jsonl")
    page = PAGE.replace('"+,="', "=").replace("123456+000789=", SOURCES[0])
    (commands,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    for line in commands.splitlines():
        _, *given = shlex.split(line.replace("6,50", "1,2,3"))
        found = invoke(*given, *(QUICK if given[0] == "calibrate" else ()))
        assert found.code == 0, found.err
        assert "first training's time" not in found.err  # nobody knows it
    scope: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "<page>", "exec", dont_inherit=True), scope)
    assert "4 3 2 1 0 1 2 3 4 5 6 7 8 9" in capsys.readouterr().out
    answers_alone(abc.Run.open(), SOURCES)
