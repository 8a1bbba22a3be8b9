"""Attempts to make a command fall over, a file mislead or a kill lose something; writes trust.md.

    python reports/trust.py planted [NUMBER KIND]  # planted faults (tests/planted.py)
    python reports/trust.py models [NUMBER SIZES]  # random models (tests/test_random_models.py)
    python reports/trust.py invocations [NUMBER]   # hostile command lines (tests/hostile.py)
    python reports/trust.py damaged                # damaged files of runs (tests/damage.py)
    python reports/trust.py kills                  # kills at random moments (tests/killed.py)
    python reports/trust.py                        # the page alone

Tables are in trust/.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).parent / "trust"
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from abc_calib import stages  # noqa: E402
from abc_calib.errors import shortened  # noqa: E402
from abc_calib.text import as_markdown, visible  # noqa: E402

Rows = Iterator[dict[str, Any]]
TRIALS = {"train": 9, "calibrate": 9, "retrain": 8, "eval": 9, "sweep": 8}


def make_runs(root: Path) -> None:
    """The runs that commands are given: first, calibrated, not retrained, recurrent."""
    os.environ["ABC_RUNS"] = str(root)
    shape: dict[str, Any] = {"heads": 8, "width": 32, "feedforward": 64, "decoder_layers": 2}
    how: dict[str, Any] = {"batch": 64, "steps": 1500, "learning_rate": 5e-3, "progress": False}
    first = stages.train("successor", length=5, **how, **shape)
    stages.calibrate(first, steps=400, progress=False)
    latest = (root / "latest").read_text()
    stages.calibrate(first, threshold=0.3, retrain=False, progress=False)
    stages.train("copy", model="gru", steps=3, progress=False)
    (root / "latest").write_text(latest)


def planted(folder: Path, number: int = 20, *kinds: str) -> Rows:
    """Pairs of each kind; without kinds named, of all of them."""
    from planted import KINDS, Maker, pairs

    os.environ["ABC_RUNS"] = str(folder / "runs")
    for kind in kinds or KINDS:
        yield from pairs(kind, Maker(folder / kind), number)


def models(folder: Path, number: int = 2000, sizes: int = 120) -> Rows:
    """Random models: what both programs list, and the least margin of all short sources."""
    from test_random_models import seen

    for seed in range(10_000, 10_000 + number):
        one = seen(seed, sizes)
        both = {"the program": one.program, "check.py": one.checker}
        followed = " and ".join(name for name, found in both.items() if found)
        row = {"seed": seed, "model": one.model, "task": one.task}
        yield row | {
            "followed by": followed or "none",
            "below": " and ".join(one.below),
            "agree": one.agree,
            "windows listed": one.program[0] if one.program else None,
            "distinct in sources": one.distinct,
        }


def invocations(folder: Path, number: int = 2500) -> Rows:
    """Each in a fork of this process (tests/warm.py)."""
    from hostile import cases
    from warm import RIGHT, judged, tried

    make_runs(folder / "runs")
    for case in cases(17)[:number]:
        ended, same = tried(case, folder / "here", folder / "runs")
        row = {
            "command": visible(shortened(case.command, 30)),
            "kind": case.kind,
            "argv": visible(" ".join(shortened(word, 40) for word in case.argv[-3:])),
            "legal": case.legal,
            "exit": ended.code,
            "seconds": round(ended.seconds, 2),
            "outcome": judged(case, ended, same),
        }
        if row["outcome"] not in RIGHT:
            print(row, ascii(ended.err[-300:]), flush=True)
        yield row


def damaged(folder: Path) -> Rows:
    """Every file of runs at three stages, with every kind of damage."""
    from conftest import made_and_calibrated
    from test_damage import make_stages

    made_and_calibrated(folder / "trained")
    for stage in make_stages(folder / "stages", folder / "trained").values():
        for number, case in enumerate(stage.cases(1)):
            command, outcome, _ = stage.judge(case, number, folder / f"case{number}")
            about = {"file": case.file, "kind": case.kind, "seed": case.seed}
            yield {"run": stage.name, **about, "command": command, "outcome": outcome}


def kills(folder: Path) -> Rows:
    """What is begun again ends as if nobody had stopped it."""
    from conftest import made_and_calibrated
    from killed import KINDS

    made_and_calibrated(folder / "trained")
    for command, trials in TRIALS.items():
        kind = KINDS[command](folder / "trained", folder / command)
        for number in range(trials):
            one = kind.kill(number)
            yield {**asdict(one), "fine": one.fine}


def counted(name: str, by: str, what: str) -> str:
    """A table: for each value of the column ``by``, how many rows have each value of ``what``."""
    table = pd.read_csv(HERE / name, keep_default_na=False).astype(str)
    counts = pd.crosstab(table[by], table[what], margins=True, margins_name="all")
    rows = [[name, *map(int, row)] for name, row in zip(counts.index, counts.values, strict=True)]
    columns = [by, *(f"{what}: {c}" if c in ("True", "False") else c for c in counts.columns)]
    return as_markdown(columns, rows, "l" + "r" * (len(columns) - 1))


def of_planted() -> str:
    """A table: of each kind of planted faults how many pairs, and what was said of them."""
    from planted import falsely, needlessly

    table = pd.read_csv(HERE / "planted.csv")
    programs = ("certify", "windows", "verify", "check.py")
    rows: list[list[Any]] = []
    for kind, some in [*table.groupby("kind", sort=False), ("all", table)]:
        twins = [one for _, one in some.iterrows()]
        falses = [sum(falsely(one, by) for one in twins) for by in programs]
        needless = [sum(needlessly(one, by) for one in twins) for by in programs]
        seconds = [f"{some[f'{by}_seconds'].mean():.1f}" for by in ("certify", "verify", "check")]
        shown = (" / ".join(map(str, x)) for x in (falses, needless, seconds))
        rows.append([kind, len(twins) // 2, *shown])
    columns = ["kind", "pairs", "falsely certified", "needlessly not certified", "seconds a twin"]
    return as_markdown(columns, rows, "lrrrr")


def page() -> str:
    """The page: its text, with the tables that are made here in place of their names."""
    text = (HERE / "page.txt").read_text()
    for name, (by, what) in {
        "models": ("model", "followed by"),
        "invocations": ("kind", "outcome"),
        "damaged": ("command", "outcome"),
        "kills": ("command", "fine"),
    }.items():
        text = text.replace(f"{{{name}}}", counted(f"{name}.csv", by, what).strip())
    table = pd.read_csv(HERE / "models.csv")
    bad = int(table.below.notna().sum()), int((~table.agree).sum())
    below = "In {} of them a program missed a window that occurs in a source; in {} the two differ."
    text = text.replace("{below}", below.format(*bad))
    return text.replace("{planted}", of_planted().strip())


def main() -> None:
    attempts: dict[str, Any] = {"planted": planted, "models": models, "kills": kills}
    attempts |= {"invocations": invocations, "damaged": damaged}
    if sys.argv[1:]:
        name, rows = sys.argv[1], []
        with tempfile.TemporaryDirectory() as folder:
            given = [int(word) if word.isdecimal() else word for word in sys.argv[2:]]
            for row in attempts[name](Path(folder), *given):
                rows.append(row)
                table = pd.DataFrame(rows)
                whole = {"exit", "windows listed"} & {*table}
                table = table.astype(dict.fromkeys(whole, "Int64"))
                table.to_csv(HERE / f"{name}.csv", index=False)
    HERE.with_suffix(".md").write_text(page())


if __name__ == "__main__":
    main()
