"""A reproduction as tables, records, notes and figures: one report for every target."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from abc_calib.reporting.page import tables_page
from abc_calib.reproduction.cells import MEAN, TITLES, Cell, make_cell
from abc_calib.reproduction.targets import Row, Target
from abc_calib.text import Table, as_latex, as_markdown

Where = tuple[str, str]
"""Task and row."""


@dataclass(frozen=True)
class Report:
    """What a reproduction shows: ``records`` are its numbers, one per row of CSV or JSON."""

    name: str
    title: str
    tables: Sequence[Table]
    records: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()
    incomplete: Sequence[str] = ()
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def markdown(self) -> str:
        parts = [f"# {self.title}\n"]
        parts += [f"Made by `abc reproduce {self.name}`; every seed is in {self.name}-seeds.csv.\n"]
        for table in self.tables:
            parts += [f"## {table.title}\n"] if table.title else []
            parts += [as_markdown(table.columns, table.rows)]
        parts += [f"![{name}]({name}.png)\n" for name in self.figures]
        parts += [f"{note}\n" for note in self.notes]
        if self.incomplete:
            parts += ["Not complete:\n", "".join(f"- {line}\n" for line in self.incomplete)]
        return "\n".join(parts)

    @property
    def html(self) -> str:
        """The tables, figures and notes as a page that needs no network."""
        return tables_page(self.title, self.tables, self.figures, [*self.notes, *self.incomplete])

    @property
    def latex(self) -> str:
        """The tables in LaTeX, each with a label and a caption that says how to read it."""
        legend = re.sub("[*`]", "", self.notes[0]) if self.notes else ""
        made = []
        for number, table in enumerate(self.tables, 1):
            parts = [self.title, table.title, legend]
            caption = " ".join(f"{part.rstrip('.')}." for part in parts if part)
            label = f"tab:{self.name}-{number}" if len(self.tables) > 1 else f"tab:{self.name}"
            made.append(as_latex(table.columns, table.rows, caption=caption, label=label))
        return "\n".join(made)


def arranged(columns: Sequence[str], rows: Sequence[Sequence[Any]], heading: str = "") -> Table:
    """Cells as text; ``heading`` is above them, if there are several tables."""
    right = [name for name in columns if name != "task"][1:]
    return Table(columns, rows, right=right, title=heading)


@dataclass(frozen=True)
class Study:
    """A target and the results of every seed: what layouts and remarks are made of."""

    target: Target
    results: pd.DataFrame
    seeds: int | None = None
    width: float | None = None

    def row(self, cell: Cell) -> Row:
        return self.target.known[cell.row]

    def label(self, cell: Cell) -> str:
        """``Addition RoPE``."""
        return f"{TITLES[cell.task]} {self.row(cell).label}"

    @cached_property
    def known(self) -> pd.DataFrame:
        """The results of the stage that each row shows."""
        columns = ["task", "row", "stage", "length", "seed", "n", "held_out"]
        known = self.results.reindex(columns=[*columns, *self.target.measures])
        stages = {name: row.stage for name, row in self.target.known.items()}
        return known[known["stage"] == known["row"].map(stages)]

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell of every measure, also those without a result."""
        target = self.target
        lengths = {place: [t.length for t in tests] for place, tests in target.test_lists.items()}
        first = next(iter(target.places))[0]
        means = {(MEAN, row): lengths[task, row] for task, row in lengths if task == first}
        found = []
        for measure in target.measures:
            values = self.known.dropna(subset=[measure])
            wanted = lengths
            if measure == target.averaged:
                values = pd.concat([values, self._averaged(values)])
                wanted = means | lengths
            here = dict(list(values.groupby(["task", "row", "length"])))
            for (task, row), columns in wanted.items():
                for length in columns:
                    place = (measure, task, row, length)
                    number, spread = target.printed.get(place, (None, 0.0))
                    own = target.known[row].own
                    mine = here.get((task, row, length))
                    found.append(make_cell(place, mine, number, own, spread))
        return found

    def _averaged(self, values: pd.DataFrame) -> pd.DataFrame:
        """The mean over the tasks of each seed that has all of them."""
        tasks = {task for task, _ in self.target.places}
        groups = values[values["task"].isin(tasks)].groupby(["row", "length", "seed"])
        whole = groups["task"].nunique() == len(tasks)
        return groups[[self.target.averaged, "n"]].mean()[whole].reset_index().assign(task=MEAN)

    @cached_property
    def refused(self) -> Counter[Where]:
        """How many seeds of a calibrated row have a first training that did not interpolate."""
        refused: Counter[Where] = Counter()
        columns = ["task", "row", "seed", "stage", "length", "interpolated"]
        told = self.results.reindex(columns=columns)
        told = told.assign(ended=told["interpolated"].eq(False))
        by_place = dict(list(told.groupby(["task", "row"])))
        for place, row in self.target.places.items():
            mine = by_place.get(place)
            if row.calibrate is not None and mine is not None:
                done = mine["seed"][(mine["stage"] == "calibrated") & mine["length"].notna()]
                without = mine["seed"][mine["ended"] & ~mine["seed"].isin(done)]
                refused[place] = without.nunique()
        return +refused

    @property
    def incomplete(self) -> list[str]:
        """The rows that lack seeds or lengths, a line for each task and number; failed jobs."""
        seen: dict[Where, list[int]] = {}
        for one in self.cells:
            seen.setdefault((one.task, one.row), []).append(one.seeds)
        wanted = self.target.wanted(self.seeds)
        lacking: dict[tuple[str, int, int], list[str]] = {}
        for place, count in wanted.items():
            if (have := min(seen[place]) + self.refused[place]) < count:
                lacking.setdefault((place[0], have, count), []).append(place[1])
        every = Counter(task for task, _ in wanted)
        lines = [
            f"{task}, {have} of {count} seeds: "
            + ("every row" if len(rows) == every[task] > 1 else "; ".join(rows))
            for (task, have, count), rows in lacking.items()
        ]
        failed = self.results[self.results["error"].notna()].itertuples()
        told = [r for r in failed if (r.task, r.row) not in self.refused]
        return [*lines, *(f"{r.task} {r.row} seed {r.seed}: {r.error}" for r in told)]

    def record(self, cell: Cell, **more: Any) -> dict[str, Any]:
        """A row of CSV: the target's columns of a cell, and of ``more`` about it."""
        return {name: (vars(cell) | more)[name] for name in self.target.columns}

    def table(
        self,
        found: Sequence[Cell],
        lengths: Sequence[int],
        heading: str = "",
        heads: Sequence[str] = (),
    ) -> Table:
        """Cells of one measure, a line for each model; ``heads`` above the lengths."""
        cells = {(one.task, one.row, one.length): one for one in found}
        rows = []
        for task, row in dict.fromkeys((one.task, one.row) for one in found):
            nothing = Cell(found[0].measure, task, row, 0)
            mine = [cells.get((task, row, length), nothing) for length in lengths]
            most = max(one.seeds for one in mine)
            label = self.target.known[row].label
            rows.append([TITLES[task], label, most, *(one.text for one in mine)])
        columns = ["task", self.target.head, "seeds", *(heads or map(str, lengths))]
        return arranged(columns, rows, heading)
