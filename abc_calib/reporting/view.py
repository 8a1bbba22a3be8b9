"""One site of a run as heatmaps: which blocks each layer has, and how they are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from abc_calib.calibration.fits.base import LineRow
from abc_calib.config import FigureOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import Heads, LineBias, Site
from abc_calib.reporting.attention import LAST, KeptLines, Problem, dense, line_sum, note_of
from abc_calib.reporting.heatmaps import ACROSS, MOST_ACROSS, Block, Marks, heatmaps, on_pages

PARTS = {"encoder": "encoder self", "self": "decoder self", "cross": "cross"}


@dataclass(frozen=True)
class Lines:
    """What a calibrated run draws besides its attention."""

    bias: LineBias
    table: KeptLines
    near: Problem
    far: Problem


@dataclass(frozen=True)
class View:
    """One site of a run: its ``attention (layers, h, i, j)`` and the names of rows and keys."""

    task: str
    site: Site
    attention: np.ndarray
    rows: Sequence[str]
    keys: Sequence[str]
    what: str
    options: FigureOptions
    lines: Lines | None = None
    marks: Marks | None = None

    def check(self) -> None:
        """``UsageError`` for a layer or head that it does not have."""
        for name, given, count in (
            ("layer", self.options.layer, len(self.attention)),
            ("head", self.options.head, self.attention.shape[1]),
        ):
            if given is not None and given >= count:
                raise UsageError(
                    f"--{name} {given}: {self.site}-attention has {name}s 0 to {count - 1}"
                )

    @property
    def layers(self) -> Sequence[int]:
        return range(len(self.attention)) if self.options.layer is None else [self.options.layer]

    @property
    def heads(self) -> list[int]:
        return (
            [*range(self.attention.shape[1])] if self.options.head is None else [self.options.head]
        )

    @property
    def stem(self) -> str:
        """What the names of its files begin with, apart from the kind of figure."""
        return "" if self.options.input is None else "input-"

    @property
    def across(self) -> int:
        """Heads side by side."""
        return ACROSS if self.lines is None else MOST_ACROSS

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Each layer's figures with the names of their files: several where heads fill a page."""
        kind = self.stem or ("bias-" if self.lines is not None else "attention-")
        head = "" if self.options.head is None else f"-head{self.options.head}"
        panel = "" if self.options.panel is None else f"-{self.options.panel}"
        for layer in self.layers:
            title, blocks = self.blocks(layer)
            parts = on_pages(blocks, self.across, self.options.inches)
            for part in parts:
                some = f"-heads{part.start}-{part.stop - 1}" if len(parts) > 1 else ""
                figure = heatmaps(
                    [b.of(part) for b in blocks], title, self.across, self.options.inches
                )
                yield f"{kind}{self.site}-layer{layer}{head}{some}{panel}", figure

    @property
    def arrays(self) -> dict[str, Any]:
        """What is drawn, of all layers and heads."""
        found: dict[str, Any] = {"attention": self.attention}
        if self.lines is not None:
            layers = range(len(self.attention))
            parts = [self._fit_and_bias(self.lines, layer) for layer in layers]
            found["fit"], found["bias"] = (np.stack(part) for part in zip(*parts, strict=True))
            rows, keys = self.lines.far.labels(self.site)
            found |= {"bias_row_labels": np.array(rows), "bias_key_labels": np.array(keys)}
        return {**found, "row_labels": np.array(self.rows), "key_labels": np.array(self.keys)}

    def figure(self, layer: int) -> Figure:
        """One figure of all heads of a layer."""
        title, blocks = self.blocks(layer)
        return heatmaps(blocks, title, self.across, self.options.inches)

    def blocks(self, layer: int) -> tuple[str, list[Block]]:
        """A title, and what is drawn of a layer: attention, then lines and bias if it has some."""
        name = self.task.replace("_", " ").capitalize()
        title = f"{name}, {PARTS[self.site]}-attention, layer {layer}"
        chosen, lines, only = self.heads, self.lines, self.options.panel
        shown = self._visible(self.attention[layer])[chosen]
        near = Block(shown, self.rows, self.keys, numbers=chosen, marks=self.marks)
        if lines is None:
            return f"{title}: {self.what}" if self.options.title else "", [near]
        fit, bias = self._fit_and_bias(lines, layer)
        kept, open_ = self.kept(layer), {*lines.bias.transparent()}
        shared = ", found in the last layer" if (self.site, LAST, 0) in lines.table else ""
        both: dict[str, Any] = {"numbers": chosen}
        both["transparent"] = [(self.site, layer, head) in open_ for head in chosen]
        fitted = Block(
            self._visible(fit)[chosen],
            self.rows,
            self.keys,
            heading=f"sum of the kept lines{shared}",
            notes=[note_of(kept[head]) for head in chosen],
            additive=False,
            **both,
        )
        heading = f"bias, {lines.far.digits} digits"
        blocks = {
            "attention": replace(near, heading=self.what, additive=False),
            "fit": fitted,
            "bias": Block(bias[chosen], *lines.far.labels(self.site), heading=heading, **both),
        }
        drawn = [
            replace(block, heading=f"({letter}) {block.heading}")
            for letter, block in zip("abc", blocks.values(), strict=True)
        ]
        return title if self.options.title else "", [blocks[only]] if only else drawn

    def kept(self, layer: int) -> list[list[LineRow]]:
        """The kept lines of each head, or those of the last layer where they serve all."""
        table = self.lines.table if self.lines else {}
        at = LAST if (self.site, LAST, 0) in table else layer
        return [table.get((self.site, at, head), []) for head in range(self.attention.shape[1])]

    def lines_of(self, layer: int) -> Heads:
        """The lines of each head, of those without none."""
        found = self.lines.bias.heads(self.site, layer) if self.lines else None
        return found or ((),) * self.attention.shape[1]

    def _fit_and_bias(self, lines: Lines, layer: int) -> tuple[np.ndarray, np.ndarray]:
        heads = self.lines_of(layer)
        fit = line_sum(heads, self.kept(layer), lines.near.view(self.site))
        off, elsewhere = lines.bias.off_line_bias, lines.bias.elsewhere(self.site, layer)
        return fit, dense(heads, lines.far.view(self.site), off, elsewhere)

    def _visible(self, matrices: np.ndarray) -> np.ndarray:
        """``matrices (h, i, j)`` with -inf on keys that their row cannot see."""
        if self.site != "self":
            return matrices
        return np.where(np.tri(*matrices.shape[1:]) > 0, matrices, -np.inf)
