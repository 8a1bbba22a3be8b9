"""How good a run is, as plain data: hard cases, its certificate and examples.

Nothing is measured here but the examples: what other commands have found is read.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from abc_calib.errors import AbcError
from abc_calib.evaluation.exact import matches
from abc_calib.evaluation.predict import answered
from abc_calib.files import read_json
from abc_calib.nn.base import Model
from abc_calib.proof.certificate import FILE, Certificate
from abc_calib.runs import Run
from abc_calib.text import grouped

LENGTHS, LONGEST_IN_ROWS = (20, 50), 20
"""Of the examples, with the training length, the next one and twice it; longest in rows."""
TRIED = 8
"""Problems of a length, of which a wrong one is the example."""
HIDDEN = ("fingerprint", "rule", "lines", "source", "machine", "repair")
"""Fields of a certificate that the page does not show."""


def hard(run: Run) -> dict[str, Any] | None:
    """Return families of hard inputs and the smallest failure, as ``abc stress`` has found them."""
    path = run.path / "stress.json"
    if not os.path.lexists(path):
        return None
    try:
        results = read_json(path)
        return {"rows": results["rows"], "smallest": results["smallest"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AbcError(f"{path} cannot be read ({error!r}): abc stress {run}") from None


def certificate(run: Run) -> dict[str, Any] | None:
    """Return the run's certificate, or why it does not count; None where there is none."""
    if not os.path.lexists(run.path / FILE):
        return None
    try:
        stored = Certificate.load(run)
    except AbcError as error:
        return {"outcome": "not valid", "reason": str(error)}
    fields = {name: value for name, value in stored.as_dict().items() if name not in HIDDEN}
    fields |= {"verified_here": stored.verified_here, "reason": grouped(stored.reason)}
    return {**fields, "counterexamples": fields["counterexamples"][:3]}


@torch.inference_mode()
def examples(run: Run, model: Model) -> list[dict[str, Any]]:
    """Return a problem of each length, wrong if one is: what was written, and what is right."""
    data, short = run.data, run.config.train.length
    lengths = {short, short + 1, *(n for n in (2 * short, *LENGTHS) if n > short)}
    if data.vocabulary.tokens.rows:
        lengths = {length for length in lengths if length <= LONGEST_IN_ROWS}
    cases = []
    for length in sorted(lengths):
        try:
            batch = data.test(length, TRIED)
        except AbcError:  # a task without problems of this length
            continue
        if not len(batch):
            continue
        wrong = (~matches(model, data, batch)).nonzero()[:1, 0]
        sample = batch.take(wrong if len(wrong) else torch.tensor([0]))
        problem = data.task.write(sample.problems, 0)
        ids = [i for i in sample.target[0].tolist() if i != data.vocabulary.pad]
        right = [data.vocabulary.symbols[i] for i in ids]
        answer, solution = answered(model, data, problem, 2).text, data.read(right[:-1])
        case = {"length": length, "problem": problem, "answer": answer, "solution": solution}
        cases.append({**case, "right": right, "good": not len(wrong)})
    return cases
