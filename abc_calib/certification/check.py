"""Check the certificate beside this file with numpy alone: python check.py

It shares no code or method with its maker. For operands of 1, 2, ... digits it follows what each
row's prediction depends on, down to tokens, and calls rows alike that do so in the same way. Which
tokens can stand there together it finds by running the task's automaton over the columns; where
wider operands bring no new kind of row, any number of columns may lie between. Where the model has
the right token everywhere, answers are right by induction. Not checked: rounding, the automaton.
"""

import hashlib
import json
from math import inf, isclose, sqrt
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 16384
ALONE = {"direction": "diag", "segment": 0, "offset": 0, "value": 0.0}
GREEDY = {f"{name}_token_id" for name in ("pad", "bos", "eos", "decoder_start")}


def require(true: Any, otherwise: str) -> None:
    """End with a message unless something is true."""
    if not true:
        raise SystemExit(f"not certified: {otherwise}")


def digest(x: Any) -> str:
    """SHA-256 of bytes, or of plain data."""
    raw = x if type(x) is bytes else json.dumps(x, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(raw).hexdigest()


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The different numbers in order, faster than ``np.unique``."""
    return (numbers := np.sort(numbers))[np.diff(numbers, prepend=-1) > 0]


def read_weights(raw: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, as float64."""
    size, found = int.from_bytes(raw[:8], "little"), {}
    for name, about in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__":
            require(about["dtype"] == "F32", f"{name} is {about['dtype']}, not F32")
            first, last = (8 + size + at for at in about["data_offsets"])
            found[name] = np.float64(np.frombuffer(raw[first:last], "<f4")).reshape(about["shape"])
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
        require(set(read["generation_config"]) == GREEDY, "decoding is not plainly greedy")
        self.rule, self.lines, config = read["rule"], read["lines"], read["model_config"]
        require(not (config.get("encoder_layers") or "off_line_bias" in self.lines), "it sees all")
        self.stream = bool(self.lines.pop("stream", False))  # source and output in one attention
        alone = [[[ALONE]] * config["heads"]] * (config["decoder_layers"] - 1 if self.stream else 0)
        require(self.lines.pop("encoder", []) == alone, "tokens of its source look at others")
        self.weights, self.layers = read_weights(raw["model"]), config["decoder_layers"]
        self.width, self.heads = config["d_model"], config["heads"]
        named = config.get("own_schemes") or {}
        schemes = {site: named.get(site, config["scheme"]) for site in ("encoder", "self")}
        require({*schemes.values()} <= {"none", "sinusoidal"}, f"positions {schemes} are unknown")
        self.waves = {site: scheme == "sinusoidal" for site, scheme in schemes.items()}
        self.period: int = config.get("cyclic") if any(self.waves.values()) else 1
        require(self.period, "positions grow with length")
        self.sos, self.eos = config["bos_token_id"], config["eos_token_id"]
        self.delimiters, self.aligned = said["source"]["delimiters"], said["source"]["aligned"]


class Nodes:
    """What rows are made of: a label and other nodes, each different one once, by number.

    ("symbol", id), ("digit", operand, column), ("constant", operand), ("written", column), ("atom",
    k) are tokens; ("place", site, phase) one at a phase of the positions; ("row", layer, *read) a
    row: itself one layer before and what the heads of each attention read, with biases.
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


class Width:
    """Sources whose operands have so many digits, and what rows of their answers read."""

    def __init__(self, e: Export, nodes: Nodes, width: int):
        self.e, self.nodes, self.known = e, nodes, dict[tuple[int, int], int]()
        down = range(width)[::-1]
        parts: list[Any] = [[("digit", k, c) for c in down] for k in e.rule["operands"]]
        if (one := e.rule["constant"]) is not None:
            parts.insert(one, [("constant", one)] * (width if e.aligned else 1))
        if e.aligned and len(parts) > 1:
            parts = [[], [t for column in zip(*parts, strict=True) for t in column]]
        self.source, self.closes = [("symbol", e.delimiters[0])], [0]
        for part, delimiter in zip(parts, e.delimiters[1:], strict=True):
            self.source += [*part, ("symbol", delimiter)]
            self.closes.append(len(self.source) - 1)

    def key(self, site: str, layer: int, row: int, line: dict[str, Any]) -> int:
        direction, segment, offset = line["direction"], line["segment"], line["offset"]
        along = line.get("stride", 1) * row
        if site == "self":
            require((segment, along) == (0, row) and direction != "anti", f"unknown: {line}")
            return self.row(layer - 1, min(max(offset + row * (direction == "diag"), 0), row))
        require(segment >= 0, f"unknown: {line}")
        opened, closed = self.closes[max(segment - 1, 0)], self.closes[segment]
        anti, vert = closed - 1 - along - offset, closed - offset
        key = {"diag": opened + 1 + along + offset, "anti": anti, "vert": vert}[direction]
        return self.given(layer, min(max(key, opened), closed))

    def given(self, layer: int, at: int) -> int:
        place = ("place", "encoder", (len(self.source) - 1 - at) % self.e.period)
        node = self.nodes(place, (self.nodes(self.source[at]),))
        for before in range(1, layer if self.e.stream else 1):  # it has read itself alone
            node = self.nodes(("row", before, (((0, 0.0),),) * self.e.heads), (node,))
        return node

    def row(self, layer: int, row: int) -> int:
        if (layer, row) not in self.known and layer == 0:
            token = self.nodes(("written", row - 1) if row else ("symbol", self.e.sos))
            self.known[layer, row] = self.nodes(("place", "self", row % self.e.period), (token,))
        elif (layer, row) not in self.known:
            below, sites = [self.row(layer - 1, row)], []
            for both in (("self", "cross"),) if self.e.stream else (("self",), ("cross",)):
                heads = []
                for h in range(self.e.heads):
                    lines = [(s, x) for s in both for x in self.e.lines[s][layer - 1][h]]
                    require(lines, "a head without lines sees everything")
                    read = [(x["value"], self.key(s, layer, row, x)) for s, x in lines]
                    best = {key: bias for bias, key in sorted(read)}  # the largest where they meet
                    heads.append(tuple((len(below) + i, b) for i, b in enumerate(best.values())))
                    below += best
                sites.append(tuple(heads))
            self.known[layer, row] = self.nodes(("row", layer, *sites), tuple(below))
        return self.known[layer, row]

    def kind(self, row: int) -> tuple[int, list[tuple]]:
        top = self.row(self.e.layers, row)
        what = {n: self.nodes.all[n][0] for n in self.nodes.varying[top]}
        order = sorted(what, key=lambda n: (what[n][0] != "constant", what[n]))
        names = {n: self.nodes(("atom", i)) for i, n in enumerate(order)}
        return self.nodes.renamed(top, names), [what[n] for n in order]


def combinations(e: Export, width: int, row: int, tokens: list[tuple], any_gap: bool) -> np.ndarray:
    """What can stand at the tokens, and the right answer, in some source: as digits of numbers."""
    rule, base = e.rule, e.rule["base"]
    after, written, last = (np.array(rule[k]) for k in ("next", "written", "last"))
    index, states = np.indices(after.shape).reshape(after.ndim, -1), len(after)
    weight, right = {token: base**i for i, token in enumerate(tokens)}, base ** len(tokens)
    require(right * (e.eos + 1) * states < 2**62, "too many tokens count in one row")
    state, code = np.array(rule["start"]), np.zeros(len(rule["start"]), np.int64)
    for token in {t for t in tokens if t[0] == "constant"}:
        code += weight[token] * np.array(rule["constants"])[state]

    def through(column: int) -> np.ndarray:
        kept = (weight.get(("written", column), 0) + right * (column == row)) * written.ravel()
        for axis, operand in enumerate(rule["operands"]):
            kept = kept + weight.get(("digit", operand, column), 0) * index[1 + axis]
        some = index[1:].any(0) | (column < width - 1) | (width == 1)  # not all begin with 0
        steps = np.unique(np.stack([index[0], kept, after.ravel()], 1)[some], axis=0)
        each = [steps[steps[:, 0] == before] for before in range(states)]
        parts = [(code[state == k, None] + s[:, 1]) * states + s[:, 2] for k, s in enumerate(each)]
        return distinct(np.concatenate([part.ravel() for part in parts]))

    used = {t[-1] for t in tokens if t[0] != "constant"} | {row, width - 1}
    for column in range(width):
        code, state = np.divmod(through(column), states)
        count = 0 if any_gap and column not in used else inf
        while len(code) > count:
            count, both = len(code), np.append(code * states + state, through(column))
            code, state = np.divmod(distinct(both), states)
    final, there = last[state], (last[state] >= 0) | (last[state] == -1) & (row <= width)
    code, final = code[there], final[there]  # the last row is there only after a final carry
    answer = np.where((final < 0) | (row > width), e.eos, final) if row >= width else 0
    return distinct(code + weight.get(("written", width), 0) * final.clip(0) + right * answer)


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
            code = self.values[:, atoms] @ (self.e.rule["base"] ** np.arange(len(atoms)))
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
        size, name, x = e.width // e.heads, f"layers.{label[1] - 1}", self.read(below[0], at)
        for i, heads in enumerate(label[2:]):
            attention = f"{name}.{'' if e.stream else ('self_', 'cross_')[i]}attention"
            query = self.linear(f"{attention}.query", self.norm(f"{name}.norms.{i}", x))
            seen, mixed = dict[int, list[np.ndarray]](), []
            for key in {below[k] for head in heads for k, _ in head}:
                y = self.read(key, at) if i else self.norm(f"{name}.norms.0", self.read(key, at))
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
        found = []
        for at in np.split(np.arange(len(right)), range(CHUNK, len(right), CHUNK)):
            logits = self.linear("head", self.norm("norm", self.state(node, at)))
            mine = np.take_along_axis(logits, right[at, None], 1)[:, 0]
            np.put_along_axis(logits, right[at, None], -np.inf, 1)
            found.append(mine - logits.max(1))
        return np.concatenate(found)


def kinds(e: Export, nodes: Nodes) -> dict[int, tuple[np.ndarray, int]]:
    """Every kind of row, what ``combinations`` gives for it, and the number of its tokens."""
    lines = [x for site in e.lines.values() for layer in site for head in layer for x in head]
    half = 2 * e.layers * (2 + max(abs(x["offset"]) for x in lines)) + 2 * e.period
    require(half < 2000, "its lines reach too far")  # no chain of them leads further than half
    wide = Width(e, nodes, 2 * half)
    rows = [wide.kind(row)[0] for row in range(2 * half + 2)]
    enough = sum(a != b for a, b in zip(rows, rows[e.period :], strict=False)) + 3 * e.period + 2
    found = dict[int, tuple[np.ndarray, int]]()
    for width in range(1, enough + 1):
        wide = Width(e, nodes, width)
        for row in range(width + 2):
            name, tokens = wide.kind(row)
            some = combinations(e, width, row, tokens, width >= enough - e.period)
            found[name] = np.union1d(found.get(name, (some, 0))[0], some), len(tokens)
    return {name: one for name, one in found.items() if len(one[0])}


def check(folder: Path, kinds: Any = kinds) -> str:
    """The verdict, if the certificate holds."""
    said, nodes, least, total = (e := Export(folder)).certificate, Nodes(), inf, 0
    require(said["outcome"] == "certified", f"the certificate itself says {said['outcome']}")
    for name, (code, count) in kinds(e, nodes).items():
        base = e.rule["base"]
        values, right = code[:, None] // base ** np.arange(count) % base, code // base**count
        margin = Model(e, nodes, values).margins(name, right)
        least, total, at = min(least, margin.min()), total + len(code), margin.argmin()
        require(margin.min() > said["rounding"], f"wrong at {values[at]}: {right[at]} is right")
    require(isclose(least, said["margin"], rel_tol=2e-3), f"the margin is {least:.4g}")
    return f"certified: right in each of {total} windows, smallest margin {least:.4g}"


if __name__ == "__main__":
    print(check(Path(__file__).parent))
