"""A small Transformer with pluggable positions and calibrated lines.

Pre-norm blocks, or post-norm with scaled embeddings as in Vaswani et al. 2017. A source is read
once (``encode``), then the output is written (``run``) on what was read and on the output so far.
An encoder of 0 layers passes the embeddings straight to cross-attention, as the public code of
Duan & Shi does. The kind without an encoder is in ``decoder``: a *stream*, source and output in one
sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from abc_calib import plugins
from abc_calib.config import TransformerOptions
from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import OptionError, UsageError
from abc_calib.geometry import SITES, LineBias, Site
from abc_calib.geometry.coords import AttentionView, Coords, output_coords, source_coords
from abc_calib.geometry.window import window_bias
from abc_calib.nn.attend import MASKED, weights_of
from abc_calib.nn.base import AttentionWeights, Decoded, Model, greedy
from abc_calib.nn.lines import LineGather
from abc_calib.nn.positions import Scheme, build_scheme, check_positions
from abc_calib.nn.transformer.attention import Attention, Block, Cache, Encoder, Scores, draw

STACK = {
    **{name: name for name in ("decoder_layers", "heads", "feedforward", "dropout", "scheme")},
    "d_model": "width",
}
"""Options of both kinds, by their names in ``hub_config``."""


@dataclass(frozen=True)
class Encoded:
    """A source that was read.

    ``memory``: what each block reads of it, ``(b, s, d)``; of a stream, its states before the
    block. ``at``: where its tokens stand. ``phase``: from where cyclic positions count. ``drawn``:
    what a scheme drew for the output. ``numbers (b, n)``: of a stream, what a scheme calls its
    positions.
    """

    memory: Sequence[Tensor]
    at: Coords
    phase: int = 0
    drawn: Tensor | None = None
    numbers: Tensor | None = None


class Transformer(Model):
    """The model with an encoder; ``DecoderOnly`` is its other kind."""

    options_type: ClassVar[Any] = TransformerOptions
    hub_names = ("abc_transformer", "AbcTransformer")
    optimizers: ClassVar[tuple[str, ...]] = ("adam", "muon")
    hub_options: ClassVar[dict[str, str]] = {
        **STACK,
        **{"encoder_layers": "encoder_layers", "cyclic": "cyclic"},
    }

    hub_extras = ("delimiter_ids", "row_id", "post_norm", "line_bias", "plugins", "own_schemes")
    options: Any
    encoder: Any

    def __init__(self, options: Any, tokens: TokenIds):
        super().__init__(options, tokens)
        self._lines: LineBias | None = None
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

    def _make_scheme(self) -> None:
        """Make the position scheme, for the sites that have layers, and the encoder with it."""
        options = self.options
        sites = SITES if options.encoder_layers else SITES[1:]
        scheme = build_scheme(options.scheme, options.width, options.heads, sites)
        self.encoder = Encoder(options, scheme)

    @classmethod
    def resolve_defaults(cls, options: Any, data: Data | None = None) -> Any:
        if options.width % options.heads:
            raise UsageError(
                f"width {options.width} is not divisible by {options.heads} heads: "
                "choose a width that is a multiple of the heads"
            )
        if data is not None and options.scheme == "coupled" and data.coupling != "none":
            scheme = f"coupled:rows={data.coupling}"
            options = options.model_copy(update={"scheme": scheme})
        check_positions(options, data.layout_at(1) if data is not None else None)
        window = getattr(options, "attention_window", None)
        if window and data is not None and data.no_window:
            raise OptionError("attention_window", window, data.no_window)
        return options

    @property
    def positions(self) -> Scheme:
        """The position scheme of all sites."""
        return self.encoder.scheme

    # The pass

    def encode(self, source: Tensor, mask: Tensor | None = None, scores: Scores = None) -> Encoded:
        """Read the source ``(b, s)``; ``mask``: what is not padding.

        Cyclic positions of a source are counted from its last token, as answers are written from
        the last digit on. They are all alike, but short problems do not show it: the fifth digit of
        six is the only one far from both ends, and would be seen in one phase alone. So in every
        step of training they start in a random phase, the same for source and output; else in 0.
        """
        at, scheme, phase = self.of_source(source, mask), self.positions, 0
        if self.period:
            phase = int(torch.randint(self.period, ())) if self.training else 0
            at = replace(at, place=(at.length - 1 - at.position + phase) % self.period)
        numbers, drawn = scheme.renumber(at.place, at.length), scheme.starts(at)
        at = replace(at, start=drawn)
        x = self.embedded(source, replace(at, place=numbers))
        at = at if self._lines is None else at.alike
        *_, last = self.through(self.encoder.layers, x, at, scores)
        return Encoded((self.encoder.norm(last),) * len(self.layers), at, phase, drawn)

    def embedded(self, ids: Tensor, at: Coords) -> Tensor:
        """What the first layer reads of tokens that stand ``at`` these coordinates."""
        x = self.embed(ids)
        return self.dropout(self.positions.embed(x if self.scale == 1 else self.scale * x, at))

    def through(
        self, blocks: Iterable[nn.Module], x: Tensor, at: Coords, scores: Scores = None
    ) -> list[Tensor]:
        """The source before and after each of ``blocks``."""
        states, view = [x], AttentionView("encoder", at, at, causal=self.stream)
        for block in blocks:
            states.append(block(states[-1], [(view,)], self.positions, scores=scores))
        return states

    def run(
        self, encoded: Encoded, read: Tensor, cache: Cache | None = None, scores: Scores = None
    ) -> Tensor:
        """Logits ``(b, t, v)`` of what follows ``read (b, t)``, the tokens in ``cache`` before."""
        queries = self.placed(read, encoded, cache)
        x = self.embedded(read, replace(queries, place=self.numbered(queries, encoded)))
        output = (
            AttentionView("self", queries, queries, True) if cache is None else cache.view(queries)
        )
        crossed = AttentionView("cross", queries, encoded.at)
        calls: Sequence[Sequence[AttentionView]] = [(output,), (crossed,)]
        if self.stream:
            calls = [(crossed, replace(output, first=encoded.at.size))]
        for block, memory in zip(self.layers, encoded.memory, strict=True):
            x = block(x, calls, self.positions, memory, cache, scores)
        return self.head(self.norm(x))

    def placed(self, read: Tensor, encoded: Encoded, cache: Cache | None = None) -> Coords:
        """Where the tokens stand that the decoder reads, with the positions that schemes get."""
        at = self.of_output(read, None if cache is None else cache.at)
        at = at if self._lines is None else at.alike
        place, length = at.position, encoded.at.length
        if self.period:
            place = (place + encoded.phase) % self.period
        if self.stream:
            place = length + place
        return replace(at, place=place, length=length, start=encoded.drawn)

    def numbered(self, queries: Coords, encoded: Encoded) -> Tensor:
        """What a scheme calls the places of an output."""
        return self.positions.renumber(queries.place, queries.length)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.run(self.encode(source), self.shifted(target))

    @torch.inference_mode()
    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        device, source = source.device, source.to(self.device)
        encoded, cache = self.encode(source), Cache()

        def write(tokens: Tensor, _: int) -> Tensor:
            return self.run(encoded, tokens[:, None], cache)[:, -1]

        return Decoded(greedy(self, source, steps, write).to(device))

    def attention(self, source: Tensor, target: Tensor, raw: bool = False) -> AttentionWeights:
        """As of any model; ``raw``: the scores before softmax, nan at masked keys."""
        scores = list[Tensor]()
        encoded = self.encode(source, scores=scores)
        inner, s = len(scores), source.shape[1]
        self.run(encoded, self.shifted(target), scores=scores)
        weights = [x.masked_fill(x == MASKED, math.nan) if raw else weights_of(x) for x in scores]
        output, crossed = weights[inner::2], weights[inner + 1 :: 2]
        if self.stream:
            output, crossed = (
                [x[..., keys] for x in weights[inner:]] for keys in (slice(s, None), slice(s))
            )
        mask, written = source != self.pad, target != self.pad
        return AttentionWeights(
            {"encoder": (*weights[:inner],), "self": (*output,), "cross": (*crossed,)},
            views=self.views(source, target),
            rows={"encoder": mask, "self": written, "cross": written},
        )

    # Where tokens stand

    def of_source(self, source: Tensor, mask: Tensor | None = None) -> Coords:
        """Where the tokens of sources stand; ``mask``: what is not padding."""
        mask = source.ne(self.pad) if mask is None else mask
        return source_coords(source, self.tokens.delimiters, mask=mask, words=self.tokens.words)

    def of_output(self, read: Tensor, after: Coords | None = None) -> Coords:
        """Where the tokens stand that the decoder reads ``after`` others."""
        return output_coords(read, self.tokens.rows, after)

    def views(self, source: Tensor, target: Tensor) -> dict[Site, AttentionView]:
        """Where the queries and keys of each site stand while ``target`` is written."""
        at, output = self.of_source(source), self.of_output(self.shifted(target))
        return {
            "encoder": AttentionView("encoder", at, at, self.stream),
            "self": AttentionView("self", output, output, True),
            "cross": AttentionView("cross", output, at),
        }

    # Lines

    @property
    def attention_layers(self) -> dict[Site, int]:
        """How many layers of attention each site has; a stream's last block reads no source."""
        layers = self.options.decoder_layers
        inner = layers - 1 if self.stream else self.options.encoder_layers
        return {"encoder": inner, "self": layers, "cross": layers}

    def attending(self, site: Site) -> list[Attention]:
        """The modules that attend at a site, layer by layer."""
        if site == "encoder":
            return [block.attention for block in self.encoder.layers]
        return [getattr(block, f"{site}_attention") for block in self.layers]

    def own_lines(self, data: Data) -> LineBias | None:
        window = getattr(self.options, "attention_window", None)
        if window is None:
            return None
        layout, layers = data.layout_at(1), self.attention_layers
        return window_bias(window, layers, self.options.heads, len(layout.parts), layout.stride)

    @property
    def lines(self) -> LineBias | None:
        return self._lines

    def set_lines(self, lines: LineBias | None) -> None:
        if lines is not None:
            if lines.stream != self.stream:
                kinds = ["a model with an encoder", "a decoder-only model"]
                ours, theirs = kinds[self.stream], kinds[lines.stream]
                raise UsageError(f"the bias is of {theirs}, and this is {ours}: calibrate it")
            lines.check(self.attention_layers, self.options.heads)
        self._lines = lines
        for sites in self.together:
            for layer, module in enumerate(self.attending(sites[-1])):
                module.lines.pop(sites[-1], None)
                heads = {site: lines.heads(site, layer) if lines else None for site in sites}
                if lines and all(x is not None for x in heads.values()):
                    gather = LineGather({s: x for s, x in heads.items() if x}, lines.off_line_bias)
                    module.lines[sites[-1]] = gather

    @property
    def together(self) -> list[tuple[Site, ...]]:
        """The sites whose lines share a softmax: of a stream those of the output."""
        return [("encoder",), ("cross", "self")] if self.stream else [(site,) for site in SITES]

    def set_path(self, path: str) -> None:
        """Compute restricted heads by ``auto``, ``dense`` or ``lines``: see ``Attention``."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.path = path

    @property
    def path(self) -> str:
        """How all its attentions compute restricted heads."""
        return self.attending("self")[0].path

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        width, inner = self.options.width, self.attention_layers["encoder"]
        wide = width + self.options.feedforward
        lines = [x.lines.get(s[-1]) for s in self.together for x in self.attending(s[-1])]
        most = keys + steps if self.stream else max(keys, steps)
        scores = 12 * self.options.heads * (steps * most + (keys * keys if inner else 0))
        scores = 0 if all(x and x.restricted for x in lines) else scores
        # what a token leaves: keys and values of each layer, and its states (a stream has each's)
        kept = (3 * len(self.layers) + 4) * width * (keys + steps)
        passed = steps + (keys if inner else 0)  # four were measured of a whole source
        return batch * (4 * kept + 32 * passed * wide + scores)

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
