"""Capture and fit for a model object of ``transformers`` and its own batches.

>>> attention = abc.capture(model, batches, delimiters=[plus, equals])
>>> bias = abc.fit_lines(attention, threshold=0.3)
>>> abc.inject(model, bias)

Batches are what such a model is trained on: ``input_ids``, ``attention_mask`` and ``labels``, which
are -100 where nothing counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.calibration.fits.base import Evidence
from abc_calib.calibration.fits.nnls import Nnls
from abc_calib.calibration.windows import disputed, leaves_open, through
from abc_calib.config import CalibrationOptions, build
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.nn.attend import MASKED
from abc_calib.nn.base import AttentionWeights
from abc_calib.nn.foreign.attention import NAME
from abc_calib.nn.foreign.inject import MARKS, marked
from abc_calib.nn.foreign.places import Marks, State
from abc_calib.nn.foreign.sites import check_model, find_sites
from abc_calib.nn.lines import LineGather

Batch = Mapping[str, Tensor]
NAMED = ("input_ids", "attention_mask", "position_ids", "labels")
"""What is read of a batch."""
STANDARD = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
"""Attention functions that compute what eager attention does."""
LATER = 1e-4
"""Attention to later tokens that rounding may leave."""


def capture(
    model: Any, batches: Batch | Iterable[Batch], *, delimiters: Sequence[int], prefix: int = 0
) -> list[AttentionWeights]:
    """The attention of a model while it writes the ``labels`` of its batches, batch by batch.

    ``model``: of ``transformers``. ``delimiters``: ids of the tokens that end
    the parts of a source, in their order. ``prefix``: how many tokens the tokenizer puts before
    each source. Positions are counted from the first token that is not padding, unless a batch has
    ``position_ids``. Of a decoder-only model, ``cross`` is what its output reads of the source, and
    ``self`` what it reads of itself.
    """
    check_model(model)
    marks, batch_list = marked(delimiters, prefix), listed_batches(batches)
    before, training = model.config._attn_implementation, model.training
    if before not in (*STANDARD, NAME):
        raise UsageError(
            f"its attention is computed by {before!r}, a function of its own, and capture reads "
            "what eager attention computes: set_attn_implementation('eager') first, or give the "
            "weights that you read to as_attention"
        )
    if before != NAME:
        find_sites(model)  # refuses what lines could not be put into
        model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            captured = [_of_batch(model.eval(), batch, marks) for batch in batch_list]
    finally:
        model.set_attn_implementation(before)
        model.train(training)
    model.__dict__[MARKS] = marks
    return captured


def listed_batches(batches: Batch | Iterable[Batch]) -> list[Batch]:
    """The batches; ``UsageError`` unless there are some, of tensors."""
    several = [batches] if isinstance(batches, Mapping) else batches
    batch_list = list(several) if isinstance(several, Iterable) else []
    for batch in batch_list or [{}]:
        named = batch if isinstance(batch, Mapping) else {}
        if not all(isinstance(named.get(name), Tensor) for name in ("input_ids", "labels")):
            raise UsageError(
                "no batches: give at least one, of tensors input_ids, attention_mask and labels"
            )
    return batch_list


def _of_batch(model: Any, batch: Batch, marks: Marks) -> AttentionWeights:
    batch = {name: batch[name].to(model.device) for name in NAMED if name in batch}
    mask = batch.setdefault("attention_mask", torch.ones_like(batch["input_ids"]))
    stream = not model.config.is_encoder_decoder
    if stream and "position_ids" in signature(model.forward).parameters:  # as generate() counts
        batch.setdefault("position_ids", (mask.long().cumsum(1) - 1).clamp(min=0))
    outputs = model(**batch, output_attentions=True)
    if stream:
        return as_attention(outputs.attentions, batch, delimiters=marks)
    layers: dict[Site, Any] = {
        "encoder": outputs.encoder_attentions,
        "self": outputs.decoder_attentions,
        "cross": outputs.cross_attentions,
    }
    return as_attention(layers, batch, delimiters=marks)


def as_attention(
    weights: Sequence[Tensor] | Mapping[Site, Sequence[Tensor]],
    batch: Batch,
    *,
    delimiters: Sequence[int] | Marks,
    prefix: int = 0,
) -> AttentionWeights:
    """Attention that another tool read, as ``fit_lines`` takes it.

    ``weights``: a tensor ``(b, h, i, j)`` a layer, each row of which sums to 1; of an
    encoder-decoder by site. ``batch``, ``delimiters`` and ``prefix`` as of ``capture``.
    """
    marks, (batch,) = marked(delimiters, prefix), listed_batches(batch)
    ids, labels = batch["input_ids"], batch["labels"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    by_site: Mapping[Site, Any] = weights if isinstance(weights, Mapping) else {"self": weights}
    layers = {site: tuple(x or ()) for site, x in by_site.items()}
    flat = [layer for site_layers in layers.values() for layer in site_layers]
    if not flat or not all(isinstance(x, Tensor) and x.dim() == 4 for x in flat):
        raise UsageError("no attention weights: one tensor (b, h, i, j) for each layer is needed")
    state, stream = State(marks.of(ids, mask)), {*layers} == {"self"}
    if stream:
        if any(len(x) != len(ids) or {*x.shape[2:]} != {ids.shape[1]} for x in flat):
            raise UsageError(f"weights over other tokens than the {tuple(ids.shape)} of input_ids")
        layers["cross"] = layers["self"]
    shapes = {site: x[0].shape for site, x in layers.items()}
    views = {site: state.view(site, n[2], n[3], stream) for site, n in shapes.items()}
    written = labels.ge(0)
    if stream:  # what closes the source is the output's first row, so it counts as its own
        output = views["self"].queries
        written = F.pad(written[:, 1:], (0, 1)) & output.column.ge(0)
    rows = {site: mask.bool() if site == "encoder" else written for site in layers}
    layers = {site: _counted(site, x, rows[site]) for site, x in layers.items()}
    if stream:
        before = (torch.arange(ids.shape[1], device=ids.device) < output.marks)[:, None, None]
        layers["cross"] = tuple(x * before for x in layers["cross"])
        layers["self"] = tuple(x * ~before for x in layers["self"])
    return AttentionWeights({"encoder": (), **layers}, views, rows)


def _counted(site: Site, layers: Sequence[Tensor], rows: Tensor) -> tuple[Tensor, ...]:
    """The layers with zeros in rows that do not count; ``UsageError`` if others are not a model's.

    Those of an output may look at no later token.
    """
    counted = tuple(torch.where(rows[:, None, :, None], x.detach(), 0.0) for x in layers)
    for number, layer in enumerate(counted):
        if site == "self" and float(layer.triu(1).max()) > LATER:
            raise UsageError(
                f"the attention of {site} in layer {number} is not causal: a token looks at "
                "later ones, and lines are found in models that write one token after another"
            )
        if not bool(layer.isfinite().all()):
            raise UsageError(
                f"the attention of {site} in layer {number} holds no numbers (nan): leave out "
                "samples with rows that may look nowhere"
            )
    return counted


# The fit


def evidence_of(parts: Sequence[AttentionWeights]) -> Evidence:
    """What stands in for a run's evidence: attention that was captured by hand."""
    if not parts:
        raise UsageError("no attention to fit: give the list that abc.capture gave")
    closes = [part.views["cross"].keys.marks for part in parts]
    layers: dict[Site, int] = {site: len(x) for site, x in parts[0].weights.items()}
    return Evidence(
        captured=lambda: iter(parts),
        parts=closes[0].shape[1] - 1,
        length=max(int((marks.diff(dim=1) - 1).max()) for marks in closes),  # the widest part
        layers={"encoder": 0, **layers},
        heads=parts[0].weights["self"][0].shape[1],
        stream=bool(parts[0].views["self"].queries.marks.any()),  # rows begin behind the source
    )


def fit_lines(
    attention: Sequence[AttentionWeights],
    *,
    threshold: float = 0.3,
    dirs: Sequence[str] = ("diag", "anti", "vert"),
) -> LineBias:
    """The lines that heads follow with at least ``threshold`` of their attention, one a head.

    A head without one is closed onto a sink, which reads nothing new.
    """
    options = Nnls.resolved(build(CalibrationOptions, threshold=threshold, dirs=dirs))
    return Nnls(evidence_of(attention), options).bias(threshold)


def contradictions(
    bias: LineBias,
    batches: Batch | Iterable[Batch],
    *,
    delimiters: Sequence[int] | Marks,
    prefix: int = 0,
) -> tuple[int, int]:
    """How many rows see, along the lines, what another row sees and write another token.

    And how many rows there are. A model without positions on these lines cannot be right in all of
    them, whatever it learns. Where a head may look everywhere no row is counted. Arguments as of
    ``capture``.
    """
    marks, codes, written = marked(delimiters, prefix), list[Tensor](), list[Tensor]()
    sites: list[Site] = ["self", "cross"] if bias.stream else ["self", "cross", "encoder"]
    open_ = leaves_open(bias, sites)
    for batch in listed_batches(batches):
        ids, targets = batch["input_ids"], batch["labels"]
        if bias.stream:
            read, targets = ids, F.pad(targets[:, 1:], (0, 1), value=-100)
        else:  # what the decoder reads: the labels behind what opens them
            shifted = F.pad(targets[:, :-1], (1, 0), value=-1)
            read = batch.get("decoder_input_ids", shifted)
        written.append(targets[targets.ge(0)])
        if not open_:
            state, n = State(marks.of(ids, batch.get("attention_mask"))), targets.shape[1]
            keys = {"self": n, "cross": ids.shape[1], "encoder": ids.shape[1]}
            views = {site: state.view(site, n, keys[site], bias.stream) for site in sites}
            codes.append(through(bias, ids, read, views)[targets.ge(0)])
    tokens = torch.cat(written).numpy()
    return (0, len(tokens)) if open_ else disputed(torch.cat(codes).numpy(), tokens)


def unexplained(attention: Sequence[AttentionWeights], bias: LineBias) -> list[dict[str, Any]]:
    """Of each head its lines, and the share of its attention that is off them.

    The mean over all rows that count; a head of a stream has its lines at both sites.
    """
    evidence, table = evidence_of(attention), []
    sites: list[Site] = [site for site in ("encoder", "self", "cross") if evidence.layers[site]]
    groups: list[list[Site]] = [["cross", "self"]] if evidence.stream else [[s] for s in sites]
    for group in groups:
        rows = sum(int(part.rows[group[0]].sum()) for part in attention)
        for layer in range(evidence.layers[group[0]]):
            on = [_on_lines(part, bias, site, layer) for part in attention for site in group]
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
    nowhere = (lost.expand(index.shape) == MASKED) | (index < 0)  # nothing opens the source
    on = weights.gather(3, index.clamp(min=0)).masked_fill(nowhere, 0)
    return on.sum(3).masked_fill(~rows[:, None], 0).sum((0, 2))
