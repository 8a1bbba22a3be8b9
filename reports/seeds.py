"""The default pipeline over seeds: medians, minima and times as Markdown, and the curves.

abc sweep reports/seeds.toml --out reports/seeds.csv
python reports/seeds.py
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from abc_calib.reporting import accuracy_curve, save_figure
from abc_calib.text import as_markdown
from tasks import get_task

HERE = Path(__file__).parent
LENGTHS = (6, 10, 20, 50, 100, 1000)


def report(rows: pd.DataFrame) -> str:
    """The medians and minima over seeds, and the times."""
    lines = []
    for (task, stage, kind), part in rows.groupby(["task", "stage", "set"], sort=False):
        cells = [task, stage, kind, part.seed.nunique()]
        for length in LENGTHS:
            found = part[part.length == length].accuracy
            whole = len(found) == part.seed.nunique()
            cells.append(f"{found.median():g} / {found.min():g}" if whole else None)
        lines.append(cells)
    columns = ["task", "model", "inputs", "seeds", *map(str, LENGTHS)]
    times = [
        [task, stage, f"{part.median():.0f}", f"{part.min():.0f}", f"{part.max():.0f}"]
        for (task, stage), part in rows.groupby(["task", "stage"], sort=False).train_seconds
    ]
    # rows of a sweep have a key, and count the retraining alone
    timed = "retraining" if "key" in rows else "calibration with its checks and retraining"
    return (
        "# The default pipeline over seeds\n\nMade by `python reports/seeds.py`; rows in "
        "[seeds.csv](seeds.csv). Exact match in percent, median / minimum over seeds; columns "
        f"are digits of an operand. {samples(rows)}\n\n"
        + as_markdown(columns, lines)
        + "\nTime in seconds, one thread a job, two jobs on two shared cores: training for the "
        f"vanilla rows, {timed} for the calibrated ones.\n\n"
        + as_markdown(["task", "model", "median", "minimum", "maximum"], times)
    )


def samples(rows: pd.DataFrame) -> str:
    """How many, and from which length on fewer."""
    most, least = int(rows.n.max()), int(rows.n.min())
    text = f"{most:,} samples a length, seed and kind of input"
    if least == most:
        return f"{text}."
    long = rows[(rows.stage == "calibrated") & (rows.n == least)].length.min()
    short = rows[(rows.stage == "vanilla") & (rows.n == most)].length.max()
    return f"{text}; {least:,} from {long} digits on and for the vanilla model beyond {short}."


def main() -> None:
    rows = pd.read_csv(HERE / "seeds.csv").dropna(subset="length").astype({"length": int})
    (HERE / "seeds.md").write_text(report(rows))
    (HERE / "figures").mkdir(exist_ok=True)
    for task, mine in rows.groupby("task"):
        series = {
            f"{stage}, {kind}": list(
                part.groupby("length").accuracy.agg(["median", "min", "max"]).itertuples(name=None)
            )
            for (stage, kind), part in mine.groupby(["stage", "set"], sort=False)
        }
        longest = get_task(str(task)).train_length
        title = f"{task}: median and range of {mine.seed.nunique()} seeds"
        figure = accuracy_curve(series, title=title, train_length=longest)
        for kind in ("png", "pdf"):
            save_figure(figure, HERE / "figures" / f"seeds-{task}.{kind}")


if __name__ == "__main__":
    main()
