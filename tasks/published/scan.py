"""SCAN (Lake & Baroni 2018): commands of a small grammar to sequences of actions.

    command   c -> s | s and s | s after s
    sentence  s -> v | v twice | v thrice
    verb      v -> u | d | m opposite side | m around side
    turn      d -> m side       m -> u | turn       side -> left | right
    action    u -> walk | look | run | jump

20,910 commands. The length split trains on those of at most 22 actions and tests on those of
24 to 48. A length counts actions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from tasks.base import Problems, TaskError, text_of
from tasks.published.sets import SetTask

PRIMITIVES = {w: f"I_{w.upper()}" for w in ("walk", "look", "run", "jump")}
SIDES = {side: f"I_TURN_{side.upper()}" for side in ("left", "right")}
TIMES = {"": 1, " twice": 2, " thrice": 3}
LONGEST_TRAINING = 22
FILES = "tasks_train_length.txt", "tasks_test_length.txt"
VALIDATION = 3920
"""Commands that Ray Chowdhury & Caragea hold out of the 16,990 for training."""
SPLIT_SEED = 2018


@cache
def meanings() -> dict[str, str]:
    """The actions of every command of the grammar."""
    verbs = {**PRIMITIVES}
    for mover, action in {**PRIMITIVES, "turn": ""}.items():
        for side, turn in SIDES.items():
            once = f"{turn} {action}".strip()
            verbs[f"{mover} {side}"] = once
            verbs[f"{mover} opposite {side}"] = f"{turn} {once}"
            verbs[f"{mover} around {side}"] = " ".join(4 * [once])
    sentences = {
        verb + often: " ".join(times * [actions])
        for verb, actions in verbs.items()
        for often, times in TIMES.items()
    }
    pairs = [(*x, *y) for x in sentences.items() for y in sentences.items()]
    joined = {f"{a} and {b}": f"{first} {then}" for a, first, b, then in pairs}
    joined |= {f"{a} after {b}": f"{first} {then}" for a, then, b, first in pairs}
    return sentences | joined


class Scan(SetTask):
    """Commands to actions: ``turn left twice -> I_TURN_LEFT I_TURN_LEFT``.

    ``data``: a folder with ``tasks_train_length.txt`` and ``tasks_test_length.txt`` as published,
    read instead of the grammar's own commands.
    """

    name = "scan"
    unit = "actions"
    options = ("data",)
    inputs = (
        *(*PRIMITIVES, "turn", *SIDES, "opposite", "around"),
        *("twice", "thrice", "and", "after"),
    )
    symbols = (*inputs, *PRIMITIVES.values(), *SIDES.values())
    train_length = LONGEST_TRAINING
    usage = "a command of SCAN, as in 'jump twice and walk'"

    def __init__(self, data: str | None = None):
        self.data = None if data is None else Path(data)
        if self.data is not None and not self.data.is_dir():
            raise TaskError(f"there is no folder {data}: give the one that holds the SCAN files")

    def solve(self, source: str) -> str:
        if (actions := meanings().get(" ".join(self.words(source)))) is None:
            raise TaskError(f"{source!r} is outside the grammar of SCAN: write {self.usage}")
        return actions

    @cached_property
    def sets(self) -> dict[str, Problems]:
        """The length split."""
        if self.data is None:
            pairs = meanings().items()
            trained = [(c, a) for c, a in pairs if len(a.split()) <= LONGEST_TRAINING]
            tested = [(c, a) for c, a in pairs if len(a.split()) > LONGEST_TRAINING]
        else:
            trained, tested = (self._read(self.data / name) for name in FILES)
        if shared := {*trained} & {*tested}:
            raise TaskError(
                f"{min(shared)[0]!r} stands in {' and in '.join(FILES)}: keep it in one of them"
            )
        training, test = self._pairs(trained), self._pairs(tested)
        counts = Counter(trained)
        repeated = np.array([counts[pair] > 1 for pair in trained])
        order = np.random.default_rng(SPLIT_SEED).permutation(len(training))
        order = order[np.argsort(repeated[order], kind="stable")]  # what repeats is not held out
        size = min(VALIDATION, len(training) // 4, int((~repeated).sum()))
        validation, train = training.take(order[:size]), training.take(order[size:])
        return {"train": train, "validation": validation, "test": test}

    def _pairs(self, texts: Iterable[tuple[str, str]]) -> Problems:
        commands, actions = zip(*((a.split(), b.split()) for a, b in texts), strict=True)
        return Problems.of(self.tokens(commands), self.tokens(actions))

    def _read(self, path: Path) -> list[tuple[str, str]]:
        """A published file: lines ``IN: command OUT: actions``; ``TaskError`` names a bad one."""
        try:
            lines = text_of(path).rstrip().splitlines()
        except (OSError, ValueError) as error:
            raise TaskError(f"{path} cannot be read ({error}): give the published files") from None
        texts = []
        for number, line in enumerate(lines, start=1):
            match = re.fullmatch(r"\s*IN:\s*(\S.*?)\s*OUT:\s*(\S.*?)\s*", line)
            if match is None:
                raise TaskError(f"{path}, line {number}: expected 'IN: command OUT: actions'")
            command, actions = (" ".join(text.split()) for text in match.groups())
            if meanings().get(command) != actions:
                raise TaskError(
                    f"{path}, line {number}: {command[:60]!r} does not mean {actions[:60]!r} in "
                    "SCAN: give the published files"
                )
            texts.append((command, actions))
        if not texts:
            raise TaskError(f"{path} is empty: expected lines 'IN: command OUT: actions'")
        return texts

    def held_out_set(self, length: int, law: str = "uniform") -> Problems:
        return self.sets["validation"].between(0, length)
