"""``abc inspect`` and ``abc diagnose``."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice, zip_longest
from typing import Annotated, Any

import typer

from abc_calib.config import DrawOptions
from abc_calib.text import Table
from cli.command import Figures, RunArgument, command
from cli.console import Result


@command()
def inspect(
    options: DrawOptions,
    source: Annotated[str, typer.Option("--input", help="A source of the run's task.")],
    run: RunArgument = None,
    out: Figures = None,
) -> Result:
    """Show where a recurrent model attended on one source: each step, as a table and figures.

    Example: **abc inspect --input "010 t3 t4 ."**
    """
    from abc_calib.evaluation import inspect as inspection
    from abc_calib.reporting.steps import draw_steps
    from abc_calib.reporting.style import font

    opened_run = inspection.opened(run)
    trace = inspection.inspect(opened_run, source)
    title = f"{opened_run.config.task}, {opened_run.config.model.label}"
    with font(options.font):
        folder = out or opened_run.path / "figures"
        files = draw_steps(trace, folder, title, options.format, options.inches)
    names = [str(path) for path in files]
    fields = ("output", "correct", "looked", "gold", "variables")
    data = {"run": str(opened_run), "source": source, "files": names}
    data |= {name: getattr(trace, name) for name in fields}
    wrong = "" if trace.correct else "this is wrong: the model has not learned this one"
    return Result(data, [steps(trace), *names], [wrong])


def steps(trace: Any) -> Table:
    """Return a row for each step: what was written, where it looked, the attender's variables."""
    columns = {
        "t": range(len(trace.output)),
        "writes": trace.output,
        "looks at": [f"{position:.2f}" for position in trace.looked],
        **({"gold": trace.gold} if trace.gold else {}),
        **{name: [f"{x:.3f}" for x in values] for name, values in trace.variables.items()},
    }
    rows = list(islice(zip_longest(*columns.values()), len(trace.output)))
    caption = "positions in words of the source, from 0; a step goes the way it is read"
    return Table([*columns], rows, right=columns.keys() - {"writes"}, caption=caption)


@command()
def diagnose(run: RunArgument = None) -> Result:
    """Measure whether a recurrent model's attention can distinguish places.

    Example: **abc diagnose --json**
    """
    from abc_calib.evaluation import inspect as inspection

    opened_run = inspection.opened(run)
    diagnosis = inspection.diagnose(opened_run)
    numbers = {
        "score variance": diagnosis.score_variance,
        "cosine of states": diagnosis.similarity,
        "largest weight": diagnosis.peak,
        "read forwards (1), turned around (0)": diagnosis.forwards,
    }
    rows = [(name, f"{value:.4f}") for name, value in numbers.items() if value is not None]
    title = f"on {diagnosis.samples} held-out problems"
    table = Table(("measure", "value"), rows, right=("value",), title=title)
    findings = diagnosis.findings or ["nothing is wrong with its attention"]
    return Result({"run": str(opened_run), **asdict(diagnosis)}, [table, *findings])
