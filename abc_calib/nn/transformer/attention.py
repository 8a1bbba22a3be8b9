"""Multi-head attention, and the block of both kinds of Transformer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from abc_calib.config import DecoderOptions, TransformerOptions
from abc_calib.geometry import Site
from abc_calib.geometry.coords import AttentionView, Coords
from abc_calib.nn.attend import MASKED, attend, one_key, opened, scored, weighed
from abc_calib.nn.lines import LineGather, side_by_side
from abc_calib.nn.positions import Scheme
from abc_calib.nn.transformer.cache import Cache

GATHER_FROM = 64
"""From this many keys on, gathering a few keys a query is faster than scoring all of them."""

Weights = bool | Literal["raw"]
"""Are attention weights asked for? ``raw``: the scores before softmax, nan at masked keys."""

Part = tuple[Tensor, Tensor]
"""Keys and values of what one view shows, ``(b, h, j, e)`` each."""


class Attention(nn.Module):
    """Vaswani et al. 2017, section 3.2, with a sum of biases before softmax.

    ``lines``: what its heads follow, by the site of the last view (of a stream's two: ``self``).
    ``path`` chooses how restricted heads are computed: ``dense`` scores every key, ``lines``
    gathers the few keys on the lines (cost linear in length), ``auto`` picks by length. Both
    give the same numbers up to rounding. Where every head has exactly one key for a query, softmax
    over it is 1 and ``lines`` needs neither queries nor keys.
    """

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.lines: dict[Site, LineGather] = {}
        self.path = "auto"

    def project(
        self, memory: Tensor, at: Coords, scheme: Scheme, site: Site, weights: Weights = False
    ) -> Part:
        """Keys and values of ``memory (b, j, d)``, for a call whose last view is of a ``site``.

        Without keys where every head reads exactly one for a query, and needs no scores.
        """
        lines, values = self.lines.get(site), self._split(self.value(memory))
        scored = self.path == "dense" or weights
        if lines is not None and lines.single and not scored:
            return values[..., :0], values
        return scheme.rotate(self._split(self.key(memory)), at), values

    def forward(
        self,
        x: Tensor,  # (b, i, d)
        parts: Sequence[Part],
        views: Sequence[AttentionView],
        scheme: Scheme,
        weights: Weights = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output ``(b, i, d)`` and, if asked for, the weights ``(b, h, i, j)``.

        ``parts`` come from ``project``, one for each of ``views``.
        """
        dropout = self.dropout if self.training else 0.0
        lines, (keys, values) = self.lines.get(views[-1].site), parts[0]
        if lines is not None and not keys.shape[-1]:  # none is compared
            mixed = _along(lines, [values for _, values in parts], views)
            return self.output(F.dropout(mixed, dropout)), None
        if len(parts) > 1:
            keys, values = (torch.cat(tensors, 2) for tensors in zip(*parts, strict=True))
        queries = scheme.rotate(self._split(self.query(x)), views[0].queries)
        seen: Tensor | None = None
        if lines is not None and self._gathers(lines, keys.shape[2], views, scheme, weights):
            mixed = attend(queries, keys, values, lines.gathered(views), dropout)
        else:
            bias, nowhere = self._bias(queries, keys, views, scheme, lines)
            if weights:
                seen = weighed(queries, keys, bias)
                mixed = F.dropout(seen, dropout) @ values
                if weights == "raw":
                    scores = scored(queries, keys, bias)
                    seen = scores.masked_fill(scores == MASKED, math.nan)
            else:
                mixed = attend(queries, keys, values, bias, dropout)
            if nowhere is not None:
                mixed = mixed.masked_fill(nowhere, 0)
        mixed = rearrange(mixed, "b h i e -> b i (h e)")
        return self.output(mixed), seen

    def _gathers(
        self,
        lines: LineGather,
        keys: int,
        views: Sequence[AttentionView],
        scheme: Scheme,
        weights: Weights,
    ) -> bool:
        """Are the keys on lines gathered, and the others left out?"""
        if not lines.restricted or scheme.has_score_bias or weights or self.path == "dense":
            return False
        return self.path == "lines" or keys >= GATHER_FROM

    def _split(self, x: Tensor) -> Tensor:
        return rearrange(x, "b i (h e) -> b h i e", h=self.heads)

    def _bias(
        self,
        queries: Tensor,
        keys: Tensor,
        views: Sequence[AttentionView],
        scheme: Scheme,
        lines: LineGather | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The sum of everything added to the scores, ``(b|1, h|1, i|1, j)``.

        And, with lines, which queries have no key left.
        """
        visible = side_by_side([view.mask for view in views])
        total = torch.zeros(visible.shape, device=queries.device).masked_fill_(~visible, MASKED)
        nowhere = None
        if lines is not None:
            total, nowhere = opened(total + lines.dense(views), total)
        if scheme.has_score_bias:
            extra = scheme.score_bias(queries, keys, _as_one(views))
            total = total if extra is None else total + extra
        return total.to(queries.dtype), nowhere


def _along(lines: LineGather, values: Sequence[Tensor], views: Sequence[AttentionView]) -> Tensor:
    """Where every head has one key for a query: ``(b, i, d)``.

    From source and output apart, so that a step does not copy all of the source. What a head names
    in the part without its line is of no meaning.
    """
    outputs = []
    for part, view in zip(values, views, strict=True):
        key = lines.positions(view)[0][..., 0]
        outputs.append(one_key(part, replace(view, first=0).index(key)))
    if len(outputs) == 1:
        return outputs[0]
    in_source = lines.at(views[0].site, outputs[0].device).has_lines
    read, written = outputs
    return torch.where(in_source.repeat_interleave(values[0].shape[-1]), read, written)


def _as_one(views: Sequence[AttentionView]) -> AttentionView:
    """The positions of queries and keys that a scheme gets: a stream is one sequence."""
    last = views[-1]
    if len(views) == 1:
        return replace(last, site="self") if last.causal else last
    return replace(last, keys=views[0].keys.before(last.keys))


class Block(nn.Module):
    """Attention to the sequence itself, to a source where it has one, then feed-forward.

    Each normalises what it reads (pre-norm) or, with ``post_norm``, the sum that it leaves.
    ``crossed``: with an attention of its own to the source. Without, it is a block of an encoder or
    of a stream, whose one attention reads both.
    """

    def __init__(self, options: TransformerOptions | DecoderOptions, crossed: bool = False):
        super().__init__()
        self.names = ("self_attention", "cross_attention") if crossed else ("attention",)
        for name in self.names:
            self.add_module(name, Attention(options.width, options.heads, options.dropout))
        self.feedforward = nn.Sequential(
            nn.Linear(options.width, options.feedforward),
            nn.ReLU(inplace=True),  # long passes are as fast as memory
            nn.Dropout(options.dropout),
            nn.Linear(options.feedforward, options.width),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(options.width) for _ in (*self.names, ""))
        self.dropout = nn.Dropout(options.dropout)
        self.post_norm = getattr(options, "post_norm", False)

    @property
    def attentions(self) -> list[Attention]:
        """In their order, each behind the norm of its number."""
        return [getattr(self, name) for name in self.names]

    def forward(
        self,
        x: Tensor,
        calls: Sequence[Sequence[AttentionView]],
        scheme: Scheme,
        memory: Tensor | None = None,
        cache: Cache | None = None,
        weights: Weights = False,
    ) -> tuple[Tensor, list[Tensor | None]]:
        """``x (b, i, d)`` a block later, and the weights of each attention if asked for.

        ``calls``: what each attention sees. ``memory (b, s, d)``: the source, which views of
        ``cross`` show; other views show what is in ``cache`` and ``x`` itself.
        """
        seen = []
        for norm, attention, views in zip(self.norms, self.attentions, calls, strict=False):
            site, y = views[-1].site, x if self.post_norm else norm(x)
            parts: list[Part] = []
            how = scheme, site, weights
            for view in views:
                part = None if cache is None else cache.source.get(self)
                if view.site != "cross":
                    part = attention.project(y, view.queries, *how)
                    part = part if cache is None else cache.extended(self, *part)
                elif part is None:
                    assert memory is not None
                    read = memory if len(calls) > 1 else norm(memory)
                    part = attention.project(read, view.keys, *how)
                    if cache is not None:
                        cache.source[self] = part
                parts.append(part)
            y, layer_weights = attention(y, parts, views, scheme, weights)
            x = x + self.dropout(y)
            x = norm(x) if self.post_norm else x
            seen.append(layer_weights)
        if self.post_norm:
            return self.norms[-1](x + self.dropout(self.feedforward(x))), seen
        return x + self.dropout(self.feedforward(self.norms[-1](x))), seen


class Encoder(nn.Module):
    """The encoder's blocks, if there are any, and the positions of the source."""

    def __init__(self, options: TransformerOptions, scheme: Scheme):
        super().__init__()
        self.scheme = scheme
        self.layers = nn.ModuleList(Block(options) for _ in range(options.encoder_layers))
        self.norm = nn.LayerNorm(options.width) if options.encoder_layers else nn.Identity()


def draw(module: nn.Module) -> None:
    """Xavier-uniform linear maps, unit-normal embeddings (as large as the sinusoids)."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight)
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, Scheme):
        module.reset_parameters()
