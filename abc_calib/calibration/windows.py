"""What rows see along some lines, and whether that decides what they write.

A model whose rows see a window can be right only if no two rows see the same window and must write
different tokens. That is a matter of the task and the lines, whatever the model learns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from abc_calib.data import Batch
from abc_calib.geometry import Line, Site
from abc_calib.nn.biases import Frame, LayerBias


def seen(
    batch: Batch,
    read: Tensor,
    frames: Mapping[Site, Frame],
    lines: Sequence[tuple[Site, Line]],
    pad: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens on each line in each row that is written, ``(n, lines)``, and what it writes.

    ``read (b, t)``: the decoder's input. ``frames``: of ``batch``.
    """
    tokens = []
    for site, line in lines:
        key, _ = LayerBias(((line,),), site).positions(frames[site])
        ids = read if site == "self" else batch.source
        tokens.append(ids.gather(1, key[:, 0, :, 0].expand(len(ids), -1)))
    there = batch.target != pad
    return torch.stack(tokens, 2)[there].numpy(), batch.target[there].numpy()


def contradictions(windows: np.ndarray, written: np.ndarray) -> int:
    """How many of the different ``windows (n, k)`` are followed by more than one token."""
    if not windows.shape[1]:
        return int(len(np.unique(written)) > 1)
    codes = np.zeros(len(windows), np.int64)
    for column in windows.T:  # numbered anew, so that no code overflows
        _, codes = np.unique(codes * (int(column.max()) + 1) + column, return_inverse=True)
    pairs = np.unique(np.stack([codes, written], 1), axis=0)
    return int((np.bincount(pairs[:, 0]) > 1).sum())


def needed(windows: np.ndarray, written: np.ndarray, order: Sequence[int]) -> list[int]:
    """The columns of ``windows`` that are left when each in ``order`` is tried without.

    One is left out where no more windows contradict each other than before.
    """
    kept = list(range(windows.shape[1]))
    least = contradictions(windows, written)
    for column in order:
        rest = [k for k in kept if k != column]
        if contradictions(windows[:, rest], written) <= least:
            kept = rest
    return kept
