"""The verbs: train, calibrate, retrain, evaluate, predict, stress, certify, repair.

Each takes a run, its folder or nothing for the latest one, and gives a run or a table. They are
what the commands call, and what a notebook calls too.
"""

from abc_calib.plugins import load_plugin
from abc_calib.proof.second_look import export, verify
from abc_calib.stages.calibrating import calibrate
from abc_calib.stages.foreign import adopt
from abc_calib.stages.from_nothing import certified
from abc_calib.stages.judging import certify, check_task, evaluate, export_lines, predict, stress
from abc_calib.stages.making import repair, retrain, train
from abc_calib.stages.running import Work, resume, train_run
