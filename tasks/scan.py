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
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from tasks.base import TaskError, text_of
from tasks.tokens import Pairs, TokenTask

PRIMITIVES = {w: f"I_{w.upper()}" for w in ("walk", "look", "run", "jump")}
SIDES = {side: f"I_TURN_{side.upper()}" for side in ("left", "right")}
TIMES = {"twice": 2, "thrice": 3}
LONGEST_TRAINING, LONGEST = 22, 48
VALIDATION = 3920
"""Commands that Ray Chowdhury & Caragea hold out of the 16,990 for training."""
SPLIT_SEED = 2018


class Scan(TokenTask):
    """Commands to actions: ``turn left twice -> I_TURN_LEFT I_TURN_LEFT``.

    ``data``: a folder with ``tasks_train_length.txt`` and ``tasks_test_length.txt`` as published,
    read instead of the grammar's own commands. As in the public code of the attenders, the
    source that a model reads ends with a literal ``<eos>``.
    """

    name = "scan"
    unit = "actions"
    options = ("data",)
    closes_source = True
    inputs = (*PRIMITIVES, "turn", *SIDES, "opposite", "around", *TIMES, "and", "after")
    symbols = (*inputs, *PRIMITIVES.values(), *SIDES.values())
    train_length = LONGEST_TRAINING
    splits = ("train", "validation", "test")
    usage = "a command of SCAN, as in 'jump twice and walk'"

    def __init__(self, data: str | None = None):
        self.data = None if data is None else Path(data)
        if self.data is not None and not self.data.is_dir():
            raise TaskError(f"there is no folder {data}: give the one that holds the SCAN files")

    # The rule

    def solve(self, source: str) -> str:
        words = self.words(source)
        for joint in ("after", "and"):
            if words.count(joint) > 1 or {"after", "and"} <= set(words):
                raise self._outside(source, "at most one of 'and' and 'after' joins two parts")
            if joint in words:
                at = words.index(joint)
                first, second = (self._sentence(w, source) for w in (words[:at], words[at + 1 :]))
                return " ".join(second + first if joint == "after" else first + second)
        return " ".join(self._sentence(words, source))

    def _sentence(self, words: list[str], source: str) -> list[str]:
        if words and words[-1] in TIMES:
            return self._verb(words[:-1], source) * TIMES[words[-1]]
        return self._verb(words, source)

    def _verb(self, words: list[str], source: str) -> list[str]:
        if not words or words[0] not in (*PRIMITIVES, "turn"):
            raise self._outside(source, "each part begins with walk, look, run, jump or turn")
        action = [] if words[0] == "turn" else [PRIMITIVES[words[0]]]
        if len(words) == 1 and action:
            return action
        if len(words) not in (2, 3) or words[-1] not in SIDES:
            raise self._outside(source, "a direction ends with left or right")
        turn = SIDES[words[-1]]
        if len(words) == 2:
            return [turn, *action]
        if words[1] == "opposite":
            return [turn, turn, *action]
        if words[1] == "around":
            return [turn, *action] * 4
        raise self._outside(source, "only opposite or around stand before left or right")

    def _outside(self, source: str, why: str) -> TaskError:
        return TaskError(f"{source!r} is outside the grammar of SCAN ({why})")

    # The commands

    @staticmethod
    def commands() -> list[str]:
        """All commands of the grammar."""
        verbs = list(PRIMITIVES)
        for mover in (*PRIMITIVES, "turn"):
            for side in SIDES:
                verbs += [f"{mover}{way} {side}" for way in ("", " opposite", " around")]
        sentences = [f"{verb}{times}" for verb in verbs for times in ("", " twice", " thrice")]
        joined = [
            f"{a} {joint} {b}" for joint in ("and", "after") for a in sentences for b in sentences
        ]
        return sentences + joined

    @cached_property
    def sets(self) -> dict[str, Pairs]:
        """Training, validation and test of the length split."""
        if self.data is None:
            training = _everything().between(0, LONGEST_TRAINING)
            test = _everything().between(LONGEST_TRAINING + 1, LONGEST)
        else:
            training = self._read(self.data / "tasks_train_length.txt")
            test = self._read(self.data / "tasks_test_length.txt")
        order = np.random.default_rng(SPLIT_SEED).permutation(len(training))
        size = min(VALIDATION, len(training) // 4)
        validation, train = training.take(order[:size]), training.take(order[size:])
        return {"train": train, "validation": validation, "test": test}

    def _read(self, path: Path) -> Pairs:
        """A published file: lines ``IN: command OUT: actions``; ``TaskError`` names a bad one."""
        try:
            lines = text_of(path).splitlines()
        except (OSError, ValueError) as error:
            raise TaskError(f"{path} cannot be read ({error}): give the published files") from None
        pairs: list[tuple[list[str], list[str]]] = []
        for number, line in enumerate(lines, start=1):
            match = re.fullmatch(r"\s*IN:\s*(\S.*?)\s*OUT:\s*(\S.*?)\s*", line)
            if match is None:
                raise TaskError(f"{path}, line {number}: expected 'IN: command OUT: actions'")
            for side, allowed in ((match[1], self.inputs), (match[2], self.symbols)):
                strange = [word for word in side.split() if word not in allowed]
                if strange:
                    raise TaskError(f"{path}, line {number}: {strange[0]!r} is not a word of SCAN")
            pairs.append((match[1].split(), match[2].split()))
        if not pairs:
            raise TaskError(f"{path} is empty: expected lines 'IN: command OUT: actions'")
        commands, actions = zip(*pairs, strict=True)
        return Pairs(self.tokens(commands), self.tokens(actions))

    def split(self, name: str) -> Pairs:
        if name not in self.sets:
            raise self.no_split(name)
        return self.sets[name]

    def sample_between(self, rng: np.random.Generator, n: int, low: int, high: int) -> Pairs:
        """Draw commands, with repetition, of ``low`` to ``high`` actions."""
        sets = [pairs.between(low, high) for pairs in self.sets.values()]
        sizes = [len(pairs) for pairs in sets]
        if not sum(sizes):
            raise TaskError(f"no SCAN command has {high} actions: they have 1 to 48")
        which = rng.choice(len(sets), n, p=np.array(sizes) / sum(sizes))
        parts = [p.take(rng.integers(0, len(p), (which == i).sum())) for i, p in enumerate(sets)]
        return parts[0].joined(*parts[1:]).take(rng.permutation(n))

    def training_set(self, length: int) -> Pairs:
        return self.sets["train"].between(0, length)

    def held_out_set(self, length: int, law: str = "uniform") -> Pairs:
        return self.sets["validation"].between(0, length)

    def longer_set(self, length: int) -> Pairs:
        """Validation: the length split chooses models by the training lengths."""
        return self.held_out_set(length)

    def test_set(self, length: int, n: int, seed: int) -> Pairs:
        name = "validation" if length <= LONGEST_TRAINING else "test"
        pairs = self.sets[name].between(length, length)
        if not len(pairs):
            raise TaskError(f"no held-out SCAN command has {length} actions: choose another length")
        return pairs.drawn(n, seed, 3, length)


@cache
def _everything() -> Pairs:
    """All commands of the grammar with their actions; nothing changes them."""
    task = Scan()
    commands = task.commands()
    actions = [task.solve(command).split() for command in commands]
    return Pairs(task.tokens([command.split() for command in commands]), task.tokens(actions))
