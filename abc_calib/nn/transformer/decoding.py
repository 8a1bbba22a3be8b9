"""Greedy decoding with a cache: token by token, or in passes over many rows at once.

A row depends on earlier tokens alone. So whatever stands in later rows, a pass over all of them
gives each row whose earlier tokens are right its right token: start from a guess, put in what comes
out, and every row up to the first that changed is what token-by-token decoding writes. Each pass
fixes one row at least, and one without a change ends it. This is Jacobi decoding (Santilli et al.
2023, "Accelerating Transformer Inference for Translation via Parallel Decoding",
arXiv:2305.10427), here in a window that moves on with the rows that are fixed.

Where rows see little of what was written, nearly all of them settle in a few passes. Where each
waits for the one before, as in a long chain of carries, passes are in vain; so they may only spend
what earlier ones have saved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from abc_calib.nn.transformer.cache import Cache, Encoded

ROWS_AT_ONCE = 320
"""Rows of one pass, of all samples together: their states stay in the processor's cache."""
FEWEST = 16
"""Rows from which on a pass is worth trying."""
STEP_WEIGHTS = 2**22
"""What a step takes beside its rows: as long as to multiply one row with so many weights."""
SLOWEST = 1.05
"""How much longer passes may take than single steps, by the count of ``Budget``."""
PATIENCE = 16
"""Full passes that savings may last for."""


def token_by_token(model: Any, encoded: Encoded, steps: int, cache: Cache) -> Tensor:
    """The greedy output ``(b, t)``, padding behind its end."""
    device = encoded.at.position.device
    tokens = torch.full((len(encoded.memory[0]),), model.sos, device=device)
    ids = torch.full((len(tokens), steps), model.pad, device=device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    for step in range(steps):
        logits = model.run(encoded, tokens[:, None], cache).logits[:, -1]
        tokens = logits.argmax(-1).masked_fill(ended, model.pad)
        ids[:, step] = tokens
        ended |= tokens.eq(model.eos)
        if bool(ended.all()):
            break
    return ids


def in_passes(model: Any, encoded: Encoded, steps: int, cache: Cache) -> Tensor:
    """The same output. Rows start from the last fixed token: a chain of carries repeats it."""
    device, samples = encoded.at.position.device, len(encoded.memory[0])
    ids = torch.full((samples, 1 + steps), model.sos, device=device)  # what the decoder reads
    ended = torch.zeros(samples, 1, dtype=torch.bool, device=device)
    budget = Budget(model, samples)
    fixed, seen = 0, 0  # rows that are right, and rows that a pass has written
    while fixed < steps and not bool(ended.all()):
        rows = min(budget.rows(), steps - fixed)
        if seen < fixed + rows:
            ids[:, max(seen, fixed) + 1 : fixed + rows + 1] = ids[:, fixed : fixed + 1]
            seen = fixed + rows
        read, guess = ids[:, fixed : fixed + rows], ids[:, fixed + 1 : fixed + rows + 1]
        after_end = ended | (read.eq(model.eos).cumsum(1) > 0) if rows > 1 else ended
        logits = model.run(encoded, read, cache, settle=False).logits
        written = logits.argmax(-1).masked_fill(after_end, model.pad)
        more = until_changed(written, guess) if rows > 1 else 1
        guess.copy_(written)
        ended |= written[:, :more].eq(model.eos).any(1, keepdim=True)
        cache.settle(more, rows)
        budget.settle(more, rows)
        fixed += more
    ids[:, fixed + 1 :] = model.pad
    return ids[:, 1:]


def until_changed(written: Tensor, guess: Tensor) -> int:
    """How many rows are right: those before the first one that changed, and this one."""
    changed = (written != guess).any(0).nonzero()
    return int(changed[0]) + 1 if len(changed) else written.shape[1]


class Budget:
    """How many rows the next pass may have, so that all of them cost little more than single steps.

    Costs are counted in rows: a pass over ``n`` rows of ``b`` samples takes ``overhead + b n``, a
    single step ``overhead + b``. The first pass may cost a step more, later ones what is saved.
    """

    def __init__(self, model: Any, samples: int):
        weights = sum(weight.numel() for weight in model.layers.parameters())
        self.overhead = STEP_WEIGHTS * len(model.layers) // weights
        self.samples = samples
        self.step = SLOWEST * (self.overhead + samples)
        self.saved = float(self.overhead)

    def rows(self) -> int:
        """So many that the savings suffice even if one row alone is fixed."""
        affordable = int(self.saved + self.step - self.overhead)
        rows = min(affordable, ROWS_AT_ONCE) // self.samples
        return rows if rows >= FEWEST else 1

    def settle(self, fixed: int, rows: int) -> None:
        """A pass over ``rows`` has ``fixed`` so many."""
        self.saved += fixed * self.step - self.overhead - self.samples * rows
        self.saved = min(self.saved, PATIENCE * (self.overhead + ROWS_AT_ONCE))
