"""``abc inspect`` and ``abc diagnose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli import console
from cli.options import AsJson, Quiet, RunArgument


@console.command
def inspect(
    run: RunArgument = None,
    source: Annotated[
        str | None, typer.Option("--input", help="A source of the run's task.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="pdf, svg or png; with commas.")] = "pdf",
    out: Annotated[Path | None, typer.Option(help="Folder; RUN/figures by default.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """What a recurrent model's attender did on one source: each step, as a table and figures.

    Example: **abc inspect --input "010 t3 t4 ."**
    """
    from abc_calib.errors import UsageError
    from abc_calib.evaluation import inspect as inspection
    from abc_calib.reporting.steps import draw_steps

    if source is None:
        raise UsageError("name a source of the run's task with --input")
    opened = inspection.opened(run)
    found = inspection.inspect(opened, source)
    title = f"{opened.config.task}, {opened.config.model.label}"
    folder = out or opened.path / "figures"
    files = draw_steps(found, folder, title, tuple(format_.split(",")))
    if as_json:
        console.print_json(
            {
                "run": str(opened),
                "source": source,
                "output": found.output,
                "correct": found.correct,
                "looked": found.looked,
                "gold": found.gold,
                "variables": found.variables,
                "files": [str(path) for path in files],
            }
        )
        return
    console.out.print(steps_table(found))
    for path in files:
        typer.echo(str(path))
    if not found.correct:
        console.say("this is wrong: the model has not learned this one", quiet)


def steps_table(found: Any) -> Any:
    """One line a step: what was written, where it looked, and the attender's variables."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        caption="places in words of the source, from 0; a step goes the way it is read",
        caption_justify="left",
    )
    names = ["t", "writes", "looks at", *(["gold"] if found.gold else []), *found.variables]
    for name in names:
        table.add_column(name, justify="left" if name == "writes" else "right")
    gold = [*(found.gold or []), *[""] * len(found.output)]
    for step, token in enumerate(found.output):
        cells = [str(step), token, f"{found.looked[step]:.2f}"]
        cells += [str(gold[step])] if found.gold else []
        cells += [f"{values[step]:.3f}" for values in found.variables.values()]
        table.add_row(*map(Text, cells))
    return table


@console.command
def diagnose(run: RunArgument = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Whether a recurrent model's attention can tell places apart.

    Example: **abc diagnose --json**
    """
    from dataclasses import asdict

    from abc_calib.evaluation import inspect as inspection

    opened = inspection.opened(run)
    found = inspection.diagnose(opened)
    if as_json:
        console.print_json({"run": str(opened), **asdict(found)})
        return
    variance = "none" if found.score_variance is None else f"{found.score_variance:.4f}"
    typer.echo(f"score variance      {variance}")
    typer.echo(f"cosine of states    {found.similarity:.3f}")
    typer.echo(f"largest weight      {found.peak:.3f}")
    if found.forwards is not None:
        typer.echo(f"read forwards       {found.forwards:.3f}  (1 forwards, 0 turned around)")
    for finding in found.findings or ["nothing is wrong with its attention"]:
        typer.echo(finding)
    console.say(f"on {found.samples} held-out problems", quiet)
