"""What a trained model attends to: its attention weights on samples that it decodes correctly.

Paper, section 5, step 1. The weights are those after softmax, as in the public code, unless the
scores before it are asked for, of which the paper's text speaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from abc_calib.data import Batch
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import Site
from abc_calib.nn.base import AttentionWeights, Model

CHUNK = 256


def correct_samples(model: Model, batch: Batch) -> tuple[Batch, float]:
    """The samples that the model decodes correctly, and their share of the batch (0 to 1)."""
    right = exact_matches(model, batch)
    return batch.take(right), float(right.float().mean())


@torch.inference_mode()
def capture(
    model: Model, batch: Batch, raw: bool = False, layers: Mapping[Site, int] | None = None
) -> Iterator[AttentionWeights]:
    """The attention of ``batch`` in parts of a few hundred samples; ``raw``: before softmax.

    ``layers``: of each site the last ones, as many as it says; by default all.
    """
    model.eval()
    how = {"raw": True} if raw else {}
    for source, target in zip(batch.source.split(CHUNK), batch.target.split(CHUNK), strict=True):
        part = model.attention(source.to(model.device), target.to(model.device), **how)
        if layers is not None:
            last = {site: x[len(x) - layers.get(site, 0) :] for site, x in part.weights.items()}
            part = replace(part, weights=last)
        yield part


def same_shape(batch: Batch, pad: int) -> Batch:
    """The samples of the most common source and target length, padding cut off."""
    shapes = torch.stack([(x != pad).sum(1) for x in (batch.source, batch.target)], dim=1)
    kinds, kind, counts = shapes.unique(dim=0, return_inverse=True, return_counts=True)
    largest = int(counts.argmax())
    kept = batch.take(kind == largest)
    s, t = kinds[largest].tolist()
    return Batch(kept.source[:, :s], kept.target[:, :t], kept.problems)


def average_attention(
    model: Model, batch: Batch, raw: bool = False, layers: Mapping[Site, int] | None = None
) -> dict[Site, np.ndarray]:
    """The averaged attention of samples of one shape: for each site ``(layers, h, i, j)``.

    Paper, section 5, step 2. Samples must be of one shape: see ``same_shape``. ``raw``: scores
    before softmax, nan where a query may not look. ``layers`` as of ``capture``.
    """
    totals: dict[Site, Tensor] = {}
    for part in capture(model, batch, raw, layers):
        for site, weights in part.weights.items():
            if weights:
                total = torch.stack([layer.double().sum(0) for layer in weights])
                totals[site] = totals[site] + total if site in totals else total
    return {site: (t / len(batch)).float().cpu().numpy() for site, t in totals.items()}
