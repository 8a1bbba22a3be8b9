"""What a recurrent model did on one source, step by step, and whether its attention can work.

The variables of a location attender (Dubois et al. 2020, figure 9): where its Gaussian stands,
how wide it is, how far it stepped, and how much a mixture relies on it. The diagnostics of
attention that stays flat: scores too alike to tell places apart, or states of the encoder too
alike to be distinguished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.predict import answered
from abc_calib.nn.build import model_type
from abc_calib.nn.recurrent.attenders import Attender
from abc_calib.runs import Run

FLAT_SCORES = 0.01
"""Variance of the scores of a source below which an attender does not tell places apart."""
ALIKE_STATES = 0.95
"""Median cosine of two states of a source above which the encoder has collapsed."""
SAMPLES = 256


@dataclass(frozen=True)
class Inspection:
    """One source: its ``tokens``, the ``output`` with its end, ``weights (t, s)`` over tokens.

    ``variables``: by name, one number a step, places counted in words of the source from 0, as
    it was given; ``step`` goes the way that it is read.
    ``gold``: the word that each step should read, None where nothing says so.
    """

    source: str
    tokens: list[str]
    output: list[str]
    correct: bool
    weights: np.ndarray
    variables: dict[str, list[float]]
    gold: list[int] | None

    @property
    def looked(self) -> list[float]:
        """The mean place of the attention, in words."""
        return (self.weights @ np.arange(-1, len(self.tokens) - 1)).tolist()


def opened(run: Run | Path | str | None) -> Run:
    """The run, if its model has an attender; ``UsageError`` otherwise."""
    loaded = Run.open(run)
    if not model_type(loaded.config.kind).has_attender:
        raise UsageError(
            f"{loaded} is not a recurrent model: abc heatmap shows Transformers' heads"
        )
    return loaded


@torch.inference_mode()
def inspect(run: Run | Path | str | None, source: str) -> Inspection:
    """Decode ``source`` and keep what the attender did. ``TaskError`` for a source of no sense."""
    run = opened(run)
    model: Any = run.load_model()
    answer = answered(model, run.data, source, 2, attention=True)
    batch, written, steps = answer.batch, answer.decoded, len(answer.ids)
    assert written.attention is not None, "a model with an attender says where it looked"
    gate = model.attender.forwards(model.encode(batch.source).memory)
    gold = run.data.gold_attention(batch)
    return Inspection(
        source=source,
        tokens=answer.tokens(run.data),
        output=answer.symbols(run.data),
        correct=answer.ids == batch.target[0].tolist(),
        weights=written.attention[0, :steps].double().numpy(),
        variables=_variables(
            written.carried[:steps],
            model.attender,
            tokens=batch.source.shape[1],
            offset=model.backbone.offset,
            forwards=1.0 if gate is None else float(gate),
        ),
        gold=None if gold is None else gold[0],
    )


def _variables(
    carried: Sequence[dict[str, torch.Tensor]],
    attender: Attender,
    tokens: int,
    offset: int,
    forwards: float,
) -> dict[str, list[float]]:
    """The attender's numbers by name; places and widths in words, not in shares of the source.

    A place of a turned source is ``forwards`` of one place and the rest of its mirror image.
    """
    reach = max(1, tokens - 3 + 2 * offset)  # between the first and the last place that it sees
    variables: dict[str, list[float]] = {}
    for name in [name for name, value in carried[0].items() if value.shape[1:] == (1,)]:
        values = [float(carry[name][0, 0]) for carry in carried]
        if name in attender.places:
            places = [forwards * value + (1 - forwards) * (1 - value) for value in values]
            values = [value * reach - offset for value in places]
        elif name in attender.shares:
            values = [value * reach for value in values]
        variables[name] = values
    return variables


@dataclass(frozen=True)
class Diagnosis:
    """Whether attention can tell places apart, on held-out problems.

    ``score_variance``: of the scores of a source's places, mean over steps and problems; None
    for an attender that only moves. ``similarity``: median cosine of two states of a source.
    ``peak``: mean largest weight of a step. ``forwards``: mean of the gate that turns a source
    around, 1 where it is left as it is; None without one. ``findings``: what is wrong, and what
    to do.
    """

    samples: int
    score_variance: float | None
    similarity: float
    peak: float
    forwards: float | None
    findings: list[str]


@torch.inference_mode()
def diagnose(run: Run | Path | str | None) -> Diagnosis:
    """Measure a run's attention; ``AbcError`` if there is no held-out problem to measure it on."""
    run = opened(run)
    batch = run.data.validation(SAMPLES)
    if not len(batch):
        raise AbcError(f"{run} has no held-out problems")
    model: Any = run.load_model()
    memory = model.encode(batch.source).memory
    written = model.decode(batch.source, batch.target.shape[1], attention=True)
    counted = batch.target[:, : written.attention.shape[1]] != model.pad
    variances = []
    for step, carry in enumerate(written.carried):
        if "scores" in carry:
            valid = carry["scores"].masked_fill(~memory.mask, float("nan"))
            mean = valid.nanmean(1, keepdim=True)
            variances.append((valid - mean).square().nanmean(1)[counted[:, step]])
    variance = float(torch.cat(variances).mean()) if variances else None
    similarity = _similarity(memory.states, memory.mask)
    findings = []
    if variance is not None and variance < FLAT_SCORES:
        findings.append(
            f"scores hardly differ (variance {variance:.4f} < {FLAT_SCORES}): the attender does "
            "not tell places apart; train longer or choose another attender or seed"
        )
    if similarity > ALIKE_STATES:
        findings.append(
            f"the encoder has collapsed (median cosine {similarity:.3f} > {ALIKE_STATES}): use a "
            "larger width or less dropout"
        )
    peak = float(written.attention.amax(2)[counted].mean())
    gate = model.attender.forwards(memory)
    forwards = None if gate is None else float(gate.mean())
    return Diagnosis(len(batch), variance, similarity, peak, forwards, findings)


def _similarity(states: torch.Tensor, mask: torch.Tensor) -> float:
    """Median cosine of two different valid states ``(b, s, d)`` of one row."""
    unit = torch.nn.functional.normalize(states, dim=2)
    cosines = unit @ unit.transpose(1, 2)
    pairs = mask[:, :, None] & mask[:, None] & ~torch.eye(mask.shape[1], dtype=torch.bool)
    return float(cosines[pairs].median()) if bool(pairs.any()) else 0.0
