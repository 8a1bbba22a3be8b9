"""``abc``: train small Transformers on short problems, calibrate and certify them."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from abc_calib.errors import UsageError
from cli import (
    calibrate,
    certify,
    console,
    demo,
    evaluate,
    export,
    figures,
    inspect,
    reproduce,
    runs,
    sweep,
    train,
)
from cli.command import one_line
from cli.console import say_error, typed


class OneLine(TyperGroup):
    """The group of commands; what its parser refuses is one line, as every other error is."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        parsed = super().get_command(ctx, cmd_name)
        for parameter in parsed.get_params(ctx) if parsed else ():
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""  # a switch has no type
        return parsed

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        console.prepare()
        try:
            with one_line():
                check_text(*sys.argv[1:], os.environ.get("ABC_RUNS", ""))
                code = super().main(*args, **{**extra, "standalone_mode": False})
        except typer.Exit as leaving:
            code = leaving.exit_code
        except Exception as error:
            message = getattr(error, "format_message", None)
            if message is None:
                raise
            code = _refuse(error, message())
        if (lost := console.flush()) and not code:
            code = say_error(lost, 1)
        sys.exit(code if isinstance(code, int) else 0)


def check_text(*words: str) -> None:
    """Raise ``UsageError`` for a word whose bytes are not text, as the system encodes it."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{typed(word)} is not UTF-8: write names in that encoding") from None


def _refuse(error: Any, message: str) -> int:
    """What Typer's parser does not take, in a line; the help where nothing was asked."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "abc COMMAND"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return 2
    message = message.removesuffix(".").replace("\n", " ")
    if not re.search(r"[Dd]id you mean|\bchoose\b", message):
        message += f": {path} --help shows what there is"
    return say_error(message[:1].lower() + message[1:], 2)


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
app.command("check-task")(runs.check_task)
app.command("train")(train.train)
app.command("calibrate")(calibrate.calibrate)
app.command("retrain")(calibrate.retrain)
app.command("eval")(evaluate.evaluate)
app.command("stress")(evaluate.stress)
app.command("certify")(certify.certify)
app.command("verify")(certify.verify)
app.command("repair")(certify.repair)
app.command("prove")(certify.prove)
app.command("predict")(evaluate.predict)
app.command("heatmap")(figures.heatmap)
app.command("curves")(figures.curves)
app.command("report")(figures.report)
app.command("export")(export.export)
app.command("compile")(export.transducer)
app.command("card")(export.card)
app.command("sweep")(sweep.sweep)
app.command("reproduce")(reproduce.reproduce)
app.command("inspect")(inspect.inspect)
app.command("diagnose")(inspect.diagnose)
app.command("runs")(runs.runs)
app.command("tasks")(runs.tasks)

if __name__ == "__main__":
    app()
