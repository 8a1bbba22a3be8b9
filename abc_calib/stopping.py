"""Requests to stop: Ctrl-C, to terminate, and a closed terminal, all of them the same."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]


@contextmanager
def like_interrupts() -> Iterator[None]:
    """Take a request to terminate, and a terminal that closes, like Ctrl-C.

    What is ignored, as by ``nohup``, stays so.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        wanted = [n for n in STOPS[1:] if signal.getsignal(n) == signal.SIG_DFL]
        before = {number: signal.signal(number, signal.default_int_handler) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off what would raise ``KeyboardInterrupt`` to the end of the block."""
    asked: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        wanted = [n for n in STOPS if callable(signal.getsignal(n))]  # & has it ignore Ctrl-C
        before = {n: signal.signal(n, lambda number, _: asked.append(number)) for n in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt
