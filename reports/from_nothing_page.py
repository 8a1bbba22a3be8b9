"""Write from_nothing.md from from_nothing.csv: python reports/from_nothing_page.py"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from abc_calib.certification.until import FLOOR
from abc_calib.text import as_markdown

HERE = Path(__file__).parent
PAGE = HERE / "from_nothing.md"
PARTS = ["train", "calibrate", "retrain", "certify"]


def overview(table: pd.DataFrame) -> str:
    """A row of each task and base; times are those of runs that were not interrupted."""
    rows = []
    for (model, task, base), some in table.groupby(["model", "task", "base"], sort=False):
        sure = some[some.outcome == "certified"]
        whole = sure.dropna(subset=PARTS)
        seconds = whole[PARTS].sum(axis=1)
        times = [f"{seconds.median():.0f}", f"{seconds.max():.0f}"] if len(whole) else ["–", "–"]
        windows = f"{int(sure.windows.max()):,}" if len(sure) else "–"
        margin = f"{sure.margin.min():.2f}" if len(sure) else "–"
        right = f"{some.right.min():.1f}" if some.right.notna().any() else "–"
        rows.append([model, task, base, len(some), len(sure), right, windows, margin, *times])
    columns = ["model", "task", "base", "seeds", "certified", "right, worst seed"]
    columns += ["most windows", "smallest margin", "median s", "worst s"]
    return as_markdown(columns, rows, "ll" + "r" * 8)


def every(table: pd.DataFrame) -> str:
    shown = table.copy()
    digits_of = {"windows": 0, "margin": 2, "right": 1, **dict.fromkeys(PARTS, 0)}
    for name, digits in digits_of.items():
        shown[name] = [f"{x:,.{digits}f}" if x == x else "–" for x in table[name]]
    columns = ["model", "task", "base", "seed", "outcome", "windows", "margin", "right"]
    columns += [*PARTS, "reason"]
    shown["reason"] = table.reason.astype(object).fillna("")
    rows = shown[columns].astype(str).values.tolist()
    return as_markdown(columns, rows, "llrrl" + "r" * 7 + "l")


def floor() -> str:
    """Why a margin of that size is enough, from reports/margin_floor.csv."""
    table = pd.read_csv(HERE / "margin_floor.csv")
    least = table[["run", "margin"]]
    rows, ways = [], [name for name in table.columns if name not in ("run", "steps", "margin")]
    for way in ways:
        change = (table[way] - least.margin).abs()
        rows.append([way, len(table), f"{change.median():.3f}", f"{change.max():.3f}"])
    told = as_markdown(["weights", "models", "median change", "largest change"], rows, "lrrr")
    return (
        f"A margin of {FLOOR:g} logits means that the next best token is at least "
        f"{2.71828**FLOOR:.0f} times less likely. How far\nthe smallest margin of all windows "
        f"moves when every weight does (`python reports/margin_floor.py`):\n\n{told}"
    )


def main() -> None:
    table = pd.read_csv(HERE / "from_nothing.csv")
    lost = table[table.outcome != "certified"]
    PAGE.write_text(
        "# From nothing to a certificate\n\n"
        "Written by `python reports/from_nothing_page.py` from `reports/from_nothing.csv`, which\n"
        "`python reports/from_nothing.py FOLDER` makes: train, calibrate, retrain until it is\n"
        "certain, certify and verify, one thread. Seconds are processor time on a shared machine\n"
        f"of two cores. A retraining ends when no window's margin is below {FLOOR:g}. `right`:\n"
        "per cent of 1,000 random problems, the least of 50 and 1,000 digits (– if not asked).\n"
        "Twenty seeds of each task and all decoders are of this program, on a busy machine; the\n"
        "other rows are older, most of them of a machine half as fast. There, in seed 0 of\n"
        "addition in bases 2, 3 and 36 and some seeds of successor, a certificate was made again\n"
        "for its second look, which is 5 to 18 s more. An interrupted training has no time.\n"
        "A certificate may take 90 minutes in bases above 10, and elsewhere 15, the default of\n"
        "`abc certify`: addition in base 36, seeds 1 to 4, and N×1 in base 16, seed 4, need more.\n"
        "Before and now, "
        "side by side: [paired](from_nothing_paired.md).\n\n"
        f"{overview(table)}\n## Not certified\n\n"
        + (every(lost) if len(lost) else "None.\n")
        + f"\n## The floor of margins\n\n{floor()}\n## Every seed\n\n{every(table)}"
    )


if __name__ == "__main__":
    main()
