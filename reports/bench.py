"""What things cost: pieces of work done by turns, medians over rounds.

    python reports/bench.py schemes                        # position schemes
    python reports/bench.py kinds                          # encoder-decoder and decoder-only
    python reports/bench.py attenders                      # of recurrent models
    python reports/bench.py lengths CALIBRATED             # along lines and with dense attention
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
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

import abc_calib as abc
from abc_calib.config import MODEL_OPTIONS
from abc_calib.evaluation.exact import exact_matches, greedy_matches
from abc_calib.nn.build import build_model
from abc_calib.nn.positions import SCHEMES
from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.text import Markup, as_markdown
from abc_calib.training.plan import plan_training
from abc_calib.training.step import optimise

TABLE = Path(__file__).with_suffix(".csv")
START = "import sys; from cli.main import app; sys.argv[0] = 'abc'; app()"
Work = Callable[[], Any]
Bench = dict[str, dict[str, Work]]
"""What is done, and by whom: ratios are to the first of these."""


def step_of(kind: str, options: Any, data: Any, batch: int) -> Work:
    """A training step of a fresh model, on one batch."""
    model: Any = build_model(kind, options, data, 0)
    optimizer, drawn = model.optimizer(), data.training(0, batch)
    return lambda: optimise(model.train(), optimizer, drawn, 1e-3, 1.0, False)


def of_addition(models: dict[str, tuple[str, dict[str, Any]]]) -> Bench:
    """A training step, and 100 evaluations at 50 digits, of several models of addition."""
    data = abc.Run.draft(plan_training("addition")).data
    test = data.test(50, 100)
    steps: dict[str, Work] = {}
    evaluations: dict[str, Work] = {}
    for name, (kind, given) in models.items():
        options = MODEL_OPTIONS[kind](**given)
        model: Any = build_model(kind, options, data, 0)
        steps[name] = step_of(kind, options, data, 128)
        evaluations[name] = lambda model=model: exact_matches(model.eval(), test)  # type: ignore[misc]
    return {"a step, batch 128": steps, "100 evaluations of 50 digits": evaluations}


def schemes() -> Bench:
    return of_addition({name: ("transformer", {"scheme": name}) for name in SCHEMES})


def kinds() -> Bench:
    return of_addition({kind: (kind, {}) for kind in ("transformer", "decoder")})


def attenders() -> Bench:
    """A step on copy, batches of 32."""
    data = abc.Run.draft(plan_training("copy", model="gru")).data
    options = {name: MODEL_OPTIONS["gru"](attender=name) for name in ATTENDERS}  # type: ignore[call-arg]
    return {"a step, batch 32": {n: step_of("gru", o, data, 32) for n, o in options.items()}}


def lengths(calibrated: str) -> Bench:
    """Scoring and decoding additions along lines, and with dense attention where it fits."""
    run = abc.Run.open(calibrated)
    model: Any = run.load_model()

    def work(match: Any, path: str, digits: int, samples: int) -> Work:
        batch = run.data.test(digits, samples)

        def go() -> None:
            model.set_path(path)
            assert match(model, batch).all(), "costs of wrong answers mean nothing"

        return go

    found: Bench = {}
    for what, match, sizes in (
        ("scoring", exact_matches, {100: 100, 1000: 4, 10_000: 4}),
        ("decoding", greedy_matches, {100: 1, 1000: 1, 10_000: 1}),
    ):
        for digits, samples in sizes.items():
            paths = {"lines": "auto", "dense": "dense"} if digits <= 1000 else {"lines": "auto"}
            name = f"{what} {samples} of {digits:,} digits"
            found[name] = {who: work(match, path, digits, samples) for who, path in paths.items()}
    return found


def checkouts(*words: str) -> Bench:
    """One command as several versions of the program run it, each in a process of its own."""
    count = sum(Path(word, "pyproject.toml").is_file() for word in words)
    every, command = words[:count], words[count:]

    def run(checkout: str) -> Work:
        environment = os.environ | {"PYTHONPATH": checkout, "OMP_NUM_THREADS": "1"}
        asked = [sys.executable, "-c", START, *command, "--quiet"]
        return lambda: subprocess.run(asked, env=environment, check=True, capture_output=True)

    return {f"`abc {' '.join(command)}`": {commit(one): run(one) for one in every}}


def windows() -> Bench:
    """Commands of models of the zoo, where each window is computed once and where each row is."""

    def eval_of(model: str, lengths: str, samples: int, *more: str) -> Work:
        asked = ["eval", f"zoo:{model}", "--lengths", lengths, "--samples", str(samples), *more]
        return program(START, *asked, "--quiet")

    bench: Bench = {}
    for lengths in ("50", "1000"):
        bench[f"10,000 additions of {int(lengths):,} digits"] = {
            "windows once": eval_of("addition", lengths, 10_000),
            "each row": eval_of("addition", lengths, 10_000, "--dense"),
        }
    bench["one addition of 10,000,000 digits"] = {
        "windows once": eval_of("addition", "10000000", 1)
    }
    bench["one product of 4,096 by 4,096 bits"] = {
        "windows once": eval_of("long-multiplication-base2", "4096x4096", 1)
    }
    answer = program(START, "predict", "1+1", "--run", "zoo:addition")
    bench["the first answer"] = {"import torch": program("import torch"), "abc predict 1+1": answer}
    return bench


def program(code: str, *arguments: str) -> Work:
    """Python code in a process of its own, with one thread."""
    asked = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return lambda: subprocess.run(asked, env=environment, check=True, capture_output=True)


def commit(checkout: str) -> str:
    """The short name of the commit of a checkout, which has no changes."""
    asked = ["git", "-C", checkout, "describe", "--always", "--dirty", "--abbrev=7"]
    name = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    assert not name.endswith("-dirty"), f"{checkout} has changes that are not committed"
    return name


BENCHES: dict[str, Callable[..., Bench]] = {
    one.__name__: one for one in (schemes, kinds, attenders, lengths, checkouts, windows)
}


def spent(work: Work) -> float:
    """Milliseconds of the processor, those of processes that were started included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.process_time()
    work()
    own, after = time.process_time() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (own + after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measured(bench: Bench, rounds: int) -> pd.DataFrame:
    """A row for each piece of work: its median, and the ratio to the first of its kind."""
    rows = []
    for what, works in bench.items():
        gflop: dict[str, float] = {}
        times: dict[str, list[float]] = {who: [] for who in works}
        for who, work in works.items():  # counted once, which also warms up
            with FlopCounterMode(display=False) as counter:
                work()
            gflop[who] = counter.get_total_flops() / 1e9
        for number in range(rounds):
            for who in sorted(works, reverse=bool(number % 2)):
                times[who].append(spent(works[who]))
        first = times[next(iter(works))]
        for who, taken in times.items():
            ratios = sorted(mine / other for mine, other in zip(taken, first, strict=True))
            row = {"what": what, "who": who, "ms": median(taken), "rounds": rounds}
            row |= {"gflop": gflop[who]}
            rows.append(row | {"ratio": median(ratios), "least": ratios[0], "most": ratios[-1]})
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def peak() -> float:
    """GFLOP/s of this core in products of 512 by 512."""
    one, other = torch.randn(2, 512, 512)
    taken = min(spent(lambda: [one @ other for _ in range(50)]) for _ in range(5))
    return 50 * 2 * 512**3 / taken / 1e6


def report(table: pd.DataFrame) -> str:
    """The page: a table for each bench."""
    parts = [
        "# What things cost\n\nMade by `python reports/bench.py`: one thread of a shared machine, "
        "milliseconds of the processor, medians of rounds by turns. *Ratio*: to the first row of "
        "its kind in the same round, the median, least and most. *Products*: what all products of "
        "matrices would take at this core's best rate (–: not counted in other processes).\n"
    ]
    for name, some in table.groupby("bench", sort=False):
        rows = []
        each: Any = some.itertuples()
        for r in each:
            ratio = f"{r.ratio:.2f} ({r.least:.2f} to {r.most:.2f})"
            products = f"{1000 * r.gflop / r.peak:,.2f}" if r.gflop else "–"
            rows.append([Markup(r.what), r.who, f"{r.ms:,.1f}", products, ratio, r.rounds])
        columns = ["what", "who", "ms", "products, ms", "ratio", "rounds"]
        parts.append(f"## {str(name).capitalize()}\n\n{as_markdown(columns, rows, 'llrrrr')}")
    return "\n".join(parts)


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default="", help="work whose name begins with these words")
    given = parser.parse_args()
    asked = BENCHES[given.bench](*given.arguments)
    asked = {what: works for what, works in asked.items() if what.startswith(given.only)}
    made = measured(asked, given.rounds)
    made = made.assign(bench=given.bench, peak=peak())
    if TABLE.exists():
        before = pd.read_csv(TABLE)
        again = (before.bench == given.bench) & before.what.isin(made.what)
        made = pd.concat([before[~again], made])
    made.to_csv(TABLE, index=False, float_format="%.5g")
    TABLE.with_suffix(".md").write_text(report(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
