"""Attention bias calibration: small Transformers that go from 6 digits to thousands.

>>> import abc_calib as abc
>>> vanilla = abc.train("addition")
>>> calibrated = abc.calibrate(vanilla)
>>> abc.evaluate(calibrated, lengths=[6, 50, 1000], samples=1000)
>>> abc.predict(calibrated, "999999999999+1").answer
>>> abc.heatmap(calibrated, "figures")

Names are loaded when first used, so that ``import abc_calib`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from abc_calib.version import __version__

_HOMES = {
    "AbcError": "abc_calib.errors",
    "Line": "abc_calib.geometry",
    "LineBias": "abc_calib.geometry",
    "Run": "abc_calib.runs",
    "UsageError": "abc_calib.errors",
    "calibrate": "abc_calib.stages",
    "certify": "abc_calib.stages",
    "evaluate": "abc_calib.stages",
    "extend_bias": "abc_calib.calibration",
    "heatmap": "abc_calib.reporting",
    "predict": "abc_calib.stages",
    "resume": "abc_calib.stages",
    "repair": "abc_calib.stages",
    "retrain": "abc_calib.stages",
    "stress": "abc_calib.stages",
    "train": "abc_calib.stages",
    "verify": "abc_calib.stages",
}
_NAMES = {"heatmap": "draw_heatmaps"}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), _NAMES.get(name, name))
    globals()[name] = value
    return value
