"""``abc inspect`` and ``abc diagnose``."""

from __future__ import annotations

from itertools import islice, zip_longest
from typing import Annotated, Any

import typer

from abc_calib.config import FigureOptions, build
from cli import console
from cli.options import AsJson, Figures, Force, Quiet, RunArgument, opened, options


@console.command
@options(FigureOptions, only=("format",))
def inspect(
    run: RunArgument = None,
    source: Annotated[
        str | None, typer.Option("--input", help="A source of the run's task.")
    ] = None,
    out: Figures = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """What a recurrent model's attender did on one source: each step, as a table and figures.

    Example: **abc inspect --input "010 t3 t4 ."**
    """
    from abc_calib.errors import UsageError
    from abc_calib.evaluation import inspect as inspection
    from abc_calib.reporting.steps import draw_steps

    if source is None:
        raise UsageError("name a source of the run's task with --input")
    console.set_threads(None)
    looked_at = inspection.opened(opened(run, force, quiet))
    found = inspection.inspect(looked_at, source)
    title = f"{looked_at.config.task}, {looked_at.config.model.label}"
    folder = out or looked_at.path / "figures"
    files = draw_steps(found, folder, title, build(FigureOptions, **given).format)
    if not as_json:
        print_steps(found)
    told = {name: getattr(found, name) for name in TOLD}
    console.show_files(looked_at, files, as_json, source=source, **told)
    if not found.correct:
        console.say("this is wrong: the model has not learned this one", quiet or as_json)


TOLD = ("output", "correct", "looked", "gold", "variables")
"""What the JSON of ``abc inspect`` tells of an ``Inspection``."""


def print_steps(found: Any) -> None:
    """One line a step: what was written, where it looked, and the attender's variables."""
    columns = {
        "t": range(len(found.output)),
        "writes": found.output,
        "looks at": [f"{place:.2f}" for place in found.looked],
        **({"gold": found.gold} if found.gold else {}),
        **{name: [f"{x:.3f}" for x in values] for name, values in found.variables.items()},
    }
    console.print_table(
        columns,
        islice(zip_longest(*columns.values()), len(found.output)),
        right=columns.keys() - {"writes"},
        caption="places in words of the source, from 0; a step goes the way it is read",
    )


@console.command
def diagnose(
    run: RunArgument = None, force: Force = False, quiet: Quiet = False, as_json: AsJson = False
) -> None:
    """Whether a recurrent model's attention can tell places apart.

    Example: **abc diagnose --json**
    """
    from dataclasses import asdict

    from abc_calib.evaluation import inspect as inspection

    console.set_threads(None)
    looked_at = inspection.opened(opened(run, force, quiet))
    found = inspection.diagnose(looked_at)
    if as_json:
        console.print_json({"run": str(looked_at), **asdict(found)})
        return
    variance = "none" if found.score_variance is None else f"{found.score_variance:.4f}"
    console.tell(f"score variance      {variance}")
    console.tell(f"cosine of states    {found.similarity:.3f}")
    console.tell(f"largest weight      {found.peak:.3f}")
    if found.forwards is not None:
        console.tell(f"read forwards       {found.forwards:.3f}  (1 forwards, 0 turned around)")
    for finding in found.findings or ["nothing is wrong with its attention"]:
        console.tell_sentence(finding)
    console.say(f"on {found.samples} held-out problems", quiet)
