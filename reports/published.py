"""What the papers' authors ran, and what it gives here: writes published.md from its tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from abc_calib.text import as_markdown

HERE = Path(__file__).parent / "published"


def addition_20() -> str:
    """Rows of random problems and carry chains, by what the retraining was."""
    table = pd.read_csv(HERE / "addition-20.csv")
    cells = table.pivot_table(index=["retraining", "length"], columns="set", values="accuracy")
    cells["cell"] = [f"{r:g} / {c:g}" for r, c in zip(cells["random"], cells["carry"], strict=True)]
    wide = cells["cell"].unstack("length").fillna("–")
    rows = [[name, *row] for name, row in zip(wide.index, wide.to_numpy().tolist(), strict=True)]
    return as_markdown(["retraining", *map(str, wide.columns)], rows, "l" + "r" * len(wide.columns))


def main() -> None:
    text = (HERE / "page.txt").read_text().replace("{addition-20}", addition_20().strip())
    HERE.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
