"""A small encoder-decoder Transformer with pluggable positions and calibrated lines.

Pre-norm layers; an encoder of 0 layers passes the embeddings straight to cross-attention, as the
public code of Duan & Shi does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from abc_calib.config import TransformerOptions
from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.geometry import SITES, LineBias, Site
from abc_calib.geometry.window import window_bias
from abc_calib.nn.frames import Frame
from abc_calib.nn.padding import EVERY, Unpadded
from abc_calib.nn.positions import Scheme, build_scheme
from abc_calib.nn.transformer.base import Autoregressive, draw
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.encoder import Encoded, Encoder
from abc_calib.nn.transformer.layers import DecoderLayer


class Transformer(Autoregressive):
    """The model."""

    options_type = TransformerOptions
    hub_names = ("abc_transformer", "AbcTransformer")
    same_names = ("encoder_layers", "cyclic", *Autoregressive.same_names)
    options: TransformerOptions

    def __init__(self, options: TransformerOptions, tokens: TokenIds):
        super().__init__(options, tokens)
        self.period = options.cyclic
        self.embed = nn.Embedding(tokens.size, options.width)
        sites = SITES if options.encoder_layers else SITES[1:]
        own = options.own_schemes
        names = {site: own.get(site, options.scheme) for site in SITES}
        same = tuple(site for site in sites if names[site] == names["encoder"])
        scheme = build_scheme(names["encoder"], options.width, options.heads, same)
        self.encoder = Encoder(options, tokens, scheme)
        self.own_schemes = nn.ModuleDict(
            {
                site: build_scheme(names[site], options.width, options.heads, (site,))
                for site in sites
                if names[site] != names["encoder"]
            }
        )
        self.layers = nn.ModuleList(DecoderLayer(options, i) for i in range(options.decoder_layers))
        self.norm = nn.LayerNorm(options.width)
        self.dropout = nn.Dropout(options.dropout)
        self.head = nn.Linear(options.width, tokens.size)
        self.apply(draw)
        self.set_lines(None)

    @classmethod
    def settled(cls, options: Any, data: Data | None = None) -> Any:
        options = super().settled(options, data)
        if options.attention_window and data is not None:
            data.check_window(options.attention_window)
        return options

    # Lines

    @property
    def attention_layers(self) -> dict[Site, int]:
        """How many layers of attention each site has."""
        decoder = self.options.decoder_layers
        return {"encoder": self.options.encoder_layers, "self": decoder, "cross": decoder}

    def own_lines(self, data: Data) -> LineBias | None:
        window = self.options.attention_window
        if window is None:
            return None
        layout = data.layout_at(1)
        layers = self.attention_layers
        return window_bias(window, layers, self.options.heads, len(layout.parts), layout.stride)

    @property
    def mixed_source(self) -> str:
        layers = self.options.encoder_layers
        return f"its encoder has {layers} layers that see the whole source" if layers else ""

    # Positions

    @property
    def scheme(self) -> Scheme:
        """The encoder's positions, and those of every site that has no scheme of its own."""
        return self.encoder.scheme

    def scheme_of(self, site: Site) -> Scheme:
        """The scheme of a site: ``encoder`` and ``self`` also embed what they read."""
        own: Any = self.own_schemes
        return own[site] if site in own else self.scheme  # noqa: SIM401 (a ModuleDict)

    # The pass

    def encode(
        self,
        source: Tensor,
        mask: Tensor | None = None,
        weights: bool = False,
        kept: Unpadded = EVERY,
    ) -> Encoded:
        mask = source.ne(self.pad) if mask is None else mask
        how = self.embed, self.biases["encoder"], self.path, weights, self.scheme_of("self")
        return self.encoder(source, mask, *how, kept)

    def read(self, encoded: Encoded, read: Tensor, frame: Frame) -> Tensor:
        scheme = self.scheme_of("self")
        positions = scheme.renumber(frame.row_positions, frame.lengths)
        at = self._written_at(frame, encoded.drawn)
        return scheme.embed(self.embed(read), positions, at)

    def layer(
        self,
        number: int,
        x: Tensor,
        encoded: Encoded,
        frames: dict[Site, Frame],
        cache: Cache | None,
        weights: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        schemes = {site: self.scheme_of(site) for site in ("self", "cross")}
        biases = {site: self.biases[site][number] for site in ("self", "cross")}
        given = x, encoded.memory, frames, schemes, biases, cache
        found: tuple[Tensor, Tensor | None, Tensor | None]
        found = self.layers[number](*given, path=self.path, weights=weights)
        return found

    # Beside the weights

    def hub_config(self) -> dict[str, Any]:
        return {**super().hub_config(), "own_schemes": self.options.own_schemes or None}

    @classmethod
    def options_of(cls, config: Mapping[str, Any], **more: Any) -> Any:
        own = config["own_schemes"] or {}
        return super().options_of(
            config,
            encoder_scheme=own.get("encoder"),
            decoder_scheme=own.get("self"),
            cross_scheme=own.get("cross"),
            **more,
        )
