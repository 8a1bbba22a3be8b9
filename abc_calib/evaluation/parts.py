"""Parts of a set of problems, several at once: where threads are worth having.

Intra-op threading does not pay on small models; samples are processed in parallel instead. Each
operation has one thread and each thread its own part of the problems, so the numbers are those of
one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


_LOCK, _INSIDE = Lock(), list[int]()
"""Of every ``one_thread`` that is open, the number of threads to go back to."""


@contextmanager
def one_thread() -> Iterator[int]:
    """Give each operation of torch one thread inside; yields how many it had.

    The number is global in part, so those that are open at once go back to the first one's.
    """
    with _LOCK:
        threads = _INSIDE[0] if _INSIDE else torch.get_num_threads()
        _INSIDE.append(threads)
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
        with _LOCK:
            _INSIDE.pop()


def in_parts(work: Callable[[Tensor], Result], parts: Iterable[Tensor]) -> list[Result]:
    """What ``work`` gives for each part, as many at once as torch may use threads."""

    def done(part: Tensor) -> Result:
        torch.set_num_threads(1)  # a thread's own number
        with torch.inference_mode():
            return work(part)

    sequence = list(parts)
    with one_thread() as threads:
        if threads == 1 or len(sequence) < 2:
            return [done(part) for part in sequence]
        pool = ThreadPoolExecutor(min(threads, len(sequence)))
        try:
            return list(pool.map(done, sequence))
        finally:
            pool.shutdown(cancel_futures=True)
