"""Parts of a set of problems, several at once: where threads are worth having.

Intra-op threading does not pay on small models; samples are processed in parallel instead. Each
operation has one thread and each thread its own part of the problems, so the numbers are those of
one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


@contextmanager
def one_thread() -> Iterator[int]:
    """Give each operation of torch one thread inside; yields how many it had."""
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

    sequence = list(parts)
    with one_thread() as threads:
        if threads == 1 or len(sequence) < 2:
            return [done(part) for part in sequence]
        pool = ThreadPoolExecutor(min(threads, len(sequence)))
        try:
            return list(pool.map(done, sequence))
        finally:
            pool.shutdown(cancel_futures=True)
