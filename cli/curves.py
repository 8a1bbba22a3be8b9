"""``abc curves``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from abc_calib.config import CurveOptions, FigureOptions
from cli.command import command
from cli.completion import run_names
from cli.console import Result


@command(FigureOptions, only=("format", "width", "font", "labels"))
def curves(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders or names.", autocompletion=run_names)
    ],
    options: CurveOptions,
    out: Annotated[Path | None, typer.Option(help="Folder; runs/figures by default.")] = None,
    **given: Any,
) -> Result:
    """Draw the exact match of several runs against length in one figure.

    Each has to be evaluated first (abc eval); the jobs of a sweep are.

    Example: **abc curves RUN OTHER --labels "before,after" --format png**
    """
    from abc_calib.files import runs_root
    from abc_calib.reporting.of_runs import curves as draw

    paths = draw(runs, out or runs_root() / "figures", labels=options.labels, **given)
    names = [str(path) for path in paths]
    return Result({"files": names}, names, [f"{len(runs)} runs in one figure"])
