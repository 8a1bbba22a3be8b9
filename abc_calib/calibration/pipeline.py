"""From a trained run to a LineBias: which samples, which fit, which lines carry over."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from abc_calib.calibration.capture import correct_samples, same_shape
from abc_calib.calibration.fits import Evidence, Fit, LineRow, fit_type
from abc_calib.calibration.plan import resolve_defaults
from abc_calib.calibration.trial import Aim, Check, Choice, Place, choose, every_place
from abc_calib.config import CalibrationOptions
from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError, shortened
from abc_calib.evaluation.exact import exact_matches, measured, written
from abc_calib.files import write_text
from abc_calib.geometry import LineBias, Site
from abc_calib.nn.base import Model
from abc_calib.runs.records import CALIBRATION, write_record
from abc_calib.training.trainer import THROUGHOUT, UNREACHED_STEP

DIAGNOSED, MANY = 64, 25.0
"""Samples by which it is seen why a model is wrong, and the share in percent that says so."""

OnCheck = Callable[[Check], None]


@dataclass(frozen=True)
class Calibration:
    """A LineBias, the attention it was read from, the table of its lines, how it was chosen.

    ``attention[site]`` is ``(layers, h, i, j)``, averaged over ``samples`` training samples of
    one shape; ``tokens`` label the keys and rows of that shape. ``weights``: of the trial that
    chose the lines, if one did.
    """

    bias: LineBias
    attention: dict[Site, np.ndarray]
    table: list[LineRow]
    checks: list[Check]
    samples: int
    accuracy: float
    weights: dict[str, Tensor] | None = None

    def write(self, folder: Path) -> None:
        """Write what it leaves in a run's folder, with a record."""
        arrays = {f"attention.{site}": a for site, a in self.attention.items()}
        self.bias.save(folder / "bias.safetensors", **arrays)
        for name, rows in (("lines.csv", self.table), ("check.csv", self.checks)):
            if rows or name == "lines.csv":
                write_text(folder / name, _as_csv(rows))
        if self.weights:
            save_file(self.weights, folder / "trial.safetensors")
        accuracy = round(100 * self.accuracy, 4)
        write_record(folder / CALIBRATION, {"samples": self.samples, "accuracy": accuracy})


def _as_csv(rows: Sequence[Any]) -> str:
    import pandas as pd

    return pd.DataFrame([asdict(row) for row in rows]).to_csv(index=False)


def calibrate(
    model: Model,
    data: Data,
    options: CalibrationOptions,
    aim: Aim | None = None,
    on_check: OnCheck = lambda _: None,
) -> Calibration:
    """Find the lines of a model that has interpolated, on training lengths only.

    ``aim``: what will be trained with the lines, by default a model of the same shape. Raises
    ``AbcError`` if the model decodes less than ``refused_below`` of training samples correctly,
    or if no model can be right with any lines that are found, unless ``aim.force``.
    """
    aim = aim or Aim(copy.deepcopy(model), data)
    layers = aim.model.attention_layers
    fit, samples, accuracy = read(model, data, options, aim.force, layers)
    if options.threshold is not None or len(fit.thresholds) == 1:
        threshold: Any = fit.thresholds[0] if options.threshold is None else options.threshold
        choice = Choice(fit.bias(threshold), [])
    else:
        candidates = ((threshold, fit.bias(threshold)) for threshold in fit.thresholds)
        choice = choose(candidates, data, aim, partial(weights, fit), on_check)
    table = fit.table(choice.bias)
    return Calibration(
        choice.bias, fit.evidence.averaged, table, choice.checks, samples, accuracy, choice.weights
    )


def mistake(model: Model, data: Data, batch: Batch) -> str:
    """The first sample that a model gets wrong, in the order of the tokens."""
    wrong = batch.take((~exact_matches(model, batch)).nonzero()[:1, 0])
    answer = written(model, wrong, greedy=True)[0]
    rows = (wrong.source, answer, wrong.target)
    source, is_written, right = (shortened(repr(data.vocabulary.text(x[0].tolist()))) for x in rows)
    return f"For {source} it writes the tokens {is_written}, where {right} is right"


@torch.inference_mode()
def advice(model: Model, data: Data, batch: Batch) -> str:
    """What to do about a model that is wrong on its training samples, by what a few of it write."""
    sample = batch.take(torch.arange(min(len(batch), DIAGNOSED)))
    endless = measured(model, data, sample, greedy=True)[0]["too_late"]
    if endless < MANY:
        return "Train it for more steps"
    symbols, eos = data.vocabulary.symbols, data.vocabulary.eos
    source, target = sample.source.to(model.device), sample.target.to(model.device)
    last = int(model(source, target).argmax(-1)[target == eos].mode().values)
    then = repr(symbols[last]) if last < len(symbols) else f"token {last}"
    return (
        f"{endless:.0f} % of its answers are right and then go on, mostly with {then}, not with "
        f"the end {symbols[eos]!r}: it has not learned to end them. Train it on targets with their "
        "end token (of a folder, the first one in eos_token_id)"
    )


def read(
    model: Model,
    data: Data,
    options: CalibrationOptions,
    force: bool = False,
    layers: Mapping[Site, int] | None = None,
) -> tuple[Fit, int, float]:
    """A fit to a model's attention, how many samples it is right in, and the share, 0 to 1.

    ``layers``: to that of the last ones, as many of each site. Raises ``AbcError`` as ``calibrate``
    does.
    """
    batch = data.training(UNREACHED_STEP, options.samples)
    correct, accuracy = correct_samples(model, batch)
    if accuracy < refused_below(options.fit) and not force:
        raise AbcError(
            f"the model has not learned its training problems: {100 * (1 - accuracy):.1f} % of "
            f"{len(batch)} are wrong, and calibration reads the attention of right answers. "
            f"{mistake(model, data, batch)}. {advice(model, data, batch)}, or go on with --force"
        )
    if not len(correct):
        raise AbcError("the model decodes no training sample correctly: train longer (more steps)")
    options = resolve_defaults(options)
    longest = full_length(data, options.samples, model)
    evidence = Evidence.of_run(model, data, correct, longest, options.attention == "raw", layers)
    return fit_type(options.fit)(evidence, options), len(correct), accuracy


class Deciding:
    """Ends a first training as soon as its attention shows lines that decide what is written.

    The same ones at two validations in a row. How much the model gets right
    makes no difference: lines that decide do so for every model (Fit ``rows``).
    """

    least = 0.0
    ends = "lines"

    def __init__(self, data: Data):
        self.data = data
        self.lines: list[str] = []

    def look(self, model: Model, step: int) -> bool:
        model.eval()
        try:
            fit, *_ = read(model, self.data, CalibrationOptions(fit=self.data.fit))
            places = set(every_place(fit.bias(fit.thresholds[0])))
        except AbcError:
            places = set()
        before, self.lines = self.lines, sorted(map(str, places))
        return bool(places) and self.lines == before

    def state(self) -> dict[str, Any]:
        return {"lines": self.lines}

    def load(self, state: dict[str, Any]) -> None:
        self.lines = state.get("lines", [])

    def batch(self, usual: Batch, step: int) -> Batch:
        return usual


def refused_below(fit: str) -> float:
    """The share of training samples, 0 to 1, that a model has to have right before this fit."""
    return min(THROUGHOUT, fit_type(fit).right_at_least)


def weights(fit: Fit, bias: LineBias) -> dict[Place, float]:
    """The largest weight that a fit gives each line among the heads of its layer."""
    largest: dict[tuple[str, int, str], float] = {}
    for row in fit.table(bias):
        name = row.site, row.layer, row.line
        largest[name] = max(row.weight, largest.get(name, 0.0))
    return {
        (site, layer, line): largest.get((site, layer, line.label(site)), 0.0)
        for site, layer, line in every_place(bias)
    }


def full_length(data: Data, samples: int, model: Model) -> Batch:
    """Correct training samples of one shape, operands of the full training length."""
    batch = data.training(UNREACHED_STEP + 1, samples, exact=True)
    correct, _ = correct_samples(model, batch)
    return same_shape(correct if len(correct) else batch, data.vocabulary.pad)
