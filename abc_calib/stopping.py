"""Requests to stop: Ctrl-C, SIGTERM, a closed terminal, a batch system's warning (SIGUSR1)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPS = [
    getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, n)
]


@contextmanager
def _handled(signals: list[int], handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Handle these signals so meanwhile; only the main thread may."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in signals if is_main}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def like_interrupts() -> Iterator[None]:
    """Take any other request to stop like Ctrl-C.

    What is ignored, as by ``nohup``, stays so.
    """
    signals = [n for n in STOPS[1:] if signal.getsignal(n) == signal.SIG_DFL]
    with _handled(signals, signal.default_int_handler):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off what would raise ``KeyboardInterrupt`` to the end of the block."""
    options: list[int] = []
    signals = [n for n in STOPS if callable(signal.getsignal(n))]  # & has it ignore Ctrl-C
    with _handled(signals, lambda number, _: options.append(number)):
        yield
    if options:
        raise KeyboardInterrupt
