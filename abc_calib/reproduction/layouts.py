"""How the cells of a target are arranged: tables and records by the name of its layout, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from matplotlib.figure import Figure

from abc_calib.reporting.curves import Reach, accuracy_curve, reach_figure
from abc_calib.reporting.style import COLUMN_WIDTH
from abc_calib.reproduction.cells import MARKS, MEASURES, SUCCEEDS, TITLES, Cell, shown, verdict
from abc_calib.reproduction.report import Study, arranged
from abc_calib.text import Table
from tasks import get_task

Laid = tuple[list[Table], list[dict[str, Any]]]
"""Tables, and records."""


def lengths(study: Study) -> Laid:
    """The paper's lengths in one table, those that only some tasks have in another."""
    each = [{one.length for one in study.cells if one.task == t} for t in study.target.tasks_shown]
    usual = sorted(set.intersection(*each))
    further = sorted(set.union(*each) - set(usual))
    tables = [study.table(study.cells, usual)]
    if further:
        tasks = {one.task for one in study.cells if one.length in further}
        more = [one for one in study.cells if one.task in tasks]
        tables.append(study.table(more, further, "Beyond the paper's lengths"))
    return tables, [study.record(one) for one in study.cells]


def measures(study: Study) -> Laid:
    """A table for every measure and group of tasks with the same lengths."""
    tables = []
    for measure in study.target.measures:
        mine = [one for one in study.cells if one.measure == measure]
        groups: dict[tuple[int, ...], list[str]] = {}
        for task in dict.fromkeys(one.task for one in mine):
            columns = dict.fromkeys(one.length for one in mine if one.task == task)
            groups.setdefault(tuple(columns), []).append(task)
        for group, tasks in groups.items():
            of = "" if len(groups) == 1 else f": {', '.join(TITLES[task] for task in tasks)}"
            cells = [one for one in mine if one.task in tasks]
            tests = next(t for (task, _), t in study.target.test_lists.items() if task == tasks[-1])
            heads = [str(t.length) if t.set == "random" else t.set for t in tests]
            tables.append(study.table(cells, group, f"{MEASURES[measure].label}{of}", heads))
    return tables, [study.record(one) for one in study.cells]


def answered(study: Study) -> Iterator[tuple[Cell, str, bool]]:
    """The cells that say whether a model interpolates and extrapolates, and the paper's answers."""
    by_place = {(one.task, one.length): one for one in study.cells}
    longest = max(one.length for one in study.cells)
    for task, (first, second) in study.target.answers.items():
        yield by_place[task, get_task(task).train_length], "interpolation", first
        yield by_place[task, longest], "extrapolation", second


def abilities(study: Study) -> Laid:
    """Does a model interpolate, and extrapolate, in every seed? A cell says how well."""
    words = {None: "", True: "yes", False: "no"}
    exactly = replace(MEASURES["accuracy"], tolerance=0.0)
    rows: dict[str, list[Any]] = {}
    records = []
    for one, column, theirs in answered(study):
        ours = None if one.min is None else one.min >= SUCCEEDS
        one = replace(one, verdict=verdict(theirs, ours, own=True, measure=exactly))
        about = {"column": column, "paper_answer": words[theirs], "answer": words[ours]}
        records.append(study.record(one, **about))
        said = f"{words[ours]} ({shown(one.median)} / {shown(one.min)})" if words[ours] else "–"
        text = f"{said} ({words[theirs]}) {MARKS.get(one.verdict, '')}".rstrip()
        rows.setdefault(one.task, [TITLES[one.task], one.seeds]).append(text)
    columns = ["task", "seeds", "interpolation", "extrapolation"]
    return [arranged(columns, list(rows.values()))], records


def reach(study: Study) -> Laid:
    """A table for every task, with how long training took and what is published."""
    tables, seconds = [], training_seconds(study)
    for task in study.target.tasks_shown:
        mine = [one for one in study.cells if one.task == task and one.seeds]
        if not mine:
            continue
        columns = study.target.lengths_of(task)
        made = study.table(mine, columns)
        names = list(dict.fromkeys(one.row for one in mine))
        rows = [
            [
                *row[1:],
                seconds.get((task, name), ""),
                study.target.known[name].published.get(task, ""),
            ]
            for name, row in zip(names, made.rows, strict=True)
        ]
        heading = f"{TITLES[task]}, trained on at most {columns[0]}"
        tables.append(arranged([*made.columns[1:], "seconds", "published"], rows, heading))
    return tables, [study.record(one) for one in study.cells]


def training_seconds(study: Study) -> dict[tuple[str, str], str]:
    """How long the trainings of each row take: of both stages, median over its seeds."""
    known = study.results.dropna(subset=["train_seconds"])
    known = known.drop_duplicates(["task", "row", "seed", "stage"])
    stages = known.groupby(["task", "row"])["stage"].transform("nunique")
    each = known.assign(stages=stages).groupby(["task", "row", "seed"])
    whole = each["stage"].nunique() == each["stages"].first()
    spent = each["train_seconds"].sum()[whole].groupby(["task", "row"]).median()
    rows = spent.reset_index().itertuples(index=False)
    return {(str(task), str(row)): f"{value:.0f}" for task, row, value in rows}


LAYOUTS: dict[str, Callable[[Study], Laid]] = {
    one.__name__: one for one in (lengths, measures, abilities, reach)
}


# Figures


def figures(study: Study) -> dict[str, Figure]:
    """The figures of a target, by the names of their files."""
    return dict(_reached(study) if study.target.layout == "reach" else _curves(study))


def _curves(study: Study) -> Iterator[tuple[str, Figure]]:
    """Medians and single seeds against length, a figure for every drawn measure and task."""
    target = study.target
    for measure, task in product(target.drawn, target.tasks_shown):
        series: dict[str, list[Any]] = {}
        single: dict[str, list[list[tuple[int, float]]]] = {}
        for one in study.cells:
            if (one.measure, one.task) == (measure, task) and one.median is not None:
                label = study.row(one).label
                point = (one.length, one.median, one.min, one.max)
                series.setdefault(label, []).append(point)
                single[label] = _single(study, one)
        if not series:
            continue
        rows = [row for (of, _), row in target.places.items() if of == task]
        calibrated = [row.label for row in rows if row.calibrate is not None]
        own = [row.label for row in rows if row.own]
        figure = accuracy_curve(
            series,
            title=f"{TITLES[task]}: {seeds_in_words([len(one) for one in single.values()])}",
            train_length=get_task(task).train_length,
            unit=target.unit or f"length in {get_task(task).unit}",
            measure=MEASURES[measure].axis,
            percent=MEASURES[measure].percent,
            single=single,
            top=calibrated or (own if len(own) < len(rows) else own[:1]),
            width=study.width or COLUMN_WIDTH,
        )
        name = f"{target.name}-{task}"
        yield (name if measure == target.drawn[0] else f"{name}-{measure}"), figure


def _single(study: Study, cell: Cell) -> list[list[tuple[int, float]]]:
    """The curve of each seed of a cell's row."""
    columns = study.target.lengths_of(cell.task, cell.row)
    known = study.known
    mine = known[(known["task"] == cell.task) & (known["row"] == cell.row)]
    mine = mine[mine["length"].isin(columns)].dropna(subset=[cell.measure])
    return [
        [(int(x), float(y)) for x, y in zip(part["length"], part[cell.measure], strict=True)]
        for _, part in mine.groupby("seed")
    ]


def seeds_in_words(counts: Sequence[int]) -> str:
    """What the curves of rows with these numbers of seeds are."""
    least, most = min(counts), max(counts)
    if most == 1:
        return "one seed"
    return f"medians and single seeds, {most if least == most else f'{least} to {most}'}"


def _reached(study: Study) -> Iterator[tuple[str, Figure]]:
    """For each task how far every row gets: the longest length at 99 % in the median."""
    target = study.target
    for task in target.tasks_shown:
        panels: dict[str, dict[str, Reach]] = {}
        for one in study.cells:
            row = study.row(one)
            if one.task == task and one.seeds and row.panel:
                names = panels.setdefault(row.panel, {})
                pair = list(names.get(row.short, (None, None)))
                right = one.length if (one.median or 0) >= SUCCEEDS else 0
                at = int(row.calibrate is not None)
                pair[at] = max(right, pair[at] or 0)
                names[row.short] = (pair[0], pair[1])
        if panels:
            title = f"{TITLES[task]}: longest length at {SUCCEEDS:g} % (median)"
            unit = "tokens" if get_task(task).notation == "tokens" else target.unit
            yield (
                f"{target.name}-{task}",
                reach_figure(panels, target.lengths_of(task), title, unit, study.width),
            )
