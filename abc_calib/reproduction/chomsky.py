"""The fifteen tasks of Delétang et al. (2023, arXiv 2207.02098), by models that are certified.

Sources are drawn from the distributions of the benchmark's public code. Answers are computed from
the definitions of its tasks, independently of our rules. A model writes intermediate steps before
the answer (a scratchpad), and a fixed map reads the answer from its output. In the benchmark's own
setting a model gives the answer alone, so the two kinds of numbers are not comparable.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest
from operator import add, mul
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from abc_calib.data import Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation import Evaluator, exact_matches, predict
from abc_calib.nn.base import Model
from abc_calib.reproduction.pipeline import load_results, write_report
from abc_calib.reproduction.report import Report
from abc_calib.reproduction.targets import PAPERS
from abc_calib.stages import certified
from abc_calib.text import Table

NAME = "chomsky"
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
    for action in does:
        stack = stack[:-1] if action == "pop" else [*stack, action[-1]]
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
    sign = operators[int(rng.integers(0, len(operators)))]
    return f"({left}{sign}{right})", {"+": a + b, "-": a - b, "*": a * b}[sign] % 5


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


def _sqrt(rng: np.random.Generator, n: int) -> Drawn:
    number = _number(rng, n)
    return f"{number:b}", [*f"{math.isqrt(number):b}".zfill(-(-n // 2))]


def _last(answer: str, n: int) -> list[str]:
    return answer.split()[-1:]


def _words(answer: str, n: int) -> list[str]:
    return [word for word in answer.split() if word != "|"]


def _reversed(answer: str, n: int) -> list[str]:
    return [*answer[::-1]]


def _root(answer: str, n: int) -> list[str]:
    return [*answer.partition(" ")[0].zfill(-(-n // 2))]


Read = Callable[[str, int], list[str]]
"""The answer in what a person reads of an output, for a source of ``n`` symbols."""
CODE: dict[str, tuple[Law, Read]] = {
    "even_pairs": (_law(lambda x: [str(sum(a != b for a, b in pairwise(x)) % 2)]), _last),
    "modular_arithmetic": (_arithmetic, _last),
    "parity_check": (_law(lambda bits: [str(bits.count("1") % 2)]), _last),
    "cycle_navigation": (_law(lambda x: [str((x.count("+") - x.count("-")) % 5)], "-=+"), _last),
    "stack_manipulation": (_stack, _words),
    "reverse_string": (_law(lambda bits: bits[::-1]), _words),
    "modular_arithmetic_brackets": (_brackets, _words),
    "solve_equation": (_equation, _words),
    "duplicate_string": (_law(lambda bits: bits * 2), _words),
    "missing_duplicate_string": (_missing, _words),
    "odds_first": (_law(lambda bits: bits[1::2] + bits[::2]), _words),
    "binary_addition": (_of_two("+", add), _reversed),
    "binary_multiplication": (_of_two("*", mul), _reversed),
    "compute_sqrt": (_sqrt, _root),
    "bucket_sort": (_law(sorted, "01234"), _words),
}


class Benchmark(NamedTuple):
    """A task: its law, how its answer is read, and its entry in ``papers/chomsky.toml``."""

    law: Law
    read: Read
    task: str
    scratchpad: str
    options: dict[str, Any] = {}
    published: float | None = None


PAPER = tomllib.loads((PAPERS / "chomsky.toml").read_text("utf-8"))
TASKS = {name: Benchmark(*CODE[name], **fields) for name, fields in PAPER["tasks"].items()}
"""In the order of the paper's table."""


def reproduce(
    seeds: int | None = None,
    rows: Sequence[str] = (),
    models: Path | str | None = None,
    results: Path | None = None,
    on_row: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Certify a model for each task of ``rows`` and seed, and test it at every length.

    ``models``, ``results``: folders of them; what they hold is not made again, and each new result
    is written at once. ``on_row`` is called with a line about it. ``UsageError`` for an unknown
    task.
    """
    for name in rows:
        if name not in TASKS:
            raise UsageError(f"no row {name!r} here: choose of {'; '.join(TASKS)}")
    is_begun = results is not None and (results / f"{NAME}-seeds.csv").exists()
    table = load_results(NAME, results) if is_begun else pd.DataFrame({"error": []})
    table = table[table["error"].isna()]
    done = {(row["row"], row["seed"]) for row in table.to_dict("records")}
    for seed in range(seeds or 1):
        for name in rows or TASKS:
            if (name, seed) not in done:
                row = _measured(name, seed, models)
                table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
                if results is not None:
                    write_report(report(table), table, results)
                right = row["error"] or f"{row['outcome']}, {row['accuracy']:.1f} % right"
                on_row(f"{name}, seed {seed}: {right}")
    return table


def _measured(name: str, seed: int, folder: Path | str | None) -> dict[str, Any]:
    benchmark = TASKS[name]
    about: dict[str, Any] = {
        "row": name,
        "task": benchmark.task,
        "seed": seed,
        "stage": "calibrated",
    }
    try:
        run, certificate = certified(
            benchmark.task, seed, folder=folder, progress=False, **benchmark.options
        )
    except AbcError as error:
        return {**about, "error": str(error)}
    model, shares, whole = Evaluator(run.load_model()), list[float](), list[bool]()
    rng = np.random.default_rng([seed, 8])
    for first in range(0, len(LENGTHS), BATCH):
        lengths = LENGTHS[first : first + BATCH]
        drawn = [benchmark.law(rng, n) for n in lengths]
        right = _answers(model, run.data, benchmark, drawn, lengths)
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
    model: Model | Evaluator,
    data: Data,
    benchmark: Benchmark,
    drawn: Sequence[Drawn],
    lengths: Sequence[int],
) -> list[float]:
    """The share of symbols of each answer that are right, its end counted as one.

    Where the whole output is what our rule writes, the answer is what the map makes of that, and
    nothing is decoded.
    """
    first, *others = (data.task.parse(source) for source, _ in drawn)
    batch, end = data.lay_out(first.joined(*others)), data.vocabulary.eos
    exact = exact_matches(model, batch).tolist()
    shares = []
    for k, ((source, expected), n) in enumerate(zip(drawn, lengths, strict=True)):
        try:
            if exact[k]:
                ids = batch.target[k].tolist()
                answer = data.read([data.vocabulary.symbols[i] for i in ids[: ids.index(end)]])
            else:
                answer = predict(model, data, source).answer
        except AbcError:  # it wrote no end
            shares.append(0.0)
            continue
        pairs = zip_longest([*benchmark.read(answer, n), END], [*expected, END])
        right = [a == b for a, b in pairs][: len(expected) + 1]
        shares.append(float(np.mean(right)))
    return shares


# The table

COLUMNS = [
    *("task", "seeds", "what stands before the answer", "trained on at most", "certified"),
    *("windows", "right at 41 to 500", "of symbols", "published"),
]


def report(results: pd.DataFrame) -> Report:
    """Make the table of all fifteen tasks: what was certified, how many sources were right."""
    measured = results[results["error"].isna()] if len(results) else pd.DataFrame(columns=["row"])
    by_task = {str(name): part for name, part in measured.groupby("row")}
    rows = [_row(name, by_task.get(name)) for name in TASKS]
    parts = [by_task[name] for name in TASKS if name in by_task]
    records: Any = [record for part in parts for record in part.to_dict("records")]
    missing = [f"{name}: not run" for name in TASKS if name not in by_task]
    table = Table(COLUMNS, rows, right=COLUMNS[5:])
    return Report(NAME, PAPER["title"], [table], records, PAPER["notes"], missing)


def _row(name: str, part: pd.DataFrame | None) -> list[str]:
    """The line of a task: medians and worst over its seeds."""
    benchmark = TASKS[name]
    published = "" if benchmark.published is None else f"{benchmark.published:.1f}"
    if part is None:
        return [name, "0", "not run", *[""] * 5, published]
    return [
        name,
        str(len(part)),
        benchmark.scratchpad,
        part["trained"].iloc[0],
        f"{(part['outcome'] == 'certified').sum()} of {len(part)}",
        f"{int(part['windows'].max()):,}",
        f"{part['accuracy'].median():.1f} / {part['accuracy'].min():.1f}",
        f"{part['per_symbol'].median():.2f}",
        published,
    ]
