"""Check a certificate of sums of any number of numbers with numpy alone: python check_sums.py

As check.py and check_rows.py beside it, whose parts it uses; see there. Here each row has a number
of its own, which is added to the row above, and both are of any width. Two inductions: over the
columns of a row and over the rows. The row above may be any number: not checked is that every row
of a right answer is one.
"""

from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from check import (  # type: ignore[import-not-found]  # it lies beside this file
    Export,
    Nodes,
    check,
    distinct,
    require,
)
from check_rows import Size  # type: ignore[import-not-found]  # and this too


class Pair(Size):
    """A row whose number and row above have so many digits, and what its tokens read."""

    def __init__(self, e: Export, nodes: Nodes, widths: tuple[int, int], row: int, last: bool):
        self.e, self.nodes, self.known = e, nodes, dict[tuple[int, int], int]()
        self.above, self.own, self.at, self.last = *widths, row, last
        parts: list[Any] = [[("other",)]] * (row + 1 + (0 if last else 2))
        parts[row] = [("digit", 0, c) for c in range(self.own)[::-1]]
        between = [e.delimiters[1]] * (len(parts) - 1)
        self.source, self.closes = [("symbol", e.delimiters[0])], [0]
        for part, delimiter in zip(parts, [*between, e.delimiters[-1]], strict=True):
            self.source += [*part, ("symbol", delimiter)]
            self.closes.append(len(self.source) - 1)

    def key(self, site: str, layer: int, column: int, line: dict[str, Any]) -> int:
        direction, segment, offset = line["direction"], line["segment"], line["offset"]
        require(segment >= 0 and "stride" not in line and "beta" not in line, f"unknown: {line}")
        if site == "self":
            require(direction != "anti" and segment < 2, f"unknown: {line}")
            here = self.above + 1 if self.at else 0  # where this row opens, counted from that above
            low, high = (0, here) if segment else (here, here + column)
            at = min(max(low + offset + column * (direction == "diag"), low), high)
            if at >= here:
                return self.row(layer - 1, at - here)
            require(layer == 1, "rows above are read where they are more than tokens")
            return self.token(("above", at - 1) if at else self.opening(self.at - 1))
        at = self.among(column, line)
        require(self.source[at] != ("other",), f"{line} reads the number of another row")
        return self.given(layer, at)


def combinations(pair: Pair, column: int, tokens: list[tuple], any_gap: bool) -> np.ndarray:
    """What can stand at the tokens, and the right answer, in some row: as digits of numbers."""
    e, base = pair.e, pair.e.rule["base"]
    weight, right = {token: base**i for i, token in enumerate(tokens)}, base ** len(tokens)
    require(right * (e.eos + 1) * 2 < 2**62, "too many tokens count in one row")
    above, own = pair.above if pair.at else 0, pair.own
    code, carry = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def through(place: int) -> np.ndarray:
        ranges = [
            np.arange(1 if place == width - 1 and width > 1 else 0, base) if place < width else [0]
            for width in (above, own)
        ]
        p, a = (x.ravel() for x in np.meshgrid(*ranges, indexing="ij"))
        kept = weight.get(("above", place), 0) * p + weight.get(("digit", 0, place), 0) * a
        total = carry[:, None] + p + a
        kept = kept + (weight.get(("written", place), 0) + right * (place == column)) * (
            total % base
        )
        return distinct(((code[:, None] + kept) * 2 + total // base).ravel())

    wide = max(above, own)
    used = {t[-1] for t in tokens} | {column, above - 1, own - 1}
    for place in range(wide):
        code, carry = np.divmod(through(place), 2)
        count = 0 if any_gap and place not in used else inf
        while len(code) > count:
            count = len(code)
            code, carry = np.divmod(distinct(np.append(code * 2 + carry, through(place))), 2)
    if column > wide:  # there only behind a last carry
        code, carry = code[carry > 0], carry[carry > 0]
    code = code + weight.get(("written", wide), 0) * carry
    closing = e.eos if pair.last else e.certificate["source"]["row"]
    end = np.where((carry > 0) & (column == wide), carry, closing) if column >= wide else 0
    return distinct(code + right * end)


def kinds(e: Export, nodes: Nodes) -> dict[int, tuple[np.ndarray, int]]:
    """Every kind of token, what ``combinations`` gives for it, and the number of its tokens."""
    require(e.period == 1 and not any(e.waves.values()), "positions are not followed over rows")
    require(len(e.delimiters) == 3, "its delimiters are unknown")
    e.rule["base"] = e.rule["later"]["base"]
    every = [(site, x) for site in e.lines for layer in e.lines[site] for h in layer for x in h]
    own = [
        max((abs(x["offset"]) for head in layer for x in head if not x["segment"]), default=0)
        for layer in e.lines["self"]
    ]
    far = 2 + sum(own) + max(abs(x["offset"]) for _, x in every)
    require(far < 30, "its lines reach too far")
    widths, found, seen = range(1, 3 * far + 5), dict[int, tuple[np.ndarray, int]](), set[tuple]()
    for row, last, mine, above in product(range(3), (True, False), widths, widths):
        if row == 0 and above > 1:  # nothing is above the first row
            continue
        pair = Pair(e, nodes, (above, mine), row, last)
        for column in range(max(above if row else 0, mine) + 2):
            name, tokens = pair.kind(column)
            ends = [min(max(width - column, -far - 1), far + 1) for width in (above, mine)]
            short = [min(width, far) for width in (column // 2, above, mine)]
            again = (name, min(column, 2 * far + 1), row == 0, last, *ends, *short)
            if again not in seen:
                seen.add(again)
                some = combinations(pair, column, tokens, column > 2 * far)
                found[name] = np.union1d(found.get(name, (some, 0))[0], some), len(tokens)
    return {name: one for name, one in found.items() if len(one[0])}


if __name__ == "__main__":
    print(check(Path(__file__).parent, kinds))
