"""What a folder of a model of ``transformers`` generates, as its users load it.

Such models are tested, not certified, since this program does not compute their layers. Besides
windows inside whole sources (``blackbox``) and short sources, the folder is loaded anew and
generates with its own tokenizer and ``generation_config.json``. An error is a counterexample; no
error is a test, not a proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from abc_calib.evaluation.failures import Failure
from abc_calib.memory import lacking
from abc_calib.nn.foreign.folder import LoadedFolder
from abc_calib.proof.fingerprint import folder_of
from abc_calib.runs import Run
from tasks.ragged import Ragged
from tasks.written import squeezed

LENGTHS = 10, 30, 100, 300, 1000
"""Digits of sources for which the folder generates."""
EACH = 8
"""Random sources of each length, and as many hard ones; besides, one of each digit repeated."""
MOST_BYTES = 2**30
"""What sources that are run together may take."""


def generated(run: Run, model: Any, until: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What ``generate()`` of the run's folder writes: how much was tried, and what is wrong.

    Shorter sources first, until some are wrong, the memory lacks, or ``time.perf_counter()`` is at
    ``until`` behind a length. ``model``: the run's. ``UsageError`` where the folder
    does not load.
    """
    folder, task = LoadedFolder(folder_of(run)), run.task
    wrong, tried = list[dict[str, Any]](), {"sources": 0, "longest": 0}
    for length in LENGTHS:
        steps = run.data.output_steps(length) + 2
        needed = model.memory_needed(1, run.data.layout_at(length).keys, steps)
        if wrong or lacking(needed) or (tried["longest"] and time.perf_counter() > until):
            break
        tried["longest"] = length
        for texts in sources(task, length):
            answers = folder.answers(texts, steps, max(1, MOST_BYTES // needed))
            for source, answer in zip(texts, answers, strict=True):
                if answer != (right := squeezed(task.solve(source))):
                    wrong.append(_failure(source, answer, right, length).as_dict())
            tried["sources"] += len(texts)
            if wrong:
                break
    return tried | {"wrong": len(wrong)}, wrong


def sources(task: Any, length: int) -> Iterator[list[str]]:
    """Random and hard problems of a length as texts, then those of one digit repeated.

    The latter one by one: what experts of a layer take may depend on all sources of a batch.
    """
    rng, by = np.random.default_rng([16, length]), task.rule_task
    drawn = by.sample(rng, EACH, length, task.sampling, exact=True)
    digits = np.arange(1, by.base, dtype=np.uint8)
    repeated = by.problems(
        *(Ragged(np.tile(digits[:, None], w), np.full(len(digits), w)) for w in by.widths(length))
    )
    hard, repeated = (task.render(problems) for problems in (by.hard(rng, EACH, length), repeated))
    yield [*task.render(drawn).source, *hard.source]
    yield from ([source] for source in repeated.source)


def _failure(source: str, answer: str | None, right: str, digits: int) -> Failure:
    wrote = answer or ""
    pairs = zip(f"{wrote}\0", f"{right}\0", strict=False)
    step = next((k for k, (letter, other) in enumerate(pairs) if letter != other), len(right))
    token, expected = (text[step : step + 1] or "the end" for text in (wrote, right))
    return Failure(source, answer, right, digits, step, token, expected)
