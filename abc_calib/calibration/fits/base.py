"""What a fit is: from the attention of a trained model to lines and their weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from abc_calib.calibration.capture import average_attention, capture
from abc_calib.config import CalibrationOptions
from abc_calib.data import Batch, Data
from abc_calib.errors import OptionError
from abc_calib.geometry import ALONE, Heads, Line, LineBias, Site
from abc_calib.nn.base import AttentionWeights

CHOICES = ("layer", "average", "attention")
"""Options of a calibration that not every fit has."""


@dataclass(frozen=True)
class Evidence:
    """What a fit may look at: the attention of a model that is right, at training lengths.

    ``captured`` gives it in parts. ``parts`` of a source, and the ``length`` of the longest; how
    many ``layers`` of each site, the last ones, with how many ``heads``; is it a ``stream``? Of a
    run also ``correct``, the training samples that it decodes correctly, and ``longest``, those of
    one shape, operands of the full training length. ``stride``: words of the source that a column
    of the task's rule reads. ``raw``: is ``averaged`` of scores before softmax?
    """

    captured: Callable[[], Iterator[AttentionWeights]]
    parts: int
    length: int
    layers: Mapping[Site, int]
    heads: int
    stream: bool
    model: Any = None
    data: Any = None
    correct: Any = None
    longest: Any = None
    stride: int = 1
    raw: bool = False

    @classmethod
    def of_run(
        cls,
        model: Any,
        data: Data,
        correct: Batch,
        longest: Batch,
        raw: bool = False,
        layers: Mapping[Site, int] | None = None,
    ) -> Evidence:
        """What a run's model and data give; of its last ``layers``, by default of all."""
        layers = layers or model.attention_layers
        shape = layers, model.options.heads, model.stream
        parts = len(data.layout_at(1).parts)
        read = partial(capture, model, correct, layers=layers)
        stride = getattr(data.task, "stride", 1)
        return cls(read, parts, data.length, *shape, model, data, correct, longest, stride, raw)

    @cached_property
    def averaged(self) -> dict[Site, np.ndarray]:
        """The attention of ``longest``, averaged: for each site ``(layers, h, i, j)``."""
        return average_attention(self.model, self.longest, self.raw, self.layers)


@dataclass(frozen=True)
class LineRow:
    """One kept line, for the table: ``weight`` is its share of the head's attention.

    ``note``: ``sink`` for a head that follows no line and reads nothing new,
    ``assigned`` for one that takes over a line of its layer, ``transparent`` for one left open.
    """

    site: str
    layer: int
    head: int
    line: str
    weight: float
    value: float
    note: str = ""


class Fit(ABC):
    """Base of all fits: one per file, listed in ``abc_calib.calibration.fits.FITS``.

    It is made from the evidence and its options, in which nothing is left open, and then asked for
    the bias of a threshold. Of several ``thresholds`` the one is taken that carries over to
    training lengths left out and lets a row see least.
    """

    #: of the options ``CHOICES`` those that it has, with its own defaults
    defaults: ClassVar[Mapping[str, str]] = {"layer": "own"}
    #: is a threshold a share of attention?
    by_share: ClassVar[bool] = True
    thresholds: ClassVar[tuple[float, ...]]
    #: does a head without lines read nothing new, or is it left open?
    closes: ClassVar[bool] = True
    #: from which share of right samples on a model is read, if less than usual is enough
    right_at_least: ClassVar[float] = 1.0

    #: the sites at which lines were looked for
    looked: Collection[Site]

    def __init__(self, evidence: Evidence, options: CalibrationOptions):
        self.evidence, self.options = evidence, options

    @classmethod
    def resolved(cls, options: CalibrationOptions) -> CalibrationOptions:
        """Fill in what was not asked for; ``OptionError`` for what this fit does not have."""
        for name in CHOICES:
            if (value := getattr(options, name)) is not None and name not in cls.defaults:
                rule = f"the fit {options.fit} has no such choice: leave it out"
                raise OptionError(name, value, rule)
        k = options.threshold
        if cls.by_share and k is not None and not (isinstance(k, float) and 0 < k <= 1):
            raise OptionError("threshold", k, "give a share, more than 0 and at most 1")
        unset = {name: x for name, x in cls.defaults.items() if getattr(options, name) is None}
        return options.model_copy(update=unset)

    @abstractmethod
    def bias(self, threshold: Any) -> LineBias:
        """The lines kept at a threshold."""

    @abstractmethod
    def share(self, site: Site, layer: int, head: int, line: Line) -> tuple[float, str]:
        """The share of its attention that a head gives a line of ``bias``, and a note."""

    def table(self, bias: LineBias) -> list[LineRow]:
        """The kept lines, each with the share of attention that the fit gives it."""
        table, transparent = list[LineRow](), bias.transparent()
        for site, layer, head, lines in bias.each():
            for line in lines if site in self.looked else ():
                weight, note = self.share(site, layer, head, line)
                shown = line.label(site), round(weight, 4), line.value
                table.append(LineRow(site, layer, head, *shown, note))
            if site in self.looked and (site, layer, head) in transparent:
                table.append(LineRow(site, layer, head, "-", 0.0, 0.0, "transparent"))
        return table

    def bias_of(self, sites: Mapping[Site, tuple[Heads, ...]]) -> LineBias:
        """The bias of these lines. Of a stream, tokens of the source look at themselves alone."""
        off = self.options.off_line_bias
        if not self.evidence.stream:
            return LineBias(dict(sites), off)
        layers, heads = self.evidence.layers, self.evidence.heads
        nothing: Heads = ((),) * heads
        pair = [sites.get(site, (nothing,) * layers[site]) for site in ("cross", "self")]
        if self.closes:
            pair[1] = tuple(map(closed, *pair))
        alone: dict[Site, tuple[Heads, ...]] = {
            "encoder": (((ALONE,),) * heads,) * layers["encoder"]
        }
        lines: dict[Site, tuple[Heads, ...]] = {**alone, "self": pair[1], "cross": pair[0]}
        return LineBias({s: heads for s, heads in lines.items() if heads}, off, stream=True)

    @property
    def groups(self) -> list[tuple[Site, ...]]:
        """Sites whose heads are the same: of a stream, those of the output."""
        sites = self.options.sites
        if not self.evidence.stream:
            return [(site,) for site in sites]
        return [tuple(site for site in ("cross", "self") if site in sites)]

    def sink(self, site: Site) -> tuple[Line, ...]:
        """What a head without lines is closed onto; of a stream, ``made`` says that."""
        return () if self.evidence.stream else (sinks(self.evidence.parts)[site],)

    def origins(self, layers: int) -> list[int]:
        """For each layer, the one whose attention gives its lines."""
        same = {"first": [0] * layers, "last": [layers - 1] * layers}
        return same.get(self.options.layer or "own", list(range(layers)))


FIRST = Line("vert", 0, 0)
"""In self-attention the first row, on which trained heads rest that look for nothing."""


def sinks(parts: int) -> dict[Site, Line]:
    """What a head reads that follows no line: nothing that its row does not know.

    That is the delimiter that closes the source, and in self-attention the row itself. The first
    row would not do: from the second layer on it has read digits, and so would all that read it.
    """
    closing = Line("vert", parts, 0)
    return {"encoder": closing, "self": ALONE, "cross": closing}


def closed(crossed: Heads, self_lines: Heads) -> Heads:
    """The ``self_lines`` of a stream's heads, with its sink for those without any lines."""
    return tuple(
        head or (() if cross else (ALONE,)) for cross, head in zip(crossed, self_lines, strict=True)
    )
