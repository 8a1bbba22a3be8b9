"""``abc export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from abc_calib.config import CertifyOptions
from abc_calib.errors import UsageError, shortened
from cli.certify import certified_first
from cli.command import Force, RunArgument, command, opened
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.runs import Run


@command()
def export(
    form: Annotated[
        Literal["patterns", "certificate"],
        typer.Argument(help="patterns: attention weights; certificate: a folder that proves it."),
    ],
    run: RunArgument = None,
    source: Annotated[
        str | None, typer.Option("--input", help="patterns: the source to look at, as in 12+34.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="patterns: an .npz file; in the run by default. certificate: a new folder."
        ),
    ] = None,
    force: Force = False,
) -> Result:
    """Write what a run holds in a form that other tools read.

    patterns: the attention on one source, under the hook names of TransformerLens.
    certificate: weights, rule and check.py, which checks them with numpy alone.

    Example: **abc export patterns --input 12+34**

    Example: **abc export certificate --out checked**
    """
    if form == "patterns":
        from abc_calib.reporting.hooks import write_patterns

        if source is None:
            raise UsageError("patterns are of one source: give --input, as in --input 12+34")
        found = opened(run, force)
        path = out or found.path / "patterns.npz"
        names = write_patterns(found, source, path)
        return written(found, [path], f"{len(names)} arrays, {names[0]} to {names[-1]}")
    from abc_calib import stages

    if source is not None:
        raise UsageError(f"--input {shortened(source)}: it is of patterns; leave it out")
    if out is None:
        raise UsageError("a certificate is exported into a new folder: name it with --out")
    found = certified_first(run, CertifyOptions())
    folder = stages.export(found, out)
    return written(found, [folder], f"check it with numpy alone: python {folder / 'check.py'}")


def written(run: Run, files: list[Path], said: str) -> Result:
    """The files that were written for a run."""
    names = [str(path) for path in files]
    return Result({"run": str(run), "files": names}, names, [said])
