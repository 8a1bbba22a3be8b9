"""What both kinds of Transformer share: cached decoding, how rows are written.

Pre-norm layers with pluggable positions. A source is read once (``encode``), then rows of the
output are written (``run``) on what was read and on the rows so far.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_calib import plugins
from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.nn.base import Attention, Decoded
from abc_calib.nn.frames import Frame, Grid
from abc_calib.nn.optimizers import Adam, Optimizer
from abc_calib.nn.padding import EVERY, Unpadded
from abc_calib.nn.positions import Coordinates, Scheme, check_positions
from abc_calib.nn.transformer import rows
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.decoding import in_passes, token_by_token
from abc_calib.nn.transformer.encoder import Encoded, delimiter_positions
from abc_calib.nn.transformer.lines import AlongLines
from abc_calib.nn.transformer.rows import Opened

ROWS_AT_ONCE = 4096
"""Rows of one output scored at once, where lines bound what a row reads."""


@dataclass(frozen=True)
class Outputs:
    """Logits ``(b, t, v)`` and, if asked for, the weights ``(b, h, i, j)`` of each layer."""

    logits: Tensor
    own: tuple[Tensor, ...] = ()
    crossed: tuple[Tensor, ...] = ()


class Autoregressive(AlongLines):
    """A Transformer that writes its output token by token."""

    #: options that have the same name in ``hub_config``
    same_names: tuple[str, ...] = ("decoder_layers", "heads", "feedforward", "dropout", "scheme")
    optimizers: ClassVar[tuple[str, ...]] = ("adam", "muon")
    #: cyclic positions: what a scheme is told of positions, modulo this
    period: int | None = None
    embed: nn.Embedding
    layers: nn.ModuleList
    norm: nn.LayerNorm
    dropout: nn.Dropout
    head: nn.Linear

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
        return options

    # The pass

    def run(
        self, encoded: Encoded, read: Tensor, cache: Cache | None = None, weights: bool = False
    ) -> Outputs:
        """What is written after ``read (b, t)``, the rows in ``cache`` before it."""
        outputs = self.draft(encoded, read, cache, weights)
        if cache is not None:
            cache.settle(read.shape[1], read.shape[1])
        return outputs

    def draft(
        self,
        encoded: Encoded,
        read: Tensor,
        cache: Cache | None = None,
        weights: bool = False,
        kept: Unpadded = EVERY,
    ) -> Outputs:
        """The same, the new rows of the cache still to be settled.

        ``kept``: the rows whose logits ``(n, v)`` are computed, where it leaves some out.
        """
        frames = self._frames(encoded, read, cache, kept)
        x = kept.unpad(self.dropout(self.read(encoded, read, frames["self"])))
        own: list[Any] = []
        crossed: list[Any] = []
        for number in range(len(self.layers)):
            x, seen, across = self.layer(number, x, encoded, frames, cache, weights)
            own.append(seen)
            crossed.append(across)
        logits = self.head(self.norm(x))
        return Outputs(logits, tuple(own), tuple(crossed)) if weights else Outputs(logits)

    @abstractmethod
    def encode(
        self,
        source: Tensor,
        mask: Tensor | None = None,
        weights: bool = False,
        kept: Unpadded = EVERY,
    ) -> Encoded:
        """The source ``(b, s)``, read; ``kept``: its tokens that are there, to leave out others."""

    @abstractmethod
    def read(self, encoded: Encoded, read: Tensor, frame: Frame) -> Tensor:
        """The embeddings ``(b, t, d)`` of what the decoder reads, in rows of ``frame``."""

    @abstractmethod
    def layer(
        self,
        number: int,
        x: Tensor,
        encoded: Encoded,
        frames: dict[Site, Frame],
        cache: Cache | None,
        weights: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """One layer on rows ``x (b, t, d)``; then what they saw of the output and the source."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        encoded, read = self.encode(source), self.shifted(target)
        kept = self.kept_rows if not self.training and read.shape[1] > ROWS_AT_ONCE else None
        if kept is None:
            return self.run(encoded, read).logits
        # in parts, so that the states of a very long output stay in the processor's cache
        cache = Cache(kept)
        parts = [self.run(encoded, part, cache).logits for part in read.split(ROWS_AT_ONCE, dim=1)]
        return torch.cat(parts, dim=1)

    def loss(self, source: Tensor, target: Tensor, teacher_forcing: bool = True) -> Tensor:
        wanted = target.ne(self.pad)
        encoded = self.encode(source, kept=Unpadded.of(source.ne(self.pad)))
        logits = self.draft(encoded, self.shifted(target), kept=Unpadded.of(wanted)).logits
        return F.cross_entropy(logits.flatten(0, -2), target[wanted])

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

    def _frames(
        self, encoded: Encoded, read: Tensor, cache: Cache | None, kept: Unpadded = EVERY
    ) -> dict[Site, Frame]:
        past, steps = cache.seen if cache is not None else 0, read.shape[1]
        grid = self._grid(read, cache)
        period, start = self.period, encoded.start
        places = torch.arange(past, past + steps, device=read.device)
        lengths, closes = encoded.lengths, encoded.delimiters
        if self.lines is not None and alike(lengths) and alike(closes):
            lengths, closes = lengths[:1], closes[:1]
        left_out = cache.left_out if cache is not None else (0, 0)
        given = places, past + steps, lengths, None, period, start, left_out, grid
        own = Frame("self", *given, kept)
        beside = places, encoded.size, lengths, closes, period, start, (0, 0), grid
        crossed = Frame("cross", *beside, kept, encoded.kept)
        return {"self": own, "cross": crossed}

    # What it takes

    def optimizer(self) -> Optimizer:
        return Adam(self.parameters(), betas=(0.9, 0.98), weight_decay=0.01)

    @property
    def matrices(self) -> list[Tensor]:
        """Those of its attentions and feed-forward parts."""
        parts = self.named_modules()
        return [p.weight for name, p in parts if isinstance(p, nn.Linear) and "layers." in name]

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        options = self.options
        layers = self.attention_layers
        # what a token leaves: keys and values of each layer, and its states (a stream has each's)
        kept = (3 * len(self.layers) + 4) * options.width * (keys + steps)
        passed = steps + (keys if layers["encoder"] else 0)  # four were measured of a whole source
        activations = kept + 8 * passed * (options.width + options.feedforward)
        return 4 * batch * activations + self._scores(batch, keys, steps)

    def memory_to_train(self, batch: int, keys: int, steps: int) -> int:
        options = self.options
        layers = 1 + self.attention_layers["encoder"] + len(self.layers)
        kept = 20 * batch * (keys + steps) * (options.width + options.feedforward)
        return self.memory_of_weights + layers * (kept + self._scores(batch, keys, steps) // 8)

    def _scores(self, batch: int, keys: int, steps: int) -> int:
        """Bytes of the scores of dense attention."""
        layers = [bias for biases in self.biases.values() for bias in biases]
        if all(bias is not None and bias.restricted for bias in layers):
            return 0
        most = keys + steps if self.stream else max(keys, steps)
        pairs = steps * most + (keys * keys if self.attention_layers["encoder"] else 0)
        return 12 * self.options.heads * batch * pairs

    # Beside the weights

    def hub_config(self) -> dict[str, Any]:
        options, tokens = self.options, self.tokens
        return {
            "vocab_size": tokens.size,
            "d_model": options.width,
            **{name: getattr(options, name) for name in self.same_names},
            "delimiter_ids": list(tokens.delimiters),
            **({} if tokens.row is None else {"row_id": tokens.row}),
            "line_bias": self.lines.to_dict() if self.lines else None,
            **plugins.of_model(options.schemes),
        }

    @classmethod
    def from_hub_config(cls, config: Mapping[str, Any]) -> Self:
        plugins.check_model(config)
        options = cls.options_of(config)
        pad, sos, eos = (config[f"{name}_token_id"] for name in ("pad", "bos", "eos"))
        delimiters = tuple(config["delimiter_ids"] or ())
        ids = TokenIds(config["vocab_size"], pad, sos, eos, delimiters, config.get("row_id"))
        model = cls(options, ids)
        if config["line_bias"]:
            model.set_lines(LineBias.from_dict(config["line_bias"]))
        return model

    @classmethod
    def options_of(cls, config: Mapping[str, Any], **more: Any) -> Any:
        """The options that a saved configuration names."""
        named = {name: config[name] for name in cls.same_names}
        kind: Any = cls.options_type
        return kind(width=config["d_model"], **named, **more)


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
