"""The attention of external models: read while they write batches, and laid out as ours is.

Batches are what such a model is trained on: ``input_ids``, ``attention_mask`` and ``labels``, which
are -100 where nothing counts. Whatever they hold besides, and on whichever side they are padded,
``cross`` is what the output reads of its source, ``self`` what it reads of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry import Site
from abc_calib.geometry.coords import AttentionView, Coords, output_coords
from abc_calib.nn.base import AttentionWeights
from abc_calib.nn.foreign.attention import NAME, Marks
from abc_calib.nn.foreign.inject import MARKS
from abc_calib.nn.foreign.sites import check_model, find_sites

Batch = Mapping[str, Tensor]
NAMED = ("input_ids", "attention_mask", "position_ids", "labels", "decoder_input_ids")
"""What is read of a batch."""
STANDARD = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
"""Attention functions that compute what eager attention does."""
SOURCES: tuple[Site, ...] = ("encoder", "cross")
"""Sites whose keys are tokens of the source."""
LATER = 1e-4
"""Attention to later tokens that rounding may leave."""


def picked(x: Tensor, at: Tensor, dim: int) -> Tensor:
    """``x (b, h, i, j)`` at some places ``(b, n)`` of a dimension; zeros at -1."""
    at = at[:, None, None] if dim == 3 else at[:, None, :, None]
    shape = [at.shape[dim] if k == dim else size for k, size in enumerate(x.shape)]
    return x.gather(dim, at.clamp(min=0).expand(shape)).masked_fill(at < 0, 0)


def capture(
    model: Any, batches: Batch | Iterable[Batch], *, delimiters: Sequence[int], prefix: int = 0
) -> list[AttentionWeights]:
    """The attention of a model while it writes the ``labels`` of its batches, batch by batch.

    ``model``: of ``transformers``. ``delimiters``: ids of the tokens that end
    the parts of a source, in their order. ``prefix``: how many tokens the tokenizer puts before
    each source. Positions are counted from the first token that is not padding, unless a batch has
    ``position_ids``.
    """
    check_model(model)
    marks, batch_list = Marks((*delimiters,), prefix), listed_batches(batches)
    if (how := model.config._attn_implementation) not in (*STANDARD, NAME):
        raise UsageError(
            f"its attention is computed by {how!r}, a function of its own, and capture reads "
            "what eager attention computes: set_attn_implementation('eager') first, or give the "
            "weights that you read to as_attention"
        )
    if how != NAME:
        find_sites(model)  # refuses what lines could not be put into
    training = model.training
    try:
        captured = [of_batch(model.eval(), batch, marks) for batch in batch_list]
    finally:
        model.train(training)
    model.__dict__[MARKS] = marks
    return captured


@torch.no_grad()
def of_batch(model: Any, batch: Batch, marks: Marks) -> AttentionWeights:
    """The attention of a model while it writes a batch; ``marks``: of its sources."""
    batch = {name: batch[name].to(model.device) for name in NAMED if name in batch}
    mask = batch.setdefault("attention_mask", torch.ones_like(batch["input_ids"]))
    stream = not model.config.is_encoder_decoder
    if stream and "position_ids" in signature(model.forward).parameters:  # as generate() counts
        batch.setdefault("position_ids", (mask.long().cumsum(1) - 1).clamp(min=0))
    if (before := model.config._attn_implementation) != NAME:
        model.set_attn_implementation("eager")
    try:
        outputs = model(**batch, output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    if stream:
        return laid_out({"self": outputs.attentions}, batch, marks)
    layers = {
        "encoder": outputs.encoder_attentions,
        "self": outputs.decoder_attentions,
        "cross": outputs.cross_attentions,
    }
    return laid_out(layers, batch, marks)


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


def as_attention(
    weights: Sequence[Tensor] | Mapping[Site, Sequence[Tensor]],
    batch: Batch,
    *,
    delimiters: Sequence[int],
    prefix: int = 0,
) -> AttentionWeights:
    """Attention that another tool read, as ``fit_lines`` takes it.

    ``weights``: a tensor ``(b, h, i, j)`` a layer, each row of which sums to 1; of an
    encoder-decoder by site. ``batch``, ``delimiters`` and ``prefix`` as of ``capture``.
    """
    (batch,) = listed_batches(batch)
    by_site = weights if isinstance(weights, Mapping) else {"self": weights}
    return laid_out(by_site, batch, Marks((*delimiters,), prefix))


def laid_out(weights: Mapping[Any, Any], batch: Batch, marks: Marks) -> AttentionWeights:
    """The weights of each site, or of a stream as ``self``, as our own models give them."""
    layers = {site: tuple(x or ()) for site, x in weights.items()}
    flat = [layer for site_layers in layers.values() for layer in site_layers]
    if not flat or not all(isinstance(x, Tensor) and x.dim() == 4 for x in flat):
        raise UsageError("no attention weights: one tensor (b, h, i, j) for each layer is needed")
    ids, stream = batch["input_ids"], {*layers} == {"self"}
    if stream and any(len(x) != len(ids) or {*x.shape[2:]} != {ids.shape[1]} for x in flat):
        raise UsageError(f"weights over other tokens than the {tuple(ids.shape)} of input_ids")
    mask, labels = batch.get("attention_mask", torch.ones_like(ids)), batch["labels"]
    ends = marks.of(ids, mask).marks.expand(len(ids), -1)
    first, last = ends[:, :1], ends[:, -1:]
    at = first + torch.arange(int((last - first).max()) + 1, device=ids.device)
    inside, source = at <= last, ids.gather(1, at.clamp(min=0).minimum(last))
    at = at.masked_fill(~inside | (stream & (at == last)), -1)
    if not marks.prefix:  # nothing opens it
        at[:, 0] = source[:, 0] = -1
    if stream:  # what closes the source is the output's first token
        output, labels = _outputs(labels, last)
        read = [picked(x, output, 2) for x in layers["self"]]
        self_, cross = ([picked(x, keys, 3) for x in read] for keys in (output, at))
        layers = {"encoder": (), "self": (*self_,), "cross": (*cross,)}
    else:
        across = {site: [picked(x, at, 3) for x in layers.get(site, ())] for site in SOURCES}
        encoder = [picked(x, at, 2) for x in across["encoder"]]
        layers = {"encoder": (*encoder,), "self": layers["self"], "cross": (*across["cross"],)}
    rows: dict[Site, Tensor] = {"encoder": inside, "self": labels >= 0, "cross": labels >= 0}
    views = views_of(Marks(marks.delimiters, 1).of(source, inside), labels, stream)
    counted = {site: _counted(site, x, rows[site]) for site, x in layers.items()}
    return AttentionWeights(counted, views, rows)


def views_of(source: Coords, target: Tensor, stream: bool) -> dict[Site, AttentionView]:
    """Where queries and keys of each site stand while the targets ``(b, t)`` are written."""
    output = output_coords(target)
    views: dict[Site, AttentionView] = {
        "self": AttentionView("self", output, output, True),
        "cross": AttentionView("cross", output, source),
    }
    return views if stream else {**views, "encoder": AttentionView("encoder", source, source)}


def _outputs(labels: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Where the outputs of streams stand from ``last (b, 1)`` on, -1 behind, and their labels."""
    labels = F.pad(labels[:, 1:], (0, 1), value=-100)
    place = torch.arange(labels.shape[1], device=labels.device)
    steps = int(((labels >= 0) * (1 + place) - last).max())
    output = last + torch.arange(max(steps, 0), device=labels.device)
    behind = output >= len(place)
    labels = labels.gather(1, output.masked_fill(behind, 0)).masked_fill(behind, -100)
    return output.masked_fill(behind, -1), labels


def _counted(site: Site, layers: Sequence[Tensor], rows: Tensor) -> tuple[Tensor, ...]:
    """The layers with zeros in rows that do not count; ``UsageError`` if others are not a model's.

    Those of an output may look at no later token.
    """
    counted = tuple(torch.where(rows[:, None, :, None], x.detach(), 0.0) for x in layers)
    for number, layer in enumerate(counted):
        if site == "self" and layer.numel() and float(layer.triu(1).max()) > LATER:
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
