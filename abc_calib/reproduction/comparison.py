"""Tables of a paper beside ours: rows of models, columns of lengths, in cells."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure

from abc_calib.reporting import accuracy_curve
from abc_calib.reproduction.base import Target
from abc_calib.reproduction.cells import (
    AGREES,
    BETTER,
    DIFFERS,
    MEAN,
    MEASURES,
    Cell,
    Place,
    make_cell,
    rounded,
)
from abc_calib.reproduction.report import Report, Table
from tasks import get_task

TITLES = {
    "successor": "Successor",
    "addition": "Addition",
    "parity": "Parity",
    "multiplication": "N × 1",
    "copy": "Copy",
    "reverse_copy": "Reverse copy",
    "lookup": "Lookup",
    "reverse_lookup": "Reverse lookup",
    "noisy_lookup_single": "Noisy lookup",
    "recopy": "ReCopy",
    "reverse_recopy": "Reverse ReCopy",
    "inv_recopy": "Inv ReCopy",
    "inv_reverse_recopy": "Inv reverse ReCopy",
    "scan": "SCAN (length)",
    MEAN: "Mean of the tasks",
}
"""The papers' names of tasks."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Target):
    """A table or figure with a paper's numbers.

    ``averaged``: a measure of which the paper has only the mean over the tasks. ``drawn``:
    measures with a figure for each task. ``head`` names the column of the models, ``columns`` are
    those of the records.
    """

    measures: tuple[str, ...] = ("accuracy",)
    averaged: str | None = None
    drawn: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    head: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def number(self, place: Place) -> float | None:
        """What the paper has there."""

    @abstractmethod
    def tables(self, found: Sequence[Cell], results: pd.DataFrame) -> list[Table]:
        """The cells as tables."""

    @abstractmethod
    def remarks(self, found: Sequence[Cell], results: pd.DataFrame) -> list[str]:
        """How to read the cells, and what they say."""

    @abstractmethod
    def unit(self, task: str) -> str:
        """What a length counts, below a figure."""

    def spread(self, task: str, row: str) -> float:
        """The standard deviation that the paper prints with a number; 0 where it prints none."""
        return 0.0

    def report(self, results: pd.DataFrame, seeds: int | None = None) -> Report:
        found, refused = self.cells(results), self._refused(results)
        return Report(
            name=self.name,
            title=self.title,
            tables=self.tables(found, results),
            records=self.records(found),
            notes=[*self.remarks(found, results), *_not_calibrated(refused), *self.notes],
            incomplete=[*self._missing(found, seeds, refused), *failures(results)],
            figures=dict(self._curves(found, results)),
        )

    def cells(self, results: pd.DataFrame) -> list[Cell]:
        """Every cell of every measure, also those without a result."""
        models = self.models()
        made = {row: model for (_, row), model in models.items()}
        columns = ["task", "row", "stage", "length", "seed", "n", *self.measures]
        known = results.reindex(columns=columns)
        known = known[known["stage"] == known["row"].map({r: m.stage for r, m in made.items()})]
        first = next(iter(models))[0]
        lengths = {place: [test.length for test in self.tests(*place)] for place in models}
        means = {(MEAN, row): lengths[task, row] for task, row in models if task == first}
        found = []
        for measure in self.measures:
            values = known.dropna(subset=[measure])
            wanted = lengths
            if measure == self.averaged:
                values = pd.concat([values, self._averaged(values)])
                wanted = means | lengths
            here = dict(list(values.groupby(["task", "row", "length"])))
            for (task, row), columns_of in wanted.items():
                for length in columns_of:
                    place = (measure, task, row, length)
                    theirs, spread = self.number(place), self.spread(task, row)
                    mine = here.get((task, row, length))
                    found.append(make_cell(place, mine, theirs, made[row].own, spread))
        return found

    def _averaged(self, values: pd.DataFrame) -> pd.DataFrame:
        """The mean over the tasks of each seed that has all of them."""
        tasks = {task for task, _ in self.models()}
        groups = values[values["task"].isin(tasks)].groupby(["row", "length", "seed"])
        whole = groups["task"].nunique() == len(tasks)
        return groups[[self.averaged, "n"]].mean()[whole].reset_index().assign(task=MEAN)

    def records(self, found: Sequence[Cell]) -> list[dict[str, Any]]:
        """A row of CSV for every cell."""
        return [{name: getattr(one, name) for name in self.columns} for one in found]

    def table(
        self,
        found: Sequence[Cell],
        lengths: Sequence[int],
        heading: str = "",
        heads: Sequence[str] = (),
    ) -> Table:
        """Cells of one measure, a line for each model; ``heads`` above the lengths."""
        cells = {(one.task, one.row, one.length): one for one in found}
        labels = self._labels()
        rows = []
        for task, row in dict.fromkeys((one.task, one.row) for one in found):
            nothing = Cell(found[0].measure, task, row, 0)
            mine = [cells.get((task, row, length), nothing) for length in lengths]
            texts = [one.text for one in mine]
            rows.append([TITLES[task], labels[row], max(one.seeds for one in mine), *texts])
        return Table(["task", self.head, "seeds", *(heads or map(str, lengths))], rows, heading)

    def verdicts(self, found: Sequence[Cell]) -> list[str]:
        """How many cells agree, and which do not."""
        judged = [one for one in found if one.verdict]
        if not judged:
            return ["Nothing is measured yet that the paper has a number for."]
        counts = Counter(one.verdict for one in judged)
        text = ", ".join(f"{kind} in {counts[kind]}" for kind in (AGREES, BETTER, DIFFERS))
        lines = [f"Of {len(judged)} cells with a number in the paper: {text}."]
        labels = self._labels()
        off = [
            f"{TITLES[one.task]} {labels[one.row]} at {one.length} "
            f"({rounded(one.median)} against {rounded(one.paper)})"
            for one in judged
            if one.verdict == DIFFERS
        ]
        return [*lines, f"Disagreement: {'; '.join(off)}."] if off else lines

    def _labels(self) -> dict[str, str]:
        return {row: model.label for (_, row), model in self.models().items()}

    def _refused(self, results: pd.DataFrame) -> Counter[tuple[str, str]]:
        """How many seeds of a calibrated row have a first training that did not interpolate."""
        calibrated = [place for place, of in self.models().items() if of.calibrate is not None]
        told = results.reindex(columns=["task", "row", "seed", "stage", "interpolated"])
        refused: Counter[tuple[str, str]] = Counter()
        for place in calibrated:
            mine = told[(told["task"] == place[0]) & (told["row"] == place[1])]
            done = mine["seed"][mine["stage"] == "calibrated"]
            without = mine["seed"][mine["interpolated"].eq(False) & ~mine["seed"].isin(done)]
            refused[place] = without.nunique()
        return +refused

    def _missing(
        self, found: Sequence[Cell], seeds: int | None, refused: Counter[tuple[str, str]]
    ) -> list[str]:
        """The rows that lack seeds or lengths: a line for each task and number of seeds."""
        seen: dict[tuple[str, str], list[int]] = {}
        for one in found:
            seen.setdefault((one.task, one.row), []).append(one.seeds)
        lacking: dict[tuple[str, int, int], list[str]] = {}
        for (task, row), wanted in self.wanted(seeds).items():
            if (have := min(seen[task, row]) + refused[task, row]) < wanted:
                lacking.setdefault((task, have, wanted), []).append(row)
        every = Counter(task for task, _ in self.wanted(seeds))
        return [
            f"{task}, {have} of {wanted} seeds: "
            + ("every row" if len(rows) == every[task] > 1 else "; ".join(rows))
            for (task, have, wanted), rows in lacking.items()
        ]

    def _curves(self, found: Sequence[Cell], results: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
        """Medians and single seeds against length, a figure for every drawn measure and task."""
        models = self.models()
        labels = self._labels()
        for measure, task in product(self.drawn, dict.fromkeys(task for task, _ in models)):
            series: dict[str, list[Any]] = {}
            single: dict[str, list[list[tuple[int, float]]]] = {}
            for one in found:
                if (one.measure, one.task) == (measure, task) and one.median is not None:
                    point = (one.length, one.median, one.min, one.max)
                    series.setdefault(labels[one.row], []).append(point)
                    single[labels[one.row]] = self._single(results, measure, task, one.row)
            if not series:
                continue
            rows = {row: model for (of, row), model in models.items() if of == task}
            calibrated = [row.label for row in rows.values() if row.calibrate is not None]
            own = [row.label for row in rows.values() if row.own]
            name = f"{self.name}-{task}"
            figure = accuracy_curve(
                series,
                title=f"{TITLES[task]}: {seeds_in_words([len(one) for one in single.values()])}",
                train_length=get_task(task).train_length,
                unit=self.unit(task),
                measure=MEASURES[measure].axis,
                percent=MEASURES[measure].percent,
                single=single,
                top=calibrated or (own if len(own) < len(rows) else own[:1]),
            )
            yield (name if measure == self.drawn[0] else f"{name}-{measure}"), figure

    def _single(
        self, results: pd.DataFrame, measure: str, task: str, row: str
    ) -> list[list[tuple[int, float]]]:
        """The curve of each seed of a row."""
        stage = self.models()[task, row].stage
        lengths = [test.length for test in self.tests(task, row)]
        mine = results[(results["task"] == task) & (results["row"] == row)]
        mine = mine[(mine["stage"] == stage) & mine["length"].isin(lengths)].dropna(
            subset=[measure]
        )
        return [
            [(int(x), float(y)) for x, y in zip(part["length"], part[measure], strict=True)]
            for _, part in mine.groupby("seed")
        ]


def _not_calibrated(refused: Counter[tuple[str, str]]) -> list[str]:
    """Which rows have seeds whose first training did not interpolate, a line for each task."""
    told: dict[str, list[str]] = {}
    for (task, row), count in refused.items():
        told.setdefault(task, []).append(f"{row} ({count})")
    return [
        f"{TITLES[task]}, not calibrated since the first training did not interpolate, with the "
        f"number of seeds: {'; '.join(rows)}."
        for task, rows in told.items()
    ]


def seeds_in_words(counts: Sequence[int]) -> str:
    """What the curves of rows with so many seeds are."""
    least, most = min(counts), max(counts)
    if most == 1:
        return "one seed"
    return f"medians and single seeds, {most if least == most else f'{least} to {most}'}"


def failures(results: pd.DataFrame) -> list[str]:
    """The jobs that failed, with the reason."""
    failed = results[results["error"].notna()]
    return [f"{r.task} {r.row} seed {r.seed}: {r.error}" for r in failed.itertuples()]
