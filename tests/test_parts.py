"""Work in parts: the same numbers with any number of threads; processors of others left alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch

from abc_calib.evaluation import parts
from abc_calib.evaluation.exact import exact_matches, greedy_matches
from abc_calib.evaluation.failures import smallest_margins
from abc_calib.evaluation.parts import free_processors, in_parts


@pytest.fixture(autouse=True)
def threads_are_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("score", [exact_matches, greedy_matches, smallest_margins])
def test_threads_change_no_number(half_trained, score):
    data, model = half_trained
    batch = data.test(5, 3000)
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(score(model, batch))
        assert torch.get_num_threads() == threads
        assert not found[-1].requires_grad
    assert torch.equal(*found) and len(found[0].unique()) > 1


def test_each_part_has_one_thread_and_they_meet():
    """Parts that wait for each other end only if all of them run at once."""
    meeting = threading.Barrier(3, timeout=20)

    def work(part: torch.Tensor) -> tuple[int, int]:
        meeting.wait()
        return int(part), torch.get_num_threads()

    torch.set_num_threads(3)
    assert in_parts(work, torch.arange(6)) == [(part, 1) for part in range(6)]
    torch.set_num_threads(1)
    meeting = threading.Barrier(1)
    assert in_parts(work, torch.arange(2)) == [(0, 1), (1, 1)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_an_error_in_a_part_ends_the_work_and_is_raised(threads, error):
    done = []

    def work(part: torch.Tensor) -> None:
        if int(part) == 2:
            raise error
        done.append(int(part))

    torch.set_num_threads(threads)
    with pytest.raises(error):
        in_parts(work, torch.arange(50))
    assert threads > 1 or done == [0, 1]
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("running", "threads", "free"),
    [(1, 4, 4), (2, 4, 3), (4, 4, 1), (9, 4, 1), (1, 2, 2), (3, 2, 2)],
)
def test_processors_that_others_use_are_left_to_them(monkeypatch, tmp_path, running, threads, free):
    said = tmp_path / "loadavg"
    said.write_text(f"0.20 0.18 0.12 {running}/80 11206\n")
    monkeypatch.setattr(parts, "RUNNING", said)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    torch.set_num_threads(threads)
    assert free_processors() == free


@pytest.mark.parametrize("content", [None, "", "0.1 0.2", "a b c d e"])
def test_a_system_that_does_not_say_what_runs(monkeypatch, tmp_path, content):
    if content is not None:
        (tmp_path / "loadavg").write_text(content)
    monkeypatch.setattr(parts, "RUNNING", tmp_path / "loadavg")
    torch.set_num_threads(2)
    assert free_processors() == 2
