"""From a run folder to its heatmaps: reads the files of the run, writes figures and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from abc_calib.errors import UsageError
from abc_calib.files import make_folder, write_atomically
from abc_calib.geometry import SITES, LineBias, Site
from abc_calib.nn.build import model_type
from abc_calib.reporting.attention import (
    LAST,
    KeptLines,
    Problem,
    dense,
    kept_table,
    line_sum,
    measured,
    note_of,
    problems,
    stored,
)
from abc_calib.reporting.heatmaps import bias_report, head_heatmaps
from abc_calib.reporting.style import check_formats, save_figures
from abc_calib.runs import Run

LONGEST = 500
"""Digits: more rows and keys than these make no image."""


def draw_heatmaps(
    run: Run | Path | str | None,
    out_dir: Path | str,
    formats: Sequence[str] = ("pdf",),
    sites: Sequence[str] = ("self", "cross"),
    extend_to: int = 20,
) -> list[Path]:
    """Draw every layer of the given sites of a run; returns the files written.

    Of a calibrated run, ``bias-SITE-layerN``: the averaged attention, the lines kept from it,
    and the bias they make on problems of ``extend_to`` digits. Of a run without a bias,
    ``attention-SITE-layerN``, measured on training samples. Beside them a ``SITE.npz`` with
    what was drawn: ``attention`` and ``fit`` ``(layers, h, i, j)``, ``bias`` ``(layers, h, I, J)``
    and the labels of their rows and keys. Raises ``UsageError`` for an unknown format or
    site or more than 500 digits, and ``AbcError`` for files that are missing or do not belong
    together.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if reason := model_type(run.config.kind).no_lines:
        raise UsageError(f"{run} has no heads to draw ({reason}): abc inspect --input")
    check_formats(formats)
    for given in sites:
        if given not in SITES:
            raise UsageError(f"unknown site {given!r}: choose one of {', '.join(SITES)}")
    if not 1 <= extend_to <= LONGEST:
        raise UsageError(f"a heatmap of {extend_to} digits is not possible: choose 1 to {LONGEST}")
    wanted = [site for site in SITES if site in sites]
    path = run.path / "bias.safetensors"
    calibrated = path.is_file()
    attention = stored(path) if calibrated else measured(run)
    if missing := [site for site in wanted if site not in attention]:
        raise UsageError(f"{run} has no {missing[0]}-attention: choose {', '.join(attention)}")
    near, far = problems(run, attention, extend_to)
    bias, table = (run.bias(), kept_table(run.path / "lines.csv")) if calibrated else (None, {})
    out_dir = Path(out_dir)
    make_folder(out_dir)
    paths: list[Path] = []
    for site in wanted:
        view = View(run.config.task, site, attention[site], near, far)
        paths += (
            view.write_bias(bias, table, out_dir, formats)
            if bias
            else view.write_attention(out_dir, formats)
        )
    return paths


@dataclass(frozen=True)
class View:
    """One site of a run: its ``attention (layers, h, i, j)`` on ``near`` problems."""

    task: str
    site: Site
    attention: np.ndarray
    near: Problem
    far: Problem

    def write_attention(self, out_dir: Path, formats: Sequence[str]) -> list[Path]:
        """Figures and arrays of a run without a bias."""
        rows, keys = self.near.labels(self.site)
        paths: list[Path] = []
        for layer, matrices in enumerate(self.attention):
            figure = head_heatmaps(
                self._visible(matrices),
                title=f"{self._title(layer)}: averaged attention, {self.near.digits} digits",
                row_labels=rows,
                key_labels=keys,
            )
            name = f"attention-{self.site}-layer{layer}"
            paths += save_figures(figure, out_dir / name, formats)
        return [*paths, self._arrays(out_dir, {"attention": self.attention})]

    def write_bias(
        self, bias: LineBias, table: KeptLines, out_dir: Path, formats: Sequence[str]
    ) -> list[Path]:
        """Figures and arrays of a calibrated run."""
        rows, keys = self.near.labels(self.site)
        far_rows, far_keys = self.far.labels(self.site)
        fits, biases, paths = [], [], []
        for layer, matrices in enumerate(self.attention):
            heads = bias.heads(self.site, layer) or ((),) * len(matrices)
            shared = (self.site, LAST, 0) in table
            kept = [
                table.get((self.site, LAST if shared else layer, h), []) for h in range(len(heads))
            ]
            fits.append(line_sum(heads, kept, self.site, self.near.frame(self.site)))
            biases.append(dense(heads, self.site, self.far.frame(self.site), bias.off_line_bias))
            figure = bias_report(
                self._visible(matrices),
                self._visible(fits[-1]),
                biases[-1],
                title=self._title(layer),
                row_labels=rows,
                key_labels=keys,
                bias_row_labels=far_rows,
                bias_key_labels=far_keys,
                headings=(
                    f"averaged attention, {self.near.digits} digits",
                    "sum of the kept lines" + (", found in the last layer" if shared else ""),
                    f"bias, {self.far.digits} digits",
                ),
                kept=[note_of(lines) for lines in kept],
                transparent=[not lines for lines in heads],
            )
            paths += save_figures(figure, out_dir / f"bias-{self.site}-layer{layer}", formats)
        arrays = {
            "attention": self.attention,
            "fit": np.stack(fits),
            "bias": np.stack(biases),
            "bias_row_labels": np.array(far_rows),
            "bias_key_labels": np.array(far_keys),
        }
        return [*paths, self._arrays(out_dir, arrays)]

    def _title(self, layer: int) -> str:
        part = {"encoder": "encoder self", "self": "decoder self", "cross": "cross"}[self.site]
        return f"{self.task.capitalize()}, {part}-attention, layer {layer}"

    def _visible(self, matrices: np.ndarray) -> np.ndarray:
        """``matrices (h, i, j)`` with -inf on keys that their row cannot see."""
        return np.where(self.near.frame(self.site).mask()[0].numpy(), matrices, -np.inf)

    def _arrays(self, out_dir: Path, arrays: dict[str, np.ndarray]) -> Path:
        rows, keys = (np.array(labels) for labels in self.near.labels(self.site))
        path = out_dir / f"{self.site}.npz"
        named = {**arrays, "row_labels": rows, "key_labels": keys}
        write_atomically(path, lambda made: np.savez_compressed(made, **named))  # type: ignore[arg-type]
        return path
