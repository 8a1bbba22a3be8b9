"""What an option is: a field with its type, bounds, default, help and panel, declared once.

The flags of commands (``cli.command``), the keywords in Python, the names in TOML sweeps and what
is refused are all derived from the fields.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from abc_calib.errors import OptionError, UsageError, shortened

Word = Annotated[str, Field(min_length=1, max_length=200)]
FLAGS = {"length": "digits", "machine": "name"}
"""The flags of fields that are not called as their fields are."""
ODD = re.compile("_|True|False")
"""What Python takes for a part of a number, and a person does not."""


class Options(BaseModel):
    """Base of all option groups: frozen, strict about names, all numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    #: what the group is called where a name is in none of its fields
    group_title: ClassVar[str] = "options"
    #: where the help shows its fields
    help_panel: ClassVar[str] = ""
    #: options of earlier versions, which their runs have without a value
    removed: ClassVar[tuple[str, ...]] = ()

    @property
    def chosen(self) -> dict[str, Any]:
        """The values that were given, without defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, data: Any) -> Any:
        unset = {n for n in cls.removed if isinstance(data, dict) and data.get(n, 0) is None}
        return {name: data[name] for name in data if name not in unset} if unset else data

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse ``1_000`` and ``True`` for a number, and 0 for False."""
        kinds = leaves(cls.model_fields[info.field_name or ""].annotation)
        if kinds - {type(None)} == {bool} and value not in (True, False, None, "true", "false"):
            raise PydanticCustomError("bool", "give true or false")
        if kinds & {int, float} and not kinds & {str, bool} and ODD.search(str(value)):
            raise PydanticCustomError("number", "give a number")
        return value


def option(default: Any, help: str, **bounds: Any) -> Any:
    """Declare a field of ``Options``."""
    return Field(default, description=help, **bounds)


def csv_field(*names: str, each: Callable[[Any], Any] = lambda value: value) -> Any:
    """Validate fields with several values: ``"6,10"`` or a list, each value kept once.

    ``each``: what is made of a value first.
    """

    def once_each(value: Any) -> Any:
        if isinstance(value, str):
            if not all(parts := [part.strip() for part in value.split(",")]):
                raise ValueError("give values with commas between")
            value = parts
        is_plain = isinstance(value, list | tuple) and all(
            isinstance(part, str | int | tuple) for part in value
        )
        return tuple(dict.fromkeys(map(each, value))) if is_plain else value

    return field_validator(*names, mode="before")(once_each)


def by_site(*names: str, each: Callable[[str], Any] = lambda value: value) -> Any:
    """Validate fields that may have a value for each site, as in ``cross=4.5,self=0.87``.

    ``each``: what is made of a value.
    """

    def split(value: Any) -> Any:
        if not isinstance(value, str) or "=" not in value:
            return value
        pairs = [part.partition("=") for part in value.split(",")]
        sites = [site.strip() for site, _, _ in pairs]
        if len({*sites}) < len(sites):
            raise ValueError("a site is named twice: name each once")
        return {site: each(text.strip()) for site, (*_, text) in zip(sites, pairs, strict=True)}

    return field_validator(*names, mode="before")(split)


def flag_of(name: str) -> str:
    """Return the name of a field on the command line."""
    return f"--{FLAGS.get(name, name).replace('_', '-')}"


def leaves(annotation: Any) -> set[Any]:
    """Return the plain types and choices that an annotation is made of."""
    members = get_args(annotation)
    return set().union(*map(leaves, members)) if members else {annotation}


def values_of(field: FieldInfo) -> str:
    """Return the values that a field takes: ``int``, ``bool``, ``str`` or ``cosine|plateau``."""
    members = [field.annotation, *get_args(field.annotation)]
    choices = next((get_args(kind) for kind in members if get_origin(kind) is Literal), None)
    plain = (kind.__name__ for kind in (bool, int, float) if kind in members)
    return "|".join(choices) if choices else next(plain, "str")


def as_typed(value: object) -> str:
    """Return a value as it would be typed on the command line."""
    if isinstance(value, dict):  # by site
        return ",".join(f"{site}={as_typed(x).replace(',', '+')}" for site, x in value.items())
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        return str(value).removesuffix(".0")
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
        raise UsageError(f"unknown option {name!r}: {_hint(name, names)}")


def _hint(name: str, choices: Iterable[str]) -> str:
    """What an unknown option may stand for, also by its initials: ``lr``."""
    names = [*choices]
    near = difflib.get_close_matches(name, names, 1, cutoff=0.8)
    near += [each for each in names if name == "".join(word[0] for word in each.split("_"))]
    return f"did you mean {near[0]}?" if near else f"choose among {', '.join(names)}"


def refusal(kind: type[Options], error: ValidationError) -> UsageError:
    """Return the first problem of a validation, in a line: what was given, and what is allowed."""
    first = max(error.errors(), key=lambda problem: len(problem["loc"]))  # a union has several
    path = [str(part) for part in first["loc"]]
    name = shortened(".".join(path))
    if first["type"] == "extra_forbidden":
        choices = f": {_hint(name, kind.model_fields)}" if len(path) == 1 else ""
        of = f" of {kind.group_title}" if "group_title" in vars(kind) else ""
        return UsageError(f"unknown option {name!r}{of}{choices}")
    if not path or first["type"] == "missing":
        return UsageError(f"{name} is missing" if path else rule_of(first))
    schema = kind.model_json_schema()["properties"].get(path[0])
    return OptionError(path[0], first["input"], rule_of(first, schema))


PLAIN = {
    "literal_error": "give {expected}",
    "string_type": "give text",
    "string_too_short": "give text that is not empty",
    "string_too_long": "give at most {max_length} characters",
    "too_short": "give at least {min_length} value",
    "bool_parsing": "give true or false",
    "tuple_type": "give a list",
    "list_type": "give a list",
    "dict_type": "give names with values",
}
"""Rules in the words of this program, by the types of pydantic's errors; others keep theirs."""
OF_NUMBERS = re.compile("number|int_|float_|finite_|greater_|less_")
"""How the types of errors about numbers begin."""
NUMBERS = {"integer": "whole number", "number": "number"}
BOUNDS = {
    "minimum": ("ge", "of at least"),
    "exclusiveMinimum": ("gt", "above"),
    "maximum": ("le", "up to"),
    "exclusiveMaximum": ("lt", "below"),
}
"""How JSON schemas call the bounds of numbers, pydantic's errors, and people."""
FAR = 10**6
"""A bound that is as far from 0 is only told where a value exceeds it."""


def rule_of(problem: Mapping[str, Any], schema: Any = None) -> str:
    """Return what is allowed where pydantic found a problem, given the field's JSON schema."""
    kind, context = problem["type"], problem.get("ctx", {})
    if OF_NUMBERS.match(kind):
        of_error = {name: context[key] for name, (key, _) in BOUNDS.items() if key in context}
        numbers = number_in(schema) or {"type": "integer" if "int_" in kind else "number"}
        near = {k: v for k, v in numbers.items() if k not in BOUNDS or abs(v) < FAR}
        return f"give a {allowed(near | of_error)}"
    if kind == "string_pattern_mismatch" and isinstance(schema, dict):
        return f"it does not look as it should: {schema.get('description', context['pattern'])}"
    if kind in PLAIN:
        return PLAIN[kind].format(**context).replace("'", "")
    rule = str(problem["msg"]).removeprefix("Value error, ")
    return rule[:1].lower() + rule[1:]


def number_in(schema: Any) -> dict[str, Any]:
    """Return the first part of a JSON schema that describes a number; empty if none does."""
    if isinstance(schema, dict):
        return schema if schema.get("type") in NUMBERS else number_in([*schema.values()])
    parts = map(number_in, schema) if isinstance(schema, list) else ()
    return next(filter(None, parts), {})


def allowed(numbers: Mapping[str, Any]) -> str:
    """Return the numbers that a JSON schema allows, in words."""
    word = NUMBERS[numbers["type"]]
    if "minimum" in numbers and "maximum" in numbers:
        text = f"{word} from {numbers['minimum']:,} to {numbers['maximum']:,}"
    else:
        bounds = (f"{bound} {numbers[k]:,}" for k, (_, bound) in BOUNDS.items() if k in numbers)
        text = f"{word} {' and '.join(bounds)}".strip()
    return re.sub(r"\.0\b", "", text)
