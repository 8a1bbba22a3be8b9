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

from abc_calib.version import __version__

_HOMES = {
    "AbcError": "errors",
    "Certificate": "proof.certificate",
    "Interrupted": "errors",
    "Line": "geometry",
    "LineBias": "geometry",
    "Prediction": "evaluation",
    "Run": "runs",
    "TaskError": "tasks",
    "UsageError": "errors",
    "adopt": "stages",
    "calibrate": "stages",
    "capture": "calibration.foreign",
    "certified": "stages",
    "certify": "stages",
    "check_task": "stages",
    "evaluate": "stages",
    "export": "stages",
    "extend_bias": "calibration",
    "fit_lines": "calibration.foreign",
    "heatmap": "reporting.views",
    "inject": "nn.foreign.inject",
    "load": "nn.foreign.inject",
    "load_plugin": "stages",
    "heatmap_figures": "reporting.views",
    "patterns": "reporting.hooks",
    "predict": "stages",
    "repair": "stages",
    "resume": "stages",
    "retrain": "stages",
    "stress": "stages",
    "train": "stages",
    "unexplained": "calibration.foreign",
    "verify": "stages",
}
"""The room of each name; types are in ``__init__.pyi``."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module("tasks" if name == "TaskError" else f"{__name__}.{_HOMES[name]}")
    value = getattr(home, "draw_heatmaps" if name == "heatmap" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
