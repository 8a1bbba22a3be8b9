"""How a function becomes a command: its options read once, its errors in a line, its result shown.

Options are the fields in ``abc_calib.config``. A parameter whose type is a group of them is given
the group, validated; the options of ``groups`` that were typed are given by their names.
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
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from abc_calib.config import Options, build
from abc_calib.config.signature import Group, Named, iter_options
from abc_calib.errors import AbcError, Interrupted, OptionError, UsageError
from abc_calib.progress import busy, err, showing
from abc_calib.stopping import like_interrupts
from cli import completion, console, terminal
from cli.console import fail, typed

if TYPE_CHECKING:
    pass

KEYWORD = inspect.Parameter.KEYWORD_ONLY
NO_MEMORY = "out of memory: use shorter lengths or fewer samples"
FREE = 0
"""As many threads as are free."""

RunArgument = Annotated[
    str | None,
    typer.Argument(
        help="A run folder or its name; the latest run by default.",
        autocompletion=completion.run_names,
    ),
]
Figures = Annotated[Path | None, typer.Option(help="Folder; RUN/figures by default.")]
Jobs = Annotated[
    Path | None, typer.Option(help="Where the jobs' folders lie; by default runs/jobs.")
]
Out = Annotated[Path | None, typer.Option(help="The folder to make, instead of one in runs/.")]

EVERYWHERE: dict[str, Any] = {
    "plugin": Annotated[
        list[str] | None,
        typer.Option(
            help="A file of Python with tasks or schemes of your own; may be given several times.",
            metavar="<FILE.py>",
        ),
    ],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")],
    "json": Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")],
}
TABLES: dict[str, Any] = {
    "latex": Annotated[
        bool, typer.Option("--latex", help="The result as a LaTeX table, with caption and label.")
    ],
    "csv": Annotated[bool, typer.Option("--csv", help="The result as CSV on stdout.")],
}
"""Options that every command has, and that those have which print a table."""


def command(
    *groups: Group,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
    loads: str = "torch",
    threads: int = 1,
    tables: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command of a function that gives a ``Result``.

    ``without``, ``only`` and ``kept`` as in ``iter_options``. What it ``loads`` may take seconds,
    and a terminal shows that. ``threads`` of torch unless ``--threads`` says otherwise: the weights
    that a seed gives depend on their number, so the machine must not choose it. With ``tables`` a
    result has one.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        wanted = {n: h for n, h in hints.items() if isinstance(h, type) and issubclass(h, Options)}
        own = inspect.signature(function).parameters
        takes_rest = any(p.kind is p.VAR_KEYWORD for p in own.values())
        known = iter_options(*groups, *wanted.values(), without=without, only=only, kept=kept)
        always = EVERYWHERE | (TABLES if tables else {})

        @functools.wraps(function)
        def wrapped(*, plugin: list[str] | None, quiet: bool, **values: Any) -> None:
            form = _form({name: values.pop(name) for name in always.keys() & values.keys()})
            texts = {name: values.pop(name) for name in known}
            with showing(not quiet), console.printing(form, plugin or ()), _one_line(known, texts):
                _load(loads, plugin or [])
                given, built = _read(known, texts)
                if number := given.pop("threads", None) or (threads if loads == "torch" else FREE):
                    import_module("torch").set_num_threads(number)
                values |= {name: built.get(kind) or kind() for name, kind in wanted.items()}
                rest = {n: v for n, v in given.items() if known[n].kind not in wanted.values()}
                console.render(function(**values, **(rest if takes_rest else {})))

        mine = [
            parameter.replace(kind=KEYWORD, annotation=hints[name])
            for name, parameter in own.items()
            if name not in wanted and parameter.kind is not parameter.VAR_KEYWORD
        ]
        parameters = _parameters(mine, known, always)
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.options = known  # type: ignore[attr-defined]
        return wrapped

    return decorated


# Options


def _parameters(
    mine: Sequence[inspect.Parameter], known: Mapping[str, Named], always: Mapping[str, Any]
) -> list[inspect.Parameter]:
    """The arguments of a command, its options, and those that every command has."""
    flags = [*map(_flag, known.values()), *(p for p in mine if not _is_argument(p))]
    for name, about in always.items():
        default = None if name == "plugin" else False
        flags.append(inspect.Parameter(name, KEYWORD, default=default, annotation=about))
    return [*filter(_is_argument, mine), *flags]


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(type(a) is type(typer.Argument()) for a in get_args(parameter.annotation))


def _flag(option: Named) -> inspect.Parameter:
    """The parameter of an option: a switch, or a text that its group reads."""
    switch = option.type is bool
    kind: Any = (bool if switch else str) | None
    no = f"/--no-{option.flag.removeprefix('--')}" if option.default == "yes" else ""
    info = typer.Option(
        option.flag + no,
        help=option.help,
        metavar=None if switch else f"<{option.what}>",
        rich_help_panel=option.panel,
        autocompletion=completion.of(option.name),
        show_default=False,
    )
    return inspect.Parameter(
        option.name, KEYWORD, default=None, annotation=Annotated[kind | None, info]
    )


def _read(
    known: Mapping[str, Named], texts: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[type[Options], Options]]:
    """The values of the options that were given, and their groups, each validated once."""
    typed_in: dict[type[Options], dict[str, Any]] = {}
    for option in known.values():
        if texts[option.name] is not None:
            typed_in.setdefault(option.kind, {})[option.name] = texts[option.name]
    built: dict[type[Options], Options] = {k: build(k, **v) for k, v in typed_in.items()}
    given = {name: getattr(built[kind], name) for kind, v in typed_in.items() for name in v}
    return given, built


def _as_typed(known: Mapping[str, Named], texts: Mapping[str, Any], error: OptionError) -> str:
    """The refusal with the flag and the value that the user typed."""
    if error.option not in known:
        return str(error)
    value = error.value if texts[error.option] is None else texts[error.option]
    return f"{known[error.option].flag} {typed(value)}: {error.rule}"


def _sizes(known: Mapping[str, Named], texts: Mapping[str, Any]) -> str:
    """The numbers that the user typed, as they were."""
    sizes = [o for o in known.values() if o.type in (int, float) or o.name == "lengths"]
    return ", ".join(f"{o.flag} {typed(texts[o.name])}" for o in sizes if texts[o.name])


def _form(asked: Mapping[str, bool]) -> str:
    """In which form the result is to be printed; ``""`` is for people."""
    forms = [name for name, is_asked in asked.items() if is_asked]
    if len(forms) > 1:
        fail(f"--{forms[0]} and --{forms[1]} are two forms of one result: leave one out", 2)
    return forms[0] if forms else ""


# What a command needs


def _load(module: str, plugins: list[str]) -> None:
    """Import what a command is going to need, said in a terminal, and what ``--plugin`` names."""
    if module and module not in sys.modules and err.is_terminal:
        with busy("loading", None):
            import_module(module)
    for file in plugins:
        import_module("abc_calib.plugins").load_plugin(file)


# What goes wrong


@contextmanager
def _one_line(known: Mapping[str, Named], texts: Mapping[str, Any]) -> Iterator[None]:
    """Turn expected errors into one line on stderr: exit code 2 for usage, 1 for failure."""

    try:
        with like_interrupts(), warnings.catch_warnings():
            warnings.showwarning = functools.partial(console.show_warning, warnings.showwarning)
            yield
    except OptionError as error:
        fail(_as_typed(known, texts, error), 2)
    except UsageError as error:
        fail(str(error), 2)
    except AbcError as error:
        fail(str(error), 130 if isinstance(error, Interrupted) else 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(terminal.unwritten(error), 1)
    except EOFError as error:  # click takes it for Ctrl-C
        fail(f"{error}: a file or the input ends too early", 1)
    except UnicodeError as error:
        fail(f"{error}: a file or a name in it is not UTF-8", 1)
    except typer.Exit:
        raise
    except Exception as error:
        if _is_memory(error):
            sizes = _sizes(known, texts)
            fail(f"out of memory with {sizes}: give less" if sizes else NO_MEMORY, 1)
        plugins = sys.modules.get("abc_calib.plugins")
        if place := plugins.blamed(error) if plugins else "":
            fail(place, 1)
        raise
    except KeyboardInterrupt:
        fail("stopped", 130)


def _is_memory(error: Exception) -> bool:
    """Did the memory run out, in the words of Python or torch?"""
    words = ("out of memory", "allocate memory")
    said = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return isinstance(error, MemoryError) or said
