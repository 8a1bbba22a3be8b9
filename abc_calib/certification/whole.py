"""Windows in whole sources: for models whose layers this program does not compute itself.

What a row writes depends on its window alone. So a window is put into a source of the smallest
size that has room for it, everything else in source and output drawn at random, and the model is
run on that as its users run it. Some windows are run in other sources, of other sizes and in
float64 too: a margin that changes says that the model sees more than its window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.certification.field import Field
from abc_calib.certification.places import (
    WIDE,
    Case,
    Constant,
    Digit,
    Key,
    Place,
    Unbounded,
    Written,
    column_of,
)
from abc_calib.certification.sources import Realiser
from abc_calib.certification.windows import Windows
from abc_calib.data import Batch
from abc_calib.data.pairs import PairData
from abc_calib.data.vocabulary import EOS
from abc_calib.errors import UsageError
from abc_calib.evaluation.failures import logit_margins
from abc_calib.geometry import ALONE, Line
from abc_calib.nn.build import model_type
from abc_calib.nn.foreign.inject import record_of
from abc_calib.nn.foreign.model import Foreign
from abc_calib.runs import Run
from tasks import Digits
from tasks.columns import ColumnRule

TOKENS = 2**15
"""Tokens of one batch."""
COMPARED = 64
"""Windows of each case that are run in other surroundings."""
TIMES = 10.0
"""A margin counts as certain if it is more than so many times what surroundings changed."""
MOST = 0.01
"""What they may change: more is no rounding."""
SAMPLE = 64
"""Problems on which it is seen how digits are written."""


def field_of(model: Foreign, data: PairData) -> Field:
    """The field of a row of a model of ``transformers``; ``Unbounded`` where it has none."""
    lines, record = model.lines, record_of(model.network)
    if lines is None or record is None:
        raise Unbounded("its attention is not restricted to lines: abc calibrate it")
    if lines.off_line_bias is not None or not record["restricted"]:
        raise Unbounded("keys off its lines are only penalised, or a head has none: it sees all")
    if not record["neutral"]:
        raise Unbounded("it has positions of its own")
    layers, opened = len(model.sites.modules["self"]), model.marks.prefix > 0
    for layer in range(model.attention_layers["encoder"]):
        for head in lines.heads("encoder", layer) or [()]:
            if not head or any(not same_everywhere(line, opened) for line in head):
                raise Unbounded("tokens of its source look at others")
    rule = rule_of_pairs(data)
    ids = {**data.vocabulary.ids, EOS: rule.base}
    if not model.stream:
        return Field(lines, layers, data.layout_at, ids, rule)
    return StreamField(lines, layers, data.layout_at, ids, rule, opened=opened)


def same_everywhere(line: Line, opened: bool) -> bool:
    """Does a token of the source see nothing new along a line of the encoder?

    It sees itself, or a delimiter. Where no line leads elsewhere, layer after layer, delimiters are
    the same rows in every source. What opens a source is none if no token does.
    """
    return line == ALONE or (line.direction == "vert" and line.segment >= (0 if opened else 1))


@dataclass(frozen=True)
class StreamField(Field):
    """Where the token that closes a source is the first row of the output, and reads as one.

    ``opened``: does a token open the source? Else what closes its first part is read in its place.
    """

    opened: bool = True

    def keys(self, layer: int, row: Place, case: Case) -> list[list[list[Key]]]:
        found = super().keys(layer, row, case)
        return [[[self._of_the_output(key) for key in head] for head in heads] for heads in found]

    def _of_the_output(self, key: Key) -> Key:
        """The same key, or the output's first row where that stands there."""
        token, layout = key.token, self.layout(WIDE)
        if token is None or token.atom is not None:
            return key
        first = token.symbol == self.ids[layout.delimiters[0]] and not self.opened
        last = (token.shift, token.row, token.width) == (0, 0, 0)
        closes = last or (first and len(layout.parts) == 1)
        return Key(Place("low", 0), None, key.bias) if closes else key


def rule_of_pairs(data: PairData) -> ColumnRule:
    """The rule of the pairs; ``Unbounded`` if they have none, or do not write as it does."""
    written = data.task.rule
    found = written.task.column_rule() if written is not None else None
    if written is None or found is None:
        raise Unbounded("its pairs follow no rule on columns of digits")
    if len(found.operands) > 1 and not written.padded:
        raise Unbounded("its pairs write numbers of several widths in one source: pad them")
    if not written.order:
        raise Unbounded("its answers begin with their first digit, and the rule with their last")
    return found


def only_ours(run: Run, verb: str) -> None:
    """``UsageError`` where a verb computes layers itself and the run has those of others."""
    if model_type(run.config.kind).in_whole_sources:
        raise UsageError(
            f"{verb} computes the layers of this program's own models, and {run} is a "
            f"{run.config.model.label}: abc certify runs its windows, in whole sources"
        )


class Whole:
    """Runs windows of a model in whole sources."""

    def __init__(self, model: Foreign, data: PairData, field: Field):
        self.model, self.data, self.field = deepcopy(model).eval(), data, field
        self.rule, self.rng = field.rule, np.random.default_rng(12)
        self.realiser = Realiser(data.task.ruled, field.rule, field.reach, 1)
        self.changed = 0.0
        self.compared = 0

    def run(self, windows: Windows, tell: Callable[[int], None]) -> Tensor:
        """Of each window the margin, and what is certain of it: ``(n, 2)``."""
        row, width = next(self.places(windows.case))
        found = self.margins(self.model, windows, row, width, tell)
        self._compare(windows, found)
        return torch.stack([found, found - TIMES * self.changed], 1)

    def places(self, case: Case) -> Iterator[tuple[int, int]]:
        """Rows and widths of a case, the narrowest first."""
        reach = self.field.reach
        return self.realiser.places(case, 2 * (reach.rows + reach.columns) + 3, near=False)

    def margins(
        self,
        model: Foreign,
        windows: Windows,
        row: int,
        width: int,
        tell: Callable[[int], None] = lambda _: None,
    ) -> Tensor:
        """How far the right token's logit is above the others in each window, ``(n,)`` float64."""
        found, keys = [], self.data.layout_at(width).keys
        size = max(1, TOKENS // (keys + row + 1))
        for first in range(0, len(windows), size):
            part = windows.take(np.arange(first, min(first + size, len(windows))))
            batch = self.batch(part, row, width)
            with torch.inference_mode():
                logits = model(batch.source, batch.target)[:, row].double()
            found.append(logit_margins(logits, self.written[torch.from_numpy(part.expected)]))
            tell(len(part))
        return torch.cat(found).nan_to_num(nan=-torch.inf, posinf=torch.inf)  # no number: wrong

    def batch(self, windows: Windows, row: int, width: int) -> Batch:
        """Windows in sources of ``width``, what is not in them at random."""
        layout, n = self.data.layout_at(width), len(windows)
        source = self._template(width).repeat(n, 1)
        known: dict[tuple[int, int], np.ndarray] = {}
        target = self.rng.integers(0, self.rule.base, (n, row + 1))
        for atom, value in zip(windows.atoms, windows.values.T, strict=True):
            if isinstance(atom, Constant):
                known[atom.operand, 0] = value
            elif isinstance(atom, Digit):
                known[atom.operand, column_of(atom.column, row, width)] = value
            elif isinstance(atom, Written):
                target[:, column_of(atom.column, row, width)] = value
        for position in range(layout.keys):
            _, operand, column = layout.coordinate(position)
            if operand is not None:
                digits = known.pop((operand, column), None)
                drawn = self.rng.integers(0, self.rule.base, n) if digits is None else digits
                source[:, position] = self.read[torch.from_numpy(drawn.astype(np.int64))]
        if known:
            raise Unbounded(f"a window of {windows.case.label()} does not fit its source")
        return Batch(source, self.written[torch.from_numpy(target)], self.data.task.pairs)

    def certain(self, margin: float) -> float:
        """What is left of a margin when what surroundings changed anywhere is taken away."""
        return margin - TIMES * self.changed

    @property
    def told(self) -> str:
        """How windows were run, for people."""
        return (
            f"each run by transformers in a whole source; {self.compared:,} were run in other "
            f"sources and in float64, which changed margins by at most {self.changed:.1g}: that "
            "is measured, not bounded"
        )

    def _compare(self, windows: Windows, found: Tensor) -> None:
        """Run some windows again elsewhere, and say if that changes their margins."""
        some = self.rng.permutation(len(windows))[:COMPARED]
        few, before = windows.take(some), found[torch.from_numpy(some)]
        for model, (row, width) in zip(
            (self.model, self._double), islice(self.places(windows.case), 0, 3, 2), strict=False
        ):
            again = self.margins(model, few, row, width)
            self.changed = max(self.changed, float((again - before).abs().max()))
        self.compared += len(few)
        if self.changed > MOST:
            raise Unbounded(
                f"the same window gives other margins in other sources (by {self.changed:.2g}): "
                "it sees more than its lines say"
            )

    @cached_property
    def _double(self) -> Foreign:
        return self.model.exact()

    # Tokens

    @cached_property
    def read(self) -> Tensor:
        """The token of each digit in a source."""
        return self._tokens[0]

    @cached_property
    def written(self) -> Tensor:
        """The token of each digit in an output, and of its end."""
        return torch.cat([self._tokens[1], torch.tensor([self.model.eos])])

    @cached_property
    def _tokens(self) -> tuple[Tensor, Tensor]:
        """Of each digit, as sources and outputs have it; ``Unbounded`` if it has several tokens."""
        rng, task = np.random.default_rng(13), self.data.task.ruled
        found: tuple[Any, Any] = ({}, {})
        for width in (2, 3, 5):
            problems = task.sample(rng, SAMPLE, width, "mixed", exact=True)
            batch = self.data.lay_out(self.data.task.asked(problems))
            layout = self.data.layout_at(width)
            if batch.source.shape[1] != layout.keys:
                raise Unbounded("its sources are not as long as their numbers say")
            wide = (
                problems.operands
                if len(self.rule.operands) == 1
                else task.padded(problems.operands, width)
            )
            for position in range(layout.keys):
                _, operand, column = layout.coordinate(position)
                if operand is not None:
                    digits = wide[operand].values[:, -1 - column]
                    for digit, token in zip(digits, batch.source[:, position], strict=True):
                        found[0].setdefault(int(digit), set()).add(int(token))
            for row in range(len(problems)):
                plain = task.digits_of(problems.answer, row)[::-1]
                tokens = batch.target[row][batch.target[row] != self.data.vocabulary.pad].tolist()
                if len(tokens) != len(plain) + 1 or tokens[-1] != self.model.eos:
                    raise Unbounded("its answers leave out zeros that the rule's columns give")
                for symbol, token in zip(plain, tokens, strict=False):
                    found[1].setdefault(task.symbols.index(symbol), set()).add(token)
        told = []
        for each in found:
            if sorted(each) != [*range(self.rule.base)] or any(len(t) > 1 for t in each.values()):
                raise Unbounded("its tokenizer does not write each digit as one and the same token")
            told.append(torch.tensor([each[digit].pop() for digit in range(self.rule.base)]))
        return told[0], told[1]

    def _template(self, width: int) -> Tensor:
        """The ids of a source of that width."""
        task = self.data.task.ruled
        ones = tuple(Digits(np.ones((1, w), np.uint8), np.array([w])) for w in task.widths(width))
        return self.data.lay_out(self.data.task.asked(task.problems(*ones))).source[0]
