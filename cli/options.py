"""The options of commands: flags, help and panels, made from the fields in ``abc_calib.config``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from abc_calib.config.signature import Group, Named, named
from abc_calib.errors import AbcError, OptionError, UsageError
from cli import completion, console
from cli.completion import run_names
from cli.console import typed

if TYPE_CHECKING:
    from abc_calib.runs import Run

RunArgument = Annotated[
    str | None,
    typer.Argument(
        help="A run folder or its name; the latest run by default.", autocompletion=run_names
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
AsLatex = Annotated[
    bool, typer.Option("--latex", help="The result as a LaTeX table, with caption and label.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Look at a run whose files are not what they were.")
]
Figures = Annotated[Path | None, typer.Option(help="Folder; RUN/figures by default.")]
Jobs = Annotated[
    Path | None, typer.Option(help="Where the jobs' folders lie; by default runs/jobs.")
]
Out = Annotated[Path | None, typer.Option(help="The folder to make, instead of one in runs/.")]


def opened(run: str | None, force: bool, quiet: bool = False) -> Run:
    """The run to look at; with ``force`` a remark says what is wrong with its files."""
    from abc_calib.runs import Run

    found = Run.open(run, force)
    console.say(found.doubt and f"looked at all the same: {found.doubt}", quiet)
    return found


def options(
    *groups: Group,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
    in_parts: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of ``groups``; it gets those that the user gave, by name.

    But ``threads``, if it is one of them, which is set here, ``in_parts`` as in ``set_threads``.
    """
    known = named(*groups, without=without, only=only, kept=kept)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            texts = {p.name: values.pop(p.name) for p in generated}
            try:
                given = read(known, texts)
                if "threads" in known:
                    console.set_threads(given.pop("threads", None), in_parts)
                command(**values, **given)
            except OptionError as error:
                raise UsageError(as_typed(known, texts, error)) from None
            except (MemoryError, RuntimeError) as error:
                asked = sizes(known, texts) if console.is_memory(error) else ""
                if not asked:
                    raise
                raise AbcError(f"out of memory with {asked}: give less") from None

        hints = get_type_hints(command, include_extras=True)
        generated = [p for option in known.values() for p in flags(option)]
        mine = [
            p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not p.VAR_KEYWORD
        ]
        mine.sort(key=_is_option)
        first = sum(not _is_option(p) for p in mine)
        parameters = [*mine[:first], *generated, *mine[first:]]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.options = known  # type: ignore[attr-defined]
        return wrapped

    return decorated


def flags(option: Named) -> Iterator[inspect.Parameter]:
    """The parameter of an option, and a hidden one for its older name."""
    switch = option.type is bool
    kind: Any = (bool if switch else str) | None
    for name, flag in zip(option.names, option.flags, strict=True):
        no = f"/--no-{flag.removeprefix('--')}" if option.default == "yes" else ""
        info = typer.Option(
            flag + no,
            help=option.help,
            metavar=None if switch else f"<{option.what}>",
            rich_help_panel=option.panel,
            hidden=name != option.name,
            autocompletion=completion.of(option.name),
            show_default=False,
        )
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None, info],
        )


def _is_option(parameter: inspect.Parameter) -> bool:
    return not any(type(a) is type(typer.Argument()) for a in get_args(parameter.annotation))


def read(known: Mapping[str, Named], texts: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that were given; ``OptionError`` for one that cannot be."""
    given: dict[str, Any] = {}
    for option in known.values():
        spelled = [name for name in option.names if texts[name] is not None]
        if len(spelled) == 2:
            now, then = option.flags
            raise UsageError(f"{then} is an older name of {now}: give one of them")
        for name in spelled:
            given[option.name] = option.read(texts[name])
    return given


def sizes(known: Mapping[str, Named], texts: Mapping[str, Any]) -> str:
    """The numbers that the user typed, as they were."""
    found = []
    for option in known.values():
        if option.type in (int, float) or option.name == "lengths":
            pairs = zip(option.flags, option.names, strict=True)
            found += [f"{flag} {typed(texts[name])}" for flag, name in pairs if texts[name]]
    return ", ".join(found)


def as_typed(known: Mapping[str, Named], texts: Mapping[str, Any], error: OptionError) -> str:
    """The refusal with the flag and the value that the user typed."""
    if error.option not in known:
        return str(error)
    option = known[error.option]
    flag, value = option.flags[0], error.value
    for name, spelled in zip(option.names, option.flags, strict=True):
        if texts[name] is not None:
            flag, value = spelled, texts[name]
    return f"{flag} {typed(value)}: {error.rule}"
