"""The commands as a user types them: they chain, and results and remarks do not mix."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from conftest import CALIBRATED, VANILLA, change_json, quicker, vouch
from rich.console import Console
from rich.text import Text
from typer.main import get_command

from abc_calib import certified, progress, stages
from abc_calib.calibration import trial as check
from abc_calib.config import Origin
from abc_calib.errors import AbcError, Interrupted, UsageError
from abc_calib.geometry import LineBias
from abc_calib.nn.base import Decoded
from abc_calib.nn.transformer.model import Transformer
from abc_calib.reporting.page.commands import commands
from abc_calib.reproduction import demo
from abc_calib.reproduction.demo import worked_example
from abc_calib.runs import Run
from abc_calib.version import __version__
from cli.calibrate import compared
from cli.main import app
from tasks import TASKS, Successor, get_task

QUICK = (
    "train", "successor", "--steps", 4, "--batch", 5, "--width", 8, "--heads", 2,
    "--feedforward", 16, "--decoder-layers", 1, "--digits", 3,
)  # fmt: skip


def rows_of(said) -> dict[tuple[str, int], dict]:
    return {(row["set"], row["length"]): row for row in said.json()["rows"]}


# The main line


def test_the_three_commands_chain_without_naming_a_run(trained, tiny, abc):
    """``trained`` is what the first two made; the third finds the calibrated run by itself."""
    said = abc("eval", "--max-len", 12, "--samples", 40, "--json")
    found = said.json()
    assert (said.code, found["run"], found["task"]) == (0, str(tiny.calibrated), "successor")
    assert [row["length"] for row in found["rows"]] == list(range(1, 13))
    assert {row["accuracy"] for row in found["rows"]} == {100.0}
    config = json.loads((trained.root / CALIBRATED / "config.json").read_text())
    assert config["parent"] == str(trained.root / VANILLA)


def test_a_calibrated_model_is_exact_far_beyond_its_training_and_a_vanilla_one_is_not(tiny, abc):
    words = ("--lengths", "5,70", "--samples", 200, "--stress", "carry", "--json", "-q")
    far = rows_of(abc("eval", *words))
    assert [far[kind, 70]["accuracy"] for kind in ("random", "carry")] == [100.0, 100.0]
    near = rows_of(abc("eval", VANILLA, *words))
    assert near["random", 5]["accuracy"] > 99
    assert near["random", 70]["accuracy"] == near["carry", 70]["accuracy"] == 0.0


# Prediction


@pytest.mark.parametrize(
    ("problem", "answer"),
    [("999999999999", "1000000000000"), ("0", "1"), ("0019", "20"), (" 12 34 ", "1235")],
)
def test_a_prediction_is_a_number_alone_on_stdout(tiny, abc, problem, answer):
    said = abc("predict", problem)
    assert (said.code, said.out, said.err) == (0, f"{answer}\n", "")


def test_a_prediction_can_be_json(tiny, abc):
    assert abc("predict", "99", "--json").json() == {
        "problem": "99",
        "answer": "100",
        "correct": True,
    }
    attended = abc("predict", "42", "--json", "--show").json()["attended"]
    assert len(attended) == 3
    assert {"place": "a0", "digit": "2", "weight": 1.0} in attended[0]
    assert {"place": "a1", "digit": "4", "weight": 1.0} in attended[1]


def test_a_wrong_answer_is_told_on_stderr(tiny, abc, monkeypatch):
    written = Decoded(torch.tensor([[7, 4, 13, 14]]))
    monkeypatch.setattr(Transformer, "decode_from", lambda *_: written)
    said = abc("predict", "12")
    assert (said.code, said.out) == (0, "47\n")
    assert said.err == "this is wrong: the model has not learned this one\n"


def test_an_answer_without_an_end_is_no_answer(tiny, abc, monkeypatch):
    written = Decoded(torch.tensor([[1, 1, 1, 1, 1]]))
    monkeypatch.setattr(Transformer, "decode_from", lambda *_: written)
    assert "the model wrote no end within 5 tokens" in abc("predict", "12").error(1)


# Calibration


def test_calibrating_and_retraining_can_be_two_steps(tiny, abc):
    said = abc("calibrate", "--threshold", 0.3, "--no-retrain", "--steps", 7, "--batch", 5)
    made = tiny.calibrated.with_name("successor-calibrated-seed0-2")
    assert said.err == f"{made}: calibrated; next: abc retrain\n"
    assert not (made / "model").exists() and not (made / "check.csv").exists()
    assert abc("eval").error(1) == f"{made} has no trained model: train again"
    assert abc("runs", "--json").json()[-1]["state"] == "not finished"
    again = abc("retrain", "--json")
    assert {key: again.json()[key] for key in ("run", "steps")} == {"run": str(made), "steps": 7}
    bias = LineBias.load(made / "bias.safetensors")
    assert json.loads((made / "model" / "config.json").read_text())["line_bias"] == bias.to_dict()
    assert abc("eval", "--lengths", 2, "--samples", 3, "--json").json()["run"] == str(made)
    assert "is trained already" in abc("retrain").error(2)


def test_a_retrained_model_that_is_worse_than_the_first_is_told(tiny, abc):
    abc("calibrate", "--threshold", 0.3, "--no-retrain", "--steps", 1, "--batch", 5)
    said = abc("retrain")
    worse = [line for line in said.err.splitlines() if line.startswith("worse than before")]
    assert len(worse) == 1 and "% of held-out problems, " in worse[0]
    assert worse[0].endswith(" before. Try another --threshold, more --steps or another --seed")
    (only,) = compared(Run.open(tiny.calibrated))
    assert only.startswith("retraining took ")


def test_a_model_that_is_never_right_is_refused_even_if_forced(abc):
    assert "it has not interpolated" in abc(*QUICK).err
    assert "the model has not interpolated: 0.0 % of 2048" in abc("calibrate").error(1)
    assert "decodes no training sample correctly" in abc("calibrate", "--force").error(1)


# Training


def test_options_of_a_calibration_reach_the_configuration(tiny, abc):
    words = ("--fit", "mean", "--dirs", "anti,diag", "--threshold", 2, "--layer", "own")
    more = ("--sites", "cross, self", "--anchors", "segment", "--values", "hard")
    more += ("--off-line-bias", -3, "--empty", "sink", "--samples", 99, "--average", "digits")
    made = Path(abc("calibrate", VANILLA, *words, *more, "--no-retrain", "--json").json()["run"])
    assert json.loads((made / "config.json").read_text())["calibration"] == {
        **{"fit": "mean", "dirs": ["anti", "diag"], "threshold": 2, "samples": 99},
        **{"layer": "own", "sites": ["cross", "self"], "anchors": "segment"},
        **{"average": "digits", "off_line_bias": -3, "values": "hard", "empty": "sink"},
    }


def test_quiet_says_nothing(tiny, abc):
    for words in (
        QUICK,
        ("eval", CALIBRATED, "--lengths", 3, "--samples", 3, "--json"),
        ("calibrate", VANILLA, "--threshold", 0.3, "--no-retrain"),
    ):
        said = abc(*words, "--quiet")
        assert (said.code, said.err) == (0, "")
        assert "--json" in words or said.out == ""


def test_commands_take_one_thread_by_default_and_work_in_parts_all_of_torch(abc):
    before = torch.get_num_threads()
    evaluate = ("eval", "--lengths", 1, "--samples", 5)
    stress = ("stress", "--lengths", 1, "--samples", 5, "--search", 0)
    try:
        for words, default in (
            *((QUICK, 1), (("predict", "1"), 1), (("heatmap",), 1)),
            *((evaluate, 4), (stress, 4)),
        ):
            torch.set_num_threads(4)
            said = abc(*words)
            assert said.code == 0 or words[0] == "predict", said
            assert torch.get_num_threads() == default, words
            if words[0] != "heatmap":
                abc(*words, "--threads", 2)
                assert torch.get_num_threads() == 2, words
    finally:
        torch.set_num_threads(before)


# Lists


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


# Help


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_help_shows_the_usage_an_example_and_the_options(abc, name):
    said = abc(name, "--help")
    text = " ".join(said.out.split())
    assert said.code == 0 and f"Usage: abc {name}" in text.replace("root", "abc")
    assert "<bool>" not in text
    assert f"abc {name}" in text.split("Example", 1)[1]
    assert "--json" in text


LOADED = """
import json, sys
from cli.main import app
for words in json.loads(sys.argv[1]):
    try:
        app(words)
    except SystemExit as end:
        assert not end.code
heavy = {"torch", "numpy", "pandas", "scipy", "sympy", "matplotlib", "transformers", "einops"}
print("loaded:", sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("commands", "loaded"),
    [
        ([["--version"], ["--help"], ["train", "--help"]], []),
        ([["predict", "--run", CALIBRATED, "99"]], ["einops", "numpy", "torch"]),
    ],
)
def test_only_what_is_needed_is_loaded(tiny, commands, loaded):
    command = [sys.executable, "-c", LOADED, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] in (f"abc-calib {__version__}", "100"), done
    assert done.stdout.splitlines()[-1] == f"loaded: {loaded}", done


# Progress


@pytest.mark.parametrize(("width", "elapsed", "early"), [(80, "", ""), (120, "0:00:0", ", may ")])
def test_on_a_terminal_progress_is_a_bar_with_the_time_left(monkeypatch, width, elapsed, early):
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=width, _environ={})
    monkeypatch.setattr(progress, "err", terminal)
    with progress.training("training addition", None) as on_step:
        for step in (100, 200, 300):
            on_step(SimpleNamespace(step=step, steps=3000, accuracy=0.5, loss=0.1, seconds=1.0))
            time.sleep(0.01)
    *_, line = filter(str.strip, Text.from_ansi(shown.getvalue()).plain.splitlines())
    for part in ("training addition", "300/3000 steps", "held-out 50.0 %", elapsed, "at most 0:0"):
        assert part in line
    assert early in line and (" left," in line) is bool(early)


def test_a_verb_shows_its_progress_if_asked_to(tiny, capsys):
    stages.evaluate(tiny.calibrated, [3], samples=5)
    assert capsys.readouterr().err == ""
    stages.evaluate(tiny.calibrated, [3], samples=5, progress=True)
    assert capsys.readouterr().err == "evaluating 1/1 random 3 digits: 100.00 %\n"


def test_an_interrupted_evaluation_keeps_its_rows(tiny):
    def stop(row):
        if row.length == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"after 2 of 3 rows; they are kept in .*eval\.csv"):
        stages.evaluate(tiny.calibrated, [1, 2, 3], samples=3, on_row=stop)
    assert pd.read_csv(tiny.calibrated / "eval.csv").length.tolist() == [1, 2]


# The demo


class Short(Successor):
    """Successors, trained on no more than three digits."""

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = 3


@pytest.fixture
def tiny_preset(monkeypatch) -> None:
    """The default preset is small enough for a test, and the demo's task is short."""
    small = {"decoder_layers": 1, "heads": 4, "width": 32, "feedforward": 64}
    quick = {"batch": 32, "learning_rate": 0.01, "validate_every": 50}
    quicker(monkeypatch, small, {**quick, "steps": 900}, {**quick, "steps": 60})
    monkeypatch.setitem(TASKS, "successor", Short)
    monkeypatch.setattr(check, "STEPS", 40)


SERIES = ["vanilla, random", "vanilla, carry", "calibrated, random", "calibrated, carry"]


@pytest.mark.slow
def test_the_demo_trains_calibrates_compares_and_draws(abc, tiny_preset, runs_root):
    words = ("successor", "--base", 3, "--lengths", "3,8", "--samples", 20)
    said = abc("demo", *words)
    assert said.code == 0
    for text in (*SERIES, "right training samples", "20"):
        assert text in " ".join(said.out.split())
    *_, problem, answer, files, last = said.out.splitlines()
    assert len(problem) == 40 and answer.startswith("= ")
    folder = runs_root / "successor-calibrated-seed0-1" / "demo"
    assert files == f"table, curve and heatmaps: {folder}"
    assert last == f"the page, with the model in it: {folder / 'report.html'}"
    for stage in ("1/4 training 50/900", "2/4 retraining 50/60", "3/4 evaluating", "4/4 fig"):
        assert stage in said.err
    assert "minutes in all" in said.err
    figures = [f"bias-{site}-layer0" for site in ("self", "cross")]
    drawn = [f"{name}.{kind}" for name in (*figures, "accuracy") for kind in ("pdf", "png")]
    made = {path.name for path in folder.iterdir()}
    assert made == {*drawn, "accuracy.csv", "accuracy.md", "report.html", "self.npz", "cross.npz"}
    table = pd.read_csv(folder / "accuracy.csv")
    assert table.series.drop_duplicates().tolist() == SERIES
    assert table.groupby("series").length.apply(list).tolist() == [[3, 8]] * 4
    assert (table.n == 20).all()
    report = (folder / "accuracy.md").read_text()
    assert report.startswith("Exact match (%) of successor, trained on at most 3 digits, seed 0.")
    assert f"`{problem}` gives " in report


def test_an_example_that_never_ends_is_a_wrong_one(tiny, monkeypatch):
    """After minutes of work, the rest of the report must not be lost to it."""

    def endless(*_, **__):
        raise AbcError("the model wrote no end")

    monkeypatch.setattr(demo.stages, "predict", endless)
    problem, *rest = worked_example(Run(tiny.calibrated))
    assert rest == ["no number", False] and len(problem) == 40


# Where runs meet


SMALL = {"decoder_layers": 1, "heads": 2, "width": 8, "feedforward": 16, "batch": 5}


def test_a_run_of_another_configuration_is_not_gone_on_with(tmp_path):
    with pytest.raises(AbcError, match="interpolated"):
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
    minutes = []
    monkeypatch.setattr(
        stages,
        "adopt",
        lambda *_, **__: SimpleNamespace(summary="", task=SimpleNamespace(follows=None)),
    )
    monkeypatch.setattr(stages, "opened", lambda run: run)

    def certify(_, options):
        minutes.append(options.minutes)
        raise AbcError("seen")

    monkeypatch.setattr(stages, "certify", certify)
    words = ("certify", "--hf", "f", "--data", "d", "--delimiters", "=", "-q")
    assert abc(*words, "--minutes", 0.5).error(1) == "seen"
    assert minutes == [0.5]
    for option in ("--seeds", "--base", "--model", "--seed"):
        assert f"no such option: {option}" in abc(*words, option, 3).error(2)
