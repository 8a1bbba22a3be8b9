"""One problem, answered by a trained model, and what it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.evaluation.decoding import greedy_decode
from abc_calib.evaluation.memory import check_memory
from abc_calib.runs.run import Run
from abc_calib.training.trainer import resolve_device
from tasks import TokenTask


@dataclass(frozen=True)
class Prediction:
    """A model's answer: ``answer`` as a person reads it, ``output`` token by token.

    ``attended``: for each output token, the positions of the source's digits that it attended
    to, with the strongest weight over layers and heads, largest first. ``tokens`` are the
    source's; ``places`` name its digits, ``a1`` being the last of the first operand.
    """

    answer: str
    correct: bool
    tokens: list[str]
    places: list[str]
    output: list[str]
    attended: list[list[tuple[int, float]]]


@torch.inference_mode()
def predict(
    run: Run | Path | str | None, problem: str, *, device: str = "auto", show: bool = False
) -> Prediction:
    """Decode the answer to a problem in a person's notation, greedily, with a cache.

    Raises ``TaskError`` if the problem is not one of the run's task, ``AbcError`` if the model
    writes no end within the longest possible answer or the source does not fit the memory.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    problems = opened.task.parse(problem)
    batch = opened.source.lay_out(problems)
    model = opened.load_model().to(resolve_device(device))
    vocabulary = opened.source.vocabulary
    steps = batch.target.shape[1] + 2
    check_memory(model, 1, batch.source.shape[1], steps if show else 1)
    source = batch.source.to(model.device)
    written = greedy_decode(model, source, steps)[0].tolist()
    if vocabulary.eos not in written:
        raise AbcError(f"the model wrote no end within {steps} tokens: it does not know this one")
    written = written[: written.index(vocabulary.eos) + 1]
    output = [vocabulary.symbols[i] for i in written]
    answer = opened.source.read(output[:-1]) if len(output) > 1 else ""
    tokens = [vocabulary.symbols[i] for i in batch.source[0].tolist()]
    if isinstance(opened.task, TokenTask):
        places = word_places(tokens)
    else:
        delimiters = [vocabulary.symbols[i] for i in vocabulary.delimiters]
        places = digit_places(tokens, delimiters, opened.source.column)
    attended = _attended(model, source, written, places) if show else []
    return Prediction(
        answer=answer,
        correct=answer == opened.task.solve(problem),
        tokens=tokens,
        places=places,
        output=output,
        attended=attended,
    )


LOOKED_AT = 0.2
"""A source token counts as attended to from this weight on."""


def digit_places(tokens: Sequence[str], delimiters: Sequence[str], column: int = 1) -> list[str]:
    """A name for each digit of a source, empty for delimiters: ``$ 4 2 + 7 &`` has a2 a1, b1.

    In columns of several digits, ``$ + 4 0 2 7 &`` has a2 b2 a1 b1.
    """
    places = [""] * len(tokens)
    if column > 1:
        digits = [i for i, token in enumerate(tokens) if token not in delimiters]
        for place, position in enumerate(reversed(digits)):
            places[position] = f"{'abcdefgh'[column - 1 - place % column]}{place // column + 1}"
        return places
    operand, place = sum(token in delimiters for token in tokens) - 1, 0
    for position in range(len(tokens) - 1, -1, -1):
        if tokens[position] in delimiters:
            operand, place = operand - 1, 0
        else:
            place += 1
            places[position] = f"{'abcdefgh'[operand]}{place}"
    return places


def word_places(tokens: Sequence[str]) -> list[str]:
    """The number of each word of a source, from 0; empty for what opens and closes it."""
    inner = [str(i) for i in range(len(tokens) - 2)]
    return ["", *inner, ""]


def _attended(
    model: Any, source: Tensor, written: list[int], places: list[str]
) -> list[list[tuple[int, float]]]:
    target = torch.tensor([written], device=source.device)
    weights = model(
        source, decoder_input_ids=model.shifted(target), output_attentions=True
    ).cross_attentions
    strongest = torch.stack(weights)[:, 0].amax((0, 1))  # (i, j)
    rows = []
    for row in strongest.tolist():
        seen = [
            (key, weight) for key, weight in enumerate(row) if weight >= LOOKED_AT and places[key]
        ]
        rows.append(sorted(seen, key=lambda pair: -pair[1]))
    return rows
