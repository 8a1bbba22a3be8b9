"""Parts of a set of problems, several at once: where threads are worth having.

An operation on a small model is done sooner than two threads have met, and where other programs
run they wait for each other long. So each operation has one thread, and each thread has its own
part of the problems: nobody waits, and the numbers are those of one thread. Processors that
others use are left to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


RUNNING = Path("/proc/loadavg")
"""Its fourth word says how many threads of the whole machine run, ``3/512``."""


def free_processors() -> int:
    """How many threads find a processor of their own now: 1 or more, no more than torch may use."""
    free = torch.get_num_threads()
    try:
        running = int(RUNNING.read_text().split()[3].split("/")[0]) - 1  # this one reads it
        free = min(free, (os.cpu_count() or 1) - running)
    except (OSError, ValueError, IndexError):  # a system that does not say so
        pass
    return max(1, free)


@contextmanager
def one_thread() -> Iterator[int]:
    """Inside, each operation of torch has one thread; gives how many it had."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def in_parts(work: Callable[[Tensor], Result], parts: Iterable[Tensor]) -> list[Result]:
    """What ``work`` gives for each part, as many at once as torch may use threads."""

    def done(part: Tensor) -> Result:
        torch.set_num_threads(1)  # a thread's own number
        with torch.inference_mode():
            return work(part)

    listed = list(parts)
    with one_thread() as threads:
        if threads == 1 or len(listed) < 2:
            return [done(part) for part in listed]
        pool = ThreadPoolExecutor(min(threads, len(listed)))
        try:
            return list(pool.map(done, listed))
        finally:
            pool.shutdown(cancel_futures=True)
