"""One problem, answered by a trained model, and what it looked at."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any

import torch

from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError
from abc_calib.geometry import Layout
from abc_calib.memory import check_source
from abc_calib.nn.base import AttentionWeights, Decoded, Model
from abc_calib.nn.evaluator import Evaluator, evaluator_of
from tasks import TaskError

LOOKED_AT = 0.2
"""A source token counts as attended to from this weight on."""


@dataclass(frozen=True)
class Prediction:
    """A model's answer: ``answer`` as a person reads it, ``output`` token by token.

    ``correct``, ``expected``: None where nothing says what is right.

    ``attended``: for each output token, the positions of the source's digits that it attended
    to, with the strongest weight over layers and heads, largest first. ``tokens`` are the
    source's; ``places`` name its digits, ``a0`` being the last of the first operand, and are empty
    like ``attended`` unless asked for. ``remark``: what else a person should know of the answer.
    """

    answer: str
    correct: bool | None
    expected: str | None
    tokens: list[str]
    places: list[str]
    output: list[str]
    attended: list[list[tuple[int, float]]]
    remark: str = ""

    def __str__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        mark = {True: "right", False: "wrong", None: "not checked"}[self.correct]
        return f"<p><code>{escape(self.answer)}</code> ({mark})</p>"


@dataclass(frozen=True)
class Answer:
    """One problem as it was laid out, and what a model wrote for it.

    ``ids`` up to its end, if it wrote one; ``text``: what a person reads, None without an end.
    """

    problems: Any
    batch: Batch
    decoded: Decoded
    ids: list[int]
    text: str | None

    def symbols(self, data: Data) -> list[str]:
        """What was written, token by token."""
        return [data.vocabulary.symbols[i] for i in self.ids]

    def tokens(self, data: Data) -> list[str]:
        """The source, token by token."""
        return [data.vocabulary.symbols[i] for i in self.batch.source[0].tolist()]

    def attention(self, model: Model) -> AttentionWeights:
        """Where the model looked while it wrote."""
        source, written = self.batch.source, torch.tensor([self.ids])
        return model.attention(source.to(model.device), written.to(model.device))

    def looked(self, model: Model) -> list[list[tuple[int, float]]]:
        """For each written token the keys of the source that it attended to, the most first.

        With the strongest weight over layers and heads, from ``LOOKED_AT`` on.
        """
        strongest = torch.stack(list(self.attention(model).weights["cross"]))[:, 0].amax((0, 1))
        return [
            sorted(((k, w) for k, w in enumerate(row) if w >= LOOKED_AT), key=lambda pair: -pair[1])
            for row in strongest.tolist()
        ]


@torch.inference_mode()
def answered(
    model: Model | Evaluator, data: Data, problem: str, extra: int = 0, attention: bool = False
) -> Answer:
    """Decode the answer to a problem in a person's notation, greedily.

    At most ``extra`` tokens longer than the right one. ``AbcError`` where it does not fit the
    memory, ``TaskError`` if it is not a problem of the task.
    """
    problems = data.task.parse(problem)
    batch, eos = data.lay_out(problems), data.vocabulary.eos
    steps = batch.target.shape[1] + extra
    evaluator = evaluator_of(model)
    check_source(evaluator, batch.source.shape[1], steps if attention else 1)
    source = batch.source.to(evaluator.device)
    decoded = evaluator.decode(source, steps, attention, draft=batch.target)
    ids = decoded.ids[0].tolist()
    if eos not in ids:
        while ids and ids[-1] == data.vocabulary.pad:  # what a tokenizer does not have
            ids.pop()
        return Answer(problems, batch, decoded, ids, None)
    ids = ids[: ids.index(eos) + 1]
    written = [data.vocabulary.symbols[i] for i in ids[:-1]]
    return Answer(problems, batch, decoded, ids, data.read(written) if written else "")


@torch.inference_mode()
def predict(model: Model | Evaluator, data: Data, problem: str, show: bool = False) -> Prediction:
    """Decode the answer to a problem in a person's notation, greedily.

    Raises ``TaskError`` if the problem is not one of the task, ``AbcError`` if the model writes no
    end within the longest possible answer or the source does not fit the memory.
    """
    evaluator = evaluator_of(model)
    answer = answered(evaluator, data, problem, 2, show)
    if answer.text is None:
        steps = answer.decoded.ids.shape[1]
        raise AbcError(f"the model wrote no end within {steps} tokens: it does not know this one")
    places = digit_places(data.layout(answer.problems)) if show else []
    looked = answer.looked(evaluator.model) if show else []
    expected = None
    with suppress(TaskError):  # it was parsed, so that nothing is wrong with it but its answer
        expected = data.task.solve(problem)
    return Prediction(
        answer=answer.text,
        correct=None if expected is None else _is_right(data, answer),
        expected=expected,
        tokens=answer.tokens(data),
        places=places,
        output=answer.symbols(data),
        attended=[[pair for pair in row if places[pair[0]]] for row in looked],
        remark=data.task.remark(answer.text),
    )


def _is_right(data: Data, answer: Answer) -> bool:
    """Is an answer right, token by token?"""
    right = answer.batch.target
    written = torch.tensor([answer.ids])
    missing = right.shape[1] - written.shape[1]
    written = torch.nn.functional.pad(written, (0, max(missing, 0)), value=data.vocabulary.pad)
    return torch.equal(data.bare(written), data.bare(right))


def digit_places(layout: Layout) -> list[str]:
    """A name for each digit or word of a source, empty for delimiters."""
    closes = {*layout.closes}
    return ["" if i in closes else layout.label(i) for i in range(layout.keys)]
