"""A Transformer without an encoder, which reads its source and writes in one sequence, a stream.

A token of the source sees those before it, one of the output all of the source and the output so
far, each head with one softmax. Lines keep the names that they have with an encoder: those of
``cross`` lead to the source, those of ``self`` to the output, and a head may have either.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from abc_calib.config import DecoderOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import ALONE, LineBias, Site
from abc_calib.geometry.coords import Coords, source_coords
from abc_calib.nn.positions import Scheme, build_scheme
from abc_calib.nn.transformer.attention import Attention, Scores
from abc_calib.nn.transformer.model import STACK, Encoded, Transformer


class DecoderOnly(Transformer):
    """One stream of source and output, in which the output's tokens stand behind their source."""

    options_type = DecoderOptions
    hub_names = ("abc_decoder", "AbcDecoder")
    hub_options = STACK
    stream = True

    def _make_scheme(self) -> None:
        options = self.options
        self.scheme = build_scheme(options.scheme, options.width, options.heads, ("self",))

    @property
    def positions(self) -> Scheme:
        return self.scheme

    def encode(self, source: Tensor, mask: Tensor | None = None, scores: Scores = None) -> Encoded:
        """Read the source ``(b, s)``; ``mask``: what is not padding.

        Its places are numbered once, with as many behind it for the output; later ones go on by
        one. Where its tokens see themselves alone, the states of each token are made once.
        """
        at = self.of_source(source, mask)
        scheme, double = self.scheme, torch.arange(2 * at.size, device=source.device)[None]
        numbers, drawn = scheme.renumber(double, 2 * at.length), scheme.starts(at)
        at = replace(at, start=drawn)
        if self._alone and scores is None:
            ids = torch.arange(self.tokens.size, device=source.device)[:, None]
            states = self.through(self.layers[:-1], self.embed(ids), source_coords(ids[:1]))
            states, at = [state[:, 0][source] for state in states], at.alike
        else:
            x = self.embedded(source, replace(at, place=numbers[:, : at.size]))
            at = at if self._lines is None else at.alike
            states = self.through(self.layers[:-1], x, at, scores)
        return Encoded(states, at, 0, drawn, numbers)

    @property
    def _alone(self) -> bool:
        """Do states of the source depend on the token alone?"""
        if type(self.scheme).embed is not Scheme.embed or (self.training and self.options.dropout):
            return False
        inner = () if self._lines is None else self._lines.sites.get("encoder", ())
        alone = all(head == (ALONE,) for heads in inner for head in heads)
        every_layer = len(inner) == self.attention_layers["encoder"]
        return alone and every_layer and self.path != "dense"

    def numbered(self, queries: Coords, encoded: Encoded) -> Tensor:
        assert encoded.numbers is not None
        numbers, place, last = encoded.numbers, queries.place, encoded.numbers.shape[1] - 1
        b = max(len(numbers), len(place))
        numbers, place = numbers.expand(b, -1), place.expand(b, -1)
        return numbers.gather(1, place.clamp(max=last)) + (place - last).clamp(min=0)

    def attending(self, site: Site) -> list[Attention]:
        blocks: Any = self.layers
        return [block.attention for block in blocks][: self.attention_layers[site]]

    def set_lines(self, lines: LineBias | None) -> None:
        if lines is not None and lines.stream:
            _check_causal(lines)
        super().set_lines(lines)


def _check_causal(lines: LineBias) -> None:
    """``UsageError`` for a line of a stream's source that leads to later tokens."""
    layers = lines.sites.get("encoder", ())
    for line in (line for heads in layers for head in heads for line in head):
        first = line.direction == "vert" and line.segment == line.offset == 0
        if not first and (line.direction != "diag" or line.segment or line.offset > 0):
            raise UsageError(
                f"{line.label('encoder')} of the source of a decoder-only model leads to later "
                "tokens: give diagonals with an offset of 0 or less, or vert +0"
            )
