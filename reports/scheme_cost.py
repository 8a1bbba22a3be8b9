"""What each position scheme costs, as ratios to sinusoidal positions in one run.

    python reports/scheme_cost.py
    python reports/scheme_cost.py --rounds 2 --steps 5 --samples 20 --out /tmp/cost  # a trial

In every round each scheme trains for some steps and evaluates some additions of 50 digits, one
scheme after another, so that a slow spell of the machine falls on all of them; a ratio is the
median over rounds of the ratio to sinusoidal in the same round. Times are the process's own (CPU
seconds): on a busy machine the wall clock would measure the others. Rows are added to
scheme_cost.csv as they are measured, and a second run goes on after the last complete round.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from abc_calib.config import PRESETS
from abc_calib.data import make_data
from abc_calib.evaluation import exact_matches
from abc_calib.nn.build import build_model
from abc_calib.nn.positions import SCHEMES
from abc_calib.text import as_markdown
from abc_calib.training.step import optimise
from tasks import get_task

DIGITS = 50
PLAIN = "sinusoidal"
ROWS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    **{name: {"scheme": name} for name in SCHEMES if name != PLAIN},
    "rpe:values=true": {"scheme": "rpe:values=true"},
    "sinusoidal, cyclic 3": {"cyclic": 3},
    "window 1, cyclic 3": {"cyclic": 3, "attention_window": 1},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=50, help="training steps a round")
    parser.add_argument("--samples", type=int, default=300, help="evaluations a round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "scheme_cost.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    given: dict[Any, Any] = {
        name: getattr(options, name) for name in ("steps", "samples", "threads")
    }
    if rows and any(rows[0][name] != value for name, value in given.items()):
        raise SystemExit(f"{path} was measured with other options: remove it, or use another --out")
    rows = rows[: len(rows) - len(rows) % len(ROWS)]
    for number in range(len(rows) // len(ROWS), options.rounds):
        for name in ROWS:
            training, evaluation = measure(name, options.steps, options.samples)
            rows.append(
                {
                    "round": number,
                    "scheme": name,
                    "train_seconds_1000_steps": round(1000 * training / options.steps, 3),
                    "eval_seconds_10000": round(10_000 * evaluation / options.samples, 3),
                    **given,
                }
            )
            pd.DataFrame(rows).to_csv(path, index=False)
        print(f"round {number + 1} of {options.rounds}", flush=True)
    (options.out / "scheme_cost.md").write_text(report(pd.DataFrame(rows)))


def measure(name: str, steps: int, samples: int) -> tuple[float, float]:
    """CPU seconds of ``steps`` training steps and of ``samples`` evaluations, after a warm-up."""
    shape, training, _ = PRESETS["small"]
    shape = shape.model_copy(update=ROWS[name])
    rate = training.learning_rate
    layout = "aligned" if shape.attention_window else "free"
    data = make_data(get_task("addition"), training.model_copy(update={"format": layout}))
    model: Any = build_model("transformer", shape, data, 0)
    optimizer = model.optimizer()
    batches = [data.training(step, training.batch) for step in range(steps + 2)]
    model.train()
    for batch in batches[:2]:
        optimise(model, optimizer, batch, rate)
    started = time.process_time()
    for batch in batches[2:]:
        optimise(model, optimizer, batch, rate)
    trained = time.process_time() - started
    # as if every output were right: a wrong one would be found out early and cost less
    test = data.test(DIGITS, samples)
    model.eval()
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.zero_()
    target = test.target
    test.target[:] = torch.where(target == model.pad, target, 0)
    exact_matches(model, data.test(DIGITS, 8))
    started = time.process_time()
    exact_matches(model, test)
    return trained, time.process_time() - started


def report(rows: pd.DataFrame) -> str:
    """The medians over rounds, and the medians of the ratios within a round, as Markdown."""
    timed = ["train_seconds_1000_steps", "eval_seconds_10000"]
    plain = rows[rows.scheme == PLAIN].set_index("round")[timed]
    ratios = rows.set_index("round")[timed] / plain.reindex(rows["round"])
    ratios["scheme"] = rows.scheme.to_numpy()
    times = rows.groupby("scheme", sort=False)[timed].median()
    ratio = ratios.groupby("scheme", sort=False)[timed].median()
    first = rows.iloc[0]
    lines = []
    for name in times.index:
        pairs = zip(times.loc[name], ratio.loc[name], strict=True)
        lines.append([name, *(text for t, r in pairs for text in (f"{t:.1f}", f"{r:.2f}"))])
    columns = ["scheme", "CPU s / 1,000 steps", "ratio", "CPU s / 10,000 evaluations", "ratio"]
    return (
        "# What a position scheme costs\n\n"
        f"Made by `python reports/scheme_cost.py`: the small preset on addition, {first.threads} "
        f"CPU thread(s), {rows['round'].nunique()} interleaved rounds of {first.steps} training "
        f"steps and {first.samples} evaluations at {DIGITS} digits each. CPU "
        "seconds of the process, medians over rounds; ratios are to sinusoidal positions in the "
        "same round.\n\n" + as_markdown(columns, lines, "lrrrr")
    )


if __name__ == "__main__":
    main()
