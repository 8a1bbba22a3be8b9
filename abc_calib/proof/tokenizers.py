"""Does a tokenizer give every symbol of every source a token of its own, however long it is?

A certificate says what a model does for each source, and so must know its tokens. All that a
tokenizer's file holds is looked at: what is replaced before, where it splits, the tokens that were
added, and each entry of its vocabulary.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from abc_calib.errors import shortened
from abc_calib.proof.forms import Unbounded
from tasks.written import squeezed

HARMLESS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents", "BertNormalizer"}
HARMLESS |= {"Strip", "Prepend", "Precompiled"}
HARMLESS |= {"ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "ByteFallback", "Fuse"}
"""Normalizers and decoders that leave digits and signs of ASCII as they are."""
SPLITS = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Punctuation", "Digits"}
SPLITS |= {"ByteLevel", "Metaspace", "UnicodeScripts"}
"""What splits texts in a way that is known."""
SINGLE = {"", ".", r"\d", "[0-9]", r"(?s).", r"\S", r"(?=\d)"}
"""Patterns that split off single characters."""
RUN = 80
"""So long are the runs of one symbol that are tried."""
LONGEST = 10_000
"""The most characters of a word that a tokenizer's own limit may be, beyond which it is tried."""


def whole(coder: Any, text: str, between: str = "") -> None:
    """``Unbounded`` unless each character of ``text`` is one token in texts made of them.

    ``coder``: see ``abc_calib.data.pairs.Coder``. ``text``: all characters that sources have.
    ``between``: what stands between two of them.
    """
    symbols = sorted(set(text))
    about, rewritten = json.loads(coder.tokenizer.to_str()), coder.tokenizer.normalizer
    if about["model"].get("dropout"):
        raise Unbounded("its tokenizer reads a text otherwise each time (dropout)")
    for one in _parts(about["normalizer"], "normalizers"):
        _check_rewriting(one, symbols, "texts first")
    for one in _parts(about["decoder"], "decoders"):
        _check_rewriting(one, symbols, "outputs afterwards")
    splits = _parts(about["pre_tokenizer"], "pretokenizers")
    adds = any(
        one.get("add_prefix_space") or one.get("prepend_scheme") == "always" for one in splits
    )
    for one in splits:  # a token that opens each piece would stand between symbols
        _check_split(one, symbols, "" if adds else about["model"].get("type"))
    longer = {s * n for s in symbols for n in range(2, RUN)}
    for token in coder.tokenizer.get_vocab(with_added_tokens=True):
        plain = coder.tokenizer.decoder.decode([token]) if coder.tokenizer.decoder else token
        found = [plain] if rewritten is None else [plain, rewritten.normalize_str(token)]
        found = [token, *found, *(text.strip("▁Ġ").removeprefix("##") for text in found)]
        for name in map(squeezed, found):
            if len(name) > 1 and set(name) <= {*symbols}:
                longer |= {name, name[0] + name, name + name[-1], name + name}
    if (most := about["model"].get("max_input_chars_per_word", 0)) > LONGEST:
        raise Unbounded(f"its tokenizer does not know words of more than {most:,} characters")
    longer |= {s * (most + 1) for s in symbols}
    ids = {s: (coder.ids([between.join(s * 3)])[0] or [None])[-1] for s in symbols}
    tried = sorted(longer, key=lambda name: (len(name), name))
    for name, found in zip(tried, coder.ids([between.join(name) for name in tried]), strict=True):
        there = [k for k, token in enumerate(found) if token in ids.values()]
        gaps = {tuple(found[before + 1 : after]) for before, after in pairwise(there)}
        if [found[k] for k in there] != [ids[s] for s in name] or len(gaps) > 1:
            raise Unbounded(f"its tokenizer does not read {shortened(repr(name))} symbol by symbol")


def _parts(one: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """A part of a tokenizer's file as a list of parts."""
    if one is None:
        return []
    if one["type"] != "Sequence":
        return [one]
    return [part for more in one[name] for part in _parts(more, name)]


def _check_rewriting(one: dict[str, Any], symbols: list[str], when: str) -> None:
    pattern = {"String": one["content"]} if one["type"] == "Strip" and "content" in one else {}
    pattern = one.get("pattern", pattern)
    known = one["type"] in {*HARMLESS, "Replace"} if pattern else one["type"] in HARMLESS
    put = "".join(one.get(name) or "" for name in ("prefix", "suffix", "replacement", "prepend"))
    if not known or {*put, *pattern.get("String", symbols if pattern else "")} & {*symbols}:
        what = f" ({next(iter(pattern.values()))!r})" if pattern else ""
        raise Unbounded(f"its tokenizer rewrites {when}, by {one['type']}{what}")


def _check_split(one: dict[str, Any], symbols: list[str], model: str | None) -> None:
    if one["type"] in SPLITS:
        return
    pattern = one.get("pattern", {})
    known = "String" in pattern and not {*pattern["String"]} & {*symbols}
    known = known or pattern.get("Regex") in SINGLE
    # pieces of any length are read symbol by symbol where no longer token is known
    known = known or (one.get("behavior") != "Removed" and model in ("BPE", "Unigram"))
    if one["type"] != "Split" or not known:
        raise Unbounded(f"its tokenizer splits texts by {one['type']} {pattern}")
