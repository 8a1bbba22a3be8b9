"""Check the certificate beside this file with numpy alone: python check.py

It shares no code with its maker. For problems of small sizes it follows, by the definition of each
line, what each token of an answer depends on, down to tokens, and calls tokens alike that do so in
the same way. A size is looked at with whole numbers that know how they grow: where a comparison
would have another outcome in a larger size, that size is looked at as well. What can stand there
together it finds by running the task's rule over all columns; where the columns between two that
are read may be more, any number of them may stand there. Where the model has the right token
everywhere, answers are right by induction over tokens, and over rows where there are several: that
each row has a next one is checked by running two rows at once. Not checked: rounding, and that the
rule is the task.
"""

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from math import inf, isclose, isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 16384
GREEDY = {f"{name}_token_id" for name in ("pad", "bos", "eos", "decoder_start")}
MOST, FEW = 2_000, 400
"""Sizes that are looked at; the latter before lines are taken to run against the columns."""
NEEDED = {"direction", "segment", "offset", "value"}
MOVES = {"stride": 1, "beta": -9, "part_step": -9}
"""What a line has, and may have, with the least value."""
FILES = {
    **{name: f"{name}.json" for name in ("certificate", "config", "model_config")},
    **{name: f"{name}.json" for name in ("generation_config", "rule", "lines")},
    "weights": "model.safetensors",
}


def require(true: Any, otherwise: str) -> None:
    """End with a message unless something is true."""
    if not true:
        raise SystemExit(f"not certified: {otherwise}")


def within(what: str, values: Any, low: int, high: int) -> Any:
    """The values, all of them whole numbers from ``low`` up to below ``high``."""
    every = np.asarray(values, object).ravel().tolist()
    fits = all(type(value) is int and low <= value < high for value in every)
    require(fits, f"{what} is not of whole numbers from {low} to {high - 1}")
    return values


def truth(what: str, value: Any) -> bool:
    """The value, if it is true or false."""
    require(type(value) is bool, f"{what} is {value!r}, not true or false")
    return bool(value)


def check_line(x: Any, site: str, parts: int) -> None:
    """Refuse a line that no model follows; ``parts``: the fewest that a source has."""
    require(type(x) is dict and NEEDED <= x.keys() <= NEEDED | MOVES.keys(), f"no line: {x}")
    require(x["direction"] in ("diag", "anti", "vert"), f"direction of {x} is unknown")
    within(f"segment of {x}", x["segment"], 0, 400 if site == "self" else parts + 1)
    within(f"offset of {x}", x["offset"], -400, 400)
    for name, low in MOVES.items():
        moves = site == "cross" and (name != "stride" or x["direction"] != "vert")
        usual = int(name == "stride")
        within(f"{name} of {x}", x.get(name, usual), *((low, 400) if moves else (usual, usual + 1)))
    fixed = site == "encoder" and x["direction"] == "vert" and x["offset"]
    require(not fixed, f"offset of {x} is not 0")
    sensible = type(x["value"]) in (int, float) and abs(x["value"]) <= 1e8
    require(sensible, f"value of {x} is not a number of at most 1e8")


def digest(x: Any) -> str:
    """SHA-256 of bytes, or of plain data."""
    raw = x if type(x) is bytes else json.dumps(x, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(raw).hexdigest()


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The different numbers, none below 0, in order, faster than ``np.unique``."""
    return (numbers := np.sort(numbers))[np.diff(numbers, prepend=-1) > 0]


def read_weights(raw: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, as float64."""
    size, arrays = int.from_bytes(raw[:8], "little"), {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__":
            require(entry["dtype"] == "F32", f"{name} is {entry['dtype']}, not F32")
            first, last = (8 + size + at for at in entry["data_offsets"])
            arrays[name] = np.float64(np.frombuffer(raw[first:last], "<f4")).reshape(entry["shape"])
            require(np.isfinite(arrays[name]).all(), f"{name} is not finite")
    return arrays


class Rule:
    """What writes a row: tables over states and columns of letters, ``base`` standing for the end.

    It writes ``base`` where the row closes, ``base + 2`` where it does and another one follows,
    ``base + 3`` where none does, one of ``closers`` where one that belongs to it does, and
    ``base + 1`` behind it, in the states ``done``, and in its first ``lag`` columns. First states
    are those of rows with one of ``symbols`` (``base`` is none) below one of ``openers``.
    """

    def __init__(self, data: dict[str, Any]):
        self.base: int = within("base", data["base"], 1, 251)
        self.tapes, self.states = within("tapes", data["tapes"], -1, 9), len(data["next"])
        self.start = within("start", data["start"], 0, self.states)
        self.symbols = within("symbols", data["symbols"], 0, self.base + 1)
        self.openers = within("openers", data.get("openers", []), 0, self.base)
        self.closers = within("closers", data.get("closers", []), 0, self.base)
        counts = {len(x) for x in (self.symbols, self.openers) if x} or {1}
        require(counts == {len(self.start)}, "not every symbol has a start")
        columns = [*product(range(self.base + 1), repeat=len(self.tapes))]
        self.letters = np.array(columns, int).reshape(len(columns), len(self.tapes)).T
        self.next, self.out = (
            np.array(within(name, data[name], low, high)).reshape(self.states, -1)
            for name, low, high in (("next", -1, self.states), ("written", -1, self.base + 4))
        )
        require((self.out[self.next >= 0] >= 0).all(), "a step writes nothing that is known")
        is_still = self.next[:, -1] == np.arange(self.states)
        self.done = is_still & (self.out[:, -1] == self.base + 1)
        self.live = self.done.copy()  # states from which a row can end
        while (reaching := ((self.next >= 0) & self.live[self.next]).any(1) & ~self.live).any():
            self.live |= reaching
        after = np.arange(self.states)  # far behind the last letter
        for _ in range(self.states):
            after = np.where(after < 0, after, self.next[after, -1])
        self.stops = (after < 0) | self.done[after]
        self.ended = (after >= 0) & self.done[after]  # if nothing but the end follows
        self.lag: int = within("lag", data.get("lag", 0), 0, 9)
        self.words = bool(data.get("words"))
        self.ends = np.zeros(self.base + 4, bool)
        self.ends[[self.base, self.base + 2, self.base + 3, *self.closers]] = True
        is_followed = np.isin(self.out[self.next >= 0], [self.base, self.base + 2, *self.closers])
        self.goes_on = bool(is_followed.any())  # does a row ever have a next one?
        self.close_once()

    def close_once(self) -> None:
        """Rows close once, with nothing behind that and in their first columns alone, and end.

        By following states, which tapes are over, and the column: ``lag + 1`` behind the close.
        """
        over: Any = 2 ** np.arange(len(self.tapes)) @ (self.letters == self.base)
        tapes, columns = 2 ** len(self.tapes), self.lag + 2
        seen = {state * tapes * columns for state in self.start}
        for now in (queue := [*seen]):
            state, column = now // tapes // columns, now % columns
            require(self.stops[state], "a row goes on for ever behind its last letter")
            before = now // columns % tapes
            fits = (self.next[state] >= 0) & (over & before == before)
            silent = self.out[state] == self.base + 1
            wrong = fits & self.live[self.next[state]] & (silent == (column == self.lag))
            require(not wrong.any(), "a row writes nothing before its close, or more behind it")
            close = (column > self.lag) | self.ends[self.out[state]]
            then = np.where(close, self.lag + 1, min(column + 1, self.lag))
            after = distinct((((self.next[state] * tapes) + over) * columns + then)[fits])
            queue += {*after.tolist()} - seen
            seen |= {*after.tolist()}

    def extra(self) -> int | None:
        """How many symbols each row has more than there are letters; None where that varies.

        By following how many more were written than read before each state that leads to an end.
        """
        inside: Any = (self.letters < self.base).all(0)
        ended: Any = (self.letters == self.base).all(0)
        usable = (self.next >= 0) & self.live[self.next] & self.live[:, None]
        if not self.tapes or self.lag > 1 or usable[:, ~(inside | ended)].any():
            return None
        ahead = dict.fromkeys(self.start, 0)
        for state in (queue := [*ahead]):
            for letters in np.flatnonzero(usable[state]).tolist():
                wrote, after = int(self.out[state, letters]), int(self.next[state, letters])
                if inside[letters] and (wrote == self.base + 3 or self.done[state]):
                    continue  # the last row, which is above none
                if inside[letters] and self.ends[wrote]:
                    return None  # it closes before the last letter
                writes = wrote < self.base and not self.ends[wrote]
                surplus = ahead[state] + int(writes) - int(inside[letters])
                if ahead.setdefault(after, surplus) != surplus:
                    return None
                queue += [after] if after not in queue else []
        surpluses = {ahead[state] for state in np.flatnonzero(self.done).tolist() if state in ahead}
        return surpluses.pop() if len(surpluses) == 1 else None

    def counts(self, columns: int) -> list[int]:
        """How many sources of 1 to so many columns there are, of operands that end together."""
        inside = (self.letters < self.base).all(0)
        ways = [sum(1 for s in self.start if s == state) for state in range(self.states)]
        totals = []
        for _ in range(columns):
            after = [0] * self.states
            for state, letters in np.argwhere((self.next >= 0) & inside).tolist():
                after[self.next[state, letters]] += ways[state]
            ways = after
            totals.append(sum(n for n, good in zip(ways, self.ended, strict=True) if good))
        return totals


class Export:
    """The files of the folder, each compared with the fingerprint of the certificate."""

    def __init__(self, folder: Path):
        raw = {name: (folder / file).read_bytes() for name, file in FILES.items()}
        read = {name: json.loads(text) for name, text in raw.items() if name != "weights"}
        self.certificate = certificate = read["certificate"]
        require(certificate.pop("sha256") == digest(certificate), "certificate.json was changed")
        plain, fingerprint = {k: read[k] for k in ("rule", "lines")}, certificate["fingerprint"]
        for name in FILES.keys() - {"certificate"}:
            require(digest((raw | plain)[name]) == fingerprint[name], f"{name} was changed")
        self.take_model(read["lines"], read["model_config"])
        self.take_rule(read["rule"], certificate["source"])
        self.same(read["lines"], read["model_config"], read["generation_config"])
        self.recorded(certificate["source"], read["config"])
        self.weights = read_weights(raw["weights"])

    def take_model(self, lines: Any, config: Any) -> None:
        """The lines and the configuration of the model, as plain data."""
        require("off_line_bias" not in lines, "it sees all")
        self.stream = truth("stream", lines.get("stream", False))  # both in one attention
        require(not config.get("post_norm"), "its blocks are post-norm")
        for name in ("decoder_layers", "d_model", "heads"):
            within(name, config[name], 1, 10**6)
        self.layers = config["decoder_layers"]
        self.encoder: int = within("encoder_layers", config.get("encoder_layers") or 0, 0, 10**6)
        need = {"encoder": self.layers - 1 if self.stream else self.encoder}
        self.lines = {site: lines.get(site, []) for site in ("encoder", "self", "cross")}
        for site, layers in self.lines.items():
            require(len(layers) == need.get(site, self.layers), f"lines of {site} are missing")
        self.width, self.heads = config["d_model"], config["heads"]
        require(not config.get("own_schemes"), "its sites have schemes of their own")
        scheme = config["scheme"]
        require(scheme in ("none", "sinusoidal"), f"positions {scheme} are unknown")
        self.waves = scheme == "sinusoidal"
        period = config.get("cyclic") if self.waves else 1
        require(period is not None, "positions grow with length")
        self.period: int = within("cyclic", period, 1, 10**6)
        self.sos, self.eos = config["bos_token_id"], config["eos_token_id"]

    def take_rule(self, rule: Any, source: Any) -> None:
        """The rule, and what sources are, as plain data; each line has to fit them."""
        self.delimiters, self.aligned = source["delimiters"], truth("aligned", source["aligned"])
        self.closer, self.first = source.get("row"), Rule(rule["first"])
        self.closers = self.first.closers
        closing = [self.closer] if rule["later"] and not self.closers else []
        ids = [self.sos, self.eos, *self.delimiters, *closing]
        within("tokens", ids, self.first.base, 10**6)
        ends = {self.sos, self.eos, *self.delimiters}
        apart = self.sos != self.eos and not {*closing} & ends
        require(apart, "two signs are one token")
        self.later = Rule(rule["later"]) if rule["later"] else None
        self.rules = [by for by in (self.first, self.later) if by]
        self.of_row, self.listed = rule["of_row"], truth("listed", rule["listed"])
        require(self.later or not self.listed, "its one row has operands of other rows")
        self.forward = within("forward", rule.get("forward", []), 0, 9)
        self.stride: int = within("stride", rule.get("stride", 1), 1, 9)
        self.counted = self.listed or self.of_row is not None or not self.later
        self.shift: int = within("shift", rule["shift"], 0, 9)
        require(not rule.get("turned"), "it reads rows above from their last symbol")
        extra = {by.extra() for by in self.rules}
        self.extra = extra.pop() if len(extra) == 1 else None
        self.growth: int | None = 0  # how many symbols more a row has than the one above
        if self.later and {*self.later.tapes} == {-1} and (self.extra != 0 or self.shift):
            self.extra, self.growth = None, None if self.shift else self.later.extra()
        self.base, self.past = self.first.base, bool(rule.get("past"))
        alike = {(by.base, *by.closers) for by in self.rules}
        require(len(alike) == 1, "later rows have another base, or other closers")
        above = [-1 in by.tapes for by in self.rules]
        require(above in ([False], [False, True]), "later rows alone read the row above")
        rows = self.of_row is None or (not self.listed and all(by.symbols for by in self.rules))
        rows &= not (self.past and self.of_row is None)
        opened = not self.closers or not self.later or self.later.openers
        require(rows and opened, "rows lack symbols, or openers, or a number that they are of")
        said_twice = any((x.out[x.next >= 0] == x.base + 2).any() for x in self.rules)
        said_twice |= bool(self.closers) and not (self.later and self.past)
        require(not (said_twice and self.counted), "rows and sources say how many rows there are")
        require(not (self.later and self.period > 1), "positions are not followed over rows")
        self.tapes = [k for k in sorted(self.first.tapes) if k >= 0]
        parts = (1 if self.stride > 1 else len(self.tapes)) + (self.of_row is not None)
        self.several = parts > 1 and not (self.later or self.listed or self.first.words)
        require(self.several or not self.aligned, "aligned are several operands of one row alone")
        parts = 2 if self.aligned else parts
        is_delimited = self.listed or len(self.delimiters) == parts + 1
        require(is_delimited, f"{len(self.delimiters)} delimiters stand around {parts} parts")
        for site, layers in self.lines.items():
            is_complete = all(len(heads) == self.heads for heads in layers)
            require(is_complete, f"heads of {site} are missing")
            for x in (x for heads in layers for head in heads for x in head):
                check_line(x, site, 1 if self.listed else parts)

    def recorded(self, source: Any, config: Any) -> None:
        """What its run recorded of sources is what the certificate says."""
        words, base = source.get("words"), config.get("base")
        letters = len(words) if words else base
        require(letters == self.base, f"its rule has {self.base} letters, not {letters}")
        form = str((config.get("train") or {}).get("format"))
        require(form in ("free", "aligned"), f"its format is {form}")
        aligned = form.startswith("aligned") and self.several
        require(self.aligned == aligned, f"aligned is {self.aligned}, and its format {form}")

    def same(self, lines: Any, config: Any, generation: Any) -> None:
        """What a loaded model follows is what is checked here."""
        greedy = {name: config[name] for name in GREEDY}
        require(generation == greedy, "decoding is not plainly greedy")
        pad, row, ends = config["pad_token_id"], config.get("row_id"), {*config["delimiter_ids"]}
        within("delimiters", [*ends, pad], self.base, 10**6)
        closes = (config.get("spelling") or {}).get("closes", 1)
        require(closes == 1, f"its sources end with {closes} tokens")
        its = config["line_bias"], config["decoder_start_token_id"]
        rows = ({*row} if isinstance(row, list) else {row}) == ({*self.closers} or {self.closer})
        require(self.later or (row is None and not self.closers), "it opens rows")
        require(config.get("dtype") == "float32", "its weights are loaded in another type")
        fits = its == (lines, self.sos) and rows and ends >= {*self.delimiters}
        require(fits and pad not in {*ends, self.closer}, "its configuration says otherwise")


class Nodes:
    """What tokens are made of: a label and other nodes, each different one once, by number.

    ("symbol", id), ("digit", operand, column), ("fixed",), ("written", rows above, column),
    ("opener", rows above), ("any", ...), ("atom", k) are tokens; ("place", site, phase) one at a
    phase of the positions; ("row", site, layer, *read) a token's state: itself one layer before and
    what the heads of each attention read, with biases.
    """

    def __init__(self) -> None:
        self.all, self.number = list[Any](), dict[tuple, int]()
        self.varying = dict[int, frozenset[int]]()

    def __call__(self, label: tuple, below: tuple[int, ...] = ()) -> int:
        if (label, below) not in self.number:
            number = self.number[label, below] = len(self.all)
            self.all.append((label, below))
            tokens = {number} if not below and label[0] != "symbol" else set()
            self.varying[number] = frozenset(tokens).union(*(self.varying[b] for b in below))
        return self.number[label, below]

    def order(self, node: int) -> list[int]:
        """The tokens below a node that may be any, in the order in which they are met."""
        tokens, seen = list[int](), {node}
        stack = [node]
        while stack:
            label, below = self.all[node := stack.pop()]
            tokens += [node] if not below and label[0] != "symbol" else []
            stack += [child for child in reversed(below) if child not in seen]
            seen |= {*below}
        return tokens

    def renamed(self, node: int, names: dict[int, int]) -> int:
        if node not in names:
            label, below = self.all[node]
            names[node] = self(label, tuple(self.renamed(b, names) for b in below))
        return names[node]


@dataclass(frozen=True)
class Length:
    """A whole number of tokens, columns or rows, and by how much it grows with each gap."""

    value: int
    slopes: tuple[int, ...]

    def __add__(self, other: Any) -> "Length":
        if isinstance(other, int):
            return Length(self.value + other, self.slopes)
        slopes = tuple(a + b for a, b in zip(self.slopes, other.slopes, strict=True))
        return Length(self.value + other.value, slopes)

    def __mul__(self, factor: int) -> "Length":
        return Length(self.value * factor, tuple(factor * slope for slope in self.slopes))

    def __sub__(self, other: Any) -> "Length":
        return self + other * -1

    def parts(self, count: int) -> tuple["Length", int]:
        """The quotient and the rest."""
        whole = not any(slope % count for slope in self.slopes)
        require(whole, "a line goes on by a part of a column, and drifts through the digits")
        value, rest = divmod(self.value, count)
        return Length(value, tuple(slope // count for slope in self.slopes)), rest


class Size:
    """Problems of one size, and what tokens of one row of their answers read.

    ``gaps``: between the columns that count, then of rows. ``closed``: those that a comparison
    depends on, so that a larger one has to be looked at; with larger ones of the others all is the
    same. ``names`` gives the ``column`` in question, the columns ``wide`` of the row's operands,
    the symbols ``above`` of the row above, the ``row`` and how many ``rows`` there are, each as a
    constant and its slopes. ``short``: words that the last column lacks.
    """

    def __init__(
        self,
        e: "Export",
        nodes: Nodes,
        names: dict[str, tuple[int, ...]],
        gaps: tuple[int, ...],
        short: int,
    ):
        self.e, self.nodes, self.closed, self.node_of = e, nodes, set[int](), dict[tuple, int]()
        self.nothing = Length(0, (0,) * len(gaps))
        size = dict[str, Length]()
        for name, (least, *slopes) in names.items():
            grown = sum(slope * gap for slope, gap in zip(slopes, gaps, strict=True))
            size[name] = Length(least + grown, tuple(slopes))
        self.column, self.wide, self.row, self.rows = (
            size[name] for name in ("column", "wide", "row", "rows")
        )
        self.short, self.later = short, names["row"][0] > 0
        self.above = size.get("above", self.wide + (e.extra or 0))
        self.exists = self.sign(self.wide, 1) >= 0 and self.sign(self.rows, 1 + e.past) >= 0
        if e.later and not e.later.goes_on:
            self.exists &= self.sign(self.row, 2) < 0
        if self.later:
            self.exists &= self.sign(self.above, 0) >= 0
        self.last = self.sign(self.rows - self.row, 1) == 0
        self.by = e.later if self.later and e.later else e.first
        self.parts: list[tuple[Length, list[int]]] = []  # of each its columns and their operands
        self.closes = [self.nothing]
        if not e.listed:
            self.lay_out()

    def sign(self, length: Length, other: Any) -> int:
        """Below 0, 0 or above as ``one`` is below, at or above ``other``: here and in all sizes
        with larger gaps, but for those that this closes."""
        difference = length - other
        for gap, slope in enumerate(difference.slopes):
            if slope and (not difference.value or (difference.value > 0) != (slope > 0)):
                self.closed.add(gap)
        return difference.value

    def within(self, x: Length, low: Any, high: Any) -> Length:
        """The number, or the bound that it is beyond."""
        low, high = (self.nothing + bound for bound in (low, high))
        x = low if self.sign(x, low) < 0 else x
        return high if self.sign(x, high) > 0 else x

    def lay_out(self) -> None:
        """The parts of a source, and the positions of the delimiters around them."""
        e, several = self.e, self.e.stride > 1
        operands = e.tapes[:1] if several else e.tapes
        parts = [(self.wide, [k]) for k in operands]
        if e.of_row is not None:
            tokens = self.wide if e.aligned else self.rows - int(e.past)
            parts.insert(e.of_row, (tokens, [e.of_row]))
        if e.aligned:
            every = [k for _, operands in parts for k in operands]
            parts = [(self.nothing, []), (self.wide, every[::-1])]
        self.parts = parts
        for columns, operands in parts:
            tokens = columns * len(operands)
            if several and operands[0] != e.of_row:
                tokens = columns * e.stride - self.short
            self.closes.append(self.closes[-1] + tokens + 1)

    def placed(self, position: Length) -> tuple[Length, Length]:
        """The part of a source that a position is in, and the tokens of it behind (-1: its end)."""
        part = next(k for k, end in enumerate(self.closes) if self.sign(position, end) <= 0)
        return self.nothing + part, self.closes[part] - 1 - position

    def token(self, part: Length, behind: Length) -> tuple:
        """What stands in a part of a source, with so many tokens of the part behind it."""
        e = self.e
        if self.sign(behind, 0) < 0:
            if not e.listed:
                return "symbol", e.delimiters[part.value]
            last = self.sign(part, self.rows) == 0
            return "symbol", e.delimiters[-1 if last else self.sign(part, 0) > 0]
        if e.listed:
            return "digit", e.tapes[0], behind
        columns, operands = self.parts[part.value - 1]
        column, which = behind.parts(len(operands))
        operand = operands[which]
        several = e.stride > 1 and operand != e.of_row
        if operand in e.forward:
            tokens = columns * e.stride - self.short if several else columns
            column = tokens - 1 - column
        if several:
            column, turn = column.parts(e.stride)
            operand += turn
        if operand != e.of_row:
            return "digit", operand, column
        if e.first.words and len(e.first.symbols) == 1:  # all alike
            return "symbol", e.first.symbols[0]
        if e.aligned or self.sign(column, self.row) == 0:
            return ("fixed",)
        return "any", operand, column

    def width(self, up: int) -> Length:
        """How many symbols the row ``up`` above has."""
        if self.e.extra is not None:
            return self.wide + self.e.extra
        growth = self.e.growth if up > 1 else 0
        require(growth is not None and growth <= 0, "it reads rows further up than the one above")
        return self.above + (up - 1) * -(growth or 0)

    def own_key(self, x: dict[str, Any], up: int, at: Length) -> tuple[int, Length]:
        """The token that a line of self-attention names: of a row above, and its column."""
        direction, segment, opens = x["direction"], x["segment"], [self.nothing]
        for k in range(1, segment + 1):
            exists = self.sign(self.row, up + k) >= 0
            opens.append(opens[-1] - (self.width(up + k) + 1) if exists else opens[-1])
        low, high = opens[segment], opens[segment - 1] if segment else at
        if direction == "anti":
            place = high - (1 if segment else 0) - x["offset"] - at
        else:
            place = low + x["offset"] + (at if direction == "diag" else 0)
        place = self.within(place, low, high)
        k = next(k for k, opened in enumerate(opens) if self.sign(place, opened) >= 0)
        return up + k, place - opens[k]

    def cross_key(self, x: dict[str, Any], up: int, at: Length) -> tuple[Length, Length]:
        """The token of a source that a line of cross-attention names: its part, and what is behind.

        It is counted from where its part begins (``diag``) or ends, and kept within its delimiters.
        """
        row, last = self.row - up, self.rows if self.e.listed else len(self.closes) - 1
        low, high = (
            self.within(self.nothing + first + row * x.get("part_step", 0), 0, last)
            for first in (max(x["segment"] - 1, 0), x["segment"])
        )
        on = self.nothing + x["offset"] + row * x.get("beta", 0)
        diag, slant = x["direction"] == "diag", at * x.get("stride", 1)
        move = {"diag": on + 1 + slant, "anti": on + 1 + slant, "vert": on}[x["direction"]]
        if not self.e.listed:
            low, high = (self.closes[self.exactly(part)] for part in (low, high))
            return self.placed(self.within(low + move if diag else high - move, low, high))
        end = self.nothing - 1
        if self.sign(low, high) == 0:
            return high, end
        if self.sign(move, 0) <= 0:  # at or beyond the end that it is counted from
            return low if diag else high, end
        is_next = self.sign(high - self.row, 1) == 0
        require(is_next, f"{x} reads another row's number")
        behind = self.within(self.wide - move if diag else move - 1, -1, self.wide)
        return (low, end) if self.sign(behind, self.wide) == 0 else (high, behind)

    def exactly(self, x: Length) -> int:
        """The value, of this size alone."""
        self.closed |= {gap for gap, slope in enumerate(x.slopes) if slope}
        return x.value

    def source_key(self, x: dict[str, Any], part: Length, behind: Length) -> tuple[Length, Length]:
        """The token of a source that a line of the encoder names."""
        direction, offset, end = x["direction"], x["offset"], self.nothing - 1
        if not self.e.listed:
            if direction == "vert":
                return self.nothing + min(x["segment"], len(self.closes) - 1), end
            at, high = self.closes[part.value] - 1 - behind, self.closes[-1]
            place = at + offset if direction == "diag" else high - offset - at
            return self.placed(self.within(place, 0, high))
        if direction == "vert":
            return self.within(self.nothing + x["segment"], 0, self.rows), end
        if direction == "diag" and not offset:
            return part, behind
        require(direction == "diag" and self.sign(part - self.row, 1) == 0, f"{x} drifts")
        behind = behind - offset
        fits = self.sign(behind, -1) >= 0 and self.sign(behind, self.wide) <= 0
        require(fits, f"{x} reads another row's number")
        return (part - 1, end) if self.sign(behind, self.wide) == 0 else (part, behind)

    def node(self, layer: int, place: tuple) -> int:
        """The node of a token after so many layers: (row above, column), or of the source (part,
        tokens behind)."""
        up = place[0] if isinstance(place[0], int) else None
        if (name := (layer, *place)) in self.node_of:
            return self.node_of[name]
        e, site = self.e, "encoder" if up is None else "self"
        if layer:
            attentions = [self.reads(site, layer, layer - 1, place)]
            if up is not None:
                cross = self.reads("cross", layer, layer - 1 if e.stream else e.encoder, place)
                both = [a + b for a, b in zip(*attentions, cross, strict=True)]
                attentions = [both] if e.stream else [*attentions, cross]
            node = self.state(site, layer, self.node(layer - 1, place), attentions)
        elif up is None:
            after = self.nothing
            if e.period > 1:
                after = self.closes[-1] - self.closes[place[0].value] + 1 + place[1]
            phase = ("place", site, after.value % e.period)
            node = self.nodes(phase, (self.nodes(self.token(*place)),))
        else:
            opening = ("opener", up) if e.closers else ("symbol", e.closer)
            opening = opening if self.sign(self.row, up) > 0 else ("symbol", e.sos)
            begins = self.sign(place[1], 0) == 0
            token = self.nodes(opening if begins else ("written", up, place[1] - 1))
            node = self.nodes(("place", site, place[1].value % e.period), (token,))
        self.node_of[name] = node
        return node

    def reads(self, site: str, layer: int, under: int, place: tuple) -> list[Any]:
        """What the heads of an attention read: biases and nodes of the layer ``under``.

        Lines that meet on one token count once, with the highest bias.
        """
        find: Any = {"self": self.own_key, "cross": self.cross_key, "encoder": self.source_key}[
            site
        ]
        heads = []
        for head in self.e.lines[site][layer - 1]:
            best = list[tuple[tuple, float]]()
            for x in head:
                key, bias = find(x, *place), float(np.float32(x["value"]))
                met = [k for k, (other, _) in enumerate(best) if self.same(key, other)]
                if met:
                    best[met[0]] = best[met[0]][0], max(bias, best[met[0]][1])
                else:
                    best.append((key, bias))
            heads.append([(bias, self.node(under, key)) for key, bias in best])
        return heads

    def same(self, key: tuple, another: tuple) -> bool:
        """Are two keys one token?"""
        if isinstance(key[0], int) or isinstance(another[0], int):
            return key[0] == another[0] and self.sign(key[1], another[1]) == 0
        return self.sign(key[0], another[0]) == 0 and self.sign(key[1], another[1]) == 0

    def state(self, site: str, layer: int, itself: int, attentions: list[Any]) -> int:
        """The node of a token after a layer, from itself and what heads read, with biases."""
        below, sites = [itself], []
        for heads in attentions:
            read = []
            for keys in heads:
                require(keys, "a head without lines sees everything")
                read.append(tuple((len(below) + i, bias) for i, (bias, _) in enumerate(keys)))
                below += [key for _, key in keys]
            sites.append(tuple(read))
        return self.nodes(("row", site, layer, *sites), tuple(below))

    def kind(self) -> tuple[int, list[tuple]]:
        """What the token in question is made of, its tokens named by number, and which they are."""
        top = self.node(self.e.layers, (0, self.column))
        order = self.nodes.order(top)
        names = {n: self.nodes(("atom", i)) for i, n in enumerate(order)}
        return self.nodes.renamed(top, names), [self.nodes.all[n][0] for n in order]


class Walk:
    """The columns of a row in order, and what is kept of each.

    ``plan``: which tapes are over, what is kept as (tape, or -1 for what is written, and number),
    whether it is the column in question, and whether any number of such columns may stand there,
    or none.
    """

    def __init__(self, size: Size, tokens: list[tuple]):
        e = size.e
        self.by = by = size.by
        self.ending = {by.base: e.eos if size.last else e.closer}
        self.ending |= {by.base + 2: e.closer, by.base + 3: e.eos}
        here = size.column + by.lag
        lengths = {-1: size.above - e.shift}
        short = e.stride - size.short if size.short else e.stride
        lengths |= {k: size.wide - int(e.stride > 1 and i >= short) for i, k in enumerate(e.tapes)}
        ends = [lengths[tape] for tape in by.tapes]
        self.fixed, self.free, self.past = list[tuple](), list[tuple](), list[bool]()
        if e.past:  # which first states: those of the last row, or of the others
            self.past = [(x == by.base) == size.last for x in by.symbols]
        events: list[tuple[Length, Any]] = [(here, None), *((end, None) for end in ends)]
        for k, token in enumerate(tokens):
            at, above = token[-1], token[:2] == ("written", 1) and -1 in by.tapes
            if token[0] == "digit" and token[1] in by.tapes:
                events.append((at, (by.tapes.index(token[1]), k)))
            elif token[:2] == ("written", 0):
                events.append((at + by.lag, (-1, k)))
            elif above and size.sign(at, e.shift) >= 0:
                events.append((at - e.shift, (by.tapes.index(-1), k)))
            else:
                choices = {("fixed",): by.symbols, ("opener", 0): by.openers}
                some = by.closers if token[0] == "opener" else range(by.base)
                codes = self.fixed if token in choices else self.free
                codes.append((k, choices.get(token, some)))
        events.sort(key=lambda event: event[0].value)
        for (event_at, _), (other, _) in pairwise(events):
            size.sign(other, event_at)
        self.plan, at = list[Any](), size.nothing
        for value in sorted({event[0].value for event in events}):
            event = next(event_at for event_at, _ in events if event_at.value == value)
            over, gap = tuple(end.value < value for end in ends), event - at
            many = any(s > 0 for k, s in enumerate(gap.slopes) if k not in size.closed)
            self.plan += [(over, (), False, False)] * gap.value + [(over, (), False, True)] * many
            kept = tuple(what for event_at, what in events if what and event_at.value == value)
            at = event
            if kept or value == here.value:
                over = tuple(end.value <= value for end in ends)
                self.plan.append((over, kept, value == here.value, False))
                at = event + 1
        self.name = (*self.ending.values(), by is e.later, *self.plan, *self.past)
        self.name += *map(str, self.fixed), -1, *map(str, self.free)

    def windows(self, count: int, vocabulary: int) -> np.ndarray:
        """What can stand at the ``count`` tokens, and the right one: as digits of numbers."""
        by, base, right = self.by, self.by.base, self.by.base**count
        require(right * vocabulary * by.states < 2**62, "too many tokens count in one place")
        code = sum((base**k * np.array(values) for k, values in self.fixed), np.int64(0))
        pairs = code * by.states + np.array(by.start)  # what is kept so far, and a state
        pairs = pairs[self.past] if self.past else pairs
        steps = [self.step(right, *entry) for entry in self.plan]
        # from which states the columns that are left can be gone through
        on = [by.ended]
        for _, fits, many in reversed(steps):
            on.append((fits & on[-1][by.next]).any(1) | (on[-1] & many))
            while many and (reaching := (fits & on[-1][by.next]).any(1) & ~on[-1]).any():
                on[-1] |= reaching
        while steps and not steps[-1][0].any():  # nothing is kept any more
            steps.pop()
        for (kept, fits, many), here, then in zip(steps, on[::-1], on[-2::-1], strict=False):
            fits &= (here if many else then)[by.next]
            codes_after, before = self.through(pairs, kept, fits), 0
            while many and len(pairs) > before:
                before, pairs = len(pairs), distinct(np.append(pairs, codes_after))
                codes_after = self.through(pairs, kept, fits)
            pairs = pairs if many else codes_after
        code, state = np.divmod(pairs, by.states)
        code = distinct(code[on[-1 - len(steps)][state]])
        for k, values in self.free:
            code = (code[:, None] + base**k * np.array(values)).ravel()
        return distinct(code)

    def step(self, right: int, over: Any, keeping: Any, here: bool, many: bool) -> Any:
        """What is kept of a column by state and letters, which of these fit it, and ``many``."""
        by, base = self.by, self.by.base
        ended = ((by.letters == base) == np.array(over)[:, None]).all(0)
        kept, fits = np.zeros_like(by.out), (by.next >= 0) & ended
        for axis, k in keeping:
            value = by.out if axis < 0 else np.broadcast_to(by.letters[axis], by.out.shape)
            fits, kept = fits & (value < base), kept + base**k * value
        if here:
            token = np.where(by.out < base, by.out, -1)
            for closed, closer in self.ending.items():
                token[by.out == closed] = -1 if closer is None else closer
            fits, kept = fits & (token >= 0), kept + right * token
        return kept * fits, fits, many

    def through(self, pairs: np.ndarray, kept: Any, fits: Any) -> np.ndarray:
        """One column more."""
        parts, states = [np.zeros(0, np.int64)], self.by.states
        for state in distinct(pairs % states):
            steps = distinct(kept[state][fits[state]] * states + self.by.next[state][fits[state]])
            parts.append((pairs[pairs % states == state, None] - state + steps).ravel())
        return distinct(np.concatenate(parts))


class Model:
    """The network in float64, written down from its definition; ``values (m, atoms)``."""

    def __init__(self, e: Export, nodes: Nodes, values: np.ndarray):
        self.e, self.nodes, self.values, self.tables = e, nodes, values, dict[int, Any]()

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.e.weights[f"{name}.weight"].T + self.e.weights[f"{name}.bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return x * self.e.weights[f"{name}.weight"] + self.e.weights[f"{name}.bias"]

    def read(self, node: int, at: np.ndarray) -> np.ndarray:
        """The states of a node in the combinations ``at``; each different one is computed once."""
        if node not in self.tables:
            atoms = sorted(self.nodes.all[token][0][1] for token in self.nodes.varying[node])
            code = self.values[:, atoms] @ (self.e.base ** np.arange(len(atoms)))
            _, first, where = np.unique(code, return_index=True, return_inverse=True)
            states = [self.state(node, x) for x in np.split(first, range(CHUNK, len(first), CHUNK))]
            self.tables[node] = np.concatenate(states), where.ravel()
        return self.tables[node][0][self.tables[node][1][at]]

    def state(self, node: int, at: np.ndarray) -> np.ndarray:
        (what, _, phase, *_), below = self.nodes.all[node]
        if what == "row":
            return self.row(node, at)
        kind, which = self.nodes.all[below[0]][0]
        ids = self.values[at, which] if kind == "atom" else np.full(len(at), which)
        angle = phase * 10000.0 ** (-np.arange(0, self.e.width, 2) / self.e.width)
        waves = np.stack([np.sin(angle), np.cos(angle)], 1).ravel()[: self.e.width]
        return self.e.weights["embed.weight"][ids] + waves * self.e.waves

    def row(self, node: int, at: np.ndarray) -> np.ndarray:
        (label, below), e = self.nodes.all[node], self.e
        encoder = label[1] == "encoder" and not e.stream
        name = f"{'encoder.' * encoder}layers.{label[2] - 1}"
        size, x = e.width // e.heads, self.read(below[0], at)
        for i, heads in enumerate(label[3:]):
            attention = f"{name}.{'' if e.stream or encoder else ('self_', 'cross_')[i]}attention"
            query = self.linear(f"{attention}.query", self.norm(f"{name}.norms.{i}", x))
            seen, mixed = dict[int, list[np.ndarray]](), []
            for key in {below[k] for head in heads for k, _ in head}:
                y = self.read(key, at)
                if i == 0:
                    y = self.norm(f"{name}.norms.0", y)
                elif e.encoder:
                    y = self.norm("encoder.norm", y)
                seen[key] = [self.linear(f"{attention}.{of}", y) for of in ("key", "value")]
            for h, head in enumerate(heads):
                part = slice(h * size, (h + 1) * size)
                keys, values = ([seen[below[k]][j][:, part] for k, _ in head] for j in (0, 1))
                score = np.stack([(query[:, part] * key).sum(1) / sqrt(size) for key in keys], 1)
                score += np.array([bias for _, bias in head])
                weight = np.exp(score - score.max(1, keepdims=True))[:, :, None]
                mixed.append((weight * np.stack(values, 1)).sum(1) / weight.sum(1))
            x = x + self.linear(f"{attention}.output", np.concatenate(mixed, 1))
        hidden = self.linear(f"{name}.feedforward.0", self.norm(f"{name}.norms.{i + 1}", x))
        return x + self.linear(f"{name}.feedforward.3", np.maximum(hidden, 0))

    def margins(self, node: int, right: np.ndarray) -> np.ndarray:
        margins = []
        for at in np.split(np.arange(len(right)), range(CHUNK, len(right), CHUNK)):
            logits = self.linear("head", self.norm("norm", self.state(node, at)))
            logit = np.take_along_axis(logits, right[at, None], 1)[:, 0]
            np.put_along_axis(logits, right[at, None], -np.inf, 1)
            margins.append(logit - logits.max(1))
        return np.concatenate(margins)


def frames(e: Export, mirrored: bool) -> Any:
    """How columns and rows of a size may lie: of each name a constant, and its slope in each gap.

    Columns in every order, a gap from each to the next; then one of rows above (the first row has
    none), and one of rows below where the source says how many there are. ``mirrored``: the column
    that is as far from the end as the one in question from the start is one of those in order.
    """
    if mirrored:
        orders = ((0, 1, 0), (1, 2, 1)), ((0, 1, 1), (0, 2, 1)), ((1, 1, 1), (0, 1, 0))
        for column, wide in orders:
            yield {"column": column, "wide": wide, "row": (0, 0, 0), "rows": (1, 0, 0)}
        return
    below = [1] * bool(e.later and e.counted)
    for later in (False, True)[: 1 + bool(e.later)]:
        for order in permutations(["column", "wide", "above"][: 2 + (later and e.extra is None)]):
            count, others = len(order), [0] * (later + len(below))
            names = dict[str, tuple[int, ...]]()
            for gap, name in enumerate(order, 1):
                names[name] = (0, *[1] * gap, *[0] * (count - gap), *others)
            above = [0] * count + [1] * later
            names["row"] = (int(later), *above, *[0] * len(below))
            names["rows"] = (1 + later, *above, *below)
            yield names


def sizes(e: Export, nodes: Nodes, mirrored: bool) -> Any:
    """Sizes that stand for all, each with its kind of token and its walk.

    From gaps of 0 on, each as far as something depends on it. Any size is one of these with larger
    gaps that nothing depends on: go from gaps of 0 towards it as long as a gap is smaller than its
    own and closed. Positions are known modulo the period, so that gaps grow by as much.
    """
    most = MOST if e.later or mirrored else FEW
    for names, short in product(frames(e, mirrored), range(e.stride)):
        start, seen = (0,) * (len(names["wide"]) - 1), dict[tuple, set[int]]()
        queue, queued = [start], {start}
        for gaps in queue:
            require(len(seen) <= most, "its lines reach or drift so far that too many sizes differ")
            closed: set[int] = set()
            for phases in product(range(e.period), repeat=len(gaps)):
                here = tuple(a + b for a, b in zip(gaps, phases, strict=True))
                if here in seen or any(b for k, b in enumerate(phases) if k in closed):
                    continue
                size = Size(e, nodes, names, here, short)
                if size.exists:
                    name, tokens = size.kind()
                    yield name, len(tokens), Walk(size, tokens)
                seen[here] = size.closed
                closed = closed or seen[gaps]
            for gap in seen[gaps]:
                larger = (*gaps[:gap], gaps[gap] + 1, *gaps[gap + 1 :])
                queue += [larger] if larger not in queued else []
                queued.add(larger)


def rows_follow(e: Export) -> None:
    """Each row that is written has a next one, whatever its symbol and its own number are.

    A row and the next are run at once, the next one some columns behind.
    """
    if (later := e.later) is None:
        return
    radix, first = later.base + 1, e.first
    outputs = {int(x) for by in (first, later) for x in by.out[by.next >= 0]}
    require(not (e.closers and later.base + 2 in outputs), "a row closes in two ways")
    symbols = {*first.symbols, *later.symbols} - {later.base} | ({later.base} if e.past else set())
    count = len(later.start)
    pairs = {*zip(later.symbols or [0] * count, later.openers or [0] * count, strict=True)}
    for symbol, opener in product(symbols, outputs & {*e.closers} or {0}):
        is_start = (symbol, opener if later.openers else 0) in pairs
        require(is_start, f"no row has symbol {symbol} below one that closes with {opener}")
    for by in (first, later):
        now = {*by.start}
        followed = {by.base + 2, *e.closers, *([by.base] if e.counted else [])}
        for _ in range(e.shift + by.lag if e.shift else 0):
            steps = [(s, k) for s in now for k in np.flatnonzero(by.next[s] >= 0)]
            short = followed & {int(by.out[step]) for step in steps}
            require(not short, "a row that another follows is too short to be read")
            now = {int(by.next[step]) for step in steps}
    same = [tape for tape in later.tapes if tape >= 0 and not e.listed]
    closings = [*e.closers] or [None]
    for by, begin, closing in product((first, later), range(len(later.start)), closings):
        if closing is not None and later.openers[begin] != closing:
            continue
        late = e.shift + by.lag  # by how many columns the next row is behind
        require(late < 4, "it reads too far on")
        kept = [by.letters[by.tapes.index(tape)] for tape in same]
        seen: set[tuple] = {(s, later.start[begin], (), first.start[0]) for s in by.start}
        for now, then, waiting, number_state in (queue := [*seen]):
            for letter in np.flatnonzero(by.next[now] >= 0).tolist():
                wrote = int(by.out[now, letter])
                on = wrote == by.base + 2 or (e.counted and not e.closers and wrote == by.base)
                if by.ends[wrote] and not (on or wrote == closing):
                    continue  # the last row, or one that closes in another way
                wrote = by.base if by.ends[wrote] or wrote > by.base else wrote
                fed = (*waiting, tuple(int(k[letter]) for k in kept))
                for number in range(radix) if e.listed else [0]:
                    valid = int(first.next[number_state, number]) if e.listed else number_state
                    after, column = then, 0
                    if then >= 0 and len(fed) > late:
                        read = dict(zip(same, fed[0], strict=True)) | {-1: wrote}
                        for tape in later.tapes:
                            column = column * radix + read.get(tape, number)
                        after = int(later.next[then, column])
                    step = int(by.next[now, letter]), after, fed[len(fed) > late :], valid
                    if valid >= 0 and step not in seen:
                        seen.add(step)
                        queue.append(step)
        for now, then, waiting, number_state in seen:
            over = all(x == by.base for column in waiting for x in column)
            if by.done[now] and over and (not e.listed or first.done[number_state]):
                require(then >= 0 and later.ended[then], "a row that it may write has no next row")


def rows_end(e: Export) -> None:
    """Of rows with closers, those with a symbol of their own end with one, the last one without."""
    for by, last in product((e.first, e.later), (False, True)):
        if by is None or not (e.past and by.closers):
            continue
        now = {s for s, x in zip(by.start, by.symbols, strict=True) if (x == by.base) == last}
        for state in (queue := [*now]):
            some = by.next[state] >= 0
            wrote, states_after = by.out[state][some], {*by.next[state][some].tolist()} - now
            wrong = np.isin(wrote, by.closers) if last else wrote == by.base
            require(not wrong.any(), "a row closes as if it were the last one, or the last one not")
            now |= states_after
            queue += states_after


def kinds(e: Export, nodes: Nodes) -> dict[int, tuple[np.ndarray, int]]:
    """Every kind of token, its windows, and the number of its tokens."""
    state = e.first.next[list(e.first.start), -1]
    require(not e.first.tapes or (state < 0).all(), "it takes sources without a letter")
    try:
        every = [*sizes(e, nodes, mirrored=False)]
    except SystemExit:
        if e.later:
            raise
        every = [*sizes(e, nodes, mirrored=True)]
    vocabulary = 1 + max(e.eos, e.sos, *e.delimiters, e.closer or 0)
    windows, seen = dict[int, tuple[np.ndarray, int]](), set[tuple]()
    for name, count, walk in every:
        if (name, walk.name) not in seen:
            seen.add((name, walk.name))
            some = walk.windows(count, vocabulary)
            windows[name] = distinct(np.append(some, windows.get(name, (some, 0))[0])), count
    require(any(len(codes) for codes, _ in windows.values()), "its rule takes no source")
    return {name: entry for name, entry in windows.items() if len(entry[0])}


def check(folder: Path) -> str:
    """The verdict, if the certificate holds."""
    certificate, nodes, least, total = (e := Export(folder)).certificate, Nodes(), inf, 0
    outcome = certificate["outcome"]
    require(outcome == "certified", f"the certificate itself says {outcome}")
    rounding, margin = certificate["rounding"], certificate["margin"]
    sensible = all(type(x) is float and isfinite(x) for x in (rounding, margin))
    require(sensible and 0 <= rounding < margin, f"margin {margin} and rounding {rounding}")
    rows_follow(e)
    rows_end(e)
    for name, (code, count) in kinds(e, nodes).items():
        values, right = code[:, None] // e.base ** np.arange(count) % e.base, code // e.base**count
        margins = Model(e, nodes, values).margins(name, right)
        smallest = margins.min()
        least, total, at = min(least, smallest), total + len(code), margins.argmin()
        where = f"at {values[at]}, where {right[at]} is right"
        require(smallest > 0, f"wrong {where}")
        require(smallest > rounding, f"the margin {smallest:.3g} is within rounding {where}")
    require(isclose(least, margin, rel_tol=2e-3), f"the margin is {least:.4g}")
    some = ", ".join(map(str, e.first.counts(3)))
    rule = f"the rule in rule.json, {e.first.states} states, named {certificate['task']}"
    rule += f", which takes {some} sources of 1, 2, 3 columns" if e.first.tapes else ""
    about = f"{rule}, in base {e.base}, sources delimited by {e.delimiters}"
    return f"certified: right in each of {total} windows, smallest margin {least:.4g}: {about}"


if __name__ == "__main__":
    try:
        print(check(Path(__file__).parent))
    except Exception as error:
        raise SystemExit(f"not certified: its files cannot be read: {error!r}") from None
