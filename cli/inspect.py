"""``abc inspect`` and ``abc diagnose``."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice, zip_longest
from typing import Annotated, Any

import typer

from abc_calib.config import DrawOptions
from abc_calib.errors import UsageError
from abc_calib.text import Table
from cli.command import Figures, RunArgument, command
from cli.console import Result, Sentence


@command()
def inspect(
    options: DrawOptions,
    run: RunArgument = None,
    source: Annotated[
        str | None, typer.Option("--input", help="A source of the run's task.")
    ] = None,
    out: Figures = None,
) -> Result:
    """Show where a recurrent model attended on one source: each step, as a table and figures.

    Example: **abc inspect --input "010 t3 t4 ."**
    """
    from abc_calib.evaluation import inspect as inspection
    from abc_calib.reporting.steps import draw_steps
    from abc_calib.reporting.style import font
    from abc_calib.runs import Run

    if source is None:
        raise UsageError("name a source of the run's task with --input")
    opened_run = inspection.opened(Run.open(run))
    trace = inspection.inspect(opened_run, source)
    title = f"{opened_run.config.task}, {opened_run.config.model.label}"
    with font(options.font):
        folder = out or opened_run.path / "figures"
        files = draw_steps(trace, folder, title, options.format, options.inches)
    names = [str(path) for path in files]
    fields = {name: getattr(trace, name) for name in TOLD}
    wrong = "" if trace.correct else "this is wrong: the model has not learned this one"
    return Result(
        {"run": str(opened_run), "source": source, **fields, "files": names},
        [steps(trace), *names],
        [wrong],
    )


TOLD = ("output", "correct", "looked", "gold", "variables")
"""What the JSON of ``abc inspect`` has of an ``Inspection``."""


def steps(trace: Any) -> Table:
    """One line a step: what was written, where it looked, and the attender's variables."""
    columns = {
        "t": range(len(trace.output)),
        "writes": trace.output,
        "looks at": [f"{place:.2f}" for place in trace.looked],
        **({"gold": trace.gold} if trace.gold else {}),
        **{name: [f"{x:.3f}" for x in values] for name, values in trace.variables.items()},
    }
    rows = list(islice(zip_longest(*columns.values()), len(trace.output)))
    caption = "places in words of the source, from 0; a step goes the way it is read"
    return Table([*columns], rows, right=columns.keys() - {"writes"}, caption=caption)


@command()
def diagnose(run: RunArgument = None) -> Result:
    """Measure whether a recurrent model's attention can distinguish places.

    Example: **abc diagnose --json**
    """
    from abc_calib.evaluation import inspect as inspection
    from abc_calib.runs import Run

    opened_run = inspection.opened(Run.open(run))
    diagnosis = inspection.diagnose(opened_run)
    variance = "none" if diagnosis.score_variance is None else f"{diagnosis.score_variance:.4f}"
    shown = [
        f"score variance      {variance}",
        f"cosine of states    {diagnosis.similarity:.3f}",
        f"largest weight      {diagnosis.peak:.3f}",
    ]
    if diagnosis.forwards is not None:
        shown.append(f"read forwards       {diagnosis.forwards:.3f}  (1 forwards, 0 turned around)")
    shown += map(Sentence, diagnosis.findings or ["nothing is wrong with its attention"])
    on = f"on {diagnosis.samples} held-out problems"
    return Result({"run": str(opened_run), **asdict(diagnosis)}, shown, [on])
