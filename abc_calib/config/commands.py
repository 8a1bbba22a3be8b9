"""The options of what is done with a run, and of how a training is begun."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, field_validator

from abc_calib.config.options import Options, Word, csv_field, option
from abc_calib.errors import UsageError

LONGEST = 10**7
MOST_SAMPLES = 10**7
MOST_MINUTES = 10**6
LARGEST_SEED = 2**63 - 1
DENSE = "Compute every output through all layers, repeated windows too."
SIZE = re.compile(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})")


def _size(value: Any, whole: ValidatorFunctionWrapHandler) -> int | tuple[int, int]:
    """A length, or digits and rows: ``20x15`` as a pair."""
    if isinstance(value, str):
        if size := SIZE.fullmatch(value):
            return int(size[1]), int(size[2])
        if not value.isdecimal() or value == "0":
            raise ValueError("give lengths from 1 on with commas between, as in 6,50")
    if isinstance(value, tuple) and len(value) == 2:
        return whole(value[0]), whole(value[1])
    return whole(value)


Lengths = tuple[Annotated[int, Field(ge=1, le=LONGEST)], ...]
Sizes = tuple[Annotated[int, Field(ge=1, le=LONGEST), WrapValidator(_size)], ...]


class TaskOptions(Options):
    """Which problems: what a task takes besides its name."""

    help_panel: ClassVar[str] = "Task and data"

    base: int | None = option(None, "Base of the digits, 2 to 36.", ge=2, le=36)
    data: str | None = option(None, "SCAN, CFQ: the folder of the public files.", max_length=4096)
    table: str | None = option(
        None,
        "automaton: a CSV file of the machine, a line for each state and symbol.",
        max_length=10**7,
    )
    machine: str | None = option(
        None,
        "automaton: s3, s5, a5, parity, even_pairs, cycle:K, arithmetic_mod:K; both it and "
        "power: mod:K.",
        max_length=40,
    )
    rule: str | None = option(
        None,
        "tape: a cellular automaton's number, or a Turing machine such as 1RB1LB_1LA1RZ.",
        max_length=1000,
    )

    @property
    def of_the_task(self) -> dict[str, int | str | None]:
        """What goes to ``tasks.get_task``; a run keeps the text of a table."""
        table = self.table
        if table is not None and "\n" not in table:
            try:
                table = Path(table).read_text()
            except (OSError, ValueError) as error:
                raise UsageError(f"{table} cannot be read ({error}): give a CSV file") from None
        data = None if self.data is None else str(Path(self.data).resolve())
        options = {"table": table, "machine": self.machine, "rule": self.rule}
        return {"data": data, **options}


class RecipeOptions(Options):
    """Where the defaults of a training are from."""

    preset: Word = option("default", "default (a minute or two on a CPU) or paper.")
    model: Word | None = option(
        None,
        "transformer (an encoder-decoder), decoder (decoder-only) or gru; by default transformer.",
    )


class RetrainedOptions(Options):
    """What a retrained model does not have from the first one."""

    group_title: ClassVar[str] = "a retrained model"
    help_panel: ClassVar[str] = "Retrained model"

    scheme: Word = option("none", "Positions of the retrained model.")
    width: int | None = option(
        None, "Its width, by default by the size of the task's rule.", ge=2, le=16384
    )
    feedforward: int | None = option(
        None, "Its feed-forward width, by default twice its width.", ge=1, le=65536
    )

    decoder_layers: int | None = option(
        None, "Its decoder layers, on the lines of the first model's last ones.", ge=1, le=64
    )

    @property
    def widths(self) -> dict[str, int]:
        """Both widths, if one is given."""
        width, feedforward = self.width, self.feedforward
        if width is not None:
            return {"width": width, "feedforward": feedforward or 2 * width}
        return {} if feedforward is None else {"feedforward": feedforward}


class EvaluateOptions(Options):
    """Which problems a model is evaluated on."""

    max_len: int = option(50, "Every length from 1 to this.", ge=1, le=10**5)
    lengths: Sizes | None = option(
        None,
        "These lengths instead, as in 6,10,100; 20x15: digits and rows, or operands.",
        min_length=1,
    )
    samples: int | None = option(
        None,
        "Samples per length; by default 10,000, or as many as there are numbers.",
        ge=1,
        le=MOST_SAMPLES,
    )
    stress: Literal["hard", "carry"] | None = option(
        None, "Also hard inputs: of every family (hard), or carry."
    )
    set: Word | None = option(None, "Token tasks: one of the papers' sets, such as heldout_inputs.")
    seed: int = option(0, "Seed of the test sets.", ge=0, le=LARGEST_SEED)
    greedy: bool = option(False, "Decode greedily, instead of one pass with teacher forcing.")
    dense: bool = option(False, DENSE)

    _several = csv_field("lengths")

    def sets(self, tests: Sequence[str]) -> tuple[str, ...]:
        """Return the sets to evaluate, of the ``tests`` that the data have.

        Data with a fixed test set, as SCAN, may lack some lengths: it is taken as a whole unless
        lengths are asked for.
        """
        if self.set:
            return (self.set,)
        is_fixed = "test" in tests and self.model_fields_set.isdisjoint(("lengths", "max_len"))
        first = "test" if is_fixed else "random"
        return (first, self.stress) if self.stress else (first,)


class StressOptions(Options):
    """How hard to look for inputs that fail."""

    lengths: Lengths | None = option(
        None, "Digits, as in 6,50; by default the training length, one more, and 50.", min_length=1
    )
    samples: int = option(100, "Hard problems of each length.", ge=1, le=MOST_SAMPLES)
    search: int = option(2000, "Mutations of them, guided by the logit margin.", ge=0, le=10**9)
    seed: int = option(0, "Seed of the problems.", ge=0, le=LARGEST_SEED)
    dense: bool = option(False, DENSE)

    _several = csv_field("lengths")


class CertifyOptions(Options):
    """How long to look for an answer."""

    minutes: float = option(15.0, "Time limit for checking all windows.", gt=0, le=MOST_MINUTES)


WIDTHS = {"column": 3.25, "page": 6.75, "neurips": 5.5, "icml": 6.75, "iclr": 5.5, "acl": 6.3}
"""Inches: of a column and a page of two columns, and of the text in styles of conferences."""


class LookOptions(Options):
    """How large a figure is, and its font."""

    width: Word = option(
        "page",
        "Of the figure: column (3.25 inches), page (6.75), the text of neurips, icml, iclr or acl, "
        "or inches from 1.5 to 30.",
    )
    font: Literal["serif", "sans", "latex"] = option(
        "serif", "Times (serif), sans, or the upright Computer Modern of LaTeX (latex)."
    )

    @field_validator("width")
    @classmethod
    def _a_width(cls, width: str) -> str:
        plain = re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,4})?", width)
        if width not in WIDTHS and not (plain and 1.5 <= float(width) <= 30):
            raise ValueError(f"give {', '.join(WIDTHS)}, or inches from 1.5 to 30")
        return width

    @property
    def inches(self) -> float:
        """The width as a number."""
        return WIDTHS.get(self.width) or float(self.width)


class DrawOptions(LookOptions):
    """How a figure is drawn, and in which files."""

    format: tuple[Literal["pdf", "svg", "png"], ...] = option(
        ("pdf",), "pdf, svg or png; several with commas.", min_length=1
    )
    title: bool = option(True, "Titles, and notes below an axis.")

    _formats = csv_field("format")


class FigureOptions(DrawOptions):
    """What a heatmap shows, and in which files."""

    sites: tuple[Literal["encoder", "self", "cross"], ...] = option(
        ("self", "cross"), "self, cross, encoder, with commas.", min_length=1
    )
    digits: int = option(20, "Operand length of the extended bias.", ge=1, le=500)
    input: str | None = option(
        None, "The attention on this one source, as in 999+1.", min_length=1, max_length=2000
    )
    layer: int | None = option(None, "Only this layer, counted from 0.", ge=0, le=1000)
    head: int | None = option(None, "Only this head, counted from 0.", ge=0, le=1000)
    panel: Literal["attention", "fit", "bias"] | None = option(
        None, "Of a calibrated run, only these panels: attention, fit or bias."
    )

    _sites = csv_field("sites")


class WorkOptions(Options):
    """How many trainings run at once, and how long."""

    workers: int | None = option(
        None, "Jobs at once, each a process of one thread; by default one per core.", ge=1, le=256
    )
    budget: float | None = option(
        None, "Minutes after which no further job is started.", gt=0, le=MOST_MINUTES
    )
    scheduler: str | None = option(
        None,
        "Run the jobs on the workers of a Dask scheduler: its address, tcp://HOST:8786.",
        pattern=r"^[^\s\x00-\x1f]+:[0-9]{1,5}$",
        max_length=200,
    )
    array: str | None = option(
        None,
        "Run only share I of N of the jobs: I/N, in the job array of a batch system.",
    )
    jobs: str | None = option(
        None,
        "Where the jobs' folders lie, seen by every worker; by default runs/jobs.",
        min_length=1,
        max_length=4096,
    )

    @field_validator("array")
    @classmethod
    def _a_share(cls, share: str | None) -> str | None:
        if not re.fullmatch("[0-9]{1,7}/[0-9]{1,7}", share or "1/1"):
            raise ValueError("give I/N, as in 1/4")
        number, of = map(int, (share or "1/1").split("/"))
        if not 1 <= number <= of:
            raise ValueError(f"I goes from 1 to N, which is {of}")
        return share

    @property
    def share(self) -> tuple[int, int] | None:
        """The number of the share, and how many there are."""
        number, _, of = (self.array or "").partition("/")
        return (int(number), int(of)) if self.array else None
