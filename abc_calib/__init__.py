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
from typing import TYPE_CHECKING

from abc_calib.version import __version__

if TYPE_CHECKING:
    from abc_calib.calibration import extend_bias
    from abc_calib.certification.certificate import Certificate
    from abc_calib.errors import AbcError, UsageError
    from abc_calib.evaluation import Prediction
    from abc_calib.geometry import Line, LineBias
    from abc_calib.reporting import draw_heatmaps as heatmap
    from abc_calib.runs import Run
    from abc_calib.stages import (
        calibrate,
        certified,
        certify,
        evaluate,
        predict,
        repair,
        resume,
        retrain,
        stress,
        train,
        verify,
    )

__all__ = [
    "AbcError",
    "Certificate",
    "Line",
    "LineBias",
    "Prediction",
    "Run",
    "UsageError",
    "__version__",
    "calibrate",
    "certified",
    "certify",
    "evaluate",
    "extend_bias",
    "heatmap",
    "predict",
    "repair",
    "resume",
    "retrain",
    "stress",
    "train",
    "verify",
]

_HOMES = {
    "AbcError": "errors",
    "Certificate": "certification.certificate",
    "Line": "geometry",
    "LineBias": "geometry",
    "Prediction": "evaluation",
    "Run": "runs",
    "UsageError": "errors",
    "extend_bias": "calibration",
    "heatmap": "reporting",
}
"""Where a name is, if it is no verb."""


if not TYPE_CHECKING:  # a type checker shall find a name that is not there

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = import_module(f"{__name__}.{_HOMES.get(name, 'stages')}")
        value = getattr(home, "draw_heatmaps" if name == "heatmap" else name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
