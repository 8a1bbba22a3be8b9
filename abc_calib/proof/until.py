"""Hard problems for a retraining, and when it may end: as soon as every window is right enough.

Looked for among more and more windows. Until then the windows of the smallest margins are trained
on, inside numbers no longer than the training's: hardly any random problem holds the rarest of
them, such as nothing but nines (hard examples: Shrivastava et al. 2016, arXiv 1604.03540).
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from abc_calib.data import Batch, Data
from abc_calib.evaluation import Evaluator
from abc_calib.evaluation.failures import margins, smallest_margins
from abc_calib.nn.base import Model, in_float64
from abc_calib.proof.forms import Undecided
from abc_calib.proof.prove import Checked, Proof, check, prepare
from abc_calib.proof.search import failing_sources
from abc_calib.training.recipes import is_large
from abc_calib.training.step import NEARLY
from tasks.rules import Rule

FLOOR = 3.0
"""Minimum margin at which training stops, in logits: see reports/from_nothing.md."""
SAMPLES = (2**12, 2**16, 2**20)
"""Windows that are looked at before all of them are."""
ALL, ROW_ALL = 10**8, 10**6
"""Of more windows samples alone are looked at, if they are not held; the latter where outputs have
rows, since listing them takes long."""
PART, ROW_PART = 2**21, 2**23
"""Windows of one node that are held; the latter where outputs have rows."""
DRAWN, LATER = 30_000, 10**9
"""Training problems among which hard ones are looked for before windows are, where a rule is
``hard_to_learn``; from steps on that no training has."""
SOURCES, ROW_SOURCES = 200, 40
"""Sources made of the windows that are below the floor, those of least margin first; the latter
where outputs have rows, since one takes up to a second there."""
ROW_WINDOWS = 100
"""Most windows for which sources are looked for at a time, where outputs have rows. It takes
longest for those that no source of the training's length holds: each is looked for once."""
MOST, MOST_DRAWN = 400, 4000
"""Of them all that are kept, the latest; the latter where they are drawn (``hard_to_learn``)."""
SHARE, SHARE_DRAWN = 0.25, 0.5
"""Of them in a batch, at most; as before."""
MANY = 3 * 10**6
"""Where there are more windows, sources are made and kept in proportion, up to ``LIMIT`` times."""
LIMIT = 7
PAUSE = 200
"""Then all of them are checked again after this number of steps at least, since that takes long."""
LARGE_SHARE, FEW = 0.4, 20
"""Then so many are in a batch, and a sample with fewer failing windows is not all that is seen."""


class MarginStopping:
    """Stops when the smallest margin is above a floor, and mines hard problems until then."""

    least = NEARLY
    ends = "windows"

    def __init__(self, proof: Proof, seed: int):
        self.proof, self.seed = proof, seed
        self.hard: list[str] = []
        self.unfound: set[tuple[int, int]] = set()
        self.scale = min(max(proof.size // MANY, 1), LIMIT)
        self.pause = 0
        task: Any = proof.data.task
        self.sources = ROW_SOURCES if proof.rule.in_rows else self.scale * SOURCES
        self.drawn = hard_to_learn(proof.rule)
        self.most = MOST_DRAWN if self.drawn else self.scale * MOST
        share = SHARE if self.scale == 1 else LARGE_SHARE
        self.share = SHARE_DRAWN if self.drawn else share
        self.parse = functools.cache(task.parse)

    def look(self, model: Model, step: int) -> bool:
        """Are all windows above the floor? If not, ``hard`` are problems of those that are not."""
        proof, rng = replace(self.proof, model=model), np.random.default_rng([self.seed, 9, step])
        most_of_all = ROW_ALL if proof.rule.in_rows else ALL
        whole, failed = proof.whole or proof.size <= most_of_all, False
        if self.drawn and self._fails_often(model, step):
            return False
        if self.scale > 1 and self._still_fails(model):
            return False
        for most in (*SAMPLES, *([None] if whole else [])):
            if most is not None and whole and most >= proof.size:
                continue
            if most is None and self.scale > 1:
                if step < self.pause:
                    return False
                self.pause = step + PAUSE
            sample = proof if most is None else proof.sample(most, rng)
            checked = check(sample, floor=FLOOR)
            if failing := sum(len(result.failing) for result in checked):
                self._mine(proof, checked, rng)
                failed = True
            if failing >= FEW or (failed and (self.scale == 1 or most == SAMPLES[-1])):
                break
        return not failed

    def batch(self, usual: Batch, step: int) -> Batch:
        """The training batch of a step, a part of it hard problems."""
        if not self.hard:
            return usual
        data: Any = self.proof.data
        rng = np.random.default_rng([self.seed, 10, step])
        few = min(int(self.share * len(usual)), len(self.hard))
        parsed = [self.parse(self.hard[i]) for i in rng.integers(0, len(self.hard), few)]
        problems: Any = usual.problems
        return data.lay_out(problems.take(np.arange(len(usual) - few)).joined(*parsed))

    def state(self) -> dict[str, Any]:
        return {"hard": self.hard, "pause": self.pause, "unfound": sorted(self.unfound)}

    def load(self, state: dict[str, Any]) -> None:
        self.hard, self.pause = state.get("hard", []), state.get("pause", 0)
        self.unfound = {(node, code) for node, code in state.get("unfound", [])}

    def _mine(self, proof: Proof, checked: list[Checked], rng: np.random.Generator) -> None:
        """Keep training problems, of the training length at most, with windows that fail."""
        data: Any = proof.data
        once: Any = {"windows": ROW_WINDOWS, "unfound": self.unfound} if proof.rule.in_rows else {}
        drawn = failing_sources(proof, checked, 2, data.length, rng, near=True, **once)
        texts = dict.fromkeys(text for *_, text in itertools.islice(drawn, self.sources))
        self._keep([text for text in texts if data.may_train(data.task.parse(text))])

    def _keep(self, problems: list[str]) -> None:
        """The latest hard problems, and those before as far as there is room."""
        self.hard = list(dict.fromkeys([*problems, *self.hard]))[: self.most]

    def _fails_often(self, model: Model, step: int) -> bool:
        """Are several of the problems that training draws below the floor? They are the hard ones.

        In rows a source that holds a window takes up to a second to find, and these take none.
        """
        data: Any = self.proof.data
        batch = data.training(LATER + step, DRAWN)
        least = smallest_margins(Evaluator(model), batch)
        below = least.argsort()[: min(int((least <= FLOOR).sum()), self.most // 2)]
        if len(below) < FEW:
            return False
        self._keep([data.task.write(batch.problems, row) for row in below.tolist()])
        return True

    def _still_fails(self, model: Any) -> bool:
        """Is a problem below the floor still there? Then all windows need not be looked at."""
        if not self.hard:
            return False
        data: Any = self.proof.data
        first, *others = map(self.parse, self.hard)
        laid_out = data.lay_out(first.joined(*others))
        return bool((margins(in_float64(model), laid_out) <= FLOOR).any())


def hard_to_learn(rule: Rule) -> bool:
    """Are many of the problems that training draws still wrong when windows can be looked at?"""
    return rule.in_rows or is_large(rule)


def certain(model: Any, data: Data, seed: int) -> MarginStopping | None:
    """What says when the training of a model on lines may end; None where nothing can."""
    if model.device.type == "mps":
        return None  # no float64
    try:
        rule = data.task.rule()
        part = ROW_PART if rule is not None and rule.in_rows else PART
        return MarginStopping(prepare(model, data, part=part), seed)
    except Undecided:
        return None
