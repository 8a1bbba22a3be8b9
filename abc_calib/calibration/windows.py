"""What rows see along some lines, and whether that decides what they write.

A model whose rows see a window can be right only if no two rows see the same window and must write
different tokens. That is a matter of the task and the lines, whatever the model learns.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.data import Batch
from abc_calib.errors import AbcError, AbcWarning
from abc_calib.geometry import Heads, Line, LineBias, Site
from abc_calib.geometry.coords import AttentionView
from abc_calib.nn.attend import MASKED
from abc_calib.nn.lines import LineGather

PAIRS = 100
"""Pairs of rows that are looked at before a set of lines is chosen anew."""


def seen(
    batch: Batch,
    read: Tensor,
    views: Mapping[Site, AttentionView],
    lines: Sequence[tuple[Site, Line]],
    pad: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens on each line in each row that is written, ``(n, lines)``, and what it writes.

    ``read (b, t)``: the decoder's input. ``views``: of ``batch``.
    """
    tokens = []
    for site, line in lines:
        key, _ = LineGather({site: ((line,),)}).positions(views[site])
        ids = read if site == "self" else batch.source
        tokens.append(ids.gather(1, key[:, 0, :, 0].expand(len(ids), -1)))
    mask = batch.target != pad
    return torch.stack(tokens, 2)[mask].numpy(), batch.target[mask].numpy()


def hashed(windows: np.ndarray) -> np.ndarray:
    """A number for each token of ``windows (n, k)``: those of a window add up to its own.

    The same for the same windows; for different ones of a few million hardly ever.
    """
    k = windows.shape[1]
    return _mixed(torch.from_numpy(windows.astype(np.int64)) * k + torch.arange(k)).numpy()


def undecided(bias: LineBias, model: Any, batch: Batch) -> tuple[int, int]:
    """How many rows of ``batch`` see what another row sees and write another token, of how many.

    No model of this kind with these lines can be right in both. Where it has positions, or a head
    sees everything, none is found.
    """
    mask = batch.target != model.pad
    written = batch.target[mask].numpy()
    sites = [site for site, layers in model.attention_layers.items() if layers and not bias.stream]
    positions = {*model.options.schemes} != {"none"} or model.options.cyclic
    everywhere = bias.transparent() or bias.off_line_bias is not None
    if positions or everywhere or not {*sites} <= {*bias.sites}:
        return 0, len(written)
    views, read = model.views(batch.source, batch.target), model.shifted(batch.target)
    return disputed(through(bias, batch.source, read, views)[mask].numpy(), written)


def disputed(codes: np.ndarray, written: np.ndarray) -> tuple[int, int]:
    """How many rows see what another row sees and write another token, and how many there are.

    ``codes``: a number for what each row sees.
    """
    order = np.lexsort((written, codes))
    codes, written = codes[order], written[order]
    first = np.diff(codes, prepend=codes[:1] - 1) != 0
    group = np.cumsum(first) - 1
    differs = ~first & (np.diff(written, prepend=written[:1]) != 0)
    several = np.bincount(group, differs) > 0
    return int(several[group].sum()), len(written)


def through(
    bias: LineBias, source: Tensor, read: Tensor, views: Mapping[Site, AttentionView]
) -> Tensor:
    """A number for what each written row sees through all layers, ``(b, t)`` int64.

    In place of its state: the same for rows whose states have to be the same.
    """
    memory, rows = _mixed(source), _mixed(read)
    if not bias.stream:  # where the rows of the source look at themselves alone
        for heads in bias.sites.get("encoder", ()):
            memory = _layer(memory, [("encoder", heads, memory)], views)
    for self_heads, crossed in zip(bias.sites["self"], bias.sites["cross"], strict=True):
        rows = _layer(rows, [("self", self_heads, rows), ("cross", crossed, memory)], views)
    return rows


def _layer(
    rows: Tensor, seen: Sequence[tuple[Site, Heads, Tensor]], views: Mapping[Site, AttentionView]
) -> Tensor:
    """The numbers of the rows after a layer that reads ``(b, j)`` numbers of keys at each site."""
    mixed = _mixed(rows)
    for site, heads, keys in seen:
        for number, head in enumerate(heads):
            if not head:
                continue
            selected = LineGather({site: (head,)}).gathered([views[site]])
            pair = (selected.index, selected.bias)
            key, value = (x[:, 0].expand(len(rows), len(rows[0]), -1) for x in pair)
            read = keys.gather(1, key.clamp(min=0).flatten(1)).view(key.shape)
            who = [hash((len(site), number, line.value)) % 2**31 for line in head]
            nothing = (value == MASKED) | (key < 0)  # where nothing opens a source
            mixed = mixed + _mixed(read + torch.tensor(who)).masked_fill(nothing, 0).sum(2)
    return mixed


def _mixed(numbers: Tensor) -> Tensor:
    """Numbers that look random, the same for the same ones (after splitmix64)."""
    mixed = (numbers + 0x1E3779B97F4A7C15) * -0x40A7B892E31B1A47
    mixed = (mixed ^ (mixed >> 30)) * -0x6B2FB644ECCEEE15
    return mixed ^ (mixed >> 27)


def smallest(windows: np.ndarray, written: np.ndarray, weight: Sequence[float]) -> list[int]:
    """The fewest columns of ``windows (n, k)`` that decide what is written, as far as all do.

    The heaviest of as few by ``weight (k - 1)``; the last column is always seen. Each two rows that
    see the same and write different tokens say that one of the columns in which they differ is
    needed: an integer program, of as many such pairs as it takes.
    """
    from scipy.optimize import LinearConstraint, milp

    parts, k = hashed(windows), windows.shape[1] - 1
    cost = 1 - np.array(weight) / (1 + np.sum(weight))
    needed, chosen = np.zeros((0, k), bool), np.zeros(0, int)
    while True:
        codes = parts[:, [*chosen, -1]].sum(1)
        order = np.argsort(codes, kind="stable")
        after, before = order[1:], order[:-1]
        against = (codes[after] == codes[before]) & (written[after] != written[before])
        differ = np.unique(windows[after[against], :-1] != windows[before[against], :-1], axis=0)
        differ = differ[differ.any(1)]
        if not len(differ):
            return [int(column) for column in chosen]
        needed = np.concatenate([needed, differ[np.argsort(differ.sum(1), kind="stable")][:PAIRS]])
        solution = milp(
            cost,
            constraints=LinearConstraint(needed.astype(float), 1),
            integrality=1,
            bounds=(0, 1),
            options={"mip_rel_gap": 0},
        )
        chosen = np.flatnonzero(solution.x > 0.5)


def check_decided(counted: tuple[int, int], refuse: bool) -> None:
    """Warn of lines on which no model is right, or raise ``AbcError``.

    ``counted``: what ``undecided`` says of them.
    """
    count, rows = counted
    if not count:
        return
    why = (
        f"on these lines {count} of {rows} rows of training problems see what others see that "
        "write another token: no model is right in all of them (docs/rows.md: which outputs "
        "can local windows decide?)"
    )
    if refuse:
        raise AbcError(f"{why}. Train longer, choose other lines, or go on with --force")
    warnings.warn(why, AbcWarning, stacklevel=3)
