"""What things cost: pieces of work done by turns, medians over rounds.

    python reports/bench.py models addition transformer transformer:scheme=rope decoder
    python reports/bench.py checkouts OLD NEW -- eval RUN  # one command of several versions
    python reports/bench.py windows                        # rows that read the same, once

One thread; milliseconds of the processor, of this process and of those that it starts. Rows
replace those that bench.csv has of the same work, and bench.md is made of the file.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch

import abc_calib as abc
from abc_calib.config import MODEL_OPTIONS
from abc_calib.evaluation.exact import exact_matches
from abc_calib.nn.build import build_model
from abc_calib.text import Markup, as_markdown
from abc_calib.training.plan import plan_training
from abc_calib.training.step import optimise

TABLE = Path(__file__).with_suffix(".csv")
START = "import sys; from cli.main import app; sys.argv[0] = 'abc'; app()"
Work = Callable[[], Any]
Bench = dict[str, dict[str, Work]]
"""What is done, and by whom: ratios are to the first of these."""


def step(network: Any, optimizer: Any, batch: Any) -> None:
    optimise(network.train(), optimizer, batch, 1e-3, 1.0, False)


def score(network: Any, batch: Any) -> None:
    exact_matches(network.eval(), batch)


def models(task: str, *names: str) -> Bench:
    """A step, and 100 evaluations at 50 digits, of fresh models, KIND or KIND:OPTION=NAME."""
    steps, evaluations = dict[str, Work](), dict[str, Work]()
    for name in names:
        kind, _, choice = name.partition(":")
        option, _, value = choice.partition("=")
        data = abc.Run.draft(plan_training(task, model=kind)).data
        options = MODEL_OPTIONS[kind](**({option: value} if choice else {}))
        network: Any = build_model(kind, options, data, 0)
        optimizer, batch, test = network.optimizer(), data.training(0, 128), data.test(50, 100)
        steps[name] = partial(step, network, optimizer, batch)
        evaluations[name] = partial(score, network, test)
    return {"a step, batch 128": steps, "100 evaluations of 50 digits": evaluations}


def checkouts(*words: str) -> Bench:
    """One command as several versions of the program run it, each in a process of its own."""
    count = sum(Path(word, "pyproject.toml").is_file() for word in words)
    every, command = words[:count], words[count:]
    works = {
        commit(checkout): program(START, *command, "--quiet", PYTHONPATH=checkout)
        for checkout in every
    }
    return {f"`abc {' '.join(command)}`": works}


def windows() -> Bench:
    """Commands of models of the zoo, where each window is computed once and where each row is."""

    def eval_of(model: str, size: str, samples: int, *more: str) -> Work:
        words = ["eval", f"zoo:{model}", "--lengths", size, "--samples", str(samples), *more]
        return program(START, *words, "--quiet")

    bench: Bench = {}
    for size in ("50", "1000"):
        bench[f"10,000 additions of {int(size):,} digits"] = {
            "windows once": eval_of("addition", size, 10_000),
            "each row": eval_of("addition", size, 10_000, "--dense"),
        }
    for name, model, size in (
        ("one addition of 10,000,000 digits", "addition", "10000000"),
        ("one product of 4,096 by 4,096 bits", "product", "4096x4096"),
    ):
        bench[name] = {"windows once": eval_of(model, size, 1)}
    answer = program(START, "predict", "1+1", "--run", "zoo:addition")
    bench["the first answer"] = {"import torch": program("import torch"), "abc predict 1+1": answer}
    return bench


def program(code: str, *arguments: str, **environment: str) -> Work:
    """Python code in a process of its own, with one thread."""
    command = [sys.executable, "-c", code, *arguments]
    variables = os.environ | {"OMP_NUM_THREADS": "1", **environment}
    return lambda: subprocess.run(command, env=variables, check=True, capture_output=True)


def commit(checkout: str) -> str:
    """The short name of the commit of a checkout, which has no changes."""
    command = ["git", "-C", checkout, "describe", "--always", "--dirty", "--abbrev=7"]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert not name.endswith("-dirty"), f"{checkout} has changes that are not committed"
    return name


BENCHES: dict[str, Callable[..., Bench]] = {
    bench.__name__: bench for bench in (models, checkouts, windows)
}


def spent(work: Work) -> float:
    """Milliseconds of the processor, those of processes that were started included."""

    def now() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    started = now()
    work()
    return 1000 * (now() - started)


def measured(bench: Bench, rounds: int) -> pd.DataFrame:
    """A row for each piece of work: its median, and the ratio to the first of its kind."""
    rows = []
    for what, works in bench.items():
        for work in works.values():  # warms up
            work()
        times: dict[str, list[float]] = {who: [] for who in works}
        for number in range(rounds):
            for who in sorted(works, reverse=bool(number % 2)):
                times[who].append(spent(works[who]))
        first = times[next(iter(works))]
        for who, taken in times.items():
            ratios = sorted(mine / other for mine, other in zip(taken, first, strict=True))
            row = {"what": what, "who": who, "ms": median(taken), "rounds": rounds}
            rows.append(row | {"ratio": median(ratios), "least": ratios[0], "most": ratios[-1]})
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def report(table: pd.DataFrame) -> str:
    """The page: a table for each bench."""
    parts = [
        "# What things cost\n\nMade by `python reports/bench.py`: one thread of a shared machine, "
        "milliseconds of the processor, medians of rounds by turns. *Ratio*: to the first row of "
        "its kind in the same round, the median, least and most. Rows of kinds, schemes and "
        "attenders: `models` (attenders by batches of 32).\n"
    ]
    for name, group in table.groupby("bench", sort=False):
        each: Any = group.itertuples()
        rows = []
        for r in each:
            ratio = f"{r.ratio:.2f} ({r.least:.2f} to {r.most:.2f})"
            rows.append([Markup(r.what), r.who, f"{r.ms:,.1f}", ratio, r.rounds])
        cells = as_markdown(["what", "who", "ms", "ratio", "rounds"], rows, "llrrr")
        parts.append(f"## {str(name).capitalize()}\n\n{cells}")
    return "\n".join(parts)


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default="", help="work whose name begins with these words")
    options = parser.parse_args()
    works = BENCHES[options.bench](*options.arguments)
    works = {what: each for what, each in works.items() if what.startswith(options.only)}
    table = measured(works, options.rounds).assign(bench=options.bench)
    if TABLE.exists():
        before = pd.read_csv(TABLE)
        again = (before.bench == options.bench) & before.what.isin(table.what)
        table = pd.concat([before[~again], table])
    table.to_csv(TABLE, index=False, float_format="%.5g")
    TABLE.with_suffix(".md").write_text(report(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
