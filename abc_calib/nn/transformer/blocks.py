"""The layers of a Transformer on tables of states instead of sequences, in float64.

A row of a layer is given by which state it had before and which states its heads read. Each
different state is there once, and so are its keys and values.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from abc_calib.geometry.coords import output_coords
from abc_calib.nn.base import in_float64

HeadKeys = tuple[tuple[tuple[int, float], ...], ...]
"""Of each head of an attention the (slot, bias) of its keys."""


class States:
    """Some states ``(n, d)``, and the keys and values that are made of them when first asked for.

    More states may be added.
    """

    def __init__(self, states: Tensor):
        self.states = self._room = states
        self._projected: dict[tuple[int, str], Tensor] = {}

    def add(self, states: Tensor) -> None:
        first, count = len(self.states), len(self.states) + len(states)
        if count > len(self._room):
            self._room = states.new_empty(2 * count, states.shape[1])
            self._room[:first] = self.states
        self._room[first:count] = states
        self.states = self._room[:count]

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return sum(x.nbytes for x in (self._room, *self._projected.values()))

    def projection(self, blocks: Blocks, attention: Any, norm: Any, name: str) -> Tensor:
        """Keys or values ``(n, h, e)`` of all states; ``norm``: None of what is memory."""
        projected = self._projected.get((id(attention), name))
        first = 0 if projected is None else len(projected)
        if first < len(self.states):
            states = self.states[first:]
            if norm is not None:
                states = blocks.norm(norm, states)
            else:
                if blocks.memory is not None:
                    states = blocks.norm(blocks.memory, states)
                blocks.note("memory", states)
            module = getattr(attention, name)
            new_rows = module(states).view(len(states), attention.heads, -1)
            blocks.note(module, new_rows)
            projected = new_rows if projected is None else torch.cat([projected, new_rows])
            self._projected[id(attention), name] = projected
        assert projected is not None
        return projected


class Blocks:
    """A model in float64, in the parts that tables of states are computed by.

    ``rounding``: what takes note of the norms that a bound on rounding needs. ``period``: modulo
    what positions are known. ``tokens``: of a site the embedding of each token
    in each phase, that of token ``i`` in phase ``p`` being number ``i * period + p``.
    """

    def __init__(self, model: Any, period: int, rounding: Any = None):
        self.model = model = in_float64(model)
        self.stream = bool(model.stream)
        self.decoder = list(model.layers)
        self.encoder = self.decoder if self.stream else list(model.encoder.layers)
        self.memory = None if self.stream or not self.encoder else model.encoder.norm
        self.period = period
        self.rounding = rounding
        embedded = model.embed.weight[:, None].expand(-1, period, -1)
        at = output_coords(torch.arange(period, device=embedded.device)[None])
        embedded = model.positions.embed(embedded, at).flatten(0, 1)
        self.tokens = {"encoder": embedded, "self": embedded}

    def note(self, what: Any, x: Tensor) -> None:
        """Take note of the largest norm of vectors ``(..., d)``, by what they are."""
        if self.rounding is not None:
            self.rounding.note(what, x.norm(dim=-1))

    def norm(self, module: Any, x: Tensor) -> Tensor:
        """Layer normalisation, of which the rounding bound takes note."""
        normalised, _, inverse = torch.native_layer_norm(
            x, module.normalized_shape, module.weight, module.bias, module.eps
        )
        self.note((module, "input"), x)
        self.note((module, "inverse"), inverse)
        return normalised

    def row(
        self,
        site: str,
        layer: int,
        attentions: tuple[HeadKeys, ...],
        slots: list[States],
        where: list[Tensor],
    ) -> Tensor:
        """States ``(n, d)`` after a layer, counted from 1.

        Slot ``k`` is the state ``where[k] (n,)`` of ``slots[k]``, and slot 0 the row's own before.
        """
        block = (self.encoder if site == "encoder" else self.decoder)[layer - 1]
        x = slots[0].states.index_select(0, where[0])
        self.note("state", x)
        x = x.expand(max(map(len, where)), -1)
        for number, heads in enumerate(attentions):
            attention, norm = block.attentions[number], block.norms[number]
            mixed = self._mixed(attention, norm, x, heads, slots, where, number > 0)
            x = x + attention.output(mixed)
            self.note("state", x)
        hidden = block.feedforward[0](self.norm(block.norms[-1], x)).relu_()
        x = x + block.feedforward[-1](hidden)
        self.note("state", x)
        return x

    def _mixed(
        self,
        attention: Any,
        norm: Any,
        x: Tensor,
        heads: HeadKeys,
        slots: list[States],
        where: list[Tensor],
        memory: bool,
    ) -> Tensor:
        """What the heads of an attention read, ``(n, d)``: heads with the same keys together."""
        e = x.shape[1] // len(heads)
        groups: dict[tuple[int, ...], list[int]] = {}
        for head, keys in enumerate(heads):
            groups.setdefault(tuple(slot for slot, _ in keys), []).append(head)
        mixed = x.new_empty(len(x), len(heads), e)
        query = None
        if any(len(named) > 1 for named in groups):
            query = attention.query(self.norm(norm, x)).view(len(x), -1, e)
            self.note(attention.query, query)

        def picked(slot: int, name: str, hs: list[int]) -> Tensor:
            projection = slots[slot].projection(self, attention, None if memory else norm, name)
            projection = projection if len(hs) == len(heads) else projection[:, hs]
            return projection.index_select(0, where[slot])

        for named, hs in groups.items():
            if len(named) == 1:
                mixed[:, hs] = picked(named[0], "value", hs)
                continue
            assert query is not None
            options = query if len(hs) == len(heads) else query[:, hs]
            scores = torch.stack([(options * picked(s, "key", hs)).sum(2) for s in named])
            bias = scores.new_tensor([[b for _, b in heads[h]] for h in hs]).T
            weights = (scores / math.sqrt(e) + bias[:, None]).softmax(0)
            read = [
                w[..., None] * picked(s, "value", hs) for w, s in zip(weights, named, strict=True)
            ]
            mixed[:, hs] = torch.stack(read).sum(0)
        return mixed.flatten(1)

    def logits(self, states: Tensor) -> Tensor:
        """What is written after states ``(n, d)`` of the last layer, ``(n, v)``."""
        return self.model.head(self.norm(self.model.norm, states))
