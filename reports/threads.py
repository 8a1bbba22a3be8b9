"""Do commands that decode or score choose their number of threads well, on a busy machine?

    python reports/threads.py RUN [--rounds 5] [--busy 2]

RUN is a calibrated run of addition. Each command runs as a user types it, and held to one thread
(``OMP_NUM_THREADS=1``), by turns, while so many other processes multiply matrices. Seconds are the
clock's, of whole processes. Writes threads.csv and threads.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from abc_calib.text import Markup, as_markdown

TABLE = Path(__file__).with_suffix(".csv")
START = "import sys; from cli.main import app; sys.argv[0] = 'abc'; app()"
WORK = "import torch; torch.set_num_threads(1); x = torch.randn(512, 512)\nwhile True: x @ x"
DIGITS = "1234567890" * 100
COMMANDS = {
    "predict": ["predict", "--run", "RUN", f"{DIGITS}+{DIGITS[::-1]}"],
    "eval": ["eval", "RUN", "--lengths", "6,50", "--samples", "5000"],
    "eval --greedy": [*["eval", "RUN", "--lengths", "50", "--samples", "1000", "--greedy"]],
    "stress": ["stress", "RUN", "--lengths", "6,50"],
    "certify": ["certify", "RUN"],
    "heatmap": ["heatmap", "RUN", "--format", "png", "--out", "OUT"],
}
COLUMNS = ["command", "busy", "round", "threads", "seconds"]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many other processes that never rest."""
    others = [subprocess.Popen([sys.executable, "-c", WORK]) for _ in range(processes)]
    try:
        time.sleep(4 * bool(others))  # until torch is imported
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def seconds(words: list[str], run: Path, one_thread: bool) -> float:
    """The clock's, of a command on a copy of the run."""
    with tempfile.TemporaryDirectory() as folder:
        copy, out = Path(folder) / "run", Path(folder) / "out"
        shutil.copytree(run, copy)
        (copy / "certificate.json").unlink(missing_ok=True)
        given = [{"RUN": str(copy), "OUT": str(out)}.get(word, word) for word in words]
        environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
        environment |= {"OMP_NUM_THREADS": "1"} if one_thread else {}
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", START, *given],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.perf_counter() - begun


def page(table: pd.DataFrame) -> str:
    rows = []
    for (name, others), part in table.groupby(["command", "busy"], sort=False):
        wide = part.pivot(index="round", columns="threads", values="seconds")
        ratio = (wide["chosen"] / wide["one"]).median()
        cells = [f"{wide[column].median():.1f}" for column in ("chosen", "one")]
        rows.append([Markup(f"`abc {name}`"), others, *cells, f"{ratio:.2f}", len(wide)])
    heads = ["command", "other processes", "chosen, s", "one thread, s", "chosen / one", "rounds"]
    return (
        "# Threads of commands that decode or score\n\n"
        f"Made by `python reports/threads.py RUN`: each command as typed and held to one thread, "
        f"by turns,\non {os.cpu_count()} cores with other processes at work. Seconds of the clock, "
        "medians; the ratio is the median\nover rounds. Only `eval` and `stress` ever take more "
        "than one thread unless told (as many as find a\nfree core): the ratios of the others are "
        "of two equal commands, and show how much a busy machine\nvaries.\n\n"
        + as_markdown(heads, rows, "lrrrrr")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, nargs="*", default=[2], help="other processes")
    parser.add_argument("--page", action="store_true", help="write the page again")
    options = parser.parse_args()
    if options.page:
        TABLE.with_suffix(".md").write_text(page(pd.read_csv(TABLE)))
        return
    rows = []
    for others in options.busy:
        with busy(others):
            for number in range(options.rounds):
                for name, words in COMMANDS.items():
                    for one in (number % 2 == 0, number % 2 == 1):
                        taken = round(seconds(words, options.run, one), 3)
                        rows.append([name, others, number, "one" if one else "chosen", taken])
                print(f"{others} busy, round {number + 1} of {options.rounds}", flush=True)
                made = pd.DataFrame(
                    rows, columns=["command", "busy", "round", "threads", "seconds"]
                )
                made.to_csv(TABLE, index=False)
    TABLE.with_suffix(".md").write_text(page(made))


if __name__ == "__main__":
    main()
