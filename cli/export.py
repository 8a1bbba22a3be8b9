"""``abc export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from abc_calib.config import CertifyOptions, ExportOptions
from abc_calib.errors import UsageError
from cli.certify import certified_first
from cli.command import Out, RunArgument, command
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.runs import Run


Form = Literal["certificate", "lines"]


@command()
def export(
    form: Annotated[Form, typer.Argument(help="certificate or lines: see above.")],
    asked: ExportOptions,
    run: RunArgument = None,
    out: Annotated[
        Path | None, typer.Option(help="The file or folder to make; of a certificate needed.")
    ] = None,
) -> Result:
    """Export the lines or the certificate of a run for other tools.

    certificate: a folder with weights, rule and check.py, which checks them with numpy alone.
    lines: an npz file with the bias of every layer on problems of the --lengths.

    Example: **abc export lines --lengths 6,50 --out lines.npz**
    """
    from abc_calib import stages
    from abc_calib.runs import Run

    if form == "certificate":
        if asked.lengths is not None:
            raise UsageError("abc export certificate takes no --lengths: it covers all of them")
        if out is None:
            raise UsageError(
                f"{run}: a certificate is exported into a new folder: name it with --out"
            )
        found = certified_first(run, CertifyOptions())
        folder = stages.export(found, out)
        return written(found, [folder], f"check it with numpy alone: python {folder / 'check.py'}")
    found = Run.open(run)
    file = stages.export_lines(found, asked.lengths, out=out)
    return written(found, [file], "numpy.load reads it: one array a length, site and layer")


@command()
def transducer(run: RunArgument = None, out: Out = None) -> Result:
    """Read a calibrated model out as a finite-state transducer that writes the same.

    A folder with its table, a file that runs it with numpy alone, and its graph.

    Example: **abc compile zoo:addition --out carry**
    """
    from abc_calib.reporting.transducer import compile
    from abc_calib.runs import Run

    found = Run.open(run)
    made = compile(found, out=out)
    runs = next(path for path in made.files if path.suffix == ".py")
    return written(found, made.files, f"{made.states} states; run them: python {runs} OPERAND ...")


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
