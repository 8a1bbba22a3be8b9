"""The paper's protocol on the small model: every operand padded to 60 digits, mean fit.

    python reports/paper_protocol.py --task successor
    python reports/paper_protocol.py --task addition --law uniform

Trains with ``fixed:60``, calibrates with ``--fit mean`` at several thresholds (without choosing
among them), retrains with each and evaluates at 6 to 50 digits. Rows are added to
reports/paper_protocol.csv as they come out, failures included.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch

import abc_calib as abc

ROWS = Path(__file__).parent / "paper_protocol.csv"
LENGTHS = (6, 10, 15, 20, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="successor")
    parser.add_argument("--law", default="mixed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--retrain-steps", type=int, default=300)
    parser.add_argument("--thresholds", default="4,1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    common = {"task": options.task, "law": options.law, "seed": options.seed}

    def judge(run: abc.Run, row: str) -> None:
        table = abc.evaluate(run, LENGTHS, samples=1000, sets=("random", "carry"))
        kept = table[["set", "length", "n", "correct", "accuracy"]]
        assert run.result
        result = {k: run.result[k] for k in ("steps", "seconds", "validation_accuracy")}
        rows = kept.assign(**common, row=row, **result)
        both = pd.concat([pd.read_csv(ROWS), rows]) if ROWS.exists() else rows
        both.to_csv(ROWS, index=False)
        print(rows.to_string(), flush=True)

    vanilla = abc.train(
        options.task,
        format="fixed:60",
        sampling=options.law,
        seed=options.seed,
        steps=options.steps,
        batch=options.batch,
        learning_rate=options.learning_rate,
        on_step=lambda p: print(p, flush=True) if p.accuracy is not None else None,
    )
    judge(vanilla, "vanilla")
    for threshold in map(float, options.thresholds.split(",")):
        calibrated = abc.calibrate(
            vanilla,
            fit="mean",
            threshold=threshold,
            steps=options.retrain_steps,
            batch=options.batch,
            learning_rate=options.learning_rate,
            force=True,
        )
        bias = calibrated.bias()
        lines = {s: sum(map(len, layers[-1])) for s, layers in bias.sites.items() if layers}
        print(threshold, lines, "transparent heads:", len(bias.transparent()), flush=True)
        judge(calibrated, f"abc mean k={threshold:g}")


if __name__ == "__main__":
    main()
