"""A calibrated bias: the lines of every head, as an object, for a person and as a file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from abc_calib.errors import AbcError, UsageError
from abc_calib.files import check_regular, parse_json
from abc_calib.geometry.layout import Layout
from abc_calib.geometry.lines import SITES, Heads, Line, Site, check_line, formula
from abc_calib.text import counted


@dataclass(frozen=True, repr=False)
class LineBias:
    """A calibrated bias: for each site and layer, the lines of every head.

    A site that is not named is unbiased. Values are those that a model adds: numbers of single
    precision, to which they are rounded here, so that a certificate is about the same. Dense
    matrices, gather indices and heatmaps are all derived from this. ``off_line_bias``: what is
    added to scores off the lines; None masks them. ``stream``: of a decoder-only model, where
    source and output are one stream. A head of ``self`` and the same head of ``cross`` are one
    there, which attends along the lines of both.
    """

    sites: dict[Site, tuple[Heads, ...]]
    off_line_bias: float | None = None
    stream: bool = False

    def __post_init__(self) -> None:
        try:
            self._check()
        except (TypeError, AttributeError) as error:
            raise UsageError(
                f"LineBias: give sites as {{'self': layers}}, each layer a list of heads, each "
                f"head a list of Line ({error})"
            ) from None

    def _check(self) -> None:
        off = self.off_line_bias
        if off is not None and not -math.inf < off < 0:
            raise UsageError(f"off_line_bias = {off}: give a finite number below 0, or none")
        object.__setattr__(self, "sites", dict(self.sites))
        for site, layers in self.sites.items():
            if site not in SITES:
                raise UsageError(f"unknown site {site!r}: choose one of {', '.join(SITES)}")
            for line in (line for layer in layers for head in layer for line in head):
                check_line(line, site)
            self.sites[site] = tuple(
                tuple(
                    tuple(replace(line, value=float(np.float32(line.value))) for line in head)
                    for head in layer
                )
                for layer in layers
            )

    def heads(self, site: Site, layer: int) -> Heads | None:
        layers = self.sites.get(site)
        return None if layers is None else layers[layer]

    def elsewhere(self, site: Site, layer: int) -> Heads | None:
        """The lines that the heads of a site have at another one; None where heads have one."""
        other: dict[Site, Site] = {"self": "cross", "cross": "self"} if self.stream else {}
        return self.heads(other[site], layer) if site in other else None

    def transparent(self) -> list[tuple[Site, int, int]]:
        """Every head without a line, as (site, layer, head)."""
        heads = []
        for site, layer, head, lines in self.each():
            elsewhere = self.elsewhere(site, layer)
            if not lines and not (elsewhere and elsewhere[head]):
                heads.append((site, layer, head))
        return heads

    def check(self, layers: dict[Site, int], heads: int) -> None:
        """Raise ``UsageError`` unless this bias fits a model of that many layers and heads."""
        for site, stack in self.sites.items():
            depth = layers.get(site, 0)
            if len(stack) != depth:
                raise UsageError(
                    f"the bias has {len(stack)} {site}-attention layers and the model {depth}: "
                    "calibrate a model of the same shape"
                )
            for layer in stack:
                if len(layer) != heads:
                    raise UsageError(
                        f"the bias has {len(layer)} heads and the model {heads}: "
                        "calibrate a model of the same shape"
                    )

    # For a person

    @property
    def summary(self) -> str:
        """How many lines, of how many different ones, each site has."""
        parts = []
        for site, layers in self.sites.items():
            lines = [line for heads in layers for head in heads for line in head]
            kinds = len({replace(line, value=0.0) for line in lines})
            heads = sum(map(len, layers))
            parts.append(
                f"{site}: {counted(len(lines), 'lines')} ({kinds} different) in {heads} heads"
            )
        return "; ".join(parts) or "no lines"

    def __repr__(self) -> str:
        return f"LineBias({self.summary})"

    # As arrays

    def matrix(
        self, site: Site, layer: int, layout: Layout, rows: Sequence[int] = (1,)
    ) -> np.ndarray:
        """Make the bias of a layer for one problem: what is added to scores, ``(heads, i, j)``.

        ``layout``: of its source. ``rows``: how many tokens each row of the output has, with the
        one that closes it. Queries ``i`` are the tokens that the decoder reads (of the encoder
        those of the source); keys ``j`` are tokens of the source, in ``self`` of the output. Keys
        that are closed have -inf; a head without lines adds 0, but to later tokens. Raises
        ``UsageError`` where the site has no such layer, or the source not the parts of its lines.
        """
        if not 0 <= layer < len(self.sites.get(site, ())):
            raise UsageError(f"no lines of {site}-attention in layer {layer}: {self.summary}")
        heads, rows = self.sites[site][layer], np.atleast_1d(rows).tolist()
        transparent = {*self.transparent()}
        part = max((line.segment for head in heads for line in head), default=0)
        if min(rows, default=0) < 1 or (site != "self" and part > len(layout.parts)):
            raise UsageError(
                f"no bias of {site}-attention for rows {rows} and {len(layout.parts)} parts of a "
                "source: give rows of 1 or more tokens, and a layout with the parts of the lines"
            )
        opens = np.concatenate([[0], np.cumsum(rows)])
        queries = layout.keys if site == "encoder" else int(opens[-1])
        count = queries if site == "self" else layout.keys
        closed = -np.inf if self.off_line_bias is None else self.off_line_bias
        matrix = np.full((len(heads), queries, count), closed, np.float32)
        starts = [0] if site == "encoder" else opens[:-1]
        for row, (start, end) in enumerate(zip(starts, [*starts[1:], queries], strict=True)):
            at = np.arange(start, end)
            anchors: Sequence[Any] = layout.anchors
            if site == "self":  # the row's opening token, the query itself, then rows above
                above = opens[: row + 1][::-1]
                highest = max((line.segment for line in self.every()), default=0)
                anchors = (start, at, *above, *[0] * highest)
            for number, (head, lines) in enumerate(zip(matrix, heads, strict=True)):
                if (site, layer, number) in transparent:
                    head[at] = 0
                for line in lines:
                    key, outside = formula(line, site).key(anchors, at - start, row)
                    kept = at[~(outside | np.zeros(len(at), bool))]
                    named = np.broadcast_to(key, at.shape)[kept - start]
                    head[kept, named] = np.maximum(head[kept, named], line.value)
        if site == "self":
            matrix[:, ~np.tri(count, dtype=bool)] = -np.inf
        return matrix

    # As plain data

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            site: [[[_as_dict(line) for line in head] for head in layer] for layer in layers]
            for site, layers in self.sites.items()
        }
        if self.off_line_bias is not None:
            data["off_line_bias"] = self.off_line_bias
        if self.stream:
            data["stream"] = True
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LineBias:
        data = dict(data)
        off = data.pop("off_line_bias", None)
        stream = data.pop("stream", False)
        if not isinstance(stream, bool):
            raise TypeError(f"stream {stream!r} in place of true or false")
        return cls(
            {
                site: tuple(  # type: ignore[misc]
                    tuple(tuple(Line(**line) for line in head) for head in layer)
                    for layer in layers
                )
                for site, layers in data.items()
            },
            off,
            stream,
        )

    def save(self, path: Path | str, **arrays: np.ndarray) -> None:
        """Write to a safetensors file: the lines in its metadata, and ``arrays``."""
        values = {"values": np.array([line.value for line in self.every()], np.float32)}
        metadata = {"format": "abc-calib line bias 1", "lines": json.dumps(self.to_dict())}
        contiguous = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
        save_file({**values, **contiguous}, path, metadata=metadata)

    @classmethod
    def load(cls, path: Path | str) -> LineBias:
        """Read what ``save`` wrote; ``AbcError`` says what is wrong with the file."""
        with _opened(Path(path)) as file:
            return cls.from_dict(parse_json((file.metadata() or {})["lines"]))

    def every(self) -> list[Line]:
        """The lines of all heads."""
        return [line for *_, lines in self.each() for line in lines]

    def each(self) -> Iterator[tuple[Site, int, int, tuple[Line, ...]]]:
        """Site, layer and number of each head, and its lines."""
        for site, layers in self.sites.items():
            for layer, heads in enumerate(layers):
                for head, lines in enumerate(heads):
                    yield site, layer, head, lines


def _as_dict(line: Line) -> dict[str, Any]:
    """The fields of a line; what is as usual is left out, as in files from before it was there."""
    usual = {"stride": 1, "beta": 0, "part_step": 0}
    return {name: value for name, value in asdict(line).items() if usual.get(name) != value}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of lines; ``AbcError`` says what is wrong with it."""
    try:
        check_regular(path)
        with safe_open(path, "numpy") as file:
            yield file
    except FileNotFoundError:
        raise AbcError(f"no bias at {path}: run abc calibrate first") from None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise AbcError(f"{path} is not a bias file ({error}): calibrate again") from None


def stored(path: Path) -> dict[Site, np.ndarray]:
    """The averaged attention that a calibration stored with its lines."""
    with _opened(path) as file:
        keys: dict[Site, str] = {site: f"attention.{site}" for site in SITES}
        names = set(file.keys())
        attention = {site: file.get_tensor(key) for site, key in keys.items() if key in names}
    if not attention:
        raise AbcError(f"{path} holds no averaged attention: calibrate again")
    return attention
