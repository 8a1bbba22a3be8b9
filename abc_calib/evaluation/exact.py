"""Exact match at any length.

A sequence is right under greedy decoding exactly when, fed the right prefix, the model's
argmax is right at every step, the end included. So one parallel pass over the gold output
gives the figure that token-by-token decoding gives; ``greedy=True`` decodes all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.data.digits import Batch, Data
from abc_calib.data.tokens import TokenSource
from abc_calib.errors import UsageError
from abc_calib.evaluation.decoding import chunks, greedy_decode, written
from abc_calib.evaluation.memory import check_memory, check_samples
from abc_calib.evaluation.metrics import wilson_interval
from abc_calib.evaluation.sequences import Sequences, compare

ROWS_AT_ONCE = 4096
"""Rows of one output scored at once, where lines bound what a row reads."""
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


@dataclass(frozen=True)
class TokenRow(Row):
    """The same for a task on tokens, with the fields of ``sequences.Sequences``."""

    before_end: float
    too_early: float
    too_late: float
    content: float
    edit_distance: float
    attention_loss: float | None


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
    problems or, in arithmetic, ``carry`` chains or ``hard`` inputs of every family; of a task on
    tokens, its papers' sets by name, each one row, whatever the lengths, with the longest target
    as its length. Raises
    ``UsageError`` for a length below 1 and ``AbcError`` for what would not fit the memory.
    """
    if any(length < 1 for length in lengths):
        raise UsageError(f"length {min(lengths)} is not possible: give 1 or more")
    unknown = [kind for kind in sets if kind not in source.tests]
    if unknown:
        raise UsageError(f"unknown test set {unknown[0]!r}: choose {', '.join(source.tests)}")
    if seed < 0:
        raise UsageError(f"seed {seed} is not possible: give 0 or more")
    rows: list[Row] = []
    if isinstance(source, TokenSource) and "random" not in sets:
        lengths = ()  # its papers' sets have their own
    if lengths:
        check_memory(model, 1, source.source_tokens(max(lengths)), SCREEN_STEPS)
    for length in lengths:
        check_samples(samples or source.test_size(length), length)
    for kind in sets:
        if isinstance(source, TokenSource):
            for length, batch in source.batches(kind, lengths, samples, seed):
                rows.append(token_row(model, source, batch, length, kind, seed))
                on_row(rows[-1])
            continue
        for length in lengths:
            started = time.perf_counter()
            asked = samples or source.test_size(length)
            batch = source.test(length, asked, source.tests[kind], seed)
            right = (greedy_matches if greedy else exact_matches)(model, batch)
            rows.append(Row(**_counted(right, batch, length, kind, seed, started)))
            on_row(rows[-1])
    return rows


def _counted(
    right: Tensor, batch: Batch, length: int, kind: str, seed: int, started: float
) -> dict[str, Any]:
    """The fields of a ``Row``."""
    n, correct = len(batch), int(right.sum())
    low, high = wilson_interval(correct, n)
    return {
        "length": length,
        "accuracy": round(100 * correct / n, 4),
        "n": n,
        "set": kind,
        "correct": correct,
        "low": round(100 * low, 4),
        "high": round(100 * high, 4),
        "test_seed": seed,
        "test_hash": batch.hash(),
        "seconds": round(time.perf_counter() - started, 3),
    }


def token_row(
    model: Any, source: TokenSource, batch: Batch, length: int, kind: str, seed: int
) -> TokenRow:
    """One row of a task on tokens: always decoded greedily, at most the longest gold's steps."""
    started = time.perf_counter()
    found, right = measured(model, source, batch)
    more: dict[str, Any] = {
        name: None if value is None else round(value, 4)
        for name, value in vars(found).items()
        if name != "exact"
    }
    return TokenRow(**_counted(right, batch, length, kind, seed, started), **more)


def measured(model: Any, source: TokenSource, batch: Batch) -> tuple[Sequences, Tensor]:
    """All metrics of a batch, and which rows are right ``(b,)``."""
    output = written(model, batch.source, batch.target.shape[1])
    eos = source.vocabulary.eos
    outputs, ended = [], []
    for ids in output.ids.tolist():
        ended.append(eos in ids)
        outputs.append(ids[: ids.index(eos)] if eos in ids else ids)
    golds = [ids[: ids.index(eos)] for ids in batch.target.tolist()]
    looked = None if output.looked is None else output.looked.numpy()
    places = source.gold_attention(batch) if looked is not None else None
    pairs = zip(outputs, golds, ended, strict=True)
    right = torch.tensor([end and output == gold for output, gold, end in pairs])
    return compare(outputs, golds, ended, looked, places), right


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
            for rows in chunks(
                model, torch.arange(len(batch)), batch.source.shape[1] + SCREEN_STEPS
            ):
                right[rows] = _right(model, batch, rows, SCREEN_STEPS)
    for rows in chunks(model, right.nonzero()[:, 0], batch.source.shape[1] + steps):
        right[rows] = _right(model, batch, rows, steps)
    return right


def _right(model: Any, batch: Batch, rows: Tensor, steps: int) -> Tensor:
    """Which of ``rows`` are right in their first ``steps`` tokens."""
    pad = model.config.pad_token_id
    source = batch.source[rows].to(model.device)
    target = batch.target[rows, :steps].to(model.device)
    read = model.shifted(target)
    if steps <= ROWS_AT_ONCE or getattr(model, "window", None) is None:
        written = model(source, source != pad, decoder_input_ids=read).logits.argmax(-1)
    else:
        written = _written_in_parts(model, source, read)
    return ((written == target) | (target == pad)).all(1).cpu()


def _written_in_parts(model: Any, source: Tensor, read: Tensor) -> Tensor:
    """The argmax of each row, ``ROWS_AT_ONCE`` at a time with the windowed cache between.

    The states of a very long output then stay in the processor's cache and in little memory.
    """
    mask = source != model.config.pad_token_id
    encoded, cache, written = model.get_encoder()(source, mask), None, []
    for part in read.split(ROWS_AT_ONCE, dim=1):
        out = model(
            encoder_outputs=encoded,
            attention_mask=mask,
            decoder_input_ids=part,
            past_key_values=cache,
            use_cache=True,
        )
        cache = out.past_key_values
        written.append(out.logits.argmax(-1))
    return torch.cat(written, dim=1)


@torch.inference_mode()
def greedy_matches(model: Any, batch: Batch) -> Tensor:
    """``(b,)`` bool: does greedy decoding with a cache give exactly the right output?"""
    model.eval()
    pad = model.config.pad_token_id
    steps = batch.target.shape[1]
    right = []
    for rows in chunks(model, torch.arange(len(batch)), batch.source.shape[1] + steps):
        written = greedy_decode(model, batch.source[rows].to(model.device), steps).cpu()
        target = batch.target[rows]
        right.append(((written == target) | (target == pad)).all(1))
    return torch.cat(right) if right else torch.zeros(0, dtype=torch.bool)
