"""Exact match at any length.

A sequence is right under greedy decoding exactly when, fed the right prefix, the model's
argmax is right at every step, the end included. So one parallel pass over the gold output
gives the figure that token-by-token decoding gives; ``greedy=True`` decodes all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.metrics import compare, wilson_interval
from abc_calib.evaluation.parts import in_parts
from abc_calib.memory import check_samples, check_source
from abc_calib.nn.base import Model
from abc_calib.nn.evaluator import Evaluator, evaluator_of
from abc_calib.runs.rows import Row
from tasks import Size

SCREEN_STEPS = 16


def planned_rows(
    model: Model | Evaluator,
    data: Data,
    lengths: Sequence[Size],
    samples: int | None = None,
    sets: Sequence[str] = ("random",),
    option: str = "lengths",
) -> list[tuple[str, Any, int]]:
    """Set, length and number of samples of each row to measure.

    ``samples`` per length, by default as many as ``data.test_size`` says. ``sets``: ``random``
    problems or, in arithmetic, ``carry`` chains or ``hard`` inputs of every family; of a task on
    tokens, its papers' sets by name, each one row, whatever the lengths, with the longest target
    as its length. Raises ``UsageError`` for a length below 1 and ``AbcError`` for what would not
    fit the memory: ``option`` asks for the lengths.
    """
    lengths = [data.sized(length) for length in lengths]
    unknown = [kind for kind in sets if kind not in data.tests]
    if unknown:
        raise UsageError(f"unknown test set {unknown[0]!r}: choose {', '.join(data.tests)}")
    tests = [
        (kind, length, samples or size)
        for kind in sets
        for length, size in data.tests_of(kind, lengths)
    ]
    if random := [length for _, length, _ in tests if length in lengths]:
        longest = max(data.layout_at(length).keys for length in random)
        check_source(model, longest, SCREEN_STEPS, option)
        n, digits = max(
            ((n, data.digits_of(length)) for _, length, n in tests),
            key=lambda pair: pair[0] * pair[1],
        )
        check_samples(n, digits, "samples" if samples else option)
    return tests


def row_of(
    model: Model | Evaluator,
    data: Data,
    kind: str,
    length: Any,
    n: int,
    seed: int = 0,
    greedy: bool = False,
) -> Row:
    """One row: exact match at one length, in percent, and its 95 % interval.

    ``low`` and ``high``, its ends, are the accuracy where all problems of a length were tested.
    Outputs of several rows have their number in ``rows``. Data that is decoded has all metrics,
    at most the longest gold's steps: see ``compare``.
    """
    started = time.perf_counter()
    every, size = data.every(length, n, kind), data.named(length)
    batch = every or data.test(length, n, kind, seed)
    if not len(batch):
        raise AbcError(f"the test set {kind!r} has no problems of length {length}: choose others")
    metrics: Row = {}
    if data.decoded:
        metrics, right = measured(model, data, batch, greedy)
    else:
        right = matches(model, data, batch, greedy)
    correct = int(right.sum())
    share = correct / len(batch)
    low, high = wilson_interval(correct, len(batch)) if every is None else (share, share)
    return {
        "length": size["length"],
        "accuracy": round(100 * share, 4),
        "n": len(batch),
        "set": kind,
        "correct": correct,
        "low": round(100 * low, 4),
        "high": round(100 * high, 4),
        "test_seed": seed,
        "test_hash": batch.hash(),
        "seconds": round(time.perf_counter() - started, 3),
        **size,
        **{name: value and round(value, 4) for name, value in metrics.items()},
    }


def measured(
    model: Model | Evaluator, data: Data, batch: Batch, greedy: bool = False
) -> tuple[dict[str, Any], Tensor]:
    """All metrics of a batch, and which samples are right ``(b,)``."""
    ids, attended = written(model, batch, greedy)
    eos = data.vocabulary.eos
    outputs, ended = [], []
    for row in ids.tolist():
        ended.append(eos in row)
        outputs.append(row[: row.index(eos)] if eos in row else row)
    golds = [row[: row.index(eos)] for row in batch.target.tolist()]
    places = data.gold_attention(batch) if attended is not None else None
    pairs = zip(outputs, golds, ended, strict=True)
    right = torch.tensor([end and output == gold for output, gold, end in pairs])
    mean = None if attended is None else attended.numpy()
    return compare(outputs, golds, ended, mean, places), right


@torch.inference_mode()
def written(
    model: Model | Evaluator, batch: Batch, greedy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """What a model writes, ``(b, t)``, and where it looks.

    Where each step has one row of attention, the mean place of it ``(b, t)``, counted in words of
    the source from 0. Else an output that is right is not decoded unless ``greedy``: it is the
    gold.
    """
    evaluator = evaluator_of(model)
    evaluator.model.eval()
    left = torch.arange(len(batch))
    if not (evaluator.model.has_attender or greedy):
        left = left[~exact_matches(model, batch)]
    ids, steps = batch.target.clone(), batch.target.shape[1]
    attended = []
    for rows in evaluator.chunks(left, batch.source.shape[1] + steps):
        part = batch.source[rows].to(evaluator.device)
        output = evaluator.decode(part, steps, attention=True, draft=batch.target[rows])
        ids[rows] = output.ids.cpu()
        if output.attention is None:
            continue
        places = torch.arange(-1, part.shape[1] - 1, device=part.device)  # $ is before word 0
        mean = output.attention @ places.to(output.attention.dtype)
        missing = steps - mean.shape[1]
        attended.append(torch.nn.functional.pad(mean, (0, missing)).cpu())
    return ids, torch.cat(attended) if attended else None


def matches(model: Model | Evaluator, data: Data, batch: Batch, greedy: bool = False) -> Tensor:
    """``(b,)`` bool: is the whole output right, but for hints? Those are always decoded."""
    if greedy or data.hints:
        return greedy_matches(model, batch, data.bare)
    return exact_matches(model, batch)


@torch.inference_mode()
def exact_matches(model: Model | Evaluator, batch: Batch) -> Tensor:
    """``(b,)`` bool: is the whole output right, EOS included? One pass over the gold output.

    Of a model itself through all layers.
    """
    evaluator = evaluator_of(model, dense=True)
    pad = evaluator.model.pad

    def right(rows: Tensor, steps: int) -> Tensor:
        source = batch.source[rows].to(evaluator.device)
        target = batch.target[rows, :steps].to(evaluator.device)
        written = evaluator.best(source, target)
        return ((written == target) | (target == pad)).all(1).cpu()

    return _screened(evaluator, batch, right)


@torch.inference_mode()
def greedy_matches(
    model: Model | Evaluator, batch: Batch, bare: Callable[[Tensor], Tensor] = lambda ids: ids
) -> Tensor:
    """``(b,)`` bool: does greedy decoding with a cache give exactly the right output?

    ``bare``: what counts of an output, in its order and filled up with PAD.
    """
    evaluator = evaluator_of(model)
    pad = evaluator.model.pad

    def right(rows: Tensor, steps: int) -> Tensor:
        source, draft = (x[rows].to(evaluator.device) for x in (batch.source, batch.target))
        ids = bare(evaluator.decode(source, steps, draft=draft).ids.cpu())
        target = bare(batch.target[rows])[:, :steps]
        open_ = target == pad
        if steps < batch.target.shape[1]:  # what counts may follow
            open_ |= ids == pad
        return ((ids == target) | open_).all(1)

    return _screened(evaluator, batch, right)


def _screened(evaluator: Evaluator, batch: Batch, right: Callable[[Tensor, int], Tensor]) -> Tensor:
    """``(b,)`` bool: ``right(rows, steps)`` with all steps, of every row.

    Where a sample of the rows mostly fails within the first steps, all rows are screened on
    those steps first: a row that fails there is wrong whatever follows.
    """
    evaluator.model.eval()
    whole = batch.target.shape[1]

    def judge(rows: Tensor, steps: int) -> Tensor:
        parts = evaluator.chunks(rows, batch.source.shape[1] + steps)
        results = in_parts(lambda part: right(part, steps), parts)
        return torch.cat([torch.zeros(0, dtype=torch.bool), *results])  # there may be no rows

    samples = torch.arange(len(batch))
    fine = torch.ones(len(batch), dtype=torch.bool)
    if whole > 2 * SCREEN_STEPS and judge(samples[:64], SCREEN_STEPS).float().mean() < 0.5:
        fine = judge(samples, SCREEN_STEPS)
    left = fine.nonzero()[:, 0]
    fine[left] = judge(left, whole)
    return fine
