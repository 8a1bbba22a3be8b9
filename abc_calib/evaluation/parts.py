"""Parts of a set of problems, several at once: where threads are worth having.

Intra-op threading does not pay on small models; samples are processed in parallel instead. Each
operation has one thread and each thread its own part of the problems, so the numbers are those of
one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


def in_parts(work: Callable[[Tensor], Result], parts: Iterable[Tensor]) -> list[Result]:
    """What ``work`` gives for each part, as many at once as torch may use threads."""

    def done(part: Tensor) -> Result:
        torch.set_num_threads(1)  # a thread's own number
        with torch.inference_mode():
            return work(part)

    sequence, threads = list(parts), torch.get_num_threads()
    pool = ThreadPoolExecutor(max(1, min(threads, len(sequence))))
    try:
        if threads == 1 or len(sequence) < 2:
            return [done(part) for part in sequence]
        torch.set_num_threads(1)
        return list(pool.map(done, sequence))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
