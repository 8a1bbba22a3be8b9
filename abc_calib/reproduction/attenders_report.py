"""The reports of the two location-attention papers: cells, tables, notes and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from abc_calib.reporting import accuracy_curve
from abc_calib.reproduction import attenders_paper as paper
from abc_calib.reproduction.attenders import (
    COMPARED,
    LABELS,
    MEASURES,
    TITLES,
    Attenders,
    seeds_of,
)
from abc_calib.reproduction.cells import AGREES, BETTER, DIFFERS, MARKS, missing, shown
from abc_calib.reproduction.report import Report, Table, failures
from abc_calib.training.trainer import INTERPOLATED
from tasks import get_task


@dataclass(frozen=True)
class AttenderCell:
    """One number: the paper's and ours over seeds, of ``n`` samples each.

    ``verdict`` as in ``abc_calib.reproduction.cells``, in the units of ``measure``.
    """

    measure: str
    task: str
    row: str
    length: int
    paper: float | None
    median: float | None
    mean: float | None
    min: float | None
    max: float | None
    seeds: int
    n: int
    verdict: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def text(self) -> str:
        """``100 / 99.8 (99.9) =``: median / worst seed (the paper) verdict."""
        measure = MEASURES[self.measure]
        write = shown if measure.percent else _plain
        theirs = "" if self.paper is None else f" ({write(self.paper)})"
        if self.median is None:
            return f"–{theirs}"
        worst = self.max if measure.lower_is_better else self.min
        mark = f" {MARKS[self.verdict]}" if self.verdict else ""
        return f"{write(self.median)} / {write(worst)}{theirs}{mark}"


def _plain(value: float | None) -> str:
    """A distance or loss."""
    return "–" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def attender_cells(target: Attenders, results: pd.DataFrame) -> list[AttenderCell]:
    """Every cell of every measure, also those without a result."""
    columns = ["task", "row", "length", "seed", "n", *target.measures]
    first = (results["row"] == "abc") & (results["stage"] == "vanilla")  # what it comes from
    known = results[~first].reindex(columns=columns)
    found = []
    for measure in target.measures:
        values = known[known[measure].notna()]
        averaged = measure == target.averaged
        for task in (*([paper.MEAN] if averaged else []), *target.tasks):
            tests = next(iter(target.tasks.values())) if task == paper.MEAN else target.tasks[task]
            for row in target.rows:
                for test in tests:
                    here = values[(values["row"] == row) & (values["length"] == test.length)]
                    mine = _averaged(here, target) if task == paper.MEAN else _of(here, task)
                    found.append(_cell(measure, task, row, test.length, mine))
    return found


def _of(values: pd.DataFrame, task: str) -> pd.DataFrame:
    return values[values["task"] == task]


def _averaged(values: pd.DataFrame, target: Attenders) -> pd.DataFrame:
    """The mean over the tasks of each seed that has all of them."""
    groups = values[values["task"].isin(target.tasks)].groupby("seed")
    whole = groups["task"].nunique() == len(target.tasks)
    means = groups[[target.averaged, "n"]].mean()
    return means[whole].reset_index()


def _cell(measure: str, task: str, row: str, length: int, mine: pd.DataFrame) -> AttenderCell:
    theirs = paper.NUMBERS.get((measure, task, row, length))
    if mine.empty:
        return AttenderCell(
            measure, task, row, length, theirs, None, None, None, None, seeds=0, n=0
        )
    values = mine[measure].astype(float)
    median = round(float(values.median()), 4)
    return AttenderCell(
        measure=measure,
        task=task,
        row=row,
        length=length,
        paper=theirs,
        median=median,
        mean=round(float(values.mean()), 4),
        min=round(float(values.min()), 4),
        max=round(float(values.max()), 4),
        seeds=int(mine["seed"].nunique()),
        n=int(mine["n"].min()),
        verdict=attender_verdict(measure, task, row, theirs, median),
    )


def attender_verdict(measure: str, task: str, row: str, theirs: float | None, ours: float) -> str:
    """How our median compares with the paper's number."""
    if theirs is None:
        return ""
    by = MEASURES[measure]
    if abs(ours - theirs) <= max(by.tolerance, by.share * theirs, paper.spread(task, row)):
        return AGREES
    better = (ours < theirs) == by.lower_is_better
    return BETTER if better and row not in COMPARED else DIFFERS


def attenders_report(target: Attenders, results: pd.DataFrame, seeds: int | None = None) -> Report:
    """The report of one target from the results of every seed."""
    found = attender_cells(target, results)
    wanted = {
        (task, row): seeds or seeds_of(task, row) for task in target.tasks for row in target.rows
    }
    first = [one for one in found if (one.task, one.row) in wanted]
    learned = attender_cells(target, results[results["held_out"] >= 100 * INTERPOLATED])
    return Report(
        name=target.name,
        title=target.title,
        tables=list(_tables(target, found)),
        records=[one.as_dict() for one in found],
        notes=[
            _how_to_read(target),
            *_verdicts(found),
            *_perfect(found, learned),
            *_schedule(results),
            *target.notes,
        ],
        incomplete=[*missing(first, wanted), *failures(results)],  # type: ignore[arg-type]
        figures=_curves(target, found),
    )


def _tables(target: Attenders, found: Sequence[AttenderCell]) -> Iterator[Table]:
    """A table for every measure and group of tasks with the same lengths."""
    for measure in target.measures:
        mine = [one for one in found if one.measure == measure]
        groups: dict[tuple[int, ...], list[str]] = {}
        for task in dict.fromkeys(one.task for one in mine):
            columns = dict.fromkeys(one.length for one in mine if one.task == task)
            groups.setdefault(tuple(columns), []).append(task)
        for lengths, tasks in groups.items():
            cells = {(one.task, one.row, one.length): one for one in mine}
            rows = [
                [
                    TITLES[task],
                    LABELS[row],
                    max(cells[task, row, length].seeds for length in lengths),
                    *(cells[task, row, length].text for length in lengths),
                ]
                for task in tasks
                for row in target.rows
            ]
            heads = ["test"] if tasks == ["scan"] else [str(length) for length in lengths]
            of = "" if len(groups) == 1 else f": {', '.join(TITLES[task] for task in tasks)}"
            yield Table(
                ["task", "attender", "seeds", *heads], rows, f"{MEASURES[measure].label}{of}"
            )


def _how_to_read(target: Attenders) -> str:
    within = "; ".join(
        f"{MEASURES[name].label}: {MEASURES[name].tolerance:g}"
        + (f" or {100 * MEASURES[name].share:g} %" if MEASURES[name].share else "")
        for name in target.measures
    )
    return (
        "Each cell: median / worst over seeds, the paper's number in brackets. "
        f"{MARKS[AGREES]} {AGREES}: our median is as near as this to the paper's number ({within})."
        f" {MARKS[BETTER]} {BETTER}: it is better, in a row that the paper proposes. "
        f"{MARKS[DIFFERS]} {DIFFERS}: it is worse, or better in a row that the paper compares "
        "with. No mark where the paper has no number. Columns are lengths, counted as the task "
        "counts them."
    )


def _verdicts(found: Sequence[AttenderCell]) -> list[str]:
    """How many cells agree, and which do not."""
    judged = [one for one in found if one.verdict]
    if not judged:
        return ["Nothing is measured yet that the paper has a number for."]
    counts = Counter(one.verdict for one in judged)
    text = ", ".join(f"{kind} in {counts[kind]}" for kind in (AGREES, BETTER, DIFFERS))
    lines = [f"Of {len(judged)} cells with a number in the paper: {text}."]
    off = [
        f"{TITLES[one.task]} {LABELS[one.row]} at {one.length} "
        f"({_plain(one.median)} against {_plain(one.paper)})"
        for one in judged
        if one.verdict == DIFFERS
    ]
    return [*lines, f"Disagreement: {'; '.join(off)}."] if off else lines


def _perfect(found: Sequence[AttenderCell], learned: Sequence[AttenderCell]) -> Iterator[str]:
    """How the cells fare that the paper has at 100: over all seeds, and over those that learned."""
    of = {
        "all seeds": found,
        f"the seeds that interpolate, at {100 * INTERPOLATED:g} % of the held-out problems of "
        "their training": learned,
    }
    for seeds, cells in of.items():
        perfect = [one for one in cells if (one.measure, one.paper) == ("accuracy", 100)]
        ours = [one.median for one in perfect if one.median is not None]
        if ours:
            yield (
                f"Of {len(ours)} cells that the paper has at 100, {ours.count(100)} are at 100 "
                f"here and {sum(99 <= median < 100 for median in ours)} within a point, over "
                f"{seeds}."
            )


def _schedule(results: pd.DataFrame) -> list[str]:
    """How long the models were trained, from the results themselves."""
    columns = ["key", "task", "preset", "batch", "steps", "steps_taken", "train_seconds", "n"]
    runs = results.reindex(columns=columns).dropna().drop_duplicates("key")
    if runs.empty:
        return []
    taken = f"{int(runs['steps_taken'].min()):,} to {int(runs['steps_taken'].max()):,}"
    return [
        f"Schedule: preset {' and '.join(sorted(set(runs['preset'])))}, batches of "
        f"{' and '.join(str(int(b)) for b in sorted(set(runs['batch'])))}, at most "
        f"{int(runs['steps'].max()):,} steps, {taken} taken; {len(runs)} models trained in "
        f"{runs['train_seconds'].sum() / 3600:.1f} hours. {int(runs['n'].min()):,} test samples a "
        "length or more."
    ]


def _curves(target: Attenders, found: Sequence[AttenderCell]) -> dict[str, Figure]:
    """Median and range over seeds against length, a figure for every task and drawn measure."""
    figures = {}
    for measure in target.drawn:
        for task in target.tasks:
            series: dict[str, list[Any]] = {}
            for one in found:
                if (one.measure, one.task) == (measure, task) and one.median is not None:
                    point = (one.length, one.median, one.min, one.max)
                    series.setdefault(LABELS[one.row], []).append(point)
            if not series:
                continue
            rule = get_task(task)
            name = f"{target.name}-{task}"
            figures[name if measure == target.drawn[0] else f"{name}-{measure}"] = accuracy_curve(
                series,
                title=f"{TITLES[task]}: median and range over seeds",
                train_length=rule.train_length,
                unit=f"length in {rule.unit}",
                measure=MEASURES[measure].axis,
                percent=MEASURES[measure].percent,
            )
    return figures
