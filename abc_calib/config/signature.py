"""Signatures from options: what commands and verbs take, and how their help says it."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import fill
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from abc_calib.config.options import Options, field_meta

Group = type[Options] | Options
"""The options of a class; of an instance, with its values as defaults."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Named:
    """An option as a command or a verb takes it; ``default`` in words, empty where it has none."""

    name: str
    kind: type[Options]
    default: str

    @property
    def field(self) -> FieldInfo:
        return self.kind.model_fields[self.name]

    @property
    def help(self) -> str:
        """What it is and its default, but of a switch that is off."""
        said = self.field.description or ""
        told = self.default not in ("", "no")
        return f"{said.rstrip('.')}; by default {self.default}." if told else said

    @property
    def panel(self) -> str | None:
        """Where the help of a command shows it; None among the command's own."""
        own = field_meta(self.field, "panel")
        return (self.kind.help_panel if own is None else own) or None

    @property
    def what(self) -> str:
        """The values that it takes: ``int``, or ``cosine|plateau``."""
        members = [self.field.annotation, *get_args(self.field.annotation)]
        choices = next((get_args(kind) for kind in members if get_origin(kind) is Literal), None)
        return "|".join(choices) if choices else self.type.__name__

    @property
    def type(self) -> type:
        """``bool``, ``int``, ``float`` or ``str``: a list is written with commas between."""
        members = get_args(self.field.annotation) or (self.field.annotation,)
        several = get_origin(self.field.annotation) is tuple
        several |= any(get_origin(member) is dict for member in members)  # a value for each site
        return next((k for k in (bool, int, float) if k in members and not several), str)

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{(field_meta(self.field, 'flag') or self.name).replace('_', '-')}"


def iter_options(
    *groups: Group,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
) -> dict[str, Named]:
    """The options of all groups; one that several groups have is one, with each default.

    ``kept``: those whose default is what the first training had.
    """
    found: dict[str, Named] = {}
    for group in groups:
        kind = group if isinstance(group, type) else type(group)
        for name, field in kind.model_fields.items():
            if name in without or (only and name not in only):
                continue
            value = field.default if isinstance(group, type) else getattr(group, name)
            told = "" if value is None or "default" in (field.description or "") else words(value)
            told = "as in the first training" if name in kept else told
            if name in found and told and told != found[name].default:
                told = f"{found[name].default} ({kind.group_title}: {told})"
                found[name] = Named(name, found[name].kind, told)
            found.setdefault(name, Named(name, kind, told))
    return found


def words(value: object) -> str:
    """A default as it would be typed."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def plain(annotation: Any) -> Any:
    """A type without what pydantic knows of it."""
    members = [get_args(m)[0] if get_origin(m) is Annotated else m for m in get_args(annotation)]
    union = get_origin(annotation) in (Union, UnionType)
    return functools.reduce(operator.or_, members) if union else annotation


def documented(
    *groups: Group,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Give a verb that takes ``**options`` their names, and a list of them in its documentation."""

    def decorated(verb: F) -> F:
        signature, keyword = inspect.signature(verb), inspect.Parameter.KEYWORD_ONLY
        options = iter_options(*groups, without=without, only=only, kept=kept)
        mine = list(signature.parameters.values())
        if mine[-1].kind is inspect.Parameter.VAR_KEYWORD:
            more = []
            for name in (n for n in options if n not in signature.parameters):
                kind = plain(options[name].field.annotation) | None
                more.append(inspect.Parameter(name, keyword, default=None, annotation=kind))
            signature = signature.replace(parameters=[*mine[:-1], *more])
        else:
            options = {name: o for name, o in options.items() if name in signature.parameters}
        verb.__signature__ = signature  # type: ignore[attr-defined]
        verb.options = options  # type: ignore[attr-defined]
        lines = [inspect.getdoc(verb) or "", "", "Options", "-------"]
        for option in options.values():
            told = fill(option.help, 96, initial_indent="    ", subsequent_indent="    ")
            lines += [f"{option.name} : {option.what}", told]
        verb.__doc__ = "\n".join(lines)
        return verb

    return decorated
