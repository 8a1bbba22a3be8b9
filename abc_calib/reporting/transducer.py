"""A run as a finite-state transducer: a table, a file that runs it, and its graph."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from abc_calib.errors import UsageError
from abc_calib.files import write_atomically
from abc_calib.nn.build import model_type
from abc_calib.nn.transformer.model import Transformer
from abc_calib.proof.compiled import Compiled, Letters, compiled
from abc_calib.reporting import transducer_program as template
from abc_calib.reporting.style import (
    PALETTE,
    SMALL,
    TEXT_WIDTH,
    new_figure,
    save_figures,
    styled,
    value_colours,
)
from abc_calib.runs import Run

NAME = "transducer"
MOST = 18
"""Arrows of a graph; of a machine with more of them the table is drawn."""
NEAR = 0.36
"""Where on an arrow its words are."""


def compile(run: Run | Path | str | None = None, *, out: Path | str | None = None) -> Compiled:
    """Read a calibrated model out as the smallest transducer that writes the same, at every length.

    ``out``: a new folder, by default ``exports/transducer`` in the run's folder, for the table
    ``transducer.csv``, ``transducer.py``, which runs it with numpy alone, and its graph, or the
    table as an image, ``transducer.pdf`` and ``.svg``. Raises ``UsageError`` for a run without
    lines or not of this program, and ``AbcError`` where the model is wrong in some window, or is no
    transducer.
    """
    found = Run.open(run)
    found.check()
    if not issubclass(model_type(found.config.kind), Transformer):
        raise UsageError(
            f"{found} is a {found.config.model.label}: only models of the kinds transformer and "
            "decoder are compiled"
        )
    found.lines()
    folder = Path(out) if out is not None else found.path / "exports" / NAME
    if out is not None and folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder")
    made = compiled(found.load_model(), found.data)

    def write(into: Path) -> None:
        into.mkdir()
        (into / f"{NAME}.csv").write_text(table(made))
        (into / f"{NAME}.py").write_text(program(made, found.path.name))
        save_figures(graph(made), into / NAME, ("pdf", "svg"))

    folder.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(folder, write)
    made.files.extend(sorted(folder.iterdir()))
    return made


def table(made: Compiled) -> str:
    """Every column that there is: state, letters, what is written (-1: nothing), next state."""
    by = made.transducer
    state, letters, written, after = by.steps
    shown = np.where(written <= by.base, written, -1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["state", *(f"letter{k}" for k in by.tapes), "written", "next"])
    writer.writerows(np.stack([state, *letters, shown, after], 1).tolist())
    return text.getvalue()


def program(made: Compiled, name: str) -> str:
    """The text of the file that runs the table."""
    by, task = made.transducer, made.data.task
    symbols, rule = list(task.symbols[: by.base]), task.rule()
    starts = {symbols[s]: k for s, k in zip(by.symbols, by.start, strict=False)}
    _, code = Path(str(template.__file__)).read_text("utf-8").split("\n# Code\n")
    return "\n".join(
        [
            f'"""{name} as a transducer of {made.states} states: python {NAME}.py OPERAND ..."""',
            "",
            "import sys",
            "from pathlib import Path",
            "",
            "import numpy as np",
            "",
            f"SYMBOLS, NUMBERS = {symbols!r}, {task.notation == 'digits'}",
            f"TAPES, FORWARD, OF_ROW = {by.tapes!r}, {rule.forward!r}, {rule.of_row!r}",
            f"STARTS, LAG = {starts or {'': by.start[0]}!r}, {by.lag}",
            "",
            code.lstrip("\n"),
        ]
    )


# Its graph


@styled
def graph(made: Compiled) -> Figure:
    """The states and arrows between them; of many arrows the table, as an image."""
    state, letters, written, after = made.transducer.steps
    end = int(state[(written > made.transducer.base) & (state == after)][-1])
    arrows: dict[tuple[int, int], list[tuple[Letters, int]]] = {}
    columns = zip(state.tolist(), letters.T.tolist(), written.tolist(), after.tolist(), strict=True)
    for before, read, token, to in columns:
        if before != end:
            arrows.setdefault((before, to), []).append((tuple(read), token))
    return _graph(made, end, arrows) if len(arrows) <= MOST else _image(made)


def _image(made: Compiled) -> Figure:
    """In each state (a row) the next state after each letter (a column), as a colour."""
    by = made.transducer
    figure = new_figure(TEXT_WIDTH, TEXT_WIDTH)
    axes = figure.add_subplot()
    after = np.where(by.next < 0, np.nan, by.next).reshape(by.states, -1)
    shown = axes.imshow(after, cmap=value_colours(), interpolation="nearest", aspect="auto")
    axes.set_ylabel("state")
    axes.set_xlabel("letters of a column, the last: behind the end")
    figure.colorbar(shown, label="next state")
    return figure


def _graph(
    made: Compiled, end: int, arrows: dict[tuple[int, int], list[tuple[Letters, int]]]
) -> Figure:
    """``arrows``: of two states the columns that lead from one to the other."""
    figure = new_figure(TEXT_WIDTH, 0.55 * TEXT_WIDTH)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-2.9, 2.9)
    axes.set_ylim(-1.6, 1.5)
    places = _places(made, end)
    for (before, to), found in arrows.items():
        few = [_column(made, *one) for one in found[:2]]
        more = [f"{len(found) - 2} more"] if len(found) > 2 else []
        _arrow(axes, places[before], places[to], "\n".join([*few, *more]))
    for number, place in places.items():
        _words(axes, place, _name(made, number, end), 0.35, ec=PALETTE[0], lw=0.8)
    return figure


def _places(made: Compiled, end: int) -> dict[int, Any]:
    """Starts at the left, states between letters on a circle, those behind the end at the right."""
    by = made.transducer
    behind = [k for k in range(by.states) if k != end and k not in by.start]
    over = [k for k in behind if all(read[:1] == (by.base,) for read, _ in made.shown[k][1])]
    inside = [k for k in behind if k not in over]
    angles = np.pi * (0.75 - 2 * np.arange(len(inside)) / max(1, len(inside)))
    radius = 0.95 if len(inside) > 1 else 0
    places = {
        k: np.array([1.25 * radius * np.cos(angle), radius * np.sin(angle)])
        for k, angle in zip(inside, angles, strict=True)
    }
    for where, some in ((-2.5, [*dict.fromkeys(by.start)]), (1.9, over)):
        heights = np.linspace(0.5, -0.5, len(some)) * (len(some) - 1) - 0.5 * (some is over)
        places |= {k: np.array([where, y]) for k, y in zip(some, heights, strict=True)}
    return places | {end: np.array([2.6, -1.2 if over else 0.0])}


def _name(made: Compiled, state: int, end: int) -> str:
    """What a state stands for: a column after which the machine is in it."""
    if state == end:
        return "end"
    by, symbols = made.transducer, made.data.task.symbols
    if state in by.start:
        return f"start {symbols[by.symbols[by.start.index(state)]]}" if by.symbols else "start"
    count, some = made.shown[state]
    return f"after {_column(made, *some[0])}" + (f"\nor {count - 1} more" if count > 1 else "")


def _column(made: Compiled, letters: Letters, token: int) -> str:
    """``9 1 → 0``: the letters of a column and what is written there."""
    base, symbols = made.transducer.base, made.data.task.symbols
    read = "end" if base in letters else " ".join(symbols[one] for one in letters)
    return f"{read} → {'&' if token == base else symbols[token] if token < base else '–'}"


def _arrow(axes: Axes, one: Any, other: Any, text: str) -> None:
    """An arrow, bent so that one in the other direction fits next to it, with its words on it."""
    if (one == other).all():
        out = one / (np.hypot(*one) or 1) if one.any() else np.array([0.0, 1.0])
        side = np.array([-out[1], out[0]])
        ends, bend = (one + 0.25 * side + 0.12 * out, one - 0.25 * side + 0.12 * out), -1.3
        middle = one + 0.52 * out
    else:
        ends, bend, across = (one, other), 0.16, other - one
        bow = 2 * NEAR * (1 - NEAR) * bend * np.array([across[1], -across[0]])
        middle = one + NEAR * across + bow  # on the curve, nearer to where it begins
    looped = bend < 0
    arrow = FancyArrowPatch(
        *ends,
        connectionstyle=f"arc3,rad={bend}",
        arrowstyle="-|>",
        mutation_scale=7,
        color="0.45",
        lw=0.6,
        shrinkA=0,
        shrinkB=2 if looped else 22,
        zorder=1,
    )
    axes.add_patch(arrow)
    _words(axes, middle, text, 0.1, SMALL - 1.5, "0.25", ec="none", alpha=0.85)


def _words(
    axes: Axes,
    at: Any,
    text: str,
    pad: float,
    size: float = SMALL,
    color: str = "black",
    **edge: Any,
) -> None:
    """Words in a white box."""
    box = {"boxstyle": f"round,pad={pad}", "fc": "white", **edge}
    axes.text(at[0], at[1], text, ha="center", va="center", size=size, color=color, bbox=box)
