"""``abc export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import console
from cli.options import AsJson, Force, Quiet, RunArgument, opened

if TYPE_CHECKING:
    from abc_calib.geometry import Site
    from abc_calib.runs import Run


@console.command
def export(
    form: Annotated[
        str, typer.Argument(help="rpe: clipped relative positions; patterns: attention weights.")
    ],
    run: RunArgument = None,
    site: Annotated[str, typer.Option(help="rpe: self, encoder or cross.")] = "self",
    skip: Annotated[
        bool, typer.Option("--skip", help="rpe: leave out heads with other lines than diagonals.")
    ] = False,
    source: Annotated[
        str | None, typer.Option("--input", help="patterns: the source to look at, as in 12+34.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A .json or .csv file, or .npz of patterns; in the run by default."),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="rpe: draw biases and tables: a .pdf, .svg or .png file.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write what a run holds in a form that other tools read.

    rpe: a bias of diagonal lines as the clipped relative positions (RPE, T5) that it is.
    patterns: the attention on one source, under the hook names of TransformerLens.

    Example: **abc export rpe --skip --figure rpe.pdf**

    Example: **abc export patterns --input 12+34**
    """
    from abc_calib.errors import UsageError, shortened

    if form not in ("rpe", "patterns"):
        raise UsageError(f"unknown form {form!r}: choose rpe or patterns")
    if form == "patterns":
        if source is None:
            raise UsageError("patterns are of one source: give --input, as in --input 12+34")
        if site != "self" or skip or figure is not None:
            raise UsageError("--site, --skip and --figure are of rpe: leave them out")
        found = opened(run, force, quiet)
        files, said = _patterns(found, source, out)
    else:
        if source is not None:
            raise UsageError(f"--input {shortened(source)}: it is of patterns; leave it out")
        found = opened(run, force, quiet)
        files, said = _rpe(found, site, skip, out, figure)
    console.show_files(found, files, as_json)
    console.say(said, quiet or as_json)


def _patterns(run: Run, source: str, out: Path | None) -> tuple[list[Path], str]:
    """The files with the attention on a source, and what is said of them."""
    from abc_calib.reporting.hooks import write_patterns

    path = out or run.path / "patterns.npz"
    names = write_patterns(run, source, path)
    return [path], f"{len(names)} arrays, {names[0]} to {names[-1]}"


def _rpe(
    run: Run, site: str, skip: bool, out: Path | None, figure: Path | None
) -> tuple[list[Path], str]:
    """The files with clipped relative positions, and what is said of them."""
    from abc_calib.calibration.relative import relative_tables, write_tables

    tables = relative_tables(run.lines(), _site(site), skip)
    files = [out or run.path / "rpe.json"]
    write_tables(tables, files[0])
    if figure is not None:
        from abc_calib.reporting.relative import relative_figure
        from abc_calib.reporting.style import save_figure

        save_figure(relative_figure(tables), figure)
        files.append(figure)
    return files, f"{len(tables)} heads"


def _site(name: str) -> Site:
    """The site of that name; ``UsageError`` names the known ones."""
    from abc_calib.errors import UsageError
    from abc_calib.geometry import SITES

    for known in SITES:
        if known == name:
            return known
    raise UsageError(f"unknown site {name!r}: choose one of {', '.join(SITES)}")
