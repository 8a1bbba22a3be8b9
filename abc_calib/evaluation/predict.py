"""One problem, answered by a trained model, and what it looked at."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import torch

from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError
from abc_calib.geometry.layout import read_labels
from abc_calib.memory import check_source
from abc_calib.nn.base import AttentionWeights, Decoded, Model
from abc_calib.nn.evaluator import Evaluator, evaluator_of
from tasks import TaskError

LOOKED_AT = 0.2
"""A token counts as attended to from this weight on."""

START = "start"
"""What a decoder reads before it writes its first token."""


class Attended(NamedTuple):
    """A token that was attended to, and the largest ``weight`` over layers and heads.

    ``place``: ``a0`` is the last digit of the first operand, ``y0`` the first token of the output;
    what closes a part of the source is its own place.
    """

    place: str
    token: str
    weight: float


@dataclass(frozen=True)
class Prediction:
    """A model's answer: ``answer`` as a person reads it, ``output`` token by token.

    ``correct``, ``expected``: None where nothing says what is right.

    ``attended``: for each output token, what it attended to, the largest weight first; empty
    unless asked for. ``tokens`` are the source's. ``remark``: what else a person should know of
    the answer.
    """

    answer: str
    correct: bool | None
    expected: str | None
    tokens: list[str]
    output: list[str]
    attended: list[list[Attended]]
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

    def attended(self, model: Model, data: Data) -> list[list[Attended]]:
        """For each written token what it attended to, the largest weight first.

        From ``LOOKED_AT`` on. Delimiters that all of them read are left out: they tell nothing.
        """
        source, weights = data.layout(self.problems), self.attention(model).weights
        written, steps = self.symbols(data), range(len(self.ids))
        keys = {
            "cross": (source.labels(), self.tokens(data), {*source.closes}),
            "self": (read_labels(len(steps), START), [START, *written], {0}),
        }
        read: list[list[Attended]] = [[] for _ in steps]
        for site, (places, tokens, closes) in keys.items():
            if site not in weights:  # a recurrent model
                continue
            strongest = torch.stack(list(weights[site]))[:, 0].amax((0, 1))
            seen = strongest >= LOOKED_AT
            for step, key in seen.nonzero().tolist():
                if key not in closes or not seen[:, key].all():
                    weight = strongest[step, key].item()
                    read[step].append(Attended(places[key], tokens[key], weight))
        return [sorted(row, key=lambda token: -token.weight) for row in read]


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
    expected = None
    with suppress(TaskError):  # it was parsed, so that nothing is wrong with it but its answer
        expected = data.task.solve(problem)
    return Prediction(
        answer=answer.text,
        correct=None if expected is None else _is_right(data, answer),
        expected=expected,
        tokens=answer.tokens(data),
        output=answer.symbols(data),
        attended=answer.attended(evaluator.model, data) if show else [],
        remark=data.task.remark(answer.text),
    )


def _is_right(data: Data, answer: Answer) -> bool:
    """Is an answer right, token by token?"""
    right = answer.batch.target
    written = torch.tensor([answer.ids])
    missing = right.shape[1] - written.shape[1]
    written = torch.nn.functional.pad(written, (0, max(missing, 0)), value=data.vocabulary.pad)
    return torch.equal(data.bare(written), data.bare(right))
