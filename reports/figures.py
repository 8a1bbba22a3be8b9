"""The committed figures, drawn again.

    python reports/figures.py                       # from the committed rows
    python reports/figures.py --models FOLDER       # also figures 3, 4, 7 and 8 of Duan & Shi
    python reports/figures.py --lines RUN OUT.png   # the lines of a calibrated addition alone

The committed rows are those of the reproductions, of the default models over seeds (with their page
seeds.md; ``python reports/certified.py recipe`` makes the rows), of products by size, and the
headline. FOLDER holds the runs of ``abc prove successor|addition|multiplication``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from abc_calib.evaluation.metrics import wilson_interval
from abc_calib.reporting.curves import accuracy_curve, looks
from abc_calib.reporting.style import (
    LABEL_SIZE,
    PALETTE,
    SMALL,
    TEXT_WIDTH,
    new_figure,
    save_figures,
    styled,
)
from abc_calib.reporting.views import averaged
from abc_calib.reproduction import TARGETS, load_results, make_report
from abc_calib.reproduction.pipeline import DRAWN, drawn
from abc_calib.runs import Run
from abc_calib.runs.run import STAGES
from abc_calib.text import as_markdown
from tasks import get_task

HERE = Path(__file__).parent
FIGURES = HERE / "figures"
BOTH = ("pdf", "png")
LENGTHS = (6, 10, 20, 50, 100, 1000)
COLOURS = {"first": PALETTE[1], "second": PALETTE[0]}
"""Of the line through each number."""


def report(rows: pd.DataFrame, recipe: pd.DataFrame) -> str:
    """The page of the default models: medians and minima over seeds, certificates and times."""
    right = []
    for (task, stage, kind), part in rows.groupby(["task", "stage", "set"], sort=False):
        by_length = part.groupby("length").accuracy.agg(["median", "min"])
        cells = [f"{median:g} / {least:g}" for median, least in by_length.values]
        right.append([task, stage, kind, part.seed.nunique(), *cells])
    columns = ["task", "calibration", "inputs", "seeds", *map(str, LENGTHS)]
    proven = []
    for task, part in recipe.groupby("task", sort=False):
        times = part[["first", "calibrate", "certify", "total"]]
        cells = [
            f"{median:.0f} / {most:.0f}" for median, most in times.agg(["median", "max"]).T.values
        ]
        certified = part[part.outcome == "certified"]
        margin = [f"{certified.windows.max():,.0f}", f"{certified.margin.min():.2f}"]
        proven.append([task, f"{len(certified)} of {len(part)}", *margin, *cells])
    names = ["task", "certified", "windows, most", "margin, least"]
    names += ["first training", "calibration", "certificate", "in all"]
    tables = {"right": as_markdown(columns, right), "proven": as_markdown(names, proven)}
    return (HERE / "seeds_page.txt").read_text().format(**tables)


def pipeline(rows: pd.DataFrame, task: str) -> Figure:
    """Medians with the lowest and the highest seed, and the curve of each seed, by series."""
    series, single = {}, {}
    for (stage, kind), part in rows.groupby(["stage", "set"], sort=False):
        found = part.groupby("length").accuracy.agg(["median", "min", "max"])
        name = f"{stage} calibration, {kind}"
        series[name] = list(found.itertuples(name=None))
        single[name] = [
            list(zip(one.length, one.accuracy, strict=True)) for _, one in part.groupby("seed")
        ]
    seeds = rows.seed.nunique()
    name = get_task(task).title or task
    return accuracy_curve(
        series,
        title=f"{name}: {f'medians of {seeds} seeds' if seeds > 1 else 'one seed'}",
        train_length=get_task(task).train_length,
        single=single,
        top=[name for name in series if name.startswith("after")],
    )


@styled
def headline(rows: pd.DataFrame) -> Figure:
    """The worst seed of addition, before and after calibration."""
    figure = new_figure(TEXT_WIDTH, 2.4)
    axes = figure.add_subplot()
    axes.axvspan(1, get_task("addition").train_length, color="0.9", linewidth=0)
    axes.text(2.45, 50, "trained\non these", ha="center", va="center", fontsize=10, color="0.3")
    look = looks(list(STAGES.values()))
    for stage, text, x, y, side in (
        ("after", "after calibration: all right", 85, 93, "top"),
        ("before", "before: all wrong", 24, 7, "bottom"),
    ):
        worst = rows[rows.stage == stage].groupby("length").accuracy.min()
        colour, marker, _ = look[f"{stage} calibration"]
        style: Any = {"linewidth": 2.5, "markersize": 6, "clip_on": False, "zorder": 3}
        axes.plot(worst.index, worst, color=colour, marker=marker, **style)
        axes.text(x, y, text, color=colour, fontsize=12, ha="center", va=side)
    axes.set_xscale("log")
    ticks = [1, *LENGTHS]
    axes.set_xticks(ticks, [f"{x:,}" for x in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(1, 1000), ylim=(-3, 103), yticks=[0, 25, 50, 75, 100])
    axes.set_xlabel("digits of each number", fontsize=10)
    axes.set_ylabel("sums right (%)", fontsize=10)
    axes.tick_params(labelsize=9)
    title = f"Adding two numbers: the worst of {rows.seed.nunique()} seeds"
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def products() -> Figure:
    """Products of two numbers of equally many digits, seed 0."""
    table = pd.read_csv(HERE / "rows.csv")
    some = table[(table.task == "long_multiplication") & (table.seed == 0)]
    square = some[some["length"] == some["rows"]].sort_values("length")
    series: dict[str, list[Any]] = {}
    for stage, name in (("calibrated", "after calibration"), ("vanilla", "before calibration")):
        each: Any = square[square.stage == stage].itertuples()
        for row in each:
            bounds = [100 * x for x in wilson_interval(int(row.correct), int(row.n))]
            series.setdefault(name, []).append((row.length, row.accuracy, *bounds))
    how: dict[str, Any] = {"title": "Long multiplication", "unit": "digits of both numbers"}
    return accuracy_curve(series, train_length=4, top=("after calibration",), **how)


@styled
def lines(run: Run) -> Figure:
    """Attention, the lines that were found in it, and the same lines at 20 digits.

    Of the last layer's cross-attention, averaged over heads.
    """
    arrays = averaged(run, 20)["cross"].arrays
    parts = np.array([line.segment - 1 for (line,) in run.bias().sites["cross"][-1]])
    figure = new_figure(TEXT_WIDTH, 2.45)
    panels = figure.subplots(1, 3)
    near, far = ((arrays[f"{n}row_labels"], arrays[f"{n}key_labels"]) for n in ("", "bias_"))
    panel(panels[0], "1. Attention, trained\non at most 6 digits", *near)
    shade(panels[0], arrays["attention"][-1].mean(0), "black")
    panel(panels[1], "2. The lines\nfound in it", *near)
    panel(panels[2], "3. The same lines\nat 20 digits", *far)
    for part, colour in enumerate(COLOURS.values()):
        shade(panels[1], arrays["fit"][-1][parts == part].max(0) > 0, colour)
        shade(panels[2], (arrays["bias"][-1][parts == part] == 0).any(0), colour)
    panels[0].set_ylabel("digit of the sum that is written", fontsize=SMALL)
    handles = [Patch(color=c, label=f"reads the {name} number") for name, c in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower right", ncols=2, handlelength=0.8)
    return figure


def shade(axes: Axes, values: np.ndarray, colour: str) -> None:
    """Cells ``(i, j)`` from clear to the colour, which the largest value has."""
    clear = ListedColormap([to_rgba(colour, alpha) for alpha in np.linspace(0, 1, 256)])
    shown = values / values.max()
    axes.imshow(shown, cmap=clear, vmin=0, vmax=1, aspect="auto", interpolation="nearest")


def panel(axes: Axes, title: str, rows: np.ndarray, keys: np.ndarray) -> None:
    """Names of the axes: delimiters and the two numbers, and where writing begins and ends."""
    marks = [i for i, key in enumerate(keys) if not key[-1].isdigit()]
    middles = [(a + b) / 2 for a, b in pairwise(marks)]
    names = [*(keys[i] for i in marks), "first number", "second number"]
    axes.set_title(title, fontsize=LABEL_SIZE)
    axes.set_xticks([*marks, *middles], names, fontsize=SMALL)
    axes.tick_params(length=0)
    axes.set_yticks([0, len(rows) - 1], ["units", "end"])
    for i in marks:
        axes.axvline(i, color="0.85", linewidth=0.5, zorder=-1)


def draw_committed() -> None:
    """Draw what the committed rows hold."""
    rows, recipe = pd.read_csv(HERE / "seeds.csv"), pd.read_csv(HERE / "recipe.csv")
    recipe = recipe[recipe.task.isin(rows.task)]
    (HERE / "seeds.md").write_text(report(rows, recipe))
    for task, part in rows.groupby("task"):
        save_figures(pipeline(part, str(task)), FIGURES / f"seeds-{task}", BOTH)
    save_figures(headline(rows[rows.task == "addition"]), FIGURES / "headline", ("png",))
    save_figures(products(), FIGURES / "long-multiplication-sizes", BOTH)
    for name, target in TARGETS.items():
        if (HERE / "reproduction" / f"{name}-seeds.csv").is_file():
            for stem, figure in make_report(target, load_results(name)).figures.items():
                save_figures(figure, HERE / "reproduction" / stem, BOTH)


def draw_models(folder: Path) -> None:
    """Draw the figures of Duan & Shi from runs in a folder."""
    for name in DRAWN:
        save_figures(drawn(name, folder), FIGURES / f"paper-{name}", BOTH)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, metavar="FOLDER")
    parser.add_argument("--lines", nargs=2, type=Path, metavar=("RUN", "OUT.png"))
    options = parser.parse_args(arguments)
    if options.lines:
        run, out = options.lines
        if out.suffix != ".png":
            parser.error(f"{out}: name a file that ends with .png")
        save_figures(lines(Run.open(run)), out.with_suffix(""), ("png",))
        return
    if options.models and not options.models.is_dir():
        parser.error(f"there is no folder {options.models}")
    draw_committed()
    if options.models:
        draw_models(options.models)


if __name__ == "__main__":
    main()
