"""Models without their numbers: to check options and to count weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DRAWS = ("uniform_", "normal_", "trunc_normal_", "kaiming_uniform_")
"""What draws numbers. For tensors that hold none, torch imports a compiler to do so, which takes as
long as importing torch."""


class _SkipInit(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def skip_init() -> Iterator[None]:
    """Modules that are made here have weights of their shapes that hold no numbers."""
    with torch.device("meta"), _SkipInit():
        yield
