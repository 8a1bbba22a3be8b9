"""Products by size, before and after calibration: python reports/rows_figure.py

From the rows of ``abc eval`` in reports/certificates/, of two numbers of equally many digits.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from abc_calib.evaluation.metrics import wilson_interval
from abc_calib.reporting.curves import Point, accuracy_curve
from abc_calib.reporting.style import save_figures

HERE = Path(__file__).parent
NAMES = {"calibrated": "ABC", "first": "coupled positions"}


def points(rows: pd.DataFrame) -> list[Point]:
    """Length, accuracy and its interval."""
    found = []
    for row in rows.sort_values("length").itertuples():
        low, high = wilson_interval(int(row.correct), int(row.n))  # type: ignore[arg-type]
        found.append((int(row.length), float(row.accuracy), 100 * low, 100 * high))  # type: ignore[arg-type]
    return found


def main() -> None:
    table = pd.read_csv(HERE / "certificates" / "long_multiplication-seed0-eval.csv")
    square = table[table["length"] == table["rows"]]
    series = {name: points(square[square.model == model]) for model, name in NAMES.items()}
    how = {"title": "Long multiplication", "unit": "digits of both numbers", "top": ("ABC",)}
    figure = accuracy_curve(series, train_length=4, **how)  # type: ignore[arg-type]
    save_figures(figure, HERE / "figures" / "long-multiplication-sizes", ("pdf", "png"))


if __name__ == "__main__":
    main()
