"""What a trained model attends to: its attention weights on samples that it decodes correctly.

Paper, section 5, step 1. The weights are those after softmax, as in the public code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.data.digits import Batch
from abc_calib.evaluation.exact import exact_matches
from abc_calib.geometry.lines import Site
from abc_calib.nn.biases import Frame

CHUNK = 256


@dataclass(frozen=True)
class Captured:
    """Attention of some samples: ``weights[site]`` has one ``(b, h, i, j)`` a layer.

    ``frames[site]`` says where its rows and keys stand; ``rows[site]`` is ``(b, i)`` bool: the
    rows that are not padding.
    """

    weights: dict[Site, tuple[Tensor, ...]]
    frames: dict[Site, Frame]
    rows: dict[Site, Tensor]


def correct_samples(model: Any, batch: Batch) -> tuple[Batch, float]:
    """The samples that the model decodes correctly, and their share of the batch (0 to 1)."""
    right = exact_matches(model, batch)
    problems = batch.problems.take(right.numpy())
    return Batch(batch.source[right], batch.target[right], problems), float(right.float().mean())


@torch.inference_mode()
def capture(model: Any, batch: Batch) -> Iterator[Captured]:
    """The attention of ``batch`` in parts of a few hundred samples."""
    model.eval()
    pad = model.config.pad_token_id
    for start in range(0, len(batch), CHUNK):
        source = batch.source[start : start + CHUNK].to(model.device)
        target = batch.target[start : start + CHUNK].to(model.device)
        mask = source != pad
        encoded = model.encoder(source, mask, output_attentions=True)
        output = model(
            attention_mask=mask,
            encoder_outputs=encoded,
            decoder_input_ids=model.shifted(target),
            output_attentions=True,
        )
        keys = torch.arange(source.shape[1], device=source.device)
        rows = torch.arange(target.shape[1], device=source.device)
        lengths, places = mask.sum(1), encoded.delimiters
        written = target != pad
        yield Captured(
            weights={
                "encoder": encoded.attentions,
                "self": output.decoder_attentions,
                "cross": output.cross_attentions,
            },
            frames={
                "encoder": Frame("encoder", keys, len(keys), lengths, places),
                "self": Frame("self", rows, len(rows), lengths),
                "cross": Frame("cross", rows, len(keys), lengths, places),
            },
            rows={"encoder": mask, "self": written, "cross": written},
        )


def same_shape(batch: Batch, pad: int) -> Batch:
    """The samples of the most common source and target length, padding cut off."""
    shapes = torch.stack([(x != pad).sum(1) for x in (batch.source, batch.target)], dim=1)
    kinds, kind, counts = shapes.unique(dim=0, return_inverse=True, return_counts=True)
    largest = int(counts.argmax())
    keep = kind == largest
    s, t = kinds[largest].tolist()
    return Batch(batch.source[keep, :s], batch.target[keep, :t], batch.problems.take(keep.numpy()))


def average_attention(model: Any, batch: Batch) -> dict[Site, np.ndarray]:
    """The averaged attention of samples of one shape: for each site ``(layers, h, i, j)``.

    Paper, section 5, step 2. Samples must be of one shape: see ``same_shape``.
    """
    totals: dict[Site, Tensor] = {}
    for part in capture(model, batch):
        for site, layers in part.weights.items():
            if layers:
                total = torch.stack([layer.double().sum(0) for layer in layers])
                totals[site] = totals[site] + total if site in totals else total
    return {site: (t / len(batch)).float().cpu().numpy() for site, t in totals.items()}
