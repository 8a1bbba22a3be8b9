"""What an option is: a field with its type, bounds, default, help and panel, declared once.

The flags of commands (``cli.options``), the keywords in Python, the names in TOML sweeps and what
is refused are all derived from the fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from abc_calib.errors import OptionError, UsageError, shortened

Word = Annotated[str, Field(min_length=1, max_length=200)]
SITES = ("encoder", "self", "cross")
PLAIN = {
    int: re.compile(r"[+-]?\d+", re.ASCII),
    float: re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE),
}
"""Numbers in ordinary notation."""


class Options(BaseModel):
    """Base of all option groups: frozen, strict about names, all numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    #: what the group is called where a name is in none of its fields
    group_title: ClassVar[str] = "options"
    #: where the help shows its fields, if they do not say
    help_panel: ClassVar[str] = ""

    @property
    def chosen(self) -> dict[str, Any]:
        """The values that were given, without defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @field_validator("*", mode="before")
    @classmethod
    def _plain_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """No ``1_000``, no digits of other scripts, no ``True`` for a number, no 0 for False."""
        kinds = set(_leaves(cls.model_fields[info.field_name or ""].annotation)) - {type(None)}
        if kinds == {bool} and not (isinstance(value, bool | None) or value in ("true", "false")):
            raise PydanticCustomError("plain_bool", "neither true nor false")
        if kinds & {int, float} and not kinds & {str, bool}:
            plain = PLAIN[float if float in kinds else int]
            values = [*value.values()] if isinstance(value, dict) else value
            for number in values if isinstance(values, list | tuple) else [values]:
                text = isinstance(number, str) and not plain.fullmatch(number.strip(" \t\n"))
                if text or isinstance(number, bool):
                    raise PydanticCustomError("plain_number", "no plain number")
        return value


def _leaves(annotation: Any) -> Iterator[Any]:
    """The plain types that an annotation is made of."""
    members = get_args(annotation)
    for member in members:
        yield from _leaves(member)
    if not members:
        yield annotation


def option(
    default: Any,
    help: str,
    *,
    panel: str | None = None,
    flag: str = "",
    **bounds: Any,
) -> Any:
    """A field of ``Options``.

    ``flag``: its name on the command line, where that is not the field's. ``panel``: where the help
    shows it, by default its group's.
    """
    return Field(
        default, description=help, json_schema_extra={"panel": panel, "flag": flag}, **bounds
    )


def csv_field(*names: str, each: Callable[[Any], Any] = lambda value: value) -> Any:
    """A validator of fields with several values: ``"6,10"`` or a list, each value kept once.

    ``each``: what is made of a value first.
    """

    def once_each(value: Any) -> Any:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        plain = isinstance(value, list | tuple) and all(
            isinstance(x, str | int | tuple) for x in value
        )
        return tuple(dict.fromkeys(map(each, value))) if plain else value

    return field_validator(*names, mode="before")(once_each)


def by_site(*names: str, each: Callable[[str], Any] = lambda value: value) -> Any:
    """A validator of fields that may have a value for each site, as in ``cross=4.5,self=0.87``.

    ``each``: what is made of a value.
    """

    def split(value: Any) -> Any:
        if isinstance(value, str) and "=" in value:
            pairs = [part.split("=", 1) for part in value.split(",")]
            sites = [pair[0].strip() for pair in pairs]
            twice = next((site for site in sites if sites.count(site) > 1), None)
            if twice is not None:
                raise ValueError(f"{twice} is named twice: name each site once")
            value = {site: each(pair[-1].strip()) for site, pair in zip(sites, pairs, strict=True)}
        if isinstance(value, dict) and (unknown := [site for site in value if site not in SITES]):
            raise ValueError(f"unknown site {unknown[0]!r}: choose among {', '.join(SITES)}")
        return value

    return field_validator(*names, mode="before")(split)


def field_meta(field: FieldInfo, name: str) -> str | None:
    """Return ``flag`` or ``panel`` of a field."""
    extra: Any = field.json_schema_extra
    return extra.get(name) if isinstance(extra, dict) else None


def flag_of(name: str, field: FieldInfo) -> str:
    """Return the name of a field on the command line."""
    return f"--{(field_meta(field, 'flag') or name).replace('_', '-')}"


def type_of(field: FieldInfo) -> type:
    """Return ``bool``, ``int``, ``float`` or ``str``: a list is typed with commas between."""
    members = get_args(field.annotation) or (field.annotation,)
    several = {get_origin(kind) for kind in (field.annotation, *members)} & {tuple, dict}
    return next((k for k in (bool, int, float) if k in members and not several), str)


def values_of(field: FieldInfo) -> str:
    """Return the values that a field takes: ``int``, or ``cosine|plateau``."""
    members = [field.annotation, *get_args(field.annotation)]
    choices = next((get_args(kind) for kind in members if get_origin(kind) is Literal), None)
    return "|".join(choices) if choices else type_of(field).__name__


def as_typed(value: object) -> str:
    """Return a value as it would be typed on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


T = TypeVar("T", bound=Options)


def build(kind: type[T], /, **values: Any) -> T:
    """Make ``kind(**values)``; ``UsageError`` says which value is not possible and what is."""
    try:
        return kind(**values)
    except ValidationError as error:
        raise refusal(kind, error) from None


def take(kind: type[T], keywords: dict[str, Any], groups: Sequence[Options] = ()) -> T:
    """Return the group of a kind: one of ``groups``, or one made of ``keywords``.

    Its fields are removed from ``keywords``; None means unset.
    """
    values = {name: keywords.pop(name) for name in list(keywords) if name in kind.model_fields}
    for group in groups:
        if isinstance(group, kind):
            return group
    return build(kind, **{name: value for name, value in values.items() if value is not None})


def refuse_unknown(keywords: Mapping[str, Any], *kinds: type[Options]) -> None:
    """``UsageError`` if anything is left in ``keywords``; names the options of ``kinds``."""
    if keywords:
        names = dict.fromkeys(name for kind in kinds for name in kind.model_fields)
        name = shortened(str(next(iter(keywords))))
        raise UsageError(f"unknown option {name!r}: choose among {', '.join(names)}")


def refusal(kind: type[Options], error: ValidationError) -> UsageError:
    """The first problem of a validation: what was given, and what is allowed."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    reason = str(first.get("ctx", {}).get("error", "")) if first["type"] == "value_error" else ""
    if first["type"] == "extra_forbidden" and len(path) > 1:
        name = shortened(".".join(path))
        return UsageError(
            f"unknown option {name!r} of {kind.group_title}: this version has none such"
        )
    field = kind.model_fields.get(path[0]) if path else None
    if field is None and reason:
        return UsageError(reason)
    if field is None:
        name = shortened(".".join(path))
        return UsageError(
            f"unknown option {name!r} of {kind.group_title}: choose among "
            f"{', '.join(kind.model_fields)}"
        )
    if first["type"] == "missing":
        return UsageError(f"{path[0]} is missing: {allowed(field)}")
    return OptionError(path[0], first.get("input"), reason or allowed(field))


def allowed(field: FieldInfo) -> str:
    """What a field takes, as words: ``give a whole number from 1 to 64``."""
    annotation: Any = Annotated[field.annotation, field]
    schema = TypeAdapter(annotation).json_schema()
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    kind = next((kind for kind in kinds if kind.get("type") == "array"), kinds[0])
    several = "items" in kind
    kind = kind.get("items", kind)
    if "enum" in kind:
        *others, last = map(str, kind["enum"])
        several_of, link = ("among ", "and") if several else ("", "or")
        return f"choose {several_of}{', '.join(others)} {link} {last}"
    if kind.get("type") == "boolean":
        return "give true or false"
    if number := {"integer": "whole number", "number": "number"}.get(kind.get("type", "")):
        example = f", as in {field.examples[0]}" if field.examples else ""
        return f"give {f'{number}s' if several else f'a {number}'}{_bounds(kind)}{example}"
    least, longest = kind.get("minLength", 0), kind.get("maxLength")
    sizes = f" of {least} to {longest} characters" if longest else ""
    return ("give words" if several else "give a word") + sizes


def _bounds(kind: Mapping[str, Any]) -> str:
    """`` from 1 to 64``: the bounds of a number's JSON schema."""
    names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    least, above, most, below = (
        f"{kind[n]:,}".removesuffix(".0") if n in kind else "" for n in names
    )
    upper = f"below {below}" if below else most if least else f"at most {most}" if most else ""
    if least:
        return f" from {least} to {upper}" if upper else f" of {least} or more"
    if above:
        return f" above {above} and {upper}" if upper else f" above {above}"
    return f" of {upper}" if most else f" {upper}".rstrip()
