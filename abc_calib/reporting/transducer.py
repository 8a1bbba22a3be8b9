"""A certified run as a finite-state transducer: a table, a file that runs it, and its graph.

A model that is right in each of its windows writes what its rule writes, for every source. So the
smallest machine that writes the same is the rule's, with equal states united.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from abc_calib.data import Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import write_atomically
from abc_calib.nn.base import in_float64
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.forms import Undecided
from abc_calib.proof.prove import check, prepare
from abc_calib.reporting import transducer_program as template
from abc_calib.reporting.style import SMALL, TEXT_WIDTH, new_figure, save_figures, styled
from abc_calib.runs import Run
from tasks.ragged import Ragged
from tasks.rules import Rule, Transducer, reduced

NAME = "transducer"
MOST = 18
"""Arrows of a graph up to which it shows what is read and written."""


@dataclass(frozen=True)
class Compiled:
    """A transducer that writes what a model writes, at every length; ``files``: where it is."""

    data: Data
    transducer: Transducer
    files: list[Path] = field(default_factory=list)

    @property
    def states(self) -> int:
        """How many states there are, without the one behind the end."""
        return self.transducer.states - 1

    def answer(self, problem: str) -> str:
        """Answer a problem as a person writes both; ``TaskError`` where it is none."""
        task = self.data.task
        row = self.rows(task.letters(task.parse(problem)))
        return self.data.read([task.symbols[k] for k in row.row(0)])

    def rows(self, operands: list[Ragged]) -> Ragged:
        """Write for the letters of each operand."""
        return Rule(self.transducer, of_row=self.data.task.rule().of_row).rows(operands)[0]


def compiled(model: Any, data: Data) -> Compiled:
    """Run a model on its windows; ``AbcError`` where it is wrong in one, or they are not listed."""
    try:
        proof = prepare(model, data)
    except Undecided as error:
        raise AbcError(f"it cannot be compiled: {error}") from None
    if proof.rule.in_rows:
        raise AbcError("outputs of several rows are not compiled: give a task that answers in one")
    if proof.rule.stride > 1:
        raise AbcError("rules that read several words a column are not compiled: give another task")
    checked = check(replace(proof, model=in_float64(model)))
    if wrong := sum(result.wrong for result in checked):
        raise AbcError(
            f"it is wrong in {wrong:,} windows, so that it is not a machine of its task: abc "
            "certify names sources, and abc repair trains it on them"
        )
    return Compiled(data, reduced(proof.rule.first.padded))


def compile(run: Run | Path | str | None = None, *, out: Path | str | None = None) -> Compiled:
    """Make the smallest transducer that writes what a calibrated model writes, at every length.

    ``out``: a new folder, by default ``exports/transducer`` in the run's folder, for the table
    ``transducer.csv``, ``transducer.py``, which runs it with numpy alone, and its graph,
    ``transducer.pdf`` and ``.svg``. Raises ``UsageError`` for a run without lines or not of this
    program, and ``AbcError`` where the model is wrong in some window.
    """
    run = Run.open(run)
    run.check()
    only_ours(run, "abc compile")
    run.lines()
    folder = Path(out) if out is not None else run.path / "exports" / NAME
    if out is not None and folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder")
    machine = compiled(run.load_model(), run.data)

    def write(into: Path) -> None:
        into.mkdir()
        (into / f"{NAME}.csv").write_text(table(machine))
        (into / f"{NAME}.py").write_text(program(machine))
        save_figures(graph(machine), into / NAME, ("pdf", "svg"))

    folder.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(folder, write)
    machine.files.extend(sorted(folder.iterdir()))
    return machine


def table(machine: Compiled) -> str:
    """Every column that there is: state, letters, what is written (-1: nothing), next state."""
    by = machine.transducer
    state, letters, written, after = by.steps
    shown = np.where(written == by.base + 1, -1, np.minimum(written, by.base))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["state", *(f"letter{k}" for k in by.tapes), "written", "next"])
    writer.writerows(np.stack([state, *letters, shown, after], 1).tolist())
    return text.getvalue()


def program(machine: Compiled) -> str:
    """Return the text of the file that runs the table."""
    by, task = machine.transducer, machine.data.task
    symbols, rule = list(task.symbols[: by.base]), task.rule()
    starts = {symbols[s]: k for s, k in zip(by.symbols, by.start, strict=False)}
    constants = {"SYMBOLS": symbols, "NUMBERS": task.notation == "digits", "LAG": by.lag}
    constants |= {"TAPES": by.tapes, "FORWARD": rule.forward, "OF_ROW": rule.of_row}
    constants |= {"STARTS": starts or {"": by.start[0]}}
    lines = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    head, _, code = re.split("# Model\n|# Code\n", Path(template.__file__).read_text("utf-8"))
    return head + lines + code


# Its graph


@styled
def graph(machine: Compiled) -> Figure:
    """Draw the states on a circle, and arrows between them with what is read and written.

    Arrows of a machine with many of them have no text: the table says it.
    """
    by = machine.transducer
    state, letters, written, after = by.steps
    end = int(state[(written == by.base + 1) & (state == after)][-1])
    arrows: dict[tuple[int, int], list[str]] = {}
    columns = zip(state.tolist(), letters.T.tolist(), written.tolist(), after.tolist(), strict=True)
    for before, read, token, to in columns:
        if before != end:
            arrows.setdefault((before, to), []).append(_column(machine, tuple(read), token))
    angles = np.pi * (1 - 2 * np.arange(by.states) / by.states)  # state 0 at the left, clockwise
    spots = np.stack([1.6 * np.cos(angles), np.sin(angles)], 1)
    figure = new_figure(TEXT_WIDTH, 0.62 * TEXT_WIDTH)
    axes = figure.add_subplot(aspect="equal", xlim=(-2.3, 2.3), ylim=(-1.45, 1.45))
    axes.set_axis_off()
    middle: Any = {"ha": "center", "va": "center"}
    paper: Any = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.85}
    words: Any = {"fontsize": SMALL, "color": "0.25", "bbox": paper, "zorder": 2, **middle}
    box: Any = {"boxstyle": "round", "fc": "white", "lw": 0.8}
    boxes = []
    for number, spot in enumerate(spots):
        name = _name(machine, number, end) if len(arrows) <= MOST else str(number)
        shown = axes.text(spot[0], spot[1], name, fontsize=SMALL, bbox=box, zorder=3, **middle)
        boxes.append(shown.get_bbox_patch())
    for (before, to), texts in arrows.items():
        text = "\n".join([*texts[:2], *([f"{len(texts) - 2} more"] if len(texts) > 2 else [])])
        first, last = spots[before], spots[to]
        across, at = last - first, 1.3 * first
        if before != to:  # bent, so that an arrow in the other direction fits next to it
            style = {"arrowstyle": "-|>", "color": "0.5", "lw": 0.6, "shrinkB": 2}
            style |= {"connectionstyle": "arc3,rad=0.16", "patchB": boxes[to]}
            axes.annotate("", last, first, arrowprops=style, zorder=1)
            at = first + 0.22 * across + 0.055 * np.array([across[1], -across[0]])
        if len(arrows) <= MOST:
            axes.text(at[0], at[1], text if before != to else f"stays: {text}", **words)
    return figure


def _name(machine: Compiled, state: int, end: int) -> str:
    """What a state stands for: a column after which the machine is in it."""
    if state == end:
        return "end"
    by, symbols = machine.transducer, machine.data.task.symbols
    if state in by.start:
        return f"start {symbols[by.symbols[by.start.index(state)]]}" if by.symbols else "start"
    _, letters, written, after = by.steps
    columns = (after == state) & (written <= by.base)
    read = {*zip(map(tuple, letters.T[columns].tolist()), written[columns].tolist(), strict=True)}
    if not read:
        return str(state)
    others = f"\nor {len(read) - 1} more" if len(read) > 1 else ""
    return f"after {_column(machine, *min(read))}{others}"


def _column(machine: Compiled, letters: tuple[int, ...], token: int) -> str:
    """``9 1 → 0``: the letters of a column and what is written there."""
    base, symbols = machine.transducer.base, machine.data.task.symbols
    read = "end" if base in letters else " ".join(symbols[letter] for letter in letters)
    return f"{read} → {symbols[token] if token < base else '–' if token == base + 1 else '&'}"
