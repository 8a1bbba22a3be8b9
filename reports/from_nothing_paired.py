"""From nothing to a certificate at two commits, side by side: the same task and seed at each.

    python reports/from_nothing_paired.py OLD NEW FOLDER [--pairs addition:13 parity:0 ...]

OLD and NEW are checkouts. OLD has no command for all of it, so that it trains, calibrates and
certifies one after the other; NEW runs ``abc prove``, which also verifies. Both at once,
one thread each. Seconds are processor time of whole processes. Adds rows to
from_nothing_paired.csv, skips those that it has, and writes from_nothing_paired.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

from abc_calib.text import as_markdown

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ["task", "seed", "commit", "seconds", "outcome", "windows", "reason"]
PAIRS = ["addition:13", "addition:2", "successor:0", "parity:0", "multiplication:0"]
START = "import sys; from cli.main import app; sys.argv[0] = 'abc'; app()"


def spent(checkout: Path, *arguments: object) -> float:
    """Processor seconds of a command of the checkout, with all that it starts."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", START, *map(str, arguments), "--quiet"]
    process = os.posix_spawn(sys.executable, command, environment)
    _, status, usage = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return usage.ru_utime + usage.ru_stime


def row_of(commit: str, task: str, seed: int, seconds: float, run: Path) -> dict[str, Any]:
    """What the run's certificate says, if it got that far."""
    file = run / "certificate.json"
    made = json.loads(file.read_text()) if file.exists() else {"outcome": "none", "reason": ""}
    told = {name: made.get(name) for name in ("outcome", "windows", "reason")}
    if told["outcome"] == "certified":
        told["reason"] = ""
    return {"task": task, "seed": seed, "commit": commit, "seconds": round(seconds, 1), **told}


def old(checkout: Path, task: str, seed: int, folder: Path) -> dict[str, Any]:
    first, second = (folder / f"old-{task}-{seed}-{stage}" for stage in ("vanilla", "calibrated"))
    seconds = spent(checkout, "train", task, "--seed", seed, "--out", first)
    seconds += spent(checkout, "calibrate", first, "--out", second)
    seconds += spent(checkout, "certify", second)
    return row_of("old", task, seed, seconds, second)


def new(checkout: Path, task: str, seed: int, folder: Path) -> dict[str, Any]:
    where = folder / f"new-{task}-{seed}"
    seconds = spent(checkout, "prove", task, "--seed", seed, "--out", where)
    return row_of("new", task, seed, seconds, where / f"{task}-seed{seed}-calibrated")


def page(table: pd.DataFrame) -> str:
    """A line for each pair."""
    lines = []
    for (task, seed), some in table.groupby(["task", "seed"], sort=False):
        cells, both = [], some.set_index("commit")
        for commit in ("old", "new"):
            one = both.loc[commit]
            windows = f", {one.windows:,.0f} windows" if one.windows else ""
            cells += [f"{one.seconds:.0f}", f"{one.outcome}{windows}"]
        ratio = both.loc["new"].seconds / both.loc["old"].seconds
        lines.append([task, seed, *cells, f"{ratio:.2f}"])
    columns = ["task", "seed", "before, s", "outcome", "now, s", "outcome", "now / before"]
    return (
        "# From nothing to a certificate, before and now\n\n"
        "Made by `python reports/from_nothing_paired.py OLD NEW FOLDER`: commit 457f966, before "
        "the\nretraining was ended by its certificate, and the present one, both at once, one "
        "thread each.\nProcessor seconds of whole processes. Before: train, calibrate, certify. "
        "Now: `abc prove`,\nwhich also verifies by dense attention.\n\n"
        + as_markdown(columns, lines, "lrrlrlr")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", nargs="+", default=PAIRS, metavar="TASK:SEED")
    given = parser.parse_args()
    for pair in given.pairs:
        task, seed = pair.split(":")
        kept = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=COLUMNS)
        if ((kept.task == task) & (kept.seed == int(seed))).any():
            continue
        both = ((old, given.old), (new, given.new))
        with ThreadPoolExecutor(2) as pool:
            begun = [pool.submit(way, at, task, int(seed), given.folder) for way, at in both]
        rows = [one.result() for one in begun]
        made = pd.DataFrame(rows, columns=COLUMNS)
        table = pd.concat([kept, made]) if len(kept) else made
        table.to_csv(TABLE, index=False)
        TABLE.with_suffix(".md").write_text(page(table))


if __name__ == "__main__":
    main()
