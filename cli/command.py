"""How a function becomes a command: its options read once, its errors in a line, its result shown.

Options are the fields in ``abc_calib.config``. A parameter whose type is a group of them is given
the group, validated. A function that takes ``**keywords`` is given the other options that were
typed as texts, for a verb that validates them.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from abc_calib.config import Options, ThreadOptions, build
from abc_calib.errors import AbcError, Interrupted, OptionError, UsageError
from abc_calib.progress import busy, err, showing
from abc_calib.stopping import like_interrupts
from cli import completion, console
from cli.console import fail, typed
from cli.options import Flag, Group, flags_of

KEYWORD = inspect.Parameter.KEYWORD_ONLY
FREE = 0
"""As many threads as are free."""

RunArgument = Annotated[
    str | None,
    typer.Argument(
        help="A run folder or its name, also as --run; the latest run by default.",
        autocompletion=completion.run_names,
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(help="A run; the latest by default.", autocompletion=completion.run_names),
]
TaskArgument = Annotated[
    str, typer.Argument(help="The task: see abc tasks.", autocompletion=completion.task_names)
]
Figures = Annotated[Path | None, typer.Option(help="Folder; RUN/figures by default.")]
Jobs = Annotated[
    Path | None, typer.Option(help="Where the jobs' folders lie; by default runs/jobs.")
]
Out = Annotated[Path | None, typer.Option(help="The folder to make, instead of one in runs/.")]

PLUGIN = Annotated[
    list[str] | None,
    typer.Option(
        help="A file of Python with tasks or schemes of your own; may be given several times.",
        metavar="<FILE.py>",
    ),
]
SWITCHES: dict[str, Any] = {
    "quiet": typer.Option("--quiet", "-q", help="No progress and no remarks."),
    "json": typer.Option("--json", help="The result as JSON on stdout."),
    "latex": typer.Option("--latex", help="The result as a LaTeX table, with caption and label."),
    "csv": typer.Option("--csv", help="The result as CSV on stdout."),
}
"""Switches that every command has; the last two only those that print a table."""


def command(
    *groups: Group,
    without: tuple[str, ...] = (),
    defaults: Mapping[str, str] | None = None,
    loads: str = "torch",
    threads: int = 1,
    tables: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command of a function that returns a ``Result``.

    ``without`` and ``defaults`` as in ``flags_of``. What it ``loads`` may take seconds, and a
    terminal shows that. ``threads`` of torch unless ``--threads`` says otherwise: the weights that
    a seed gives depend on their number, so the machine must not choose it. With ``tables`` a result
    has one.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        kinds = {n: h for n, h in hints.items() if isinstance(h, type) and issubclass(h, Options)}
        group_types = {type(group) if isinstance(group, Options) else group for group in groups}
        other_types = [kind for kind in kinds.values() if kind not in group_types]
        flags = flags_of(*groups, *other_types, without=without, defaults=defaults)
        switches = list(SWITCHES)[: 4 if tables else 2]

        @functools.wraps(function)
        def wrapped(plugin: list[str] | None, **values: Any) -> None:
            is_on = {name: values.pop(name) for name in switches}
            texts = {name: text for name in flags if (text := values.pop(name)) is not None}
            form = _form([name for name in switches[1:] if is_on[name]])
            with (
                showing(not is_on["quiet"]),
                console.printing(form, plugin or ()),
                one_line(flags, texts),
            ):
                _load(loads, plugin or [])
                if "run_" in values:
                    values["run"] = _one_run(values["run"], values.pop("run_"))
                groups = {n: build(k, **_texts_of(k, flags, texts)) for n, k in kinds.items()}
                keywords = {n: t for n, t in texts.items() if flags[n].kind not in kinds.values()}
                chosen = build(ThreadOptions, threads=keywords.pop("threads", None)).threads
                if number := chosen or (threads if loads == "torch" else FREE):
                    import_module("torch").set_num_threads(number)
                console.render(function(**values, **groups, **keywords))

        ungrouped = [
            p for p in inspect.signature(function).parameters.values() if p.name not in kinds
        ]
        keyword_only = [
            p.replace(kind=KEYWORD, annotation=hints[p.name])
            for p in ungrouped
            if p.kind is not p.VAR_KEYWORD
        ]
        parameters = _parameters(keyword_only, flags, switches)
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.options = flags  # type: ignore[attr-defined]
        return wrapped

    return decorated


def _parameters(
    ungrouped: Sequence[inspect.Parameter], flags: Mapping[str, Flag], switches: Sequence[str]
) -> list[inspect.Parameter]:
    """Return the arguments of a command, its options, and those that every command has."""
    argument = type(typer.Argument())
    arguments = [p for p in ungrouped if any(type(a) is argument for a in get_args(p.annotation))]
    options = [flag.parameter() for flag in flags.values()]
    options += [p for p in ungrouped if p not in arguments]
    if run := next((p for p in arguments if p.name == "run"), None):
        kind = get_args(run.annotation)[0]
        option = typer.Option("--run", hidden=True, autocompletion=completion.run_names)
        options.append(_keyword("run_", Annotated[kind, option], None))
    options.append(_keyword("plugin", PLUGIN, None))
    options += [_keyword(name, Annotated[bool, SWITCHES[name]], False) for name in switches]
    return [*arguments, *options]


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, KEYWORD, default=default, annotation=annotation)


def _one_run(argument: Any, option: Any) -> Any:
    """Return the run that was named, as an argument or behind ``--run``."""
    if option is None or option == []:
        return argument
    if argument:
        raise UsageError(f"--run {typed(option)}: a run is named already; leave one out")
    return option


def _texts_of(
    kind: type[Options], flags: Mapping[str, Flag], texts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what was typed for the fields of a group."""
    return {name: text for name, text in texts.items() if flags[name].kind is kind}


def _form(names: Sequence[str]) -> str:
    """Return the form in which the result is printed; ``""`` is for people."""
    if len(names) > 1:
        fail(f"--{names[0]} and --{names[1]} are two forms of one result: leave one out", 2)
    return names[0] if names else ""


def _load(module: str, plugins: Sequence[str]) -> None:
    """Import what a command is going to need, shown in a terminal, and what ``--plugin`` names."""
    if module and module not in sys.modules and err.is_terminal:
        with busy("loading", None):
            import_module(module)
    for file in plugins:
        import_module("abc_calib.plugins").load_plugin(file)


# What goes wrong


@contextmanager
def one_line(
    flags: Mapping[str, Flag] | None = None, texts: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Turn expected errors into one line on stderr: exit code 2 for usage, 1 for failure."""
    try:
        with like_interrupts(), warnings.catch_warnings():
            warnings.showwarning = functools.partial(console.show_warning, warnings.showwarning)
            yield
    except OptionError as error:
        fail(_as_typed(flags or {}, texts or {}, error), 2)
    except AbcError as error:
        codes = {UsageError: 2, Interrupted: 130}
        fail(str(error), next((codes[kind] for kind in codes if isinstance(error, kind)), 1))
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(console.unwritten(error), 1)
    except EOFError as error:  # click takes it for Ctrl-C
        fail(f"{error}: a file or the input ends too early", 1)
    except UnicodeError as error:
        fail(f"{error}: a file or a name in it is not UTF-8", 1)
    except (KeyboardInterrupt, typer.Abort):
        fail("stopped", 130)
    except typer.Exit:
        raise
    except Exception as error:
        if _is_memory(error):
            fail(_out_of_memory(flags or {}, texts or {}), 1)
        plugins = sys.modules.get("abc_calib.plugins")
        if line := plugins.blamed(error) if plugins else "":
            fail(line, 1)
        raise


def _as_typed(flags: Mapping[str, Flag], texts: Mapping[str, Any], error: OptionError) -> str:
    """Return a refusal with the flag and the value that the user typed."""
    if error.option not in flags:
        return str(error)
    return f"{flags[error.option].flag} {typed(texts.get(error.option, error.value))}: {error.rule}"


def _is_memory(error: Exception) -> bool:
    """Did the memory run out, in the words of Python or torch?"""
    is_torch = isinstance(error, RuntimeError)
    words = ("out of memory", "allocate memory")
    return isinstance(error, MemoryError) or (is_torch and any(w in str(error) for w in words))


def _out_of_memory(flags: Mapping[str, Flag], texts: Mapping[str, Any]) -> str:
    """Name the numbers that the user typed."""
    sizes = [n for n in texts if flags[n].type in (int, float) or n == "lengths"]
    if not sizes:
        return "out of memory: use shorter lengths or fewer samples"
    values = ", ".join(f"{flags[n].flag} {typed(texts[n])}" for n in sizes)
    return f"out of memory with {values}: give less"
