"""The fit to attention that was captured from an external model.

>>> attention = abc.capture(model, batches, delimiters=[plus, equals])
>>> bias = abc.fit_lines(attention, threshold=0.3)
>>> abc.inject(model, bias)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from abc_calib.calibration.fits.base import Evidence
from abc_calib.calibration.fits.nnls import Nnls
from abc_calib.config import CalibrationOptions, build
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.nn.attend import MASKED
from abc_calib.nn.base import AttentionWeights
from abc_calib.nn.lines import LineGather


def evidence_of(attention: AttentionWeights | Iterable[AttentionWeights]) -> Evidence:
    """What stands in for a run's evidence: attention that was captured by hand."""
    given = [attention] if isinstance(attention, AttentionWeights) else attention
    parts = [*given] if isinstance(given, Iterable) else []
    if not parts or not all(isinstance(part, AttentionWeights) for part in parts):
        raise UsageError("no attention to fit: give the list that abc.capture gave")
    if not any(bool(part.rows["self"].any()) for part in parts):
        raise UsageError(
            "no attention to fit: no token counts behind a source; give labels that are the ids "
            "of what is written, and -100 elsewhere"
        )
    layers_of = {tuple((site, len(x)) for site, x in part.weights.items()) for part in parts}
    heads = {layer.shape[1] for part in parts for x in part.weights.values() for layer in x}
    if len(layers_of) > 1 or len(heads) > 1:
        raise UsageError(
            f"attention of other shapes, with {' and '.join(map(str, sorted(heads)))} heads: give "
            "parts with as many layers, and layers with as many heads"
        )
    closes = [part.views["cross"].keys.marks for part in parts]
    layers: dict[Site, int] = {site: len(x) for site, x in parts[0].weights.items()}
    return Evidence(
        captured=lambda: iter(parts),
        parts=closes[0].shape[1] - 1,
        length=max(int((marks.diff(dim=1) - 1).max()) for marks in closes),  # the widest part
        layers={"encoder": 0, **layers},
        heads=heads.pop(),
        stream="encoder" not in parts[0].views,
    )


def fit_lines(
    attention: AttentionWeights | Iterable[AttentionWeights],
    *,
    threshold: float = 0.3,
    dirs: Sequence[str] = ("diag", "anti", "vert"),
) -> LineBias:
    """The lines that heads follow with at least ``threshold`` of their attention, one a head.

    A head without one is closed onto a sink, which reads nothing new.
    """
    options = Nnls.resolved(build(CalibrationOptions, threshold=threshold, dirs=dirs))
    return Nnls(evidence_of(attention), options).bias(threshold)


def unexplained(
    attention: AttentionWeights | Iterable[AttentionWeights], bias: LineBias
) -> list[dict[str, Any]]:
    """Of each head its lines, and the share of its attention that is off them.

    The mean over all rows that count; a head of a stream has its lines at both sites.
    """
    evidence, table = evidence_of(attention), []
    parts = [*evidence.captured()]
    bias.check({**evidence.layers}, evidence.heads)
    sites: list[Site] = [site for site in ("encoder", "self", "cross") if evidence.layers[site]]
    groups: list[list[Site]] = [["cross", "self"]] if evidence.stream else [[s] for s in sites]
    for group in groups:
        rows = sum(int(part.rows[group[0]].sum()) for part in parts)
        for layer in range(evidence.layers[group[0]]):
            on = [_on_lines(part, bias, site, layer) for part in parts for site in group]
            for head, share in enumerate((torch.stack(on).sum(0) / rows).tolist()):
                lines = [
                    f"{site} {line.label(site)}"
                    for site in group
                    for line in (bias.heads(site, layer) or ((),) * evidence.heads)[head]
                ]
                row = {"site": "+".join(group), "layer": layer, "head": head, "lines": lines}
                table.append(row | {"unexplained": round(1 - share, 4)})
    return table


def _on_lines(attention: AttentionWeights, bias: LineBias, site: Site, layer: int) -> Tensor:
    """The attention on the lines of each head ``(h,)``, summed over the rows that count."""
    weights, rows = attention.weights[site][layer], attention.rows[site]
    heads = bias.heads(site, layer)
    if heads is None or not any(heads):
        return weights.new_zeros(weights.shape[1])
    selected = LineGather({site: heads}).gathered([attention.views[site]])
    key, lost = selected.index, selected.bias
    index = key.expand(len(weights), -1, weights.shape[2], -1)
    on = weights.gather(3, index).masked_fill(lost.expand(index.shape) == MASKED, 0)
    return on.sum(3).masked_fill(~rows[:, None], 0).sum((0, 2))
