"""Gather the certificates of ``abc prove TASK --seeds 3`` in one table.

    python reports/certificates.py runs/certified

Copies each calibrated (or repaired) run's certificate and page to reports/certificates/.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import abc_calib as abc
from abc_calib.text import Markup, as_markdown
from tasks import TASKS

HERE = Path(__file__).parent
FOLDER = HERE / "certificates"
COLUMNS = [
    *("task", "seed", "digits", "verdict", "windows", "smallest margin", "rounding, at most"),
    *("dense", "train", "retrain", "certify"),
]


def rows(root: Path) -> list[list[Any]]:
    """Its run's numbers next to each certificate, task by task."""
    found = []
    for path in sorted(root.glob("*-seed*/certificate.json")):
        name = path.parent.name
        repaired = root / name.replace("calibrated", "repaired") / "certificate.json"
        if repaired != path and repaired.exists():
            continue
        c = json.loads(path.read_text())
        run = abc.Run.open(path.parent)
        vanilla = abc.Run.open(root / f"{name.rsplit('-', 1)[0]}-vanilla")
        for kind in ("json", "md"):
            shutil.copyfile(path.with_suffix(f".{kind}"), FOLDER / f"{name}.{kind}")
        seen = c["verified"] or {}
        assert vanilla.result and run.result
        trained, retrained = vanilla.result["seconds"], run.result["seconds"]
        row = [
            Markup(f"[{c['task']}](certificates/{name}.md)"),
            run.config.train.seed,
            c["train_length"],
            c["outcome"],
            f"{c['windows']:,}",
            f"{c['margin']:.2f}",
            f"{c['rounding']:.1g}",
            seen.get("smallest_margin", "–"),
            f"{trained:.0f}",
            f"{retrained:.0f}",
            f"{c['seconds']:.0f}",
        ]
        found.append((list(TASKS).index(c["task"]), row))
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    FOLDER.mkdir(exist_ok=True)
    text = (
        "# Certificates\n\nMade by `abc prove TASK --seeds 3` for each task, `quick` preset with "
        "one encoder layer, then `python reports/certificates.py runs/certified`. A row is one "
        "model, trained on numbers of at most the given digits; *certified* means right for every "
        "source of every length. Margins are logits; *dense* is the smallest margin that the "
        "second look by dense attention saw; seconds are of the first training, the retraining "
        "and the certificate.\n\n"
        + as_markdown(COLUMNS, rows(parser.parse_args().root), "lrrlrrrrrrr")
    )
    (HERE / "certificates.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
