"""``abc export``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abc_calib.config import CertifyOptions
from abc_calib.errors import UsageError, shortened
from cli.certify import certified_first
from cli.command import Force, RunArgument, command, opened
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.runs import Run

FORMS = {
    "rpe": "clipped relative positions",
    "patterns": "attention weights",
    "certificate": "a folder that proves itself",
}


@command()
def export(
    form: Annotated[
        str, typer.Argument(help=f"{'; '.join(f'{k}: {v}' for k, v in FORMS.items())}.")
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
        typer.Option(
            help="rpe, patterns: a .json or .csv file, or .npz of patterns; in the run by default. "
            "certificate: a new folder."
        ),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="rpe: draw biases and tables: a .pdf, .svg or .png file.")
    ] = None,
    force: Force = False,
) -> Result:
    """Write what a run holds in a form that other tools read.

    rpe: a bias of diagonal lines as the clipped relative positions (RPE, T5) that it is.
    patterns: the attention on one source, under the hook names of TransformerLens.
    certificate: weights, rule and check.py, which checks them with numpy alone.

    Example: **abc export rpe --skip --figure rpe.pdf**

    Example: **abc export patterns --input 12+34**

    Example: **abc export certificate --out checked**
    """
    if form not in FORMS:
        raise UsageError(f"unknown form {form!r}: choose {', '.join(FORMS)}")
    if form != "patterns" and source is not None:
        raise UsageError(f"--input {shortened(source)}: it is of patterns; leave it out")
    if form != "rpe" and (site != "self" or skip or figure is not None):
        raise UsageError("--site, --skip and --figure are of rpe: leave them out")
    write: Callable[[], tuple[Run, list[Path], str]] = {
        "rpe": lambda: _rpe(opened(run, force), site, skip, out, figure),
        "patterns": lambda: _patterns(run, force, source, out),
        "certificate": lambda: _certificate(run, out),
    }[form]
    found, files, said = write()
    return written(found, files, said)


def written(run: Run, files: list[Path], said: str) -> Result:
    """The files that were written for a run."""
    names = [str(path) for path in files]
    return Result({"run": str(run), "files": names}, names, [said])


def _patterns(
    name: str | None, force: bool, source: str | None, out: Path | None
) -> tuple[Run, list[Path], str]:
    """The file with the attention on a source, and what is said of it."""
    from abc_calib.reporting.hooks import write_patterns

    if source is None:
        raise UsageError("patterns are of one source: give --input, as in --input 12+34")
    run = opened(name, force)
    path = out or run.path / "patterns.npz"
    names = write_patterns(run, source, path)
    return run, [path], f"{len(names)} arrays, {names[0]} to {names[-1]}"


def _rpe(
    run: Run, site: str, skip: bool, out: Path | None, figure: Path | None
) -> tuple[Run, list[Path], str]:
    """The files with clipped relative positions, and what is said of them."""
    from abc_calib.calibration.relative import relative_tables, write_tables
    from abc_calib.geometry import SITES

    known = next((one for one in SITES if one == site), None)
    if known is None:
        raise UsageError(f"unknown site {site!r}: choose one of {', '.join(SITES)}")
    tables = relative_tables(run.lines(), known, skip)
    files = [out or run.path / "rpe.json"]
    write_tables(tables, files[0])
    if figure is not None:
        from abc_calib.reporting.relative import relative_figure
        from abc_calib.reporting.style import save_figure

        save_figure(relative_figure(tables), figure)
        files.append(figure)
    return run, files, f"{len(tables)} heads"


def _certificate(name: str | None, out: Path | None) -> tuple[Run, list[Path], str]:
    """The folder with a certificate, the model and the program that checks them."""
    from abc_calib import stages

    if out is None:
        raise UsageError("a certificate is exported into a new folder: name it with --out")
    run = certified_first(name, CertifyOptions())
    folder = stages.export(run, out)
    (program,) = sorted(folder.glob("check*.py"), reverse=True)[:1]
    return run, [folder], f"check it with numpy alone: python {program}"
