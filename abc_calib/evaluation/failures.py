"""Look for sources that a model gets wrong, and say where it went wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from abc_calib.data import Batch, Data
from abc_calib.errors import shortened
from abc_calib.evaluation.parts import in_parts
from abc_calib.evaluation.predict import answered
from abc_calib.nn.base import Model
from abc_calib.nn.evaluator import Evaluator, evaluator_of


@dataclass(frozen=True)
class Failure:
    """A source that a model gets wrong.

    ``problem`` and ``right`` as a person writes them; ``answer`` what the model gives for it, or
    None where it writes no end. ``digits``: width of the longest operand. ``step``: the first
    output token that is wrong, 0 being the last digit; ``wrote`` and ``wanted`` are that token.
    """

    problem: str
    answer: str | None
    right: str
    digits: int
    step: int
    wrote: str
    wanted: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """One line for people."""
        return (
            f"{shortened(self.problem)} gives {shortened(self.answer or 'no end')} instead of "
            f"{shortened(self.right)}: token {self.step} is {self.wrote} instead of {self.wanted}"
        )


@torch.inference_mode()
def failure(model: Model | Evaluator, data: Data, problem: str) -> Failure | None:
    """What the model does with one problem, decoded greedily; None if that is right."""
    answer, symbols = answered(model, data, problem), data.vocabulary.symbols
    output, target = answer.decoded.ids.cpu(), answer.batch.target
    if torch.equal(data.bare(output), data.bare(target)):
        return None
    step = int((output != target)[0].nonzero()[0])
    return Failure(
        problem=problem,
        answer=answer.text,
        right=data.task.solve(problem),
        digits=data.size_of(answer.problems),
        step=step,
        wrote=symbols[int(output[0, step])],
        wanted=symbols[int(target[0, step])],
    )


@torch.inference_mode()
def margins(model: Model | Evaluator, batch: Batch) -> torch.Tensor:
    """``(b, t)``: how far each right token's logit is above the largest other one.

    From one pass over the gold output; infinite on padding. A source is right under greedy
    decoding exactly when all its margins are positive.
    """
    evaluator = evaluator_of(model, dense=True)
    target, pad, eos = batch.target.to(evaluator.device), evaluator.model.pad, evaluator.model.eos
    logits, padding = evaluator.logits(batch.source.to(evaluator.device), target), target == pad
    right = target.masked_fill(padding, eos)  # a model need not write padding
    return logit_margins(logits, right).masked_fill(padding, torch.inf).cpu()


def logit_margins(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """How far the logit of the token ``right (...)`` is above the largest other of ``(..., v)``."""
    index = right[..., None]
    return logits.gather(-1, index)[..., 0] - logits.scatter(-1, index, -torch.inf).amax(-1)


def smallest_margins(model: Model | Evaluator, batch: Batch, tokens: int = 2**16) -> torch.Tensor:
    """``(b,)``: the smallest margin of each row, ``tokens`` of source and target at once."""
    rows = max(1, tokens // (batch.source.shape[1] + batch.target.shape[1]))

    def least(part: torch.Tensor) -> torch.Tensor:
        return margins(model, Batch(batch.source[part], batch.target[part], batch.problems)).amin(1)

    return torch.cat(in_parts(least, torch.arange(len(batch)).split(rows)))
