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
    "AbcConfig": "abc_calib.nn.transformer.model",
    "AbcError": "abc_calib.errors",
    "AbcTransformer": "abc_calib.nn.transformer.model",
    "Line": "abc_calib.calibration",
    "LineBias": "abc_calib.calibration",
    "Run": "abc_calib.runs.run",
    "UsageError": "abc_calib.errors",
    "calibrate": "abc_calib.stages",
    "certify": "abc_calib.certification.decide",
    "evaluate": "abc_calib.stages",
    "extend_bias": "abc_calib.calibration",
    "heatmap": "abc_calib.reporting",
    "predict": "abc_calib.evaluation.predict",
    "resume": "abc_calib.stages",
    "repair": "abc_calib.certification.repair",
    "retrain": "abc_calib.stages",
    "stress": "abc_calib.evaluation.stress",
    "train": "abc_calib.stages",
    "verify": "abc_calib.certification.verify",
}
_NAMES = {"heatmap": "draw_heatmaps"}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), _NAMES.get(name, name))
    globals()[name] = value
    return value
