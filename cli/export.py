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
    "patterns": "attention weights",
    "certificate": "a folder that proves itself",
}


@command()
def export(
    form: Annotated[
        str, typer.Argument(help=f"{'; '.join(f'{k}: {v}' for k, v in FORMS.items())}.")
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
    if form not in FORMS:
        raise UsageError(f"unknown form {form!r}: choose {', '.join(FORMS)}")
    if form != "patterns" and source is not None:
        raise UsageError(f"--input {shortened(source)}: it is of patterns; leave it out")
    write: Callable[[], tuple[Run, list[Path], str]] = {
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


def _certificate(name: str | None, out: Path | None) -> tuple[Run, list[Path], str]:
    """The folder with a certificate, the model and the program that checks them."""
    from abc_calib import stages

    if out is None:
        raise UsageError("a certificate is exported into a new folder: name it with --out")
    run = certified_first(name, CertifyOptions())
    folder = stages.export(run, out)
    (program,) = sorted(folder.glob("check*.py"), reverse=True)[:1]
    return run, [folder], f"check it with numpy alone: python {program}"
