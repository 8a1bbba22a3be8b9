"""The options of commands: flags, help and panels, made from the fields in ``abc_calib.config``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from abc_calib.config.options import about
from abc_calib.config.signature import Group, Named, named
from abc_calib.errors import OptionError, UsageError
from cli.console import typed

RunArgument = Annotated[
    str | None, typer.Argument(help="A run folder or its name; the latest run by default.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
Out = Annotated[Path | None, typer.Option(help="The folder to make, instead of one in runs/.")]


def options(
    *groups: Group,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of ``groups``; it gets those that the user gave, by name."""
    known = named(*groups, without=without, only=only, kept=kept)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            texts = {p.name: values.pop(p.name) for p in generated}
            try:
                given = read(known, texts)
                command(**values, **given)
            except OptionError as error:
                raise UsageError(as_typed(known, texts, error)) from None

        hints = get_type_hints(command, include_extras=True)
        generated = [p for option in known.values() for p in flags(option)]
        mine = [
            p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not p.VAR_KEYWORD
        ]
        first = [p for p in mine if _is_argument(p)]
        rest = [p for p in mine if not _is_argument(p)]
        parameters = [*first, *generated, *rest]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapped

    return decorated


def flags(option: Named) -> list[inspect.Parameter]:
    """The parameter of an option, and a hidden one for its older name."""
    found = []
    for flag, name in zip(option.flags, (option.name, about(option.field, "was")), strict=False):
        switch = option.type is bool
        no = f"/--no-{flag.removeprefix('--')}" if option.default == "yes" else ""
        info = typer.Option(
            flag + no,
            help=option.help,
            metavar=None if switch else f"<{option.what}>",
            rich_help_panel=about(option.field, "panel") or None,
            hidden=name != option.name,
            show_default=False,
        )
        kind: Any = bool if switch else str
        annotation = Annotated[kind | None, info]
        found.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
        )
    return found


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(type(a) is type(typer.Argument()) for a in get_args(parameter.annotation))


def read(known: Mapping[str, Named], texts: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that were given; ``OptionError`` for one that cannot be."""
    given: dict[str, Any] = {}
    for option in known.values():
        old = about(option.field, "was")
        both = [name for name in (option.name, old) if texts.get(name) is not None]
        if len(both) == 2:
            now, then = option.flags
            raise UsageError(f"{then} is an older name of {now}: give one of them")
        for name in both:
            given[option.name] = option.read(texts[name])
    return given


def as_typed(known: Mapping[str, Named], texts: Mapping[str, Any], error: OptionError) -> str:
    """The refusal with the flag and the value that the user typed."""
    option = known.get(error.option)
    if option is None:
        return str(error)
    flag, value = option.flags[0], error.value
    for spelled, name in zip(option.flags, (option.name, about(option.field, "was")), strict=False):
        if texts.get(name) is not None:
            flag, value = spelled, texts[name]
    return f"{flag} {typed(value)}: {error.rule}"
