"""How good a run is, as plain data: accuracy, hard cases, its certificate and examples.

What was measured before is read; where nothing was, a little is measured for the page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation import evaluate
from abc_calib.evaluation.stress import smallest, stress
from abc_calib.files import read_json
from abc_calib.nn.base import Model
from abc_calib.proof.certificate import FILE, Certificate
from abc_calib.runs import Run
from abc_calib.runs.rows import read_rows
from tasks import TaskError

SAMPLES, HARD = 200, 20
"""Problems of a length, and of each hard family, that are measured for a page."""
ROWS_FAR = 20
"""The longest problems with an output of several rows."""
NAMES = ("set", "length", "accuracy", "low", "high", "n", "correct")
"""Of a row of ``eval.csv``."""
SHOWN = 4
"""Keys of a row that an example shows at most, those of weight ``LEAST`` and more."""
LEAST = 0.2


def lengths_of(run: Run, far: int) -> list[int]:
    """The training length, the next one, twice it, and further ones up to ``far``."""
    short = run.config.train.length
    far = min(far, ROWS_FAR) if run.data.vocabulary.tokens.row is not None else far
    return sorted({short, short + 1, *(n for n in (2 * short, 20, 50, 100) if short < n <= far)})


def accuracy(run: Run, model: Model) -> dict[str, Any]:
    """Exact match by set and length, and where it is from."""
    rows = read_rows(run.path / "eval.csv")
    source = "read from eval.csv"
    if not rows:
        source = f"measured for this page, {SAMPLES} samples a length"
        lengths = lengths_of(run, 100)
        try:
            rows = [row.as_dict() for row in evaluate(model, run.data, lengths, SAMPLES)]
        except (AbcError, TaskError):  # a task without problems of these lengths
            rows = []
    found = [{name: row[name] for name in NAMES} | _size(row) for row in rows]
    return {"source": source, "rows": sorted(found, key=lambda row: row["length"])}


def _size(row: Mapping[str, Any]) -> dict[str, str]:
    """How large its problems are, in words, and which curve it belongs to."""
    length, high = row["length"], row.get("rows")
    size = f"{length:,}" if high is None else f"{length}x{high}"
    aside = "" if high in (None, length) else f", {high} rows"
    return {"size": size, "series": f"{row['set']}{aside}"}


def hard(run: Run, model: Model) -> dict[str, Any] | None:
    """Families of hard inputs and the smallest failure; None for tasks that have none."""
    path = run.path / "stress.json"
    if os.path.lexists(path):
        try:
            found = read_json(path)
            return {
                "source": "read from stress.json",
                "rows": found["rows"],
                "smallest": found["smallest"],
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AbcError(f"{path} cannot be read ({error!r}): abc stress {run}") from None
    short = run.config.train.length
    try:
        rows = stress(model, run.data, (short, short + 1, lengths_of(run, 50)[-1]), HARD, 0)
    except (UsageError, TaskError):
        return None
    least = smallest(rows)
    return {
        "source": f"measured for this page, {HARD} problems of each family and length",
        "rows": [row.as_dict() for row in rows],
        "smallest": least.as_dict() if least else None,
    }


def certificate(run: Run) -> dict[str, Any] | None:
    """The run's certificate, or why it does not count; None where there is none."""
    if not os.path.lexists(run.path / FILE):
        return None
    try:
        found = Certificate.load(run).as_dict()
    except AbcError as error:
        return {"outcome": "not valid", "reason": str(error)}
    left_out = ("fingerprint", "rule", "lines", "source", "machine", "repair")
    told = {name: value for name, value in found.items() if name not in left_out}
    return {**told, "counterexamples": found["counterexamples"][:3]}


@torch.inference_mode()
def examples(run: Run, model: Model) -> list[dict[str, Any]]:
    """A problem of each length: what was written, what is right, and what was looked at."""
    found = []
    for length in lengths_of(run, 50):
        try:
            batch = run.data.test(length, 8)
        except (AbcError, TaskError):
            continue
        if not len(batch):
            continue
        target = batch.target
        written = model.decode(batch.source.to(model.device), target.shape[1] + 2).ids.cpu()
        right = [_same(written[i], target[i], run.data.vocabulary.eos) for i in range(len(batch))]
        found.append(_example(run, model, batch, int(np.argmin(right)), length))
    return found


def _same(written: torch.Tensor, target: torch.Tensor, eos: int) -> bool:
    return _ended(written.tolist(), eos) == _ended(target.tolist(), eos)


def _ended(ids: list[int], eos: int) -> list[int]:
    """A row of ids up to its end."""
    return ids[: ids.index(eos) + 1] if eos in ids else ids


def _example(run: Run, model: Model, batch: Any, row: int, length: int) -> dict[str, Any]:
    data, one = run.data, batch.take(torch.tensor([row]))
    symbols, eos = data.vocabulary.symbols, data.vocabulary.eos
    source, target = one.source.to(model.device), one.target
    decoded = model.decode(source, target.shape[1] + 2, attention=True)
    ids = _ended(decoded.ids[0].tolist(), eos)
    right = _ended(target[0].tolist(), eos)
    return {
        "length": length,
        "problem": data.task.write(one.problems, 0),
        "source": [symbols[i] for i in one.source[0].tolist()],
        "written": [symbols[i] for i in ids],
        "right": [symbols[i] for i in right],
        "seen": _seen(model, source, ids, decoded.attention),
    }


def _seen(
    model: Model, source: torch.Tensor, ids: list[int], attention: torch.Tensor | None
) -> list[list[tuple[int, float]]]:
    """For each written token the keys of the source that it looked at most."""
    if attention is None:
        try:
            written = torch.tensor([ids], device=source.device)
            layers = model.attention(source, written).weights["cross"]
        except UsageError:
            return []
        weights = torch.stack(layers)[:, 0].amax((0, 1))
    else:
        weights = attention[0]
    rows = []
    for row in weights[: len(ids)].tolist():
        best = sorted(range(len(row)), key=lambda key: -row[key])[:SHOWN]
        rows.append([(key, round(row[key], 2)) for key in best if row[key] >= LEAST])
    return rows
