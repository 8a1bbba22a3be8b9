"""What a folder of a model of ``transformers`` generates, as its users load it.

Such models are tested, not certified, since this program does not compute their layers. Besides
windows inside whole sources (``blackbox``) and short sources, the folder is loaded anew and
generates with its own tokenizer and ``generation_config.json``. An error is a counterexample; no
error is a test, not a proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from abc_calib.nn.foreign.folder import load as without_lines
from abc_calib.nn.foreign.inject import load
from abc_calib.runs import Run
from tasks.digits import Digits
from tasks.written import squeezed

LENGTHS = 10, 100, 1000
"""Digits of sources for which the folder generates."""
EACH = 4
"""Random sources of each length, and as many hard ones; besides, one of each digit repeated."""


def generated(run: Run) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What ``generate()`` of the run's model folder writes: how much was tried, and what is wrong.

    ``UsageError`` where the folder does not load.
    """
    from transformers import AutoTokenizer

    folder, task, wrong = run.path / "model", run.task, list[dict[str, Any]]()
    network: Any = load(folder) if run.fresh_model().lines else without_lines(folder).network
    words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    count = 0
    for length in LENGTHS:
        for source in sources(task, length):
            right = squeezed(task.solve(source))
            answer = written(network, words, source, 2 * len(right) + 8)
            count += 1
            if answer != right:
                wrong.append(_failure(source, answer, right, length))
    return {"sources": count, "longest": max(LENGTHS), "wrong": len(wrong)}, wrong


@torch.inference_mode()
def written(network: Any, words: Any, source: str, most: int) -> str:
    """What a model writes behind a source, by its folder's settings, as a text without spaces.

    Of at most ``most`` tokens, as far as the folder does not say how many.
    """
    ids = words(source, return_tensors="pt")
    given = {name: ids[name] for name in ("input_ids", "attention_mask") if name in ids}
    own = network.generation_config
    bound = own.max_new_tokens if own.max_new_tokens and own.max_new_tokens < most else most
    found = network.generate(**given, max_new_tokens=bound)[0]
    behind = found if network.config.is_encoder_decoder else found[given["input_ids"].shape[1] :]
    return squeezed(words.decode(behind, skip_special_tokens=True))


def sources(task: Any, length: int) -> Iterator[str]:
    """Random and hard problems of a length, and those of one digit repeated, as texts."""
    rng, by = np.random.default_rng([16, length]), task.rule_task
    widths = by.widths(length)
    repeated = (
        [Digits(np.full((1, width), digit, np.uint8), np.array([width])) for width in widths]
        for digit in range(1, by.base)
    )
    groups = [
        by.sample(rng, EACH, length, task.sampling, exact=True),
        by.hard(rng, EACH, length),
        *(by.problems(*operands) for operands in repeated),
    ]
    for group in groups:
        texts = task.render(group)
        yield from (task.plain(texts, row) for row in range(len(texts)))


def _failure(source: str, answer: str, right: str, digits: int) -> dict[str, Any]:
    """A counterexample in the form of ``evaluation.failures.Failure``."""
    pairs = zip(f"{answer}\0", f"{right}\0", strict=False)
    step = next(k for k, (wrote, wanted) in enumerate(pairs) if wrote != wanted)
    token = {
        name: text[step : step + 1] or "the end"
        for name, text in (("wrote", answer), ("wanted", right))
    }
    about = {"problem": source, "answer": answer, "right": right, "digits": digits, "step": step}
    return about | token | {"around": ()}
