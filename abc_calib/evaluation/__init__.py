"""How right a model is, and what it does."""

from abc_calib.evaluation.exact import exact_matches
from abc_calib.evaluation.predict import Prediction, predict
from abc_calib.nn.evaluator import Evaluator
