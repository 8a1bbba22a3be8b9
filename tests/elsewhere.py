"""A second device that is the processor itself: what it computes is real, and mixing is refused.

torch's ``FakeTensorMode`` knows CUDA's rules, but has no numbers, and decoding, calibration and
certificates look at numbers. Here every function of torch computes on the processor, storages
remember the device that they are said to be on, and what CUDA refuses is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_iter, tree_map

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
MOVING = {"to", "cpu", "cuda"}
COPYING = {"copy_", "__setitem__", "__deepcopy__", "_has_compatible_shallow_copy_type"}
"""What copies from one device to another, or looks at tensors of both."""
OF_CPU = {"numpy", "__array__", "data_ptr", "__dlpack__"}
"""What only tensors of the processor have."""
PACKED = {"_pack_padded_sequence", "_pad_packed_sequence", "gru"}
"""What counts rows of packed sequences on the processor, beside the numbers."""
STRICT = {"cat", "stack", "index_select", "gather", "scatter", "embedding"}
"""What takes no numbers of the processor beside tensors of CUDA either."""


class Elsewhere(TorchFunctionMode):
    """Within it ``device="cuda"`` is there. ``calls``: functions that gave a tensor on it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        first = args[0] if args and isinstance(args[0], Tensor) else None
        full = resolve_name(func) or ""
        if first is not None and name in ("__get__", "__set__"):
            return self._field(full.split(".")[2], func, *args)
        if first is not None and name in OF_CPU and on_cuda(first):
            raise TypeError(f"can't convert cuda:0 device type tensor to numpy ({name})")
        if first is not None and name in MOVING and full.startswith("torch.Tensor."):
            return self._moved(func, name, args, kwargs)
        wanted = kwargs.pop("device", None)
        tensors = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
        cuda = checked(name, tensors)
        if wanted is not None:
            cuda = torch.device(wanted).type == "cuda"
        made = func(*args, **kwargs)
        self.calls += cuda

        def known(one: Any) -> Any:
            packed = name in PACKED and isinstance(one, Tensor) and not one.is_floating_point()
            return tagged(one, cuda and not packed) if isinstance(one, Tensor) else one

        return tree_map(known, made)

    def _field(self, name: str, func: Callable[..., Any], x: Tensor, *value: Any) -> Any:
        other = value and isinstance(value[0], Tensor) and on_cuda(value[0]) != on_cuda(x)
        if other and name != "data":
            raise RuntimeError(f"{name} is on another device than its tensor")
        if name == "device":
            return CUDA if on_cuda(x) else CPU
        if name == "is_cuda":
            return on_cuda(x)
        found = func(x, *value)
        return tagged(found, on_cuda(x)) if isinstance(found, Tensor) else found

    def _moved(self, func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Tensor:
        x, *rest = args
        cuda = on_cuda(x)
        for one in (*rest, *kwargs.values()):
            if isinstance(one, torch.device | str):
                cuda = torch.device(one).type == "cuda"
            elif isinstance(one, Tensor):
                cuda = on_cuda(one)
        if name != "to":
            cuda, made = name == "cuda", x
        else:
            rest = [CPU if isinstance(one, torch.device | str) else one for one in rest]
            kwargs |= {"device": CPU} if "device" in kwargs else {}
            made = func(x, *rest, **kwargs)
        made = made.clone() if made is x and cuda != on_cuda(x) else made
        self.calls += cuda
        return tagged(made, cuda)


class Real(AbstractContextManager["Real"]):
    """The same where a CUDA device is there."""

    calls = sys.maxsize

    def __exit__(self, *_: Any) -> None:
        pass


def elsewhere() -> Elsewhere | Real:
    """A CUDA device, or what stands in for one."""
    return Real() if torch.cuda.is_available() else Elsewhere()


def on_cuda(x: Tensor) -> bool:
    return x.is_cuda or getattr(x.untyped_storage(), "on_cuda", False)


def tagged(x: Any, cuda: bool) -> Any:
    if cuda != on_cuda(x):
        x.untyped_storage().on_cuda = cuda
    return x


def checked(name: str, tensors: list[Tensor]) -> bool:
    """Is the call one of CUDA's? ``RuntimeError`` where it would be of both."""
    if not tensors or name in COPYING | PACKED or (name == "__getitem__" and on_cuda(tensors[0])):
        return bool(tensors) and on_cuda(tensors[0])
    strict = name in STRICT
    devices = {on_cuda(one) for one in tensors if strict or one.dim() or on_cuda(one)}
    if len(devices) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
    return True in devices
