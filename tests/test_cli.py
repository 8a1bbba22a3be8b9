"""The commands as a user types them: they chain, and results and remarks do not mix."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import typer
from conftest import CALIBRATED, VANILLA, change_json, quicker, vouch
from rich.console import Console
from rich.text import Text

import abc_calib
from abc_calib import certified, progress, stages
from abc_calib.calibration import trial as check
from abc_calib.config import Origin
from abc_calib.errors import AbcError, Interrupted, UsageError
from abc_calib.evaluation import Evaluator
from abc_calib.geometry import LineBias
from abc_calib.nn.base import Decoded
from abc_calib.reporting.page.commands import commands
from abc_calib.runs import Run
from abc_calib.version import __version__
from cli import console
from cli.demo import worked_example
from cli.main import app
from cli.train import compared, trained
from tasks import TASKS, Successor, get_task

QUICK = (
    "train", "successor", "--steps", 4, "--batch", 5, "--width", 8, "--heads", 2,
    "--feedforward", 16, "--decoder-layers", 1, "--digits", 3,
)  # fmt: skip


def rows_of(said) -> dict[tuple[str, int], dict]:
    return {(row["set"], row["length"]): row for row in said.json()["rows"]}


def test_the_three_commands_chain_without_naming_a_run(trained, tiny, abc):
    """``trained`` is what the first two made; the third finds the calibrated run by itself."""
    config = json.loads((trained.root / CALIBRATED / "config.json").read_text())
    assert config["parent"] == str(trained.root / VANILLA)
    words = ("--lengths", "5,70", "--samples", 100, "--stress", "carry", "--json", "-q")
    said = abc("eval", *words)
    assert (said.code, said.json()["run"]) == (0, str(tiny.calibrated))
    assert {key: row["accuracy"] for key, row in rows_of(said).items()} == {
        (kind, length): 100.0 for kind in ("random", "carry") for length in (5, 70)
    }
    near = rows_of(abc("eval", VANILLA, *words))
    assert near["random", 5]["accuracy"] > 95
    assert near["random", 70]["accuracy"] == near["carry", 70]["accuracy"] == 0.0
    rows = abc("eval", "--max-len", 4, "--samples", 5, "--json").json()["rows"]
    assert [row["length"] for row in rows] == [1, 2, 3, 4]


def test_a_prediction_is_a_number_alone_on_stdout_or_json(tiny, abc):
    for problem, answer in (("9" * 12, f"1{'0' * 12}"), ("0", "1"), (" 0019 ", "20")):
        said = abc("predict", problem)
        assert (said.code, said.out, said.err) == (0, f"{answer}\n", "")
    said = abc("predict", "42", "--json", "--show").json()
    attended = said.pop("attended")
    assert said.pop("output") == ["3", "4", "&"]
    assert said == {"problem": "42", "answer": "43", "correct": True, "expected": "43"}
    assert len(attended) == 3
    assert {"place": "a0", "token": "2", "weight": 1.0} in attended[0]
    assert {"place": "a1", "token": "4", "weight": 1.0} in attended[1]


def test_a_wrong_answer_is_told_on_stderr_and_one_without_an_end_is_none(tiny, abc, monkeypatch):
    def writes(*ids):
        monkeypatch.setattr(Evaluator, "decode", lambda *_, **__: Decoded(torch.tensor([ids])))

    writes(7, 4, 13, 14)
    said = abc("predict", "12")
    assert (said.code, said.out) == (0, "47\n")
    assert said.err == "this is wrong: 13 is right (trained on at most 5 digits)\n"
    writes(1, 1, 1, 1, 1)
    assert "the model wrote no end within 5 tokens" in abc("predict", "12").error(1)


def test_a_run_is_an_argument_or_an_option(tiny, abc):
    words = ("eval", "--lengths", 2, "--samples", 2, "--json")
    for named in ((VANILLA,), ("--run", VANILLA)):
        assert abc(*words, *named).json()["run"].endswith(VANILLA)
    assert "is named already" in abc(*words, VANILLA, "--run", VANILLA).error(2)
    group = typer.main.get_command(app)
    takers = {n for n, c in group.commands.items() if any(p.name == "run" for p in c.params)}
    assert takers >= {"calibrate", "certify", "export", "heatmap", "predict", "report"}
    for name in takers:
        assert "--run" in {opt for p in group.commands[name].params for opt in p.opts}


def test_numbers_that_json_does_not_have_are_null(capsys):
    rows = [{"margin": float("nan"), "n": 2}, (math.inf,)]
    console.render(console.Result({"rows": rows}), "json")
    assert capsys.readouterr().out == '{"rows":[{"margin":null,"n":2},[null]]}\n'


def test_a_run_of_scan_is_evaluated_on_its_own_test_set(abc):
    small = ("--embedding", 4, "--width", 4, "--d-head", 4, "--value", 4, "--batch", 8)
    assert abc("train", "scan", "--model", "gru", "--steps", 1, *small).code == 0
    (row,) = abc("eval", "--samples", 3, "--json").json()["rows"]
    assert (row["set"], row["n"]) == ("test", 3)


def test_calibrating_and_retraining_can_be_two_steps(tiny, abc):
    said = abc("calibrate", "--threshold", 0.3, "--no-retrain", "--steps", 1, "--batch", 5)
    made = tiny.calibrated.with_name("successor-seed0-calibrated-2")
    assert said.err.endswith(f"{made}: calibrated; next: abc retrain\n")
    assert "anti +0" in said.err and not said.out
    assert not (made / "model").exists() and not (made / "check.csv").exists()
    assert abc("eval").error(1) == f"{made} has no trained model: train again"
    assert abc("runs", "--json").json()[-1]["state"] == "not finished"
    (worse,) = (line for line in abc("retrain").err.splitlines() if line.startswith("worse than"))
    assert worse.endswith("more --steps or another --seed")
    bias = LineBias.load(made / "bias.safetensors")
    assert json.loads((made / "model" / "config.json").read_text())["line_bias"] == bias.to_dict()
    assert abc("eval", "--lengths", 2, "--samples", 3, "--json").json()["run"] == str(made)
    assert "is trained already" in abc("retrain").error(2)
    (only,) = compared(Run.open(tiny.calibrated))
    assert only.startswith("retraining took ")


def test_a_model_that_is_never_right_is_refused_even_if_forced(abc):
    assert (
        "it has not learned its training problems: 100 % of held-out ones are wrong"
        in abc(*QUICK).err
    )
    refusal = abc("calibrate").error(1)
    assert "the model has not learned its training problems: 100.0 % of 2048" in refusal
    assert re.search(r"For '\d+' it writes the tokens '.*', where '\d+' is right", refusal)
    assert "decodes no training sample correctly" in abc("calibrate", "--force").error(1)


@pytest.mark.parametrize(
    ("right", "ended", "then"),
    [
        (99.2, {}, "next: abc calibrate"),
        (98.5, {}, "it has not"),
        (98.5, {"over": "held out"}, "next: abc calibrate"),
    ],
)
def test_what_is_right_enough_to_calibrate_is_told_to(tiny, right, ended, then):
    change_json(tiny.vanilla / "result.json", validation_accuracy=right, interpolated=False)
    history = tiny.vanilla / "history.jsonl"
    last = json.loads(history.read_text().splitlines()[-1])
    last.pop("over", None)
    history.write_text(json.dumps(last | ended) + "\n")
    vouch(tiny.vanilla)
    assert trained(Run.open(tiny.vanilla)).remarks[-1].startswith(then)


def test_quiet_says_nothing(tiny, abc):
    for words in (
        QUICK,
        ("eval", CALIBRATED, "--lengths", 3, "--samples", 3, "--json"),
        ("calibrate", VANILLA, "--threshold", 0.3, "--no-retrain"),
    ):
        said = abc(*words, "--quiet")
        assert (said.code, said.err) == (0, "")
        assert "--json" in words or said.out == ""


def test_commands_take_one_thread_by_default_and_work_in_parts_all_of_torch(tiny, abc):
    before = torch.get_num_threads()
    evaluate = ("eval", "--lengths", 1, "--samples", 5)
    stress = ("stress", "--lengths", 1, "--samples", 5, "--search", 0)
    try:
        for words, default in ((("predict", "1"), 1), (evaluate, 4), (stress, 4), (QUICK, 1)):
            torch.set_num_threads(4)
            assert abc(*words).code == 0
            assert torch.get_num_threads() == default, words
        abc(*evaluate, "--threads", 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_runs_are_listed_oldest_first_with_their_state(tiny, abc):
    abc("calibrate", "--threshold", 0.3, "--no-retrain")
    for age, name in enumerate((VANILLA, CALIBRATED, CALIBRATED[:-1] + "2")):
        os.utime(tiny.vanilla.with_name(name) / "config.json", (10**9 + age,) * 2)
    rows = abc("runs", "--json").json()
    assert [Path(row["run"]).name for row in rows] == [VANILLA, CALIBRATED, CALIBRATED[:-1] + "2"]
    assert [row["stage"] for row in rows] == ["vanilla", "calibrated", "calibrated"]
    assert [row["state"] for row in rows] == ["trained", "trained", "not finished"]
    assert rows[0]["task"] == "successor" and rows[0]["held_out"] >= 99.9


def test_tasks_are_listed_with_a_sample(abc):
    rows = abc("tasks", "--json").json()
    assert [row["task"] for row in rows] == list(TASKS)
    for row in rows[:-1]:  # the last one is read from files
        source, answer = row["sample"].split(" -> ")
        assert get_task(row["task"]).solve(source) == answer
        assert "``" not in row["what"]
    shown = abc("tasks").out
    for row in rows:
        assert row["group"] in shown
        line = next(line for line in shown.splitlines() if line.split()[:1] == [row["task"]])
        assert row["sample"] in line and row["what"] in line  # a pipe: nothing is wrapped


LOADED = """
import sys
from cli.main import app
heavy = {"torch", "numpy", "pandas", "scipy", "sympy", "matplotlib", "transformers", "einops"}
for words in (["--version"], ["--help"], ["train", "--help"], ["predict", "99"]):
    try:
        app(words)
    except SystemExit as end:
        assert not end.code
    print("loaded:", sorted(heavy & set(sys.modules)))
"""


def test_only_what_is_needed_is_loaded(tiny):
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert not done.returncode, done
    assert (said[0], said[-2]) == (f"abc-calib {__version__}", "100"), done
    loaded = [line for line in said if line.startswith("loaded: ")]
    assert loaded == ["loaded: []"] * 3 + ["loaded: ['einops', 'numpy', 'torch']"], done


def test_on_a_terminal_progress_is_a_bar_with_the_time_left(monkeypatch):
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=100, _environ={})
    monkeypatch.setattr(progress, "err", terminal)
    with progress.training("training addition", None) as on_step:
        for step in (100, 200, 300):
            on_step(SimpleNamespace(step=step, steps=3000, accuracy=0.5, loss=0.1, seconds=1.0))
            time.sleep(0.01)
    *_, line = filter(str.strip, Text.from_ansi(shown.getvalue()).plain.splitlines())
    for part in ("training addition", "300/3000 steps", "held-out 50.0 %", "at most 00:0"):
        assert part in line


def test_an_evaluation_shows_its_progress_if_asked_to_and_keeps_its_rows(tiny, capsys):
    stages.evaluate(tiny.calibrated, [3], samples=5)
    assert capsys.readouterr().err == ""
    stages.evaluate(tiny.calibrated, [3], samples=5, progress=True)
    line = "evaluating successor after calibration 1/1 random, 3 digits\n"
    assert capsys.readouterr().err == line

    def stop(row):
        if row["length"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"after 2 of 3 rows; they are kept in .*eval\.csv"):
        stages.evaluate(tiny.calibrated, [1, 2, 9], samples=3, on_row=stop)
    assert pd.read_csv(tiny.calibrated / "eval.csv").length.tolist() == [1, 2, 3]


class Short(Successor):
    """Successors, trained on no more than three digits."""

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = 3


@pytest.fixture
def tiny_preset(monkeypatch) -> None:
    """The demo's preset is small enough for a test, and its task is short."""
    small = {"decoder_layers": 1, "heads": 4, "width": 32, "feedforward": 64}
    quick = {"batch": 32, "learning_rate": 0.01, "validate_every": 50}
    quicker(monkeypatch, small, {**quick, "steps": 900}, {**quick, "steps": 60})
    monkeypatch.setitem(TASKS, "successor", Short)
    monkeypatch.setattr(check, "STEPS", 40)


@pytest.mark.slow
def test_the_demo_trains_calibrates_compares_and_draws(abc, tiny_preset, runs_root):
    said = abc("demo", "successor", "--base", 3, "--lengths", "3,8", "--samples", 20)
    assert said.code == 0
    *_, problem, answer, _, last = said.out.splitlines()
    assert len(problem) == 40 and answer.startswith("= ")
    page = runs_root / "successor-seed0-calibrated-1" / "report.html"
    assert last == f"open the page, with the model in it: {page}" and page.is_file()
    for stage in ("1/5 training 50/900", "2/5 retraining 50/60", "3/5 evaluating", "5/5 an ex"):
        assert stage in said.err
    rows = pd.read_csv(page.parent / "eval.csv")
    assert sorted(rows.set) == ["carry", "carry", "random", "random"]
    assert sorted({*rows.length}) == [3, 8] and (rows.n == 20).all()


def test_an_example_that_never_ends_is_a_wrong_one(tiny, monkeypatch):
    """After minutes of work, the rest of the report must not be lost to it."""

    def endless(*_, **__):
        raise AbcError("the model wrote no end")

    monkeypatch.setattr(abc_calib, "predict", endless)
    problem, answer = worked_example(Run(tiny.calibrated)).split("\n")
    assert answer == "= no number (WRONG)" and len(problem) == 40


SMALL = {"decoder_layers": 1, "heads": 2, "width": 8, "feedforward": 16, "batch": 5}


def test_a_run_of_another_configuration_is_not_gone_on_with(tmp_path):
    with pytest.raises(AbcError, match="has not learned its training problems"):
        certified("successor", folder=tmp_path, steps=20, **SMALL)
    before = (tmp_path / "successor-seed0-vanilla" / "config.json").read_bytes()
    for options, said in (
        ({"steps": 3000}, "steps 20, not 3000"),
        ({"scheme": "rope"}, "not rope"),
    ):
        with pytest.raises(UsageError, match=said) as refused:
            certified("successor", folder=tmp_path, **{"steps": 20, **SMALL, **options})
        assert "name another folder, or remove it" in str(refused.value)
    assert (tmp_path / "successor-seed0-vanilla" / "config.json").read_bytes() == before


def repaired(tiny) -> Run:
    """A run as ``abc repair`` leaves it: calibrated, and made of a calibrated one."""
    path = tiny.calibrated.with_name("repaired")
    shutil.copytree(tiny.calibrated, path)
    change_json(path / "config.json", parent=str(tiny.calibrated))
    vouch(path)
    run = Run.open(path)
    run.make_latest()
    return run


def test_calibrating_after_a_repair_begins_with_the_first_run(tiny):
    run = repaired(tiny)
    with pytest.raises(UsageError, match=f"calibrated already: name .*{tiny.vanilla}"):
        stages.calibrate(run, retrain=False, threshold=0.3)
    made = stages.calibrate(retrain=False, threshold=0.3)
    assert made.config.parent == str(tiny.vanilla)


def test_the_commands_of_a_run_have_all_that_it_was_made_with(tiny):
    first, *_ = commands(Run.open(tiny.vanilla))
    assert commands(repaired(tiny)) == [*commands(Run.open(tiny.calibrated)), "abc repair"]
    tuned = Run.open(tiny.vanilla)
    plugins = {"scheme x": Origin(file="my x.py", sha256="0")}
    config = tuned.config.model_copy(update={"parent": str(tiny.vanilla), "plugins": plugins})
    tuned.__dict__["config"] = config
    assert commands(tuned)[0] == first
    assert f"--finetune {tiny.vanilla}" in commands(tuned)[1]
    assert commands(tuned)[1].endswith(" --plugin 'my x.py'")


def test_options_of_a_foreign_model_are_taken_or_refused(abc, monkeypatch):
    """``--minutes`` reaches the proof; what means nothing with ``--hf`` is not dropped."""
    adopted = SimpleNamespace(summary="", task=SimpleNamespace(follows=None, pairs=()))
    monkeypatch.setattr(abc_calib, "adopt", lambda *_, **__: adopted)
    monkeypatch.setattr(Run, "open", lambda run: run)

    def certify(_, options):
        raise AbcError(f"{options.minutes} minutes")

    monkeypatch.setattr(abc_calib, "certify", certify)
    words = ("certify", "--hf", "f", "--data", "d", "--delimiters", "=", "-q")
    assert abc(*words, "--minutes", 0.5).error(1) == "0.5 minutes"
    for option in ("--seeds", "--base", "--model", "--seed"):
        assert f"no such option: {option}" in abc(*words, option, 3).error(2)
