"""A small Transformer with pluggable positions and calibrated lines.

Pre-norm blocks, or post-norm with scaled embeddings as in Vaswani et al. 2017. A source is read
once (``encode``), then the output is written (``run``) on what was read and on the output so far.
An encoder of 0 layers passes the embeddings straight to
cross-attention, as the public code of Duan & Shi does. In a *stream* (a decoder-only model) source
and output are one sequence: a token of the source sees those before it, one of the output all of
the source and the output so far, each head with one softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from abc_calib import plugins
from abc_calib.config import DecoderOptions, TransformerOptions
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import ALONE, SITES, LineBias, Site
from abc_calib.geometry.coords import AttentionView, Coords, output_coords, source_coords
from abc_calib.nn.base import AttentionWeights, Decoded, greedy
from abc_calib.nn.positions import Scheme, build_scheme
from abc_calib.nn.transformer.attention import Block, Encoder, Weights, draw
from abc_calib.nn.transformer.cache import Cache, Encoded, Outputs
from abc_calib.nn.transformer.lines import AlongLines

STACK = {
    **{name: name for name in ("decoder_layers", "heads", "feedforward", "dropout", "scheme")},
    "d_model": "width",
}
"""Options of both kinds, by their names in ``hub_config``."""


class Transformer(AlongLines):
    """The model; ``DecoderOnly`` is its other kind."""

    options_type: ClassVar[Any] = TransformerOptions
    hub_names = ("abc_transformer", "AbcTransformer")
    optimizers: ClassVar[tuple[str, ...]] = ("adam", "muon")
    hub_options: ClassVar[dict[str, str]] = {
        **STACK,
        **{"encoder_layers": "encoder_layers", "cyclic": "cyclic"},
    }

    hub_extras = ("delimiter_ids", "row_id", "post_norm", "line_bias", "plugins", "own_schemes")

    def __init__(self, options: Any, tokens: TokenIds):
        super().__init__(options, tokens)
        self.embed = nn.Embedding(tokens.size, options.width)
        self._make_scheme()
        crossed = not self.stream
        self.layers = nn.ModuleList(Block(options, crossed) for _ in range(options.decoder_layers))
        self.norm = nn.LayerNorm(options.width)
        self.dropout = nn.Dropout(options.dropout)
        self.head = nn.Linear(options.width, tokens.size)
        #: cyclic positions: schemes get positions modulo this number
        self.period: int | None = options.cyclic
        self.apply(draw)
        #: what embeddings are multiplied by
        self.scale = 1.0
        if getattr(options, "post_norm", False):
            self.scale = math.sqrt(options.width)
            nn.init.xavier_uniform_(self.embed.weight)  # times the scale as large as the sinusoids
        self.set_lines(None)

    def _make_scheme(self) -> None:
        """Make the position scheme, for the sites that have layers, and the encoder with it."""
        options = self.options
        sites = SITES if options.encoder_layers else SITES[1:]
        scheme = build_scheme(options.scheme, options.width, options.heads, sites)
        self.encoder = Encoder(options, scheme)

    # Positions

    @property
    def positions(self) -> Scheme:
        return self.encoder.scheme

    def _of_source(self, source: Tensor, mask: Tensor) -> Coords:
        delimiters, words = self.tokens.delimiters, self.tokens.words
        return source_coords(source, delimiters, mask=mask, words=words)

    def _of_output(self, read: Tensor, after: Coords | None = None) -> Coords:
        """Where the tokens stand that the decoder reads ``after`` others."""
        return output_coords(read, self.tokens.rows, after)

    def _placed(self, read: Tensor, encoded: Encoded, cache: Cache | None) -> Coords:
        """The same, with the positions that schemes get."""
        at = self._of_output(read, None if cache is None else cache.at)
        at = at if self._lines is None else at.alike
        place, length = at.position, encoded.at.length
        if self.period:
            place = (place + encoded.phase) % self.period
        if self.stream:
            place = length + place
        return replace(at, place=place, length=length, start=encoded.drawn)

    # The pass

    def _embedded(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return x if self.scale == 1 else self.scale * x

    def encode(
        self, source: Tensor, mask: Tensor | None = None, weights: Weights = False
    ) -> Encoded:
        """Read the source ``(b, s)``; ``mask``: what is not padding.

        Cyclic positions of a source are counted from its last token, as answers are written from
        the last digit on. They are all alike, but short problems do not show it: the fifth digit of
        six is the only one far from both ends, and would be seen in one phase alone. So in every
        step of training they start in a random phase, the same for source and output; else in 0.
        """
        at = self._of_source(source, source.ne(self.pad) if mask is None else mask)
        scheme, phase = self.positions, 0
        if self.period:
            phase = int(torch.randint(self.period, ())) if self.training else 0
            at = replace(at, place=(at.length - 1 - at.position + phase) % self.period)
        numbers, drawn = scheme.renumber(at.place, at.length), scheme.starts(at)
        at = replace(at, start=drawn)
        x = self.dropout(scheme.embed(self._embedded(source), replace(at, place=numbers)))
        at = at if self._lines is None else at.alike
        states, seen = self._through(self.encoder.layers, x, at, weights)
        memory = (self.encoder.norm(states[-1]),) * len(self.layers)
        return Encoded(memory, at, phase, drawn, attention=seen)

    def _through(
        self, blocks: Iterable[nn.Module], x: Tensor, at: Coords, weights: Weights
    ) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """The source before and after each of ``blocks``, and what its tokens saw if asked for."""
        seen: list[Any] = []
        states, view = [x], AttentionView("encoder", at, at, causal=self.stream)
        for block in blocks:
            x, (layer_weights,) = block(x, [(view,)], self.positions, weights=weights)
            states.append(x)
            seen.append(layer_weights)
        return states, tuple(seen) if weights else ()

    def run(
        self,
        encoded: Encoded,
        read: Tensor,
        cache: Cache | None = None,
        weights: Weights = False,
    ) -> Outputs:
        """What is written after ``read (b, t)``, the tokens in ``cache`` before it."""
        queries, scheme = self._placed(read, encoded, cache), self.positions
        placed = replace(queries, place=self._numbered(queries, encoded))
        x = self.dropout(scheme.embed(self._embedded(read), placed))
        self_view = (
            AttentionView("self", queries, queries, True) if cache is None else cache.view(queries)
        )
        crossed = AttentionView("cross", queries, encoded.at)
        calls: Sequence[Sequence[AttentionView]] = [(self_view,), (crossed,)]
        if self.stream:
            calls = [(crossed, replace(self_view, first=encoded.at.size))]
        seen: list[list[Any]] = []
        for block, memory in zip(self.layers, encoded.memory, strict=True):
            x, layer_weights = block(x, calls, scheme, memory, cache, weights)
            seen.append(layer_weights)
        logits = self.head(self.norm(x))
        if not weights:
            return Outputs(logits)
        if self.stream:
            s = encoded.at.size
            seen = [[w[..., s:], w[..., :s]] for (w,) in seen]
        return Outputs(logits, *map(tuple, zip(*seen, strict=True)))

    def _numbered(self, queries: Coords, encoded: Encoded) -> Tensor:
        """What a scheme calls the places of an output."""
        if encoded.numbers is None:
            return self.positions.renumber(queries.place, queries.length)
        last = encoded.numbers.shape[1] - 1
        b = max(encoded.numbers.shape[0], queries.place.shape[0])
        numbers, place = encoded.numbers.expand(b, -1), queries.place.expand(b, -1)
        return numbers.gather(1, place.clamp(max=last)) + (place - last).clamp(min=0)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.run(self.encode(source), self.shifted(target)).logits

    @torch.inference_mode()
    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        device, source = source.device, source.to(self.device)
        encoded, cache = self.encode(source), Cache()

        def write(tokens: Tensor, _: int) -> Tensor:
            return self.run(encoded, tokens[:, None], cache).logits[:, -1]

        return Decoded(greedy(self, source, steps, write).to(device))

    def attention(self, source: Tensor, target: Tensor, raw: bool = False) -> AttentionWeights:
        mask, written = source != self.pad, target != self.pad
        weights: Weights = "raw" if raw else True
        encoded = self.encode(source, mask, weights)
        outputs = self.run(encoded, self.shifted(target), weights=weights)
        return AttentionWeights(
            weights={
                "encoder": encoded.attention,
                "self": outputs.own,
                "cross": outputs.crossed,
            },
            views=self.views(source, target),
            rows={"encoder": mask, "self": written, "cross": written},
        )

    def views(self, source: Tensor, target: Tensor) -> dict[Site, AttentionView]:
        """Where the queries and keys of each site stand while ``target`` is written."""
        at = self._of_source(source, source != self.pad)
        output = self._of_output(self.shifted(target))
        return {
            "encoder": AttentionView("encoder", at, at, self.stream),
            "self": AttentionView("self", output, output, True),
            "cross": AttentionView("cross", output, at),
        }

    # What it takes

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.parameters(), betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )

    @property
    def matrices(self) -> list[Tensor]:
        """Those of its attentions and feed-forward parts."""
        parts = self.named_modules()
        return [p.weight for name, p in parts if isinstance(p, nn.Linear) and "layers." in name]

    # Beside the weights

    def hub_config(self) -> dict[str, Any]:
        options, tokens = self.options, self.tokens
        rows = tokens.rows[0] if len(tokens.rows) == 1 else list(tokens.rows)
        return {
            **super().hub_config(),
            "delimiter_ids": list(tokens.delimiters),
            **({"row_id": rows} if rows else {}),
            **({"post_norm": True} if self.scale != 1 else {}),
            "line_bias": self.lines.to_dict() if self.lines else None,
            **plugins.of_model(options.schemes),
            **({} if self.stream else {"own_schemes": None}),  # of the format; always unset now
        }

    @classmethod
    def from_hub_config(cls, config: Mapping[str, Any], **options: Any) -> Self:
        plugins.check_model(config)
        if config.get("own_schemes"):
            raise UsageError("its sites have position schemes of their own: train again")
        if config.get("post_norm"):
            options["post_norm"] = True
        model = super().from_hub_config(config, **options)
        if config["line_bias"]:
            model.set_lines(LineBias.from_dict(config["line_bias"]))
        return model


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

    def encode(
        self, source: Tensor, mask: Tensor | None = None, weights: Weights = False
    ) -> Encoded:
        """Read the source ``(b, s)``; ``mask``: what is not padding.

        Its places are numbered once, with as many behind it for the output; later ones go on by
        one. Where its tokens see themselves alone, the states of each token are made once.
        """
        at = self._of_source(source, source.ne(self.pad) if mask is None else mask)
        scheme, double = self.scheme, torch.arange(2 * at.size, device=source.device)[None]
        numbers, drawn = scheme.renumber(double, 2 * at.length), scheme.starts(at)
        at = replace(at, start=drawn)
        placed = replace(at, place=numbers[:, : at.size])
        at = at if self._lines is None else at.alike
        blocks = self.layers[:-1]
        if self._alone and not weights:
            ids = torch.arange(self.tokens.size, device=source.device)[:, None]
            states, seen = self._through(blocks, self.embed(ids), source_coords(ids[:1]), weights)
            states = [state[:, 0][source] for state in states]
        else:
            x = self.dropout(scheme.embed(self._embedded(source), placed))
            states, seen = self._through(blocks, x, at, weights)
        return Encoded(tuple(states), at, 0, drawn, numbers, seen)

    @property
    def _alone(self) -> bool:
        """Do states of the source depend on the token alone?"""
        if type(self.scheme).embed is not Scheme.embed or (self.training and self.options.dropout):
            return False
        inner = () if self._lines is None else self._lines.sites.get("encoder", ())
        alone = all(head == (ALONE,) for heads in inner for head in heads)
        every_layer = len(inner) == self.attention_layers["encoder"]
        return alone and every_layer and self.path != "dense"
