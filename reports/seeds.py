"""The default pipeline over seeds: medians, minima and times as Markdown, and the curves.

abc sweep reports/seeds.toml --out reports/seeds.csv
python reports/seeds.py
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from abc_calib.reporting import accuracy_curve, save_figure
from abc_calib.reporting.curves import looks
from abc_calib.reporting.style import TEXT_WIDTH, new_figure, styled
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
        series, single = curves(mine)
        longest = get_task(str(task)).train_length
        seeds = mine.seed.nunique()
        title = f"{task}: {f'medians and {seeds} seeds' if seeds > 1 else 'one seed'}"
        top = [name for name in series if name.startswith("calibrated")]
        figure = accuracy_curve(series, title=title, train_length=longest, single=single, top=top)
        for kind in ("png", "pdf"):
            save_figure(figure, HERE / "figures" / f"seeds-{task}.{kind}")
    save_figure(headline(rows[rows.task == "addition"]), HERE / "figures" / "headline.png")


def curves(rows: pd.DataFrame) -> tuple[dict[str, list], dict[str, list[list]]]:
    """Medians with the lowest and the highest seed, and the curve of each seed, by series."""
    medians, single = {}, {}
    for (stage, kind), part in rows.groupby(["stage", "set"], sort=False):
        found = part.groupby("length").accuracy.agg(["median", "min", "max"])
        medians[f"{stage}, {kind}"] = list(found.itertuples(name=None))
        single[f"{stage}, {kind}"] = [
            list(zip(one.length, one.accuracy, strict=True)) for _, one in part.groupby("seed")
        ]
    return medians, single


@styled
def headline(rows: pd.DataFrame) -> Figure:
    """What it is about, in five seconds: the worst seed, before and after calibration."""
    figure = new_figure(TEXT_WIDTH, 2.4)
    axes = figure.add_subplot()
    longest = get_task("addition").train_length
    axes.axvspan(1, longest, color="0.9", linewidth=0)
    axes.text(2.45, 50, "trained\non these", ha="center", va="center", fontsize=10, color="0.3")
    look = looks(["calibrated", "vanilla"])
    said = {"calibrated": ("after calibration: all right", 93), "vanilla": ("before: all wrong", 7)}
    for stage, (text, height) in said.items():
        worst = rows[rows.stage == stage].groupby("length").accuracy.min()
        colour, marker, _ = look[stage]
        axes.plot(
            worst.index, worst, color=colour, marker=marker, linewidth=2.5, markersize=6,
            clip_on=False, zorder=3,
        )  # fmt: skip
        where = 85 if stage == "calibrated" else 24
        side = "top" if stage == "calibrated" else "bottom"
        axes.text(where, height, text, color=colour, fontsize=12, ha="center", va=side)
    axes.set_xscale("log")
    ticks = [1, 6, 10, 20, 50, 100, 500, 1000]
    axes.set_xticks(ticks, [f"{x:,}" for x in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(1, 1000), ylim=(-3, 103), yticks=[0, 25, 50, 75, 100])
    axes.set_xlabel("digits of each number", fontsize=10)
    axes.set_ylabel("sums right (%)", fontsize=10)
    axes.tick_params(labelsize=9)
    seeds = rows.seed.nunique()
    axes.set_title(f"Adding two numbers: the worst of {seeds} seeds", fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
