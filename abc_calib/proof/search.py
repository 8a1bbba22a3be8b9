"""Where nothing can be proved: look for the shortest source that a model gets wrong.

Every source of the smallest sizes, as far as there are not too many, then hard ones and a search
guided by the margins, at lengths from the training's up to eight times that.
"""

from __future__ import annotations

from typing import Any

from abc_calib.data import Data
from abc_calib.errors import UsageError
from abc_calib.evaluation.exact import matches
from abc_calib.evaluation.failures import Failure
from abc_calib.evaluation.stress import look_closely, smallest, stress
from abc_calib.nn.base import Model
from abc_calib.proof.certificate import Certificate
from tasks import TaskError

MOST_SOURCES = 20_000
"""Sources of one size that are all run."""


def judge(certificate: Certificate, model: Model, data: Data, why: str) -> None:
    """Refuted with the shortest counterexample that is found, or unknown with the reason."""
    certificate.reason = why
    try:
        failure, tried = shortest(model, data)
    except TaskError as error:
        raise UsageError(f"nothing can be judged: {error}") from None
    certificate.outright = tried
    if failure is None:
        scope = f"all sources of up to {len(tried)} {data.task.unit}" if tried else "hard sources"
        certificate.reason = f"{why}; {scope} are right, and a search found none that is wrong"
        return
    certificate.outcome = "refuted"
    certificate.counterexamples = [failure.as_dict()]
    certificate.reason = f"{why}; a source of {failure.digits} {data.task.unit} is wrong"


def shortest(model: Model, data: Data) -> tuple[Failure | None, list[dict[str, Any]]]:
    """The first failure by size, and for each size of which every source was run how many fail."""
    tried: list[dict[str, Any]] = []
    width = 1
    while (problems := data.task.every(width, MOST_SOURCES)) is not None:
        wrong = (~matches(model, data, data.lay_out(problems))).nonzero()[:, 0].numpy()
        tried.append({"width": width, "sources": len(problems), "wrong": len(wrong)})
        if len(wrong) and (failures := look_closely(model, data, problems.take(wrong[:1]))):
            return failures[0], tried
        width += 1
    first = width if tried else data.length
    times = [data.length * factor for factor in (2, 4, 8)]
    for length in dict.fromkeys([*range(first, data.length + 2), *times]):
        failing = smallest(stress(model, data, [length], samples=20, search=256))
        if failing is not None:
            return failing, tried
    return None, tried
