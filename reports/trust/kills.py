"""Kills at random moments: what is begun again ends as if nobody had stopped it.

    python reports/trust/kills.py

A row for each in kills.csv (tests/killed.py). A quarter of an hour on two cores.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from conftest import made_and_calibrated  # noqa: E402
from killed import KINDS  # noqa: E402

TRIALS = {"train": 9, "calibrate": 9, "retrain": 8, "eval": 9, "sweep": 8}


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made_and_calibrated(folder / "trained")
        for command, trials in TRIALS.items():
            kind = KINDS[command](folder / "trained", folder / command)
            for number in range(trials):
                one = kind.kill(number)
                rows.append({**asdict(one), "fine": one.fine})
                pd.DataFrame(rows).to_csv(HERE / "kills.csv", index=False)
    print(len(rows), "kills,", sum(row["fine"] for row in rows), "of them without a trace")


if __name__ == "__main__":
    main()
