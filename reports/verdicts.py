"""Every scheme judged by one command: the longest length at 100 %, and the certificate's verdict.

    python reports/verdicts.py

Addition, seed 0. Trains what is missing under runs/verdicts/, takes certificates that are there,
and skips rows that are in reports/verdicts.csv, so it may be interrupted and repeated.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import abc_calib as abc
from abc_calib.certification.certificate import Certificate
from abc_calib.errors import AbcError
from abc_calib.files import runs_root
from abc_calib.stages import finished
from abc_calib.text import Markup, as_markdown

HERE = Path(__file__).parent
ROWS = HERE / "verdicts.csv"
LENGTHS = (6, 7, 8, 10, 15, 20, 50, 100, 200, 500, 1000)
SAMPLES = 200
MINUTES = 600
"""Of two models there are some 10^9 windows, which take hours."""
ALIGNED: dict[str, Any] = {"format": "aligned", "attention_window": 1}
MODELS: dict[str, dict[str, Any]] = {
    "sinusoidal (vanilla)": {},
    "none": {"scheme": "none"},
    "learned": {"scheme": "learned"},
    "randomized": {"scheme": "randomized"},
    "alibi": {"scheme": "alibi"},
    "alibi:cross=end": {"scheme": "alibi:cross=end"},
    "rope": {"scheme": "rope"},
    "rpe": {"scheme": "rpe"},
    "t5": {"scheme": "t5"},
    "xl": {"scheme": "xl"},
    "window": ALIGNED,
    "window + cyclic 3": {**ALIGNED, "cyclic": 3},
    "none + window": {**ALIGNED, "scheme": "none"},
    "calibrated": {},
}


def trained(name: str) -> abc.Run:
    """The model of a row, from an earlier call where there is one."""
    if name == "calibrated":
        make = partial(abc.calibrate, trained("sinusoidal (vanilla)"))
    else:
        make = partial(abc.train, "addition", **MODELS[name])
    return finished(folder(name), partial(make, out=folder(name)))


def folder(name: str) -> Path:
    return runs_root() / "verdicts" / name.replace(" ", "-")


def certified(run: abc.Run) -> Certificate:
    """The run's certificate, from an earlier call where there is one."""
    try:
        return Certificate.load(run)
    except AbcError:
        return abc.certify(run, minutes=MINUTES)


def judge(name: str) -> dict[str, Any]:
    run = trained(name)
    longest = 0
    table = abc.evaluate(run, LENGTHS, samples=SAMPLES, sets=("random", "hard"))
    for length, rows in table.groupby("length"):
        if (rows.accuracy < 100).any():
            break
        longest = int(str(length))
    certificate = certified(run)
    assert run.result
    example = certificate.counterexamples[0]["problem"] if certificate.counterexamples else ""
    return {
        "positions": name,
        "held_out": run.result["validation_accuracy"],
        "longest": longest,
        "verdict": certificate.outcome,
        "counterexample": example,
        "windows": certificate.windows,
        "reason": certificate.reason,
    }


def rows_of(table: pd.DataFrame) -> Any:
    return table.fillna("").itertuples()


def report(table: pd.DataFrame) -> str:
    rows = [
        [
            r.positions,
            f"{r.held_out:.2f}",
            int(r.longest) or "–",
            r.verdict,
            Markup(f"`{r.counterexample}`" if r.counterexample else "–"),
            Markup(r.reason),
        ]
        for r in rows_of(table)
    ]
    columns = ["positions", "held-out, 6 digits, %", "longest at 100 %", "verdict"]
    return (
        f"# Verdicts\n\nAddition, seed 0, `small` preset, made by `python reports/verdicts.py`. "
        f"Tested at {', '.join(map(str, LENGTHS))} digits, {SAMPLES} random and {SAMPLES} hard "
        "inputs each; the longest length up to which all are right. The verdict is that of "
        "`abc certify` on sources of every length.\n\n"
        + as_markdown([*columns, "a source that it gets wrong", "why"], rows, "lrrlll")
    )


def main() -> None:
    done = pd.read_csv(ROWS) if ROWS.exists() else pd.DataFrame(columns=["positions"])
    for name in MODELS:
        if name in set(done.positions):
            continue
        row = judge(name)
        print(row, flush=True)
        done = pd.concat([done, pd.DataFrame([row])], ignore_index=True)
        order = {name: i for i, name in enumerate(MODELS)}
        done = done.sort_values("positions", key=lambda names: names.map(order))
        done.to_csv(ROWS, index=False)
    (HERE / "verdicts.md").write_text(report(done))


if __name__ == "__main__":
    main()
