"""Sweeps: files to jobs, keys, one training for all that need it, going on after a stop."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import psutil
import pytest
from conftest import assert_same_weights, vouch

from abc_calib.errors import AbcError, Interrupted, UsageError
from abc_calib.runs import Run
from abc_calib.stages import making
from abc_calib.sweeps import Job, Test, read_sweep, results_table, run_jobs, write_table
from abc_calib.sweeps.jobs import with_parents
from abc_calib.sweeps.results import describe
from abc_calib.sweeps.workers import ensure

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


# Files


def test_options_of_a_task_are_part_of_a_job(sweep_file):
    """Random tables by TOML: another training, other data, and columns of the results."""
    jobs = read_sweep(
        sweep_file(
            """
            [sweep]
            tasks = ["lookup"]
            lengths = [7]
            task_options = {tables = 3}
            [options]
            model = "gru"
            [[jobs]]
            task = "lookup"
            task_options = {tables = 3, seed = 1}
            [[jobs]]
            task = "copy"
            task_options = {}
            """
        )
    )
    first, second, third = jobs
    assert [one.task_options for one in jobs] == [{"tables": 3}, {"tables": 3, "seed": 1}, {}]
    plain = Job(task="lookup", options={"model": "gru"})
    assert len({one.key for one in (*jobs, plain)}) == 4
    assert third.key == Job(task="copy", options={"model": "gru"}).key
    assert (first.data.task.outputs != second.data.task.outputs).any()
    about = describe(second, Path("nowhere"))
    assert (about["task_tables"], about["task_seed"], about["seed"]) == (3, 1, 0)
    with pytest.raises(UsageError, match="copy has no option 'tables': it takes none"):
        read_sweep(sweep_file("[sweep]\ntasks = ['copy']\ntask_options = {tables = 3}"))


def test_a_named_set_is_measured_once_and_then_complete(tmp_path):
    """It is stored under the length of its longest target, whatever lengths were asked for."""
    options = {"model": "gru", "attender": "content", "width": 8, "embedding": 4, "d_head": 8}
    tests = [Test(set="heldout_compositions", length=length, n=6) for length in (7, 11)]
    made = Job(
        task="lookup", task_options={"tables": 3}, options={**options, "value": 8, "steps": 1},
        tests=(*tests, Test(length=7, n=5)),
    )  # fmt: skip
    ensure(made, tmp_path)
    assert made.complete(tmp_path) and not made.missing_tests(tmp_path)
    rows = results_table([made], tmp_path)
    assert rows[["set", "length", "n"]].to_numpy().tolist() == [
        ["heldout_compositions", 5, 6], ["random", 7, 5],
    ]  # fmt: skip
    more = made.with_tests((Test(set="heldout_compositions", length=7, n=9),))
    assert [(test.set, test.n) for test in more.missing_tests(tmp_path)] == [
        ("heldout_compositions", 9)
    ]


def test_a_file_is_a_product_and_further_jobs(sweep_file):
    jobs = read_sweep(
        sweep_file(
            """
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
        )
    )
    assert len(jobs) == 2 * 2 * 2 * 2 * 2 + 2
    seeds = [one.options.get("seed", 0) for one in jobs]
    assert seeds == sorted(seeds)
    assert len(with_parents(jobs)) == len(jobs) + 2 * 2 * 2 * 2 + 1  # a training for each pair
    first, *_ = jobs
    assert first.config.model.heads == 2 and first.parent.config.model.scheme == "none"
    assert (first.config.train.steps, first.config.calibration.threshold) == (9, 0.1)
    assert [(t.set, t.length, t.n) for t in first.tests] == [
        ("random", 6, 7), ("random", 50, 7), ("carry", 6, 7), ("carry", 50, 7),
    ]  # fmt: skip
    plain, other = (one for one in jobs if one.task == "parity")
    if plain.calibrate:
        plain, other = other, plain
    assert plain.calibrate is None and plain.config.train.seed == 5
    assert other.config.calibration.dirs == ("anti",) and other.config.model.width == 32


BAD = """
| there is nothing to do: give tasks in [sweep], or [[jobs]]
[sweeps] | unknown key 'sweeps' in the file: choose among sweep, options, grid, jobs
[sweep]; task = 'successor' | unknown key 'task' in [sweep]: choose among tasks,
[sweep]; tasks = [] | tasks is empty, and so is the product
TASK; seeds = 0 | seeds is empty
TASK; [grid]; heads = [] | heads is empty
TASK; [grid]; heads = 2 | heads = 2: give a list
[grid]; heads = [2] | [grid] multiplies the tasks of [sweep]: give tasks
[sweep]; tasks = ['sucessor'] | did you mean successor?
TASK; schemes = ['rpe:clip=0'] | clip = '0'
TASK; lengths = [0] | lengths = 0: give whole numbers
TASK; sets = ['nerves'] | unknown test set 'nerves': choose
TASK; preset = 'big' | unknown preset 'big': choose one of
TASK; [options]; colour = 1 | unknown key 'colour' in [op
TASK; [options]; heads = 3 | width 64
TASK; [options]; format = 'fixed:20' | does not fit 20
TASK; [options]; sampling = 'odd' | 'odd'
TASK; [options]; law = 'mixed' | unknown key 'law' in [options]
TASK; [options]; heads = 2; [grid]; heads = [2] | heads is given in [options] and in heads: leave
TASK; [options]; calibrate.steps = 9 | calibrate.steps is given, and nothing is calibrated
TASK; calibrate = true; [grid]; calibrate.depth = [9] | unknown key 'depth' in [grid] calibrate:
TASK; calibrate = true; [grid]; calibrate.threshold = [2] | threshold = 2.0: give a number above 0
TASK; [options]; steps = -3 | [options] steps = -3: give a whole number
TASK; [grid]; batch = [4, 'x'] | [grid] batch = 'x': give a whole number
TASK; calibrate = true; [options]; calibrate.steps = -1 | [options] calibrate.steps = -1: give
TASK; [[jobs]]; task = 'parity'; width = 0 | [[jobs]] 1: width = 0: give
TASK; [[jobs]]; task = 'nothing' | [[jobs]] 1: task: unknown task 'nothing'
TASK; schemes = ['nothing'] | [sweep] schemes: unknown scheme 'nothing'
TASK; task_options = {x = 1} | [sweep] task_options.x: successor has no option 'x'
TASK; [grid]; seed = [3] | [grid] seed: seeds of [sweep] say it; leave one out
TASK; seeds = [1, 1] | two jobs have the key successor-
TASK; [[jobs]]; task = 'successor' | two jobs have the key successor-
TASK; seeds = 1000000 | jobs: give at most 10000
TASK; seeds = 1000000000000000000000000000000 | give whole
[sweep]; tasks = ['parity', 'copy']; seeds = 10000 | 20,000 jobs
[[jobs]]; seed = 1 | task = None: name the task of each job
jobs = 3 | jobs is not a list of tables: write [[jobs]]
sweep = 3 | sweep = 3 is not a table: write [sweep]
tasks = [ | is not TOML
"""
"""A file, ``;`` for a new line and TASK for a sweep of successor; and what is said of it."""


@pytest.mark.parametrize("case", BAD.strip("\n").split("\n"))
def test_bad_files_are_refused_before_anything_trains(sweep_file, runs_root, case):
    text, _, message = case.partition("| ")
    text = text.replace("TASK", "[sweep]; tasks = ['successor']").replace("; ", "\n")
    path = sweep_file(text)
    with pytest.raises(UsageError) as error:
        read_sweep(path)
    assert message in str(error.value) and str(path) in str(error.value)
    assert not runs_root.exists()


# Keys


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
    changed = json.loads(path.read_text())
    changed["model"]["feedforward"] = 17
    path.write_text(json.dumps(changed))
    vouch(path.parent)
    with pytest.raises(AbcError, match="holds a run of another configuration"):
        job().complete(tmp_path)


# Working


def test_work_goes_on_to_the_same_weights_and_measures_what_is_missing(tmp_path, monkeypatch):
    def stop(progress):
        if progress.step == 4:
            raise KeyboardInterrupt

    def stopping(title, *more):
        return nullcontext(stop)

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ensure(job(), whole)
    with monkeypatch.context() as patch:
        patch.setattr(making, "training_bar", stopping)
        with pytest.raises(Interrupted):
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


def test_a_calibrated_job_reads_the_run_of_its_parent(tmp_path, tiny):
    options = Run.open(tiny.vanilla).config
    trained = {**options.model.model_dump(), **options.train.model_dump()}
    child = Job(
        task="successor", options=trained, calibrate={"steps": 2, "threshold": 0.3},
        tests=(Test(length=6, n=10),),
    )  # fmt: skip
    with pytest.raises(AbcError, match=r"the first training .* is not there"):
        ensure(child, tmp_path)
    folder = tmp_path / child.parent.key
    folder.mkdir()
    tiny.vanilla.rename(folder / "run")
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
    seen = []
    jobs = [job(calibrate={"steps": 2})]
    outcomes = run_jobs(
        jobs, tmp_path, workers=2, on_change=lambda _, outcome: seen.append(outcome)
    )
    assert [(o.job.config.stage, o.state) for o in outcomes] == [
        ("vanilla", "done"), ("calibrated", "failed"),
    ]  # fmt: skip
    assert [o for o in seen if o] == outcomes
    assert "has not interpolated" in outcomes[1].reason and "log.txt" in outcomes[1].reason
    table = results_table(jobs, tmp_path, outcomes)
    assert list(table["stage"]) == ["vanilla", "vanilla", "calibrated"]
    assert table["error"].notna().tolist() == [False, False, True]
    write_table(table, tmp_path / "out" / "results.csv")
    again = pd.read_csv(tmp_path / "out" / "results.csv")
    assert again["accuracy"].notna().sum() == 2

    kept = run_jobs([job()], tmp_path, workers=1)
    assert [o.state for o in kept] == ["kept"]


def test_an_interruption_ends_the_processes(tmp_path):
    processes, others = [], set(psutil.Process().children())

    def interrupt(progress, _):
        processes.extend(set(psutil.Process().children()) - others)
        if processes:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="0 of 1 jobs complete; the same command goes on"):
        run_jobs([job(steps=100_000)], tmp_path, on_change=interrupt)
    assert processes and not any(process.is_running() for process in processes)


def test_a_job_whose_training_failed_is_left_out_and_a_spent_budget_starts_nothing(tmp_path):
    both = [job(seed=1), job(calibrate={})]
    outcomes = run_jobs(both, tmp_path, budget=1e-9)
    assert [o.state for o in outcomes] == ["missing"] * 3 and not list(tmp_path.iterdir())

    blocker = tmp_path / job().key
    blocker.write_text("a file where the folder belongs")
    (outcome,) = run_jobs([job()], tmp_path)
    assert outcome.state == "failed" and outcome.reason.startswith("cannot start a job in ")


# The command


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


def test_a_broken_folder_fails_its_own_job_alone(tmp_path):
    first, second = job(), job(seed=1)
    for one in (first, second):
        ensure(one, tmp_path)
    weights = tmp_path / first.key / "run" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    outcomes = run_jobs([first, second], tmp_path)
    assert {o.job.key: o.state for o in outcomes} == {first.key: "failed", second.key: "kept"}
    table = results_table([first, second], tmp_path, outcomes)
    assert table["error"].notna().tolist() == [True, False, False]


def test_a_worker_that_is_killed_is_named_by_its_signal(tmp_path):
    def kill(progress, _):
        for process in psutil.Process().children():
            process.kill()

    (outcome,) = run_jobs([job(steps=10**6)], tmp_path, on_change=kill)
    assert outcome.state == "failed" and outcome.reason.startswith("killed by SIGKILL (log: ")
