"""From a trained run to a LineBias: which samples, which fit, which table to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from abc_calib.calibration.capture import average_attention, capture, correct_samples, same_shape
from abc_calib.calibration.choice import LineRow, by_means, by_nnls
from abc_calib.calibration.trial import Check
from abc_calib.config import CalibrationOptions
from abc_calib.data.digits import Data
from abc_calib.errors import AbcError
from abc_calib.geometry.lines import LineBias, Site

CALIBRATION_STEP = 2**31
"""Training batches for calibration are drawn as those of a step that training never reaches."""
REFUSED_BELOW = 0.99

OnCheck = Callable[[Check], None]


@dataclass(frozen=True)
class Calibration:
    """A LineBias, the attention it was read from, the table of its lines, how it was chosen.

    ``attention[site]`` is ``(layers, h, i, j)``, averaged over ``samples`` training samples of
    one shape; ``tokens`` label the keys and rows of that shape.
    """

    bias: LineBias
    attention: dict[Site, np.ndarray]
    table: list[LineRow]
    checks: list[Check]
    samples: int
    accuracy: float


def calibrate(
    model: Any,
    source: Data,
    options: CalibrationOptions,
    force: bool = False,
    on_check: OnCheck = lambda _: None,
) -> Calibration:
    """Find the lines of a model that has interpolated, on training lengths only.

    Raises ``AbcError`` if the model decodes less than 99 % of training samples correctly,
    unless ``force``.
    """
    batch = source.training(CALIBRATION_STEP, options.samples)
    correct, accuracy = correct_samples(model, batch)
    if accuracy < REFUSED_BELOW and not force:
        raise AbcError(
            f"the model has not interpolated: {100 * accuracy:.1f} % of {len(batch)} training "
            "samples are right, and calibration reads the attention of a model that is right. "
            "Train longer (--steps), or use --force"
        )
    if not len(correct):
        raise AbcError("the model decodes no training sample correctly: train longer (--steps)")
    options = options.settled()
    full = full_length(source, options.samples, model)
    attention = average_attention(model, full)
    if options.fit == "mean":
        frames = next(iter(capture(model, full))).frames
        bias, table = by_means(attention, options, frames, source)
        checks: list[Check] = []
    else:
        bias, table, checks = by_nnls(model, source, correct, options, on_check)
    return Calibration(bias, attention, table, checks, len(correct), accuracy)


def full_length(source: Data, samples: int, model: Any) -> Any:
    """Correct training samples of one shape, operands of the full training length."""
    batch = source.training(CALIBRATION_STEP + 1, samples, exact=True)
    correct, _ = correct_samples(model, batch)
    return same_shape(correct if len(correct) else batch, source.vocabulary.pad)
