"""The tables and figures of the two location-attention papers: what they run and measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import pandas as pd

from abc_calib.reproduction import attenders_paper as paper
from abc_calib.reproduction.base import Row
from abc_calib.reproduction.cells import (
    AGREES,
    BETTER,
    DIFFERS,
    MARKS,
    MEASURES,
    Cell,
    Place,
)
from abc_calib.reproduction.comparison import TITLES, Comparison
from abc_calib.reproduction.report import Table
from abc_calib.sweeps import Test
from abc_calib.training.trainer import INTERPOLATED
from tasks import get_task

SEEDS = 5
"""Of Transformers and of the rows and tasks below, as many as the papers; one of the others."""
SEEDED_ROWS = frozenset({"one_step", "mono", "bi_relative", "relative"})
SEEDED_TASKS = frozenset(
    {"copy", "reverse_copy", "lookup", "reverse_lookup", "recopy", "inv_recopy"}
)

LABELS = {
    "content": "Content",
    "relative": "Relative",
    "loc": "LocAttn",
    "bi_relative": "Bi-Relative",
    "one_step": "OneStepAttn",
    "mono": "MonoAttn",
    "no_step2": "− Step 2",
    "no_step3": "− Step 3",
    "no_sigmoid": "− Sigmoid",
    "bi_rope": "Bi-RoPE",
    "mix_loc": "Mix LocAttn",
    "loc_s": "LocAttn S",
    "mix_loc_s": "Mix LocAttn S",
    "mix_loc_s_pr": "Mix LocAttn S PR",
    "mix_one_step": "Mix OneStepAttn",
    "mix_one_step_pr": "Mix OneStepAttn PR",
    "mix_mono": "Mix MonoAttn",
    "mix_mono_pr": "Mix MonoAttn PR",
    "r_mono": "RMonoAttn",
    "mix_r_mono": "Mix RMonoAttn",
    "mix_r_mono_pr": "Mix RMonoAttn PR",
    "scaled_dot": "Scaled dot",
    "multiplicative": "Multiplicative",
    "additive": "Additive",
    "transformer": "Transformer",
    "transformer_xl": "TransformerXL",
    "location": "Location",
    "mix": "Mix",
}
"""The papers' names of attenders, which are the rows of every table here."""

COMPARED = frozenset(
    {
        *("content", "relative", "loc", "mix_loc", "no_step2", "no_step3", "no_sigmoid"),
        *("scaled_dot", "multiplicative", "additive", "transformer", "transformer_xl"),
    }
)
"""Rows that the papers set their own against."""

TRANSFORMERS = {"vanilla": Row("Transformer"), "abc": Row("Transformer + ABC", calibrate={})}
ROWS: dict[str, Row] = {
    **{
        name: Row(label, {"model": "gru", "attender": name}, own=name not in COMPARED)
        for name, label in LABELS.items()
    },
    **TRANSFORMERS,
}


@dataclass(frozen=True, kw_only=True)
class Attenders(Comparison):
    """A table or figure: attenders as rows, and tasks with their tests."""

    rows: tuple[str, ...]
    tasks: dict[str, tuple[Test, ...]]
    head: ClassVar = "attender"
    columns: ClassVar = tuple(field.name for field in fields(Cell))

    def models(self) -> dict[tuple[str, str], Row]:
        return {(task, row): ROWS[row] for task in self.tasks for row in self.rows}

    def tests(self, task: str, row: str) -> tuple[Test, ...]:
        return self.tasks[task]

    def seeds_of(self, task: str, row: str) -> int:
        seeded = row in TRANSFORMERS or (row in SEEDED_ROWS and task in SEEDED_TASKS)
        return SEEDS if seeded else 1

    def number(self, place: Place) -> float | None:
        return paper.NUMBERS.get(place)

    def spread(self, task: str, row: str) -> float:
        return paper.spread(task, row)

    def unit(self, task: str) -> str:
        return f"length in {get_task(task).unit}"

    def tables(self, found: Sequence[Cell], results: pd.DataFrame) -> list[Table]:
        """A table for every measure and group of tasks with the same lengths."""
        tables = []
        for measure in self.measures:
            mine = [one for one in found if one.measure == measure]
            groups: dict[tuple[int, ...], list[str]] = {}
            for task in dict.fromkeys(one.task for one in mine):
                lengths = dict.fromkeys(one.length for one in mine if one.task == task)
                groups.setdefault(tuple(lengths), []).append(task)
            for columns, tasks in groups.items():
                of = "" if len(groups) == 1 else f": {', '.join(TITLES[task] for task in tasks)}"
                cells = [one for one in mine if one.task in tasks]
                tests = self.tasks[tasks[-1]]
                heads = [str(t.length) if t.set == "random" else t.set for t in tests]
                tables.append(self.table(cells, columns, f"{MEASURES[measure].label}{of}", heads))
        return tables

    def remarks(self, found: Sequence[Cell], results: pd.DataFrame) -> list[str]:
        learned = self.cells(results[results["held_out"] >= 100 * INTERPOLATED])
        return [
            self._how_to_read(),
            *self.verdicts(found),
            *perfect(found, learned),
            *schedule(results),
        ]

    def _how_to_read(self) -> str:
        within = "; ".join(
            f"{MEASURES[name].label}: {MEASURES[name].tolerance:g}"
            + (f" or {100 * MEASURES[name].share:g} %" if MEASURES[name].share else "")
            for name in self.measures
        )
        return (
            "Each cell: median / worst over seeds, the paper's number in brackets. "
            f"{MARKS[AGREES]} {AGREES}: our median is as near as this to the paper's number "
            f"({within}). {MARKS[BETTER]} {BETTER}: it is better, in a row that the paper "
            f"proposes. {MARKS[DIFFERS]} {DIFFERS}: it is worse, or better in a row that the "
            "paper compares with. No mark where the paper has no number. Columns are lengths, "
            "counted as the task counts them."
        )


def perfect(found: Sequence[Cell], learned: Sequence[Cell]) -> Iterator[str]:
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


def schedule(results: pd.DataFrame) -> list[str]:
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
