"""Lines as keys and biases, of any size: what every exported file holds.

Its constants are those of a run; here there are two of addition, as an example.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DELIMITERS, ROWS, PAD = (12, 10, 13), (), 14
STREAM, OFF, HEADS = False, -np.inf, 1
LINES: dict = {
    "self": [[[(0, 1, 0, 0, 1, 0, 0, 0, 0.0)]]],
    "cross": [[[(3, -1, -1, 2, 3, 0, 0, 0, 0.0)]]],
}

# Code
# Shapes: b batch, h head, i query, j key, k lines of a head, s source, t output.
NONE, ALL = -1, -2  # in place of a key: the line names none here; the head has no lines


class Places:
    """Where the queries and keys of one site stand, counted from token ids.

    `source (b, s)` begins with SOS, ends with EOS and is padded on the right; `read (b, t)` is
    what the decoder reads: SOS, then the answer without its last token.
    """

    def __init__(self, site: str, source: Any, read: Any):
        self.own = site == "self"
        queries = source if site == "encoder" else read
        self.position = np.arange(queries.shape[1])[None] + np.zeros_like(queries)
        self.column, self.row = self.position, np.zeros_like(self.position)
        self.length = (source != PAD).sum(1)[:, None]
        if site == "encoder":
            self.marks = ascending(among(source, DELIMITERS))
            return
        opens = among(read, ROWS) | (self.position == 0)
        self.marks = ascending(opens)
        self.row = np.cumsum(opens, 1) - 1
        self.column = self.position - np.take_along_axis(self.marks, self.row, 1)
        if not self.own:
            self.marks = ascending(among(source, DELIMITERS))

    def anchor(self, number: int, step: int) -> Any:
        """What a line is counted from, `(b, i)`: 0 the first key, 1 the last, then delimiters.

        In self-attention what opened the query's row, the row above it, and so on.
        """
        if self.own:
            above = self.position if number == 1 else self.row - max(number - 2, 0)
            return above if number == 1 else self.marked(above)
        if number < 2:
            return number * (self.length - 1) + np.zeros_like(self.position)
        return self.marked(number - 2 + step * self.row)

    def marked(self, number: Any) -> Any:
        return np.take_along_axis(self.marks, np.clip(number, 0, self.marks.shape[1] - 1), 1)

    def key(self, line: tuple) -> Any:
        """The key that a line names for each query, `(b, i)`."""
        origin, slope, shift, low, high, leaves, down, step = line[:8]
        found = self.anchor(origin, step) + slope * self.column + down * self.row + shift
        inside = np.clip(found, self.anchor(low, step), self.anchor(high, step))
        return np.where(inside == found, found, NONE) if leaves else inside


def among(ids: Any, wanted: tuple) -> Any:
    """Which ids are among the wanted ones."""
    found = ids < 0
    for one in wanted:
        found = found | (ids == one)
    return found


def ascending(found: Any) -> Any:
    """Positions of what is found, `(b, n)`; the last one fills up."""
    position = np.arange(found.shape[1])[None]
    last = np.where(found, position, 0).max(1)[:, None]
    return np.minimum(np.sort(np.where(found, position, found.shape[1]), 1), last)


def at_site(site: str, layer: int, source: Any, read: Any, first: int = 0) -> tuple[list, list]:
    """Of each head the keys `(b, i)` of its lines, and their values; None of an unbiased site."""
    places, heads = Places(site, source, read), LINES.get(site, [])[layer : layer + 1]
    every = heads[0] if heads else [[]] * HEADS
    keys = [[places.key(line) for line in head] for head in every]
    keys = [[np.where(key < 0, key, key + first) for key in head] for head in keys]
    return keys, [[line[8] for line in head] for head in every]


def filled(keys: list, values: list, like: Any) -> tuple[Any, Any]:
    """As arrays `(b, h, i, k)` and `(1, h, i, k)`: NONE fills up heads with fewer lines."""
    most = max(1, *(len(head) for head in keys))
    blank = np.zeros_like(like)
    spare = [([blank + NONE] if head else [blank + ALL]) * (most - len(head)) for head in keys]
    rows = [np.stack(head + more, -1) for head, more in zip(keys, spare, strict=True)]
    padded = [head + [0.0] * (most - len(head)) for head in values]
    value = np.array(padded, np.float32)[None, :, None] + np.zeros(
        (1, 1, like.shape[1], 1), np.float32
    )
    return np.stack(rows, 1), value


def keys(site: str, layer: int, source: Any, read: Any) -> tuple[Any, Any]:
    """The keys that each head's lines name, and the bias on them: `(b, h, i, k)`, `(1, h, i, k)`.

    `site`: encoder, self or cross; of a decoder-only model stream, which is source and output as
    one sequence.
    """
    if site != "stream":
        return filled(*at_site(site, layer, source, read), source if site == "encoder" else read)
    inner = filled(*at_site("encoder", layer, source, read), source)
    crossed = at_site("cross", layer, source, read)
    own = at_site("self", layer, source, read, source.shape[1])
    both = [[a + b for a, b in zip(*x, strict=True)] for x in zip(crossed, own, strict=True)]
    outer = filled(both[0], both[1], read)
    most = max(inner[0].shape[3], outer[0].shape[3])
    return joined(inner[0], outer[0], most, NONE), joined(inner[1], outer[1], most, 0.0)


def joined(first: Any, second: Any, most: int, filler: float) -> Any:
    """Two arrays `(b, h, i, k)`, the queries of one behind those of the other."""
    wide = [
        np.pad(x, [(0, 0)] * 3 + [(0, most - x.shape[3])], constant_values=filler)
        for x in (first, second)
    ]
    return np.concatenate(wide, 2)


def exists(site: str, query: Any, key: Any, length: Any, s: int) -> Any:
    """Is there such a key for a query: not padding, and not a later token?"""
    if site in ("encoder", "cross"):
        return key < length
    if site == "self":
        return key <= query
    read = (query >= s) & (key < length)
    return read | ((key <= query) & ((key >= s) | (query < s)))


def bias(site: str, layer: int, source: Any, read: Any) -> Any:
    """What is added to the scores before softmax, `(b, h, i, j)`; see `keys` for `site`."""
    key, value = keys(site, layer, source, read)
    s, queries = source.shape[1], key.shape[2]
    count = {"self": read.shape[1], "stream": s + read.shape[1]}.get(site, s)
    total = np.full((1, 1, 1, count), OFF, np.float32)
    for k in range(key.shape[3]):
        on = key[..., k, None] == np.arange(count)
        total = np.maximum(total, np.where(on, value[..., k, None], OFF))
    total = np.where(key[..., :1] == ALL, 0.0, total)
    length = (source != PAD).sum(1)[:, None, None, None]
    there = exists(site, np.arange(queries)[:, None], np.arange(count), length, s)
    return np.where(there, total, -np.inf).astype(np.float32)
