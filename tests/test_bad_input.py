"""Bad input: one clear line on stderr, the right exit code, and nothing that was there changes."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CALIBRATED, VANILLA, change_json
from hostile import base, values
from typer.main import get_command

from abc_calib import files, stages
from abc_calib.config.options import allowed
from abc_calib.evaluation import exact as evaluation
from abc_calib.evaluation import memory
from abc_calib.geometry import Line, LineBias
from abc_calib.runs import weights
from cli.console import typed
from cli.main import app

QUICK = ("--steps", 3, "--batch", 5, "--width", 8, "--heads", 2, "--feedforward", 16)
COMMANDS_OF: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


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


def illegal_values(each: int) -> Iterator[tuple[str, Any, str]]:
    """For every command and every option with a declared range or choice, values outside of it."""
    for command, made in COMMANDS_OF.items():
        for option in getattr(made.callback, "options", {}).values():
            if option.type is bool or not allowed(option.field).startswith(
                ("give a n", "give a wh", "ch", "give wh")
            ):
                continue
            rng = random.Random(f"{command} {option.name}")
            wrong = [v for what, v, legal in values(option) if not legal and v.isprintable()]
            for value in rng.sample(wrong, min(each, len(wrong))):
                yield command, option, value


def test_a_value_out_of_range_is_named_with_what_is_allowed(abc, unchanged):
    """As it was typed, and before anything else is looked at: there is no run here."""
    unchanged()
    tried = 0
    for command, option, value in illegal_values(4):
        words = base(command, option.flag)
        said = abc(command, *words, f"{option.flag}={value}").error(2)
        assert said == f"{option.flag} {typed(value)}: {allowed(option.field)}", command
        tried += 1
    assert tried > 400


REFUSED = """
abc train sucessor => unknown task 'sucessor' (did you mean successor?): choose one of succ
abc train parity --base 10 => parity is defined on bits: base 10 is not possible, only 2
abc train successor --preset huge => unknown preset 'huge': choose one of small, quick, paper
abc train successor --sampling odd => --sampling odd: choose uniform, balanced, carry, mixed
abc train successor --format wide => --format wide: choose free, aligned, hints or
abc train successor --format fixed:0 => --format fixed:0: choose free, aligned, h
abc train successor --format fixed:5 => an operand of 6 digits does not fit 5: use the
abc train successor --scheme spiral => unknown scheme 'spiral': choose one of sinusoidal
abc train successor --scheme rpe:clip=0 => scheme 'rpe:clip=0': clip = '0': give a whole
abc train addition --attention-window 1 => --attention-window 1: the operands of addition in format
abc train multiplication --attention-window 2 --format fixed:7 => --attention-window 2: the operand
abc train successor --cyclic 3 --scheme none => --cyclic 3: there are no positions to count; choose
abc train successor --cyclic 3 --scheme alibi:cross=end => --cyclic 3: it counts the source from it
abc train successor --cross-scheme learned => --cross-scheme learned: it is added to embeddings, an
abc train successor --encoder-scheme rope => --encoder-scheme rope: it acts in the encoder's attent
abc train successor --decoder-scheme spiral => unknown scheme 'spiral': choose one of
abc train successor --heads 3 => width 64 is not divisible by 3 heads: choose a width that
abc train copy --model gru --optimizer muon => --optimizer muon: this model takes adam
abc train => name a task (abc tasks lists them), or a run to --resume
abc train successor --resume x => name a task (abc tasks lists them), or a run to --res
abc train --resume x => there is no run x: abc runs lists them
abc calibrate --fit magic => unknown fit 'magic': choose one of nnls, mean, rows
abc calibrate --threshold 2 => --threshold 2: give a number above 0 and at most 1
abc calibrate --sites self --dirs anti => there is no line in these directions at these
abc calibrate --scheme spiral => unknown scheme 'spiral': choose one of sinusoidal
abc calibrate successor-calibrated-seed0-1 => is calibrated already: name the run it came from,
abc calibrate nowhere => there is no run nowhere: abc runs lists them
abc eval nowhere => there is no run nowhere: abc runs lists them
abc predict '' => '' is not a source of successor: write digits 0-9, as in '123'
abc predict ' ' => ' ' is not a source of successor: write digits 0-9, as in '123'
abc predict 12a => 'a' is not a digit of base 10: successor takes digits 0-9, as in '123'
abc predict 1+2 => '+' is not a digit of base 10: successor takes digits 0-9, as in '123'
abc predict 7 --run nowhere => there is no run nowhere: abc runs lists them
abc heatmap --format gif => figures cannot be written as 'gif': choose .pdf, .svg, .png
abc heatmap --sites nose => unknown site 'nose': choose one of encoder, self, cross
abc heatmap --sites encoder => has no encoder-attention: choose self, cross
abc heatmap nowhere => there is no run nowhere: abc runs lists them
abc demo walk => unknown task 'walk': choose one of successor, addition, subtraction, mul
abc train successor --workers 2 => no such option: --workers
abc certify --seeds 3 => no such option: --seeds
abc certify --model decoder => no such option: --model
abc prove successor --model gru => no lines can be put into this model
abc runs --task sucessor => unknown task 'sucessor' (did you mean successor?)
abc trainn => no such command 'trainn'. Did you mean 'train', 'retrain'?
"""
"""What is typed, and how the line of the error begins or what is in it."""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_cannot_be_is_refused_and_makes_nothing(tiny, refused, line):
    typed_in, _, message = line.partition(" => ")
    said = refused(2, *shlex.split(typed_in)[1:])
    assert message in said and (said.startswith(message) or not message.startswith("--"))


def test_a_missing_cuda_device_is_named(abc, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = abc("train", "successor", "--device", "cuda").error(2)
    assert line == "device cuda: this torch sees no CUDA device; choose auto or cpu"


@pytest.mark.parametrize("problem", ["", "+", "12+", "+12", "12", "1+2+3", "1+a", "1*2"])
def test_an_addition_needs_two_numbers(abc, refused, problem):
    """Empty operands, missing ones, and digits outside the base."""
    abc("train", "addition", *QUICK, "--digits", 2)
    line = refused(2, "predict", problem)
    assert line.endswith("digits 0-9, as in '123+123'")


@pytest.mark.parametrize(
    "words",
    ["walk", "eval --depth 3", "eval one two", "predict", "predict -1", "train successor --seed"],
)
def test_words_that_no_command_knows_are_usage_errors(abc, words):
    said = abc(*words.split())
    assert "abc" in said.error(2) and "--help shows what there is" in said.err


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["predict", "1\n2\n["], "'[' is not a digit of base 10: successor takes digits 0-9"),
        (["eval", "--max-len", "1\n[red]"], "--max-len '1\\n[red]': give a whole number f"),
        (["eval", "--samples", "1" + "0" * 9999], "--samples '1000000000000000000000000000…00000"),
        (["eval", "--set", LONG], "--set 'xxxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxx"),
        (["train", LONG], "unknown task 'xxxxxxx"),
        (["train", "successor", "--model", LONG], "--model 'xxxxxxxxxxx"),
    ],
)
def test_what_was_typed_is_named_in_one_short_line(tiny, abc, words, line):
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
    assert "is a run folder of version 3, and this program reads version 2: train" in line


@pytest.mark.parametrize("how", ["pickled beside", "pickled inside", "truncated", "no model"])
def test_a_damaged_model_is_named_with_what_to_do(tiny, refused, how):
    """Weights load from safetensors only; every file and damage else: ``tests/damage.py``."""
    folder, weights_file = tiny.vanilla / "model", tiny.vanilla / "model" / "model.safetensors"
    content = weights_file.read_bytes()[:-500]
    weights_file.unlink()
    if how == "truncated":
        weights_file.write_bytes(content)
    elif how == "no model":
        folder.rename(tiny.vanilla / ".model")
    else:
        name = {"beside": "pytorch_model.bin", "inside": weights_file.name}[how.split()[1]]
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    said = "was changed" if how in ("truncated", "pickled inside") else "is missing"
    line = refused(1, "predict", "1", "--run", tiny.vanilla)
    assert str(folder) in line
    assert f"is not the file that result.json vouches for (it {said}): put it back" in line


class Bomb:
    """Whoever unpickles it fails."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


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
