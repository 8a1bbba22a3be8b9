"""How a function becomes a command.

A parameter whose type is a group of ``abc_calib.config`` is given the group, built of the flags of
its fields. Those of other groups are given as keywords, for a function that validates them.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from abc_calib.config import Options, build
from abc_calib.config.options import as_typed, flag_of, panel_of, values_of
from abc_calib.errors import Interrupted, UsageError
from abc_calib.progress import showing
from abc_calib.stopping import like_interrupts
from cli import console
from cli.completion import run_names, task_names
from cli.console import typed

RunArgument = Annotated[
    str | None,
    typer.Argument(
        help="A run folder or its name, also as --run; the latest run by default.",
        autocompletion=run_names,
    ),
]
TaskArgument = Annotated[
    str, typer.Argument(help="The task: see abc tasks.", autocompletion=task_names)
]
Figures = Annotated[Path | None, typer.Option(help="Folder; RUN/figures by default.")]
Jobs = Annotated[
    Path | None, typer.Option(help="Where the jobs' folders lie; by default runs/jobs.")
]
Out = Annotated[Path | None, typer.Option(help="The folder to make, instead of one in runs/.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where the model is computed.")
]
Track = Annotated[
    Literal["tensorboard"] | None,
    typer.Option(help="Also send the rows of history.jsonl to this tracker."),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        help="A file of Python with tasks or schemes of your own; may be given several times.",
        metavar="<FILE.py>",
    ),
]
FORMS = {
    "json": "The result as JSON on stdout.",
    "latex": "The result as a LaTeX table, with caption and label.",
    "csv": "The result as CSV on stdout.",
}
"""Switches that say how the result is printed; the last two only of commands that print a table."""


def command(
    *groups: type[Options],
    defaults: Mapping[str, Any] | None = None,
    threads: int | None = 1,
    tables: bool = False,
) -> Callable[[Callable[..., console.Result]], Callable[..., None]]:
    """Make a command of a function that returns a ``Result``.

    ``groups``: whose fields it takes as keywords. ``defaults`` of fields that are not the groups'.
    ``threads`` of torch unless ``--threads`` says otherwise, 0 for all: the weights that a seed
    gives depend on their number, so the machine must not choose it. None: it needs no torch. With
    ``tables`` a result has one.
    """

    def decorated(function: Callable[..., console.Result]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        kinds = {n: h for n, h in hints.items() if isinstance(h, type) and issubclass(h, Options)}
        fields = parameters_of((*kinds.values(), *groups), defaults or {})
        forms = list(FORMS) if tables else ["json"]

        @functools.wraps(function)
        def wrapped(plugin: list[str] | None, quiet: bool, **values: Any) -> None:
            form = one_form([name for name in forms if values.pop(name)])
            texts = {name: text for name in fields if (text := values.pop(name)) is not None}
            if "run_" in values:
                values["run"] = one_run(values["run"], values.pop("run_"))
            number = values.pop("threads", None) or threads
            with showing(not quiet), interrupted(), warnings.catch_warnings():
                warnings.showwarning = functools.partial(console.show_warning, warnings.showwarning)
                for file in plugin or ():
                    import_module("abc_calib.plugins").load_plugin(file)
                if number:
                    import_module("torch").set_num_threads(number)
                for name, kind in kinds.items():
                    chosen = {n: texts.pop(n) for n in kind.model_fields if n in texts}
                    values[name] = build(kind, **chosen)
                console.render(function(**values, **texts), form)

        parameters = [
            p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name])
            for p in inspect.signature(function).parameters.values()
            if p.name not in kinds and p.kind is not p.VAR_KEYWORD
        ]
        parameters += [*fields.values(), *common(parameters, threads, forms)]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.groups = (*kinds.values(), *groups)  # type: ignore[attr-defined]
        return wrapped

    return decorated


@contextmanager
def interrupted() -> Iterator[None]:
    """Make an error in a line of Ctrl-C, and of any other request to stop."""
    try:
        with like_interrupts():
            yield
    except KeyboardInterrupt:
        raise Interrupted("stopped") from None


def parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """Return a parameter of a command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def parameters_of(
    groups: tuple[type[Options], ...], defaults: Mapping[str, Any]
) -> dict[str, inspect.Parameter]:
    """Return the fields of all groups as options; one that several have is one, with each default.

    A switch is a ``bool``; any other value stays a text, which its group reads.
    """
    parameters = {}
    for name in dict.fromkeys(name for group in groups for name in group.model_fields):
        having = [group for group in groups if name in group.model_fields]
        field, values = having[0].model_fields[name], values_of(having[0].model_fields[name])
        panel, is_switch = panel_of(field), values == "bool"
        usual = {group.model_fields[name].default: group.group_title for group in having}
        first, *others = [defaults[name]] if name in defaults else usual
        default = as_typed(first) + "".join(f", {usual[x]}: {as_typed(x)}" for x in others)
        text = field.description or ""
        if not (first is None or first is False or "default" in text):
            text = f"{text.removesuffix('.')}; by default {default}."
        negative = f"/--no-{flag_of(name)[2:]}" if first is True else ""
        option = typer.Option(
            flag_of(name) + negative,
            help=text,
            metavar=None if is_switch else f"<{values}>",
            rich_help_panel=(having[0].help_panel if panel is None else panel) or None,
            autocompletion=task_names if name == "task" else None,
            show_default=False,
        )
        kind: Any = (bool if is_switch else str) | None
        parameters[name] = parameter(name, Annotated[kind, option])
    return parameters


def common(
    own: list[inspect.Parameter], threads: int | None, forms: list[str]
) -> list[inspect.Parameter]:
    """Return the options that every command has, and ``--run`` of one with a run as argument."""
    parameters = [parameter("plugin", Plugins)]
    for p in own:
        if p.name == "run" and isinstance(get_args(p.annotation)[1], type(typer.Argument())):
            option = typer.Option("--run", hidden=True, autocompletion=run_names)
            parameters.append(parameter("run_", Annotated[get_args(p.annotation)[0], option]))
    if threads is not None:
        number = "one" if threads else "as many as are free"
        help = f"Threads that torch may use; by default {number}."
        option = typer.Option(min=1, max=256, help=help)
        parameters.append(parameter("threads", Annotated[int | None, option]))
    option = typer.Option("--quiet", "-q", help="No progress and no remarks.")
    parameters.append(parameter("quiet", Annotated[bool, option], False))
    for name in forms:
        option = typer.Option(f"--{name}", help=FORMS[name])
        parameters.append(parameter(name, Annotated[bool, option], False))
    return parameters


def one_run(argument: Any, option: Any) -> Any:
    """Return the run that was named, as an argument or behind ``--run``."""
    if argument and option:
        raise UsageError(f"--run {typed(option)}: a run is named already; leave one out")
    return option or argument


def one_form(names: list[str]) -> str:
    """Return the form in which the result is printed; ``""`` is for people."""
    if len(names) > 1:
        raise UsageError(f"--{names[0]} and --{names[1]}: leave one out")
    return names[0] if names else ""
