"""What the papers' authors ran, and what it gives here: writes published.md from its tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from abc_calib.text import as_markdown

HERE = Path(__file__).parent / "published"


def addition(padded: int) -> str:
    """Rows of what was tested, random problems first, by what the retraining was."""
    table = pd.read_csv(HERE / f"addition-{padded}.csv")
    sets = sorted({*table["set"]}, reverse=True)
    cells = table.pivot_table(index=["retraining", "length"], columns="set", values="accuracy")
    cells["cell"] = [" / ".join(f"{x:g}" for x in row) for row in cells[sets].to_numpy()]
    wide = cells["cell"].unstack("length").fillna("–")
    rows = [[name, *row] for name, row in zip(wide.index, wide.to_numpy().tolist(), strict=True)]
    return as_markdown(["retraining", *map(str, wide.columns)], rows, "l" + "r" * len(wide.columns))


def main() -> None:
    text = (HERE / "page.txt").read_text()
    for padded in (20, 61):
        text = text.replace(f"{{addition-{padded}}}", addition(padded).strip())
    HERE.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
