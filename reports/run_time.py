"""How long the committed reproductions took, from the seconds in their own results.

    python reports/run_time.py

A training that several tables share counts for the first of them alone. Seconds are the wall
clock's, one process a core with one thread each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from abc_calib.text import Markup, as_markdown

HERE = Path(__file__).parent
ORDER = ("table1", "table2", "table3", "figure1", "reviewers", "attenders-table2")
"""Counted first, in this order; then the rest by name."""
COLUMNS = [
    *("target", "trainings", "ended early", "hours of training", "longest training (minutes)"),
    "hours of tests",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "reproduction")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    sweeps = [HERE / "batches.csv", HERE / "paper_schedule.csv"]
    table = summary([*options.results.glob("*-seeds.csv"), *sweeps])
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "run_time.md").write_text(page(table))
    print(table.to_string(index=False))


def summary(paths: list[Path]) -> pd.DataFrame:
    """A row for each file of results, its trainings and tests counted once."""
    files = {path.stem.removesuffix("-seeds"): path for path in paths}
    names = [*(n for n in ORDER if n in files), *sorted(set(files) - set(ORDER))]
    trained: set[str] = set()
    tested: set[tuple[str, str, int]] = set()
    rows = []
    for name in names:
        results = pd.read_csv(files[name], low_memory=False).dropna(subset=["key", "length"])
        models = results.drop_duplicates("key")
        models = models[~models["key"].isin(trained)]
        tests = results.drop_duplicates(["key", "set", "length"])
        places = list(zip(tests["key"], tests["set"], tests["length"], strict=True))
        tests = tests[[place not in tested for place in places]]
        trained |= set(models["key"])
        tested |= set(places)
        rows.append(
            {
                "target": name,
                "trainings": len(models),
                "training": models["train_seconds"].sum() / 3600,
                "longest": models["train_seconds"].max() / 60 if len(models) else 0.0,
                "early": int((models["steps_taken"] < models["steps"]).sum()),
                "tests": tests["seconds"].sum() / 3600,
            }
        )
    return pd.DataFrame(rows)


def page(table: pd.DataFrame) -> str:
    """The table as Markdown, with its sum."""
    rows = []
    for row in table.to_dict("records"):
        longest = f"{row['longest']:.1f}" if row["trainings"] else "–"
        hours = [f"{row['training']:.2f}", longest, f"{row['tests']:.2f}"]
        rows.append([Markup(row["target"]), row["trainings"], row["early"], *hours])
    total = table.sum(numeric_only=True)
    hours = [f"{total.training:.2f}", f"{table['longest'].max():.1f}", f"{total.tests:.2f}"]
    rows.append([Markup("**all**"), int(total.trainings), int(total.early), *hours])
    both = total.training + total.tests
    return (
        "# How long the reproductions took\n\n"
        "Made by `python reports/run_time.py` from the seconds in the committed results: wall "
        "time of processes of one thread, two at a time on two cores that other work shared. A "
        "training that several targets share counts for the first of them alone.\n\n"
        "It fits two cores because a model is trained once for all tables that name it; because a "
        "training saves itself as it goes, and `abc reproduce TARGET`, interrupted, goes on with "
        "what is missing; and because trainings end when nothing is left to learn, or nothing is "
        "learned any more. Recurrent models have the preset `small`, the same for all attenders of "
        "a table: at most 20 passes (the papers: 100 and 50, `--preset paper`), an end after five "
        "validations without a mistake, and another when the rate has been halved three times. "
        "`paper_schedule` is four of them again on the papers' schedule.\n\n"
        + as_markdown(COLUMNS, rows, "lrrrrr")
        + f"\nTogether {both:.1f} hours of one core, {both / 2:.1f} hours on two.\n"
    )


if __name__ == "__main__":
    main()
