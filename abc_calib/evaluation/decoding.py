"""Greedy decoding, token by token, in chunks that fit the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.nn.recurrent.model import RecurrentModel

TOKENS_PER_CHUNK = 8192
"""Source and target tokens at once: what bounds the memory, whatever the length."""
RECURRENT_TOKENS = 65_536
"""The same for recurrent models, whose steps cost little more for more rows."""


def chunks(model: Any, rows: Tensor, tokens: int) -> Iterator[Tensor]:
    """``rows`` in parts of at most so many tokens as the model takes, at least one row each."""
    most = RECURRENT_TOKENS if isinstance(model, RecurrentModel) else TOKENS_PER_CHUNK
    yield from rows.split(max(1, most // tokens)) if len(rows) else ()


@torch.inference_mode()
def greedy_decode(model: Any, source: Tensor, steps: int) -> Tensor:
    """The first ``steps`` tokens that the model writes for ``source (b, s)``: ``(b, steps)``."""
    if isinstance(model, RecurrentModel):
        return model.write(source, steps).ids
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


@dataclass(frozen=True)
class Outputs:
    """What a model wrote for a batch: ``ids (b, t)`` and, of a recurrent model, ``looked (b, t)``,
    the mean place of its attention, counted in words of the source from 0."""

    ids: Tensor
    looked: Tensor | None


@torch.inference_mode()
def written(model: Any, source: Tensor, steps: int) -> Outputs:
    """Decode a batch of any size greedily, at most ``steps`` tokens a row."""
    model.eval()
    ids, looked = [], []
    for rows in chunks(model, torch.arange(len(source)), source.shape[1] + steps):
        part = source[rows].to(model.device)
        if not isinstance(model, RecurrentModel):
            ids.append(greedy_decode(model, part, steps).cpu())
            continue
        output = model.write(part, steps, show=True)
        assert output.weights is not None
        places = torch.arange(-1, part.shape[1] - 1, device=part.device)  # $ is before word 0
        mean = output.weights @ places.to(output.weights.dtype)
        missing = steps - mean.shape[1]
        ids.append(output.ids.cpu())
        looked.append(torch.nn.functional.pad(mean, (0, missing)).cpu())
    return Outputs(torch.cat(ids), torch.cat(looked) if looked else None)
