"""Capture and fit for a model object of ``transformers`` and its own batches.

>>> attention = abc.capture(model, batches, delimiters=[plus, equals])
>>> bias = abc.fit_lines(attention, threshold=0.3)
>>> abc.inject(model, bias)

Batches are what such a model is trained on: ``input_ids``, ``attention_mask`` and ``labels``, which
are -100 where nothing counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.calibration.fits.base import Evidence
from abc_calib.calibration.fits.nnls import Nnls, NnlsOptions
from abc_calib.config import build
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.nn.attend import MASKED
from abc_calib.nn.base import Attention
from abc_calib.nn.foreign import inject as injected
from abc_calib.nn.foreign.places import Marks, State
from abc_calib.nn.foreign.sites import check_model, find_sites
from abc_calib.nn.lines import Lines

Batch = Mapping[str, Tensor]
NAMED = ("input_ids", "attention_mask", "labels")
"""What is read of a batch."""


def capture(
    model: Any, batches: Batch | Iterable[Batch], *, delimiters: Sequence[int], prefix: int = 0
) -> list[Attention]:
    """The attention of a model while it writes the ``labels`` of its batches, batch by batch.

    ``delimiters``: ids of the tokens that end the parts of a source, in their order. ``prefix``:
    how many tokens the tokenizer puts before each source. Of a decoder-only model, ``cross`` is
    what its output reads of the source, and ``self`` what it reads of itself.
    """
    check_model(model)
    if not delimiters or not all(isinstance(one, int) for one in delimiters):
        raise UsageError("give delimiters: the ids of the tokens that end the parts of a source")
    marks, training = Marks(tuple(delimiters), prefix), model.training
    if (before := model.config._attn_implementation) != injected.NAME:
        find_sites(model)  # refuses what lines could not be put into
    given = [batches] if isinstance(batches, Mapping) else batches
    given = list(given) if isinstance(given, Iterable) else []
    if not given or not all(map(_is_batch, given)):
        raise UsageError(
            "no batches: give at least one, of tensors input_ids, attention_mask and labels"
        )
    try:
        model.eval().set_attn_implementation("eager" if before != injected.NAME else before)
        with torch.no_grad():
            found = [_of_batch(model, batch, marks) for batch in given]
    finally:
        model.set_attn_implementation(before)
        model.train(training)
    model.__dict__[injected.MARKS] = marks
    return found


def _is_batch(given: Any) -> bool:
    named = given if isinstance(given, Mapping) else {}
    return all(isinstance(named.get(name), Tensor) for name in ("input_ids", "labels"))


def _of_batch(model: Any, batch: Batch, marks: Marks) -> Attention:
    batch = {name: batch[name].to(model.device) for name in NAMED if name in batch}
    ids, labels = batch["input_ids"], batch["labels"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    found = model(input_ids=ids, attention_mask=mask, labels=labels, output_attentions=True)
    state = State()
    state.source = marks.of(ids, mask)
    if not model.config.is_encoder_decoder:
        return _counted(_of_stream(found.attentions, state, labels))
    layers: dict[Site, tuple[Tensor, ...]] = {
        "encoder": tuple(found.encoder_attentions),
        "self": tuple(found.decoder_attentions),
        "cross": tuple(found.cross_attentions),
    }
    shapes = {site: x[0].shape for site, x in layers.items()}
    views = {site: state.view(site, n[2], n[3], stream=False) for site, n in shapes.items()}
    written = labels.ge(0)
    rows: dict[Site, Tensor] = {"encoder": mask.bool(), "self": written, "cross": written}
    return _counted(Attention(layers, views, rows))


def _counted(attention: Attention) -> Attention:
    """The same with zeros in rows that do not count; ``UsageError`` if others are no numbers."""
    found: dict[Site, tuple[Tensor, ...]] = {}
    for site, layers in attention.weights.items():
        found[site] = tuple(
            torch.where(attention.rows[site][:, None, :, None], layer, 0.0) for layer in layers
        )
        for number, layer in enumerate(found[site]):
            if not bool(layer.isfinite().all()):
                raise UsageError(
                    f"the attention of {site} in layer {number} holds no numbers (nan): leave out "
                    "samples with rows that may look nowhere"
                )
    return replace(attention, weights=found)


def _of_stream(layers: Sequence[Tensor], state: State, labels: Tensor) -> Attention:
    """What closes the source is the output's first row, so it counts as the output's own."""
    if layers is None or any(layer is None for layer in layers):
        raise UsageError("the model gives no attention weights with eager attention")
    size = layers[0].shape[2]
    sites: tuple[Site, ...] = ("cross", "self")
    views = {site: state.view(site, size, size, stream=True) for site in sites}
    output = views["self"].queries
    written = F.pad(labels[:, 1:].ge(0), (0, 1)) & output.column.ge(0)
    before = (torch.arange(size, device=labels.device) < output.marks)[:, None, None]
    crossed = tuple(layer * before for layer in layers)
    weights = {"encoder": (), "cross": crossed, "self": tuple(x * ~before for x in layers)}
    return Attention(weights, views, dict.fromkeys(sites, written))  # type: ignore[arg-type]


# The fit


def evidence_of(parts: Sequence[Attention]) -> Evidence:
    """What stands in for a run's evidence: attention that was captured by hand."""
    if not isinstance(parts, Sequence) or not all(isinstance(one, Attention) for one in parts):
        parts = []
    if not parts:
        raise UsageError("no attention to fit: give the list that abc.capture gave")
    closes = [part.views["cross"].keys.marks for part in parts]
    layers: dict[Site, int] = {site: len(x) for site, x in parts[0].weights.items()}
    return Evidence(
        captured=lambda: iter(parts),
        parts=closes[0].shape[1] - 1,
        length=max(int((one.diff(dim=1) - 1).max()) for one in closes),  # the widest part
        layers={"encoder": 0, **layers},
        heads=parts[0].weights["self"][0].shape[1],
        stream=not layers.get("encoder"),
    )


def fit_lines(
    attention: Sequence[Attention],
    *,
    threshold: float = 0.3,
    dirs: Sequence[str] = ("diag", "anti", "vert"),
    values: Literal["hard", "soft"] = "hard",
    empty: Literal["transparent", "sink"] = "sink",
) -> LineBias:
    """The lines that heads follow with at least ``threshold`` of their attention.

    One a head (``hard``), or as many as it follows with values in proportion (``soft``). A head
    without lines is a ``sink``, which reads nothing new, or ``transparent``.
    """
    options = build(NnlsOptions, threshold=threshold, dirs=tuple(dirs), values=values, empty=empty)
    return Nnls(evidence_of(attention), options).bias(threshold)


def unexplained(attention: Sequence[Attention], bias: LineBias) -> list[dict[str, Any]]:
    """Of each head its lines, and the share of its attention that is off them.

    The mean over all rows that count; a head of a stream has its lines at both sites.
    """
    given, table = evidence_of(attention), []
    there: list[Site] = [site for site in ("encoder", "self", "cross") if given.layers[site]]
    groups = [["cross", "self"]] if given.stream else [[site] for site in there]
    for group in cast(list[list[Site]], groups):
        rows = sum(int(part.rows[group[0]].sum()) for part in attention)
        for layer in range(given.layers[group[0]]):
            on = [_on_lines(part, bias, site, layer) for part in attention for site in group]
            for head, share in enumerate((torch.stack(on).sum(0) / rows).tolist()):
                lines = [
                    f"{site} {line.label(site)}"
                    for site in group
                    for line in (bias.heads(site, layer) or ((),) * given.heads)[head]
                ]
                row = {"site": "+".join(group), "layer": layer, "head": head, "lines": lines}
                table.append(row | {"unexplained": round(1 - share, 4)})
    return table


def _on_lines(attention: Attention, bias: LineBias, site: Site, layer: int) -> Tensor:
    """The attention on the lines of each head ``(h,)``, summed over the rows that count."""
    weights, rows = attention.weights[site][layer], attention.rows[site]
    heads = bias.heads(site, layer)
    if heads is None or not any(heads):
        return weights.new_zeros(weights.shape[1])
    found = Lines({site: heads}).gathered([attention.views[site]])
    key, lost = found.index, found.bias
    index = key.expand(len(weights), -1, weights.shape[2], -1)
    nowhere = (lost.expand(index.shape) == MASKED) | (index < 0)  # nothing opens the source
    on = weights.gather(3, index.clamp(min=0)).masked_fill(nowhere, 0)
    return on.sum(3).masked_fill(~rows[:, None], 0).sum((0, 2))
