"""Attention bias calibration: small Transformers that go from 6 digits to thousands.

>>> import abc_calib as abc
>>> vanilla = abc.train("addition")
>>> calibrated = abc.calibrate(vanilla)
>>> abc.evaluate(calibrated, lengths=[6, 50, 1000], samples=1000)
>>> abc.predict(calibrated, "999999999999+1").answer
>>> abc.heatmap(calibrated, "figures")

Names are loaded when first used, so that ``import abc_calib`` takes no time. Functions check what
they are given (``abc_calib.checked``), and every error is an ``AbcError``.
"""

from __future__ import annotations

import ast
from importlib import import_module
from inspect import isfunction
from pathlib import Path

_NAMED = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
_HOMES = {
    one.asname: (node.module, one.name)
    for node in _NAMED
    if isinstance(node, ast.ImportFrom)
    for one in node.names
}
"""The module of each name, and what it is called there."""
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _HOMES[name]
    found = getattr(import_module(module), there)
    if isfunction(found):
        found = import_module("abc_calib.checked").checked(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
