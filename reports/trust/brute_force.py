"""Certificates against brute force: random models, and small trained ones with odd lines.

    python reports/trust/brute_force.py random 500
    python reports/trust/brute_force.py trained 500

Adds a row a model to reports/trust/brute_force-KIND.csv, and skips those that it has. A random
model's smallest margin is computed a second time by the exported checker's method, and every source
of some widths is compared with the verdict of its windows. A trained one is certified, and every
source of some widths, long random and hard ones are decoded.
"""

from __future__ import annotations

import csv
import math
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abc_calib.certification import check as checker
from abc_calib.certification.decide import failing_sources
from abc_calib.certification.places import Digit
from abc_calib.certification.prove import Proof, Undecided, check, prepare
from abc_calib.config import TrainOptions, TransformerOptions
from abc_calib.data import make_data
from abc_calib.errors import AbcError
from abc_calib.evaluation import exact_matches
from abc_calib.evaluation.failures import failure
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.training.step import fit_steps
from tasks import get_task

FIELDS = ["kind", "seed", "task", "base", "model", "windows", "wrong", "margin", "verdict", "tried"]
FIELDS += ["failed", "agrees", "reason"]
MOST = 3000
"""Sources of one width that are run."""
MOST_WINDOWS = 30_000


def drawn_lines(rng: random.Random, layers: int, heads: int, parts: int, most: int) -> LineBias:
    """Lines of every kind that one may make by hand, some of them odd."""

    def own() -> Line:
        kind: Any = rng.choice(["diag", "diag", "vert"])
        return Line(
            kind, 0, rng.choice([0, -1, -1, -2, -3, 1] if kind == "diag" else [0, 0, 1, -1])
        )

    def crossed() -> Line:
        kind: Any = rng.choice(["anti", "anti", "anti", "vert", "diag"])
        offset = rng.choice([0, 0, 0, -1, 1, -2] if kind != "vert" else [0, 1, 2, -1])
        return Line(
            kind, rng.randint(0 if kind == "vert" else 1, parts), offset, rng.choice([0.0, -0.5])
        )

    def layer(line: Any) -> Any:
        return tuple(tuple(line() for _ in range(rng.randint(1, most))) for _ in range(heads))

    return LineBias(
        {
            "self": tuple(layer(own) for _ in range(layers)),
            "cross": tuple(layer(crossed) for _ in range(layers)),
        }
    )


def made(kind: str, seed: int) -> tuple[Any, Any, str]:
    """A model, its data, and what it is; trained for some steps unless it is random."""
    rng = random.Random(f"{kind} {seed}")
    trained = kind == "trained"
    name, base = rng.choice(
        [("successor", 2), ("successor", 3), ("parity", 2), ("addition", 2), ("multiplication", 2)]
        + ([] if trained else [("addition", 3), ("multiplication", 3), ("addition3", 3)])
    )
    style = rng.choice(["lines", "lines", "lines", "window", "cyclic"])
    aligned = style != "lines" or rng.random() < 0.2
    task: Any = get_task(name, base=base)
    how = TrainOptions(
        format="aligned" if aligned else "free", seed=seed, length=5, sampling="mixed"
    )
    data: Any = make_data(task, how)
    layers, width = rng.choice([1, 1, 2]), 16 if trained else 8
    window = {} if style == "lines" else {"attention_window": 1}
    options = TransformerOptions(
        width=width, heads=2, feedforward=2 * width, decoder_layers=layers,
        scheme="sinusoidal" if style == "cyclic" else "none",
        cyclic=3 if style == "cyclic" else None, **window,
    )  # fmt: skip
    with torch.random.fork_rng():
        model: Any = build_model("transformer", options, data, seed)
        layout = data.layout_at(1)
        if style == "lines":
            most = rng.choice([1, 1, 2, 3])
            model.set_lines(drawn_lines(rng, layers, 2, len(layout.parts), most))
        else:
            model.set_lines(model.own_lines(data))
        if trained:
            steps = TrainOptions(
                steps=rng.choice([120, 300]), batch=32, learning_rate=3e-3, warmup=20
            )
            torch.manual_seed(seed)
            fit_steps(model, steps, lambda step: data.training(step, 32))
    return model.eval(), data, f"{style}{', aligned' if aligned else ''}, {layers} layers"


def sources(proof: Proof) -> list[Any]:
    """Every source of each width, as long as there are not too many."""
    return [problems for _, problems in proof.realiser.short(MOST)]


def margin_by_widths(model: Any, data: Any, proof: Proof) -> float:
    """The smallest margin by the exported checker's method."""
    layout, options, ids = data.layout_at(1), model.options, data.vocabulary.ids
    e: Any = object.__new__(checker.Export)
    e.stream = False
    e.rule, e.lines = proof.rule.as_dict(), model.lines.to_dict()
    e.weights = {k: v.detach().double().numpy() for k, v in model.state_dict().items()}
    e.layers, e.width, e.heads = options.decoder_layers, options.width, options.heads
    e.period, e.sos, e.eos = proof.field.period, model.sos, model.eos
    e.waves = dict.fromkeys(("encoder", "self"), options.scheme == "sinusoidal")
    e.delimiters, e.aligned = [ids[name] for name in layout.delimiters], layout.aligned
    nodes, least, base = checker.Nodes(), math.inf, data.task.base
    for name, (code, count) in checker.kinds(e, nodes).items():
        values, right = code[:, None] // base ** np.arange(count) % base, code // base**count
        least = min(least, float(checker.Model(e, nodes, values).margins(name, right).min()))
    return least


def judged(kind: str, seed: int) -> dict[str, Any]:
    """A row of the table."""
    model, data, what = made(kind, seed)
    row: dict[str, Any] = {"kind": kind, "seed": seed, "task": data.task.name, "model": what}
    row |= {"base": data.task.base, "verdict": "unknown"}
    try:
        proof = prepare(model, data, part=8 * MOST_WINDOWS, most=MOST_WINDOWS)
    except Undecided as error:
        return row | {"reason": str(error)}
    checked = check(proof)
    wrong, certain = sum(c.wrong for c in checked), min(c.certain for c in checked)
    row |= {
        "windows": proof.size,
        "wrong": wrong,
        "margin": f"{min(c.margin for c in checked):.4g}",
    }
    exact, failed, tried = model.exact(), [], 0
    groups = sources(proof)
    draw = np.random.default_rng(seed)
    groups += [data.task.sample(draw, 100, n, "mixed", exact=True) for n in (12, 30, 80)]
    groups += [data.task.hard(draw, 100, n) for n in (12, 30, 80)]
    for problems in groups:
        right = exact_matches(exact, data.lay_out(problems)).numpy()
        tried += len(right)
        failed += [data.task.plain(problems, int(i)) for i in np.flatnonzero(~right)[:5]]
    if not wrong and certain > 0:
        row["verdict"] = "certified"
        few = [data.task.plain(p, i) for p in groups[-6:] for i in range(3)]
        failed += [one for one in few if failure(model, data, one) is not None]
    else:
        row["verdict"] = "refuted" if failed else "unknown"
        if not failed:
            for _, _, one in failing_sources(proof, checked, 2, 40, draw):
                if failure(model, data, one) is not None:
                    row["verdict"] = "refuted"
                    break
    agrees = (row["verdict"] == "certified") <= (not failed)
    free = any(
        isinstance(a, Digit) and a.column.kind == "free" for c in proof.cases for a in c.atoms
    )
    if kind == "random" and not free:
        two = margin_by_widths(model, data, proof)
        agrees = agrees and math.isclose(two, min(c.margin for c in checked), rel_tol=1e-6)
    return row | {"tried": tried, "failed": len(failed), "agrees": agrees}


def main() -> None:
    torch.set_num_threads(1)
    kind, count = sys.argv[1], int(sys.argv[2])
    path = Path(__file__).with_name(f"brute_force-{kind}.csv")
    done = set()
    if path.exists():
        done = {int(row["seed"]) for row in csv.DictReader(path.open())}
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not done:
            writer.writeheader()
        for seed in range(count):
            if seed not in done:
                try:
                    writer.writerow(judged(kind, seed))
                except AbcError as error:
                    writer.writerow({"kind": kind, "seed": seed, "reason": f"error: {error}"})
                file.flush()


if __name__ == "__main__":
    main()
