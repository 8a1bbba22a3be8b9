"""``abc export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli import console
from cli.options import AsJson, Force, Quiet, RunArgument, opened


@console.command
def export(
    form: Annotated[str, typer.Argument(help="rpe: clipped relative positions.")],
    run: RunArgument = None,
    site: Annotated[str, typer.Option(help="self, encoder or cross.")] = "self",
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out heads with other lines than diagonals.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A .json or .csv file; RUN/rpe.json by default.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw biases and tables: a .pdf, .svg or .png file.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a bias of diagonal lines as the clipped relative positions (RPE, T5) that it is.

    Example: **abc export rpe --skip --figure rpe.pdf**
    """
    from abc_calib.calibration.relative import relative_tables, write_tables
    from abc_calib.errors import UsageError
    from abc_calib.geometry import SITES

    if form != "rpe":
        raise UsageError(f"unknown form {form!r}: choose rpe")
    chosen = next((name for name in SITES if name == site), None)
    if chosen is None:
        raise UsageError(f"unknown site {site!r}: choose one of {', '.join(SITES)}")
    found = opened(run, force, quiet)
    tables = relative_tables(found.lines(), chosen, skip)
    path = out or found.path / "rpe.json"
    write_tables(tables, path)
    files = [path]
    if figure is not None:
        from abc_calib.reporting.relative import relative_figure
        from abc_calib.reporting.style import save_figure

        save_figure(relative_figure(tables), figure)
        files.append(figure)
    console.show_files(found, files, as_json)
    console.say(f"{len(tables)} heads", quiet or as_json)
