"""Multi-head attention with additive biases, dense or gathered along lines."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from abc_calib.nn.biases import MASKED, Gathered, LayerBias
from abc_calib.nn.frames import Frame
from abc_calib.nn.padding import EVERY, Unpadded
from abc_calib.nn.positions import Places, Scheme
from abc_calib.nn.transformer.stream import AnyBias, Stream, StreamBias

GATHER_FROM = 64
"""From this many keys on, gathering a few keys a row is faster than scoring all of them."""
LANES = 16
"""Single-precision numbers that a processor takes at once; torch's softmax of fewer is 13 times
slower."""
SHORT, MANY = 64, 4096
"""Up to so many keys, with so many scores or more, products apart are faster on a processor."""


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor, dropout: float) -> Tensor:
    """What ``F.scaled_dot_product_attention`` computes of ``(b, h, i, e)`` and ``(b, h, j, e)``.

    ``bias (b|1, h|1, i|1, j)`` is added to the scores.
    """
    b, h, i, e = queries.shape
    j = keys.shape[2]
    if queries.device.type != "cpu" or j > SHORT or b * h * i * j < MANY:
        return F.scaled_dot_product_attention(queries, keys, values, bias, dropout)
    if (missing := LANES - j) > 0:
        keys, values = (F.pad(one, (0, 0, 0, missing)) for one in (keys, values))
        bias = F.pad(bias, (0, missing), value=-math.inf)
    every = bias.expand(b, h, i, -1) if bias.shape[:2].numel() > 1 else bias
    heads = [rearrange(one, "b h i e -> (b h) i e") for one in (every, queries, keys, values)]
    scores = torch.baddbmm(heads[0], heads[1], heads[2].mT, alpha=1 / math.sqrt(e))
    weights = F.dropout(scores.softmax(-1), dropout)
    return rearrange(weights @ heads[3], "(b h) i e -> b h i e", h=h)


def is_single(bias: AnyBias | None, scheme: Scheme, path: str, weights: bool) -> bool:
    """Does every head read exactly one key a row, and need no scores?"""
    free = path == "dense" or weights or scheme.has_value_term
    return bias is not None and bias.single and not free


class Attention(nn.Module):
    """Vaswani et al. 2017, section 3.2, with a sum of biases before softmax.

    ``path`` chooses how restricted heads are computed: ``dense`` scores every key, ``lines``
    gathers the few keys on the lines (cost linear in length), ``auto`` picks by length. Both
    give the same numbers up to rounding. Where every head has exactly one key a row, softmax
    over it is 1 and ``lines`` needs neither queries nor keys.
    """

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def project(
        self,
        memory: Tensor,
        positions: Tensor,
        scheme: Scheme,
        single: bool,
        kept: Unpadded = EVERY,
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of ``memory (b, j, d)`` at ``positions (j,)`` or ``(b, j)``, each
        ``(b, h, j, e)``.

        With ``single``, where no key is ever compared, the values twice as ``(b, 1, j, d)``.
        ``kept``: which tokens ``memory`` holds, ``(n, d)`` where it does not hold all.
        """
        values = kept.pad(self.value(memory))
        if single:
            return values[:, None], values[:, None]
        keys = scheme.rotate(self._split(kept.pad(self.key(memory))), positions)
        return keys, self._split(values)

    def forward(
        self,
        x: Tensor,  # (b, i, d), or (n, d) where frame.kept leaves rows out
        keys: Tensor,  # (b, h, j, e)
        values: Tensor,
        frame: Frame,
        scheme: Scheme,
        bias: AnyBias | None = None,
        path: str = "auto",
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output, of the shape of ``x``, and, if asked for, the weights ``(b, h, i, j)``.

        ``keys`` and ``values`` come from ``project``, with ``single`` as ``is_single`` says.
        """
        dropout = self.dropout if self.training else 0.0
        if is_single(bias, scheme, path, weights):
            assert isinstance(bias, LayerBias)
            key = frame.stored(bias.positions(frame)[0][..., 0])
            mixed = self._picked(values[:, 0], key)
            return self._out(F.dropout(mixed, dropout, self.training), frame), None
        queries = scheme.rotate(self._split(frame.kept.pad(self.query(x))), frame.row_positions)
        linear = bias is not None and bias.restricted and not scheme.has_score_bias
        if path == "auto":
            linear = linear and (frame.keys >= GATHER_FROM or frame.is_windowed)
        if linear and path != "dense" and not weights:
            assert bias is not None
            mixed = self._gathered(queries, keys, values, bias.gathered(frame), dropout)
            return self._out(rearrange(mixed, "b h i e -> b i (h e)"), frame), None
        score_bias = self._score_bias(queries, keys, frame, scheme, bias)
        seen: Tensor | None = None
        if weights or scheme.has_value_term:
            scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1]) + score_bias
            seen = scores.softmax(-1)
            dropped = F.dropout(seen, dropout, self.training)
            mixed = dropped @ values
            if scheme.has_value_term:
                mixed = mixed + scheme.value_term(dropped, _places(frame))
        else:
            mixed = attend(queries, keys, values, score_bias, dropout)
        if bias is not None and bias.may_mask_rows:
            mixed = mixed * (score_bias > MASKED / 2).any(-1, keepdim=True)
        mixed = rearrange(mixed, "b h i e -> b i (h e)")
        return self._out(mixed, frame), seen if weights else None

    def along(self, parts: tuple[Tensor, Tensor], frame: Stream, bias: StreamBias) -> Tensor:
        """Where every head has one key a row: from the values of source and output, apart.

        So that a step does not copy all of the source. ``parts (b, 1, j, d)`` each.
        """
        (source, output), (to_source, to_output) = parts, bias.picks(frame)
        read, written = self._picked(source[:, 0], to_source), self._picked(output[:, 0], to_output)
        of_source = bias.of_source(read.device).repeat_interleave(read.shape[-1] // self.heads)
        mixed = torch.where(of_source, read, written)
        return self._out(F.dropout(mixed, self.dropout, self.training), frame)

    def _picked(self, values: Tensor, key: Tensor) -> Tensor:
        """``values (b, j, d)`` at each head's one key a row, ``key (b|1, h, i)``: ``(b, i, d)``."""
        b, j, d = values.shape
        head = torch.arange(self.heads, device=key.device)
        index = rearrange(key, "b h i -> b i h") * self.heads + head
        shape = (b, key.shape[2], d)
        if len(index) == 1:
            flat = values.reshape(b, j * self.heads, -1)
            return flat.index_select(1, index.flatten()).view(shape)
        index = index + torch.arange(b, device=key.device)[:, None, None] * (j * self.heads)
        flat = values.reshape(b * j * self.heads, -1)
        return flat.index_select(0, index.flatten()).view(shape)

    def _out(self, mixed: Tensor, frame: Frame) -> Tensor:
        return self.output(frame.kept.unpad(mixed))

    def _split(self, x: Tensor) -> Tensor:
        return rearrange(x, "b i (h e) -> b h i e", h=self.heads)

    def _score_bias(
        self, queries: Tensor, keys: Tensor, frame: Frame, scheme: Scheme, bias: AnyBias | None
    ) -> Tensor:
        """The sum of everything added to the scores, ``(b|1, h|1, i|1, j)``."""
        closed = ~frame.mask()
        total = torch.zeros(closed.shape, device=queries.device).masked_fill_(closed, MASKED)
        if bias is not None:
            total = total + bias.dense(frame)
        if scheme.has_score_bias:
            extra = scheme.score_bias(queries, keys, _places(frame))
            if extra is not None:
                total = total + extra
        return total.to(queries.dtype)

    def _gathered(
        self, queries: Tensor, keys: Tensor, values: Tensor, gathered: Gathered, dropout: float
    ) -> Tensor:
        """Attention over the gathered keys only: ``(b, h, i, e)``, cost linear in ``i``."""
        index, bias = gathered.index, gathered.bias
        b, h, j, _ = keys.shape
        start = torch.arange(h, device=index.device)[:, None, None] * j
        if len(index) == 1:
            flat, groups = (index + start).flatten(), b
        else:
            rows = torch.arange(b, device=index.device)[:, None, None, None] * (h * j)
            flat, groups = (index + start + rows).flatten(), 1
        shape = (b, h, *index.shape[2:], keys.shape[-1])

        def pick(x: Tensor) -> Tensor:  # (b, h, j, e) -> (b, h, i, k, e)
            return x.reshape(groups, -1, x.shape[-1]).index_select(1, flat).view(shape)

        scores = torch.einsum("bhie,bhike->bhik", queries, pick(keys))
        scores = scores / math.sqrt(queries.shape[-1]) + bias.to(queries.dtype)
        weights = F.dropout(scores.softmax(-1), dropout, self.training)
        open_ = bias > MASKED / 2
        weights = weights * open_
        return torch.einsum("bhik,bhike->bhie", weights, pick(values))


def _places(frame: Frame) -> Places:
    """Where a scheme is told that the rows and keys stand."""
    return Places(frame.scheme_site, frame.row_positions, frame.key_positions, frame.lengths)
