"""Attempts to make a command fall over, a file mislead or a kill lose something; writes trust.md.

    python reports/trust.py margins [NUMBER]       # random models (tests/test_verify.py)
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


def margins(folder: Path, number: int = 1000) -> Rows:
    """The least margin of all short sources of a random model, and the least that is proved."""
    from random_models import drawn, sources
    from test_verify import double, judged, smallest

    for seed in range(10_000, 10_000 + number):
        model, data = drawn(seed)
        layers = "" if model.stream or not model.options.encoder_layers else ", encoder layer"
        rows = "rows" if data.task.rule().in_rows else "one row"
        row = {
            "seed": seed,
            "model": f"{'decoder-only' if model.stream else 'encoder-decoder'}{layers}",
        }
        row |= {"task": data.task.name, "outputs": rows}
        if (found := judged(seed, sizes=800)) is None:
            yield row | {"source": "not followed, or too many windows"}
            continue
        proved = min((c.margin for c in found[3]), default=float("inf"))
        seen = smallest(double(model := found[0]), data)
        run = sum(map(len, sources(data)))
        where = "below" if seen < proved - 1e-6 else "attained" if seen < proved + 1e-6 else "above"
        yield row | {"source": where, "sources": run, "windows": sum(c.windows for c in found[3])}


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


def page() -> str:
    """The page: its text, with the tables that are made here in place of their names."""
    text = (HERE / "page.txt").read_text()
    for name, (by, what) in {
        "margins": ("model", "source"),
        "invocations": ("kind", "outcome"),
        "damaged": ("command", "outcome"),
        "kills": ("command", "fine"),
    }.items():
        text = text.replace(f"{{{name}}}", counted(f"{name}.csv", by, what).strip())
    return text


def main() -> None:
    attempts = {"margins": margins, "invocations": invocations, "damaged": damaged, "kills": kills}
    if sys.argv[1:]:
        name, rows = sys.argv[1], []
        with tempfile.TemporaryDirectory() as folder:
            for row in attempts[name](Path(folder), *map(int, sys.argv[2:])):
                rows.append(row)
                table = pd.DataFrame(rows)
                whole = {"exit", "sources", "windows"} & {*table}
                table = table.astype(dict.fromkeys(whole, "Int64"))
                table.to_csv(HERE / f"{name}.csv", index=False)
    HERE.with_suffix(".md").write_text(page())


if __name__ == "__main__":
    main()
