"""Position schemes: how a model knows where a token stands.

A scheme may act at three places, and by default acts at none of them (NoPE): it may change the
embeddings, change queries and keys, or add to the attention scores. Hooks get the positions of
queries *and* of keys, since cross-attention is not square. To add a scheme, write a subclass of
``Scheme`` and name it in ``SCHEMES``.

Options follow the name, and are part of it wherever a scheme is named: ``rpe:clip=8``,
``t5:buckets=16,distance=64``.
"""

from __future__ import annotations

from abc_calib import plugins
from abc_calib.config import DecoderOptions, Options, TransformerOptions, build
from abc_calib.errors import OptionError, UsageError
from abc_calib.geometry import Layout
from abc_calib.geometry.lines import SITES, Site
from abc_calib.nn.positions.absolute import Abacus, Coupled, Learned, Randomized, Sinusoidal
from abc_calib.nn.positions.base import Scheme, Shape
from abc_calib.nn.positions.distance import T5, Alibi, Fire
from abc_calib.nn.positions.relative import Rope, Rpe, TransformerXL
from abc_calib.nn.skip_init import skip_init

SCHEMES: dict[str, type[Scheme]] = {
    "sinusoidal": Sinusoidal,
    "none": Scheme,
    "learned": Learned,
    "randomized": Randomized,
    "alibi": Alibi,
    "rope": Rope,
    "rpe": Rpe,
    "t5": T5,
    "xl": TransformerXL,
    "coupled": Coupled,
    "abacus": Abacus,
    "fire": Fire,
}

plugins.KINDS["scheme"] = plugins.Kind("scheme", Scheme, SCHEMES)


def check_scheme(text: str, width: int, heads: int) -> Scheme:
    """The scheme without its numbers; ``UsageError`` if a model so wide cannot have it."""
    with skip_init():
        return build_scheme(text, width, heads)


def check_positions(
    options: TransformerOptions | DecoderOptions, layout: Layout | None = None
) -> None:
    """``UsageError`` unless the schemes exist, and act where they are asked to.

    ``layout``: of the sources, where it is known.
    """
    scheme = check_scheme(options.scheme, options.width, options.heads)
    has_columns = layout is not None and len(layout.parts[-1].operands) > 1
    if has_columns and scheme.by_columns:
        rule = "it counts the digits of a number, which do not stand together in this format"
        raise OptionError("scheme", options.scheme, f"{rule}; choose the format free")
    if options.cyclic is None:
        return
    if type(scheme) is Scheme:
        rule = "there are no positions to count; choose a scheme, not none"
        raise OptionError("cyclic", options.cyclic, rule)
    if scheme.by_columns:
        rule = "a scheme that counts columns has no positions to count so; choose another scheme"
        raise OptionError("cyclic", options.cyclic, rule)


def build_scheme(text: str, width: int, heads: int, sites: tuple[Site, ...] = SITES) -> Scheme:
    """The scheme of that name and options for a model's width, heads and sites with layers."""
    name, colon, rest = text.partition(":")
    kind = plugins.find("scheme", name)
    options = _options(text, kind.options_type, rest.split(",") if colon else [])
    return kind(Shape(width, heads, sites), options)


def _options(text: str, kind: type[Options], items: list[str]) -> Options:
    """The options ``name=value``, checked."""
    values: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if name not in kind.model_fields or name in values or not equals:
            allowed = ", ".join(f"{field}=..." for field in kind.model_fields)
            known = f"options, once each: {allowed}" if allowed else "this scheme has none"
            raise UsageError(f"scheme {text!r}: {item!r} is not an option; {known}")
        values[name] = value
    try:
        return build(kind, **values)
    except OptionError as error:
        raise UsageError(f"scheme {text!r}: {error}") from None
