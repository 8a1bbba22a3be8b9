"""Sweeps: files to jobs, keys, one training for all that need it, going on after a stop."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import psutil
import pytest
from conftest import assert_same_weights, change_json, vouch

from abc_calib import stages
from abc_calib.errors import AbcError, Interrupted, UsageError
from abc_calib.runs import Run
from abc_calib.runs.rows import read_rows
from abc_calib.stages import running
from abc_calib.sweeps import Job, Test, read_sweep, results_table, run_jobs
from abc_calib.sweeps.jobs import with_parents
from abc_calib.sweeps.results import describe
from abc_calib.sweeps.workers import ensure, last_line

SMALL = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 16, "length": 4}
QUICK = {**SMALL, "steps": 6, "batch": 8, "validate_every": 2}


def job(task="successor", calibrate=None, lengths=(3, 9), n=20, **options):
    tests = tuple(Test(length=length, n=n) for length in lengths)
    return Job(task=task, options={**QUICK, **options}, calibrate=calibrate, tests=tests)


@pytest.fixture
def sweep_file(tmp_path):
    """Write a sweep file; gives its path."""

    def write(text: str) -> Path:
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        return path

    return write


def test_options_of_a_task_are_part_of_a_job(sweep_file):
    """Machines by TOML: another training, other data, and columns of the results."""
    text = """
        [sweep]
        tasks = ["automaton"]
        lengths = [7]
        task_options = {machine = "mod:3"}
        [options]
        model = "gru"
        [[jobs]]
        task = "automaton"
        task_options = {machine = "mod:5"}
        [[jobs]]
        task = "copy"
        task_options = {}
        """
    jobs = first, second, third = read_sweep(sweep_file(text))
    assert [one.task_options for one in jobs] == [{"machine": "mod:3"}, {"machine": "mod:5"}, {}]
    plain = Job(task="automaton", options={"model": "gru"})
    assert len({one.key for one in (*jobs, plain)}) == 4
    assert third.key == Job(task="copy", options={"model": "gru"}).key
    assert first.data.task.symbols != second.data.task.symbols
    about = describe(second, Path("nowhere"))
    assert (about["task_machine"], about["seed"]) == ("mod:5", 0)


def test_a_named_set_is_measured_once_and_then_complete(tmp_path):
    """It is stored under the length of its longest target, whatever lengths were asked for."""
    kind = "heldout_compositions"
    options = {"model": "gru", "width": 8, "embedding": 4, "d_head": 8, "value": 8, "steps": 1}
    tests = [Test(set=kind, length=length, n=6) for length in (7, 11)]
    made = Job(task="lookup", options=options, tests=tuple(tests))
    made = made.changed(tests=(*tests, Test(length=7, n=5)))
    ensure(made, tmp_path)
    assert made.complete(tmp_path) and not made.missing_tests(tmp_path)
    rows = results_table([made], tmp_path)[["set", "length", "n"]].to_numpy().tolist()
    assert rows == [[kind, 5, 6], ["random", 7, 5]]
    more = made.changed(tests=(Test(set=kind, length=7, n=9),))
    assert [(test.set, test.n) for test in more.missing_tests(tmp_path)] == [(kind, 9)]


def test_a_file_is_a_product_and_further_jobs(sweep_file):
    text = """
        [sweep]
        tasks = ["successor", "addition"]
        schemes = ["none", "rpe:clip=3"]
        seeds = 2
        calibrate = true
        lengths = [6, 50]
        samples = 7
        sets = ["random", "carry"]
        [options]
        width = 16
        calibrate.steps = 9
        [grid]
        heads = [2, 4]
        calibrate.threshold = [0.1, 0.2]
        [[jobs]]
        task = "parity"
        calibrate = false
        seed = 5
        [[jobs]]
        task = "parity"
        calibrate.dirs = ["anti"]
        width = 32
        """
    first, *_ = jobs = read_sweep(sweep_file(text))
    assert len(jobs) == 2 * 2 * 2 * 2 * 2 + 2
    seeds = [one.options.get("seed", 0) for one in jobs]
    assert seeds == sorted(seeds)
    assert len(with_parents(jobs)) == len(jobs) + 2 * 2 * 2 * 2 + 1  # a training for each pair
    assert first.config.model.heads == 2 and first.parent.config.model.scheme == "none"
    assert (first.config.train.steps, first.config.calibration.threshold) == (9, 0.1)
    assert [(t.set, t.length, t.n) for t in first.tests] == [
        (kind, length, 7) for kind in ("random", "carry") for length in (6, 50)
    ]
    found = {bool(one.calibrate): one.config for one in jobs if one.task == "parity"}
    assert found[False].train.seed == 5
    assert found[True].calibration.dirs == ("anti",) and found[True].model.width == 16


BAD = """
| give tasks in [sweep], which [grid] multiplies, or [[jobs]]
[sweeps] | unknown option 'sweeps' of the file: did you mean sweep?
[sweep]; task = 'successor' | unknown option 'task' of [sweep]: did you mean tasks?
[sweep]; tasks = [] | task = []: give a list of one value or more
TASK; [grid]; heads = 2 | heads = 2: give a list
[grid]; heads = [2] | give tasks in [sweep], which [grid] multiplies
TASK; schemes = ['rpe:clip=0'] | clip = '0'
TASK; sets = ['nerves'] | unknown test set 'nerves': choose
TASK; [options]; colour = 1 | unknown option 'colour': choose
TASK; [options]; heads = 2; [grid]; heads = [2] | heads is given twice
TASK; [options]; calibrate.steps = 9 | calibrate.steps is given, and nothing is calibrated
TASK; calibrate = true; [grid]; calibrate.depth = [9] | unknown option 'depth'
TASK; [grid]; batch = [4, 'x'] | batch = 'x': give a whole number
TASK; [[jobs]]; task = 'parity'; width = 0 | width = 0: give a whole number
TASK; task_options = {x = 1} | successor has no option 'x'
TASK; [grid]; seed = [3] | seed is given twice
TASK; seeds = [1, 1] | two jobs have the key successor-
TASK; seeds = 1000000 | 10,001 jobs or more: a sweep has at most 10,000
TASK; seeds = 1000000000000000000000000000000 | seeds = 1
[sweep]; tasks = ['parity', 'copy']; seeds = 10000 | 20,000 jobs
[[jobs]]; seed = 1 | task = None: name the task of each job
jobs = 3 | jobs = 3: give a list
options = 3 | options = 3: give names with values
tasks = [ | cannot be read as TOML
"""
"""A file, ``;`` for a new line and TASK for a sweep of successor; and what is said of it."""


def test_bad_files_are_refused_before_anything_trains(sweep_file, runs_root):
    for case in BAD.strip("\n").split("\n"):
        text, _, message = case.partition("| ")
        path = sweep_file(
            text.replace("TASK", "[sweep]; tasks = ['successor']").replace("; ", "\n")
        )
        with pytest.raises(UsageError) as error:
            read_sweep(path)
        assert message in str(error.value) and str(path) in str(error.value), case
    assert not runs_root.exists()


def test_a_key_is_what_is_trained_and_not_what_is_tested():
    assert job().key == job(lengths=(50,)).key == job(decoder_layers=1, seed=0).key
    others = [job(seed=1), job(width=32), job("parity"), job(scheme="none"), job(calibrate={})]
    others += [job(calibrate={"threshold": 0.3}), job(calibrate={}, width=32)]
    keys = {one.key for one in [job(), *others]}
    assert len(keys) == len(others) + 1
    assert job(calibrate={"threshold": 0.3}).parent.key == job().key
    assert job(scheme="rpe:clip=3", seed=4).key.startswith("successor-rpe-vanilla-seed4-")


def test_jobs_with_one_key_are_run_once_with_the_tests_of_both():
    joined = with_parents([job(calibrate={}, n=20), job(lengths=(9, 12), n=30)])
    assert [one.config.stage for one in joined] == ["vanilla", "calibrated"]
    assert [(t.length, t.n) for t in joined[0].measures] == [(3, 20), (9, 30), (12, 30)]


def test_a_folder_with_another_configuration_is_not_taken(tmp_path):
    ensure(job(), tmp_path)
    path = tmp_path / job().key / "run" / "config.json"
    model = json.loads(path.read_text())["model"]
    change_json(path, model={**model, "feedforward": 17})
    vouch(path.parent)
    with pytest.raises(AbcError, match="holds a run of another configuration"):
        job().complete(tmp_path)


def test_work_goes_on_to_the_same_weights_and_measures_what_is_missing(tmp_path, monkeypatch):
    def stop(progress):
        if progress.step == 4:
            raise KeyboardInterrupt

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ensure(job(), whole)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(running, "training_bar", lambda *_: nullcontext(stop))
        ensure(job(), parts)
    assert not job().complete(parts)
    ensure(job(), parts)
    assert job().complete(parts) and not job(lengths=(3, 12)).complete(parts)
    assert_same_weights(*(job().run(root).load_model() for root in (whole, parts)))

    model = parts / job().key / "run" / "model" / "model.safetensors"
    before = model.stat().st_mtime_ns
    ensure(job(lengths=(3, 12)), parts)
    assert job(lengths=(3, 12)).complete(parts) and model.stat().st_mtime_ns == before
    assert len(pd.read_csv(parts / job().key / "run" / "eval.csv")) == 3


def calibration_of(tiny, root):
    """A calibration whose first training is under ``root``: a trained run, moved there."""
    config = Run.open(tiny.vanilla).config
    options = {**config.model.model_dump(), **config.train.model_dump()}
    again, tests = {"steps": 2, "threshold": 0.3}, (Test(length=6, n=10),)
    child = Job(task="successor", options=options, calibrate=again, tests=tests)
    (root / child.parent.key).mkdir(parents=True)
    tiny.vanilla.rename(root / child.parent.key / "run")
    return child


def test_a_calibrated_job_reads_the_run_of_its_parent(tmp_path, tiny):
    with pytest.raises(AbcError, match=r"the first training .* is not there"):
        ensure(job(calibrate={}), tmp_path)
    child = calibration_of(tiny, tmp_path)
    folder = tmp_path / child.parent.key
    ensure(child, tmp_path)
    run = child.run(tmp_path)
    assert run.config.parent == str(folder / "run") and child.complete(tmp_path)
    table = results_table([child], tmp_path)
    (row,) = table.to_dict("records")
    assert (row["stage"], row["train_length"], row["length"]) == ("calibrated", 5, 6)
    assert (row["scheme"], row["calibrate_scheme"]) == ("sinusoidal", "none")
    assert (row["steps"], row["calibrate_steps"], row["steps_taken"]) == (1500, 2, 2)
    assert (row["calibrate_dirs"], row["n"]) == ("diag+anti+vert", 10)


def test_a_failure_stops_only_what_hangs_on_it(tmp_path):
    """In processes: a training, and a calibration that its model is not good enough for."""
    seen, jobs = [], [job(calibrate={"steps": 2})]
    outcomes = run_jobs(jobs, tmp_path, workers=2, on_change=lambda _, one: seen.append(one))
    found = [(o.job.config.stage, o.state) for o in outcomes]
    assert found == [("vanilla", "done"), ("calibrated", "failed")]
    assert [o for o in seen if o] == outcomes
    assert (
        "has not learned its training problems" in outcomes[1].reason
        and "log.txt" in outcomes[1].reason
    )
    table = results_table(jobs, tmp_path, outcomes)
    assert list(table["stage"]) == ["vanilla", "vanilla", "calibrated"]
    assert table["error"].notna().tolist() == [False, False, True]
    assert table["accuracy"].notna().sum() == 2

    # what is complete is kept, and a broken folder fails its own job alone
    assert [o.state for o in run_jobs([job()], tmp_path, workers=1)] == ["kept"]
    weights = tmp_path / job().key / "run" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    ensure(job(seed=1), tmp_path)
    both = [job(), job(seed=1)]
    outcomes = run_jobs(both, tmp_path)
    assert {o.job.key: o.state for o in outcomes} == {both[0].key: "failed", both[1].key: "kept"}
    table = results_table(both, tmp_path, outcomes)
    assert table["error"].notna().tolist() == [True, False, False]


def test_an_interruption_ends_the_processes_which_save_their_work(tmp_path):
    """They see that the file of their sweep is gone, as they do on another machine."""
    one, processes, others = job(steps=10**6, validate_every=20), [], {*psutil.Process().children()}

    def interrupt(progress, _):
        if any("held-out" in line for line in progress.last_lines):
            processes.extend({*psutil.Process().children()} - others)
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="0 of 1 jobs complete; the same command goes on"):
        run_jobs([one], tmp_path, on_change=interrupt)
    assert processes and not any(process.is_running() for process in processes)
    assert one.run(tmp_path).load_checkpoint() is not None
    assert last_line(tmp_path / one.key) == "stopped"


def test_a_job_whose_training_failed_is_left_out_and_a_spent_budget_starts_nothing(tmp_path):
    both = [job(seed=1), job(calibrate={})]
    outcomes = run_jobs(both, tmp_path, budget=1e-9)
    assert [o.state for o in outcomes] == ["missing"] * 3 and not list(tmp_path.iterdir())

    blocker = tmp_path / job().key
    blocker.write_text("a file where the folder belongs")
    (outcome,) = run_jobs([job()], tmp_path)
    assert outcome.state == "failed" and outcome.reason.startswith("cannot start a job in ")


def test_a_row_of_another_number_of_rows_is_not_that_of_a_sweep(tmp_path):
    """Outputs in rows differ in their number too: 3x40 is not 3x3."""
    options = {**SMALL, "length": 2, "steps": 1, "batch": 4}
    grid = Job(task="long_multiplication", options=options, tests=(Test(length=3, n=4),))
    ensure(grid, tmp_path)
    stages.evaluate(grid.run(tmp_path), ["3x5"], samples=4)
    (row,) = grid.rows(tmp_path)
    assert (row["length"], row["rows"]) == (3, 3)
    assert len(read_rows(tmp_path / grid.key / "run" / "eval.csv")) == 2


def test_the_command_lists_its_jobs_and_refuses_what_cannot_be(abc, sweep_file, tmp_path):
    path = sweep_file("[sweep]\ntasks = ['successor']\nseeds = 2")
    listed = abc("sweep", path, "--check", "--json").json()["jobs"]
    names = [f"successor-sinusoidal-vanilla-seed{seed}" for seed in range(2)]
    assert [key.rsplit("-", 1)[0] for key in listed] == names
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.csv").mkdir()
    for option, value, code, message in (
        ("--out", tmp_path / "x.txt", 2, "as '.txt': choose .csv"),
        ("--out", tmp_path / "folder.csv", 2, "is not a file"),
        ("--out", tmp_path / "file" / "x.csv", 1, "cannot make the folder"),
        ("--out", "/proc/none/x.csv", 1, "cannot make the folder"),
        ("--jobs", tmp_path / "file", 1, "cannot make the folder"),
    ):
        assert message in abc("sweep", path, option, value).error(code)
    assert "cannot be read" in abc("sweep", tmp_path / "none.toml").error(2)
    assert not list(tmp_path.rglob("config.json"))


def test_jobs_that_differ_in_their_seeds_are_checked_once(sweep_file, monkeypatch):
    checked = []
    check = Job.check
    monkeypatch.setattr(Job, "check", lambda job: (checked.append(job), check(job)))
    text = "[sweep]\ntasks = ['successor', 'parity']\nseeds = 15\ncalibrate = true"
    assert len(read_sweep(sweep_file(text))) == 30
    assert len(checked) == 2


def test_a_worker_that_is_killed_is_named_by_its_signal(tmp_path):
    def kill(progress, _):
        for process in psutil.Process().children():
            process.kill()

    (outcome,) = run_jobs([job(steps=10**6)], tmp_path, on_change=kill)
    assert outcome.state == "failed" and outcome.reason.startswith("killed by SIGKILL (log: ")
