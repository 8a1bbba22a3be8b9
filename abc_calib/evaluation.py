"""Exact match at any length.

A sequence is right under greedy decoding exactly when, fed the right prefix, the model's
argmax is right at every step, the end included. So one parallel pass over the gold output
gives the figure that token-by-token decoding gives; ``greedy=True`` decodes all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.data import Batch, Data
from abc_calib.errors import UsageError
from abc_calib.memory import check_memory, check_samples
from abc_calib.metrics import wilson_interval

TOKENS_PER_CHUNK = 8192
"""Source and target tokens scored at once: what bounds the memory, whatever the length."""
SCREEN_STEPS = 16


@dataclass(frozen=True)
class Row:
    """Exact match at one length; ``accuracy`` and its 95 % interval in percent."""

    length: int
    accuracy: float
    n: int
    set: str
    correct: int
    low: float
    high: float
    test_seed: int
    test_hash: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(
    model: Any,
    source: Data,
    lengths: Sequence[int],
    samples: int | None = None,
    sets: Sequence[str] = ("random",),
    seed: int = 0,
    greedy: bool = False,
    on_row: Callable[[Row], None] = lambda _: None,
) -> list[Row]:
    """A row for every set and length.

    ``samples`` a length, by default as many as ``source.test_size`` says. ``sets``: ``random``
    problems or, in arithmetic, ``carry`` chains or ``hard`` inputs of every family. Raises
    ``UsageError`` for a length below 1 and ``AbcError`` for what would not fit the memory.
    """
    if any(length < 1 for length in lengths):
        raise UsageError(f"length {min(lengths)} is not possible: give 1 or more")
    unknown = [kind for kind in sets if kind not in source.tests]
    if unknown:
        raise UsageError(f"unknown test set {unknown[0]!r}: choose {', '.join(source.tests)}")
    if seed < 0:
        raise UsageError(f"seed {seed} is not possible: give 0 or more")
    rows = []
    check_memory(model, 1, source.source_tokens(max(lengths, default=1)), SCREEN_STEPS)
    for length in lengths:
        check_samples(samples or source.test_size(length), length)
    for kind in sets:
        for length in lengths:
            started = time.perf_counter()
            batch = source.test(
                length, samples or source.test_size(length), source.tests[kind], seed
            )
            n = len(batch)
            right = (greedy_matches if greedy else exact_matches)(model, batch)
            correct = int(right.sum())
            low, high = wilson_interval(correct, n)
            rows.append(
                Row(
                    length=length,
                    accuracy=round(100 * correct / n, 4),
                    n=n,
                    set=kind,
                    correct=correct,
                    low=round(100 * low, 4),
                    high=round(100 * high, 4),
                    test_seed=seed,
                    test_hash=batch.hash(),
                    seconds=round(time.perf_counter() - started, 3),
                )
            )
            on_row(rows[-1])
    return rows


@torch.inference_mode()
def exact_matches(model: Any, batch: Batch) -> Tensor:
    """``(b,)`` bool: is the whole output right, EOS included? One pass over the gold output.

    Where a sample of the rows mostly fails within the first steps, all rows are screened on
    those steps first: a row that fails there is wrong whatever follows.
    """
    model.eval()
    steps = batch.target.shape[1]
    right = torch.ones(len(batch), dtype=torch.bool)
    if steps > 2 * SCREEN_STEPS:
        probe = torch.arange(min(64, len(batch)))
        if _right(model, batch, probe, SCREEN_STEPS).float().mean() < 0.5:
            for rows in _chunks(torch.arange(len(batch)), batch.source.shape[1] + SCREEN_STEPS):
                right[rows] = _right(model, batch, rows, SCREEN_STEPS)
    for rows in _chunks(right.nonzero()[:, 0], batch.source.shape[1] + steps):
        right[rows] = _right(model, batch, rows, steps)
    return right


def _right(model: Any, batch: Batch, rows: Tensor, steps: int) -> Tensor:
    """Which of ``rows`` are right in their first ``steps`` tokens."""
    pad = model.config.pad_token_id
    source = batch.source[rows].to(model.device)
    target = batch.target[rows, :steps].to(model.device)
    logits = model(source, source != pad, decoder_input_ids=model.shifted(target)).logits
    return ((logits.argmax(-1) == target) | (target == pad)).all(1).cpu()


def _chunks(rows: Tensor, tokens: int) -> Iterator[Tensor]:
    """``rows`` in parts of at most ``TOKENS_PER_CHUNK`` tokens, at least one row each."""
    size = max(1, TOKENS_PER_CHUNK // tokens)
    yield from rows.split(size) if len(rows) else ()


@torch.inference_mode()
def greedy_matches(model: Any, batch: Batch) -> Tensor:
    """``(b,)`` bool: does greedy decoding with a cache give exactly the right output?"""
    model.eval()
    pad = model.config.pad_token_id
    steps = batch.target.shape[1]
    right = []
    for rows in _chunks(torch.arange(len(batch)), batch.source.shape[1] + steps):
        written = greedy_decode(model, batch.source[rows].to(model.device), steps).cpu()
        target = batch.target[rows]
        right.append(((written == target) | (target == pad)).all(1))
    return torch.cat(right) if right else torch.zeros(0, dtype=torch.bool)


@torch.inference_mode()
def greedy_decode(model: Any, source: Tensor, steps: int) -> Tensor:
    """The first ``steps`` tokens that the model writes for ``source (b, s)``: ``(b, steps)``."""
    pad = model.config.pad_token_id
    ids = model.generate(
        source,
        attention_mask=(source != pad).long(),
        max_new_tokens=steps,
        do_sample=False,
        num_beams=1,
    )[:, 1:]
    missing = steps - ids.shape[1]
    return torch.nn.functional.pad(ids, (0, missing), value=pad)
