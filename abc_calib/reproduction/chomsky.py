"""The fifteen tasks of Delétang et al. (2023, arXiv 2207.02098), by models that are certified.

Sources are drawn from the distributions of the benchmark's public code. Answers are computed from
the definitions of its tasks, independently of our rules. A model writes intermediate steps before
the answer (a scratchpad), and a fixed map reads the answer from its output. In the benchmark's own
setting a model gives the answer alone, so the two kinds of numbers are not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest
from operator import add, mul
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation import exact_matches, predict
from abc_calib.nn.base import Model
from abc_calib.reproduction.report import Report
from abc_calib.stages import certified
from abc_calib.text import Table

NAME, TITLE = "chomsky", "The Chomsky benchmark: fifteen tasks, trained short, tested at 41 to 500"
LENGTHS = range(41, 501)
END = "end"
BATCH = 20
"""Sources of neighbouring lengths that are put through at once."""

Drawn = tuple[str, list[str]]
"""A source as a person writes it, and the benchmark's answer, symbol by symbol."""
Law = Callable[[np.random.Generator, int], Drawn]


def _bits(rng: np.random.Generator, n: int, symbols: Sequence[str] = "01") -> list[str]:
    return [symbols[k] for k in rng.integers(0, len(symbols), n)]


def _law(answer: Callable[[list[str]], list[str]], symbols: Sequence[str] = "01") -> Law:
    """Of random symbols: the answer follows from them."""

    def law(rng: np.random.Generator, n: int) -> Drawn:
        drawn = _bits(rng, n, symbols)
        return " ".join(drawn), answer(drawn)

    return law


_even_pairs = _law(lambda bits: [str(sum(a != b for a, b in pairwise(bits)) % 2)])
_parity = _law(lambda bits: [str(bits.count("1") % 2)])
_cycle = _law(lambda moves: [str((moves.count("+") - moves.count("-")) % 5)], "-=+")
_reverse = _law(lambda bits: bits[::-1])
_duplicate = _law(lambda bits: bits * 2)
_odds_first = _law(lambda bits: bits[1::2] + bits[::2])
_sort = _law(sorted, "01234")


def _arithmetic(rng: np.random.Generator, n: int) -> Drawn:
    numbers, operators = _bits(rng, (n + 1) // 2, "01234"), _bits(rng, (n - 1) // 2, "+-*")
    words = [numbers[0]]
    total, term = 0, int(numbers[0])
    for operator, number in zip(operators, numbers[1:], strict=True):
        words += [operator, number]
        if operator == "*":
            term *= int(number)
        else:
            total, term = total + term, int(number) * (1 if operator == "+" else -1)
    return " ".join(words), [str((total + term) % 5)]


def _stack(rng: np.random.Generator, n: int) -> Drawn:
    stack = _bits(rng, int(rng.integers(1, n)))
    does = _bits(rng, n - len(stack), ("pop", "push0", "push1"))
    source = f"{' '.join(does)} : {' '.join(stack)}"
    for one in does:
        stack = stack[:-1] if one == "pop" else [*stack, one[-1]]
    return source, stack[::-1]


def _missing(rng: np.random.Generator, n: int) -> Drawn:
    """Of an odd length without the symbol that the benchmark fills it up with."""
    bits = _bits(rng, n // 2) * 2
    at = int(rng.integers(0, len(bits)))
    return " ".join([*bits[:at], "_", *bits[at + 1 :]]), [bits[at]]


def _expression(rng: np.random.Generator, n: int, operators: str) -> tuple[str, int]:
    """A text of ``n`` symbols, and its value modulo 5."""
    if n < 5:
        digit = int(rng.integers(0, 5))
        signed = f"{'-' * (n % 2 == 0)}{digit}"
        return f"({signed})" if n > 2 else signed, (-digit if n % 2 == 0 else digit) % 5
    first = int(rng.integers(1, n - 3))
    (left, a), (right, b) = (_expression(rng, k, operators) for k in (first, n - first - 3))
    one = operators[int(rng.integers(0, len(operators)))]
    return f"({left}{one}{right})", {"+": a + b, "-": a - b, "*": a * b}[one] % 5


def _brackets(rng: np.random.Generator, n: int) -> Drawn:
    text, value = _expression(rng, n, "+-*")
    return " ".join(text), [str(value)]


def _equation(rng: np.random.Generator, n: int) -> Drawn:
    text, value = _expression(rng, n - 2, "+-")
    at = int(rng.integers(0, len(text)))
    while not text[at].isdigit():
        at = (at + 1) % len(text)
    return " ".join(f"{text[:at]}x{text[at + 1 :]}={value}"), [text[at]]


def _number(rng: np.random.Generator, n: int) -> int:
    """Uniform among 1 to 2^n - 1."""
    return int("".join(_bits(rng, n)), 2) or _number(rng, n)


def _of_two(sign: str, combined: Callable[[int, int], int]) -> Law:
    def law(rng: np.random.Generator, n: int) -> Drawn:
        first = int(rng.integers(1, n - 1))
        a, b = _number(rng, first), _number(rng, n - 1 - first)
        return f"{a:b}{sign}{b:b}", [*f"{combined(a, b):b}"[::-1]]

    return law


_addition, _multiplication = _of_two("+", add), _of_two("*", mul)


def _sqrt(rng: np.random.Generator, n: int) -> Drawn:
    number = _number(rng, n)
    return f"{number:b}", [*f"{math.isqrt(number):b}".zfill(-(-n // 2))]


Read = Callable[[str, int], list[str]]
"""The answer in what a person reads of an output, for a source of ``n`` symbols."""


class Benchmark(NamedTuple):
    """A task: what it is drawn by, which of ours answers it, and how its answer is read.

    ``published``: of the benchmark's Transformer, the best of its encodings and seeds, in percent
    of symbols, mean over lengths 41 to 500; None where we could not read it.
    """

    law: Law
    task: str
    options: dict[str, Any]
    read: Read
    scratchpad: str
    published: float | None = None


def _last(answer: str, n: int) -> list[str]:
    return answer.split()[-1:]


def _words(answer: str, n: int) -> list[str]:
    return [word for word in answer.split() if word != "|"]


def _reversed(answer: str, n: int) -> list[str]:
    return [*answer[::-1]]


def _root(answer: str, n: int) -> list[str]:
    return [*answer.partition(" ")[0].zfill(-(-n // 2))]


def _automaton(law: Law, machine: str, published: float | None = None) -> Benchmark:
    return Benchmark(law, "automaton", {"machine": machine}, _last, "states", published)


TASKS: dict[str, Benchmark] = {
    "even_pairs": _automaton(_even_pairs, "even_pairs"),
    "modular_arithmetic": _automaton(_arithmetic, "arithmetic_mod:5", 24.2),
    "parity_check": _automaton(_parity, "parity", 52.0),
    "cycle_navigation": _automaton(_cycle, "cycle:5"),
    "stack_manipulation": Benchmark(_stack, "stack", {}, _words, "stacks", 57.5),
    "reverse_string": Benchmark(_reverse, "reverse_copy", {}, _words, "none", 62.3),
    "modular_arithmetic_brackets": Benchmark(_brackets, "brackets", {}, _words, "stacks"),
    "solve_equation": Benchmark(_equation, "solve_equation", {}, _words, "stacks"),
    "duplicate_string": Benchmark(_duplicate, "duplicate", {}, _words, "a mark", 52.8),
    "missing_duplicate_string": Benchmark(_missing, "missing_duplicate", {}, _words, "pairs"),
    "odds_first": Benchmark(_odds_first, "odds_first", {}, _words, "two rows", 52.8),
    "binary_addition": Benchmark(_addition, "addition", {"base": 2}, _reversed, "none"),
    "binary_multiplication": Benchmark(
        _multiplication, "long_multiplication", {"base": 2}, _reversed, "partial sums"
    ),
    "compute_sqrt": Benchmark(_sqrt, "square_root", {}, _root, "remainders"),
    "bucket_sort": Benchmark(_sort, "sort", {"base": 5}, _words, "insertions"),
}
"""In the order of the paper's table."""


def reproduce(
    seeds: int | None = None,
    rows: Sequence[str] = (),
    folder: Path | None = None,
    measured: pd.DataFrame | None = None,
    on_row: Callable[[dict[str, Any], pd.DataFrame], None] = lambda row, table: None,
) -> pd.DataFrame:
    """Certify a model for each task of ``rows`` and seed, and test it at every length.

    ``folder``: of the models; those that it holds are not trained again. ``measured``: results
    that are kept. ``on_row`` is called with each new result and the table of all.
    ``UsageError`` for an unknown task.
    """
    for name in rows:
        if name not in TASKS:
            raise UsageError(f"no row {name!r} here: choose of {'; '.join(TASKS)}")
    table = pd.DataFrame() if measured is None else measured[measured["error"].isna()]
    done = {(row["row"], row["seed"]) for row in table.to_dict("records")}
    for seed in range(seeds or 1):
        for name in rows or TASKS:
            if (name, seed) not in done:
                found = _measured(name, seed, folder)
                table = pd.concat([table, pd.DataFrame([found])], ignore_index=True)
                on_row(found, table)
    return table


def _measured(name: str, seed: int, folder: Path | None) -> dict[str, Any]:
    one = TASKS[name]
    about: dict[str, Any] = {"row": name, "task": one.task, "seed": seed, "stage": "calibrated"}
    try:
        run, certificate = certified(one.task, seed, folder=folder, progress=False, **one.options)
    except AbcError as error:
        return {**about, "error": str(error)}
    model, shares, whole = run.load_model().frozen(), list[float](), list[bool]()
    rng = np.random.default_rng([seed, 8])
    for first in range(0, len(LENGTHS), BATCH):
        lengths = LENGTHS[first : first + BATCH]
        drawn = [one.law(rng, n) for n in lengths]
        right = _answers(model, run.data, one, drawn, lengths)
        whole += [x == 1 for x in right]
        shares += right
    return {
        **about,
        "trained": f"{run.config.train.length} {run.task.unit}",
        "outcome": certificate.outcome,
        "windows": certificate.windows,
        "margin": certificate.margin,
        "length": LENGTHS[-1],
        "n": len(shares),
        "accuracy": 100 * float(np.mean(whole)),
        "per_symbol": 100 * float(np.mean(shares)),
        "held_out": None,
        "error": None,
    }


def _answers(
    model: Model, data: Data, one: Benchmark, drawn: Sequence[Drawn], lengths: Sequence[int]
) -> list[float]:
    """The share of symbols of each answer that are right, its end counted as one.

    Where the whole output is what our rule writes, the answer is what the map makes of that, and
    nothing is decoded.
    """
    batch = _laid_out(data, [source for source, _ in drawn])
    exact, end = exact_matches(model, batch).tolist(), data.vocabulary.eos
    shares = []
    for k, ((source, wanted), n) in enumerate(zip(drawn, lengths, strict=True)):
        try:
            if exact[k]:
                ids = batch.target[k].tolist()
                answer = data.read([data.vocabulary.symbols[i] for i in ids[: ids.index(end)]])
            else:
                answer = predict(model, data, source).answer
        except AbcError:  # it wrote no end
            shares.append(0.0)
            continue
        pairs = zip_longest([*one.read(answer, n), END], [*wanted, END])
        right = [a == b for a, b in pairs][: len(wanted) + 1]
        shares.append(float(np.mean(right)))
    return shares


def _laid_out(data: Any, sources: Sequence[str]) -> Batch:
    if hasattr(data.task, "in_rows"):  # a rule on words reads several at once
        return data.lay_out(data.task.parse(*sources))
    first, *others = map(data.task.parse, sources)
    return data.lay_out(first.joined(*others) if others else first)


# The table

COLUMNS = [
    *("task", "seeds", "what stands before the answer", "trained on at most", "certified"),
    *("windows", "right at 41 to 500", "of symbols", "published"),
]


def report(results: pd.DataFrame) -> Report:
    """The table of all fifteen tasks: what was certified, and how many sources were right."""
    rows, missing = list[list[str]](), list[str]()
    records: list[dict[str, Any]] = []
    for name, one in TASKS.items():
        published = "" if one.published is None else f"{one.published:.1f}"
        mine = results[results["row"] == name] if len(results) else results
        done = mine[mine["error"].isna()] if len(mine) else mine
        records += [{str(key): x for key, x in row.items()} for row in done.to_dict("records")]
        if not len(done):
            missing += [f"{name}: not run"]
            rows.append([name, "0", "not run", "", "", "", "", "", published])
            continue
        certified_, wide = done[done["outcome"] == "certified"], done["windows"].max()
        rows.append(
            [
                name,
                str(len(mine)),
                one.scratchpad,
                done["trained"].iloc[0],
                f"{len(certified_)} of {len(mine)}",
                f"{int(wide):,}",
                f"{done['accuracy'].median():.1f} / {done['accuracy'].min():.1f}",
                f"{done['per_symbol'].median():.2f}",
                published,
            ]
        )
    table = Table(COLUMNS, rows, right=COLUMNS[5:])
    return Report(NAME, TITLE, [table], records, NOTES, missing)


NOTES = (
    "*right at 41 to 500*: answers of which every symbol is right, in percent, median / worst over "
    "seeds, of one source for each length and seed. *of symbols*: as the benchmark counts, up to "
    "the answer's end. Sources are drawn from the benchmark's distributions. Where a model has a "
    "certificate, that covers every length; *certified* counts the seeds that have one.",
    "**Not the benchmark's setting**: there a model is trained up to length 40 on sources and "
    "answers alone, and gives all symbols of an answer at once. Ours are trained to write what the "
    "third column names before the answer, token by token. Only a row with *none* gives the answer "
    "alone. Numbers are given without leading zeros, strings use two of the ten digits that a "
    "model knows, instructions come before their stack, and a doubled string of odd length has "
    "no padding.",
    "*published*: the Transformer of table 1 of arXiv 2207.02098, in percent of symbols, the best "
    "of its encodings and seeds; empty where we could not read the table.",
)
