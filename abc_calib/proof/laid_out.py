"""Are sources and outputs laid out as a certificate takes it? Compared token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from abc_calib.data import Data
from abc_calib.data.vocabulary import EOS
from abc_calib.errors import shortened
from abc_calib.geometry.layout import placed
from abc_calib.proof.forms import Gaps, Undecided
from abc_calib.proof.operands import Token, reading
from abc_calib.proof.setup import Setup, Size
from abc_calib.proof.sources import Sources
from tasks import TaskError
from tasks.rules import Rule

SMALL = 2
"""A size of problems that are compared besides those that are decoded."""
EACH = 4
"""Problems of each size."""


def check_laid_out(data: Data, setup: Setup) -> None:
    """Raise ``Undecided`` where a token of a source, or the width of a row, is not as expected.

    Of random problems of four sizes every token is compared with what the shape says of its
    position, and every row's width with what the rule says of it.
    """
    task, rule, rng = data.task, setup.rule, np.random.default_rng(15)
    lengths = Sources(task, rule).lengths
    for length in ((SMALL, SMALL) if isinstance(lengths[0], tuple) else SMALL, *lengths):
        try:
            problems = task.sample(rng, EACH, length, task.sampling, exact=True)
        except TaskError:  # there is none of this size
            continue
        for number in range(len(problems)):
            problem = problems.take(np.array([number]))
            for where, token, expected in _differences(data, setup, problem):
                raise Undecided(
                    "it is not laid out as its rule is followed: for "
                    f"{shortened(task.plain(task.render(problem), 0))} {where} is {token}, not "
                    f"{expected}"
                )


def _differences(data: Data, setup: Setup, problem: Any) -> Iterator[tuple[str, Any, Any]]:
    """Of one problem what differs: where, what stands there, and what is expected."""
    rule, laid = setup.rule, data.lay_out(data.task.render(problem))
    source, target = (
        x[0][x[0] != data.vocabulary.pad].tolist() for x in (laid.source, laid.target)
    )
    letters = data.task.letters(problem)
    written = [row for row in rule.rows(letters) if row.lengths[0] >= 0]
    rows = [(row.values[0], int(row.lengths[0])) for row in written]
    layout = data.layout(data.task.render(problem))
    if len(source) != layout.keys:
        yield "the number of tokens of the source", len(source), layout.keys
        return
    sizes = [*_sizes(setup, letters, rows)]
    for position, token in enumerate(source):
        part, behind = placed(layout.closes, position)
        for row, size in enumerate(sizes):
            if rule.listed and behind >= 0 and part != row + 1:
                continue  # the number of another row
            at, _ = reading(size).token(Token(part, behind))
            expected = at
            if not isinstance(at, int):
                column = row if at.column is None else int(at.column)
                if at.kind == "symbol" and layout.aligned:
                    column = 0
                operand = row if rule.listed else at.of
                expected = int(letters[operand].values[0, column])
            if token != expected:
                names: Any = data.vocabulary.symbols
                yield f"token {position} of the source", names[token], names[expected]
    yield from _written(setup, target, rows)
    for row, (size, (_, width)) in enumerate(zip(sizes, rows[:-1], strict=False)):
        if rule.extra is not None and width != size.wide.value + rule.extra:
            yield f"the width of row {row}", width, size.wide.value + rule.extra
        if row and rule.shorter is not None and width != rows[row - 1][1] - rule.shorter:
            yield f"the width of row {row}", width, rows[row - 1][1] - rule.shorter


def _written(setup: Setup, target: list[int], rows: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """What differs in an output from the rows of the rule."""
    expected, last = list[Any](), len(rows) - 1
    for number, (values, width) in enumerate(rows):
        closer = setup.ids[EOS] if number == last else setup.row
        if setup.rule.closers and number < last:
            closer = int(values[width])
        expected += [*map(int, values[:width]), closer]
    if target != expected:
        yield "the output", target[:20], expected[:20]


def _sizes(setup: Setup, letters: Any, rows: Any) -> Iterator[Size]:
    """Of each row of an output the size of its problem, without gaps."""
    rule: Rule = setup.rule
    for row, _ in enumerate(rows):
        tapes = [row] if rule.listed else [k for k in rule.first.tapes if k >= 0]
        widths = [int(letters[k].lengths[0]) for k in tapes]
        wide = max(widths, default=1)
        short = sum(width < wide for width in widths) if rule.stride > 1 else 0
        frame: dict[str, tuple[int, ...]] = {"column": (0,), "wide": (wide,)}
        if rule.in_rows:
            frame |= {"row": (row,), "rows": (len(rows),)}
            if rule.extra is None:
                frame["above"] = (rows[row - 1][1] if row else 0,)
        yield Size(setup, frame, Gaps(()), short)
