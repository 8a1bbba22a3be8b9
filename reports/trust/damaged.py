"""Damaged files: what every command makes of them, a row for each in damaged.csv.

    python reports/trust/damaged.py

Every file of a finished run, of a training that was interrupted and of a calibration without its
retraining, with every kind of damage (tests/damage.py). A few minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from conftest import made_and_calibrated  # noqa: E402
from test_damage import make_stages  # noqa: E402

SEEDS = 1


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made_and_calibrated(folder / "trained")
        for stage in make_stages(folder / "stages", folder / "trained").values():
            for number, case in enumerate(stage.cases(SEEDS)):
                command, outcome, _ = stage.judge(case, number, folder / f"case{number}")
                rows.append(
                    {
                        "run": stage.name,
                        "file": case.file,
                        "kind": case.kind,
                        "seed": case.seed,
                        "command": command,
                        "outcome": outcome,
                    }
                )
                pd.DataFrame(rows).to_csv(HERE / "damaged.csv", index=False)
    print(len(rows), dict(Counter(row["outcome"] for row in rows)))


if __name__ == "__main__":
    main()
