"""Position schemes of others beside each other, alone and before a calibration, under one protocol.

The same size, data, steps and seeds for all, trained on at most 6 digits. What each scheme's own
paper reports is printed beside with its training length: those are other protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure

from abc_calib.nn.positions import SCHEMES
from abc_calib.reporting.reach import Reach, reach_figure
from abc_calib.reproduction.base import Row
from abc_calib.reproduction.cells import SUCCEEDS, Cell, Place, shown
from abc_calib.reproduction.comparison import TITLES, Comparison
from abc_calib.reproduction.report import Table
from abc_calib.sweeps import Test

SEEDS, SAMPLES = 5, 1000
LENGTHS = {
    "addition": (6, 10, 15, 20, 50, 100, 200),
    "multiplication": (6, 10, 15, 20, 50, 100, 200),
    "parity": (20, 30, 50, 100, 200),
    "copy": (10, 15, 20, 50, 100, 200),
}
"""The first is the longest training length."""
KINDS = {"transformer": "encoder-decoder", "decoder": "decoder-only"}
NAMES = {
    "sinusoidal": "sinusoidal",
    "none": "none (NoPE)",
    "learned": "learned",
    "randomized": "randomized",
    "alibi": "ALiBi",
    "rope": "RoPE",
    "rpe": "RPE (Shaw)",
    "t5": "T5",
    "xl": "Transformer-XL",
    "coupled": "position coupling",
    "abacus": "Abacus",
    "fire": "FIRE",
}
PUBLISHED = {
    "coupled": "30 → 200: > 95, median of 8",
    "abacus": "20 → 100: 99.1",
    "fire, hints": "40 → 100: > 98, best seed",
    "abc": "6 → 50: 99.8",
}
"""Addition: trained on at most so many digits → tested on so many: exact match in percent.

arXiv 2405.20671, 2405.17399, 2402.09371 and 2310.11984, in this order."""
PRESET = "quick"
"""What `abc certify --task` trains with: a retraining ends by its windows."""
NEARER = " nearer to its paper"
HINTED = {"scheme": "fire", "format": "hints:202"}
ONE_LAYER: dict[str, Any] = {"decoder_layers": 1, "heads": 4, "width": 128, "feedforward": 512}
LONGER: dict[str, dict[str, Any]] = {
    "coupled": {"scheme": "coupled:size=202", "length": 15, "steps": 20_000, **ONE_LAYER},
    "abacus": {"scheme": "abacus:size=202", "length": 20, "steps": 10_000, "batch": 64},
    "fire, hints": {**HINTED, "length": 40, "steps": 4_000, "batch": 32},
}
"""Nearer to each paper than the one protocol for all, as far as one core gets in about an hour:
longer training numbers, and every step, whether the model interpolates before or not."""


def rows_of(task: str) -> dict[str, Row]:
    """What is trained on a task, by name; a row that is calibrated behind the one that is not."""
    found: dict[str, Row] = {}
    for kind, said in KINDS.items():
        own = {} if kind == "transformer" else {"model": kind}
        rivals = {name: {"scheme": name} for name in SCHEMES if name in NAMES}
        if task in ("addition", "multiplication"):
            rivals["fire, hints"] = HINTED
        for name, options in rivals.items():
            label = f"{NAMES.get(name, 'FIRE, index hints')}, {said}"
            found[f"{kind}, {name}"] = Row(label, {**own, **options}, own=False, preset=PRESET)
            found[f"{kind}, {name}, abc"] = Row(
                f"{label}, + ABC", {**own, **options}, calibrate={}, preset=PRESET
            )
    for name, options in LONGER.items() if task == "addition" else ():
        label = f"{NAMES.get(name, 'FIRE, index hints')}{NEARER}: decoder-only, at most "
        label += f"{options['length']} digits, {options['steps']:,} steps"
        found[f"{name}{NEARER}"] = Row(
            label, {"model": "decoder", "stop_early": False, **options}, own=False
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Rivals(Comparison):
    """Every scheme of the registry, with both kinds of Transformer."""

    head: ClassVar = "model"
    columns: ClassVar = ("task", "row", "length", "median", "min", "max", "seeds", "n")

    def models(self) -> dict[tuple[str, str], Row]:
        return {(task, row): made for task in LENGTHS for row, made in rows_of(task).items()}

    def tests(self, task: str, row: str) -> tuple[Test, ...]:
        return tuple(Test(length=length, n=SAMPLES) for length in LENGTHS[task])

    def seeds_of(self, task: str, row: str) -> int:
        return 1 if row.endswith(NEARER) else SEEDS

    def number(self, place: Place) -> float | None:
        return None

    def unit(self, task: str) -> str:
        return "tokens" if task == "copy" else "digits of an operand"

    def tables(self, found: Sequence[Cell], results: pd.DataFrame) -> list[Table]:
        tables, seconds = [], self._seconds(results)
        for task, lengths in LENGTHS.items():
            mine = [one for one in found if one.task == task and one.seeds]
            if not mine:
                continue
            made = self.table(mine, lengths)
            columns = [*made.columns[1:], "seconds", "published"]
            names = list(dict.fromkeys(one.row for one in mine))
            rows = [
                [*row[1:], seconds.get((task, name), ""), self._published(task, name)]
                for name, row in zip(names, made.rows, strict=True)
            ]
            heading = f"{TITLES[task]}, trained on at most {lengths[0]}"
            tables.append(Table(columns, rows, heading))
        return tables

    def _published(self, task: str, row: str) -> str:
        if task != "addition":
            return ""
        if row.endswith(", abc"):
            return PUBLISHED["abc"] if "sinusoidal" in row else ""
        if row.endswith(NEARER):
            return PUBLISHED[row.removesuffix(NEARER)]
        return PUBLISHED.get(row.partition(", ")[2], "")

    def _curves(self, found: Sequence[Cell], results: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
        """For each task how far every row gets: the longest length at 99 % in the median."""
        for task, lengths in LENGTHS.items():
            best: dict[str, int] = {}
            for one in found:
                if one.task == task and one.seeds:
                    right = one.length if (one.median or 0) >= SUCCEEDS else 0
                    best[one.row] = max(right, best.get(one.row, 0))
            panels: dict[str, dict[str, Reach]] = {}
            for kind, said in KINDS.items():
                rows = [row.partition(", ")[2] for row in best if row.startswith(f"{kind}, ")]
                names = dict.fromkeys(row.removesuffix(", abc") for row in rows)
                reached: dict[str, Reach] = {
                    NAMES.get(name, "FIRE, hints"): (
                        best.get(f"{kind}, {name}"),
                        best.get(f"{kind}, {name}, abc"),
                    )
                    for name in names
                }
                if reached:
                    panels[said] = reached
            if panels:
                title = f"{TITLES[task]}: longest length at {SUCCEEDS:g} % (median)"
                yield f"{self.name}-{task}", reach_figure(panels, lengths, title, self.unit(task))

    def remarks(self, found: Sequence[Cell], results: pd.DataFrame) -> list[str]:
        return [
            "Each cell: exact match in percent, median / worst seed. Where a model did not "
            "interpolate it is not calibrated, and its row with ABC is missing or has fewer seeds. "
            "The last column has what a scheme's own paper reports, trained on up to so many "
            "digits → tested on so many: other models, formats and steps, printed so that nobody "
            "takes these rows for that paper's. ABC's is that of Duan & Shi. An encoder without "
            "positions reads its source as a set: no other row starts from so little.",
            f"Rows{NEARER} are trained on longer numbers, with Adam, for all of their steps, "
            "whether they interpolate before or not: as far as one core gets in about an hour, "
            "which is less than any of these papers.",
            "Seconds are those of a row's training, median over its seeds: with ABC of both, "
            "without the trial of lines between them; by the clock, beside other work.",
            *self._lost(found),
            *self._reached(found),
        ]

    def _seconds(self, results: pd.DataFrame) -> dict[tuple[str, str], str]:
        """How long the trainings of each row take, by its task and name."""
        known = results.dropna(subset=["train_seconds"])
        known = known.drop_duplicates(["task", "row", "seed", "stage"])
        stages = known.groupby(["task", "row"])["stage"].transform("nunique")
        each = known.assign(stages=stages).groupby(["task", "row", "seed"])
        whole = each["stage"].nunique() == each["stages"].first()
        spent = each["train_seconds"].sum()[whole].groupby(["task", "row"]).median()
        rows = spent.reset_index().itertuples(index=False)
        return {(str(task), str(row)): f"{value:.0f}" for task, row, value in rows}

    def _lost(self, found: Sequence[Cell]) -> Iterator[str]:
        """Which rows have calibrated models that are wrong at training lengths already."""
        first = {task: lengths[0] for task, lengths in LENGTHS.items()}
        labels = self._labels()
        for one in found:
            calibrated = one.row.endswith(", abc") and one.length == first[one.task]
            if calibrated and one.seeds and (one.min or 0) < SUCCEEDS:
                yield (
                    f"{TITLES[one.task]}, {labels[one.row]}: {shown(one.min)} % at the training "
                    f"length itself in the worst of {one.seeds} seeds. None of the sets of lines "
                    "found is enough there, and a calibration tells so from training lengths alone."
                )

    def _reached(self, found: Sequence[Cell]) -> Iterator[str]:
        """How far each half gets."""
        for task, lengths in LENGTHS.items():
            last = [one for one in found if one.task == task and one.length == lengths[-1]]
            for calibrated in (False, True):
                mine = [
                    one for one in last if one.seeds and one.row.endswith(", abc") == calibrated
                ]
                if mine:
                    good = sum((one.min or 0) >= SUCCEEDS for one in mine)
                    best = max(one.median or 0.0 for one in mine)
                    yield (
                        f"{TITLES[task]} {'with' if calibrated else 'without'} ABC at "
                        f"{lengths[-1]}: {good} of {len(mine)} rows at {SUCCEEDS:g} % or more in "
                        f"every seed, the best median {shown(best)} %."
                    )


TARGETS = (
    Rivals(
        "rivals",
        "Rivals: every position scheme, alone and before a calibration",
    ),
)
