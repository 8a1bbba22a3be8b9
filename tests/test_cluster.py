"""Sweeps beyond one machine: a real Dask scheduler with workers, and shares of job arrays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import psutil
import pytest
from conftest import attempt_here
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sweeps import QUICK, calibration_of, job

from abc_calib.errors import AbcError
from abc_calib.sweeps import engine, ensure, run_jobs, share_of
from abc_calib.sweeps.workers import attempt
from abc_calib.version import ROOT, __version__


def dask(*words, **more):
    """A process of ``dask``, as a user starts it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *map(str, words)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, **more,
    )  # fmt: skip


def eventually(true, seconds=90):
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scheduler")
    file = folder / "scheduler.json"
    process = dask("scheduler", "--scheduler-file", file, "--port", 0, "--no-dashboard", cwd=folder)
    eventually(file.exists)
    from distributed import Client

    with Client(scheduler_file=str(file), set_as_default=False) as client:
        yield client.scheduler.address
    process.terminate()
    process.wait()


@contextmanager
def workers(scheduler, count, folder, *words, **env):
    """``count`` workers of one thread, once they are all there."""
    from distributed import Client

    folder.mkdir(exist_ok=True)
    every = [
        dask("worker", scheduler, "--nthreads", 1, "--no-nanny", "--no-dashboard", *words,
             cwd=folder, env=env)
        for _ in range(count)
    ]  # fmt: skip
    try:
        with Client(scheduler, set_as_default=False) as client:
            eventually(lambda: len(client.nthreads()) == count)
            yield every
            for process in every:
                process.terminate()
                process.wait()
            eventually(lambda: not client.nthreads())
    finally:
        for process in every:
            process.kill()


def weights(root, one):
    return (root / one.key / "run" / "model" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_cluster_trains_what_one_machine_does_though_a_worker_is_killed(scheduler, tmp_path):
    """Two workers, one killed in the middle of a job: done again, to the same weights."""
    jobs = [job(seed=seed, steps=150, validate_every=10) for seed in (1, 2)]
    killed = []

    def kill(progress, _):
        begun = [line for line in progress.last_lines if "held-out" in line]
        if len(begun) == 2 and not killed:
            killed.append(every[0].pid)
            killed.extend(child.pid for child in psutil.Process(every[0].pid).children())
            every[0].send_signal(signal.SIGKILL)

    with workers(scheduler, 2, tmp_path / "away") as every:
        outcomes = run_jobs(jobs, tmp_path / "jobs", scheduler=scheduler, on_change=kill)
    assert [o.state for o in outcomes] == ["done", "done"], outcomes
    assert len(killed) > 1
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in killed[1:]))
    ensure(jobs[0], tmp_path / "here")
    ensure(jobs[1], tmp_path / "here")
    for one in jobs:
        assert weights(tmp_path / "jobs", one) == weights(tmp_path / "here", one)


@pytest.mark.slow
def test_a_worker_calibrates_a_training_that_is_there(scheduler, tmp_path, tiny):
    one = calibration_of(tiny, tmp_path / "jobs")
    with workers(scheduler, 1, tmp_path / "away"):
        outcomes = run_jobs([one], tmp_path / "jobs", scheduler=scheduler)
    assert [o.state for o in outcomes] == ["done"] * 2, outcomes
    assert one.complete(tmp_path / "jobs") and one.parent.complete(tmp_path / "jobs")


def test_a_scheduler_without_workers_is_one_line(scheduler, tmp_path):
    with pytest.raises(AbcError, match="has no workers: start some with `dask worker tcp://"):
        run_jobs([job()], tmp_path, scheduler=scheduler)
    assert not list(tmp_path.glob(".sweep*")) and not list(tmp_path.glob("successor*"))


def test_a_worker_checks_the_version_and_the_folder(tmp_path):
    for sign, version, said in (
        (tmp_path, "0.0.1", f"has version {__version__}, not 0.0.1: install the same"),
        (tmp_path / "none" / "sign", __version__, "--jobs that every worker sees"),
    ):
        with pytest.raises(AbcError, match=said):
            attempt("", tmp_path, "cpu", sign, version)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere:1"])
def test_an_address_without_a_scheduler_is_one_line(abc, tmp_path, address, monkeypatch):
    monkeypatch.setattr("abc_calib.sweeps.workers.CONNECT_SECONDS", 1)
    with pytest.raises(AbcError, match="no Dask scheduler answers within 1 seconds"):
        run_jobs([job()], tmp_path, scheduler=address)


# Job arrays


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 7), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12))
def test_every_job_is_in_one_share_with_its_first_training(of, made):
    jobs = [job(seed=seed, calibrate={} if again else None) for seed, again in made]
    picked = [share_of(jobs, number, of) for number in range(1, of + 1)]
    assert Counter(one.key for share in picked for one in share) == Counter(j.key for j in jobs)
    firsts = [{(one.parent or one).key for one in share} for share in picked]
    assert sum(map(len, firsts)) == len(set().union(*firsts))
    assert max(map(len, firsts)) - min(map(len, firsts)) <= 1


def test_shares_of_an_array_are_joined_by_the_same_command(abc, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "attempt", attempt_here)
    options = "\n".join(f"{name} = {value}" for name, value in QUICK.items())
    file = tmp_path / "sweep.toml"
    file.write_text(
        "[sweep]\ntasks = ['successor']\nseeds = 2\nlengths = [3]\nsamples = 20\n"
        f"[options]\n{options}"
    )
    for share, rows in (("1/2", 1), ("2/2", 2)):
        where = ("--jobs", tmp_path / "jobs", "--out", tmp_path / "r.csv")
        said = abc("sweep", file, "--array", share, *where)
        assert said.code == 0 and f"{rows} of 2 jobs complete" in said.err
        assert len((tmp_path / "r.csv").read_text().splitlines()) == 1 + rows


def test_what_is_no_share_is_refused(abc, tmp_path):
    (tmp_path / "s.toml").write_text("[sweep]\ntasks = ['successor']")
    for array in ("3/2", "0/2", "2", "1/0", "-1/2", "1/2/3", "a/b", "1/"):
        said = abc("sweep", tmp_path / "s.toml", "--array", array)
        assert said.code == 2 and f"--array {array}: " in said.err
