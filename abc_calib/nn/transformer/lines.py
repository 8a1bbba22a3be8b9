"""What lines do in a Transformer: which attention follows which, and what follows from them.

Lines keep the names that they have with an encoder in a stream too: those of ``cross`` lead to the
source, those of ``self`` to the output, and a head may have either.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import nn

from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import OptionError, UsageError
from abc_calib.geometry import SITES, LineBias, Site
from abc_calib.geometry.window import window_bias
from abc_calib.nn.base import Model
from abc_calib.nn.lines import LineGather
from abc_calib.nn.positions import Scheme, check_positions
from abc_calib.nn.transformer.attention import Attention


class AlongLines(Model):
    """Base of the Transformer."""

    options: Any
    embed: nn.Embedding
    layers: nn.ModuleList
    encoder: Any

    def __init__(self, options: Any, tokens: TokenIds):
        super().__init__(options, tokens)
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
        window = getattr(options, "attention_window", None)
        if window and data is not None and data.no_window:
            raise OptionError("attention_window", window, data.no_window)
        return options

    def own_lines(self, data: Data) -> LineBias | None:
        window = getattr(self.options, "attention_window", None)
        if window is None:
            return None
        layout, layers = data.layout_at(1), self.attention_layers
        return window_bias(window, layers, self.options.heads, len(layout.parts), layout.stride)

    @property
    @abstractmethod
    def positions(self) -> Scheme:
        """The position scheme of all sites."""

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
                if (module_lines := self._lines_of(site, layer)) is not None:
                    module.lines[site] = module_lines

    def _lines_of(self, site: Site, layer: int) -> LineGather | None:
        """The lines of an attention, by the site of its last view."""
        together: tuple[Site, ...] = ("cross", "self") if self.stream else ("self",)
        sites = together if site == "self" else (site,)
        if self._lines is None or (self.stream and site == "cross"):
            return None
        heads = {s: self._lines.heads(s, layer) for s in sites}
        if any(h is None for h in heads.values()):
            return None
        return LineGather({s: h for s, h in heads.items() if h}, self._lines.off_line_bias)

    @property
    def line_sets(self) -> list[LineGather | None]:
        """The lines of every attention that writes; None for one without."""
        sites: tuple[Site, ...] = ("self",) if self.stream else ("self", "cross")
        return [module.lines.get(site) for site in sites for module in self._attending(site)]

    def set_path(self, path: str) -> None:
        """Compute restricted heads by ``auto``, ``dense`` or ``lines``: see ``Attention``."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.path = path

    @property
    def path(self) -> str:
        """How all its attentions compute restricted heads."""
        return self._attending("self")[0].path

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        width, inner = self.options.width, self.attention_layers["encoder"]
        wide = width + self.options.feedforward
        dense = [module.lines.get("encoder") for module in self._attending("encoder")]
        dense = [lines for lines in (*dense, *self.line_sets) if not (lines and lines.restricted)]
        most = keys + steps if self.stream else max(keys, steps)
        scores = 12 * self.options.heads * (steps * most + (keys * keys if inner else 0))
        scores = scores if dense else 0
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
