"""Every option once: type, bounds, default, help and panel."""

from abc_calib.config.calibration import CalibrationOptions
from abc_calib.config.model import (
    MODEL_OPTIONS,
    ModelOptions,
    RecurrentOptions,
    TransformerOptions,
)
from abc_calib.config.options import Options, build, changed, refuse_unknown
from abc_calib.config.run import FORMAT_VERSION, RunConfig, load_config
from abc_calib.config.training import PRESETS, RETRAIN, TrainOptions

__all__ = [
    "FORMAT_VERSION",
    "MODEL_OPTIONS",
    "PRESETS",
    "RETRAIN",
    "CalibrationOptions",
    "ModelOptions",
    "Options",
    "RecurrentOptions",
    "RunConfig",
    "TrainOptions",
    "TransformerOptions",
    "build",
    "changed",
    "load_config",
    "refuse_unknown",
]
