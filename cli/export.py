"""``abc export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from abc_calib.config import CertifyOptions
from abc_calib.errors import UsageError
from cli.certify import certified_first
from cli.command import Out, RunArgument, command
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.runs import Run


@command()
def export(
    form: Annotated[
        Literal["certificate"], typer.Argument(help="certificate: a folder that proves it.")
    ],
    run: RunArgument = None,
    out: Out = None,
) -> Result:
    """Write what a run holds in a form that other tools read.

    certificate: weights, rule and check.py, which checks them with numpy alone.

    Example: **abc export certificate --out checked**
    """
    from abc_calib import stages

    if out is None:
        raise UsageError(f"{run}: a certificate is exported into a new folder: name it with --out")
    found = certified_first(run, CertifyOptions())
    folder = stages.export(found, out)
    return written(found, [folder], f"check it with numpy alone: python {folder / 'check.py'}")


@command()
def card(run: RunArgument = None, out: Out = None) -> Result:
    """Write a folder to upload: model, tokenizer, certificate and a model card.

    Example: **abc card --out card**, then hf upload USER/NAME card
    """
    from abc_calib.reporting.card import card as made
    from abc_calib.runs import Run

    if out is None:
        raise UsageError(f"{run}: a card is written into a new folder: name it with --out")
    found = Run.open(run)
    folder = made(found, out)
    return written(found, [folder], f"upload it: hf upload USER/NAME {folder}")


def written(run: Run, files: list[Path], said: str) -> Result:
    """The files that were written for a run."""
    names = [str(path) for path in files]
    return Result({"run": str(run), "files": names}, names, [said])
