"""Work in parts: the same numbers with any number of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from abc_calib.evaluation.exact import exact_matches, greedy_matches
from abc_calib.evaluation.failures import smallest_margins
from abc_calib.evaluation.parts import in_parts


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
