"""What length costs: scoring and greedy decoding of additions, along lines and dense.

    python reports/length_cost.py runs/addition-calibrated-seed0-1

One calibrated model, measured in rounds, lengths and paths by turns; medians. Dense attention is
left out where it would not fit the memory or the time. Two threads.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.ticker import NullLocator

import abc_calib as abc
from abc_calib.evaluation.exact import exact_matches, greedy_matches
from abc_calib.reporting import save_figure
from abc_calib.reporting.style import COLUMN_WIDTH, PALETTE, new_figure, styled
from abc_calib.text import as_markdown

HERE = Path(__file__).parent
SCORED = {100: 100, 1000: 40, 10_000: 8, 100_000: 1}
"""Additions scored at once, by length, with lines."""
DENSE_SCORED = {100: 100, 1000: 4, 4000: 1}
DECODED = {100: 3, 1000: 3, 10_000: 2, 100_000: 1}
"""Rounds of one addition decoded token by token, by length, with lines."""
DENSE_DECODED = {100: 3, 1000: 3, 10_000: 1}
ROUNDS = 3


def seconds(work: Any) -> float:
    started = time.perf_counter()
    assert work().all(), "the model is wrong: costs of wrong answers mean nothing"
    return time.perf_counter() - started


def measure(run: abc.Run) -> pd.DataFrame:
    """Seconds of every kind, length, path and round."""
    model: Any = run.load_model()
    rows = []
    exact_matches(model, run.data.test(100, 100))  # warm up

    def take(kind: str, path: str, length: int, n: int, number: int) -> None:
        batch = run.data.test(length, n, seed=number)
        model.set_path("dense" if path == "dense" else "auto")
        score = exact_matches if kind == "scoring" else greedy_matches
        taken = seconds(lambda: score(model, batch))
        rows.append((kind, path, length, n, number, taken, 1e6 * taken / (n * length)))
        print(kind, path, length, n, f"{taken:.2f} s", flush=True)

    for number in range(ROUNDS):
        for path, sizes in (("lines", SCORED), ("dense", DENSE_SCORED)):
            for length, n in sizes.items():
                take("scoring", path, length, n, number)
        for path, rounds in (("lines", DECODED), ("dense", DENSE_DECODED)):
            for length, count in rounds.items():
                if number < count:
                    take("decoding", path, length, 1, number)
    columns = ["kind", "path", "length", "n", "round", "seconds", "microseconds_a_digit"]
    return pd.DataFrame(rows, columns=columns)


def peak(run: Path) -> str:
    """Time and memory of 100 additions of 10,000 digits, in a process of its own."""
    code = (
        "import abc_calib as abc, sys; "
        "t = abc.evaluate(sys.argv[1], [10_000], samples=100); print(t.accuracy[0], t.seconds[0])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(run)], check=True, capture_output=True, text=True
    ).stdout.split()
    mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return (
        f"100 additions of 10,000 digits scored: {float(out[1]):.1f} s, {float(out[0]):.1f} % "
        f"right, {mib:.0f} MiB at the peak of the whole process."
    )


@styled
def figure(table: pd.DataFrame) -> Any:
    drawn = new_figure(COLUMN_WIDTH, 2.4)
    axes = drawn.add_subplot()
    blue, red, *_ = PALETTE
    for kind, path, colour, style in (
        ("scoring", "lines", blue, "o-"),
        ("scoring", "dense", blue, "s--"),
        ("decoding", "lines", red, "o-"),
        ("decoding", "dense", red, "s--"),
    ):
        part = table[(table.kind == kind) & (table.path == path)]
        points = part.groupby("length").microseconds_a_digit.median()
        look: Any = {"color": colour, "label": f"{kind}, {path}", "markersize": 3, "linewidth": 1}
        axes.plot(points.index, points, style, **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, ticks in (
        (axes.xaxis, [10**k for k in range(2, 6)]),
        (axes.yaxis, [1, 10, 100, 1000]),
    ):
        axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("digits of an operand", fontsize=8)
    axes.set_ylabel("microseconds a digit", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return drawn


def report(table: pd.DataFrame, memory: str) -> str:
    medians = table.groupby(["kind", "path", "length"]).microseconds_a_digit.median()
    rows = []
    places: Any = medians.items()
    for (kind, path, length), value in places:
        base = medians[kind, "lines", 1000]
        part = table[(table.kind == kind) & (table.path == path) & (table.length == length)]
        cost = [f"{length:,}", f"{value:.1f}", f"{value / base:.2f}", len(part)]
        rows.append([kind, path, *cost])
    ratio = {
        k: medians[k, "lines", 100_000] / medians[k, "lines", 1000] for k in ("scoring", "decoding")
    }
    columns = ["work", "attention", "digits", "µs a digit", "relative", "rounds"]
    return (
        "# What length costs\n\nMade by `python reports/length_cost.py` with "
        f"{torch.get_num_threads()} threads; medians over rounds of one run; the last "
        "column but one is relative to lines at "
        "1,000 digits.\n\n"
        + as_markdown(columns, rows, "llrrrr")
        + f"\nA digit at 100,000 costs {ratio['scoring']:.2f} times (scoring) and "
        f"{ratio['decoding']:.2f} times (decoding) what it costs at 1,000.\n\n{memory}\n\n"
        "![cost](figures/length-cost.png)\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    run = abc.Run.open(parser.parse_args().run)
    memory = peak(run.path)
    print(memory, flush=True)
    table = measure(run)
    table.to_csv(HERE / "length_cost.csv", index=False, float_format="%.4g")
    for kind in ("pdf", "png"):
        save_figure(figure(table), HERE / "figures" / f"length-cost.{kind}")
    (HERE / "length_cost.md").write_text(report(table, memory))


if __name__ == "__main__":
    main()
