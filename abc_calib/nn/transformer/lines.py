"""A Transformer whose heads may attend along lines: which lines, and what follows from them."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, Self

import torch
from torch import nn

from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.nn.base import Model
from abc_calib.nn.biases import LayerBias
from abc_calib.nn.positions import Scheme
from abc_calib.nn.transformer.cache import KeptRows, kept_rows


class AlongLines(Model):
    """Base of both kinds. ``path`` is that of ``set_path``."""

    options: Any
    embed: nn.Embedding

    def __init__(self, options: Any, tokens: TokenIds):
        super().__init__(options, tokens)
        self.path = "auto"

    @property
    @abstractmethod
    def attention_layers(self) -> dict[Site, int]:
        """How many layers of attention each site has."""

    @abstractmethod
    def scheme_of(self, site: Site) -> Scheme:
        """The positions of a site: ``encoder`` and ``self`` also embed what they read."""

    @property
    @abstractmethod
    def mixed_source(self) -> str:
        """Why states of the source's tokens depend on other tokens; empty where they do not."""

    @property
    def lines(self) -> LineBias | None:
        return self._lines

    def set_lines(self, lines: LineBias | None) -> None:
        layers = self.attention_layers
        if lines is not None:
            if lines.stream != self.stream:
                kinds = ["a model with an encoder", "a decoder-only model"]
                ours, theirs = kinds[self.stream], kinds[lines.stream]
                raise UsageError(f"the bias is of {theirs}, and this is {ours}: calibrate it")
            lines.check(layers, self.options.heads)
        self._lines = lines

        def built(site: Site, layer: int) -> LayerBias | None:
            heads = lines.heads(site, layer) if lines else None
            if lines is None or heads is None:
                return None
            return LayerBias(heads, site, lines.off_line_bias, lines.elsewhere(site, layer))

        self.biases = {site: [built(site, i) for i in range(n)] for site, n in layers.items()}

    def set_path(self, path: str) -> None:
        """How restricted heads are computed: ``auto``, ``dense`` or ``lines``."""
        self.path = path

    @property
    def kept_rows(self) -> KeptRows | None:
        """The output rows that later ones still read, or None where any may be read."""
        biases = self.biases["self"]
        single = all(bias is not None and bias.single for bias in biases)
        scheme = self.scheme_of("self")
        if self.path == "dense" or scheme.has_value_term or (scheme.has_score_bias and not single):
            return None
        return kept_rows(biases, self.tokens.row is not None)

    @property
    def on_lines(self) -> bool:
        """Does every head of the decoder attend along lines and nowhere else?"""
        biases = self.biases["self"] + self.biases["cross"]
        return all(bias is not None and bias.restricted for bias in biases)

    def exact(self) -> Self:
        """The model that decodes: on lines, a copy in float64, which certificates are about.

        Its few keys a row are quick in any precision, and its errors can be bounded.
        """
        if not self.on_lines or self.embed.weight.dtype == torch.float64:
            return self
        return copy.deepcopy(self).double().eval()
