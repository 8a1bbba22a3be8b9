"""Bad input: one clear line on stderr, the right exit code, and nothing that was there changes."""

from __future__ import annotations

import errno
import json
import os
import shlex
from unittest.mock import Mock

import pytest
from conftest import VANILLA, change_json

import abc_calib
from abc_calib import memory
from abc_calib.evaluation import exact as evaluation
from abc_calib.geometry import LineBias
from abc_calib.nn import saved

QUICK = ("--steps", 3, "--batch", 5, "--width", 8, "--heads", 2, "--feedforward", 16)


@pytest.fixture
def refused(abc, tmp_path):
    """``refused(code, "command", ...)``: the line of the error; at the end, nothing has changed."""

    def contents() -> dict[str, bytes]:
        files = (p for p in tmp_path.rglob("*") if p.is_file())
        return {str(p): p.read_bytes() for p in files}

    seen: list[dict[str, bytes]] = []

    def run(code: int, *words: object) -> str:
        if not seen:
            seen.append(contents())
        return abc(*words).error(code)

    yield run
    assert seen and contents() == seen[0]


REFUSED = """
abc train sucessor => unknown task 'sucessor': did you mean successor?
abc train addition --layers two => --layers two: an option of gru, not of transformer; did you
abc train parity --base 10 => parity is defined on bits: base 10 is not possible, only 2
abc train successor --model foreign => unknown model 'foreign': choose transformer or decoder or gru
abc train successor --preset huge => unknown preset 'huge': choose one of default, paper
abc train successor --sampling odd => --sampling odd: choose uniform, balanced, carry, mixed
abc train successor --format wide => --format wide: choose free, aligned, hints, fixed:N
abc train successor --format fixed:5 => an operand of 6 digits does not fit 5: use the
abc train addition --format aligned,fixed:5 => an operand of 6 digits does not fit 5: use the
abc train successor --scheme rpe:clip=0 => scheme 'rpe:clip=0': clip = '0': give a
abc train addition --attention-window 1 => --attention-window 1: a window needs one line of digits
abc train successor --cyclic 3 --scheme none => --cyclic 3: there are no positions to count; choose
abc train successor --cross-scheme learned => no such option: --cross-scheme
abc train successor --heads 3 => width 64 is not divisible by 3 heads: choose a width that
abc train successor --scheme rope --width 12 --heads 4 => width 12 with heads 4 makes 3 a head: ch
abc train copy --model gru --optimizer muon => --optimizer muon: this model takes adam
abc train => give either a task (abc tasks lists them) or a run to --resume
abc train successor --resume x => give either a task (abc tasks lists them) or a run to
abc calibrate --fit magic => unknown fit 'magic': choose one of nnls, mean, rows
abc calibrate --threshold 2 => --threshold 2: give a share, more than 0 and at most 1
abc calibrate --average sum => --average sum: the fit nnls has no such choice: leave it out
abc calibrate --attention raw => --attention raw: the fit nnls has no such choice: leave it out
abc calibrate --fit mean --threshold cross=4,cross=1 => --threshold cross=4,cross=1: a site is named
abc calibrate --fit mean --threshold up=1 => --threshold up: give encoder, self or cross
abc calibrate --fit mean --threshold self=1 => --threshold self=1: cross is not named; name self
abc calibrate --fit mean --threshold cross=1_0,self=1 => : give a number
abc calibrate --fit mean --dirs cross=anti => --dirs cross=anti: self is not named; name self, cross
abc calibrate --fit mean --dirs self=up,cross=anti => --dirs up: give diag, anti or vert
abc calibrate --sites self --dirs anti => there is no line in these directions at these
abc calibrate successor-seed0-calibrated-1 => is calibrated already: name the run it came from,
abc predict '' => '' is not a source of successor: it is empty; write a number of
abc predict 12a => '12a' is not a source of successor: 'a' is not a digit of base 10; write a number
abc predict -3+2 => '-3+2' is not a source of successor: '-' is not a digit of base 10; write
abc predict -- -3+2 --run zoo:addition => --run comes behind --: put all options before it
abc predict -- -3+2 => '-3+2' is not a source of successor: '-' is not a digit of base 10; write
abc predict 1+2 --run zoo:additon => unknown model 'zoo:additon': did you mean zoo:addition?
abc export => say what: abc export lines, or abc export certificate --out FOLDER
abc eval --lengths 2x2 => size 2x2: successor has one number for its size; as in 2
abc predict 12 + 34 => got unexpected extra argument(s) (+ 34): put what has spaces in quotes, and
abc predict 7 --run nowhere => there is no run nowhere: abc runs lists them
abc heatmap --format gif => --format gif: give pdf, svg or png
abc heatmap --out x.pdf => --out x.pdf: name a folder; --format pdf chooses the kind
abc curves successor-seed0-calibrated-1 --out 'a b.PNG' => --out 'a b.PNG': name a folder; --format
abc heatmap --sites nose => --sites nose: give encoder, self or cross
abc heatmap --sites encoder => has no encoder-attention: choose self, cross
abc demo walk => unknown task 'walk': one of your own comes with --plugin FILE.py; choose
abc train successor --workers 2 => no such option: --workers
abc certify --seeds 3 => no such option: --seeds (abc certify --help lists all)
abc train addition --lr 1 => no such option: --lr (did you mean --learning-rate?)
abc prove successor --model gru => no lines can be put into this model
abc train --resume successor-seed0-vanilla-1 --seed 5 => --resume goes on as the run began: leave
abc train --resume successor-seed0-vanilla-1 => there is nothing to resume
abc retrain successor-seed0-vanilla-1 => is not calibrated: abc calibrate
abc retrain => is trained already: calibrate again for another one
abc reproduce tabel1 => did you mean table1?
abc reproduce table1 --budget -1 => --budget -1: give a number above 0
abc reproduce table1 --from-results --budget 3 => --from-results runs without --budget: leave it out
abc reproduce table1 --row xpe => no row 'xpe' here
abc certify successor-seed0-calibrated-1 --run x => --run x: a run is named already; leave one out
abc eval successor-seed0-calibrated-1 --stress => option '--stress' requires an argument
abc eval --lengths 6 --max-len 7 => --max-len 7: lengths are given; leave one out
abc predict 1+1 --rnu zoo:addition => no such option: --rnu (did you mean --run?)
abc certify --out x => --out x: it names the run that --hf makes
abc train lookup --model gru --attender two_step => unknown attender 'two_step'
abc train lookup --model gru --backbone big => unknown backbone 'big': choose one of ray_chowdhury
abc train lookup --model gru --width 7 => width 7 and d_head 128: choose even numbers
abc train lookup --model gru --heads 2 => an option of transformer and decoder, not of
abc train lookup --model lstm => unknown model 'lstm': choose transformer or decoder or gru
abc heatmap --digits 501 => --digits 501: give a whole number from 1 to 500
abc prove addition --seeds x => --seeds x: give a whole number
abc prove addition --seeds 0 => --seeds 0: give a number of at least 1
abc train addition --steps x => --steps x: give a whole number of at least 1
abc train addition --device gpu => --device gpu: choose auto, cpu, cuda, mps
abc export foo => form foo: choose certificate, lines
abc heatmap --input 12 --digits 8 => --digits is of the extended bias
abc train successor --teacher-forcing 0.5 => --teacher-forcing 0.5: it is for recurrent models alone
abc train successor --dev longer => --dev longer: it is for tasks on tokens alone
abc demo --task foo => no such option: --task (it is an argument: write its value
abc heatmap --input 12 --panel bias => --panel bias: one source has attention alone
abc heatmap --width wide => give column, page, neurips
abc xyzzy => no such command 'xyzzy': choose one of demo, prove, predict, tasks,
abc trainn => no such command 'trainn'. Did you mean 'train', 'retrain'?
"""
"""What is typed, and how the line of the error begins or what is in it."""


def test_what_cannot_be_is_refused_and_makes_nothing(tiny, refused):
    for line in REFUSED.strip().splitlines():
        typed_in, _, message = line.partition(" => ")
        said = refused(2, *shlex.split(typed_in)[1:])
        assert message in said and (said.startswith(message) or not message.startswith("--")), line


COMMANDS = [["calibrate"], ["retrain"], ["eval"], ["predict", "1"], ["heatmap"]]


def test_without_a_run_the_way_to_one_is_told(abc, runs_root):
    for words in COMMANDS:
        assert abc(*words).error(2).startswith(f"there is no run in {runs_root} yet: abc")


def test_a_run_that_is_gone_or_none_or_of_another_version_is_named(tiny, refused, tmp_path):
    photos, away = tmp_path / "photos", tiny.calibrated.with_name("moved")
    photos.mkdir()
    (photos / "me.png").write_bytes(b"")
    change_json(tiny.calibrated / "config.json", format_version=3)
    for words in COMMANDS:
        named = [*words, "--run", photos] if words[0] == "predict" else [*words, photos]
        line = f"{photos} is not a run folder (no config.json): abc runs lists them"
        assert refused(2, *named) == line
        said = "is a run folder of version 3, and this program reads version 2: train"
        assert said in refused(1, *words)
        tiny.calibrated.rename(away)
        line = f"there is no run {tiny.calibrated}: abc runs lists them"
        assert refused(2, *words) == line
        away.rename(tiny.calibrated)


no_space = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def test_a_full_disk_while_calibrating_leaves_the_first_run_as_it_was(tiny, abc, monkeypatch):
    before = {p: p.read_bytes() for p in tiny.vanilla.rglob("*") if p.is_file()}
    monkeypatch.setattr(LineBias, "save", no_space)
    line = abc("calibrate", "--threshold", 0.3, "--quiet").error(1)
    assert "seed0-calibrated-2 (No space left on device): free some space or choose another" in line
    assert {p: p.read_bytes() for p in tiny.vanilla.rglob("*") if p.is_file()} == before
    monkeypatch.undo()
    monkeypatch.setenv("ABC_RUNS", str(tiny.vanilla.parent))
    assert abc("calibrate", "--threshold", 0.3, "--no-retrain").code == 0


def test_a_full_disk_at_the_end_of_training_keeps_the_checkpoint(abc, runs_root, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(saved, "hub_files", no_space)
        line = abc("train", "successor", *QUICK, "--quiet").error(1)
    run = runs_root / VANILLA
    assert line.startswith(f"cannot write {run / 'model'} (No space left on device): free some")
    assert sorted(os.listdir(run)) == [
        "checkpoint.safetensors", "config.json", "history.jsonl", "lock",
    ]  # fmt: skip
    said = abc("train", "--resume", VANILLA)
    assert said.code == 0 and json.loads((run / "result.json").read_text())["steps"] == 3


@pytest.mark.parametrize("words", [["train", "successor", *QUICK], ["heatmap"]])
def test_a_folder_that_cannot_be_made_is_named(tiny, refused, tmp_path, words):
    (tmp_path / "file").write_text("")
    line = refused(1, *words, "--out", tmp_path / "file" / "below")
    assert line.startswith(f"cannot make the folder {tmp_path / 'file' / 'below'} (")


def test_what_the_memory_does_not_hold_is_refused(tiny, refused, monkeypatch):
    need = "10000 samples of 10000 digits need about 7.0 GiB, and 1.0 GiB are free; give less"
    for free, code, line, message in (
        (20, 2, "eval --lengths 1000000 --samples 1", "a source of 1000002 tokens needs about"),
        (20, 1, f"predict {'9' * 100_000}", "a source of 100002 tokens needs about"),
        # a vanilla model keeps a matrix of weights, where a calibrated one follows its lines
        (27, 1, f"predict {'9' * 3000} --show --run {VANILLA}", "a source of 3002 tokens needs"),
        (30, 2, "eval --lengths 3,10000", f"--lengths 10000: {need}"),
        (30, 2, "eval --lengths 10000 --samples 10000", f"--samples 10000: {need}"),
        (30, 2, "eval --max-len 10000", f"--max-len 10000: {need}"),
        (30, 2, "stress --samples 1000000", "1000000 samples of 50 digits need about 3.5 GiB"),
        (30, 2, f"calibrate {VANILLA} --samples 1000000", "3000000 samples of 5 digits need"),
    ):
        monkeypatch.setattr(memory, "available_memory", lambda free=free: 2**free)
        assert message in refused(code, *line.split())


@pytest.mark.parametrize(
    "words",
    [("--width", 4096, "--heads", 4), ("--batch", 100_000), ("--digits", 5000),
     ("--model", "gru", "--embedding", 16384)],
)  # fmt: skip
def test_a_training_that_does_not_fit_is_refused(abc, runs_root, monkeypatch, words):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**28)
    line = abc("train", "successor", "--steps", 1, *words).error(2)
    option = "--digits" if "--digits" in words else "--batch"
    assert line.startswith(f"{option} ") and "GiB are free; give less" in line
    assert not runs_root.exists()


def test_where_memory_cannot_be_told_nothing_is_refused(tiny, abc, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert abc("predict", "99").out == "100\n"


def test_running_out_of_memory_all_the_same_is_told(tiny, refused, monkeypatch):
    told = "DefaultCPUAllocator: can't allocate memory: you tried\nmuch"
    for failure in (MemoryError(), RuntimeError(told)):
        monkeypatch.setattr(evaluation, "exact_matches", Mock(side_effect=failure))
        line = refused(1, "eval", "--lengths", 3, "--quiet")
        assert line == "out of memory: give shorter lengths, fewer samples or smaller batches"


def test_ctrl_c_stops_with_its_own_code_and_a_defect_has_its_traceback(tiny, refused, monkeypatch):
    monkeypatch.setattr(abc_calib, "evaluate", Mock(side_effect=KeyboardInterrupt))
    assert refused(130, "eval", "--quiet") == "stopped"
    monkeypatch.setattr(abc_calib, "evaluate", Mock(side_effect=RuntimeError("a defect")))
    with pytest.raises(RuntimeError, match="a defect"):
        refused(1, "eval")
