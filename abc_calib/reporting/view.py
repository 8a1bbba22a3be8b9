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
from abc_calib.reporting.heatmaps import ACROSS, MOST_ACROSS, Block, Marks, heatmaps

PARTS = {"encoder": "encoder self", "self": "decoder self", "cross": "cross"}


@dataclass(frozen=True)
class RunLines:
    """What a calibrated run draws besides its attention."""

    bias: LineBias
    table: KeptLines
    near: Problem
    far: Problem


@dataclass(frozen=True)
class SiteFigures:
    """One site of a run: its ``attention (layers, h, i, j)`` and the names of rows and keys."""

    task: str
    site: Site
    attention: np.ndarray
    rows: Sequence[str]
    keys: Sequence[str]
    what: str
    options: FigureOptions
    lines: RunLines | None = None
    marks: Marks | None = None

    def check(self) -> None:
        """Raise ``UsageError`` for a layer or head that it does not have."""
        layers, heads = self.attention.shape[:2]
        for name, number, count in (
            ("layer", self.options.layer, layers),
            ("head", self.options.head, heads),
        ):
            if number is not None and number >= count:
                raise UsageError(
                    f"--{name} {number}: {self.site}-attention has {name}s 0 to {count - 1}"
                )

    @property
    def layers(self) -> Sequence[int]:
        """The layers to draw."""
        return range(len(self.attention)) if self.options.layer is None else [self.options.layer]

    @property
    def heads(self) -> list[int]:
        """The heads to draw."""
        heads = [*range(self.attention.shape[1])]
        return heads if self.options.head is None else [self.options.head]

    @property
    def stem(self) -> str:
        """What the names of its files begin with, apart from the kind of figure."""
        return "" if self.options.input is None else "input-"

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Each layer's figure with the name of its file."""
        kind = self.stem or ("bias-" if self.lines is not None else "attention-")
        head = "" if self.options.head is None else f"-head{self.options.head}"
        panel = "" if self.options.panel is None else f"-{self.options.panel}"
        for layer in self.layers:
            yield f"{kind}{self.site}-layer{layer}{head}{panel}", self.figure(layer)

    @property
    def arrays(self) -> dict[str, Any]:
        """What is drawn, of all layers and heads."""
        arrays: dict[str, Any] = {"attention": self.attention}
        if self.lines is not None:
            parts = [self._fit_and_bias(self.lines, k) for k in range(len(self.attention))]
            arrays["fit"], arrays["bias"] = (np.stack(part) for part in zip(*parts, strict=True))
            rows, keys = self.lines.far.labels(self.site)
            arrays |= {"bias_row_labels": np.array(rows), "bias_key_labels": np.array(keys)}
        return {**arrays, "row_labels": np.array(self.rows), "key_labels": np.array(self.keys)}

    def figure(self, layer: int) -> Figure:
        """One figure of all heads of a layer."""
        name = self.task.replace("_", " ").capitalize()
        title = f"{name}, {PARTS[self.site]}-attention, layer {layer}"
        blocks = self._blocks(layer)
        if self.lines is None:
            title = f"{title}: {self.what}"
        across = ACROSS if self.lines is None else MOST_ACROSS
        return heatmaps(blocks, title if self.options.title else "", across, self.options.inches)

    def _blocks(self, layer: int) -> list[Block]:
        """What is drawn of a layer: attention, then lines and bias if it has some."""
        heads, lines, labels = self.heads, self.lines, (self.rows, self.keys)
        names: Any = {"names": [f"head {head}" for head in heads]}
        attention = self._visible(self.attention[layer])[heads]
        if lines is None:
            return [Block(attention, *labels, marks=self.marks, **names)]
        fit, bias = self._fit_and_bias(lines, layer)
        kept, transparent = self.kept(layer), {*lines.bias.transparent()}
        names["transparent"] = [(self.site, layer, head) in transparent for head in heads]
        shared = ", found in the last layer" if (self.site, LAST, 0) in lines.table else ""
        heading = f"sum of the kept lines{shared}"
        names["notes"] = [note_of(kept[head]) for head in heads]
        fitted = Block(self._visible(fit)[heads], *labels, heading=heading, additive=False, **names)
        heading = f"bias, {lines.far.digits} digits"
        del names["notes"]
        biased = Block(bias[heads], *lines.far.labels(self.site), heading=heading, **names)
        del names["transparent"]
        near = Block(attention, *labels, heading=self.what, additive=False, **names)
        panels = {"attention": near, "fit": fitted, "bias": biased}
        if self.options.panel is not None:
            return [panels[self.options.panel]]
        letters = zip("abc", panels.values(), strict=True)
        return [replace(block, heading=f"({x}) {block.heading}") for x, block in letters]

    def kept(self, layer: int) -> list[list[LineRow]]:
        """The kept lines of each head, or those of the last layer where they serve all."""
        table = self.lines.table if self.lines else {}
        at = LAST if (self.site, LAST, 0) in table else layer
        return [table.get((self.site, at, head), []) for head in range(self.attention.shape[1])]

    def lines_of(self, layer: int) -> Heads:
        """The lines of each head, of those without none."""
        heads = self.lines.bias.heads(self.site, layer) if self.lines else None
        return heads or ((),) * self.attention.shape[1]

    def _fit_and_bias(self, lines: RunLines, layer: int) -> tuple[np.ndarray, np.ndarray]:
        heads = self.lines_of(layer)
        fit = line_sum(heads, self.kept(layer), lines.near.view(self.site))
        off, elsewhere = lines.bias.off_line_bias, lines.bias.elsewhere(self.site, layer)
        return fit, dense(heads, lines.far.view(self.site), off, elsewhere)

    def _visible(self, matrices: np.ndarray) -> np.ndarray:
        """``matrices (h, i, j)`` with -inf on keys that their row cannot see."""
        if self.site != "self":
            return matrices
        return np.where(np.tri(*matrices.shape[1:]) > 0, matrices, -np.inf)
