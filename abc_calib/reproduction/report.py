"""A reproduction as tables, records, notes and figures: one report for every target."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from abc_calib.reporting.curves import accuracy_curve
from abc_calib.reporting.style import COLUMN_WIDTH
from abc_calib.reproduction.cells import (
    AGREES,
    BETTER,
    DIFFERS,
    MARKS,
    MEASURES,
    TITLES,
    cell_texts,
    make_cells,
    measured,
)
from abc_calib.reproduction.targets import CELL, Target
from abc_calib.text import Table, as_markdown
from tasks import get_task


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
        """The tables, figures and notes in Markdown."""
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
    def latex(self) -> str:
        """The tables in LaTeX, each with a label and a caption that says how to read it."""
        legend = re.sub("[*`]", "", self.notes[0]) if self.notes else ""
        texts = []
        for number, table in enumerate(self.tables, 1):
            parts = [self.title, table.title, legend]
            caption = " ".join(f"{part.rstrip('.')}." for part in parts if part)
            label = f"tab:{self.name}-{number}" if len(self.tables) > 1 else f"tab:{self.name}"
            texts.append(replace(table, right=(), caption=caption, label=label).latex())
        return "\n".join(texts)


def make_report(
    target: Target, results: pd.DataFrame, seeds: int | None = None, width: float | None = None
) -> Report:
    """Make the report of the results of every seed, or of the first ``seeds`` of them.

    ``width`` of its figures, in inches; by default that of a paper's column.
    """
    if seeds is not None:
        results = results[results["seed"] < seeds]
    cells = make_cells(target, results)
    refused = refused_seeds(target, results)
    records: Any = cells.astype(object).where(cells.notna(), None).to_dict("records")
    return Report(
        name=target.name,
        title=target.title,
        tables=list(_tables(target, cells)),
        records=records,
        notes=[*_notes(target, cells, refused), *target.notes],
        incomplete=_incomplete(target, results, cells, refused, seeds),
        figures=dict(_figures(target, results, cells, width or COLUMN_WIDTH)),
    )


def _tables(target: Target, cells: pd.DataFrame) -> Iterator[Table]:
    """A table for each measure: a line for each task and model, a column for each length."""
    seeds = cells.groupby(["measure", "task", "row"])["seeds"].transform("max")
    cells = cells.assign(text=cell_texts(cells), seeds=seeds)
    for measure, part in cells.groupby("measure", sort=False):
        names = ["task", "row", "seeds"]
        wide = part.pivot_table("text", names, "length", aggfunc="first", sort=False).fillna("")
        wide = wide.sort_index(axis="columns")
        rows = [
            [TITLES.get(task, task), target.all_rows[row].label, count, *texts]
            for (task, row, count), texts in zip(wide.index, wide.to_numpy().tolist(), strict=True)
        ]
        columns = ["task", target.head, "seeds", *map(str, wide)]
        title = MEASURES[str(measure)].label if len(target.measures) > 1 else ""
        yield Table(columns, rows, right=columns[2:], title=title)


def _notes(
    target: Target, cells: pd.DataFrame, refused: dict[tuple[str, str], set[int]]
) -> Iterator[str]:
    """How to read the cells, how many agree with the paper, and what was not calibrated."""
    yield _legend(target)
    judged = cells[cells["verdict"] != ""]
    if target.numbers and judged.empty:
        yield "Nothing is measured yet that the paper has a number for."
    elif target.numbers:
        counts = Counter(judged["verdict"])
        text = ", ".join(f"{kind} in {counts[kind]}" for kind in (AGREES, BETTER, DIFFERS))
        yield f"Of {len(judged)} cells with a number in the paper: {text}."
    sizes = cells["n"][cells["n"] > 0]
    if len(sizes):
        least, most = int(sizes.min()), int(sizes.max())
        yield (
            f"Samples per seed and length: {least:,}{f' to {most:,}' * (most > least)} "
            f"(column n of {target.name}.csv)."
        )
    for task in dict.fromkeys(task for task, _ in refused):
        rows = [f"{row} ({len(seeds)})" for (of, row), seeds in refused.items() if of == task]
        yield (
            f"{TITLES.get(task, task)}, not calibrated because the first training did not "
            f"interpolate (number of seeds): {'; '.join(rows)}."
        )


def _legend(target: Target) -> str:
    text = "Each cell: median / worst over seeds"
    if not target.numbers:
        return f"{text}. Columns are lengths, counted as the task counts them."
    measures = [MEASURES[name] for name in target.measures]
    within = "; ".join(
        f"{m.tolerance:g}{f' or {100 * m.share:g} %' if m.share else ''} ({m.label})"
        for m in measures
    )
    return (
        f"{text}, the paper's number in brackets. {MARKS[AGREES]} {AGREES}: our median is within "
        f"{within} of the paper's number. {MARKS[BETTER]} {BETTER}: it is better, in a "
        f"row that the paper proposes. {MARKS[DIFFERS]} {DIFFERS}: it is worse, or better in a row "
        "that the paper compares with. No mark where the paper has no number. Columns are "
        "lengths, counted as the task counts them."
    )


def refused_seeds(target: Target, results: pd.DataFrame) -> dict[tuple[str, str], set[int]]:
    """Return, by task and row, the seeds whose first training did not interpolate."""
    table = results.reindex(columns=["task", "row", "seed", "stage", "length", "interpolated"])
    groups = dict(list(table.groupby(["task", "row"])))
    refused = {}
    for place, row in target.places.items():
        if row.calibrate is not None and (part := groups.get(place)) is not None:
            done = part["seed"][(part["stage"] == "calibrated") & part["length"].notna()]
            refused[place] = {*part["seed"][part["interpolated"].eq(False)]} - {*done}
    return {place: seeds for place, seeds in refused.items() if seeds}


def _incomplete(
    target: Target,
    results: pd.DataFrame,
    cells: pd.DataFrame,
    refused: dict[tuple[str, str], set[int]],
    seeds: int | None,
) -> list[str]:
    """The rows that lack seeds or lengths, a line for each task and number; failed jobs."""
    complete = cells.groupby(["task", "row"])["seeds"].min()
    lacking: dict[tuple[str, int, int], list[str]] = {}
    counts = target.seed_counts(seeds)
    for place, count in counts.items():
        if (have := int(complete[place]) + len(refused.get(place, ()))) < count:
            lacking.setdefault((place[0], have, count), []).append(place[1])
    every = Counter(task for task, _ in counts)
    lines = [
        f"{task}, {have} of {count} seeds: "
        + ("every row" if len(rows) == every[task] > 1 else "; ".join(rows))
        for (task, have, count), rows in lacking.items()
    ]
    failed: Any = results[results["error"].notna()].itertuples()
    for job in failed:
        place = job.task, job.row
        if place in counts and job.seed not in refused.get(place, ()):
            lines.append(f"{job.task} {job.row} seed {job.seed}: {job.error}")
    return lines


def _figures(
    target: Target, results: pd.DataFrame, cells: pd.DataFrame, width: float
) -> Iterator[tuple[str, Figure]]:
    """Medians and single seeds against length, a figure for every drawn measure and task."""
    labels = {name: row.label for name, row in target.all_rows.items()}
    tasks = dict.fromkeys(task for task, _ in target.places)
    for measure, task in product(target.drawn, tasks):
        part = cells[(cells["measure"] == measure) & (cells["task"] == task)]
        part = part.dropna(subset="median")
        if part.empty:
            continue
        numbers = ["length", "median", "min", "max"]
        series = {
            labels[str(name)]: list(row[numbers].itertuples(index=False, name=None))
            for name, row in part.groupby("row", sort=False)
        }
        single: dict[str, list[list[tuple[int, float]]]] = {}
        seeds = measured(target, results).merge(part[CELL])
        for (name, _), seed in seeds.groupby(["row", "seed"]):
            points = zip(seed["length"], seed["value"], strict=True)
            single.setdefault(labels[str(name)], []).append(list(points))
        rows = [row for (of, _), row in target.places.items() if of == task]
        calibrated = [row.label for row in rows if row.calibrate is not None]
        proposed = [row.label for row in rows if row.proposed]
        least, most = min(map(len, single.values())), max(map(len, single.values()))
        count = f"{least} to {most}" if least < most else str(most)
        text = "one seed" if most == 1 else f"medians and single seeds, {count}"
        figure = accuracy_curve(
            series,
            title=f"{TITLES.get(task, task)}: {text}",
            train_length=get_task(task).train_length,
            unit=target.unit or f"length in {get_task(task).unit}",
            measure=MEASURES[measure].axis,
            single=single,
            top=calibrated or (proposed if len(proposed) < len(rows) else proposed[:1]),
            width=width,
        )
        name = f"{target.name}-{task}"
        yield (name if measure == target.drawn[0] else f"{name}-{measure}"), figure
