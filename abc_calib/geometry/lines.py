"""Lines: the geometry that calibration finds in attention and extends to any size.

A line names one key for every query row. Which key depends on its direction and on its
*anchor*, the place it is counted from:

``corner``
    The matrix itself, as in the paper: diagonals and verticals from the top left,
    anti-diagonals from the top right. A row in which the line leaves the matrix has no key.
``segment s``
    In cross-attention, one part of the source, from the delimiter that opens it to the
    delimiter that closes it: segment 1 is the first operand, 2 the second; 0 is SOS alone.
    Past either end a line stays on that delimiter, which tells the model that the digits are
    used up. In self-attention there is one segment, 0: from the first token to the row's own.

Line indices are the paper's (section 5, step 2, with rows and keys from 0), with the origin
moved to the anchor. With ``open`` and ``close`` the delimiters of a segment:

==========  ==================  ==============================
direction   corner              segment
==========  ==================  ==============================
``diag``    ``j = i + l``       ``j = open + 1 + i + l``
``anti``    ``j = n-1 - i - l``  ``j = close - 1 - i - l``
``vert``    ``j = l``           ``j = close - l``
==========  ==================  ==============================

A slanted line goes on by ``step`` keys a row (1 as above): with ``step`` times ``i`` for ``i``.
Where the digits of two operands are interleaved, the lines of columns have step 2.

Outside cross-attention segment lines are simpler. In self-attention (segment 0) they are
``diag``: ``j = i + l``, and ``vert``: ``j = l``, within ``0 .. i``; anti-diagonals have no
meaning while the output's length is open. In the encoder they are ``diag``: ``j = i + l`` within
the source, and ``vert``: the delimiter that closes the segment.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from abc_calib.errors import AbcError, UsageError

Direction = Literal["diag", "anti", "vert"]
Site = Literal["encoder", "self", "cross"]
DIRECTIONS: tuple[Direction, ...] = ("diag", "anti", "vert")
SITES: tuple[Site, ...] = ("encoder", "self", "cross")
CORNER = -1
"""Value of ``Line.segment`` for a line counted from the corners of the matrix."""


@dataclass(frozen=True, order=True)
class Line:
    """One line of one head: see the module for what its fields mean.

    ``segment`` is ``CORNER`` or the number of a segment; ``offset`` the paper's line index;
    ``value`` what is added to the attention scores on it (0 is fully open); ``step`` how many
    keys a slanted line goes on from one row to the next.
    """

    direction: Direction
    segment: int
    offset: int
    value: float = 0.0
    step: int = 1

    @property
    def slope(self) -> int:
        """How many keys to the right the line is in the next row."""
        return {"diag": self.step, "anti": -self.step, "vert": 0}[self.direction]

    @property
    def anchor(self) -> str:
        return "corner" if self.segment == CORNER else "segment"

    def label(self, site: Site) -> str:
        """A short name for tables, such as ``anti -1 segment 2``."""
        place = "corner" if self.segment == CORNER else f"segment {self.segment}"
        step = f" step {self.step}" if self.step != 1 else ""
        return f"{self.direction} {self.offset:+d}{step}" + (f" {place}" if site == "cross" else "")


def corner_key(direction: str, offset: int, row: Any, keys: Any, step: int = 1) -> Any:
    """The key of a corner line in ``row`` (may lie outside ``0 .. keys-1``). Works on arrays."""
    if direction == "diag":
        return step * row + offset
    if direction == "anti":
        return keys - 1 - step * row - offset
    return row * 0 + offset


def _as_dict(line: Line) -> dict[str, Any]:
    """The fields of a line; the usual step is left out, as in files from before there was one."""
    fields = asdict(line)
    if line.step == 1:
        del fields["step"]
    return fields


Heads = tuple[tuple[Line, ...], ...]
"""Lines of every head of one layer; an empty tuple is a transparent head."""


@dataclass(frozen=True)
class LineBias:
    """A calibrated bias: for each site and layer, the lines of every head.

    A site that is not named is unbiased. Dense matrices, gather indices and heatmaps are all
    derived from this. ``closed``: what is added to scores off the lines; None closes them.
    """

    sites: dict[Site, tuple[Heads, ...]]
    closed: float | None = None

    def __post_init__(self) -> None:
        if self.closed is not None and not -math.inf < self.closed < 0:
            raise UsageError(f"closed = {self.closed}: give a finite number below 0, or none")
        for site, layers in self.sites.items():
            if site not in SITES:
                raise UsageError(f"unknown site {site!r}: choose one of {', '.join(SITES)}")
            for line in (line for layer in layers for head in layer for line in head):
                if line.direction not in DIRECTIONS:
                    raise UsageError(
                        f"unknown direction {line.direction!r}: choose {', '.join(DIRECTIONS)}"
                    )
                if line.step < 1 or (line.step != 1 and line.direction == "vert"):
                    raise UsageError(
                        f"step {line.step} of a {line.direction} line: give 1 or more keys a row, "
                        "and 1 for a vertical, which has no slope"
                    )

    def heads(self, site: Site, layer: int) -> Heads | None:
        layers = self.sites.get(site)
        return None if layers is None else layers[layer]

    def transparent(self) -> list[tuple[Site, int, int]]:
        """Every head without a line, as (site, layer, head)."""
        return [
            (site, layer, head)
            for site, layers in self.sites.items()
            for layer, heads in enumerate(layers)
            for head, lines in enumerate(heads)
            if not lines
        ]

    def check(self, layers: dict[Site, int], heads: int) -> None:
        """Raise ``UsageError`` unless this bias fits a model of that many layers and heads."""
        for site, mine in self.sites.items():
            theirs = layers.get(site, 0)
            if len(mine) != theirs:
                raise UsageError(
                    f"the bias has {len(mine)} {site}-attention layers and the model {theirs}: "
                    "calibrate a model of the same shape"
                )
            for layer in mine:
                if len(layer) != heads:
                    raise UsageError(
                        f"the bias has {len(layer)} heads and the model {heads}: "
                        "calibrate a model of the same shape"
                    )

    # As plain data

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            site: [[[_as_dict(line) for line in head] for head in layer] for layer in layers]
            for site, layers in self.sites.items()
        }
        if self.closed is not None:
            data["closed"] = self.closed
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LineBias:
        return cls(
            {
                site: tuple(  # type: ignore[misc]
                    tuple(tuple(Line(**line) for line in head) for head in layer)
                    for layer in layers
                )
                for site, layers in data.items()
                if site != "closed"
            },
            data.get("closed"),
        )

    def save(self, path: Path, **arrays: np.ndarray) -> None:
        """Write to a safetensors file: the lines in its metadata, ``arrays`` beside them."""
        values = {"values": np.array([line.value for line in self._lines()], np.float32)}
        metadata = {"format": "abc-calib line bias 1", "lines": json.dumps(self.to_dict())}
        contiguous = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
        save_file({**values, **contiguous}, path, metadata=metadata)

    @classmethod
    def load(cls, path: Path) -> LineBias:
        """Read what ``save`` wrote; ``AbcError`` says what is wrong with the file."""
        try:
            with safe_open(path, "numpy") as file:
                metadata = file.metadata() or {}
            return cls.from_dict(json.loads(metadata["lines"]))
        except FileNotFoundError:
            raise AbcError(f"no bias at {path}: run abc calibrate first") from None
        except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise AbcError(f"{path} is not a bias file ({error}): calibrate again") from None

    def _lines(self) -> list[Line]:
        return [
            line for layers in self.sites.values() for layer in layers for h in layer for line in h
        ]
