"""What the papers' authors ran, and what it gives here: writes published.md from its tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from abc_calib.reproduction import TARGETS, Target, load_results
from abc_calib.reproduction.cells import AGREES, BETTER, DIFFERS, MEASURES, make_cells
from abc_calib.text import Markup, as_markdown

HERE = Path(__file__).parent / "published"
RESULTS = HERE.parent / "reproduction"
COLUMNS = [
    *("table", "preset", "models run", "seeds", "problems per length", "numbers compared"),
    *("reproduced", "better", "worse", "baseline better"),
]


def addition(padded: int) -> str:
    """Rows of what was tested, random problems first, by what the retraining was."""
    table = pd.read_csv(HERE / f"addition-{padded}.csv")
    sets = sorted({*table["set"]}, reverse=True)
    cells = table.pivot_table(index=["retraining", "length"], columns="set", values="accuracy")
    cells["cell"] = [" / ".join(f"{x:g}" for x in row) for row in cells[sets].to_numpy()]
    wide = cells["cell"].unstack("length").fillna("–")
    rows = [[name, *row] for name, row in zip(wide.index, wide.to_numpy().tolist(), strict=True)]
    return as_markdown(["retraining", *map(str, wide.columns)], rows, "l" + "r" * len(wide.columns))


def span(numbers: pd.Series) -> str:
    """The least and the largest of them."""
    least, most = numbers.min(), numbers.max()
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def summary(target: Target) -> list[object]:
    """A row of the table of all targets: protocol, seeds, samples and verdicts."""
    presets = sorted({entry.job.preset for entry in target.entries()})
    if not (RESULTS / f"{target.name}-seeds.csv").exists():
        measured = f"0 of {len(target.places)}"
        return [Markup(f"`{target.name}`"), ", ".join(presets), measured, *["–"] * 7]
    cells = make_cells(target, load_results(target.name))
    ours, compared = cells[cells["seeds"] > 0], cells[cells["verdict"] != ""]
    lower = [MEASURES[name].lower_is_better for name in compared["measure"]]
    verdicts = compared["verdict"].mask(
        (compared["verdict"] == DIFFERS) & ((compared["median"] < compared["paper"]) == lower),
        "baseline better",
    )
    places = {*zip(ours["task"], ours["row"], strict=True)} & target.places.keys()
    return [
        Markup(f"[`{target.name}`](reproduction/{target.name}.md)"),
        ", ".join(presets),
        f"{len(places)} of {len(target.places)}",
        span(ours["seeds"]),
        span(ours["n"]),
        len(compared),
        *(int((verdicts == x).sum()) for x in (AGREES, BETTER, DIFFERS, "baseline better")),
    ]


def main() -> None:
    text = (HERE / "page.txt").read_text()
    papers = [target for target in TARGETS.values() if target.numbers]
    text = text.replace("{targets}", as_markdown(COLUMNS, [*map(summary, papers)]).strip())
    text = text.replace("{addition-20}", addition(20).strip())
    HERE.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
