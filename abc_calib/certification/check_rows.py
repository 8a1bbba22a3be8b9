"""Check a certificate of answers in several rows with numpy alone: python check_rows.py

As check.py beside it, whose parts it uses; see there. Here a token stands in a row and a column of
the answer, and sources have so many digits and rows. Two inductions: over the columns of a row,
the row above being an operand of the automaton more, and over the rows. What stands in the row
above may be all that the automaton allows: not checked is that every row of a right answer is so.
"""

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from check import (  # type: ignore[import-not-found]  # it lies beside this file
    Export,
    Nodes,
    Width,
    check,
    distinct,
    require,
)

ABOVE = -1


class Size(Width):
    """Sources of so many digits and rows, and what the tokens of one row of their answers read."""

    def __init__(self, e: Export, nodes: Nodes, digits: int, rows: int, row: int):
        self.e, self.nodes, self.known = e, nodes, dict[tuple[int, int], int]()
        self.digits, self.rows, self.at = digits, rows, row
        parts: list[Any] = [
            [("digit", 0, c) for c in range(digits)[::-1]],
            [("beside", c - row) if c != row else ("constant", 1) for c in range(rows)[::-1]],
        ]
        self.source, self.closes = [("symbol", e.delimiters[0])], [0]
        for part, delimiter in zip(parts, e.delimiters[1:], strict=True):
            self.source += [*part, ("symbol", delimiter)]
            self.closes.append(len(self.source) - 1)

    def opens(self, above: int) -> int:
        """Where the row so many above this one opens, counted in tokens of the answer."""
        return max(self.at - above, 0) * (self.digits + 2)

    def key(self, site: str, layer: int, column: int, line: dict[str, Any]) -> int:
        direction, segment, offset = line["direction"], line["segment"], line["offset"]
        require(segment >= 0 and "stride" not in line, f"unknown: {line}")
        if site == "self":
            require(direction != "anti" and "beta" not in line, f"unknown: {line}")
            low, here = self.opens(segment), self.opens(0) + column
            high = self.opens(segment - 1) if segment else here
            at = min(max(low + offset + column * (direction == "diag"), low), high)
            row, place = divmod(at, self.digits + 2)
            if row == self.at:
                return self.row(layer - 1, place)
            require(layer == 1, "rows above are read where they are more than tokens")
            return self.token(("above", self.at - row, place - 1) if place else self.opening(row))
        return self.given(layer, self.among(column, line))

    def among(self, column: int, line: dict[str, Any]) -> int:
        """Where a line leads in the source."""
        direction, segment, offset = line["direction"], line["segment"], line["offset"]
        move = line.get("part_step", 0) * self.at
        last, on = len(self.closes) - 1, line.get("beta", 0) * self.at
        opened = self.closes[min(max(max(segment - 1, 0) + move, 0), last)]
        closed = self.closes[min(max(segment + move, 0), last)]
        anti, vert = closed - 1 - column - offset - on, closed - offset - on
        key = {"diag": opened + 1 + column + offset + on, "anti": anti, "vert": vert}[direction]
        return min(max(key, opened), closed)

    def opening(self, row: int) -> tuple:
        return ("symbol", self.e.delimiters[0] if row == 0 else self.e.certificate["source"]["row"])

    def token(self, token: tuple) -> int:
        return self.nodes(("place", "self", 0), (self.nodes(token),))

    def row(self, layer: int, row: int) -> int:
        if layer == 0:
            return self.token(("written", row - 1) if row else self.opening(self.at))
        return super().row(layer, row)


def combinations(size: Size, column: int, tokens: list[tuple], any_gap: bool) -> np.ndarray:
    """What can stand at the tokens, and the right answer, in some source: as digits of numbers."""
    e, rules, width = size.e, size.e.rule, size.digits
    rule, shift = rules["later" if size.at else "first"], rules["shift"]
    base, axes = rule["base"], rule["operands"]
    after, written, last = (np.array(rule[k]) for k in ("next", "written", "last"))
    index, states = np.indices(after.shape).reshape(after.ndim, -1), len(after)
    weight, right = {token: base**i for i, token in enumerate(tokens)}, base ** len(tokens)
    require(right * (e.eos + 1) * states < 2**62, "too many tokens count in one row")
    names = {
        token: ("digit", ABOVE, token[2] - shift)
        for token in tokens
        if token[:2] == ("above", 1) and 0 <= token[2] - shift < width
    }
    free = [t for t in tokens if t[0] == "beside" or (t[0] == "above" and t not in names)]
    weight |= {name: weight[token] for token, name in names.items()}
    state, code = np.array(rule["start"]), np.zeros(len(rule["start"]), np.int64)
    if ("constant", 1) in weight:
        code += weight["constant", 1] * np.array(rule["constants"])[state]

    def through(place: int) -> np.ndarray:
        kept = (weight.get(("written", place), 0) + right * (place == column)) * written.ravel()
        for axis, operand in enumerate(axes):
            kept = kept + weight.get(("digit", operand, place), 0) * index[1 + axis]
        some = (index[1 + axes.index(0)] > 0) | (place < width - 1) | (width == 1)  # no leading 0
        steps = np.unique(np.stack([index[0], kept, after.ravel()], 1)[some], axis=0)
        each = [steps[steps[:, 0] == before] for before in range(states)]
        parts = [(code[state == k, None] + s[:, 1]) * states + s[:, 2] for k, s in enumerate(each)]
        return distinct(np.concatenate([part.ravel() for part in parts]))

    used = {t[-1] for t in [*tokens, *names.values()] if t[0] in ("digit", "written")}
    used |= {column, width - 1}
    for place in range(width):
        code, state = np.divmod(through(place), states)
        count = 0 if any_gap and place not in used else inf
        while len(code) > count:
            count, both = len(code), np.append(code * states + state, through(place))
            code, state = np.divmod(distinct(both), states)
    there = last[state] >= 0
    code, final = code[there], last[state][there]
    code = code + weight.get(("written", width), 0) * final
    closing = e.eos if size.at == size.rows - 1 else e.certificate["source"]["row"]
    code = code + right * (0 if column < width else final if column == width else closing)
    for token in free:
        code = (distinct(code)[:, None] + weight[token] * np.arange(base)).ravel()
    return distinct(code)


def kinds(e: Export, nodes: Nodes) -> dict[int, tuple[np.ndarray, int]]:
    """Every kind of token, what ``combinations`` gives for it, and the number of its tokens."""
    require(e.period == 1 and not any(e.waves.values()), "positions are not followed over rows")
    e.rule["base"] = e.rule["later"]["base"]
    lines = [x for site in e.lines.values() for layer in site for head in layer for x in head]
    own = [
        max((abs(x["offset"]) for head in layer for x in head if not x["segment"]), default=0)
        for layer in e.lines["self"]
    ]  # only in its own row a chain of lines leads on, layer by layer
    far = 2 + sum(own) + max(abs(x["offset"]) for x in lines)
    tall = 2 + max(max(abs(x["offset"]), x["segment"]) for x in lines)
    require(max(far, tall) < 100, "its lines reach too far")
    found = dict[int, tuple[np.ndarray, int]]()
    seen = set[tuple]()
    for digits in range(1, 2 * far + 3):
        for row in range(tall + 1):
            for rows in range(row + 1, row + tall + 2):
                size = Size(e, nodes, digits, rows, row)
                for column in range(digits + 2):
                    name, tokens = size.kind(column)
                    again = (name, digits, column, row == 0, row == rows - 1, *tokens)
                    if again in seen:
                        continue
                    seen.add(again)
                    some = combinations(size, column, tokens, digits > 2 * far)
                    found[name] = np.union1d(found.get(name, (some, 0))[0], some), len(tokens)
    return {name: one for name, one in found.items() if len(one[0])}


if __name__ == "__main__":
    print(check(Path(__file__).parent, kinds))
