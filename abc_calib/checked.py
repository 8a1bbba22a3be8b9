"""Calls from Python: arguments are checked by their annotations, and messages say it in Python.

Options (``**options``) are checked by their groups in ``abc_calib.config``.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from abc_calib.errors import AbcError, OptionError, UsageError

F = TypeVar("F", bound=Callable[..., Any])
NAMES: dict[Any, str] = {
    str: "a text",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
    type: "a class",
}
VARIADIC = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def checked(function: F) -> F:
    """The same; ``UsageError`` for arguments that it does not take, and no flags in messages."""
    signature, hints = own_signature(function), get_type_hints(_as_typed(function, "return"))
    flags = {o.flag: name for name, o in getattr(function, "options", {}).items()}

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise UsageError(f"{function.__name__}(): {error}") from None
        for name, value in given.items():
            if signature.parameters[name].kind in VARIADIC or name not in hints:
                continue
            if isinstance(value, str | Path) and not _is_plain(str(value)):
                raise OptionError(name, value, "give text without null characters, in UTF-8")
            if not fits(value, hints[name]):
                raise OptionError(name, value, f"give {' or '.join(said(hints[name]))}")
        try:
            return function(*args, **kwargs)
        except OptionError as error:
            error.rule = in_python(error.rule, flags)
            raise
        except AbcError as error:
            error.args = tuple(in_python(x, flags) if isinstance(x, str) else x for x in error.args)
            raise

    return wrapped  # type: ignore[return-value]


def _is_plain(text: str) -> bool:
    """Is it text that can be printed and can name a file?"""
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text


def own_signature(function: Any) -> inspect.Signature:
    """The signature as it is typed in the file, ``**options`` left as that."""
    return inspect.signature(_as_typed(function))


def _as_typed(function: Any, *without: str) -> FunctionType:
    """A function as its file has it, without some annotations."""
    own = inspect.unwrap(function)
    plain = FunctionType(own.__code__, own.__globals__, own.__name__, own.__defaults__)
    plain.__kwdefaults__ = own.__kwdefaults__
    plain.__annotations__ = {k: v for k, v in own.__annotations__.items() if k not in without}
    return plain


def fits(value: Any, kind: Any) -> bool:
    """Is a value of an annotation? What is not known here is."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return any(value is one or (isinstance(value, str) and value == one) for one in inner)
    if origin is type:
        return isinstance(value, type)
    if origin is not None and issubclass(origin, Callable):  # type: ignore[arg-type]
        return callable(value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if origin is not None and issubclass(origin, Iterable):
        every = value if isinstance(value, list | tuple) else ()
        held = isinstance(value, Iterable) and not isinstance(value, str | bytes)
        return held and all(fits(one, inner[0]) for one in every)
    if kind in (int, float):
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    plain = isinstance(kind, type) and not getattr(kind, "_is_protocol", kind is Any)
    return isinstance(value, kind) if plain else True


def said(kind: Any) -> list[str]:
    """What an annotation takes, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return list(dict.fromkeys(word for one in inner for word in said(one)))
    if origin is Literal:
        return [repr(one) for one in inner]
    if origin is type:
        return ["a class"]
    if origin is None:
        return [NAMES.get(kind, getattr(kind, "__name__", str(kind)))]
    if issubclass(origin, Callable):  # type: ignore[arg-type]
        return ["a function"]
    if issubclass(origin, Mapping):
        return ["a dictionary"]
    return [f"a list of {' or '.join(map(several, said(inner[0])))}"]


def several(word: str) -> str:
    """``a list of numbers`` as ``lists of numbers``; names and values as they are."""
    if not word.startswith("a "):
        return word
    head, of, rest = word.removeprefix("a ").partition(" of ")
    return f"{head.removesuffix('y')}{'ies' if head.endswith('y') else 's'}{of}{rest}"


def in_python(text: str, flags: Mapping[str, str]) -> str:
    """A message with keywords of Python in place of flags of the command line.

    Where it names a whole command, that is left as it is.
    """

    def keyword(found: re.Match[str]) -> str:
        flag = found[0]
        if flag in flags:
            return f"{flags[flag]}="
        if flag.startswith("--no-"):
            return f"{flag[5:].replace('-', '_')}=False"
        return f"{flag[2:].replace('-', '_')}="

    command = r"\babc [a-z-]+(?: [^\s;:,)]+)*"
    parts = re.split(f"({command})", text)
    return "".join(
        part if number % 2 else re.sub(r"(?<![\w-])--[a-z][a-z-]*[a-z]", keyword, part)
        for number, part in enumerate(parts)
    )
