"""Families of rules from nothing to a certificate: reports/rules.csv and rules.md.

    python reports/rules.py run FOLDER [--seeds 3] [--only NAME ...]
    python reports/rules.py tags FOLDER
    python reports/rules.py page
    python reports/rules.py picture

A row is written as soon as a seed is done, and is not made again. ``tags`` runs the certified model
of UTM(4,6), seed 0, on tag systems: reports/tags.csv.
"""

from __future__ import annotations

import argparse
import csv
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle

import abc_calib as abc
from abc_calib.evaluation import exact_matches
from abc_calib.evaluation.predict import answered
from abc_calib.files import write_text
from abc_calib.text import as_markdown
from tasks import TaskError
from tasks.tag import UNIVERSAL, TagSystem

HERE = Path(__file__).parent
RESULTS = HERE / "rules.csv"
FIELDS = ["family", "seed", "outcome", "windows", "margin", "trained", "right", "longest"]
FIELDS += ["check", "seconds"]
TAGS = HERE / "tags.csv"
TAG_FIELDS = ["system", "word", "tag steps", "last word", "halts", "steps", "tokens", "right"]
NUMBERS = ("division", "mod", "gcd", "square_root", "power", "compare", "sort")
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mod:7": ("automaton", {"machine": "mod:7"}),
    "even_pairs": ("automaton", {"machine": "even_pairs"}),
    "cycle:5": ("automaton", {"machine": "cycle:5"}),
    "arithmetic_mod:5": ("automaton", {"machine": "arithmetic_mod:5"}),
    "s3": ("automaton", {"machine": "s3"}),
    "a5": ("automaton", {"machine": "a5"}),
    "s5": ("automaton", {"machine": "s5"}),
    "copy": ("copy", {}),
    "reverse_copy": ("reverse_copy", {}),
    "lookup": ("lookup", {}),
    "duplicate": ("duplicate", {}),
    "odds_first": ("odds_first", {}),
    "tape, Rule 110": ("tape", {"rule": "110"}),
    "tape, busy beaver of 4 states": ("tape", {"rule": "1RB1LB_1LA0LC_1RZ1LD_1RD0RA"}),
    "tape, UTM(4,6)": ("tape", {"rule": UNIVERSAL}),
    **{name: (name, {}) for name in NUMBERS},
    **{f"{name}, base 10": (name, {"base": 10}) for name in ("division", "mod")},
    "copy, decoder-only": ("copy", {"model": "decoder"}),
    "reverse_copy, decoder-only": ("reverse_copy", {"model": "decoder"}),
    "s5, decoder-only": ("automaton", {"machine": "s5", "model": "decoder"}),
}
FAR: dict[str, tuple[int, int, int]] = {
    **dict.fromkeys(("duplicate", "odds_first"), (1000, 1000, 10_000)),
    "tape, Rule 110": (100, 1000, 1000),
    "tape, busy beaver of 4 states": (30, 1000, 300),
    "tape, UTM(4,6)": (30, 1000, 1000),
    **dict.fromkeys(("division", "mod"), (100, 1000, 1000)),
    **dict.fromkeys(("division, base 10", "mod, base 10"), (100, 1000, 300)),
    "square_root": (100, 1000, 500),
    "gcd": (100, 1000, 300),
    "power": (1000, 1000, 100_000),
    "sort": (100, 1000, 1000),
}
"""Of outputs in rows: the length of so many sources, random and hard ones by halves, and of one."""
ONE_ROW = 1000, 1000, 1_000_000
STEP = 50
"""Sources at once."""
MOST = 20
"""Tag steps of a system, but for one."""
NUMERIC = ("tape", *NUMBERS)
"""Tasks on the page of machines."""


def ran(family: str, seed: int, folder: Path) -> dict[str, Any]:
    """One seed of a family, in this process."""
    torch.set_num_threads(1)
    task, options = FAMILIES[family]
    run, found = abc.certified(task, seed, folder=folder, progress=False, **options)
    seconds = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    row: dict[str, Any] = {"family": family, "seed": seed, "outcome": found.outcome}
    row |= {"windows": found.windows, "margin": found.margin, "seconds": round(seconds)}
    row["trained"] = f"{run.config.train.length} {run.task.unit}"
    row |= far(family, run)
    row["check"] = checked(run) if found.outcome == "certified" else ""
    return row


def far(family: str, run: Any) -> dict[str, str]:
    """Is the model right at sizes that it was not trained on?"""
    data, model = run.data, run.load_model()
    wide, count, longest = FAR.get(family, ONE_ROW)
    parts = (
        data.test(wide, min(STEP, count // 2 - start), kind, seed=1 + start)
        for kind in ("random", "hard")
        for start in range(0, count // 2, STEP)
    )
    right = sum(int(exact_matches(model, part).sum()) for part in parts)
    fine = bool(exact_matches(model, data.test(longest, 1, seed=2)).all())
    return {
        "right": f"{right} of {count} at {wide}",
        "longest": f"{longest:,}: {'right' if fine else 'wrong'}",
    }


def checked(run: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        made = abc.export(run, Path(folder) / "made")
        told = subprocess.run([sys.executable, made / "check.py"], capture_output=True, text=True)
        return (told.stdout or told.stderr).split(":")[0]


def known(path: Path = RESULTS) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def run_all(folder: Path, seeds: int, only: list[str]) -> None:
    for seed in range(seeds):
        for family in only or FAMILIES:
            if any(r["family"] == family and r["seed"] == str(seed) for r in known()):
                continue
            one = [sys.executable, __file__, "one", str(folder), family, str(seed)]
            subprocess.run(one, check=False)


def one(folder: Path, family: str, seed: int) -> None:
    row = ran(family, seed, folder)
    keep([*known(), row])


def keep(rows: list[dict[str, Any]], to: Path = RESULTS, fields: Sequence[str] = FIELDS) -> None:
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "rows.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fields)
            writer.writeheader()
            writer.writerows(rows)
        write_text(to, path.read_text())


def systems() -> Iterator[tuple[TagSystem, str, int]]:
    """Tag systems with a word and how many tag steps at most: by hand, at random, and Collatz."""
    yield TagSystem({"a": "aa"}), "aaH", MOST
    rng = random.Random(0)
    for kind, count, least in ((TagSystem, 3, 6), (TagSystem.padded, 2, 5)):
        found = 0
        while found < count:
            letters = "abc"[: rng.randint(2, 3)]
            made = {x: "".join(rng.choices(letters + "H", k=rng.randint(0, 3))) for x in letters}
            word = "".join(rng.choices(letters, k=rng.randint(3, 6)))
            with suppress(TaskError):  # not a system that the tape takes, or too many steps
                system = kind(made)
                words = [*islice(system.run(word), MOST)]
                padded = "D" in "".join(words)
                if not least <= len(words) == len({*words}) or padded != (kind is not TagSystem):
                    continue
                if int(system.encode(word, MOST).split()[0]) < 30_000:
                    found += 1
                    yield system, word, MOST
    yield TagSystem.padded({"c": "aaa", "a": "bc", "b": "a"}), "aaa", 10


def tags(folder: Path) -> None:
    """Is every word right that the certified model writes?"""
    torch.set_num_threads(1)
    task, options = FAMILIES["tape, UTM(4,6)"]
    run, found = abc.certified(task, 0, folder=folder, progress=False, **options)
    assert found.outcome == "certified", found.reason
    model, rows = run.load_model().frozen(), list[dict[str, Any]]()
    for system, word, most in systems():
        source = system.encode(word, most)
        answer = answered(model, run.data, source)
        target, output = answer.batch.target[0], answer.symbols(run.data)
        same = int((answer.decoded.ids[0] == target).sum())
        words, right = system.words(output), [*islice(system.run(word), most)]
        made = ", ".join(f"{x} -> {y}" for x, y in system.productions.items())
        row: dict[str, Any] = {"system": made, "word": word, "tag steps": len(right)}
        row |= {"last word": right[-1], "halts": "yes" if "!" in " ".join(output) else "no"}
        row |= {"steps": source.split()[0], "tokens": len(target)}
        row["right"] = "all" if words == right and same == len(target) else f"{same} tokens"
        rows.append(row)
        keep(rows, TAGS, TAG_FIELDS)


def page() -> None:
    """Both pages, whose text stands around the tables in ``*_page.txt``."""
    order = {name: k for k, name in enumerate(FAMILIES)}
    rows = sorted(known(), key=lambda r: (order[r["family"]], int(r["seed"])))
    runs = known(TAGS)
    many = {name: sum(int(r[name]) for r in runs) for name in ("tag steps", "steps", "tokens")}
    cells = [[f"{int(r[n]):,}" if n in many else r[n] for n in TAG_FIELDS] for r in runs]
    of_tags = {
        "tags": as_markdown(TAG_FIELDS, cells, "llrllrrl").rstrip(),
        "right": sum(r["right"] == "all" for r in runs),
        "runs": len(runs),
        "words": f"{many['tag steps']:,}",
        "tokens": f"{many['tokens']:,}",
    }
    for name in ("rules", "machines"):
        some = [r for r in rows if (r["family"].split(",")[0] in NUMERIC) == (name == "machines")]
        cells = [[f"{int(r[n]):,}" if n == "windows" else r[n] for n in FIELDS] for r in some]
        text = (HERE / f"{name}_page.txt").read_text()
        made = text.format(table=as_markdown(FIELDS, cells, "lrlrrlrrlr").rstrip(), **of_tags)
        write_text(HERE / f"{name}.md", made)


def picture(cells: int = 60) -> None:
    """Rows of Rule 110, the latest at the bottom, as a model of the zoo writes them."""
    source = f"{cells} : {'0 ' * (cells - 1)}1"
    answer = abc.predict("zoo:rule110", source)
    assert answer.correct, "the model is wrong"
    rows = [source.split()[2:], *(row.split() for row in " ".join(answer.output[:-1]).split("|"))]
    figure, axes = plt.subplots(figsize=(3.25, 3.25))
    axes.imshow([[int(cell) for cell in row] for row in rows], cmap="Greys", interpolation="none")
    box = Rectangle((cells - 8.5, -0.5), 8, 8, fill=False, edgecolor="C3", linewidth=1)
    axes.add_patch(box)
    axes.set(xlabel="cell", ylabel="step")
    axes.text(cells - 9.5, 3.5, "training size", color="C3", ha="right", va="center", fontsize=8)
    for kind in ("png", "pdf"):
        figure.savefig(HERE / "figures" / f"rule-110.{kind}", dpi=200, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "one", "tags", "page", "picture"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("family", nargs="?")
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    if given.what == "page":
        page()
    elif given.what == "picture":
        picture()
    elif given.what == "tags":
        tags(given.folder)
    elif given.what == "one":
        one(given.folder, given.family, given.seed)
    else:
        run_all(given.folder, given.seeds, given.only)


if __name__ == "__main__":
    main()
