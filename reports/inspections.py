"""What two attenders of Dubois et al. (2020) looked at: attention, and variables as in figure 9.

    python reports/inspections.py

Trains the models of ``abc reproduce location-table3`` on lookup that are not there yet, in some two
minutes, and draws the figures ``location-lookup-*`` and ``mix-lookup-*`` of one source.
"""

from __future__ import annotations

from pathlib import Path

from abc_calib.errors import AbcError
from abc_calib.evaluation.inspect import inspect
from abc_calib.reporting.steps import attention_figure, variables_figure
from abc_calib.reporting.style import save_figures
from abc_calib.reproduction import get_target
from abc_calib.runs import Run
from abc_calib.sweeps import jobs_root, run_jobs

HERE = Path(__file__).parent / "figures"
ATTENDERS = ("location", "mix")
SOURCE = "010 t3 t1 t2 t4 t5 ."


def main() -> None:
    found = [
        entry
        for entry in get_target("location-table3").entries()
        if entry.task == "lookup" and entry.row in ATTENDERS
    ]
    outcomes = run_jobs([entry.job for entry in found], jobs_root())
    if left := [f"{one.job.key}: {one.reason}" for one in outcomes if one.state == "failed"]:
        raise AbcError("; ".join(left))
    for entry in found:
        run = Run.open(jobs_root() / entry.job.key / "run")
        told = inspect(run, SOURCE)
        title = f"{run.config.task}, {run.config.model.label}"
        name = f"{entry.row}-{entry.task}"
        save_figures(attention_figure(told, title), HERE / f"{name}-attention", ("pdf", "png"))
        save_figures(variables_figure(told, title), HERE / f"{name}-variables", ("pdf", "png"))
        print(f"{name}: {' '.join(told.output)}, {'right' if told.correct else 'wrong'}")


if __name__ == "__main__":
    main()
