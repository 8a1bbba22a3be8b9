"""What lines do in a Transformer: which attention follows which, and what follows from them.

Lines keep the names that they have with an encoder in a stream too: those of ``cross`` lead to the
source, those of ``self`` to the output, and a head may have either.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn

from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import ALONE, SITES, LineBias, Site
from abc_calib.geometry.window import window_bias
from abc_calib.memory import lacking
from abc_calib.nn.base import Model
from abc_calib.nn.lines import LineGather
from abc_calib.nn.positions import Scheme, check_positions
from abc_calib.nn.transformer.attention import Attention
from abc_calib.nn.transformer.known import window_period
from abc_calib.nn.transformer.windows import Full, Windows

BYTES_PER_TOKEN = 80
"""What looking up a token takes at its peak, with where it stands and the numbers of its states."""
TABLED_AT_ONCE = 2**19
"""Tokens of sources and outputs that are looked up at once."""


class AlongLines(Model):
    """Base of the Transformer. ``path`` is that of ``set_path``.

    ``windows``: of a model that is ``frozen``, all rows it has met.
    """

    options: Any
    embed: nn.Embedding
    layers: nn.ModuleList
    encoder: Any
    windows: Windows | None = None

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
        self.windows, self._lines = None, lines
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

    @property
    def by_token(self) -> bool:
        """Of a stream: do states of the source depend on the token alone, each made once?"""
        if not self.stream or type(self.positions).embed is not Scheme.embed:
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
    def on_lines(self) -> bool:
        """Does every head of the decoder attend along lines and nowhere else?"""
        return all(lines is not None and lines.restricted for lines in self.line_sets)

    def exact(self) -> Self:
        """The model that decodes: on lines, a copy in float64, which certificates are about.

        Its few keys a token are quick in any precision, and its errors can be bounded.
        """
        is_exact = not self.on_lines or self.embed.weight.dtype == torch.float64
        return self if is_exact else super().exact()

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        if self.tabled:
            return BYTES_PER_TOKEN * batch * (keys + steps)
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

    # By the table of windows

    def frozen(self, dense: bool = False) -> Self:
        if dense:
            self.set_path("layers")
        period = window_period(self)
        if isinstance(period, str) or self.path != "auto" or self.windows is not None:
            return self
        model = self.exact()
        model = (copy.deepcopy(model) if model is self else model).cpu()
        try:
            model.windows = Windows(model, period)
        except Full:
            return self
        return model

    @property
    def tabled(self) -> bool:
        """Are rows looked up?"""
        return self.windows is not None and self.windows.open and self.path == "auto"

    def _by_table(self, look: Callable[[Windows], Tensor], keys: int, steps: int) -> Tensor | None:
        """What ``look`` finds in the table of windows; None without one, or where it is given up.

        ``AbcError`` where the one way does not pay and the other does not fit the memory.
        """
        if self.windows is None or not self.tabled:
            return None
        try:
            return look(self.windows)
        except Full as full:
            if shortage := lacking(self.memory_needed(1, keys, steps)):
                raise AbcError(
                    f"{full}, too many to keep, and a source of {keys} tokens through all layers "
                    f"needs {shortage}: use a shorter one"
                ) from None
            return None

    def chunks(self, rows: Tensor, tokens: int) -> Iterator[Tensor]:
        at_once = TABLED_AT_ONCE if self.tabled else self.tokens_at_once
        yield from rows.split(max(1, at_once // max(1, tokens))) if len(rows) else ()

    def _parts(self, source: Tensor, steps: int) -> list[Any]:
        """Samples to put through all layers together: where a table is given up, fewer than came.

        A table takes more of them at once.
        """
        if self.windows is None or len(source) < 2:
            return [slice(None)]
        return [*self.chunks(torch.arange(len(source)), source.shape[1] + steps)]

    def best(self, source: Tensor, target: Tensor) -> Tensor:
        sizes = source.shape[1], target.shape[1]
        tokens = self._by_table(lambda table: table.best(source, target), *sizes)
        return super().best(source, target) if tokens is None else tokens


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
