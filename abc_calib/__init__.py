"""Attention bias calibration: small Transformers that go from 6 digits to thousands.

>>> import abc_calib as abc
>>> vanilla = abc.train("addition")
>>> calibrated = abc.calibrate(vanilla)
>>> abc.evaluate(calibrated, lengths=[6, 50, 1000], samples=1000)
>>> abc.predict(calibrated, "999999999999+1").answer
>>> abc.heatmap(calibrated, "figures")

Names are loaded when first used, so that ``import abc_calib`` takes no time. Options are checked by
their groups in ``abc_calib.config``; every error that a user is meant to read is an ``AbcError``.
"""

from __future__ import annotations

import sys
from importlib import import_module

_MODULES = {
    "abc_calib.calibration": "extend_bias",
    "abc_calib.calibration.foreign": "fit_lines unexplained",
    "abc_calib.errors": "AbcError Interrupted UsageError",
    "abc_calib.evaluation": "Prediction",
    "abc_calib.geometry": "Line LineBias",
    "abc_calib.nn.foreign.capture": "as_attention capture",
    "abc_calib.nn.foreign.folder": "load",
    "abc_calib.nn.foreign.inject": "inject",
    "abc_calib.proof.certificate": "Certificate",
    "abc_calib.proof.second_look": "export",
    "abc_calib.reporting.card": "card",
    "abc_calib.reporting.of_runs": "curves",
    "abc_calib.reporting.transducer": "compile",
    "abc_calib.reporting.views": "heatmap heatmap_figures",
    "abc_calib.runs": "Run",
    "abc_calib.stages": "adopt calibrate certified certify check_task evaluate export_lines "
    "load_plugin predict repair resume retrain stress train verify",
    "abc_calib.tracking": "Tracker",
    "abc_calib.version": "__version__",
    "tasks": "TaskError",
}
"""The names of each module that the package offers; ``__init__.pyi`` has them for type checkers."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        globals()[name] = value = getattr(import_module(_HOMES[name]), name)
    except ImportError:
        other = sys.modules.get("tasks")
        if other is None or hasattr(other, "__path__"):
            raise
        message = f"{other.__file__} hides a package of this program, tasks: rename your file"
        raise ImportError(message) from None
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
