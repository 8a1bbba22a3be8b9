"""Thousands of hostile invocations of every command, and how each ended.

Made from the declarations of the options (``tests/hostile.py``). Every tenth runs in an
interpreter of its own, the others in a forked one (``tests/warm.py``).

    python reports/trust/invocations.py [NUMBER]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from hostile import cases  # noqa: E402 (the tests are no package)
from warm import RIGHT, RUNS, Warm, judged  # noqa: E402

from abc_calib import stages  # noqa: E402
from abc_calib.errors import shortened  # noqa: E402
from abc_calib.text import visible  # noqa: E402

SEED = 17
NUMBER = 2500
TABLE = Path(__file__).with_suffix(".csv")


def make_runs(root: Path) -> None:
    """The runs that commands are given: first, calibrated, not retrained, recurrent."""
    os.environ["ABC_RUNS"] = str(root)
    shape: dict[str, Any] = {"heads": 8, "width": 32, "feedforward": 64, "decoder_layers": 2}
    first = stages.train(
        "successor", length=5, batch=64, steps=1500, learning_rate=5e-3, progress=False, **shape
    )
    stages.calibrate(first, steps=400, progress=False)
    latest = (root / "latest").read_text()
    stages.calibrate(first, threshold=0.3, retrain=False, progress=False)
    stages.train("copy", model="gru", steps=3, progress=False)
    (root / "latest").write_text(latest)
    assert all((root / name).is_dir() for name in RUNS.values())


def main(number: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder) / "runs")
        warm = Warm(Path(folder) / "here", Path(folder) / "runs")
        for i, case in enumerate(cases(SEED)[:number]):
            alone = i % 10 == 0 and case.stdout != "closed"
            ended, same = warm.run(case, alone)
            rows.append(
                {
                    "command": visible(shortened(case.command, 30)),
                    "kind": case.kind,
                    "argv": visible(" ".join(shortened(word, 40) for word in case.argv[-3:])),
                    "legal": case.legal,
                    "interpreter": "own" if alone else "forked",
                    "exit": ended.code,
                    "seconds": round(ended.seconds, 2),
                    "outcome": judged(case, ended, same),
                }
            )
            if rows[-1]["outcome"] not in RIGHT:
                print(rows[-1], ascii(ended.err[-300:]), flush=True)
        warm.close()
    table = pd.DataFrame(rows).astype({"exit": "Int64"})
    table.to_csv(TABLE, index=False)
    print(len(rows), dict(Counter(table["outcome"])))


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else NUMBER)
