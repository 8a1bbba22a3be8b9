"""Bad input: one clear line on stderr, the right exit code, and nothing that was there changes."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from conftest import CALIBRATED, VANILLA, change_json
from safetensors.torch import load_file, save_file

from abc_calib import files, stages
from abc_calib.evaluation import exact as evaluation
from abc_calib.evaluation import memory
from abc_calib.geometry import Line, LineBias
from abc_calib.runs import weights

LENGTHS = "give whole numbers from 1 to 10,000,000, as in 6,10,100"
QUICK = ("--steps", 3, "--batch", 5, "--width", 8, "--heads", 2, "--feedforward", 16)


@pytest.fixture
def unchanged(tmp_path):
    """Checks at the end that every file is as it was when this was first called."""
    seen: list[dict[str, bytes]] = []

    def contents() -> dict[str, bytes]:
        files = (p for p in tmp_path.rglob("*") if p.is_file())
        return {str(p): p.read_bytes() for p in files}

    yield lambda: seen.append(contents())
    assert seen and contents() == seen[0]


@pytest.fixture
def refused(abc, unchanged):
    """``refused(code, "command", ...)``: the line of the error, and that nothing changed."""

    def run(code: int, *words: object) -> str:
        unchanged()
        return abc(*words).error(code)

    return run


# Options that cannot be


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sucessor"], "unknown task 'sucessor' (did you mean successor?): choose one of succ"),
        (["successor", "--base", 1], "--base 1: give a whole number from 2 to 36"),
        (["successor", "--base", 37], "--base 37: give a whole number from 2 to 36"),
        (["parity", "--base", 10], "parity is defined on bits: base 10 is not possible, only 2"),
        (
            ["successor", "--preset", "huge"],
            "unknown preset 'huge': choose one of small, quick, paper",
        ),
        (["successor", "--device", "tpu"], "--device tpu: choose auto, cpu or cuda"),
        (
            ["successor", "--sampling", "odd"],
            "--sampling odd: choose uniform, balanced, carry, mixed",
        ),
        (["successor", "--format", "wide"], "--format wide: choose free, aligned, hints or"),
        (["successor", "--format", "fixed:0"], "--format fixed:0: choose free, aligned, h"),
        (["successor", "--format", "fixed:5"], "an operand of 6 digits does not fit 5: use the"),
        (["successor", "--scheme", "spiral"], "unknown scheme 'spiral': choose one of sinusoidal"),
        (["successor", "--scheme", "rpe:clip=0"], "scheme 'rpe:clip=0': clip = '0': give a whole"),
        (["successor", "--cyclic", 0], "--cyclic 0: give a whole number from 1 to 1,000,000"),
        (
            ["successor", "--attention-window", 0],
            "--attention-window 0: give a whole number from 1 to 100",
        ),
        (
            ["addition", "--attention-window", 1],
            "--attention-window 1: the operands of addition in format free ",
        ),
        (
            ["multiplication", "--attention-window", 2, "--format", "fixed:7"],
            "--attention-window 2: the operands of multiplication in format fixed:7 stand one",
        ),
        (
            ["successor", "--cyclic", 3, "--scheme", "none"],
            "--cyclic 3: there are no positions to count; choose a scheme, not none",
        ),
        (
            ["successor", "--cyclic", 3, "--scheme", "alibi:cross=end"],
            "--cyclic 3: it counts the source from its end already; choose alibi without cross=end",
        ),
        (
            ["successor", "--cross-scheme", "learned"],
            "--cross-scheme learned: it is added to embeddings, and cross-attention has none",
        ),
        (
            ["successor", "--encoder-scheme", "rope"],
            "--encoder-scheme rope: it acts in the encoder's attention, and there is no encoder la",
        ),
        (["successor", "--decoder-scheme", "spiral"], "unknown scheme 'spiral': choose one of"),
        (["successor", "--heads", 3], "width 64 is not divisible by 3 heads: choose a width that"),
        (["successor", "--digits", 0], "--digits 0: give a whole number from 1 to 1,000,000"),
        (["successor", "--digits", -2], "--digits -2: give a whole number from 1 to 1,000,000"),
        (["successor", "--steps", 0], "--steps 0: give a whole number from 1 to 1,000,000,000"),
        (["successor", "--batch", 0], "--batch 0: give a whole number from 1 to 1,000,000"),
        (["successor", "--seed", -1], "--seed -1: give a whole number from 0 to 9,223,372,036"),
        (["successor", "--seed", 2**64], "--seed 18446744073709551616: give a whole num"),
        (["successor", "--dropout", 1], "--dropout 1: give a number from 0 to below 1"),
        (["successor", "--learning-rate", "nan"], "--learning-rate nan: give a number above 0 a"),
        (["successor", "--learning-rate", "inf"], "--learning-rate inf: give a number above 0 a"),
        (["successor", "--optimizer", "sgd"], "--optimizer sgd: choose adam or muon"),
        (
            ["copy", "--model", "gru", "--optimizer", "muon"],
            "--optimizer muon: this model takes adam",
        ),
        (["successor", "--threads", 0], "--threads 0: give a whole number from 1 to 256"),
        ([], "name a task (abc tasks lists them), or a run to --resume"),
        (["successor", "--resume", "x"], "name a task (abc tasks lists them), or a run to --res"),
        (["--resume", "x"], "there is no run x: abc runs lists them"),
    ],
)
def test_a_training_that_cannot_be_is_refused_and_makes_nothing(abc, runs_root, words, message):
    assert abc("train", *words).error(2).startswith(message)
    assert not runs_root.exists()


def test_a_missing_cuda_device_is_named(abc, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = abc("train", "successor", "--device", "cuda").error(2)
    assert line == "device cuda: this torch sees no CUDA device; choose auto or cpu"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dirs", "up"], "--dirs up: choose among diag, anti and vert"),
        (["--dirs", "diag,up"], "--dirs diag,up: choose among diag, anti and vert"),
        (["--dirs", ""], "--dirs '': choose among diag, anti and vert"),
        (["--fit", "magic"], "unknown fit 'magic': choose one of nnls, mean, rows"),
        (["--threshold", "nan"], "--threshold nan: give a number from -1,000,000 to 1,000,000"),
        (["--threshold", 2], "--threshold 2: give a number above 0 and at most 1"),
        (["--layer", "middle"], "--layer middle: choose own, first or last"),
        (["--sites", "self,head"], "--sites self,head: choose among encoder, self and cross"),
        (["--sites", ""], "--sites '': choose among encoder, self and cross"),
        (["--anchors", "top"], "--anchors top: choose segment or corner"),
        (["--off-line-bias", 0], "--off-line-bias 0: give a number from -100,000,000 to below 0"),
        (["--values", "mild"], "--values mild: choose hard or soft"),
        (["--empty", "random"], "--empty random: choose transparent or sink"),
        (["--sites", "self", "--dirs", "anti"], "there is no line in these directions at these"),
        (["--samples", 0], "--samples 0: give a whole number from 1 to 10,000,000"),
        (["--scheme", "spiral"], "unknown scheme 'spiral': choose one of sinusoidal"),
        (["--steps", 0], "--steps 0: give a whole number from 1 to 1,000,000,000"),
        (["--seed", -1], "--seed -1: give a whole number from 0 to 9,223,372,036,854,775"),
        (["--device", "tpu"], "--device tpu: choose auto, cpu or cuda"),
        (["--threads", -1], "--threads -1: give a whole number from 1 to 256"),
        ([CALIBRATED], "is calibrated already: name the run it came from, "),
        (["nowhere"], "there is no run nowhere: abc runs lists them"),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(tiny, refused, words, message):
    assert message in refused(2, "calibrate", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-len", 0], "--max-len 0: give a whole number from 1 to 100,000"),
        (["--max-len", -5], "--max-len -5: give a whole number from 1 to 100,000"),
        (["--lengths", "5,-1"], f"--lengths 5,-1: {LENGTHS}"),
        (["--lengths", "0"], f"--lengths 0: {LENGTHS}"),
        (["--lengths", "a"], f"--lengths a: {LENGTHS}"),
        (["--lengths", ""], f"--lengths '': {LENGTHS}"),
        (["--lengths", "5;6"], f"--lengths '5;6': {LENGTHS}"),
        (["--lengths", 10**8], f"--lengths 100000000: {LENGTHS}"),
        (["--samples", 0], "--samples 0: give a whole number from 1 to 10,000,000"),
        (["--stress", "nerves"], "--stress nerves: choose hard or carry"),
        (["--seed", -1], "--seed -1: give a whole number from 0 to 9,223,372,036,854,775,807"),
        (["--device", "tpu"], "--device tpu: choose auto, cpu or cuda"),
        (["--threads", 0], "--threads 0: give a whole number from 1 to 256"),
        (["nowhere"], "there is no run nowhere: abc runs lists them"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(tiny, refused, words, message):
    assert refused(2, "eval", *words) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([""], "'' is not a source of successor: write digits 0-9, as in '123'"),
        ([" "], "' ' is not a source of successor: write digits 0-9, as in '123'"),
        (["12a"], "'a' is not a digit of base 10: successor takes digits 0-9, as in '123'"),
        (["1+2"], "'+' is not a digit of base 10: successor takes digits 0-9, as in '123'"),
        (["1\n2\n["], "'[' is not a digit of base 10: successor takes digits 0-9, as in '123'"),
        (["7", "--run", "nowhere"], "there is no run nowhere: abc runs lists them"),
        (["7", "--device", "tpu"], "--device tpu: choose auto, cpu or cuda"),
        (["7", "--threads", 0], "--threads 0: give a whole number from 1 to 256"),
    ],
)
def test_a_problem_that_cannot_be_is_refused(tiny, refused, words, message):
    assert refused(2, "predict", *words) == message


@pytest.mark.parametrize("problem", ["", "+", "12+", "+12", "12", "1+2+3", "1+a", "1*2"])
def test_an_addition_needs_two_numbers(abc, refused, problem):
    """Empty operands, missing ones, and digits outside the base."""
    abc("train", "addition", *QUICK, "--digits", 2)
    line = refused(2, "predict", problem)
    assert line.endswith("digits 0-9, as in '123+123'")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "gif"], "figures cannot be written as 'gif': choose .pdf, .svg, .png"),
        (["--sites", "nose"], "unknown site 'nose': choose one of encoder, self, cross"),
        (["--sites", "encoder"], "has no encoder-attention: choose self, cross"),
        (["--digits", 0], "--digits 0: give a whole number from 1 to 500"),
        (["--digits", 10**6], "--digits 1000000: give a whole number from 1 to 500"),
        (["nowhere"], "there is no run nowhere: abc runs lists them"),
    ],
)
def test_a_heatmap_that_cannot_be_is_refused(tiny, refused, words, message):
    assert refused(2, "heatmap", *words).endswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["walk"], "unknown task 'walk': choose one of successor, addition, subtraction, mul"),
        (["--base", 0], "--base 0: give a whole number from 2 to 36"),
        (["--lengths", "6,0"], "--lengths 6,0: give whole numbers from 1 to 10,000,000"),
        (["--samples", -1], "--samples -1: give a whole number from 1 to 10,000,000"),
        (["--seed", -1], "--seed -1: give a whole number from 0 to 9,223,372,036,854,775"),
        (["--device", "tpu"], "--device tpu: choose auto, cpu or cuda"),
    ],
)
def test_a_demo_that_cannot_be_is_refused(abc, runs_root, words, message):
    assert abc("demo", *words).error(2).startswith(message)
    assert not runs_root.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["walk"],
        ["eval", "--depth", 3],
        ["eval", "one", "two"],
        ["predict"],
        ["predict", "-1"],
        ["train", "successor", "--seed"],
    ],
)
def test_words_that_no_command_knows_are_usage_errors(abc, words):
    assert "abc" in abc(*words).error(2) and "--help shows what there is" in abc(*words).err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["eval", "--max-len", "many"], "--max-len many: give a whole number from 1 to 100,000"),
        (
            ["eval", "--max-len", "1\n[red]"],
            "--max-len '1\\n[red]': give a whole number f",
        ),
        (
            ["eval", "--samples", 10**30],
            f"--samples {10**30}: give a whole number from",
        ),
        (["eval", "--samples", "1" + "0" * 9999], "--samples '1000000000000000000000000000…00000"),
        (["eval", "--set", "x" * 100_000], "--set 'xxxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxx"),
        (["train", "x" * 100_000], "unknown task 'xxxxxxx"),
        (["train", "successor", "--model", "x" * 100_000], "--model 'xxxxxxxxxxx"),
        (["train", "successor", "--workers", 2], "no such option: --workers"),
        (["sweep", "x.toml", "--workers", 0], "--workers 0: give a whole number from 1 to 256"),
        (
            ["sweep", "x.toml", "--budget", 0],
            "--budget 0: give a number above 0 and at most ",
        ),
        (
            ["certify", "--minutes", "inf"],
            "--minutes inf: give a number above 0 and at ",
        ),
        (["certify", "--seeds", 3], "no such option: --seeds"),
        (["certify", "--model", "decoder"], "no such option: --model"),
        (["prove", "successor", "--model", "gru"], "no lines can be put into this model"),
        (["stress", "--search", -1], "--search -1: give a whole number from 0 to 1,000,000,000"),
        (["reproduce", "table1", "--seeds", 0], "--seeds 0: give a whole number from 1 to 1,000,"),
        (["runs", "--task", "sucessor"], "unknown task 'sucessor' (did you mean successor?)"),
        (["trainn"], "no such command 'trainn'. Did you mean 'train', 'retrain'?"),
    ],
)
def test_what_was_typed_is_named_in_one_short_line(abc, words, line):
    said = abc(*words).error(2)
    assert said.startswith(line)
    assert len(said) < 700


@pytest.mark.parametrize(
    "more", [["--seed", 5], ["--preset", "paper"], ["--steps", 9], ["--base", 3], ["--out", "x"]]
)
def test_resuming_takes_no_options_of_its_own(tiny, refused, more):
    line = refused(2, "train", "--resume", VANILLA, *more)
    assert line == "--resume goes on as the run began: leave out the other options"


def test_a_finished_run_is_neither_resumed_nor_trained_again(tiny, refused):
    for name in (VANILLA, CALIBRATED):
        assert "there is nothing to resume" in refused(2, "train", "--resume", name)
    assert f"is not calibrated: abc calibrate {tiny.vanilla}" in refused(2, "retrain", VANILLA)
    assert "is trained already: calibrate again for another one" in refused(2, "retrain")


def test_a_folder_in_use_is_not_taken_for_a_new_run(tiny, refused):
    message = f"{tiny.vanilla} is not empty: name a new folder, or --resume it"
    assert refused(2, "train", "successor", *QUICK, "--out", tiny.vanilla) == message
    words = ("--threshold", 0.3, "--no-retrain", "--out", tiny.vanilla)
    assert refused(2, "calibrate", *words) == message


# Run folders that are missing or damaged


COMMANDS = [["calibrate"], ["retrain"], ["eval"], ["predict", "1"], ["heatmap"]]


@pytest.mark.parametrize("words", COMMANDS)
def test_without_a_run_the_way_to_one_is_told(abc, runs_root, words):
    assert abc(*words).error(2) == f"there is no run in {runs_root} yet: abc train successor"


@pytest.mark.parametrize("words", COMMANDS)
def test_a_latest_run_that_is_gone_is_named(tiny, refused, words):
    tiny.calibrated.rename(tiny.calibrated.with_name("moved"))
    assert refused(2, *words) == f"there is no run {tiny.calibrated}: abc runs lists them"


def named(words: list, run: Path) -> list:
    """The command on that run."""
    return [*words, "--run", run] if words[0] == "predict" else [*words, run]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_folder_that_is_no_run_is_named(tiny, refused, tmp_path, words):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.png").write_bytes(b"")
    line = refused(1, *named(words, tmp_path / "photos"))
    assert line == f"{tmp_path / 'photos'} is not a run folder (it has no config.json): abc runs"


@pytest.mark.parametrize("words", COMMANDS)
def test_a_run_of_another_version_is_named(tiny, refused, words):
    change_json(tiny.calibrated / "config.json", format_version=3)
    line = refused(1, *words)
    assert "is a run folder of version 3, and this program reads versions 1 and 2: train" in line


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("text", ["", '{"format_version": 1, "stage": "vani', "[1, 2]", "\0"])
def test_a_truncated_configuration_is_named(tiny, refused, words, text):
    (tiny.calibrated / "config.json").write_text(text)
    assert str(tiny.calibrated / "config.json") in refused(1, *words)


@pytest.mark.parametrize("words", [["calibrate"], ["eval"], ["predict", "1"], ["heatmap"]])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no model", "is missing"),
        ("no weights", "is missing"),
        ("pickled beside", "is missing"),
        ("pickled inside", "was changed"),
        ("truncated", "was changed"),
        ("empty", "was changed"),
        ("other shapes", "was changed"),
    ],
)
def test_a_half_written_or_damaged_model_is_named(tiny, refused, words, how, message):
    """Weights load from safetensors only: a pickle is not opened, whatever its name."""
    folder = tiny.vanilla / "model"
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    if how == "no model":
        folder.rename(tiny.vanilla / ".model")
    elif how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-500])
    elif how == "other shapes":
        save_file({name: t[:1].clone() for name, t in tensors.items()}, weights)
    else:
        weights.unlink()
    if how == "empty":
        weights.write_bytes(b"")
    elif how.startswith("pickled"):
        name = {"beside": "pytorch_model.bin", "inside": weights.name}[how.split()[1]]
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    line = refused(1, *named(words, tiny.vanilla))
    assert str(folder / "model.safetensors" if how != "no model" else folder) in line
    assert f"is not the file that result.json vouches for (it {message}): put it back" in line


class Bomb:
    """Whoever unpickles it fails."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


def test_a_pickled_checkpoint_is_not_opened(tiny, refused):
    (tiny.vanilla / "result.json").unlink()
    (tiny.vanilla / "checkpoint.safetensors").write_bytes(pickle.dumps(Bomb()))
    line = refused(1, "train", "--resume", VANILLA)
    assert "checkpoint.safetensors is damaged (" in line


@pytest.mark.parametrize("name", ["bias.safetensors", "lines.csv"])
@pytest.mark.parametrize("how", ["gone", "truncated", "garbage"])
def test_a_damaged_bias_is_named(tiny, abc, name, how):
    file = tiny.calibrated / name
    data = file.read_bytes()
    file.unlink()
    if how != "gone":
        file.write_bytes(data[:100] if how == "truncated" else b"\1\2\3" * 50)
    assert str(file) in abc("heatmap", "--sites", "cross").error(1)
    untrained(tiny.calibrated)
    assert str(file) in abc("retrain").error(1)


def untrained(run: Path) -> None:
    """Make it a run that was calibrated and not retrained."""
    shutil.rmtree(run / "model")
    for name in ("result.json", "history.jsonl"):
        (run / name).unlink()


@pytest.mark.parametrize(
    ("layers", "heads", "message"),
    [
        (2, 4, "the bias has 4 heads and the model 8: calibrate a model of the same shape"),
        (3, 8, "the bias has 3 cross-attention layers and the model 2: calibrate a model of the"),
    ],
)
def test_a_bias_that_does_not_fit_the_model_is_refused(tiny, refused, layers, heads, message):
    lines = ((Line("anti", 1, 0),),) * heads
    LineBias({"cross": (lines,) * layers}).save(tiny.calibrated / "bias.safetensors")
    untrained(tiny.calibrated)
    (tiny.calibrated / "calibration.json").unlink()
    assert refused(2, "retrain").startswith(message)


@pytest.mark.parametrize("text", ["", "length,set\n1,random\n", "set,test_seed,length\nrandom,0"])
def test_damaged_evaluations_are_named_and_kept(tiny, refused, text):
    (tiny.calibrated / "eval.csv").write_text(text)
    line = refused(1, "eval", "--lengths", 2, "--samples", 2)
    assert line.startswith(f"{tiny.calibrated / 'eval.csv'} cannot be read (")
    assert line.endswith("): remove it")


def test_a_damaged_history_is_named(tiny, refused):
    (tiny.vanilla / "history.jsonl").write_text('{"step": 100, "lo')
    assert "history.jsonl is not the file that result.json" in refused(
        1, "predict", "1", "--run", VANILLA
    )


# A full disk


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_while_calibrating_leaves_the_first_run_as_it_was(tiny, abc, monkeypatch):
    before = {p: p.read_bytes() for p in tiny.vanilla.rglob("*") if p.is_file()}
    monkeypatch.setattr(LineBias, "save", no_space)
    line = abc("calibrate", "--threshold", 0.3, "--quiet").error(1)
    assert "seed0-2 (No space left on device): free some space or choose another" in line
    assert {p: p.read_bytes() for p in tiny.vanilla.rglob("*") if p.is_file()} == before
    monkeypatch.undo()
    monkeypatch.setenv("ABC_RUNS", str(tiny.vanilla.parent))
    assert abc("calibrate", "--threshold", 0.3, "--no-retrain").code == 0


def test_a_full_disk_at_the_end_of_training_keeps_the_checkpoint(abc, runs_root, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(weights, "hub_files", no_space)
        line = abc("train", "successor", *QUICK, "--quiet").error(1)
    run = runs_root / VANILLA
    assert line.startswith(f"cannot write {run / 'model'} (No space left on device): free some")
    assert sorted(os.listdir(run)) == [
        "checkpoint.safetensors", "config.json", "history.jsonl", "lock",
    ]  # fmt: skip
    said = abc("train", "--resume", VANILLA)
    assert said.code == 0 and json.loads((run / "result.json").read_text())["steps"] == 3


def test_a_full_disk_while_evaluating_keeps_earlier_evaluations(tiny, abc, unchanged, monkeypatch):
    abc("eval", "--lengths", 2, "--samples", 2)
    unchanged()
    monkeypatch.setattr(files.tempfile, "mkdtemp", no_space)
    line = abc("eval", "--lengths", 3, "--samples", 2, "--quiet").error(1)
    assert line.startswith(f"cannot write {tiny.calibrated / 'eval.csv'} (No space left on dev")


def test_a_full_disk_while_drawing_is_named(tiny, abc, monkeypatch):
    monkeypatch.setattr(files.os, "replace", no_space)
    words = ("--sites", "cross", "--format", "png", "--quiet")
    assert "(No space left on device)" in abc("heatmap", *words).error(1)
    assert os.listdir(tiny.calibrated / "figures") == []


@pytest.mark.parametrize("words", [["train", "successor", *QUICK], ["heatmap"]])
def test_a_folder_that_cannot_be_made_is_named(tiny, refused, tmp_path, words):
    (tmp_path / "file").write_text("")
    line = refused(1, *words, "--out", tmp_path / "file" / "below")
    assert line.startswith(f"cannot make the folder {tmp_path / 'file' / 'below'} (")


# Memory


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**20)


def test_a_source_too_long_for_the_memory_is_refused(tiny, refused, little_memory):
    line = refused(2, "eval", "--lengths", 10**6, "--samples", 1)
    assert line.startswith("--lengths 1000000: a source of 1000000 tokens needs about 1.2 GiB, a")
    assert "a source of 1002 tokens needs about" in refused(1, "predict", "9" * 1000)


def test_a_vanilla_model_needs_more_memory_for_what_it_shows(tiny, refused, monkeypatch):
    """It keeps a matrix of weights, where a calibrated one follows its lines."""
    monkeypatch.setattr(memory, "available_memory", lambda: 2**27)
    problem = "9" * 3000
    line = refused(1, "predict", problem, "--show", "--run", VANILLA)
    assert line.startswith("a source of 3002 tokens needs about ")


def test_more_samples_than_the_memory_holds_are_refused(tiny, refused, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    needed = "10000 samples of 10000 digits need about 7.0 GiB, and 1.0 GiB are free; give less"
    line = refused(2, "eval", "--lengths", "3,10000")
    assert line == f"--lengths 3,10000: {needed}"
    line = refused(2, "eval", "--lengths", "10000", "--samples", 10000)
    assert line == f"--samples 10000: {needed}"
    assert refused(2, "eval", "--max-len", 10000) == f"--max-len 10000: {needed}"
    line = refused(2, "stress", "--samples", 10**6)
    assert line.startswith("--samples 1000000: 1000000 samples of 50 digits need about 3.5 GiB")
    line = refused(2, "calibrate", VANILLA, "--samples", 10**6)
    assert line.startswith("--samples 1000000: 3000000 samples of 5 digits need")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--width", 4096, "--heads", 4, "--feedforward", 64], "--width 4096"),
        (["--feedforward", 65536, "--decoder-layers", 4], "--feedforward 65536"),
        (["--decoder-layers", 64, "--width", 256], "--decoder-layers 64"),
        (["--batch", 100_000], "--batch 100000"),
        (["--digits", 5000], "--digits 5000"),
        (["--digits", 500], "--digits 500"),
        (["--model", "gru", "--embedding", 16384, "--value", 64], "--embedding 16384"),
    ],
)
def test_a_training_that_does_not_fit_names_the_option(abc, runs_root, monkeypatch, words, option):
    """The one without which it would need least."""
    monkeypatch.setattr(memory, "available_memory", lambda: 2**28)
    line = abc("train", "successor", "--steps", 1, *words).error(2)
    assert line.startswith(f"{option}: ") and "GiB are free; give less" in line
    assert not runs_root.exists()


def test_where_memory_cannot_be_told_nothing_is_refused(tiny, abc, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert abc("predict", "99").out == "100\n"


@pytest.mark.parametrize(
    "failure",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried\nmuch")],
)
def test_running_out_of_memory_all_the_same_is_told(tiny, refused, monkeypatch, failure):
    def fail(*_):
        raise failure

    monkeypatch.setattr(evaluation, "exact_matches", fail)
    line = refused(1, "eval", "--lengths", 3, "--quiet")
    assert line == "out of memory with --lengths 3: give less"


# What is no bad input


def test_ctrl_c_outside_training_stops_with_its_own_code(tiny, refused, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "evaluate", stop)
    assert refused(130, "eval", "--quiet") == "stopped"


def test_a_defect_is_not_taken_for_bad_input(tiny, abc, monkeypatch):
    """Its traceback is wanted."""

    def defect(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr(stages, "evaluate", defect)
    with pytest.raises(RuntimeError, match="a defect"):
        abc("eval")


def test_brackets_in_names_are_shown_as_they_are(abc, tmp_path, monkeypatch):
    monkeypatch.setenv("ABC_RUNS", str(tmp_path / "[red]runs"))
    assert str(tmp_path / "[red]runs") in abc("eval").error(2)
    assert str(tmp_path / "[red]runs") in abc("runs").err
