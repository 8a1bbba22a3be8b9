"""Every option once: type, bounds, default, help and panel."""

from abc_calib.config.calibration import CalibrationOptions
from abc_calib.config.commands import (
    CertifyOptions,
    DrawOptions,
    EvaluateOptions,
    FigureOptions,
    LookOptions,
    RecipeOptions,
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
from abc_calib.config.options import Options, build, refuse_unknown, take
from abc_calib.config.run import FORMAT_VERSION, Origin, RunConfig, load_config
from abc_calib.config.training import ADAM, PRESETS, RETRAIN, TrainOptions
