"""A task that is given by a file of pairs, such as ``{"source": "12+34=", "target": "64"}`` a line.

Where all pairs follow a rule of the registry it is the rule of the task, and says what is right
beyond the file; otherwise only the file does.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import Task, TaskError
from tasks.pair_files import Texts, read_pairs
from tasks.ragged import Ragged, Rng
from tasks.written import Written, rule_named


class FilePairs(Task):
    """The pairs of a file."""

    name = "pairs"
    notation = "pairs"
    options = ("data", "sha256", "tokenizer", "delimiters", "eos", "joined", "rule")
    laws = ("uniform",)
    symbols = ()
    train_length = 0  # its data count, in the tokens of a tokenizer

    def __init__(
        self,
        data: str,
        tokenizer: str,
        delimiters: str,
        eos: int,
        joined: int = 0,
        sha256: str = "",
        rule: str = "",
    ):
        self.path, self.tokenizer, self.eos = Path(data), tokenizer, eos
        #: are targets read together with their sources, and not as texts of their own?
        self.joined = bool(joined)
        self.delimiters = tuple(delimiters.split(","))
        self.pairs, digest = read_pairs(self.path)
        if sha256 and sha256 != digest:
            raise TaskError(f"{self.path} was changed since (its SHA-256 is another): put it back")
        self.follows = rule_named(rule, self.pairs) if rule else None
        self.unit = "tokens" if self.follows is None else "digits"

    @cached_property
    def targets(self) -> dict[str, str]:
        """The target of every source."""
        return dict(zip(self.pairs.source, self.pairs.target, strict=True))

    def solve(self, source: str) -> str:
        if self.follows is not None:
            return self.follows.solve(source)
        if source not in self.targets:
            raise TaskError(f"{source!r} is not in {self.path.name}, and its pairs follow no rule")
        return self.targets[source]

    def parse(self, source: str) -> Texts:
        if not source.strip():
            raise TaskError(f"{source!r} is not a source: write one as in {self.pairs.source[0]!r}")
        if self.follows is None:
            return Texts((source,), (self.targets.get(source, ""),))
        return Texts((source,), (self.solve(source),))

    @property
    def rule_task(self) -> Any:
        return self._rule.task

    def render(self, problems: Any) -> Texts:
        return self._rule.texts(problems)

    def write(self, problems: Texts, row: int) -> str:
        return problems.source[row]

    def read(self, output: str) -> str:
        return output

    def ones(self, width: int) -> Texts:
        """A source with this number of digits, each of them 1."""
        task = self.rule_task
        digits = (Ragged(np.ones((1, w), np.uint8), np.array([w])) for w in task.widths(width))
        return self.render(task.problems(*digits))

    def sample(
        self, rng: Rng, n: int, length: int, law: str = "balanced", exact: bool = False
    ) -> Texts:
        return self.render(self.rule_task.sample(rng, n, length, law, exact))

    def hard(self, rng: Rng, n: int, length: int) -> Texts:
        return self.render(self.rule_task.hard(rng, n, length))

    def mutated(self, rng: Rng, parents: Texts, n: int) -> Texts:
        rule = self._rule
        first, *others = (rule.task.parse(rule.problem(source)) for source in parents.source)
        return self.render(rule.task.mutated(rng, first.joined(*others), n))

    @property
    def _rule(self) -> Written:
        if self.follows is None:
            raise TaskError(
                f"the pairs of {self.path.name} follow no rule that is known: nothing says what is "
                "right beyond the file"
            )
        return self.follows
