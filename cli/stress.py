"""``abc stress``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli import console
from cli.options import AsJson, Quiet, RunArgument, Threads


@console.command
def stress(
    run: RunArgument = None,
    lengths: Annotated[
        str | None, typer.Option(help="Digits; the training length, one more, and 50.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Problems of each family and length.")] = 100,
    search: Annotated[
        int, typer.Option(help="Mutated problems of each length, guided by the logit margin.")
    ] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the problems.")] = 0,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Look for inputs that a model gets wrong: carry chains, all nines, and a search.

    Writes stress.json into the run.

    Examples: **abc stress** · **abc stress RUN --lengths 6,50,200 --search 5000**
    """
    import json

    from abc_calib import stages
    from abc_calib.evaluation.stress import smallest
    from abc_calib.runs import Run
    from cli.evaluate import parse_lengths

    console.set_threads(threads)
    opened = Run.open(run)
    short = opened.config.train.length
    wanted = parse_lengths(lengths or f"{short},{short + 1},50", 50)
    done: list[Any] = []
    with console.progress("stress", len(wanted), quiet, "lengths") as update:

        def on_row(row: Any) -> None:
            done.append(row)
            at = wanted.index(row.length) if row.length in wanted else 0
            update(
                at + (row.family == "search"),
                f"{row.length} digits, {row.family}: {row.wrong} wrong",
                True,
            )

        stages.stress(opened, wanted, samples=samples, search=search, seed=seed, on_row=on_row)
    least = smallest(done)
    if as_json:
        console.print_json(json.loads((opened.path / "stress.json").read_text()))
        return
    _show(done)
    if least is None:
        typer.echo("nothing failed")
    else:
        typer.echo(f"smallest failure: {least.text()}; around it are {' / '.join(least.around)}")
    console.say(f"written to {opened.path / 'stress.json'}", quiet)


def _show(rows: list[Any]) -> None:
    from rich.table import Table

    table = Table(title="wrong of tried, by digits")
    lengths = sorted({row.length for row in rows})
    table.add_column("inputs")
    for length in lengths:
        table.add_column(str(length), justify="right")
    for family in dict.fromkeys(row.family for row in rows):
        cells = {row.length: f"{row.wrong}/{row.n}" for row in rows if row.family == family}
        table.add_row(family, *(cells.get(length, "") for length in lengths))
    margins = {row.length: f"{row.margin:.2f}" for row in rows if row.margin is not None}
    if margins:
        table.add_row(
            "smallest margin in the search", *(margins.get(length, "") for length in lengths)
        )
    console.out.print(table)
