"""How far margins move when weights do: python reports/margin_floor.py FOLDER

Of every calibrated run in FOLDER: the smallest margin of all its windows as it is, with its weights
rounded to bfloat16 (8 bits), and with 0.1 and 1 % of noise on each weight. Adds rows to
reports/margin_floor.csv; reports/from_nothing.md says what follows for the floor.
"""

from __future__ import annotations

import copy
import csv
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from abc_calib.certification.prove import Undecided, check, prepare
from abc_calib.runs import Run

TABLE = Path(__file__).with_suffix(".csv")
FIELDS = ["run", "steps", "margin", "bfloat16", "noise 0.1 %", "noise 1 %"]
MOST = 2_000_000


def moved(model: Any, how: str) -> Any:
    """The model with other weights."""
    made = copy.deepcopy(model)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in made.parameters():
            if how == "bfloat16":
                weight.copy_(weight.bfloat16().float())
            else:
                share = float(how.split()[1]) / 100
                weight.mul_(1 + share * torch.randn(weight.shape, generator=draw))
    return made


def main() -> None:
    torch.set_num_threads(1)
    done = set()
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            done = {row["run"] for row in csv.DictReader(file)}
    for path in sorted(Path(sys.argv[1]).glob("*-calibrated")):
        if path.name in done or not (path / "result.json").exists():
            continue
        run = Run.open(path)
        model = run.load_model()
        row: dict[str, Any] = {"run": path.name, "steps": (run.result or {})["steps"]}
        try:
            for name in FIELDS[2:]:
                made = model if name == "margin" else moved(model, name)
                proof = prepare(made, run.data, part=MOST, most=MOST)
                row[name] = f"{min(one.margin for one in check(proof)):.4g}"
        except Undecided:
            continue
        line = pd.DataFrame([row], columns=FIELDS)
        line.to_csv(TABLE, mode="a", header=not TABLE.exists(), index=False)


if __name__ == "__main__":
    main()
