"""Run what is missing, collect the results of every seed, write the report.

OUT/table1.md, .tex, .csv   the table; in the CSV a row a cell
    table1-seeds.csv        a row for each seed, test set and length: what the rest is made of
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from abc_calib import stages
from abc_calib.config import WorkOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import make_folder, write_text
from abc_calib.reporting.style import save_figures
from abc_calib.reporting.views import heatmap_figures
from abc_calib.reproduction.report import Report
from abc_calib.reproduction.targets import Entry, Target
from abc_calib.runs import Run
from abc_calib.sweeps import Outcome, jobs_root, results_table, run_jobs
from abc_calib.sweeps.engine import OnChange
from abc_calib.version import ROOT

RESULTS = Path("reports") / "reproduction"
NEEDED = ["row", "stage", "task", "seed", "length", "n", "accuracy", "held_out", "error"]
"""Columns of the results that a report reads."""
DRAWN: dict[str, tuple[str, dict[str, Any]]] = {
    "figure3": ("addition", {"layer": 1, "panel": "bias"}),
    "figure4": ("multiplication", {"layer": 1, "panel": "bias"}),
    "figure7": ("successor", {"layer": 2, "input": "03611451449241919819"}),
    "figure8": ("addition", {"layer": 2, "input": "078114514+0241919810"}),
}
"""Figures of Duan & Shi that are drawn of a model made from nothing: the task of each, and what is
drawn of its cross-attention, one source of the first model."""


def reproduce(
    target: Target,
    work: WorkOptions | None = None,
    *,
    seeds: int | None = None,
    rows: Sequence[str] = (),
    device: str = "auto",
    on_change: OnChange = lambda *_: None,
) -> tuple[pd.DataFrame, list[Outcome]]:
    """Run the jobs of ``target`` that are missing; gives all its results.

    ``seeds``: 0 to this for every row, by default as many as the target says. ``rows``: run only
    these, by default all. ``UsageError`` for a row that it does not have.
    """
    work = work or WorkOptions()
    root, entries = jobs_root(work.jobs), target.entries(seeds)
    choices = dict.fromkeys(entry.row for entry in entries)
    if unknown := [row for row in rows if row not in choices]:
        raise UsageError(f"no row {unknown[0]!r} here: choose of {'; '.join(choices)}")
    jobs = [entry.job for entry in entries if not rows or entry.row in rows]
    outcomes = run_jobs(jobs, root, work, device=device, on_change=on_change)
    return collect(entries, root, outcomes), outcomes


def collect(entries: Sequence[Entry], root: Path, outcomes: Sequence[Outcome] = ()) -> pd.DataFrame:
    """The results of ``entries``, each with the name of its table row in ``row``.

    Rows of a calibrated model follow those of the first training that it comes from; ``stage``
    tells them apart.
    """
    tables = [results_table([entry.job], root, outcomes).assign(row=entry.row) for entry in entries]
    parts = [table for table in tables if len(table)]
    if not parts:
        return pd.DataFrame(columns=NEEDED)
    return pd.concat(parts, ignore_index=True)


def write_report(report: Report, results: pd.DataFrame | None, folder: Path) -> None:
    """Write the tables, the figures and, unless they came from there, the results."""
    make_folder(folder)
    write_text(folder / f"{report.name}.md", report.markdown)
    write_text(folder / f"{report.name}.tex", report.latex)
    write_text(folder / f"{report.name}.csv", pd.DataFrame(report.records).to_csv(index=False))
    if results is not None:
        write_text(folder / f"{report.name}-seeds.csv", results.to_csv(index=False))
    for name, figure in report.figures.items():
        save_figures(figure, folder / name, ("pdf", "png"))


def load_results(name: str, folder: Path | None = None) -> pd.DataFrame:
    """The results of every seed in ``folder``, by default those of the source checkout."""
    path = (folder or ROOT / RESULTS) / f"{name}-seeds.csv"
    if not path.is_file():
        raise UsageError(f"there are no results in {path}: abc reproduce {name} makes them")
    try:
        table = pd.read_csv(path, low_memory=False)
        if table["error"].notna().all():  # nothing was measured yet
            table = table.reindex(columns=list(dict.fromkeys([*table, *NEEDED])))
        measured = table[table["error"].isna() & table["accuracy"].notna()]
        measured[NEEDED].astype({"length": int, "n": int, "accuracy": float})
        return table.astype({"task": str, "row": str, "seed": int})
    except (OSError, ValueError, KeyError) as error:
        raise AbcError(f"{path} cannot be read ({error})") from None


def drawn(name: str, folder: Path | str | None = None, **look: Any) -> Figure:
    """The figure of that name; its models are trained in ``folder`` unless they are there.

    ``look``: fields of ``FigureOptions``. Models as of ``stages.certified``, seed 0.
    """
    task, options = DRAWN[name]
    run, _ = stages.certified(task, 0, folder=folder)
    while "input" in options and run.config.parent:
        run = Run.open(run.config.parent)
    (figure,) = heatmap_figures(run, sites=("cross",), **options, **look).values()
    return figure
