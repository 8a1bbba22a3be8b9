"""One site of a run as figures and arrays: what a heatmap shows of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from abc_calib.config import FigureOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.reporting.attention import LAST, KeptLines, Problem, dense, line_sum, note_of
from abc_calib.reporting.heatmaps import bias_report, head_heatmaps

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Lines:
    """What a calibrated run draws beside its attention."""

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
    asked: FigureOptions
    lines: Lines | None = None

    def checked(self) -> View:
        """Itself; ``UsageError`` for a layer or head that it does not have."""
        for name, given, count in (
            ("layer", self.asked.layer, len(self.attention)),
            ("head", self.asked.head, self.attention.shape[1]),
        ):
            if given is not None and given >= count:
                raise UsageError(
                    f"--{name} {given}: {self.site}-attention has {name}s 0 to {count - 1}"
                )
        return self

    @property
    def layers(self) -> Sequence[int]:
        return range(len(self.attention)) if self.asked.layer is None else [self.asked.layer]

    @property
    def heads(self) -> list[int]:
        return [*range(self.attention.shape[1])] if self.asked.head is None else [self.asked.head]

    @property
    def stem(self) -> str:
        """What the names of its files begin with, beside the kind of figure."""
        return "" if self.asked.input is None else "input-"

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Each layer's figure with the name of its file."""
        kind = self.stem or ("bias-" if self.lines is not None else "attention-")
        head = "" if self.asked.head is None else f"-head{self.asked.head}"
        panel = "" if self.asked.block is None else f"-{self.asked.block}"
        for layer in self.layers:
            drawn = self._report(layer) if self.lines is not None else self._attention(layer)
            yield f"{kind}{self.site}-layer{layer}{head}{panel}", drawn

    @cached_property
    def arrays(self) -> Arrays:
        """What is drawn, of all layers and heads."""
        found: Arrays = {"attention": self.attention}
        if self.lines is not None:
            parts = [self._fit_and_bias(layer) for layer in range(len(self.attention))]
            found["fit"], found["bias"] = (np.stack(part) for part in zip(*parts, strict=True))
            rows, keys = self.lines.far.labels(self.site)
            found |= {"bias_row_labels": np.array(rows), "bias_key_labels": np.array(keys)}
        return {**found, "row_labels": np.array(self.rows), "key_labels": np.array(self.keys)}

    def _attention(self, layer: int) -> Figure:
        title = f"{self._title(layer)}: {self.what}" if self.asked.titled else ""
        return head_heatmaps(
            self._visible(self.attention[layer])[self.heads],
            title=title,
            row_labels=self.rows,
            key_labels=self.keys,
            numbers=self.heads,
            width=self.asked.inches,
        )

    def _report(self, layer: int) -> Figure:
        assert self.lines is not None
        rows, keys = self.lines.far.labels(self.site)
        kept, shared = self._kept(layer)
        fit, bias = self._fit_and_bias(layer)
        chosen, open_ = self.heads, set(self.lines.bias.transparent())
        return bias_report(
            self._visible(self.attention[layer])[chosen],
            self._visible(fit)[chosen],
            bias[chosen],
            title=self._title(layer) if self.asked.titled else "",
            row_labels=self.rows,
            key_labels=self.keys,
            bias_row_labels=rows,
            bias_key_labels=keys,
            headings=(
                self.what,
                "sum of the kept lines" + (", found in the last layer" if shared else ""),
                f"bias, {self.lines.far.digits} digits",
            ),
            kept=[note_of(kept[head]) for head in chosen],
            transparent=[(self.site, layer, head) in open_ for head in chosen],
            panel=self.asked.block,
            numbers=chosen,
            width=self.asked.inches,
        )

    def _heads_of(self, layer: int) -> Any:
        assert self.lines is not None
        return self.lines.bias.heads(self.site, layer) or ((),) * self.attention.shape[1]

    def _kept(self, layer: int) -> tuple[list[Any], bool]:
        """The kept lines of each head, and whether the last layer's serve all."""
        assert self.lines is not None
        table = self.lines.table
        shared = (self.site, LAST, 0) in table
        at = LAST if shared else layer
        return [table.get((self.site, at, h), []) for h in range(self.attention.shape[1])], shared

    def _fit_and_bias(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        assert self.lines is not None
        lines, heads = self.lines, self._heads_of(layer)
        fit = line_sum(heads, self._kept(layer)[0], self.site, lines.near.frame(self.site))
        off = lines.bias.off_line_bias
        elsewhere = lines.bias.elsewhere(self.site, layer)
        return fit, dense(heads, self.site, lines.far.frame(self.site), off, elsewhere)

    def _title(self, layer: int) -> str:
        part = {"encoder": "encoder self", "self": "decoder self", "cross": "cross"}[self.site]
        name = self.task.replace("_", " ").capitalize()
        return f"{name}, {part}-attention, layer {layer}"

    def _visible(self, matrices: np.ndarray) -> np.ndarray:
        """``matrices (h, i, j)`` with -inf on keys that their row cannot see."""
        if self.site != "self":
            return matrices
        return np.where(np.tri(*matrices.shape[1:]) > 0, matrices, -np.inf)
