"""Short trainings of every family, their weights as hashes, and what they answer.

    python reports/unchanged.py before.json      # at one commit
    python reports/unchanged.py after.json       # at another, on the same machine
    diff before.json after.json

Two commits that differ in nothing that a user sees give the same output. Commands and options are
those of the command line, one thread, seed 0; a hash is over the values of the weights, whatever
they are called.
"""

from __future__ import annotations

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
    "tape": "tape",
    "sum": "sum --base 2",
    **{
        f"copy, {name}": f"copy {GRU} --attender {name}"
        for name in ("content", "loc", "one_step", "mono", "bi_relative", "mix_one_step")
    },
    "lookup, location": f"lookup {GRU} --attender location",
    "lookup, mix": f"lookup {GRU} --attender mix --preset paper",
    "addition, content": f"addition {GRU} --attender content --digits 3",
}
CALIBRATED = ("successor", "addition", "multiplication", "parity", "copy", "tape", "sum")
CERTIFIED = (*CALIBRATED[:4], "successor, window and cyclic")


def abc(*words: object) -> str:
    """``abc WORDS`` as a process; what it wrote to stdout."""
    command = [str(Path(sys.executable).with_name("abc")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1]}"
    return done.stdout


def about(run: Path, lengths: str) -> dict[str, object]:
    """A hash of the weights, and how many problems of each length are right."""
    tensors = load_file(run / "model" / "model.safetensors").values()
    each = sorted(hashlib.sha256(str(t.shape).encode() + t.tobytes()).hexdigest() for t in tensors)
    rows = json.loads(abc("eval", run, "--lengths", lengths, "--samples", 200, "--json"))["rows"]
    return {
        "weights": hashlib.sha256("".join(each).encode()).hexdigest()[:16],
        "rows": [[row["length"], row["correct"], row["test_hash"]] for row in rows],
    }


def certificate(run: Path) -> dict[str, object]:
    """What ``abc certify`` found, times and versions left out."""
    fields = json.loads(abc("certify", run, "--json"))
    kinds = [[case["windows"], case["wrong"], case["margin"]] for case in fields["kinds"]]
    names = ("outcome", "reason", "windows", "wrong", "margin", "rounding")
    return {**{name: fields[name] for name in names}, "kinds": kinds}


def main() -> None:
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as root:
        os.environ |= {"ABC_RUNS": f"{root}/runs", "OMP_NUM_THREADS": "1"}
        for name, words in TRAININGS.items():
            run = Path(root) / name.replace(", ", "-").replace(" ", "-")
            abc("train", *words.split(), "--out", run, "--quiet")
            results[name] = about(run, "6,11" if "lookup" in name else "3,6,11")
            if name in CALIBRATED:
                first, run = run, Path(f"{run}-calibrated")
                share = 0.01 if name in ("tape", "sum") else 0.3
                more = ("--threshold", share, "--force", "--steps", 300, "--out", run, "--quiet")
                abc("calibrate", first, *more)
                lines = hashlib.sha256((run / "lines.csv").read_bytes()).hexdigest()[:16]
                results[f"{name}, calibrated"] = {"lines": lines, **about(run, "3,6,60")}
            if name in CERTIFIED:
                results[f"{name}, certificate"] = certificate(run)
            print(name, results[name], flush=True)
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
