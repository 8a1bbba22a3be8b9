"""Check the certificate beside this file with numpy alone: python check.py

It shares no code or method with its maker. For problems of every small size it follows, with plain
integers, what each token of an answer depends on, down to tokens, and calls tokens alike that do so
in the same way. What can stand there together it finds by running the task's rule over all columns;
where many columns in a row are not read, any number of them may stand there. Where the model has
the right token everywhere, answers are right by induction over tokens, and over rows where there
are several: that each row has a next one is checked by running two rows at once. Not checked:
rounding, and that the rule is the task.
"""

import hashlib
import json
from itertools import pairwise, product
from math import inf, isclose, isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 16384
GREEDY = {f"{name}_token_id" for name in ("pad", "bos", "eos", "decoder_start")}
ANY = 10**6
"""Stands for any number of columns."""
CUT = ("symbol", -1)
"""Stands for the numbers of other rows, which no line may read."""


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


def digest(x: Any) -> str:
    """SHA-256 of bytes, or of plain data."""
    raw = x if type(x) is bytes else json.dumps(x, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(raw).hexdigest()


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The different numbers, none below 0, in order, faster than ``np.unique``."""
    return (numbers := np.sort(numbers))[np.diff(numbers, prepend=-1) > 0]


def read_weights(raw: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, as float64."""
    size, found = int.from_bytes(raw[:8], "little"), {}
    for name, about in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__":
            require(about["dtype"] == "F32", f"{name} is {about['dtype']}, not F32")
            first, last = (8 + size + at for at in about["data_offsets"])
            found[name] = np.float64(np.frombuffer(raw[first:last], "<f4")).reshape(about["shape"])
            require(np.isfinite(found[name]).all(), f"{name} is not finite")
    return found


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
        told = {len(x) for x in (self.symbols, self.openers) if x} or {1}
        require(told == {len(self.start)}, "not every symbol has a start")
        every = [*product(range(self.base + 1), repeat=len(self.tapes))]
        self.letters = np.array(every, int).reshape(len(every), len(self.tapes)).T
        self.next, self.out = (
            np.array(within(name, data[name], low, high)).reshape(self.states, -1)
            for name, low, high in (("next", -1, self.states), ("written", -1, self.base + 4))
        )
        require((self.out[self.next >= 0] >= 0).all(), "a step writes nothing that is known")
        behind = self.next[:, -1] == np.arange(self.states)
        self.done = behind & (self.out[:, -1] == self.base + 1)
        self.lag: int = within("lag", data.get("lag", 0), 0, 9)
        self.words = bool(data.get("words"))
        self.ends = np.zeros(self.base + 4, bool)
        self.ends[[self.base, self.base + 2, self.base + 3, *self.closers]] = True
        on = np.isin(self.out[self.next >= 0], [self.base, self.base + 2, *self.closers])
        self.goes_on = bool(on.any())  # does a row ever have a next one?

    def extra(self) -> set[int | None]:
        """How many symbols rows may have more than there are letters; None where it varies."""
        inside, ended = (self.letters < self.base).all(0), (self.letters == self.base).all(0)
        states = {int(s) for s in self.next[:, inside].ravel()} - {-1}
        found, more = set[int | None](), -self.lag
        if self.lag > 1 or (self.next[:, ~(inside | ended)] >= 0).any():
            return {None}
        while states and more < 99:
            ending = {s for s in states if self.next[s, -1] >= 0}
            closed = {s for s in ending if self.ends[self.out[s, -1]]}
            found |= {more} if closed else set()
            behind = {s for s in ending if self.out[s, -1] == self.base + 1}
            states = {int(self.next[s, -1]) for s in ending - closed - behind}
            more += 1
        return found


class Export:
    """The files of the folder, each compared with the fingerprint of the certificate."""

    def __init__(self, folder: Path):
        raw = {path.stem: path.read_bytes() for path in folder.glob("*.[js][sa]*")}
        read = {name: json.loads(text) for name, text in raw.items() if name != "model"}
        self.certificate = said = read["certificate"]
        require(said.pop("sha256") == digest(said), "certificate.json was changed")
        found = raw | {k: read[k] for k in ("rule", "lines")} | {"weights": raw["model"]}
        for name in ("weights", "config", "model_config", "generation_config", "rule", "lines"):
            require(digest(found[name]) == said["fingerprint"][name], f"{name} was changed")
        self.take(read["rule"], read["lines"], read["model_config"], said["source"])
        self.same(read["lines"], read["model_config"], read["generation_config"])
        self.weights = read_weights(raw["model"])

    def take(self, rule: Any, lines: Any, config: Any, source: Any) -> None:
        """Rule, lines and configurations, as plain data."""
        require("off_line_bias" not in lines, "it sees all")
        self.stream = bool(lines.get("stream", False))  # source and output in one attention
        require(not config.get("post_norm"), "its blocks are post-norm")
        self.layers, self.encoder = config["decoder_layers"], config.get("encoder_layers") or 0
        need = {"encoder": self.layers - 1 if self.stream else self.encoder}
        self.lines = {site: lines.get(site, []) for site in ("encoder", "self", "cross")}
        for site, found in self.lines.items():
            require(len(found) == need.get(site, self.layers), f"lines of {site} are missing")
        every = [x for found in self.lines.values() for heads in found for h in heads for x in h]
        for name, low in (("offset", -400), ("stride", 1), ("beta", -9), ("part_step", -9)):
            within(name, [x.get(name, 1) for x in every], low, 400)
        require(all(isfinite(x["value"]) for x in every), "a bias is no number")
        self.width, self.heads = config["d_model"], config["heads"]
        named = config.get("own_schemes") or {}
        schemes = {site: named.get(site, config["scheme"]) for site in self.lines}
        require({*schemes.values()} <= {"none", "sinusoidal"}, f"positions {schemes} are unknown")
        self.waves = {site: scheme == "sinusoidal" for site, scheme in schemes.items()}
        self.period: int = config.get("cyclic") if any(self.waves.values()) else 1
        require(self.period, "positions grow with length")
        self.sos, self.eos = config["bos_token_id"], config["eos_token_id"]
        self.delimiters, self.aligned = source["delimiters"], source["aligned"]
        self.closer, self.first = source.get("row"), Rule(rule["first"])
        self.closers = self.first.closers
        closing = [self.closer] if rule["later"] and not self.closers else []
        ids = [self.sos, self.eos, *self.delimiters, *closing]
        within("tokens", ids, self.first.base, 10**6)
        self.later = Rule(rule["later"]) if rule["later"] else None
        self.of_row, self.listed = rule["of_row"], rule["listed"]
        self.forward = within("forward", rule.get("forward", []), 0, 9)
        self.stride: int = within("stride", rule.get("stride", 1), 1, 9)
        self.counted = self.listed or self.of_row is not None or not self.later
        self.shift: int = within("shift", rule["shift"], 0, 9)
        self.turned = bool(rule.get("turned"))  # the row above is read from its end
        below = self.later.extra() if self.later else set()
        extra = self.first.extra() | below
        self.extra = extra.pop() if len(extra) == 1 else None
        self.growth: int | None = 0  # how many symbols more a row has than the one above
        if self.later and {*self.later.tapes} == {-1} and self.extra != 0:
            self.extra, self.growth = None, below.pop() if len(below) == 1 else None
        self.base, self.past = self.first.base, bool(rule.get("past"))
        require(not self.later or self.later.closers == self.closers, "rows close in other ways")
        require(not (self.later and self.period > 1), "positions are not followed over rows")

    def same(self, lines: Any, config: Any, generation: Any) -> None:
        """What a loaded model follows is what is checked here."""
        greedy = {name: config[name] for name in GREEDY}
        require(generation == greedy, "decoding is not plainly greedy")
        known, pad, row = {*config["delimiter_ids"]}, config["pad_token_id"], config.get("row_id")
        within("delimiters", [*known, pad], self.base, 10**6)
        its = config["line_bias"], config["decoder_start_token_id"]
        rows = ({*row} if isinstance(row, list) else {row}) == ({*self.closers} or {self.closer})
        fits = its == (lines, self.sos) and rows and known >= {*self.delimiters}
        require(fits and pad not in {*known, self.closer}, "its configuration says otherwise")


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
            mine = {number} if not below and label[0] != "symbol" else set()
            self.varying[number] = frozenset(mine).union(*(self.varying[b] for b in below))
        return self.number[label, below]

    def renamed(self, node: int, names: dict[int, int]) -> int:
        if node not in names:
            label, below = self.all[node]
            names[node] = self(label, tuple(self.renamed(b, names) for b in below))
        return names[node]


class Size:
    """Problems of one size, and what tokens of one row of their answers read.

    ``wide``: columns of the row's operands. ``row`` of ``rows``. ``above``: symbols of the row
    above. ``short``: words that the last column lacks.
    """

    def __init__(
        self, e: Export, nodes: Nodes, wide: int, row: int, rows: int, above: int, short: int
    ):
        self.e, self.nodes, self.known = e, nodes, dict[tuple, int]()
        self.wide, self.row, self.rows, self.above = wide, row, rows, above
        self.ends = {-1: max(above - e.shift, 0)} | dict.fromkeys(e.first.tapes, wide)
        tapes = [k for k in sorted(e.first.tapes) if k >= 0]
        turns = [tapes] if e.stride > 1 else [[k] for k in tapes]
        parts: list[Any] = [[("digit", k, c) for c in range(wide) for k in one] for one in turns]
        for k in tapes[e.stride - short :] if short else []:
            parts[0].remove(("digit", k, wide - 1))
            self.ends[k] -= 1
        parts = [one if k in e.forward else one[::-1] for k, one in zip(tapes, parts, strict=False)]
        if e.of_row is not None:
            count = range(rows - e.past)[::-1]
            same = [("fixed",) if c == row else ("any", c - row) for c in count]
            if e.first.words and len(e.first.symbols) == 1:  # all alike
                same = [("symbol", e.first.symbols[0])] * rows
            parts.insert(e.of_row, [("fixed",)] * wide if e.aligned else same)
        between = e.delimiters[1:]
        if e.listed:  # the numbers of other rows are cut out
            parts = [parts[0] if r == row else [CUT] for r in range(rows)]
            between = [e.delimiters[1]] * (rows - 1) + [e.delimiters[-1]]
        if e.aligned and len(parts) > 1:
            parts = [[], [t for column in zip(*parts[::-1], strict=True) for t in column]]
        self.source, self.closes = [("symbol", e.delimiters[0])], [0]
        for part, delimiter in zip(parts, between, strict=True):
            self.source += [*part, ("symbol", delimiter)]
            self.closes.append(len(self.source) - 1)

    def opens(self, up: int) -> int:
        """Where a row opens, counted in tokens from where the row in question does."""
        growth = 1 if self.e.growth is None or self.e.shift else self.e.growth
        known = self.e.extra is not None or growth <= 0
        require(up < 2 or known, "it reads rows further up than the one above")
        up = min(up, self.row)
        return growth * (up * (up - 1) // 2) - up * (self.above + 1)

    def key(self, site: str, x: dict[str, Any], up: int | None, at: int) -> tuple[int | None, int]:
        """The token that a line names: of a row above and its column, or of the source (None)."""
        direction, segment, offset = x["direction"], x["segment"], x["offset"]
        require(segment >= 0, f"unknown: {x}")
        slope = {"diag": 1, "vert": 0, "anti": -1}[direction] * x.get("stride", 1) * at
        if up is not None and site == "self":
            here, low = self.opens(up) + at, self.opens(up + segment)
            high = self.opens(up + segment - 1) if segment else here
            start = low + offset
            if direction == "anti":
                start = high - 1 - offset if segment else here - offset
            place = min(max(start + slope, low), high)
            found = next(k for k in range(up, up + segment + 1) if place >= self.opens(k))
            return found, place - self.opens(found)
        last = len(self.closes) - 1
        if up is not None:
            row = self.row - up
            move, on = x.get("part_step", 0) * row, offset + x.get("beta", 0) * row
            ends = [min(max(s + move, 0), last) for s in (max(segment - 1, 0), segment)]
            low, high = (self.closes[k] for k in ends)
            starts = {"diag": low + 1 + on, "anti": high - 1 - on, "vert": high - on}
            return None, min(max(starts[direction] + slope, low), high)
        if direction == "vert":
            return None, self.closes[min(segment, last)]
        high = len(self.source) - 1
        place = min(max((high - offset if direction == "anti" else offset) + slope, 0), high)
        first, end = sorted((at, place)) if direction == "diag" else (0, high)
        require(CUT not in self.source[first : end + 1], f"{x} reads another row's number")
        return None, place

    def node(self, layer: int, up: int | None, at: int) -> int:
        """The node of a token after so many layers: in a row above, or of the source (None)."""
        if (name := (layer, up, at)) in self.known:
            return self.known[name]
        e, site = self.e, "encoder" if up is None else "self"
        if layer:
            attentions = [self.reads(site, layer, layer - 1, up, at)]
            if up is not None:
                cross = self.reads("cross", layer, layer - 1 if e.stream else e.encoder, up, at)
                both = [a + b for a, b in zip(*attentions, cross, strict=True)]
                attentions = [both] if e.stream else [*attentions, cross]
            node = self.state(site, layer, self.node(layer - 1, up, at), attentions)
        elif up is None:
            require(self.source[at] != CUT, "a line reads the number of another row")
            place = ("place", site, (len(self.source) - 1 - at) % e.period)
            node = self.nodes(place, (self.nodes(self.source[at]),))
        else:
            opening = ("opener", up) if e.closers else ("symbol", e.closer)
            opening = ("symbol", e.sos) if up >= self.row else opening
            token = self.nodes(("written", up, at - 1) if at else opening)
            node = self.nodes(("place", site, at % e.period), (token,))
        self.known[name] = node
        return node

    def reads(self, site: str, layer: int, under: int, up: int | None, at: int) -> list[Any]:
        """What the heads of an attention read: biases and nodes of the layer ``under``.

        Lines that meet on one token count once, with the highest bias.
        """
        found = []
        for head in self.e.lines[site][layer - 1]:
            best = dict[tuple[int | None, int], float]()
            for x in head:
                place, bias = self.key(site, x, up, at), float(np.float32(x["value"]))
                best[place] = max(bias, best.get(place, -inf))
            found.append([(bias, self.node(under, *place)) for place, bias in best.items()])
        return found

    def state(self, site: str, layer: int, itself: int, attentions: list[Any]) -> int:
        """The node of a token after a layer, from itself and what heads read, with biases."""
        below, sites = [itself], []
        for heads in attentions:
            read = []
            for keys in heads:
                require(keys, "a head without lines sees everything")
                keys = sorted(keys)
                read.append(tuple((len(below) + i, bias) for i, (bias, _) in enumerate(keys)))
                below += [key for _, key in keys]
            sites.append(tuple(read))
        return self.nodes(("row", site, layer, *sites), tuple(below))

    def kind(self, column: int) -> tuple[int, list[tuple]]:
        """What the token in a column is made of, its tokens named by number, and which they are."""
        top = self.node(self.e.layers, 0, column)
        what = {n: self.nodes.all[n][0] for n in self.nodes.varying[top]}
        order = sorted(what, key=lambda n: (*map(str, what[n][:-1]), what[n][-1]))
        names = {n: self.nodes(("atom", i)) for i, n in enumerate(order)}
        return self.nodes.renamed(top, names), [what[n] for n in order]


class Walk:
    """The columns of a row in order, and what is kept of each.

    ``plan``: which tapes are over, what is kept as (tape, or -1 for what is written, and number),
    whether it is the column in question, and whether any number of such columns may stand there.
    """

    def __init__(self, size: Size, column: int, tokens: list[tuple], far: int):
        e = size.e
        self.by = by = e.first if size.row == 0 or e.later is None else e.later
        self.ending = {by.base: e.eos if size.row == size.rows - 1 else e.closer}
        self.ending |= {by.base + 2: e.closer, by.base + 3: e.eos}
        here = column + by.lag
        ends = [size.ends[tape] for tape in by.tapes]
        marks = [0, here, *ends]
        self.fixed, self.free, self.past = list[tuple](), list[tuple](), list[bool]()
        if e.past:  # which first states: those of the last row, or of the others
            self.past = [(x == by.base) == (size.row == size.rows - 1) for x in by.symbols]
        kept: dict[int, list[tuple[int, int]]] = {here: []}
        for k, token in enumerate(tokens):
            at = token[-1]
            if token[0] == "digit" and token[1] in by.tapes:
                kept.setdefault(at, []).append((by.tapes.index(token[1]), k))
            elif token[:2] == ("written", 0):
                kept.setdefault(at + by.lag, []).append((-1, k))
            elif token[:2] == ("written", 1) and -1 in by.tapes and at >= e.shift:
                at = size.above - 1 - at if e.turned else at - e.shift
                kept.setdefault(at, []).append((by.tapes.index(-1), k))
            else:
                told = {("fixed",): by.symbols, ("opener", 0): by.openers}
                some = by.closers if token[0] == "opener" else range(by.base)
                (self.fixed if token in told else self.free).append((k, told.get(token, some)))
        self.plan = list[Any]()
        for at in range(max([*ends, *kept]) + 1):
            start, over = max(m for m in marks if m <= at), tuple(at >= end for end in ends)
            gap = min([m for m in marks if m > at], default=at) - start
            a, b = sorted((at, start + gap // 2))  # as a gap's middle, if nothing is kept between
            many = gap >= far and not any(a <= k <= b for k in kept)
            step = over, tuple(kept.get(at, ())), at == here, many
            self.plan += [step] if not many or self.plan[-1:] != [step] else []
        self.name = (*self.ending.values(), by is e.later, *self.plan, *self.past)
        self.name += *map(str, self.fixed), -1, *map(str, self.free)

    def windows(self, count: int, vocabulary: int) -> np.ndarray:
        """What can stand at the ``count`` tokens, and the right one: as digits of numbers."""
        by, base, right = self.by, self.by.base, self.by.base**count
        require(right * vocabulary * by.states < 2**62, "too many tokens count in one place")
        code = sum((base**k * np.array(values) for k, values in self.fixed), np.int64(0))
        pairs = code * by.states + np.array(by.start)  # what is kept so far, and a state
        pairs = pairs[self.past] if self.past else pairs
        steps = [self.step(right, *one) for one in self.plan]
        # from which states the columns that are left can be gone through
        on = [np.array([ends(by, one) for one in range(by.states)])]
        for _, fits, many in reversed(steps):
            on.append((fits & on[-1][by.next]).any(1))
            while many and (more := (fits & on[-1][by.next]).any(1) & ~on[-1]).any():
                on[-1] |= more
        while steps and not steps[-1][0].any():  # nothing is kept any more
            steps.pop()
        for (kept, fits, many), here, then in zip(steps, on[::-1], on[-2::-1], strict=False):
            fits &= (then | here if many else then)[by.next]
            pairs, before = self.through(pairs, kept, fits), 0
            while many and len(pairs) > before:
                more = self.through(pairs, kept, fits)
                before, pairs = len(pairs), distinct(np.append(pairs, more))
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
        for one in distinct(pairs % states):
            steps = distinct(kept[one][fits[one]] * states + self.by.next[one][fits[one]])
            parts.append((pairs[pairs % states == one, None] - one + steps).ravel())
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
        (what, site, phase, *_), below = self.nodes.all[node]
        if what == "row":
            return self.row(node, at)
        kind, which = self.nodes.all[below[0]][0]
        ids = self.values[at, which] if kind == "atom" else np.full(len(at), which)
        angle = phase * 10000.0 ** (-np.arange(0, self.e.width, 2) / self.e.width)
        waves = np.stack([np.sin(angle), np.cos(angle)], 1).ravel()[: self.e.width]
        return self.e.weights["embed.weight"][ids] + waves * self.e.waves[site]

    def row(self, node: int, at: np.ndarray) -> np.ndarray:
        (label, below), e = self.nodes.all[node], self.e
        encoder = label[1] == "encoder" and not e.stream
        name = f"{'encoder.' * encoder}layers.{label[2] - 1}"
        size, x = e.width // e.heads, self.read(below[0], at)
        for i, heads in enumerate(label[3:]):
            one = f"{name}.{'' if e.stream or encoder else ('self_', 'cross_')[i]}attention"
            query = self.linear(f"{one}.query", self.norm(f"{name}.norms.{i}", x))
            seen, mixed = dict[int, list[np.ndarray]](), []
            for key in {below[k] for head in heads for k, _ in head}:
                y = self.read(key, at)
                if i == 0:
                    y = self.norm(f"{name}.norms.0", y)
                elif e.encoder:
                    y = self.norm("encoder.norm", y)
                seen[key] = [self.linear(f"{one}.{of}", y) for of in ("key", "value")]
            for h, head in enumerate(heads):
                part = slice(h * size, (h + 1) * size)
                keys, values = ([seen[below[k]][j][:, part] for k, _ in head] for j in (0, 1))
                score = np.stack([(query[:, part] * key).sum(1) / sqrt(size) for key in keys], 1)
                score += np.array([bias for _, bias in head])
                weight = np.exp(score - score.max(1, keepdims=True))[:, :, None]
                mixed.append((weight * np.stack(values, 1)).sum(1) / weight.sum(1))
            x = x + self.linear(f"{one}.output", np.concatenate(mixed, 1))
        hidden = self.linear(f"{name}.feedforward.0", self.norm(f"{name}.norms.{i + 1}", x))
        return x + self.linear(f"{name}.feedforward.3", np.maximum(hidden, 0))

    def margins(self, node: int, right: np.ndarray) -> np.ndarray:
        found = []
        for at in np.split(np.arange(len(right)), range(CHUNK, len(right), CHUNK)):
            logits = self.linear("head", self.norm("norm", self.state(node, at)))
            mine = np.take_along_axis(logits, right[at, None], 1)[:, 0]
            np.put_along_axis(logits, right[at, None], -np.inf, 1)
            found.append(mine - logits.max(1))
        return np.concatenate(found)


def reach(e: Export) -> tuple[int, int]:
    """Gaps that no line can look across, of columns and of rows.

    A chain of lines leads no further from an end, or from the token in question, than all offsets.
    """
    every = {k: [x for heads in v for head in heads for x in head] for k, v in e.lines.items()}
    most = max(abs(x["offset"]) for lines in every.values() for x in lines)
    layers = [sum(heads, list[Any]()) for k in ("encoder", "self") for heads in e.lines[k]]
    steps = sum(max(abs(x["offset"]) for x in lines) for lines in layers)
    tall = sum(max(x["segment"] for head in heads for x in head) for heads in e.lines["self"])
    moving = [abs(x["offset"]) for x in every["cross"] if x.get("beta")]
    if any(x.get("part_step") for x in every["cross"]) and not e.listed:
        moving.append(len(e.delimiters))
    return 2 * (steps + most + 2) + e.period, tall + max([0, *moving]) + 1


def sizes(e: Export, far: int, tall: int) -> Any:
    """Sizes of problems, enough to hold every one without longer gaps: as of ``Size``."""
    under = (2 if e.listed else tall + 1) if e.counted else 1  # other rows' numbers are not read
    tall = 1 if e.later and not e.later.goes_on else tall
    ranks = [(row, row + below) for row in range(tall + 1) for below in range(1, under + 1)]
    for row, rows in ranks if e.later else [(0, 1)]:
        free = row > 0 and e.extra is None
        for wide in range(1, (2 + free) * far + 1 if max(e.first.tapes, default=-1) >= 0 else 2):
            for above in range(3 * far + 1) if free else [wide + (e.extra or 0) if e.later else 0]:
                for short in range(e.stride):
                    yield wide, row, rows, above, short


def rows_follow(e: Export) -> None:
    """Each row that is written has a next one, whatever its symbol and its own number are.

    A row and the next are run at once, the next one some columns behind.
    """
    if (later := e.later) is None:
        return
    radix, first = later.base + 1, e.first
    same = [tape for tape in later.tapes if tape >= 0 and not e.listed]
    closings = [*e.closers] or [None]
    for by, begin, closing in product((first, later), range(len(later.start)), closings):
        if closing is not None and later.openers[begin] != closing:
            continue
        late = e.shift + by.lag  # by how many columns the next row is behind
        require(late < 4, "it reads too far on")
        kept = [by.letters[by.tapes.index(tape)] for tape in same]
        opens: Any = later.start[begin]
        if e.turned:  # read from its end, a row is followed from there: states that lead to an end
            require(
                [*later.tapes] == [-1] and not e.shift, "only the row above is read from its end"
            )
            opens = frozenset(s for s in range(later.states) if ends(later, s))
        seen: set[tuple] = {(s, opens, (), first.start[0]) for s in by.start}
        for now, then, held, own in (queue := [*seen]):
            for letter in np.flatnonzero(by.next[now] >= 0).tolist():
                wrote = int(by.out[now, letter])
                on = wrote == by.base + 2 or (e.counted and not e.closers and wrote == by.base)
                if by.ends[wrote] and not (on or wrote == closing):
                    continue  # the last row, or one that closes in another way
                wrote = by.base if by.ends[wrote] or wrote > by.base else wrote
                fed = (*held, tuple(int(k[letter]) for k in kept))
                for number in range(radix) if e.listed else [0]:
                    valid = int(first.next[own, number]) if e.listed else own
                    after, column = then, 0
                    if e.turned and wrote < by.base:
                        after = frozenset(
                            np.flatnonzero(np.isin(later.next[:, wrote], [*then])).tolist()
                        )
                    elif not e.turned and then >= 0 and len(fed) > late:
                        read = dict(zip(same, fed[0], strict=True)) | {-1: wrote}
                        for tape in later.tapes:
                            column = column * radix + read.get(tape, number)
                        after = int(later.next[then, column])
                    one = int(by.next[now, letter]), after, fed[len(fed) > late :], valid
                    if valid >= 0 and one not in seen:
                        seen.add(one)
                        queue.append(one)
        for now, then, held, own in seen:
            over = all(x == by.base for column in held for x in column)
            if by.done[now] and over and (not e.listed or first.done[own]):
                on = later.start[begin] in then if e.turned else ends(later, then)
                require(on, "a row that it may write has no next row")


def ends(by: Rule, state: int) -> bool:
    """Is a state's row at its end if nothing but the end follows?"""
    for _ in range(by.states):
        state = int(by.next[state, -1]) if state >= 0 else -1
    return state >= 0 and bool(by.done[state])


def rows_end(e: Export) -> None:
    """Of rows with closers, those with a symbol of their own end with one, the last one without."""
    for by, last in product((e.first, e.later), (False, True)):
        if by is None or not (e.past and by.closers):
            continue
        now = {s for s, x in zip(by.start, by.symbols, strict=True) if (x == by.base) == last}
        for state in (queue := [*now]):
            some = by.next[state] >= 0
            wrote, more = by.out[state][some], {*by.next[state][some].tolist()} - now
            wrong = np.isin(wrote, by.closers) if last else wrote == by.base
            require(not wrong.any(), "a row closes as if it were the last one, or the last one not")
            now |= more
            queue += more


def kinds(e: Export, nodes: Nodes) -> dict[int, tuple[np.ndarray, int]]:
    """Every kind of token, its windows, and the number of its tokens."""
    far, tall = reach(e)
    require(far < 400, "its lines reach too far")
    vocabulary = 1 + max(e.eos, e.sos, *e.delimiters, e.closer or 0)
    found, seen = dict[int, tuple[np.ndarray, int]](), set[tuple]()
    for wide, row, rows, above, short in sizes(e, far, tall):
        size = Size(e, nodes, wide, row, rows, above, short)
        ends = [0, wide, above] if e.extra is None and row else [0, wide]
        for column in range(max(ends) + 3):
            if any(b - a > far for a, b in pairwise(sorted([*ends, column]))):
                continue
            name, tokens = size.kind(column)
            walk = Walk(size, column, tokens, far)
            if (name, walk.name) not in seen:
                seen.add((name, walk.name))
                some = walk.windows(len(tokens), vocabulary)
                found[name] = distinct(np.append(some, found.get(name, (some, 0))[0])), len(tokens)
    return {name: one for name, one in found.items() if len(one[0])}


def check(folder: Path) -> str:
    """The verdict, if the certificate holds."""
    said, nodes, least, total = (e := Export(folder)).certificate, Nodes(), inf, 0
    require(said["outcome"] == "certified", f"the certificate itself says {said['outcome']}")
    rounding, margin = said["rounding"], said["margin"]
    sensible = all(type(x) is float and isfinite(x) for x in (rounding, margin))
    require(sensible and 0 <= rounding < margin, f"margin {margin} and rounding {rounding}")
    rows_follow(e)
    rows_end(e)
    for name, (code, count) in kinds(e, nodes).items():
        values, right = code[:, None] // e.base ** np.arange(count) % e.base, code // e.base**count
        found = Model(e, nodes, values).margins(name, right)
        least, total, at = min(least, found.min()), total + len(code), found.argmin()
        require(found.min() > rounding, f"wrong at {values[at]}: {right[at]} is right")
    require(isclose(least, margin, rel_tol=2e-3), f"the margin is {least:.4g}")
    rule = f"the rule in rule.json, {e.first.states} states, named {said['task']}"
    about = f"{rule}, in base {e.base}, sources delimited by {e.delimiters}"
    return f"certified: right in each of {total} windows, smallest margin {least:.4g}: {about}"


if __name__ == "__main__":
    print(check(Path(__file__).parent))
