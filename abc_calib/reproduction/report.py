"""A reproduction as tables, records and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from abc_calib.reporting import accuracy_curve, as_latex, as_markdown
from abc_calib.reproduction.cells import (
    AGREES,
    BETTER,
    DIFFERS,
    MARKS,
    SUCCEEDS,
    TOLERANCE,
    Ability,
    Cell,
    abilities,
    cells,
    missing,
    shown,
)
from abc_calib.reproduction.targets import ROWS, TITLES, Target, seeds_of
from tasks import get_task


@dataclass(frozen=True)
class Table:
    """Cells as text; ``heading`` is above it, if there are several."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    heading: str = ""


@dataclass(frozen=True)
class Report:
    """What a reproduction shows: ``records`` are its numbers, one a row of CSV or JSON."""

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
            parts += [f"## {table.heading}\n"] if table.heading else []
            parts += [as_markdown(table.columns, table.rows)]
        parts += [f"![{name}]({name}.png)\n" for name in self.figures]
        parts += [f"{note}\n" for note in self.notes]
        if self.incomplete:
            parts += ["Not complete:\n", "".join(f"- {line}\n" for line in self.incomplete)]
        return "\n".join(parts)

    @property
    def latex(self) -> str:
        return "\n".join(as_latex(table.columns, table.rows) for table in self.tables)


def report(target: Target, results: pd.DataFrame, seeds: int | None = None) -> Report:
    """The report of a table or figure of the paper from the results of every seed."""
    found = cells(target, results)
    wanted = {
        (task, row): seeds or seeds_of(row, rows)
        for task, rows in target.rows.items()
        for row in rows
    }
    common: dict[str, Any] = {
        "name": target.name,
        "incomplete": [*missing(found, wanted), *failures(results)],
    }
    if target.name == "table2":
        answers = abilities(target, results)
        notes = [
            f"Each cell: our answer (median / minimum over seeds), the paper's in brackets. Yes "
            f"is {SUCCEEDS:g} % or more in every seed: of held-out numbers of the longest "
            f"training length, or of numbers of {max(target.lengths)} digits.",
        ]
        return Report(
            title=target.title,
            tables=[_ability_table(answers)],
            records=[answer.as_dict() for answer in answers],
            notes=[*notes, samples_note([answer.cell for answer in answers]), *target.notes],
            **common,
        )
    return Report(
        title=target.title,
        tables=_tables(target, found),
        records=[one.as_dict() for one in found],
        notes=[_how_to_read(), verdicts(found), samples_note(found), *target.notes],
        figures=_curves(target, found) if target.name.startswith("figure") else {},
        **common,
    )


def _tables(target: Target, found: Sequence[Cell]) -> list[Table]:
    """The paper's columns, then what was measured at further lengths."""
    further = sorted({one.length for one in found} - set(target.lengths))
    tables = [_table(found, target.lengths)]
    if further:
        more = [one for one in found if one.task in target.more_lengths]
        tables.append(_table(more, further, "Beyond the paper's lengths"))
    return tables


def _table(found: Sequence[Cell], lengths: Sequence[int], heading: str = "") -> Table:
    by_place = {(one.task, one.row, one.length): one for one in found}
    rows = []
    for task, row in dict.fromkeys((one.task, one.row) for one in found):
        mine = [by_place[task, row, length] for length in lengths]
        label = ROWS[row].label
        rows.append([TITLES[task], label, max(one.seeds for one in mine), *map(cell_text, mine)])
    return Table(["task", "model", "seeds", *map(str, lengths)], rows, heading)


def cell_text(one: Cell) -> str:
    """``100 / 99.8 (99.9) =``: median / minimum (the paper) verdict."""
    if one.median is None:
        return "–" if one.paper is None else f"– ({shown(one.paper)})"
    text = f"{shown(one.median)} / {shown(one.min)}"
    return text if one.paper is None else f"{text} ({shown(one.paper)}) {MARKS[one.verdict]}"


def _ability_table(answers: Sequence[Ability]) -> Table:
    rows: dict[str, list[Any]] = {}
    for one in answers:
        row = rows.setdefault(one.cell.task, [TITLES[one.cell.task], one.cell.seeds])
        numbers = f"{shown(one.cell.median)} / {shown(one.cell.min)}"
        ours = f"{one.answer} ({numbers})" if one.answer else "–"
        row.append(f"{ours} ({one.paper_answer}) {MARKS.get(one.verdict, '')}".rstrip())
    columns = ["task", "seeds", "interpolation", "extrapolation"]
    return Table(columns, list(rows.values()))


def _how_to_read() -> str:
    return (
        f"Each cell: exact match in percent, median / minimum over seeds, the paper's number in "
        f"brackets. {MARKS[AGREES]} {AGREES}: our median is within {TOLERANCE:g} point of the "
        f"paper's number. {MARKS[BETTER]} {BETTER}: it is above, in a row that the paper "
        f"proposes. {MARKS[DIFFERS]} {DIFFERS}: it is below, or above in a row that the paper "
        "compares with, which is another finding than the paper's. No mark where the paper has "
        "no number."
    )


def verdicts(found: Sequence[Cell]) -> str:
    """How many cells agree, and which do not."""
    counts = Counter(one.verdict for one in found if one.verdict)
    text = ", ".join(f"{kind} in {counts[kind]}" for kind in (AGREES, BETTER, DIFFERS))
    text = f"Of {sum(counts.values())} cells with a number in the paper: {text}."
    off = [
        f"{TITLES[one.task]} {ROWS[one.row].label} at {one.length} "
        f"({shown(one.median)} against {shown(one.paper)})"
        for one in found
        if one.verdict == DIFFERS
    ]
    return f"{text} Disagreement: {'; '.join(off)}." if off else text


def samples_note(found: Sequence[Cell]) -> str:
    """How many samples a seed and length, with the exceptions."""
    counts = Counter(one.n for one in found if one.n)
    if not counts:
        return "Nothing is measured yet."
    usual = counts.most_common(1)[0][0]
    other: dict[tuple[int, int], list[str]] = {}
    for one in found:
        if one.n not in (0, usual):
            name = f"{TITLES[one.task]} {ROWS[one.row].label}"
            other.setdefault((one.n, one.length), []).append(name)
    lines = [
        f"{n:,} at {length} digits ({', '.join(names)})" for (n, length), names in other.items()
    ]
    return "; ".join([f"Samples a length and seed: {usual:,}", *lines]) + "."


def failures(results: pd.DataFrame) -> list[str]:
    """The jobs that failed, with the reason."""
    failed = results[results["error"].notna()]
    return [f"{r.task} {r.row} seed {r.seed}: {r.error}" for r in failed.itertuples()]


def _curves(target: Target, found: Sequence[Cell]) -> dict[str, Figure]:
    """Median and range over seeds, a figure for every task."""
    figures = {}
    for task, rows in target.rows.items():
        series = {}
        for row in rows:
            points = [
                (one.length, one.median, one.min, one.max)
                for one in found
                if (one.task, one.row) == (task, row) and one.median is not None
            ]
            if points:
                series[ROWS[row].label] = points
        if series:
            title = f"{TITLES[task]}: median and range over seeds"
            longest = get_task(task).train_length
            figures[f"{target.name}-{task}"] = accuracy_curve(
                series,  # type: ignore[arg-type]
                title=title,
                train_length=longest,
            )
    return figures
