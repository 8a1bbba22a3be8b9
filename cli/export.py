"""``abc export``, ``abc compile`` and ``abc card``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import abc_calib as abc
from abc_calib.config import CertifyOptions, EvaluateOptions, build
from abc_calib.errors import UsageError
from cli.certify import certified_first
from cli.command import Out, RunArgument, command
from cli.console import Result, typed

Form = Annotated[
    Literal["certificate", "lines"] | None,
    typer.Argument(help="certificate or lines: see above."),
]
Lengths = Annotated[
    str | None,
    typer.Option(help="lines: of the problems; by default the training length and 50."),
]
Made = Annotated[
    Path | None, typer.Option(help="The file or folder to make; of a certificate needed.")
]


@command()
def export(
    form: Form = None, run: RunArgument = None, lengths: Lengths = None, out: Made = None
) -> Result:
    """Export the lines or the certificate of a run for other tools.

    certificate: a folder with weights, rule and check.py, which checks them with numpy alone.
    lines: an npz file with the bias of every layer on problems of the --lengths.

    Example: **abc export lines --lengths 6,50 --out lines.npz**
    """
    if form is None:
        raise UsageError("say what: abc export lines, or abc export certificate --out FOLDER")
    if form == "lines":
        opened_run = abc.Run.open(run)
        sizes = build(EvaluateOptions, lengths=lengths).lengths
        file = abc.export_lines(opened_run, sizes, out=out)
        return written(opened_run, [file], "numpy.load reads it")
    if lengths is not None:
        raise UsageError("abc export certificate takes no --lengths: it covers all of them")
    if out is None:
        raise UsageError("name a new folder for it: abc export certificate --out FOLDER")
    certified_run = certified_first(run, CertifyOptions())
    folder = abc.export(certified_run, out)
    return written(certified_run, [folder], f"check it: python {folder / 'check.py'}")


@command()
def transducer(run: RunArgument = None, out: Out = None) -> Result:
    """Read a calibrated model out as a finite-state transducer that writes the same.

    A folder with its table, a file that runs it with numpy alone, and its graph.

    Example: **abc compile zoo:addition --out carry**
    """
    opened_run = abc.Run.open(run)
    compiled = abc.compile(opened_run, out=out)
    program = next(path for path in compiled.files if path.suffix == ".py")
    remark = f"{compiled.states} states; run them: python {program} OPERAND ..."
    return written(opened_run, compiled.files, remark)


@command()
def card(run: RunArgument = None, out: Out = None) -> Result:
    """Write a folder to upload: model, tokenizer, certificate and a model card.

    Example: **abc card --out card**, then hf upload USER/NAME card
    """
    if out is None:
        words = " ".join(["abc card", *([typed(run)] if run else []), "--out FOLDER"])
        raise UsageError(f"a card is written into a new folder: {words}")
    opened_run = abc.Run.open(run)
    folder = abc.card(opened_run, out)
    return written(opened_run, [folder], f"upload it: hf upload USER/NAME {folder}")


def written(run: abc.Run, files: list[Path], remark: str) -> Result:
    """Report the files that were written for a run."""
    names = [str(path) for path in files]
    return Result({"run": str(run), "files": names}, names, [remark])
