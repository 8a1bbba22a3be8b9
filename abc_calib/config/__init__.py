"""Every option once: type, bounds, default, help and panel."""

from abc_calib.config.calibration import CalibrationOptions
from abc_calib.config.commands import (
    CertifyOptions,
    CurveOptions,
    DemoOptions,
    EvaluateOptions,
    ExportOptions,
    FigureOptions,
    MachineOptions,
    ProveOptions,
    RecipeOptions,
    ReproduceOptions,
    RetrainedOptions,
    StressOptions,
    TaskOptions,
    TrackOptions,
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
from abc_calib.config.options import Options, build, changed, pop_fields, refuse_unknown
from abc_calib.config.run import FORMAT_VERSION, Origin, RunConfig, load_config
from abc_calib.config.signature import documented, iter_options
from abc_calib.config.training import PRESETS, QUICKLY, RETRAIN, TrainOptions, preset
