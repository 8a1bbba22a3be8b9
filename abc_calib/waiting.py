"""Lines for models of ``transformers`` that are loaded: what ``import abc_calib`` makes ready.

``transformers`` is not imported here. When somebody does, before or after us, models whose
configuration holds lines get them as they are made (``abc_calib.nn.foreign.inject``).
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

AWAITED = "transformers.modeling_utils"


def wait() -> None:
    """Be there when models can be made; nothing happens if ``transformers`` is never imported."""
    if AWAITED in sys.modules:
        prepare(sys.modules[AWAITED])
    elif not any(isinstance(finder, Awaiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, Awaiting())


def prepare(module: ModuleType) -> None:
    """Give models that hold lines what they need at the end of their making."""
    kind: Any = module.PreTrainedModel
    made = kind.post_init
    if hasattr(made, "abc_calib"):
        return

    def post_init(self: Any) -> None:
        made(self)
        held = getattr(self.config, "abc_calib", None)
        if held and type(self).__name__ in (self.config.architectures or ()):
            import_module("abc_calib.nn.foreign.inject").attach(self)

    post_init.abc_calib = True  # type: ignore[attr-defined]
    kind.post_init = post_init


class Awaiting(MetaPathFinder):
    """Finds nothing by itself: it lets the others find ``AWAITED``, and is told of the end."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != AWAITED:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Telling(spec.loader)
        return spec


class Telling(Loader):
    """The loader of a module, which says when it is done."""

    def __init__(self, loader: Any):
        self.loader = loader

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        prepare(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
