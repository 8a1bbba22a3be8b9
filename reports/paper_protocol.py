"""The paper's protocol: every operand padded to one size, mean fit, the last layer's lines.

    python reports/paper_protocol.py FOLDER --task successor
    python reports/paper_protocol.py FOLDER --task addition --preset small --size 60

Trains with ``fixed:SIZE`` until the model interpolates, calibrates with ``--fit mean`` over all
cells and over digits alone, at several thresholds (without choosing among them), retrains with
each and evaluates up to the size. Rows are added to reports/paper_protocol.csv as they come out,
failures included, and paper_protocol.md is made of them; what was interrupted goes on from FOLDER.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import abc_calib as abc
from abc_calib.reproduction import paper
from abc_calib.reproduction.comparison import TITLES
from abc_calib.stages.making import finished
from abc_calib.text import as_markdown

ROWS = Path(__file__).with_suffix(".csv")
LENGTHS = (6, 10, 15, 20, 50)
KEY = ["task", "preset", "format", "law", "optimizer", "seed", "row"]
EVERY, FOUND = ("diag", "anti", "vert"), ("diag", "anti")
CASES = [("all", EVERY, 4.0), ("all", EVERY, 1.0), ("digits", FOUND, 2.0), ("digits", FOUND, 0.87)]
"""Averaged over, directions and threshold: as the text says, and as the public code does."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", default="successor")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--law", default="mixed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--finetune", type=Path, help="go on from this run's weights")
    parser.add_argument("--retrain-steps", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    form = f"fixed:{options.size}"
    common = {
        name: getattr(options, name) for name in ("task", "preset", "law", "optimizer", "seed")
    }
    common["format"] = form
    named = f"{options.task}-{options.preset}-{form.replace(':', '')}-{options.law}-{options.seed}"
    named += "" if options.optimizer == "adam" else f"-{options.optimizer}"
    told: dict[str, Any] = {"progress": False, "on_step": said}

    def judge(run: abc.Run, row: str) -> None:
        kept = pd.read_csv(ROWS)
        if (kept[KEY] == pd.Series({**common, "row": row})[KEY]).all(axis=1).any():
            return
        lengths = [length for length in LENGTHS if length <= options.size]
        table = abc.evaluate(run, lengths, samples=1000, sets=("random", "carry"))
        assert run.result
        result = {k: run.result[k] for k in ("steps", "seconds", "validation_accuracy")}
        rows = table[["set", "length", "n", "correct", "accuracy"]].assign(**common, row=row)
        pd.concat([kept, rows.assign(**result)])[kept.columns].to_csv(ROWS, index=False)
        ROWS.with_suffix(".md").write_text(report(pd.read_csv(ROWS)))
        print(rows.to_string(), flush=True)

    how: dict[str, Any] = {n: getattr(options, n) for n in ("batch", "learning_rate", "optimizer")}
    trained_on = options.finetune is not None
    first = options.folder / f"{named}-vanilla{'-trained-on' * trained_on}"
    begin = {"preset": options.preset, "format": form, "sampling": options.law, "cooldown": 0}
    if trained_on:
        begin["finetune"] = options.finetune
    vanilla = finished(
        first,
        lambda: abc.train(
            options.task, seed=options.seed, steps=options.steps, out=first, **begin, **how, **told
        ),
        **told,
    )
    judge(vanilla, f"vanilla{', trained on' * trained_on}")
    for average, dirs, threshold in CASES:
        row = f"abc mean {average}, {'+'.join(dirs)}, k={threshold:g}"
        second = options.folder / f"{named}-{average}-{threshold:g}"
        lines = {"fit": "mean", "average": average, "dirs": dirs, "threshold": threshold}
        steps = {"steps": options.retrain_steps, "force": True, "stop_early": True}
        calibrated = finished(
            second,
            lambda out=second, lines=lines, steps=steps: abc.calibrate(  # type: ignore[misc]
                vanilla, out=out, **lines, **steps, **how, **told
            ),
            **told,
        )
        bias = calibrated.bias()
        count = {s: sum(map(len, layers[-1])) for s, layers in bias.sites.items() if layers}
        print(row, count, "transparent heads:", len(bias.transparent()), flush=True)
        judge(calibrated, row)


def report(rows: pd.DataFrame) -> str:
    """The page: a line for each model, random inputs and carry chains at each length."""
    lengths = sorted(rows.length.unique())
    lines = []
    for key, some in rows.groupby(KEY, sort=False):
        task, kind, form, _, optimizer, seed, row = map(str, key)
        cells = {(r.set, r.length): f"{r.accuracy:g}" for r in some.itertuples()}
        digits = [
            " / ".join(cells.get((kind, length), "–") for kind in ("random", "carry"))
            for length in lengths
        ]
        how = f"{kind}, {form.removeprefix('fixed:')} digits, {optimizer}, seed {seed}"
        first = some.iloc[0]
        lines.append([TITLES[task], how, row, first.steps, first.validation_accuracy, *digits])
    for task in dict.fromkeys(rows.task):
        numbers = [paper.number(task, "abc", length) for length in lengths]
        told = ["–" if number is None else f"{number:g}" for number in numbers]
        lines.append([TITLES[task], "the paper's", "ABC", "–", "–", *told])
    lines.sort(key=lambda line: [*TITLES.values()].index(line[0]))
    columns = ["task", "preset, padded to, optimiser", "model", "steps", "held-out %"]
    return (
        "# The paper's own protocol\n\n"
        "Made by `python reports/paper_protocol.py FOLDER --task …`: every operand padded to one "
        "size in all stages, mean fit\nover all cells or over the digits that are not padding, "
        "lines of the last layer in every layer. Per cent right of random inputs /\nof carry "
        "chains, 1,000 each; one seed. `steps` and `held-out`: of the training that made the "
        "model. What it says is in the\n[log](LOG.md).\n\n"
        + as_markdown([*columns, *map(str, lengths)], lines, "lllrr" + "r" * len(lengths))
    )


def said(step: Any) -> None:
    if step.accuracy is not None:
        print(f"{step.step}: loss {step.loss:.4f}, held-out {step.accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
