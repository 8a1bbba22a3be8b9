"""``abc export``, ``abc compile`` and ``abc card``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from abc_calib.config import CertifyOptions, EvaluateOptions, build
from abc_calib.errors import UsageError
from cli.certify import certified_first
from cli.command import Out, RunArgument, command
from cli.console import Result, typed

if TYPE_CHECKING:
    from abc_calib.runs import Run


@command()
def export(
    form: Annotated[
        Literal["certificate", "lines"] | None,
        typer.Argument(help="certificate or lines: see above."),
    ] = None,
    run: RunArgument = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="lines: of the problems; by default the training length and 50."),
    ] = None,
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

    if form is None:
        raise UsageError("say what: abc export lines, or abc export certificate --out FOLDER")
    opened_run = stages.opened(run)
    if form == "lines":
        sizes = build(EvaluateOptions, lengths=lengths).lengths
        file = stages.export_lines(opened_run, sizes, out=out)
        return written(opened_run, [file], "numpy.load reads it")
    if lengths is not None:
        raise UsageError("abc export certificate takes no --lengths: it covers all of them")
    if out is None:
        raise UsageError("name a new folder for it: abc export certificate --out FOLDER")
    certified_run = certified_first(run, CertifyOptions())
    folder = stages.export(certified_run, out)
    return written(certified_run, [folder], f"check it: python {folder / 'check.py'}")


@command()
def transducer(run: RunArgument = None, out: Out = None) -> Result:
    """Read a calibrated model out as a finite-state transducer that writes the same.

    A folder with its table, a file that runs it with numpy alone, and its graph.

    Example: **abc compile zoo:addition --out carry**
    """
    from abc_calib import stages
    from abc_calib.reporting.transducer import compile

    opened_run = stages.opened(run)
    compiled = compile(opened_run, out=out)
    program = next(path for path in compiled.files if path.suffix == ".py")
    remark = f"{compiled.states} states; run them: python {program} OPERAND ..."
    return written(opened_run, compiled.files, remark)


@command()
def card(run: RunArgument = None, out: Out = None) -> Result:
    """Write a folder to upload: model, tokenizer, certificate and a model card.

    Example: **abc card --out card**, then hf upload USER/NAME card
    """
    from abc_calib import stages
    from abc_calib.reporting.card import card as write_card

    if out is None:
        words = " ".join(["abc card", *([typed(run)] if run else []), "--out FOLDER"])
        raise UsageError(f"a card is written into a new folder: {words}")
    opened_run = stages.opened(run)
    folder = write_card(opened_run, out)
    return written(opened_run, [folder], f"upload it: hf upload USER/NAME {folder}")


def written(run: Run, files: list[Path], remark: str) -> Result:
    """Report the files that were written for a run."""
    names = [str(path) for path in files]
    return Result({"run": str(run), "files": names}, names, [remark])
