"""What an option is: a field with its type, bounds, default, help and panel, declared once.

The command line, the signatures in Python, the names in TOML sweeps and what is refused are all
derived from the fields (``abc_calib.config.signature``).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

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
    more = {"panel": panel, "flag": flag, "was": was}
    return Field(default, description=help, json_schema_extra={**more}, **bounds)


def about(field: FieldInfo, name: str) -> str:
    """``panel``, ``flag`` or ``was`` of a field; empty where it has none."""
    extra = field.json_schema_extra
    return str(extra.get(name, "")) if isinstance(extra, dict) else ""


def current_names(kind: type[Options], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with older names of options in today's words; ``UsageError`` for one in both.

    None stands for what is not given.
    """
    found = dict(given)
    for name, field in kind.model_fields.items():
        old = about(field, "was")
        if not old or old not in found:
            continue
        value = found.pop(old)
        if value is not None and found.get(name) is not None:
            raise UsageError(f"{old} is an older name of {name}: give one of them")
        if found.get(name) is None:
            found[name] = value
    return found


T = TypeVar("T", bound=Options)


def build(kind: type[T], /, **values: Any) -> T:
    """``kind(**values)``; ``OptionError`` says which value is not possible and what is."""
    try:
        return kind(**values)
    except ValidationError as error:
        raise refusal(kind, error) from None


def changed(options: T, given: dict[str, Any]) -> T:
    """``options`` with the entries of ``given`` that are fields of it, which are taken out.

    None stands for what is not given.
    """
    mine = taken(type(options), given)
    return build(type(options), **{**options.model_dump(), **mine}) if mine else options


def taken(kind: type[Options], given: dict[str, Any]) -> dict[str, Any]:
    """The entries of ``given`` that are fields of ``kind`` and not None, taken out of it."""
    older = {about(field, "was") for field in kind.model_fields.values()}
    names = [name for name in given if name in kind.model_fields or name in older]
    mine = current_names(kind, {name: given.pop(name) for name in names})
    return {name: value for name, value in mine.items() if value is not None}


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
    reason = str(first.get("ctx", {}).get("error", "")) if first["type"] == "value_error" else ""
    field = kind.model_fields.get(path[0]) if path else None
    if field is None and reason:
        return UsageError(reason)
    if field is None:
        name = shortened(".".join(path))
        return UsageError(
            f"unknown option {name!r} of {kind.title}: choose among {', '.join(kind.model_fields)}"
        )
    if first["type"] == "missing":
        return UsageError(f"{path[0]} is missing: {allowed(field)}")
    return OptionError(path[0], first.get("input"), reason or allowed(field))


def allowed(field: FieldInfo) -> str:
    """What a field takes, as words: ``give a whole number from 1 to 64``."""
    members, metadata = _members(field.annotation), list(field.metadata)
    several = next((kind for kind in members if get_origin(kind) in (tuple, list)), None)
    kind: Any = next((kind for kind in members if kind is not type(None)), str)
    if several is not None:
        kind = get_args(several)[0]
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            metadata += [entry for info in more for entry in getattr(info, "metadata", [info])]
    if get_origin(kind) is Literal:
        choices = [str(value) for value in get_args(kind)]
        return f"choose {_listed(choices, 'and') if several else _listed(choices, 'or')}"
    if kind is bool:
        return "give true or false"
    if kind in (int, float):
        example = f", as in {field.examples[0]}" if field.examples else ""
        return f"give {_number(kind, _limits(metadata), several is not None)}{example}"
    if several is not None:
        return "give one word or more"
    longest = _limits(metadata).get("max_length")
    return "give a word" + (f" of at most {longest} characters" if longest else "")


def _number(kind: type, limits: dict[str, Any], several: bool) -> str:
    """``a whole number from 1 to 64``."""
    words = {True: ("whole numbers", "numbers"), False: ("a whole number", "a number")}[several]
    text = words[0 if kind is int else 1]
    if limits.keys() == {"ge"}:
        return f"{text} of {_digits(limits['ge'])} or more"
    if "ge" in limits:
        text += f" from {_digits(limits['ge'])}"
    elif "gt" in limits:
        text += f" above {_digits(limits['gt'])}"
    bounded = "ge" in limits or "gt" in limits
    if "le" in limits:
        text += f" {'to' if 'ge' in limits else 'and at most' if bounded else 'of at most'} "
        text += _digits(limits["le"])
    elif "lt" in limits:
        text += " to" if "ge" in limits else " and" if bounded else ""
        text += f" below {_digits(limits['lt'])}"
    return text


def _limits(metadata: list[Any]) -> dict[str, Any]:
    """The bounds among a field's metadata, by name."""
    names = ("ge", "gt", "le", "lt", "max_length")
    return {
        name: getattr(entry, name)
        for entry in metadata
        for name in names
        if getattr(entry, name, None) is not None
    }


def _digits(number: float) -> str:
    """``1,000,000``."""
    return f"{number:,}" if number != int(number) else f"{int(number):,}"


def _members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union."""
    union = get_origin(annotation) in (Union, types.UnionType)
    return get_args(annotation) if union else (annotation,)


def _listed(words: list[str], last: str) -> str:
    """``a, b or c``; ``among a, b and c``."""
    among = "among " if last == "and" else ""
    return among + f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))
