"""From nothing to a certificate: seed after seed, one row each.

    python reports/certified.py arithmetic FOLDER [--only decoder parity] [--seeds 0-9]
    python reports/certified.py rules FOLDER [--only "tape, Rule 110"] [--seeds 0-2]
    python reports/certified.py recipe FOLDER [--only addition] [--seeds 0-2]
    python reports/certified.py pages

``arithmetic`` adds to from_nothing.csv, for each task and base, ``rules`` to rules.csv, for each
family of rules, ``recipe`` to recipe.csv, for each task with a rule, made by the three commands
with no option but which task it is, and for small adders with those of ``SMALL``. Rows that are
there are not made again, and what was interrupted goes on from FOLDER, but for ``recipe``.
``--only``: rows with all of these words. Processes of different rows may run at the same time. Then
come the pages: from_nothing.md, recipe.md, rules.md and machines.md, whose text is in
``*_page.txt``. Each row is made in a process
of one thread. Seconds are processor time, ``wall`` is the clock's.
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
KEY = ["model", "task", "base", "seed"]
PARTS = ["train", "calibrate", "retrain", "certify"]
LENGTHS, SAMPLES, MINUTES = [50, 1000], 1000, {True: 90.0, False: 15.0}
"""``MINUTES``: of a certificate, above base 10 and else; more digits are more windows."""
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
    **{f"addition, small, {wide} wide": ("addition", {"model": "decoder"}) for wide in (8, 20)},
}
SMALL: dict[str, dict[str, Any]] = {
    f"addition, small, {wide} wide": {"threshold": 0.3, "decoder_layers": 1, "width": 8}
    | {"feedforward": wide, "steps": 12_000}
    for wide in (8, 20)
}
"""Options of the calibration of some: ``wide`` is the feed-forward width."""
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
    "arithmetic": [
        *(*KEY, "outcome", "windows", "margin", "right", "train_steps", "retrain_steps"),
        *(*PARTS, "wall", "reason"),
    ],
    "rules": [
        *("family", "seed", "outcome", "windows", "margin", "trained", "right", "longest"),
        *("check", "seconds"),
    ],
    "recipe": [
        *("task", "seed", "outcome", "windows", "margin", "parameters", "first", "calibrate"),
        *("certify", "total", "reason"),
    ],
}
"""Of a row: first the place that it is of."""
NAMES = {"arithmetic": "from_nothing", "rules": "rules", "recipe": "recipe"}
FILES = {kind: HERE / f"{name}.csv" for kind, name in NAMES.items()}
SEEDS = {"arithmetic": "0-19", "rules": "0-2", "recipe": "0-2"}
Place = dict[str, Any]


def plan(kind: str) -> Iterator[Place]:
    """Arithmetic: 20 seeds of each task, 5 in each other base; of decoders 3. Rules: 20 of each."""
    tasks = {"addition": 10, "parity": 2, "successor": 10, "multiplication": 10}
    for seed in range(20):
        if kind == "rules":
            yield from ({"family": family, "seed": seed} for family in FAMILIES)
            continue
        if kind == "recipe":
            yield from ({"task": task, "seed": seed} for task in RECIPE)
            continue
        rows = [("transformer", *one) for one in tasks.items()]
        if seed < 5:
            bases, tens = (2, 3, 16, 36), [task for task, base in tasks.items() if base == 10]
            rows += [("transformer", task, base) for base in bases for task in tens]
        rows += [("decoder", *one) for one in tasks.items()] if seed < 3 else []
        yield from (dict(zip(KEY, (*row, seed), strict=True)) for row in rows)


class Clock:
    """How much processor time each part took, from the steps of both trainings."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[float, int]]] = {"training": [], "retraining": []}
        self.started, self.wall = time.process_time(), time.time()

    def note(self, stage: str, step: Any) -> None:
        self.seen[stage].append((time.process_time(), step.step))

    def parts(self) -> dict[str, Any]:
        """Seconds and steps of each part that was run here."""
        first, again = self.seen["training"], self.seen["retraining"]
        row: dict[str, Any] = {"wall": round(time.time() - self.wall)}
        if first:
            row |= {"train": first[-1][0] - self.started, "train_steps": first[-1][1]}
        if first and again:
            row |= {"calibrate": again[0][0] - first[-1][0], "retrain": again[-1][0] - again[0][0]}
            row |= {"certify": time.process_time() - again[-1][0]}
            steps = [step for _, step in again]  # it may go on in another run, from 1 on
            ends = [a for a, b in zip(steps, [*steps[1:], 0], strict=True) if b < a]
            row["retrain_steps"] = sum(ends)
        return {name: round(value, 1) for name, value in row.items()}


def of_arithmetic(folder: Path, model: str, task: str, base: int, seed: int) -> dict[str, Any]:
    """``right``: the least per cent of random problems at the lengths."""
    clock, row = Clock(), dict[str, Any](outcome="failed")
    try:
        how: dict[str, Any] = {"base": None if task == "parity" else base, "model": model}
        how |= {"minutes": MINUTES[base > 10], "progress": False, "on_step": clock.note}
        run, made = abc.certified(task, seed, folder=folder, **how)
        row |= {"outcome": made.outcome, "windows": made.windows, "margin": made.margin}
        row["reason"] = "" if made.outcome == "certified" else made.reason
        if made.repair:
            row["reason"] = f"repaired in {len(made.repair)} rounds. {row['reason']}".strip()
        row |= clock.parts()
        table = abc.evaluate(run, LENGTHS, samples=SAMPLES, sets=("random",), progress=False)
        row["right"] = table.accuracy.min()
    except AbcError as error:
        row["reason"] = str(error)
    return clock.parts() | row


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
    except AbcError as error:
        row["reason"] = str(error)
    return row | {"total": round(time.process_time())}


def add(kind: str, folder: Path, place: Place) -> None:
    """Make a row in this process, and write it."""
    torch.set_num_threads(1)
    make: Any = {"arithmetic": of_arithmetic, "rules": of_rules, "recipe": of_recipe}[kind]
    made = make(folder, **place)
    row, file = pd.DataFrame([place | made], columns=FIELDS[kind]), FILES[kind]
    row.to_csv(file, mode="a", header=not file.exists(), index=False)


def overview(table: pd.DataFrame) -> str:
    """A row of each task and base; times are those of runs that were not interrupted."""
    rows = []
    for (model, task, base), some in table.groupby(["model", "task", "base"], sort=False):
        sure = some[some.outcome == "certified"]
        seconds = sure.dropna(subset=PARTS)[PARTS].sum(axis=1)
        times = [f"{seconds.median():.0f}", f"{seconds.max():.0f}"] if len(seconds) else ["–"] * 2
        windows = f"{int(sure.windows.max()):,}" if len(sure) else "–"
        margin = f"{sure.margin.min():.2f}" if len(sure) else "–"
        right = f"{some.right.min():.1f}" if some.right.notna().any() else "–"
        rows.append([model, task, base, len(some), len(sure), right, windows, margin, *times])
    columns = ["model", "task", "base", "seeds", "certified", "right, worst seed"]
    columns += ["most windows", "smallest margin", "median s", "worst s"]
    return as_markdown(columns, rows, "ll" + "r" * 8)


def every(table: pd.DataFrame) -> str:
    shown = table.copy()
    for name, digits in {"windows": 0, "margin": 2, "right": 1, **dict.fromkeys(PARTS, 0)}.items():
        shown[name] = [f"{x:,.{digits}f}" if x == x else "–" for x in table[name]]
    shown["reason"] = table.reason.astype(object).fillna("")
    columns = [*KEY, "outcome", "windows", "margin", "right", *PARTS, "reason"]
    return as_markdown(columns, shown[columns].astype(str).values.tolist(), "llrrl" + "r" * 7 + "l")


def pages() -> dict[str, str]:
    """Every page, whose text stands around the tables in ``*_page.txt``."""
    table = pd.read_csv(FILES["arithmetic"])
    lost = table[table.outcome != "certified"]
    tables = {"lost": every(lost) if len(lost) else "None.\n", "every": every(table)}
    recipe = pd.read_csv(FILES["recipe"], dtype=str, keep_default_na=False)
    numbers = pd.DataFrame({"task": recipe.task.map([*RECIPE].index), "seed": recipe.seed.map(int)})
    recipe = recipe.loc[numbers.sort_values(["task", "seed"]).index]
    for name in ("windows", "parameters"):
        recipe[name] = [f"{int(float(n)):,}" if n else "–" for n in recipe[name]]
    made = as_markdown(FIELDS["recipe"], recipe.values.tolist(), "lrl" + "r" * 7 + "l").rstrip()
    of_page = {"from_nothing": tables | {"overview": overview(table)}, "recipe": {"table": made}}
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
    parser.add_argument("--seeds", help="the first and the last seed")
    given = parser.parse_args()
    if (kind := given.what) in FILES:
        first, last = map(int, (given.seeds or SEEDS[kind]).split("-"))
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
