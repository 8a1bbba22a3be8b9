"""Certificates over seeds and rules: the rows, and their pages.

    python reports/certified.py recipe FOLDER [--only addition] [--seeds 0-2]
    python reports/certified.py rules FOLDER [--only "tape, Rule 110"] [--seeds 0-2]
    python reports/certified.py pages

``recipe`` adds to recipe.csv, for each task with a rule, made by the three commands with no option
but which task it is, and for small models with those of ``SMALL``; of ``ARITHMETIC`` it also adds
to seeds.csv how many problems are right before and after calibration. ``rules`` adds to rules.csv,
for each family of rules. Rows that are there are not made again. ``--only``: rows with all of these
words. Processes of different rows may run at the same time. Then come the pages recipe.md,
rules.md and machines.md, whose text is in ``*_page.txt``. Each row is made in a process of one
thread. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import abc_calib as abc
from abc_calib.errors import AbcError
from abc_calib.evaluation import exact_matches
from abc_calib.text import as_markdown
from tasks import ARITHMETIC
from tasks.tape import UNIVERSAL

HERE = Path(__file__).parent
LENGTHS, SAMPLES = [6, 10, 20, 50, 100, 1000], {"before": 100, "after": 1000}
"""Of seeds.csv: ``SAMPLES`` of each length, random ones and as many with long carries."""
NUMBERS = ("division", "mod", "gcd", "square_root", "power", "compare", "sort")
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        machine: ("automaton", {"machine": machine})
        for machine in ("mod:7", "even_pairs", "cycle:5", "arithmetic_mod:5", "s3", "a5", "s5")
    },
    **{name: (name, {}) for name in ("copy", "reverse_copy", "lookup", "duplicate", "odds_first")},
    "tape, Rule 110": ("tape", {"rule": "110"}),
    "tape, busy beaver of 4 states": ("tape", {"rule": "1RB1LB_1LA0LC_1RZ1LD_1RD0RA"}),
    "tape, UTM(4,6)": ("tape", {"rule": UNIVERSAL}),
    **{name: (name, {}) for name in NUMBERS},
    **{f"{name}, base 10": (name, {"base": 10}) for name in ("division", "mod")},
    "copy, decoder-only": ("copy", {"model": "decoder"}),
    "reverse_copy, decoder-only": ("reverse_copy", {"model": "decoder"}),
    "s5, decoder-only": ("automaton", {"machine": "s5", "model": "decoder"}),
}
RECIPE: dict[str, tuple[str, dict[str, Any]]] = {
    **FAMILIES,
    **{name: (name, {}) for name in ARITHMETIC},
    **{f"addition, base {base}": ("addition", {"base": base}) for base in (2, 16, 36)},
    **{f"{name}, decoder-only": (name, {"model": "decoder"}) for name in ("successor", "addition")},
    "sum, base 2": ("sum", {"base": 2}),
    "product, base 2": ("long_multiplication", {"base": 2}),
    "product": ("long_multiplication", {}),
    "sum": ("sum", {}),
}
SMALL: dict[str, dict[str, Any]] = {
    f"{task}, small, {wide} wide": {"threshold": 0.3, "decoder_layers": 1, "width": 8}
    | {"feedforward": wide, "steps": 12_000}
    for task in ("addition", "addition, base 2", "successor", "parity")
    for wide in (8, 20)
}
"""Options of the calibration of decoder-only models: ``wide`` is the feed-forward width."""
for task in SMALL:
    name, options = RECIPE[task.partition(", small")[0]]
    RECIPE[task] = name, options | {"model": "decoder"}
FAR: dict[str, tuple[int, int, int]] = {
    **dict.fromkeys(("duplicate", "odds_first"), (1000, 1000, 10_000)),
    "tape, Rule 110": (100, 1000, 1000),
    "tape, busy beaver of 4 states": (30, 1000, 300),
    "tape, UTM(4,6)": (30, 1000, 1000),
    **dict.fromkeys(("division", "mod", "sort"), (100, 1000, 1000)),
    **dict.fromkeys(("division, base 10", "mod, base 10", "gcd"), (100, 1000, 300)),
    "square_root": (100, 1000, 500),
    "power": (1000, 1000, 100_000),
}
"""Of outputs in rows: the length of so many sources, random and hard ones by halves, and of one."""
ONE_ROW = 1000, 1000, 1_000_000
STEP = 50
"""Sources at once."""
FIELDS = {
    "rules": [
        *("family", "seed", "outcome", "windows", "margin", "trained", "right", "longest"),
        *("check", "seconds"),
    ],
    "recipe": [
        *("task", "seed", "outcome", "windows", "margin", "parameters", "first", "calibrate"),
        *("certify", "total", "reason"),
    ],
    "seeds": ["task", "seed", "stage", "set", "length", "n", "correct", "accuracy"],
}
"""Of a row: first the place that it is of."""
FILES = {kind: HERE / f"{kind}.csv" for kind in ("rules", "recipe")}
Place = dict[str, Any]


def plan(kind: str) -> Iterator[Place]:
    """Every row of 20 seeds."""
    name, rows = ("family", FAMILIES) if kind == "rules" else ("task", RECIPE)
    for seed in range(20):
        yield from ({name: row, "seed": seed} for row in rows)


def of_rules(folder: Path, family: str, seed: int) -> dict[str, Any]:
    """``right``, ``longest``: is the model right at sizes that it was not trained on?"""
    task, options = FAMILIES[family]
    run, made = abc.certified(task, seed, folder=folder, progress=False, **options)
    row: dict[str, Any] = {"outcome": made.outcome, "windows": made.windows, "margin": made.margin}
    row |= {"trained": f"{run.config.train.length} {run.task.unit}", "check": ""}
    row["seconds"] = round(time.process_time())
    data, model = run.data, run.load_model()
    wide, count, longest = FAR.get(family, ONE_ROW)
    parts = (
        data.test(wide, min(STEP, count // 2 - start), kind, seed=1 + start)
        for kind in ("random", "hard")
        for start in range(0, count // 2, STEP)
    )
    right = sum(int(exact_matches(model, part).sum()) for part in parts)
    fine = bool(exact_matches(model, data.test(longest, 1, seed=2)).all())
    row["right"] = f"{right} of {count} at {wide}"
    row["longest"] = f"{longest:,}: {'right' if fine else 'wrong'}"
    if made.outcome == "certified":
        with tempfile.TemporaryDirectory() as made_in:
            check = abc.export(run, Path(made_in) / "made") / "check.py"
            told = subprocess.run([sys.executable, check], capture_output=True, text=True)
        row["check"] = (told.stdout or told.stderr).split(":")[0]
    return row


def of_recipe(folder: Path, task: str, seed: int) -> dict[str, Any]:
    """Train, calibrate and certify as somebody who types no option; processor seconds of each."""
    name, options = RECIPE[task]
    stem = folder / f"{task.replace(', ', '-').replace(' ', '-')}-seed{seed}"
    row: dict[str, Any] = {"outcome": "failed"}
    before = time.process_time()
    try:
        run = abc.train(name, seed=seed, out=f"{stem}-first", progress=False, **options)
        row["first"], before = round(time.process_time() - before), time.process_time()
        run = abc.calibrate(run, out=f"{stem}-calibrated", progress=False, **SMALL.get(task, {}))
        row["calibrate"], before = round(time.process_time() - before), time.process_time()
        row["parameters"] = sum(weight.numel() for weight in run.load_model().parameters())
        made = abc.certify(run)
        row |= {"outcome": made.outcome, "windows": made.windows, "margin": made.margin}
        row["reason"] = "" if made.outcome == "certified" else made.reason
        row["certify"] = round(time.process_time() - before)
        row["total"] = round(time.process_time())
        if task in ARITHMETIC:
            compare(task, seed, {"before": f"{stem}-first", "after": f"{stem}-calibrated"})
    except AbcError as error:
        row["reason"] = str(error)
    return {"total": round(time.process_time())} | row


def compare(task: str, seed: int, runs: dict[str, str]) -> None:
    """Add to seeds.csv how many problems the runs of each stage get right."""
    for stage, run in runs.items():
        table = abc.evaluate(
            run, LENGTHS, samples=SAMPLES[stage], sets=("random", "carry"), progress=False
        )
        write(table.assign(task=task, seed=seed, stage=stage)[FIELDS["seeds"]], HERE / "seeds.csv")


def write(rows: pd.DataFrame, file: Path) -> None:
    rows.to_csv(file, mode="a", header=not file.exists(), index=False)


def add(kind: str, folder: Path, place: Place) -> None:
    """Make a row in this process, and write it."""
    torch.set_num_threads(1)
    make: Any = {"rules": of_rules, "recipe": of_recipe}[kind]
    write(pd.DataFrame([place | make(folder, **place)], columns=FIELDS[kind]), FILES[kind])


def small(table: pd.DataFrame) -> str:
    """A row of each small model, with what came of each seed."""
    rows, columns = [], ["seed", "outcome", "margin", "reason"]
    for task, part in table.groupby("task", sort=False):
        outcomes = {
            seed: f"certified, margin {float(margin):.2f}"
            if outcome == "certified"
            else reason.partition(":")[0]
            if outcome == "refuted"
            else "its lines decide nothing"
            for seed, outcome, margin, reason in part[columns].values.tolist()
        }
        seeds = [outcomes.get(seed, "–") for seed in "012"]
        name, wide = str(task).removesuffix(" wide").split(", small, ")
        rows.append([name, wide, max(part.parameters, key=len), *seeds])
    return as_markdown(["task", "F", "parameters", "seed 0", "seed 1", "seed 2"], rows).rstrip()


def pages() -> dict[str, str]:
    """Every page, whose text stands around the tables in ``*_page.txt``."""
    recipe = pd.read_csv(FILES["recipe"], dtype=str, keep_default_na=False)
    numbers = pd.DataFrame({"task": recipe.task.map([*RECIPE].index), "seed": recipe.seed.map(int)})
    recipe = recipe.loc[numbers.sort_values(["task", "seed"]).index]
    for name in ("windows", "parameters"):
        recipe[name] = [f"{int(float(n)):,}" if n else "–" for n in recipe[name]]
    is_small = recipe.task.isin(SMALL)
    usual = recipe[~is_small].values.tolist()
    made = as_markdown(FIELDS["recipe"], usual, "lrl" + "r" * 7 + "l").rstrip()
    seeds = {task: int((recipe.task == task).sum()) for task in RECIPE.keys() - SMALL.keys()}
    few = "; ".join(task for task in RECIPE if 0 < seeds.get(task, 3) < 3)
    none = "; ".join(task for task in RECIPE if seeds.get(task) == 0)
    missing = f"fewer than three seeds: {few or 'none'}. No row: {none or 'none'}"
    of_page = {"recipe": {"table": made, "missing": missing, "small": small(recipe[is_small])}}
    rules = pd.read_csv(FILES["rules"], dtype=str, keep_default_na=False)
    numbers = pd.DataFrame(
        {"family": rules.family.map([*FAMILIES].index), "seed": rules.seed.map(int)}
    )
    rules = rules.loc[numbers.sort_values(["family", "seed"]).index]
    rules["windows"] = [f"{int(windows):,}" for windows in rules.windows]
    numeric = rules.family.str.split(",").str[0].isin(("tape", *NUMBERS))
    for name, some in (("rules", rules[~numeric]), ("machines", rules[numeric])):
        made = as_markdown(FIELDS["rules"], some.values.tolist(), "lrlrrlrrlr").rstrip()
        of_page[name] = {"table": made}
    return {
        name: (HERE / f"{name}_page.txt").read_text().format(**made)
        for name, made in of_page.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=(*FILES, "pages"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/certified"))
    parser.add_argument("--only", nargs="*", default=[], help="rows with all of these words")
    parser.add_argument("--seeds", default="0-2", help="the first and the last seed")
    given = parser.parse_args()
    if (kind := given.what) in FILES:
        first, last = map(int, given.seeds.split("-"))
        for place in plan(kind):
            words, file = [*map(str, place.values())], FILES[kind]
            known = (
                pd.read_csv(file, dtype=str) if file.exists() else pd.DataFrame(columns=[*place])
            )
            done = (known[[*place]] == words).all(axis=1).any()
            if not done and {*given.only} <= {*words} and first <= place["seed"] <= last:
                work = get_context("spawn").Process(target=add, args=(kind, given.folder, place))
                work.start()
                work.join()
    for name, text in pages().items():
        (HERE / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
