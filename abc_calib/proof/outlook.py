"""What can be said of a task before anything is trained: can lines do it, and what would they show?

A model on lines sees a bounded number of columns. So the state of a task's rule has to follow from
what stands in some columns, or no model on lines can be right; that is computed here, as are the
windows that such a model sees at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abc_calib.config import TrainOptions, build
from abc_calib.data import Data, make_data
from abc_calib.errors import UsageError
from abc_calib.geometry import Layout, Line, LineBias
from abc_calib.proof.allowed import check_allowed
from abc_calib.proof.forms import Undecided
from abc_calib.proof.occurrence import TooMany, distinct
from abc_calib.proof.page import atom_name
from abc_calib.proof.prove import fitting, rule_of
from abc_calib.proof.setup import Setup
from abc_calib.proof.windows import AllWindows
from tasks import Task
from tasks.machine import columns_seen
from tasks.rules import Rule

MOST = 20_000_000
"""Windows that are counted."""


class Hopeless(UsageError):
    """No model on lines is right in every source of the task, or none can be proved to be."""


@dataclass(frozen=True)
class Outlook:
    """What is known of a task before a training.

    ``states`` of its rule, None without one; ``columns`` before one that tell what it writes.

    ``windows``: how many different ones a model on the fewest lines sees, and ``tokens``, what the
    largest kind of them shows; None where that was not counted.
    """

    task: str
    states: int | None = None
    columns: int = 0
    windows: int | None = None
    tokens: tuple[str, ...] = ()

    @property
    def text(self) -> list[str]:
        """The same in sentences."""
        if self.states is None:
            return [
                f"{self.task} can be trained and evaluated, but not certified: it has no rule, "
                "since its class says no step (docs/rules.md); abc calibrate tries whether lines "
                "decide what it writes"
            ]
        before = f"the {self.columns} columns" if self.columns > 1 else "the column"
        columns = f"that column and {before} before it" if self.columns else "that column alone"
        sentences = [
            f"{self.task} can be calibrated and certified: its rule has {self.states} states, and "
            f"what it writes in a column follows from {columns}"
        ]
        if self.windows is not None:
            sentences.append(
                f"with the fewest lines a certificate has {self.windows:,} windows to check, each "
                f"of at most {len(self.tokens)} tokens: {', '.join(self.tokens)}"
            )
        return sentences


def look_ahead(task: Task) -> Outlook:
    """What can be said of a task before a training, by its default data.

    ``UsageError`` where it answers by code of its own; ``Hopeless`` where no window tells what is
    written, where a row that it may write has no next one, or where there are too many windows.
    Without a rule its first problems are drawn, and whatever they raise is raised.
    """
    data = make_data(task, build(TrainOptions, length=task.train_length, sampling=task.sampling))
    options: Any = task
    if (rule := task.rule()) is None:
        data.training(0, 8)
        return Outlook(task.name)
    try:
        check_allowed(options.rule_task, rule)
    except Undecided as error:
        raise UsageError(f"{task.name}: {error}") from None
    try:
        rule = rule_of(data)
        columns = _columns(rule)
        windows, tokens = _windows(data, rule, columns)
    except Undecided as error:
        raise Hopeless(f"{task.name}: {error}") from None
    states = rule.first.states if rule.later is None else rule.later.states
    return Outlook(task.name, states, columns, windows, tokens)


def _columns(rule: Rule) -> int:
    """How many columns tell the rule's state; ``Undecided`` if no number does."""
    counts = [columns_seen(machine) for machine in (rule.first, rule.later) if machine is not None]
    if None in counts:
        raise Undecided(
            "what it writes does not follow from what is read and written in any number of columns "
            "before, or in the first ones, so that no model on lines can be right: let it write "
            "its state, or more of it"
        )
    return max(columns for columns in counts if columns is not None)


def _windows(data: Data, rule: Rule, columns: int) -> tuple[int | None, tuple[str, ...]]:
    """How many windows there are on the fewest lines, and what the largest kind shows."""
    if rule.in_rows:
        return None, ()
    layout, ids = fitting(data, rule), data.vocabulary.ids
    for back in range(columns + 1):
        listing = AllWindows(Setup(rule, _lines(layout, rule, back), 1, 0, layout, ids))
        counts: dict[int, Any] = {node: _count(listing, node) for node in listing.occurrences}
        if None not in counts.values():
            occurrence = listing.occurrences[max(counts, key=counts.__getitem__)][0]
            names = tuple(atom_name(occurrence, atom) for atom in occurrence.atoms)
            return sum(counts.values()), names
    return None, ()  # a row's first column decides, too


def _lines(layout: Layout, rule: Rule, back: int) -> LineBias:
    """Lines of one layer that see a column and ``back`` columns before it, read and written.

    And the columns ahead of it that the rule reads.
    """
    read, ahead = [], rule.first.lag
    for part, tokens in enumerate(layout.parts, 1):
        stride = len(tokens.operands) * rule.stride
        if part - 1 == rule.of_row:
            read.append(Line("vert", part, 1))
        elif stride:
            direction: Any = "diag" if part - 1 in rule.forward else "anti"
            offsets = range(-back * stride, (1 + ahead) * stride)
            read += [Line(direction, part, x, stride=stride) for x in offsets]
    output = [Line("diag", 0, -k) for k in range(max(back, 1))]
    heads = tuple((line,) for line in read), tuple((line,) for line in output)
    return LineBias({"cross": (heads[0],), "self": (heads[1],)})


def _count(listing: AllWindows, node: int) -> int | None:
    """How many windows a node has; None where one of them is followed by different tokens."""
    try:
        codes = listing.windows(node, {}, MOST)
    except TooMany:
        raise Undecided(
            f"it has more than {MOST:,} windows, which no training sees: give it fewer symbols, or "
            "let it write more of its state"
        ) from None
    return len(codes) if len(distinct(codes % listing.radix(node))) == len(codes) else None
