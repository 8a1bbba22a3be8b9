"""One problem, answered by a trained model, and what it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import torch

from abc_calib.data import Data
from abc_calib.errors import AbcError
from abc_calib.evaluation.memory import check_memory
from abc_calib.geometry import Layout
from abc_calib.nn.base import Model
from tasks import TaskError


@dataclass(frozen=True)
class Prediction:
    """A model's answer: ``answer`` as a person reads it, ``output`` token by token.

    ``correct``: None where nothing says what is right.

    ``attended``: for each output token, the positions of the source's digits that it attended
    to, with the strongest weight over layers and heads, largest first. ``tokens`` are the
    source's; ``places`` name its digits, ``a0`` being the last of the first operand.
    """

    answer: str
    correct: bool | None
    tokens: list[str]
    places: list[str]
    output: list[str]
    attended: list[list[tuple[int, float]]]

    def __str__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        mark = {True: "right", False: "wrong", None: "nobody knows whether it is right"}[
            self.correct
        ]
        return f"<p><code>{escape(self.answer)}</code> ({mark})</p>"


@torch.inference_mode()
def predict(model: Model, data: Data, problem: str, show: bool = False) -> Prediction:
    """Decode the answer to a problem in a person's notation, greedily.

    Raises ``TaskError`` if the problem is not one of the task, ``AbcError`` if the model writes no
    end within the longest possible answer or the source does not fit the memory.
    """
    problems = data.task.parse(problem)
    batch = data.lay_out(problems)
    symbols, eos = data.vocabulary.symbols, data.vocabulary.eos
    steps = batch.target.shape[1] + 2
    check_memory(model, 1, batch.source.shape[1], steps if show else 1)
    written = model.decode(batch.source.to(model.device), steps).ids[0].tolist()
    if eos not in written:
        raise AbcError(f"the model wrote no end within {steps} tokens: it does not know this one")
    written = written[: written.index(eos) + 1]
    output = [symbols[i] for i in written]
    answer = data.read(output[:-1]) if len(output) > 1 else ""
    places = digit_places(data.layout(problems))
    return Prediction(
        answer=answer,
        correct=_judged(data, problem, answer),
        tokens=[symbols[i] for i in batch.source[0].tolist()],
        places=places,
        output=output,
        attended=_attended(model, batch.source, written, places) if show else [],
    )


def _judged(data: Data, problem: str, answer: str) -> bool | None:
    """Is an answer right? None if the task cannot tell."""
    try:
        return answer == data.task.solve(problem)
    except TaskError:  # it was parsed, so that there is nothing wrong with it
        return None


LOOKED_AT = 0.2
"""A source token counts as attended to from this weight on."""


def digit_places(layout: Layout) -> list[str]:
    """A name for each digit or word of a source, empty for delimiters."""
    closes = {*layout.closes}
    return ["" if i in closes else layout.label(i) for i in range(layout.keys)]


def _attended(
    model: Model, source: torch.Tensor, written: list[int], places: list[str]
) -> list[list[tuple[int, float]]]:
    target = torch.tensor([written], device=model.device)
    weights = model.attention(source.to(model.device), target).weights["cross"]
    strongest = torch.stack(weights)[:, 0].amax((0, 1))  # (i, j)
    rows = []
    for row in strongest.tolist():
        seen = [
            (key, weight) for key, weight in enumerate(row) if weight >= LOOKED_AT and places[key]
        ]
        rows.append(sorted(seen, key=lambda pair: -pair[1]))
    return rows
