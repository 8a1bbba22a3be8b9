"""Every option once: type, bounds, default, help and panel."""

from abc_calib.config.calibration import CalibrationOptions
from abc_calib.config.commands import (
    CertifyOptions,
    DemoOptions,
    EvaluateOptions,
    FigureOptions,
    MachineOptions,
    ProveOptions,
    RecipeOptions,
    ReproduceOptions,
    RetrainedOptions,
    StressOptions,
    TaskOptions,
    WorkOptions,
)
from abc_calib.config.foreign import AdoptOptions, ForeignOptions
from abc_calib.config.model import (
    MODEL_OPTIONS,
    DecoderOptions,
    ModelOptions,
    RecurrentOptions,
    TransformerOptions,
)
from abc_calib.config.options import Options, build, changed, refuse_unknown, taken
from abc_calib.config.run import FORMAT_VERSION, Origin, RunConfig, load_config
from abc_calib.config.signature import documented, named
from abc_calib.config.training import PRESETS, QUICKLY, RETRAIN, TrainOptions, preset

__all__ = [
    "FORMAT_VERSION",
    "MODEL_OPTIONS",
    "PRESETS",
    "QUICKLY",
    "RETRAIN",
    "AdoptOptions",
    "CalibrationOptions",
    "CertifyOptions",
    "DecoderOptions",
    "DemoOptions",
    "EvaluateOptions",
    "FigureOptions",
    "ForeignOptions",
    "MachineOptions",
    "ModelOptions",
    "Options",
    "Origin",
    "ProveOptions",
    "RecipeOptions",
    "RecurrentOptions",
    "ReproduceOptions",
    "RetrainedOptions",
    "RunConfig",
    "StressOptions",
    "TaskOptions",
    "TrainOptions",
    "TransformerOptions",
    "WorkOptions",
    "build",
    "changed",
    "documented",
    "load_config",
    "named",
    "preset",
    "refuse_unknown",
    "taken",
]
