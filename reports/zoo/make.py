"""Make the models of the zoo from nothing: ``python reports/zoo/make.py [NAME ...]``.

Each is trained, calibrated, retrained and certified by ``abc prove`` (``runs/zoo-making``, where
what was interrupted goes on), then packed: its run without what only its training needed, a
certificate about that, and the lines and the rule that ``check.py`` reads, and a model card. Then
the table.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from abc_calib import stages
from abc_calib.geometry.bias import stored
from abc_calib.proof.certificate import Certificate
from abc_calib.reporting.card import card
from abc_calib.runs import Run
from abc_calib.runs.records import CALIBRATION, RESULT, write_record
from abc_calib.text import Markup, as_markdown

HERE = Path(__file__).parent
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "successor": ("successor", {}),
    "addition": ("addition", {}),
    "addition-base2": ("addition", {"base": 2}),
    "addition-decoder": ("addition", {"model": "decoder"}),
    "subtraction": ("subtraction", {}),
    "multiplication": ("multiplication", {}),
    "parity": ("parity", {}),
    "copy": ("copy", {}),
    "sort": ("sort", {}),
    "division": ("division", {}),
    "rule110": ("tape", {"rule": "110"}),
    "s3": ("automaton", {"machine": "s3"}),
    "sum": ("sum", {"base": 2}),
    "product": ("long_multiplication", {"base": 2}),
}
NOT_PACKED = ("trial.safetensors", "lines.csv", "check.csv", "lock")


def packed(run: Run, folder: Path) -> Run:
    """A run without what only its training needed, vouched for, and certified again as it is."""
    shutil.rmtree(folder, ignore_errors=True)
    skipped = shutil.ignore_patterns(*NOT_PACKED, "certificate.*", "figures", "*.html", "*.csv")
    shutil.copytree(run.path, folder, ignore=skipped)
    config = json.loads((folder / "config.json").read_text()) | {"parent": None}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    attention = stored(folder / "bias.safetensors")  # which lines were read from: half as large
    halves = {
        f"attention.{site}": weights.astype(np.float16) for site, weights in attention.items()
    }
    run.bias().save(folder / "bias.safetensors", **halves)
    for name in (CALIBRATION, RESULT):
        if (folder / name).exists():  # a repaired run was not calibrated itself
            write_record(folder / name, json.loads((folder / name).read_text()))
    made = Run.open(folder)
    stages.certify(made, minutes=60)
    stages.verify(made, minutes=60)
    lines, rule = made.fresh_model().lines, made.task.rule()
    assert lines is not None and rule is not None
    for name, content in (("lines", lines.to_dict()), ("rule", rule.as_dict())):
        (folder / f"{name}.json").write_text(json.dumps(content) + "\n")
    write_card(made)
    (folder / "lock").unlink(missing_ok=True)
    return made


def write_card(run: Run) -> None:
    """Write the model card of a run of the zoo."""
    with TemporaryDirectory() as place:
        shutil.copy(card(run, Path(place) / "card") / "README.md", run.path)


def make(name: str) -> None:
    task, options = MODELS[name]
    run, found = stages.certified(task, folder="runs/zoo-making", minutes=60, **options)
    print(name, found.outcome, found.reason, flush=True)
    if found.outcome == "certified":
        packed(run, HERE / name)


def table() -> str:
    """A row for each model; check.py is timed here, on one thread."""
    rows = []
    for name in MODELS:
        if not (HERE / name / "certificate.json").exists():
            continue
        run = Run.open(HERE / name)
        found = Certificate.load(run)
        before = os.times()
        said = subprocess.run([sys.executable, HERE / "check.py", name], capture_output=True)
        assert said.returncode == 0, said.stderr
        taken = f"{os.times().children_user - before.children_user:.1f}"
        size = f"{sum(f.stat().st_size for f in run.path.rglob('*') if f.is_file()) / 1e6:.2f}"
        windows, margin = f"{found.windows:,}", f"{found.margin:.2f}"
        link = Markup(f"[{name}]({name}/certificate.md)")
        base = "" if run.config.base in (None, 10) else f", base {run.config.base}"
        task = run.config.task.replace("_", " ") + base
        rows.append([link, task, windows, margin, size, taken])
    columns = ["name", "task", "windows", "smallest margin", "MB", "check.py, s"]
    return as_markdown(columns, rows, "llrrrr")


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] if len(sys.argv) > 1 else MODELS:
        make(name)
    page = (HERE / "README.md").read_text().split("\n| name")[0].rstrip()
    (HERE / "README.md").write_text(f"{page}\n\n{table()}")


if __name__ == "__main__":
    main()
