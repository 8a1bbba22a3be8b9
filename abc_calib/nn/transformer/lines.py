"""What lines do in a Transformer: which attention follows which, and what follows from them.

Lines keep the names that they have with an encoder in a stream too: those of ``cross`` lead to the
source, those of ``self`` to the output, and a head may have either.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import torch
from torch import nn

from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import ALONE, SITES, LineBias, Site
from abc_calib.geometry.window import window_bias
from abc_calib.nn.base import Model
from abc_calib.nn.lines import Lines
from abc_calib.nn.positions import Scheme, check_positions
from abc_calib.nn.transformer.attention import Attention
from abc_calib.nn.transformer.cache import KeptRows, kept_rows


class AlongLines(Model):
    """Base of ``Tabled``. ``path`` is that of ``set_path``."""

    options: Any
    embed: nn.Embedding
    layers: nn.ModuleList
    encoder: Any

    def __init__(self, options: Any, tokens: TokenIds):
        super().__init__(options, tokens)
        self.path = "auto"
        self._lines: LineBias | None = None

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
        if data is not None and (window := getattr(options, "attention_window", None)):
            data.check_window(window)
        return options

    def own_lines(self, data: Data) -> LineBias | None:
        window = getattr(self.options, "attention_window", None)
        if window is None:
            return None
        layout, layers = data.layout_at(1), self.attention_layers
        return window_bias(window, layers, self.options.heads, len(layout.parts), layout.stride)

    @abstractmethod
    def scheme_of(self, site: Site) -> Scheme:
        """The positions of a site: ``encoder`` and ``self`` also embed what they read."""

    @property
    def attention_layers(self) -> dict[Site, int]:
        """How many layers of attention each site has; a stream's last block reads no source."""
        layers = self.options.decoder_layers
        inner = layers - 1 if self.stream else self.options.encoder_layers
        return {"encoder": inner, "self": layers, "cross": layers}

    def _attending(self, site: Site) -> list[Attention]:
        """The modules that attend at a site, layer by layer."""
        inner = site == "encoder" and not self.stream
        name = "attention" if inner or self.stream else f"{site}_attention"
        blocks = self.encoder.layers if inner else self.layers
        return [getattr(block, name) for block in blocks][: self.attention_layers[site]]

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
            if self.stream:
                _check_causal(lines)
        self._lines = lines
        for site in SITES:
            for layer, module in enumerate(self._attending(site)):
                module.lines.pop(site, None)
                if (found := self._lines_of(site, layer)) is not None:
                    module.lines[site] = found

    def _lines_of(self, site: Site, layer: int) -> Lines | None:
        """The lines of an attention, by the site of its last view."""
        together: tuple[Site, ...] = ("cross", "self") if self.stream else ("self",)
        sites = together if site == "self" else (site,)
        if self._lines is None or (self.stream and site == "cross"):
            return None
        heads = {one: self._lines.heads(one, layer) for one in sites}
        if any(one is None for one in heads.values()):
            return None
        return Lines({s: one for s, one in heads.items() if one}, self._lines.off_line_bias)

    @property
    def line_sets(self) -> list[Lines | None]:
        """The lines of every attention that writes; None for one without."""
        sites: tuple[Site, ...] = ("self",) if self.stream else ("self", "cross")
        return [module.lines.get(site) for site in sites for module in self._attending(site)]

    @property
    def by_token(self) -> bool:
        """Of a stream: do states of the source depend on the token alone, each made once?"""
        if not self.stream or type(self.scheme_of("self")).embed is not Scheme.embed:
            return False
        inner = () if self._lines is None else self._lines.sites.get("encoder", ())
        alone = all(head == (ALONE,) for heads in inner for head in heads)
        dropped = self.training and self.options.dropout
        read = len(inner) == self.attention_layers["encoder"]
        return read and alone and not dropped and self.path != "dense"

    def set_path(self, path: str) -> None:
        """How restricted heads are computed: ``auto``, ``dense`` or ``lines``.

        ``layers``: as ``auto``, but never by a table of windows.
        """
        self.path = path
        for module in self.modules():
            if isinstance(module, Attention):
                module.path = path

    @property
    def kept_rows(self) -> KeptRows | None:
        """The output tokens that later ones still read, or None where any may be read."""
        every = [module.lines.get("self") for module in self._attending("self")]
        single = all(lines is not None and lines.single for lines in every)
        scheme = self.scheme_of("self")
        if self.path == "dense" or scheme.has_value_term or (scheme.has_score_bias and not single):
            return None
        return kept_rows(every, bool(self.tokens.rows))

    @property
    def on_lines(self) -> bool:
        """Does every head of the decoder attend along lines and nowhere else?"""
        return all(lines is not None and lines.restricted for lines in self.line_sets)

    def exact(self) -> Self:
        """The model that decodes: on lines, a copy in float64, which certificates are about.

        Its few keys a token are quick in any precision, and its errors can be bounded.
        """
        known = not self.on_lines or self.embed.weight.dtype == torch.float64
        return self if known else super().exact()

    def memory_needed(self, batch: int, keys: int, steps: int, training: bool = False) -> int:
        width, inner = self.options.width, self.attention_layers["encoder"]
        wide = width + self.options.feedforward
        dense = [module.lines.get("encoder") for module in self._attending("encoder")]
        dense = [lines for lines in (*dense, *self.line_sets) if not (lines and lines.restricted)]
        most = keys + steps if self.stream else max(keys, steps)
        scores = 12 * self.options.heads * (steps * most + (keys * keys if inner else 0))
        scores = scores if dense else 0
        if training:
            layers = 1 + inner + len(self.layers)
            return batch * layers * (20 * (keys + steps) * wide + scores // 8)
        # what a token leaves: keys and values of each layer, and its states (a stream has each's)
        kept = (3 * len(self.layers) + 4) * width * (keys + steps)
        passed = steps + (keys if inner else 0)  # four were measured of a whole source
        return batch * (4 * kept + 32 * passed * wide + scores)


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
