"""A small encoder-decoder Transformer with pluggable positions and calibrated lines.

Pre-norm layers; an encoder of 0 layers passes the embeddings straight to cross-attention, as the
public code of Duan & Shi does.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from abc_calib import plugins
from abc_calib.config import TransformerOptions
from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import SITES, LineBias, Site
from abc_calib.geometry.window import window_bias
from abc_calib.nn.base import Attention, Decoded, Model
from abc_calib.nn.biases import Frame, Grid, LayerBias
from abc_calib.nn.positions import Coordinates, Scheme, build_scheme, check_positions
from abc_calib.nn.transformer import rows
from abc_calib.nn.transformer.cache import Cache, KeptRows, kept_rows
from abc_calib.nn.transformer.decoding import in_passes, token_by_token
from abc_calib.nn.transformer.encoder import Encoded, Encoder, delimiter_positions
from abc_calib.nn.transformer.layers import DecoderLayer
from abc_calib.nn.transformer.rows import Opened

ROWS_AT_ONCE = 4096
"""Rows of one output scored at once, where lines bound what a row reads."""
SAME_NAMES = ("encoder_layers", "decoder_layers", "heads", "feedforward", "dropout", "scheme")
"""Options that have the same name in ``hub_config``."""


@dataclass(frozen=True)
class Outputs:
    """Logits ``(b, t, v)`` and, if asked for, the weights ``(b, h, i, j)`` of each layer."""

    logits: Tensor
    own: tuple[Tensor, ...] = ()
    crossed: tuple[Tensor, ...] = ()


class Transformer(Model):
    """The model."""

    options_type = TransformerOptions
    hub_names = ("abc_transformer", "AbcTransformer")
    options: TransformerOptions

    def __init__(self, options: TransformerOptions, tokens: TokenIds):
        super().__init__(options, tokens)
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
        self.path = "auto"
        self.apply(draw)
        self.set_lines(None)

    @classmethod
    def settled(cls, options: Any, data: Data | None = None) -> Any:
        if options.width % options.heads:
            raise UsageError(
                f"width {options.width} is not divisible by {options.heads} heads: "
                "choose a width that is a multiple of the heads"
            )
        if data is not None and options.scheme == "coupled" and data.coupling != "none":
            scheme = f"coupled:rows={data.coupling}"
            options = options.model_copy(update={"scheme": scheme})
        check_positions(options, data.layout_at(1) if data is not None else None)
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
    def lines(self) -> LineBias | None:
        return self._lines

    def set_lines(self, lines: LineBias | None) -> None:
        layers = self.attention_layers
        if lines is not None:
            lines.check(layers, self.options.heads)
        self._lines = lines

        def built(site: Site) -> list[LayerBias | None]:
            heads = [lines.heads(site, i) if lines else None for i in range(layers[site])]
            off = lines.off_line_bias if lines else None
            return [LayerBias(one, site, off) if one is not None else None for one in heads]

        self.biases = {site: built(site) for site in layers}

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

    def exact(self) -> Transformer:
        """The model that decodes: on lines, a copy in float64, which certificates are about.

        Its few keys a row are quick in any precision, and its errors can be bounded.
        """
        if not self.on_lines or self.embed.weight.dtype == torch.float64:
            return self
        return copy.deepcopy(self).double().eval()

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

    def encode(self, source: Tensor, mask: Tensor | None = None, weights: bool = False) -> Encoded:
        """The source ``(b, s)``, read."""
        mask = source.ne(self.pad) if mask is None else mask
        how = self.embed, self.biases["encoder"], self.path, weights, self.scheme_of("self")
        return self.encoder(source, mask, *how)

    def run(
        self, encoded: Encoded, read: Tensor, cache: Cache | None = None, weights: bool = False
    ) -> Outputs:
        """What is written after ``read (b, t)``, the rows in ``cache`` before it."""
        outputs = self.draft(encoded, read, cache, weights)
        if cache is not None:
            cache.settle(read.shape[1], read.shape[1])
        return outputs

    def draft(
        self, encoded: Encoded, read: Tensor, cache: Cache | None = None, weights: bool = False
    ) -> Outputs:
        """The same, the new rows of the cache still to be settled."""
        frames = self._frames(encoded, read, cache)
        schemes = {site: self.scheme_of(site) for site in ("self", "cross")}
        positions = schemes["self"].renumber(frames["self"].row_positions, frames["self"].lengths)
        at = self._written_at(frames["self"], encoded.drawn)
        x = self.dropout(schemes["self"].embed(self.embed(read), positions, at))
        own, crossed = [], []
        for i, layer in enumerate(self.layers):
            biases = {site: self.biases[site][i] for site in ("self", "cross")}
            x, seen, seen_across = layer(
                *(x, encoded.memory, frames, schemes, biases, cache),
                path=self.path,
                weights=weights,
            )
            own.append(seen)
            crossed.append(seen_across)
        logits = self.head(self.norm(x))
        return Outputs(logits, tuple(own), tuple(crossed)) if weights else Outputs(logits)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        encoded, read = self.encode(source), self.shifted(target)
        kept = self.kept_rows if not self.training and read.shape[1] > ROWS_AT_ONCE else None
        if kept is None:
            return self.run(encoded, read).logits
        # in parts, so that the states of a very long output stay in the processor's cache
        cache = Cache(kept)
        parts = [self.run(encoded, part, cache).logits for part in read.split(ROWS_AT_ONCE, dim=1)]
        return torch.cat(parts, dim=1)

    @torch.inference_mode()
    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        exact, kept = self.exact(), self.kept_rows
        bounded = self.on_lines and kept is not None
        write = in_passes if bounded else token_by_token
        return Decoded(write(exact, exact.encode(source), steps, Cache(kept)))

    def attention(self, source: Tensor, target: Tensor) -> Attention:
        mask, written = source != self.pad, target != self.pad
        encoded = self.encode(source, mask, weights=True)
        outputs = self.run(encoded, self.shifted(target), weights=True)
        return Attention(
            weights={
                "encoder": encoded.attention,
                "self": outputs.own,
                "cross": outputs.crossed,
            },
            frames=self.frames(source, target),
            rows={"encoder": mask, "self": written, "cross": written},
        )

    def frames(self, source: Tensor, target: Tensor) -> dict[Site, Frame]:
        """Where the rows and keys of each site stand while ``target`` is written."""
        lengths = (source != self.pad).sum(1)
        closes = delimiter_positions(source, self.tokens.delimiters)
        keys = torch.arange(source.shape[1], device=source.device)
        steps = torch.arange(target.shape[1], device=source.device)
        grid = self._grid(self.shifted(target), None)
        return {
            "encoder": Frame("encoder", keys, len(keys), lengths, closes),
            "self": Frame("self", steps, len(steps), lengths, grid=grid),
            "cross": Frame("cross", steps, len(keys), lengths, closes, grid=grid),
        }

    def _grid(self, read: Tensor, cache: Cache | None) -> Grid | None:
        """Where the tokens that are read stand, if an output has several rows."""
        if self.tokens.row is None:
            return None
        opened = cache.opened if cache is not None else None
        opened = opened or Opened.none(len(read), read.device)
        grid = opened.read(read, cache.seen if cache is not None else 0, self.tokens.row)
        if cache is not None:
            cache.opened, cache.grid = opened, grid
        return grid if self.lines is None else rows.alike(grid)

    @staticmethod
    def _written_at(frame: Frame, drawn: Tensor | None) -> Coordinates:
        """Where the tokens that are written next stand."""
        grid, none = frame.grid, torch.zeros_like(frame.rows)[None]
        row, column = (none, frame.rows[None]) if grid is None else (grid.row, grid.column)
        return Coordinates(none.expand_as(row), column, row, drawn)

    def _frames(self, encoded: Encoded, read: Tensor, cache: Cache | None) -> dict[Site, Frame]:
        past, steps = cache.seen if cache is not None else 0, read.shape[1]
        grid = self._grid(read, cache)
        memory, period, start = encoded.memory, self.options.cyclic, encoded.start
        places = torch.arange(past, past + steps, device=memory.device)
        lengths, closes = encoded.lengths, encoded.delimiters
        if self.lines is not None and alike(lengths) and alike(closes):
            lengths, closes = lengths[:1], closes[:1]
        left_out = cache.left_out if cache is not None else (0, 0)
        own = Frame("self", places, past + steps, lengths, None, period, start, left_out, grid)
        keys = memory.shape[1]
        crossed = Frame("cross", places, keys, lengths, closes, period, start, grid=grid)
        return {"self": own, "cross": crossed}

    # What it takes

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), betas=(0.9, 0.98), fused=True)

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        options = self.options
        activations = 40 * batch * (keys + steps) * (options.width + options.feedforward) * 4
        layers = [bias for biases in self.biases.values() for bias in biases]
        if all(bias is not None and bias.restricted for bias in layers):
            return activations
        scores = 3 * options.heads * batch * steps * max(keys, steps) * 4
        if options.encoder_layers:
            scores += 3 * options.heads * batch * keys * keys * 4
        return activations + scores

    def memory_to_train(self, batch: int, keys: int, steps: int) -> int:
        layers = self.options.encoder_layers + self.options.decoder_layers
        kept = self.memory_needed(batch, keys, steps) * (1 + layers) // 8
        return self.memory_of_weights + kept

    # Beside the weights

    def hub_config(self) -> dict[str, Any]:
        options, tokens = self.options, self.tokens
        return {
            "vocab_size": tokens.size,
            "d_model": options.width,
            **{name: getattr(options, name) for name in SAME_NAMES},
            "own_schemes": options.own_schemes or None,
            "cyclic": options.cyclic,
            "delimiter_ids": list(tokens.delimiters),
            **({} if tokens.row is None else {"row_id": tokens.row}),
            "line_bias": self.lines.to_dict() if self.lines else None,
            **plugins.of_model(options.schemes),
        }

    @classmethod
    def from_hub_config(cls, config: Mapping[str, Any]) -> Transformer:
        plugins.check_model(config)
        own = config["own_schemes"] or {}
        options = TransformerOptions(
            width=config["d_model"],
            cyclic=config["cyclic"],
            encoder_scheme=own.get("encoder"),
            decoder_scheme=own.get("self"),
            cross_scheme=own.get("cross"),
            **{name: config[name] for name in SAME_NAMES},
        )
        pad, sos, eos = (config[f"{name}_token_id"] for name in ("pad", "bos", "eos"))
        delimiters = tuple(config["delimiter_ids"] or ())
        tokens = TokenIds(config["vocab_size"], pad, sos, eos, delimiters, config.get("row_id"))
        model = cls(options, tokens)
        if config["line_bias"]:
            model.set_lines(LineBias.from_dict(config["line_bias"]))
        return model


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


def alike(rows: Tensor) -> bool:
    """Are all rows of a tensor the same?"""
    return bool((rows == rows[:1]).all())
