"""How a function becomes a command.

A parameter whose type is a group of ``abc_calib.config`` is given the group, built of the flags of
its fields. Those of other groups are given as keywords, for a function that validates them.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from abc_calib.config import Options, build
from abc_calib.config.options import as_typed, flag_of, values_of
from abc_calib.errors import Interrupted, UsageError
from abc_calib.progress import showing
from abc_calib.stopping import like_interrupts
from cli import console
from cli.console import typed


def run_names(incomplete: str) -> list[str]:
    """Return the runs under the root whose names begin so, the newest first, for the Tab key."""
    from abc_calib.files import runs_root
    from abc_calib.runs import folders

    start = str(Path(incomplete)) if incomplete else ""
    names = [os.path.relpath(path, runs_root()) for path in reversed(folders.by_age())]
    return [name for name in names if name.startswith(start)][:200]


def task_names(incomplete: str) -> list[str]:
    """Return the tasks whose names begin so."""
    from tasks import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


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


def folder_of_figures(out: Path | None) -> Path | None:
    """Return the folder that ``--out`` names; ``UsageError`` where it is the name of a figure."""
    kind = out.suffix[1:].lower() if out else ""
    if kind in ("pdf", "svg", "png"):
        raise UsageError(f"--out {typed(out)}: name a folder; --format {kind} chooses the kind")
    return out


Figures = Annotated[
    Path | None,
    typer.Option(help="Folder; RUN/figures by default.", callback=folder_of_figures),
]
Out = Annotated[Path | None, typer.Option(help="The folder to make, instead of one in runs/.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    typer.Option(metavar="<str>", help="Where the model is computed: auto, cpu, cuda or mps."),
]
Track = Annotated[
    Literal["tensorboard"] | None,
    typer.Option(metavar="<str>", help="Also send the rows of history.jsonl to: tensorboard."),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**63 - 1,
        metavar="<int>",
        help="Seed of the weights, data and split; the first.",
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
        fields = options_of((*kinds.values(), *groups), defaults or {})
        forms = list(FORMS) if tables else ["json"]

        def wrapped(plugin: list[str] | None, quiet: bool, **values: Any) -> None:
            form = alone({f"--{name}": name for name in forms if values.pop(name)})
            if "run_" in values:
                named = {"RUN": values.pop("run"), "--run": values.pop("run_")}
                values["run"] = alone({k: v for k, v in named.items() if v not in (None, [])})
            texts = {name: text for name in fields if (text := values.pop(name)) is not None}
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
                console.render(function(**values, **texts), form or "")

        parameters = [
            p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name])
            for p in inspect.signature(function).parameters.values()
            if p.name not in kinds and p.kind is not p.VAR_KEYWORD
        ]
        parameters += [parameter(name, hint) for name, hint in fields.items()]
        parameters += common(hints.get("run"), threads, forms)
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
        wrapped.groups = (*kinds.values(), *groups)  # type: ignore[attr-defined]
        return wrapped

    return decorated


def parameter(name: str, kind: Any, option: Any = None, default: Any = None) -> inspect.Parameter:
    """Return a parameter of a command, annotated with its option."""
    hint = kind if option is None else Annotated[kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


@contextmanager
def interrupted() -> Iterator[None]:
    """Make an error in a line of Ctrl-C, and of any other request to stop."""
    try:
        with like_interrupts():
            yield
    except KeyboardInterrupt:
        raise Interrupted("stopped") from None


def options_of(groups: tuple[type[Options], ...], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of an option for each field; one that several groups have is one.

    A switch is a ``bool``; any other value stays a text, which its group reads.
    """
    hints = {}
    for name in dict.fromkeys(name for group in groups for name in group.model_fields):
        having = [group for group in groups if name in group.model_fields]
        field, values = having[0].model_fields[name], values_of(having[0].model_fields[name])
        is_switch = values == "bool"
        usual = {group.model_fields[name].default: group.group_title for group in having}
        first, *others = [defaults[name]] if name in defaults else usual
        text = field.description or ""
        if not (first is None or first is False or "default" in text):
            default = as_typed(first) + "".join(f", {usual[x]}: {as_typed(x)}" for x in others)
            text = f"{text.removesuffix('.')}; by default {default}."
        negative = f"/--no-{flag_of(name)[2:]}" if first is True else ""
        option = typer.Option(
            flag_of(name) + negative,
            help=text,
            metavar=None if is_switch else f"<{'str' if '|' in values else values}>",
            rich_help_panel=having[0].help_panel or None,
            autocompletion=task_names if name == "task" else None,
            show_default=False,
        )
        kind: Any = (bool if is_switch else str) | None
        hints[name] = Annotated[kind, option]
    return hints


def common(run: Any, threads: int | None, forms: list[str]) -> list[inspect.Parameter]:
    """Return what every command has, and ``--run`` next to an argument of that type."""
    help = "A file of Python with tasks or schemes of your own; may be given several times."
    option = typer.Option(help=help, metavar="<FILE.py>")
    shared = [parameter("plugin", list[str] | None, option)]
    kind, *info = get_args(run)[:2] or (None,)
    if info and isinstance(info[0], type(typer.Argument())):
        option = typer.Option("--run", hidden=True, autocompletion=run_names)
        shared.append(parameter("run_", kind, option))
    if threads is not None:
        number = "one" if threads else "as many as are free"
        help = f"Threads that torch may use; by default {number}."
        option = typer.Option(min=1, max=256, metavar="<int>", help=help)
        shared.append(parameter("threads", int | None, option))
    option = typer.Option("--quiet", "-q", help="No progress and no remarks.")
    shared.append(parameter("quiet", bool, option, False))
    switches = {name: typer.Option(f"--{name}", help=FORMS[name]) for name in forms}
    return shared + [parameter(name, bool, option, False) for name, option in switches.items()]


def alone(named: Mapping[str, Any]) -> Any:
    """Return the only value of what was named; ``UsageError`` for two."""
    if "RUN" in named and len(named) > 1:
        raise UsageError(f"--run {typed(named['--run'])}: a run is named already; leave one out")
    if len(named) > 1:
        raise UsageError(f"{' and '.join([*named][:2])}: leave one out")
    return next(iter(named.values()), None)
