"""What the paper's reviewers asked, each question as a few jobs and a line made of their results.

The questions are those of the paper's public review (ICLR 2024): depth of encoder and decoder,
other positions, the threshold, why minus infinity, which layer, cross-attention, more operands,
more digits to multiply by, and a task whose attention is not monotonic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from abc_calib.reproduction.base import Row, Target
from abc_calib.reproduction.cells import SUCCEEDS, Cell, make_cell, shown
from abc_calib.reproduction.duan_shi import ABC_SAMPLES_AT_50, ABC_SEEDS, SAMPLES, SEEDS
from abc_calib.reproduction.report import Report, Table
from abc_calib.sweeps import Test

LENGTHS = (6, 10, 15, 20, 50)
LONGER = {"steps": 10_000}
"""For what does not interpolate in the default's 3,000 steps."""
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Variant:
    """One change of the default: a row. Without ``calibrate`` the first training alone."""

    question: str
    change: str
    task: str = "addition"
    options: dict[str, Any] = field(default_factory=dict)
    calibrate: dict[str, Any] | None = field(default_factory=dict)
    slow: bool = False

    @property
    def seeds(self) -> int:
        """Seeds by default: fewer without a calibrated model, or where a training is long."""
        return SEEDS if self.slow or self.calibrate is None else ABC_SEEDS

    @property
    def name(self) -> str:
        return f"{self.question}: {self.change}"

    @property
    def made(self) -> Row:
        return Row(self.change, self.options, self.calibrate)

    def samples(self, length: int) -> int:
        """Problems of a length: more of the longest for a calibrated model."""
        most = self.calibrate is not None and length == max(LENGTHS)
        return ABC_SAMPLES_AT_50 if most else SAMPLES


def _calibrations(question: str, **values: Any) -> list[Variant]:
    """A variant for each value of one calibration option."""
    ((name, changes),) = values.items()
    return [Variant(question, change, calibrate={name: value}) for change, value in changes.items()]


VARIANTS: tuple[Variant, ...] = (
    Variant("the default", "none"),
    *(Variant("encoder layers", str(n), options={"encoder_layers": n}) for n in (0, 1, 2)),
    *(Variant("decoder layers", str(n), options={"decoder_layers": n}) for n in (1, 2, 3)),
    Variant("RPE alone", "successor", "successor", {"scheme": "rpe"}, None),
    Variant("RPE alone", "parity", "parity", {"scheme": "rpe"}, None),
    Variant("ABC from RPE", "successor", "successor", {"scheme": "rpe"}),
    *(
        Variant("other positions alone", name, options={"scheme": name}, calibrate=None)
        for name in ("randomized", "learned")
    ),
    *(
        Variant("ABC from other positions", name, options={"scheme": name})
        for name in ("randomized", "learned")
    ),
    *_calibrations("threshold", threshold={str(value): value for value in (0.1, 0.2, 0.4)}),
    *_calibrations("closed cells", off_line_bias={"−2": -2.0, "−5": -5.0, "−10": -10.0}),
    *_calibrations("lines of one layer in all", layer={"first": "first", "last": "last"}),
    *_calibrations("sites", sites={"cross only": ["cross"], "self only": ["self"]}),
    Variant("operands", "three, 10,000 steps", "addition3", LONGER, slow=True),
    Variant("operands", "four, 10,000 steps", "addition4", LONGER, slow=True),
    Variant("digits to multiply by", "two, 10,000 steps", "multiplication2", LONGER, slow=True),
    Variant("digits to multiply by", "three", "multiplication3", slow=True),
    Variant("not monotonic", "zigzag", "zigzag"),
)


HOW_TO_READ = (
    "Exact match in percent, median / minimum over seeds, at "
    f"{', '.join(map(str, LENGTHS))} digits, {SAMPLES:,} samples a length and seed "
    f"({ABC_SAMPLES_AT_50:,} at {max(LENGTHS)} for calibrated models); "
    "`held out`: of the first training, "
    "on held-out numbers of its longest length. A model goes to a length if it has "
    f"{SUCCEEDS:g} % or more there in every seed. One change at a time from the default: "
    "addition, no encoder layer, three decoder layers, sinusoidal positions, calibrated "
    "with the default options. All answers are made from the numbers."
)


@dataclass(frozen=True)
class Measured:
    """A variant's results over seeds: a cell for each length, and how its first training ended.

    ``measured``: seeds with a model to measure; ``failed``: those without, the reason of the first
    in ``error``.
    """

    variant: Variant
    held_out: float | None
    measured: int
    cells: dict[int, Cell]
    failed: int
    error: str

    @property
    def seeds(self) -> int:
        """All seeds that were trained."""
        return self.measured + self.failed

    @property
    def least(self) -> float | None:
        """Of the worst seed at the worst length; None where a length is missing."""
        found = [cell.min for cell in self.cells.values() if cell.min is not None]
        return min(found) if len(found) == len(LENGTHS) else None

    @property
    def exact(self) -> bool:
        """Is it right at every length, in every seed?"""
        return self.least is not None and not self.failed and self.least >= SUCCEEDS

    @property
    def answer(self) -> str:
        """One line about it, from the numbers alone."""
        if not self.failed:
            return self._measured
        if self.measured:
            return f"{self.failed} of {self.seeds} seeds not calibrated; the rest {self._measured}"
        if (self.held_out or 0) < SUCCEEDS:
            return f"does not interpolate ({shown(self.held_out)} % held out): not calibrated"
        return f"cannot be calibrated: {self.error}" if self.error else NOT_MEASURED

    @property
    def _measured(self) -> str:
        """The answer of the seeds that were measured."""
        longest, least = max(LENGTHS), self.least
        if least is None or self.held_out is None:
            return NOT_MEASURED
        if least >= SUCCEEDS:
            held = "100 %" if least == 100 else f"{shown(least)} % or more"
            return f"goes to {longest} digits: {held} at every length"
        if self.variant.calibrate is None and self.held_out < SUCCEEDS:
            return f"does not interpolate ({shown(self.held_out)} % held out)"
        first = next(x for x, cell in self.cells.items() if (cell.min or 0) < SUCCEEDS)
        typical = (self.cells[first].median or 0) < SUCCEEDS
        who = "" if typical else " in the worst seed"
        at = {x: shown(one.median if typical else one.min) for x, one in self.cells.items()}
        text = f"fails from {first} digits on{who}: {at[first]} %"
        return text if first == longest else f"{text}, {at[longest]} % at {longest}"


def measure(variant: Variant, results: pd.DataFrame) -> Measured:
    """What ``results``, of this and other variants, say about one."""
    mine = results[results["row"] == variant.name]
    tested = mine[(mine["stage"] == variant.made.stage) & mine["length"].notna()]
    errors = mine.dropna(subset="error").drop_duplicates("seed").set_index("seed")["error"]
    first = mine[mine["stage"] == "vanilla"].drop_duplicates("seed").dropna(subset="held_out")
    held_out = first["held_out"]
    failed = set(errors.index)
    if variant.calibrate is not None:  # also where that was found out in another run
        failed |= set(first["seed"][held_out < SUCCEEDS]) - set(tested["seed"])
    place = ("accuracy", variant.task, variant.name)
    return Measured(
        variant=variant,
        held_out=float(held_out.median()) if len(held_out) else None,
        measured=int(tested["seed"].nunique()),
        cells={x: make_cell((*place, x), tested[tested["length"] == x]) for x in LENGTHS},
        failed=len(failed),
        error=str(errors.iloc[0]) if len(errors) else "",
    )


@dataclass(frozen=True)
class Reviewers(Target):
    """The questions as a target."""

    variants: tuple[Variant, ...] = VARIANTS

    def models(self) -> dict[tuple[str, str], Row]:
        return {(one.task, one.name): one.made for one in self.variants}

    def tests(self, task: str, row: str) -> tuple[Test, ...]:
        samples = self._variant(row).samples
        return tuple(Test(length=length, n=samples(length)) for length in LENGTHS)

    def seeds_of(self, task: str, row: str) -> int:
        return self._variant(row).seeds

    def _variant(self, row: str) -> Variant:
        return next(one for one in self.variants if one.name == row)

    def report(self, results: pd.DataFrame, seeds: int | None = None) -> Report:
        """The table of questions, and a line for each question."""
        found = [measure(variant, results) for variant in self.variants]
        return Report(
            name=self.name,
            title=self.title,
            tables=[_table(found)],
            records=_records(found),
            notes=[HOW_TO_READ, *_summary(found)],
            incomplete=[
                f"{one.variant.name}: {one.seeds} of {wanted} seeds"
                for one in found
                if one.seeds < (wanted := seeds or one.variant.seeds)
            ],
        )


def _table(found: Sequence[Measured]) -> Table:
    columns = ["question", "changed to", "task", "model", "seeds", "held out"]
    rows = []
    for one in found:
        made = one.variant
        model = "vanilla" if made.calibrate is None else "ABC"
        cells = (f"{shown(cell.median)} / {shown(cell.min)}" for cell in one.cells.values())
        about = [made.question, made.change, made.task, model, one.seeds, shown(one.held_out)]
        rows.append([*about, *cells, one.answer])
    return Table([*columns, *map(str, LENGTHS), "answer"], rows)


def _records(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """A row for every variant and length."""
    return [
        {
            "question": one.variant.question,
            "change": one.variant.change,
            "task": one.variant.task,
            "row": "vanilla" if one.variant.calibrate is None else "abc",
            "length": length,
            "median": cell.median,
            "min": cell.min,
            "seeds": one.seeds,
            "failed": one.failed,
            "n": cell.n,
            "held_out": one.held_out,
            "answer": one.answer,
        }
        for one in found
        for length, cell in one.cells.items()
    ]


def _summary(found: Sequence[Measured]) -> list[str]:
    """For each question, with which changes a model goes all the way and with which not."""
    lines = []
    for question in dict.fromkeys(one.variant.question for one in found):
        asked = [one for one in found if one.variant.question == question]
        mine = [one for one in asked if one.answer != NOT_MEASURED]
        if not mine:
            continue
        good = [one.variant.change for one in mine if one.exact]
        bad = [one.variant.change for one in mine if not one.exact]
        parts = [f"to {max(LENGTHS)} digits with {', '.join(good)}"] if good else []
        parts += [f"not with {', '.join(bad)}"] if bad else []
        lines.append(f"**{question[0].upper()}{question[1:]}**: {'; '.join(parts)}.")
    return lines
