"""Write reports/trust.md from what the scripts beside it have measured.

python reports/trust/page.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from abc_calib.text import as_markdown

HERE = Path(__file__).parent
PAGE = HERE.parent / "trust.md"


def counted(name: str, by: str, what: str) -> str:
    """A table: for each value of the column ``by``, how many rows have each value of ``what``."""
    table = pd.read_csv(HERE / name, keep_default_na=False).astype(str)
    counts = pd.crosstab(table[by], table[what], margins=True, margins_name="all")
    rows = [[name, *map(int, row)] for name, row in zip(counts.index, counts.values, strict=True)]
    columns = [by, *(f"{what}: {c}" if c in ("True", "False") else c for c in counts.columns)]
    return as_markdown(columns, rows, "l" + "r" * (len(columns) - 1))


def brute_force() -> str:
    tables = [pd.read_csv(HERE / f"brute_force-{kind}.csv") for kind in ("random", "trained")]
    table = pd.concat(tables)
    rows = []
    for kind, some in [*table.groupby("kind", sort=False), ("all", table)]:
        verdict = some.verdict.value_counts()
        false = (some.verdict == "certified") & (some.failed > 0)
        rows.append(
            [
                kind,
                len(some),
                *(int(verdict.get(name, 0)) for name in ("certified", "refuted", "unknown")),
                int(false.sum()),
                int((some.agrees.astype(str) == "False").sum()),
                f"{int(some.windows.sum()):,}",
                f"{int(some.tried.sum()):,}",
            ]
        )
    columns = ["models", "tried", "certified", "refuted", "undecided", "false certificates"]
    columns += ["disagreements", "windows", "sources run"]
    undecided = table[table.verdict == "unknown"].reason.fillna("no source found")
    reasons = undecided.str.split(":").str[0].value_counts()
    told = "; ".join(f"{count} {reason}" for reason, count in reasons.items())
    return as_markdown(columns, rows, "l" + "r" * 8) + f"\nUndecided: {told}.\n"


def twelve() -> str:
    table = pd.read_csv(HERE / "certificates.csv")
    rows = [
        [
            r.name, r.outcome, f"{r.windows:,}", f"{r.margin:.4g}", f"{r.rounding:.2g}",
            f"{r.certify:.0f}", f"{r.verify:.0f}", r.checked, f"{r.check:.0f}",
        ]
        for r in table.itertuples(index=False)
    ]  # fmt: skip
    columns = ["run", "verdict", "windows", "smallest margin", "rounding, at most", "certify, s"]
    columns += ["verify, s", "check.py", "check.py, s"]
    return as_markdown(columns, rows, "llrrrrrlr")


def sections() -> list[tuple[str, str, Any]]:
    """The title of each section, its text, and its table."""
    return [
        (
            "Certificates against brute force",
            "`python reports/trust/brute_force.py random 500` and `trained 500`: small models of "
            "five tasks in bases 2 and 3, with lines of every kind, several a head, or windows, "
            "with and without cyclic positions; random weights, or trained for 120 or 300 steps. "
            "Sources run: all of the widths that have at most 3,000, and 600 random and hard ones "
            "of 12, 30 and 80 digits. A disagreement is a false certificate or, of random models "
            "without columns that run against the rows, a smallest margin that the exported "
            "checker's method does not find too (relative difference 1e-6).",
            brute_force,
        ),
        (
            "Committed certificates, made again and checked by `check.py`",
            "`abc certify`, `abc verify` and `abc export certificate` on the runs of "
            "`abc prove TASK --seeds 3`; `check.py` with numpy alone, in a process of its "
            "own. Seconds on one thread, much other work beside.",
            twelve,
        ),
        (
            "Tampered certificates",
            "Every field of a certificate that is compared is changed in "
            "`tests/test_certification.py`, once as it is and once with its hash made to fit: all "
            "are refused. Every file of an export is changed: `check.py` refuses all seven, and a "
            "refuted model whose certificate is forged.",
            lambda: "",
        ),
        (
            "Hostile invocations",
            "`python reports/trust/invocations.py`.",
            lambda: counted("invocations.csv", "kind", "outcome"),
        ),
        (
            "Damaged files",
            "`python reports/trust/damaged.py`.",
            lambda: counted("damaged.csv", "command", "outcome"),
        ),
        (
            "Kills",
            "`python reports/trust/kills.py`: a signal at a random moment, then the command again. "
            "Fine: weights equal to those of an unbroken run byte for byte, no row lost, no orphan "
            "working, nothing left over.",
            lambda: counted("kills.csv", "command", "fine"),
        ),
    ]


def main() -> None:
    parts = [
        "# Trust",
        "What was done to make a certificate false, a run lie, a file or a kill lose something, or "
        "a command fall over; made by `python reports/trust/page.py` from the tables in "
        "[reports/trust/](trust/). On two shared cores.",
    ]
    for title, text, table in sections():
        try:
            parts += [f"## {title}", text, table()]
        except FileNotFoundError:
            continue  # not measured yet
    PAGE.write_text("\n\n".join(part.strip() for part in parts if part) + "\n")


if __name__ == "__main__":
    main()
