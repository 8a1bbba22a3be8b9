"""``abc``: train small Transformers on short problems, calibrate and certify them."""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from abc_calib.config.options import as_typed, flag_of, rule_of
from abc_calib.errors import AbcError, Interrupted, OptionError, UsageError
from cli import certify, console, demo, evaluate, export, runs, sweep, train
from cli.console import typed


class OneLine(TyperGroup):
    """The group of commands; each error that is expected is one line on stderr."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        console.prepare()
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # notes to its own developers
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
            sys.stdout.flush()
        except Exception as error:
            message, code = expected(error)
            if message is None:
                raise
            closed(error)
            if message:
                console.say_error(message)
        sys.exit(code if isinstance(code, int) else 0)


def expected(error: Exception) -> tuple[str | None, int]:
    """Return what to say of an error, and the exit code; None for a defect."""
    if isinstance(error, OptionError):
        return f"{flag_of(error.option)} {typed(as_typed(error.value))}: {error.rule}", 2
    if isinstance(error, AbcError):
        is_usage, was_stopped = isinstance(error, UsageError), isinstance(error, Interrupted)
        return str(error), 2 if is_usage else 130 if was_stopped else 1
    if isinstance(error, typer.Abort):
        return "stopped", 130
    if hasattr(error, "format_message"):  # what Typer's parser refuses
        return refused(error), 2
    if isinstance(error, OSError):
        return unusable(error), 1
    if isinstance(error, EOFError | UnicodeError):
        return f"{error}: a file or the input ends too early, or is not UTF-8", 1
    if isinstance(error, MemoryError) or re.search("(out of|allocate) memory", str(error)):
        return "out of memory: give shorter lengths, fewer samples or smaller batches", 1
    plugins = sys.modules.get("abc_calib.plugins")
    return (plugins.blamed(error) if plugins else "") or None, 1


def refused(error: Any) -> str:
    """Return what Typer says in a line; nothing where it has shown the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return ""
    text = error.format_message().replace("Value error, ", "").removesuffix(".")
    message = " ".join(text.split())
    context, cause = getattr(error, "ctx", None), error.__cause__
    if isinstance(cause, ValidationError):
        problem = cause.errors()[0]
        rule = re.sub("^.* is not one of ", "choose ", rule_of(problem)).replace("'", "")
        return f"{error.param.opts[0]} {typed(problem['input'])}: {rule.removesuffix('.')}"
    # abc predict takes -3+2, so it takes all of them
    unexpected = re.search(r"^Got unexpected .*(--[a-z][\w-]*)(.*)\)", message)
    option, rest = unexpected.groups() if unexpected else (getattr(error, "option_name", ""), "")
    hint = hint_at(option, context.command) if context is not None and option else ""
    if context is not None and option:
        command = f"abc {context.info_name}" if context.parent else "abc"
        shown, hint = (option, hint) if hint else (option + rest, f"{command} --help lists all")
        return hint if hint[0] == "-" else f"no such option: {shown} ({hint})"
    unlike = message.startswith("No such command") and "Did you mean" not in message
    if context is not None and unlike:
        message += f": choose one of {', '.join(context.command.commands)}"
    if context is not None and message.startswith(("Missing ", "Got unexpected ")):
        quotes = "" if message[0] == "M" else "put what has spaces in quotes; "
        if quotes and "run_" not in context.params and "run" in context.params:
            quotes = f"{quotes[:-2]}, and name a run with --run; "
        message += f": {quotes}abc {context.info_name} --help shows an example"
    return message[:1].lower() + message[1:]


def hint_at(option: str, command: Any) -> str:
    """Return which option of a command is meant by one that it does not have; empty if none is."""
    names = [name for parameter in command.params for name in parameter.opts]
    if option in names:
        return f"{option} comes behind --: put all options before it"
    near = difflib.get_close_matches(option, names, 1, cutoff=0.7)
    near += [x for x in names if "--" + "".join(w[:1] for w in x[2:].split("-")) == option]
    if near and near[0][0] != "-":
        return "it is an argument: write its value without a name"
    return f"did you mean {near[0]}?" if near else ""


def unusable(error: OSError) -> str:
    """Return what to say of a file that could not be used; nothing of a reader that left."""
    if error.filename is not None:
        name = typed(os.fsdecode(error.filename))
        return f"{name} cannot be used ({error.strerror}): name another file or folder"
    if error.errno == errno.EPIPE:
        return ""
    return f"the output cannot be written ({error.strerror}): send it elsewhere"


def closed(error: Exception) -> None:
    """Close an output that cannot be written, or Python tries again when it ends."""
    if isinstance(error, OSError) and error.filename is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


app = typer.Typer(
    name="abc",
    cls=OneLine,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=__doc__,
    epilog="Start with **abc demo** or **abc predict 12+34 --run zoo:addition**. "
    "A model of transformers: **abc calibrate --hf FOLDER**. Options: **abc COMMAND --help**.",
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


PANELS = {
    "First steps": (demo.demo, certify.prove, evaluate.predict, runs.tasks, runs.check_task),
    "Step by step": (
        *(train.train, train.calibrate, train.retrain),
        *(certify.certify, certify.verify, certify.repair),
    ),
    "Measure": (evaluate.evaluate, evaluate.stress, evaluate.inspect, evaluate.diagnose),
    "Figures, pages and files": (
        *(export.heatmap, export.curves, export.report),
        *(export.export, export.transducer, export.card),
    ),
    "Many runs": (runs.runs, sweep.sweep, sweep.reproduce),
}
"""The commands as the help groups them."""
NAMES = {"evaluate": "eval", "transducer": "compile"}
"""Of commands that are not called as their functions are."""
for _panel, _functions in PANELS.items():
    for _function in _functions:
        _name = NAMES.get(_function.__name__, _function.__name__.replace("_", "-"))
        # a problem may begin with -, as in abc predict -3+2
        _settings = {"ignore_unknown_options": _name == "predict"}
        app.command(_name, rich_help_panel=_panel, context_settings=_settings)(_function)

if __name__ == "__main__":
    app()
