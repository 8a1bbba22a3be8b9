"""What an option is: a field with its type, bounds, default, help and panel, declared once.

The command line, the signatures in Python, the names in TOML sweeps and what is refused are all
derived from the fields (``abc_calib.config.signature``).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from abc_calib.errors import OptionError, UsageError, shortened


class Options(BaseModel):
    """Base of all option groups: frozen, strict about names, all numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    #: what the group is called where a name is in none of its fields
    title: ClassVar[str] = "options"

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: Any) -> Any:
        return current_names(cls, data) if isinstance(data, Mapping) else data


def option(
    default: Any,
    help: str,
    *,
    panel: str = "",
    flag: str = "",
    was: str = "",
    **bounds: Any,
) -> Any:
    """A field of ``Options``.

    ``flag``: its name on the command line, where that is not the field's. ``was``: an older name,
    which is still taken everywhere. ``panel``: where the help shows it.
    """
    about = {"panel": panel, "flag": flag, "was": was}
    return Field(default, description=help, json_schema_extra=about, **bounds)


def about(field: FieldInfo, name: str) -> str:
    """``panel``, ``flag`` or ``was`` of a field; empty where it has none."""
    extra = field.json_schema_extra
    return str(extra.get(name, "")) if isinstance(extra, dict) else ""


def current_names(kind: type[Options], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with older names of options in today's words."""
    older = {about(f, "was"): name for name, f in kind.model_fields.items() if about(f, "was")}
    return {older.get(name, name): value for name, value in given.items()}


T = TypeVar("T", bound=Options)


def build(kind: type[T], **values: Any) -> T:
    """``kind(**values)``; ``OptionError`` says which value is not possible and what is."""
    try:
        return kind(**values)
    except ValidationError as error:
        raise refusal(kind, error) from None


def changed(options: T, given: dict[str, Any]) -> T:
    """``options`` with the entries of ``given`` that are fields of it, which are taken out.

    None stands for what is not given.
    """
    kind = type(options)
    names = current_names(kind, {name: name for name in given})
    mine = {name: given.pop(old) for name, old in names.items() if name in kind.model_fields}
    mine = {name: value for name, value in mine.items() if value is not None}
    return build(kind, **{**options.model_dump(), **mine}) if mine else options


def refuse_unknown(given: Mapping[str, Any], *kinds: type[Options]) -> None:
    """``UsageError`` if anything is left in ``given``; names the options of ``kinds``."""
    if given:
        known = dict.fromkeys(name for kind in kinds for name in kind.model_fields)
        name = shortened(str(next(iter(given))))
        raise UsageError(f"unknown option {name!r}: choose among {', '.join(known)}")


def refusal(kind: type[Options], error: ValidationError) -> UsageError:
    """The first problem of a validation: what was given, and what is allowed."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    field = kind.model_fields.get(path[0]) if path else None
    if field is None:
        name = shortened(".".join(path))
        return UsageError(
            f"unknown option {name!r} of {kind.title}: choose among {', '.join(kind.model_fields)}"
        )
    if first["type"] == "value_error":
        return OptionError(path[0], first.get("input"), str(first["ctx"]["error"]))
    return OptionError(path[0], first.get("input"), allowed(field))


def allowed(field: FieldInfo) -> str:
    """What a field takes, as words: ``give a whole number from 1 to 64``."""
    kinds = _kinds(field.annotation)
    choices = [str(value) for kind in kinds if get_origin(kind) is Literal for value in _of(kind)]
    if choices:
        several = any(get_origin(kind) is tuple for kind in _members(field.annotation))
        return f"choose {'among ' if several else ''}{_either(choices)}"
    if bool in kinds:
        return "give true or false"
    number = "a whole number" if int in kinds else "a number" if float in kinds else ""
    if not number:
        return "give one or more words" if tuple in map(get_origin, kinds) else "give a word"
    limits = {
        name: getattr(entry, name)
        for entry in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(entry, name, None) is not None
    }
    low = f"{limits['ge']:g} or more" if "ge" in limits else ""
    low = f"more than {limits['gt']:g}" if "gt" in limits else low
    high = f"at most {limits['le']:g}" if "le" in limits else ""
    high = f"less than {limits['lt']:g}" if "lt" in limits else high
    return f"give {number}" + (f", {' and '.join(filter(None, (low, high)))}" if limits else "")


def _members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union."""
    union = get_origin(annotation) in (Union, types.UnionType)
    return get_args(annotation) if union else (annotation,)


def _kinds(annotation: Any) -> list[Any]:
    """The types of an annotation, those in a tuple or list with it."""
    found = []
    for kind in _members(annotation):
        found += [kind, *get_args(kind)] if get_origin(kind) in (tuple, list) else [kind]
    return found


_of = get_args


def _either(words: list[str]) -> str:
    """``a, b or c``."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
