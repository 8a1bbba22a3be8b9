"""The names of the package for type checkers; ``__init__.py`` loads them when first used."""

from abc_calib.calibration import extend_bias as extend_bias
from abc_calib.calibration.foreign import fit_lines as fit_lines
from abc_calib.calibration.foreign import unexplained as unexplained
from abc_calib.errors import AbcError as AbcError
from abc_calib.errors import Interrupted as Interrupted
from abc_calib.errors import UsageError as UsageError
from abc_calib.evaluation import Prediction as Prediction
from abc_calib.geometry import Line as Line
from abc_calib.geometry import LineBias as LineBias
from abc_calib.nn.foreign.capture import as_attention as as_attention
from abc_calib.nn.foreign.capture import capture as capture
from abc_calib.nn.foreign.folder import load as load
from abc_calib.nn.foreign.inject import inject as inject
from abc_calib.proof.certificate import Certificate as Certificate
from abc_calib.proof.second_look import export as export
from abc_calib.reporting.card import card as card
from abc_calib.reporting.of_runs import curves as curves
from abc_calib.reporting.transducer import compile as compile
from abc_calib.reporting.views import heatmap as heatmap
from abc_calib.reporting.views import heatmap_figures as heatmap_figures
from abc_calib.runs import Run as Run
from abc_calib.stages import adopt as adopt
from abc_calib.stages import calibrate as calibrate
from abc_calib.stages import certified as certified
from abc_calib.stages import certify as certify
from abc_calib.stages import check_task as check_task
from abc_calib.stages import evaluate as evaluate
from abc_calib.stages import export_lines as export_lines
from abc_calib.stages import load_plugin as load_plugin
from abc_calib.stages import predict as predict
from abc_calib.stages import repair as repair
from abc_calib.stages import resume as resume
from abc_calib.stages import retrain as retrain
from abc_calib.stages import stress as stress
from abc_calib.stages import train as train
from abc_calib.stages import verify as verify
from abc_calib.tracking import Tracker as Tracker
from abc_calib.version import __version__ as __version__
from tasks import TaskError as TaskError

__all__: list[str]
