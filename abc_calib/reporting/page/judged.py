"""How good a run is, as plain data: accuracy, hard cases, its certificate and examples.

Nothing is measured here but the examples: what other commands have found is read.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from abc_calib.data import Batch
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.exact import matches
from abc_calib.evaluation.predict import answered
from abc_calib.files import read_json
from abc_calib.nn.base import Model
from abc_calib.proof.certificate import FILE, Certificate
from abc_calib.runs import Run
from abc_calib.runs.rows import read_rows
from abc_calib.text import grouped

NAMES = ("set", "length", "accuracy", "low", "high", "n", "correct")
"""Of a row of ``eval.csv``."""
LENGTHS, LONGEST_IN_ROWS = (20, 50), 20
"""Of the examples, with the training length, the next one and twice it; longest in rows."""
TRIED = 8
"""Problems of a length, of which a wrong one is the example."""
SHOWN = 4
"""Keys of a row that an example shows at most."""


def accuracy(run: Run) -> list[dict[str, Any]]:
    """Exact match by set and length, as ``abc eval`` has measured it."""
    rows = read_rows(run.path / "eval.csv")
    shown = ({name: row[name] for name in NAMES} | _size(row) for row in rows)
    return sorted(shown, key=lambda row: row["length"])


def _size(row: dict[str, Any]) -> dict[str, str]:
    """How large its problems are, in words, and which curve it belongs to."""
    length, high = row["length"], row.get("rows")
    size = f"{length:,}" if high is None else f"{length}x{high}"
    aside = "" if high in (None, length) else f", {high} rows"
    return {"size": size, "series": f"{row['set']}{aside}"}


def hard(run: Run) -> dict[str, Any] | None:
    """Families of hard inputs and the smallest failure, as ``abc stress`` has found them."""
    path = run.path / "stress.json"
    if not os.path.lexists(path):
        return None
    try:
        results = read_json(path)
        return {"rows": results["rows"], "smallest": results["smallest"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AbcError(f"{path} cannot be read ({error!r}): abc stress {run}") from None


def certificate(run: Run) -> dict[str, Any] | None:
    """The run's certificate, or why it does not count; None where there is none."""
    if not os.path.lexists(run.path / FILE):
        return None
    try:
        stored = Certificate.load(run)
    except AbcError as error:
        return {"outcome": "not valid", "reason": str(error)}
    fields = stored.as_dict()
    hidden = ("fingerprint", "rule", "lines", "source", "machine", "repair")
    shown = {name: value for name, value in fields.items() if name not in hidden}
    changed = {"verified_here": stored.verified_here, "reason": grouped(stored.reason)}
    return {**shown, **changed, "counterexamples": fields["counterexamples"][:3]}


@torch.inference_mode()
def examples(run: Run, model: Model) -> list[dict[str, Any]]:
    """A problem of each length: what was written, what is right, and what was looked at."""
    short, in_rows = run.config.train.length, bool(run.data.vocabulary.tokens.rows)
    lengths = {short, short + 1, *(n for n in (2 * short, *LENGTHS) if n > short)}
    shown = []
    for length in sorted(n for n in lengths if not in_rows or n <= LONGEST_IN_ROWS):
        try:
            batch = run.data.test(length, TRIED)
        except AbcError:  # a task without problems of this length
            continue
        if len(batch):
            shown.append({"length": length, **_example(run, model, batch)})
    return shown


def _example(run: Run, model: Model, batch: Batch) -> dict[str, Any]:
    """The first of some problems that is wrong, or the first."""
    data, symbols = run.data, run.data.vocabulary.symbols
    wrong = (~matches(model, data, batch)).nonzero()[:1, 0]
    sample = batch.take(wrong if len(wrong) else torch.tensor([0]))
    right = [symbols[i] for i in sample.target[0].tolist() if i != data.vocabulary.pad]
    problem = data.task.write(sample.problems, 0)
    answer = answered(model, data, problem, 2)
    try:
        attended = answer.looked(model)
    except UsageError:  # it has no attention
        attended = []
    return {
        "problem": problem,
        "answer": answer.text,
        "solution": data.read(right[:-1]),
        "seen": [[(k, round(w, 2)) for k, w in row[:SHOWN]] for row in attended],
        "source": answer.tokens(data),
        "written": answer.symbols(data),
        "right": right,
    }
