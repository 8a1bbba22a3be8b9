"""``abc``: train small Transformers on arithmetic, calibrate their attention, go far beyond."""

from __future__ import annotations

from typing import Annotated

import typer

from abc_calib import launch
from cli import (
    calibrate,
    certify,
    demo,
    evaluate,
    export,
    heatmap,
    inspect,
    predict,
    report,
    reproduce,
    runs,
    stress,
    sweep,
    train,
)
from cli.console import OneLine

app = typer.Typer(
    name="abc",
    cls=OneLine,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=__doc__,
    epilog="Start with **abc demo**, or with **abc train successor**, **abc calibrate**, "
    "**abc eval --max-len 50**.",
)


def _version(shown: bool) -> None:
    if shown:
        from abc_calib.version import __version__

        typer.echo(f"abc-calib {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("calibrate")(calibrate.calibrate)
app.command("retrain")(calibrate.retrain)
app.command("eval", cls=evaluate.Evaluate)(evaluate.evaluate)
app.command("stress")(stress.stress)
app.command("certify")(certify.certify)
app.command("predict")(predict.predict)
app.command("heatmap")(heatmap.heatmap)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("sweep")(sweep.sweep)
app.command("reproduce")(reproduce.reproduce)
app.command("inspect")(inspect.inspect)
app.command("diagnose")(inspect.diagnose)
app.command("runs")(runs.runs)
app.command("tasks")(runs.tasks)

if __name__ == "__main__":
    launch.main()
