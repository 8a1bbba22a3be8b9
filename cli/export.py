"""Commands that write files of a run: figures, pages, lines, certificates, machines and cards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import abc_calib as abc
from abc_calib.config import CertifyOptions, DrawOptions, EvaluateOptions, FigureOptions, build
from abc_calib.errors import UsageError
from abc_calib.text import counted
from cli.certify import certified_first
from cli.command import Figures, Out, RunArgument, command, folder_of_figures, run_names
from cli.console import Result, say, typed

Runs = Annotated[list[str], typer.Argument(help="Run folders or names.", autocompletion=run_names)]
Labels = Annotated[
    str | None,
    typer.Option(help="Names of the runs, with commas between; by default what differs."),
]
Folder = Annotated[
    Path | None,
    typer.Option(help="Folder; runs/figures by default.", callback=folder_of_figures),
]


@command()
def heatmap(options: FigureOptions, run: RunArgument = None, out: Figures = None) -> Result:
    """Draw the attention of each head, its lines, and the bias.

    Attention is averaged over problems; the bias is extended to longer ones. Writes the arrays too.

    Examples: **abc heatmap --format svg --digits 30** · **abc heatmap --layer 1 --panel bias
    --width column --font sans --no-title** · **abc heatmap --input 999+1 --sites cross**
    """
    opened_run = abc.Run.open(run)
    folder = out or opened_run.path / "figures"
    paths = abc.heatmap(opened_run, folder, options=options)
    remark = f"{counted(len(paths), 'files')}: {', '.join(path.name for path in paths)}"
    files = [str(path) for path in paths]
    return Result({"run": str(opened_run), "files": files}, [str(folder)], [remark])


@command(tables=True)
def curves(runs: Runs, options: DrawOptions, labels: Labels = None, out: Folder = None) -> Result:
    """Draw exact match against length of several runs in one figure.

    Each run has to be evaluated first (abc eval); the jobs of a sweep are.

    Examples: **abc curves RUN OTHER --labels "before,after" --format png** · **abc curves RUN OTHER
    --latex**
    """
    from abc_calib.files import runs_root
    from abc_calib.reporting.of_runs import table

    folder = out or runs_root() / "figures"
    paths = abc.curves(runs, folder, labels=labels, **options.model_dump())
    names = [str(path) for path in paths]
    return Result({"files": names}, names, table=table(runs, labels))


Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Run folders or their names, also as --run; the latest run by default.",
        autocompletion=run_names,
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(help="The file; RUN/report.html by default, runs/report.html of several."),
]
Open = Annotated[bool, typer.Option("--open", help="Show it in the browser.")]


@command()
def report(run: Names = None, out: Page = None, open_: Open = False) -> Result:
    """Make an HTML page of one or several runs.

    One file that needs no network. It shows how good the run is and what its heads look at, and
    runs a calibrated model in the browser on whatever problem is typed.

    Examples: **abc report --open** · **abc report RUN OTHER --out both.html**
    """
    from abc_calib.files import runs_root
    from abc_calib.progress import bar
    from abc_calib.reporting.page import write_page

    names: list[str | None] = [*dict.fromkeys(run or ())] or [None]
    runs = [*map(abc.Run.open, names)]
    folder = runs[0].path if len(runs) == 1 else runs_root()
    with bar("making the page", None, "runs") as update:
        target = out or folder / "report.html"
        path = write_page(runs, target, on_run=lambda k, n, name: update(k, n, name, True))
    if open_ and typer.launch(path.resolve().as_uri()) != 0:
        say(f"no browser was found: open {path} yourself")
    return Result({"runs": [*map(str, runs)], "file": str(path)}, [str(path)])


Form = Annotated[
    Literal["certificate", "lines"] | None, typer.Argument(help="certificate or lines: see above.")
]
Lengths = Annotated[
    str | None, typer.Option(help="lines: of the problems; by default the training length and 50.")
]
Made = Annotated[
    Path | None, typer.Option(help="The file or folder to make; of a certificate needed.")
]


@command()
def export(
    form: Form = None, run: RunArgument = None, lengths: Lengths = None, out: Made = None
) -> Result:
    """Export the lines or the certificate for other tools.

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
    """Extract the finite-state transducer that a model computes.

    Writes a folder with its table, a file that runs it with numpy alone, and its graph.

    Example: **abc compile zoo:addition --out carry**
    """
    opened_run = abc.Run.open(run)
    compiled = abc.compile(opened_run, out=out)
    program = next(path for path in compiled.files if path.suffix == ".py")
    remark = f"{compiled.states} states; run them: python {program} OPERAND ..."
    return written(opened_run, compiled.files, remark)


@command()
def card(run: RunArgument = None, out: Out = None) -> Result:
    """Write a folder to upload, with a model card.

    Also in it: model, tokenizer and certificate.

    Example: **abc card --out card**, then hf upload USER/NAME card
    """
    if out is None:
        words = " ".join(["abc card", *([typed(run)] if run else []), "--out FOLDER"])
        raise UsageError(f"--out is missing, the new folder that a card is written into: {words}")
    opened_run = abc.Run.open(run)
    folder = abc.card(opened_run, out)
    return written(opened_run, [folder], f"upload it: hf upload USER/NAME {folder}")


def written(run: abc.Run, files: list[Path], remark: str) -> Result:
    """Report the files that were written for a run."""
    names = [str(path) for path in files]
    return Result({"run": str(run), "files": names}, names, [remark])
