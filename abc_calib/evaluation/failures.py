"""Look for sources that a model gets wrong, and say where it went wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from abc_calib.data.digits import Batch, Source
from abc_calib.evaluation.exact import greedy_decode
from tasks import Problems
from tasks.digits import without_zeros


@dataclass(frozen=True)
class Failure:
    """A source that a model gets wrong.

    ``problem`` and ``right`` as a person writes them; ``answer`` what the model gives for it, or
    None where it writes no end. ``digits``: width of the longest operand. ``step``: the first
    output token that is wrong, 0 being the last digit; ``wrote`` and ``wanted`` are that token.
    ``window``: the last column up to two columns around it, as ``operand digits`` from the left.
    """

    problem: str
    answer: str | None
    right: str
    digits: int
    step: int
    wrote: str
    wanted: str
    window: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """One line for people."""
        return (
            f"{shortened(self.problem)} gives {shortened(self.answer or 'no end')} instead of "
            f"{shortened(self.right)}: token {self.step} is {self.wrote} instead of {self.wanted}"
        )


def shortened(text: str, most: int = 60) -> str:
    """``text`` with its middle left out where it is long."""
    half = most // 2 - 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]} ({len(text)} characters)"


def written(source: Source, problems: Problems, row: int) -> str:
    """The problem as a person writes it: without the zeros that only pad."""
    plain = tuple(without_zeros(o.values[row : row + 1]) for o in problems.operands)
    return source.task.write(Problems(plain, problems.answer.take(np.array([row]))), 0)


@torch.inference_mode()
def failure(model: Any, source: Source, problem: str) -> Failure | None:
    """What the model does with one problem, decoded greedily; None if that is right."""
    task, vocabulary = source.task, source.vocabulary
    problems = task.parse(problem)
    batch = source.layout.lay_out(task, vocabulary, problems)
    steps = batch.target.shape[1]
    output = greedy_decode(model, batch.source.to(model.device), steps)[0].cpu()
    target = batch.target[0]
    wrong = (output != target).nonzero()
    if not len(wrong):
        return None
    step = int(wrong[0])
    ended = (output == vocabulary.eos).nonzero()
    answer = None
    if len(ended):
        digits = [vocabulary.symbols[i] for i in output[: int(ended[0])].tolist()]
        answer = task.read("".join(reversed(digits))) if digits else ""
    return Failure(
        problem=problem,
        answer=answer,
        right=task.solve(problem),
        digits=int(max(o.lengths[0] for o in problems.operands)),
        step=step,
        wrote=vocabulary.symbols[int(output[step])],
        wanted=vocabulary.symbols[int(target[step])],
        window=_window(source, problems, step),
    )


def _window(source: Source, problems: Problems, step: int, around: int = 2) -> tuple[str, ...]:
    """The digits of each operand around the column of a step, first digit first."""
    parts = []
    for operand in source.task.padded(problems.operands):
        width = operand.width
        first, last = width - 1 - step - around, width - 1 - step + around
        shown = operand.values[0, max(first, 0) : max(last + 1, 0)]
        parts.append("".join(source.vocabulary.symbols[d] for d in shown))
    return tuple(parts)


@torch.inference_mode()
def margins(model: Any, source: Source, batch: Batch) -> torch.Tensor:
    """``(b, t)``: how far each right token's logit is above the largest other one.

    From one pass over the gold output; infinite on padding. A source is right under greedy
    decoding exactly when all its margins are positive.
    """
    pad = source.vocabulary.pad
    inputs, target = batch.source.to(model.device), batch.target.to(model.device)
    logits = model(inputs, inputs != pad, decoder_input_ids=model.shifted(target)).logits
    wanted = logits.gather(2, target[:, :, None])[..., 0]
    others = logits.scatter(2, target[:, :, None], -torch.inf).amax(2)
    return (wanted - others).masked_fill(target == pad, torch.inf).cpu()
