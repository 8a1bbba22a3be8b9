"""Short trainings of every family, their weights as hashes, what they answer, and the tables.

    python reports/unchanged.py --out before.json      # at one commit
    python reports/unchanged.py --out after.json       # at another, on the same machine
    python reports/unchanged.py --compare before.json after.json

Two commits that differ in nothing that a user sees give the same output. Commands and options are
those of the command line, one thread, seed 0; a hash is over the values of the weights, whatever
they are called.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors.numpy import load_file

SMALL = "--decoder-layers 2 --width 32 --heads 4 --feedforward 64 --batch 64 --steps 600"
GRU = "--model gru --embedding 16 --width 32 --d-head 32 --value 32 --batch 64 --steps 120"
TRAININGS = {
    "successor": f"successor {SMALL}",
    "addition": f"addition {SMALL} --learning-rate 0.005",
    "multiplication": f"multiplication {SMALL}",
    "parity": f"parity {SMALL}",
    "addition, encoder": f"addition {SMALL} --encoder-layers 1 --dropout 0.1 --scheme rope",
    "successor, window and cyclic": f"successor {SMALL} --attention-window 1 --cyclic 3",
    "addition, window and cyclic": (
        f"addition {SMALL} --attention-window 1 --cyclic 3 --format aligned"
    ),
    "copy": f"copy {SMALL}",
    **{
        f"copy, {name}": f"copy {GRU} --attender {name}"
        for name in ("content", "loc", "one_step", "mono", "bi_relative", "mix_one_step")
    },
    "lookup, location": f"lookup {GRU} --attender location",
    "lookup, mix": f"lookup {GRU} --attender mix --preset paper",
    "addition, content": f"addition {GRU} --attender content --digits 3",
}
CALIBRATED = ("successor", "addition", "multiplication", "parity", "copy")
CERTIFIED = (*CALIBRATED[:4], "successor, window and cyclic")
TARGETS = (
    *("table1", "table2", "table3", "figure1", "reviewers"),
    *(f"attenders-{name}" for name in ("table2", "table3", "table9", "abc")),
    *("location-table3", "location-figure6", "location-figure8"),
)


def abc(*words: object) -> str:
    """``abc WORDS`` as a process; what it wrote to stdout."""
    command = [str(Path(sys.executable).with_name("abc")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1]}"
    return done.stdout


def weights(run: Path) -> str:
    """A hash over the values of all weights, in an order that does not hang on their names."""
    tensors = load_file(run / "model" / "model.safetensors").values()
    each = sorted(hashlib.sha256(str(t.shape).encode() + t.tobytes()).hexdigest() for t in tensors)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]


def evaluated(run: Path, lengths: str) -> list[list[object]]:
    """Length, correct and hash of the problems, of random and, in arithmetic, hard ones."""
    made = json.loads(abc("eval", run, "--lengths", lengths, "--samples", 200, "--json"))
    return [[row["length"], row["correct"], row["test_hash"]] for row in made["rows"]]


def certificate(run: Path) -> dict[str, object]:
    """What ``abc certify`` found, times and versions left out."""
    found = json.loads(abc("certify", run, "--json"))
    kept = ("outcome", "reason", "windows", "wrong", "margin", "rounding")
    kinds = [[c["windows"], c["wrong"], c["margin"]] for c in found["kinds"]]
    return {**{name: found[name] for name in kept}, "kinds": kinds}


def families(root: Path) -> dict[str, object]:
    """Every training, calibration and certificate."""
    found: dict[str, object] = {}
    for name, words in TRAININGS.items():
        run = root / name.replace(", ", "-").replace(" ", "-")
        abc("train", *words.split(), "--out", run, "--quiet")
        lengths = "6,11" if "lookup" in name else "3,6,11"
        found[name] = {"weights": weights(run), "rows": evaluated(run, lengths)}
        print(name, found[name], flush=True)
        if name in CALIBRATED:
            made = Path(f"{run}-calibrated")
            more = ("--threshold", 0.3, "--force", "--steps", 300, "--out", made, "--quiet")
            abc("calibrate", run, *more)
            lines = hashlib.sha256((made / "lines.csv").read_bytes()).hexdigest()[:16]
            rows = evaluated(made, "3,6,60")
            found[f"{name}, calibrated"] = {"weights": weights(made), "lines": lines, "rows": rows}
            print(found[f"{name}, calibrated"], flush=True)
        if name in CERTIFIED:
            judged = Path(f"{run}-calibrated") if name in CALIBRATED else run
            found[f"{name}, certificate"] = certificate(judged)
            print(found[f"{name}, certificate"], flush=True)
    return found


def tables(root: Path) -> dict[str, str]:
    """Hashes of the tables that the committed results render to."""
    found = {}
    for target in TARGETS:
        abc("reproduce", target, "--from-results", "--out", root / "tables", "--quiet")
        for path in sorted((root / "tables").glob(f"{target}.*")):
            found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return found


def compare(before: Path, after: Path) -> int:
    """Print both side by side; 1 if anything differs."""
    first, second = (json.loads(path.read_text()) for path in (before, after))
    different = 0
    for name in dict.fromkeys([*first, *second]):
        same = first.get(name) == second.get(name)
        different += not same
        shown = [json.dumps(side.get(name)) for side in (first, second)]
        print(f"{'=' if same else 'DIFFERS'} {name}\n    {shown[0]}\n    {shown[1]}")
    print(f"{different} of {len(first)} differ")
    return int(different > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.compare:
        return compare(*options.compare)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ |= {"ABC_RUNS": str(root / "runs"), "OMP_NUM_THREADS": "1"}
        found = {**tables(root), **families(root)}
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
