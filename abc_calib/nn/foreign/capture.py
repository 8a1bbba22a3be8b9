"""The attention of external models: read while they write batches, and laid out as ours is.

Batches are what such a model is trained on: ``input_ids``, ``attention_mask`` and ``labels``, which
are -100 where nothing counts. Whatever they hold besides, and on whichever side they are padded,
``cross`` is what the output reads of its source, ``self`` what it reads of itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.errors import AbcWarning, UsageError
from abc_calib.geometry import Site
from abc_calib.geometry.coords import AttentionView, Coords, output_coords
from abc_calib.nn.base import AttentionWeights
from abc_calib.nn.foreign.attention import NAME, Marks
from abc_calib.nn.foreign.inject import MARKS
from abc_calib.nn.foreign.sites import check_model, find_sites

Batch = Mapping[str, Tensor]
Layers = dict[Site, tuple[Tensor, ...]]
NAMED = ("input_ids", "attention_mask", "position_ids", "labels", "decoder_input_ids")
"""What is read of a batch."""
STANDARD = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
"""Attention functions that compute what eager attention does."""
SOURCES: tuple[Site, ...] = ("encoder", "cross")
"""Sites whose keys are tokens of the source."""
LATER, ROUNDED = 1e-4, 0.02
"""What rounding may leave: of attention to later tokens, and of a row's sum in half precision."""


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
    each source: warns if that is 0 and all begin with ``bos_token_id``. Positions are counted from
    the first token that is not padding, unless a batch has ``position_ids``.
    """
    check_model(model)
    marks = Marks(delimiters, prefix)
    batch_list = listed_batches(batches, not model.config.is_encoder_decoder)
    if (how := model.config._attn_implementation) not in (*STANDARD, NAME):
        raise UsageError(
            f"its attention is computed by {how!r}, a function of its own, and capture reads "
            "what eager attention computes: set_attn_implementation('eager') first, or give the "
            "weights that you read to as_attention"
        )
    if how != NAME:
        find_sites(model)  # refuses what lines could not be put into
    begins = torch.cat([_begin(batch) for batch in batch_list]).unique().tolist()
    if not marks.prefix and begins == [model.config.bos_token_id]:
        warnings.warn(
            f"each source begins with token {begins[0]}, the bos_token_id, which counts as part "
            "of it: if the tokenizer puts it there, give prefix=1",
            AbcWarning,
            stacklevel=2,
        )
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


def listed_batches(batches: Batch | Iterable[Batch], stream: bool) -> list[Batch]:
    """The batches; ``UsageError`` unless there are some, of tensors of shapes that fit."""
    several = [batches] if isinstance(batches, Mapping) else batches
    batch_list = list(several) if isinstance(several, Iterable) else []
    for batch in batch_list or [{}]:
        named = batch if isinstance(batch, Mapping) else {}
        ids, labels = named.get("input_ids"), named.get("labels")
        if not isinstance(ids, Tensor) or not isinstance(labels, Tensor):
            has = f"a batch of {', '.join(map(str, named))}" if named else "no batches"
            raise UsageError(f"{has}: give tensors input_ids, attention_mask and labels")
        tensors = (ids, named.get("attention_mask", ids), labels)
        sources, mask, outputs = shapes = [tuple(getattr(x, "shape", ())) for x in tensors]
        sized = len(sources) == len(outputs) == 2 and 0 not in sources and mask == sources
        if not sized or outputs[: 1 + stream] != sources[: 1 + stream]:
            raise UsageError(
                f"input_ids, attention_mask and labels are {', '.join(map(str, shapes))}: give "
                "each as (samples, tokens), of one shape; labels of an encoder-decoder may have "
                "another number of tokens"
            )
    return batch_list


def _begin(batch: Batch) -> Tensor:
    """The first token of each sample that is not padding ``(b, 1)``."""
    ids = batch["input_ids"]
    start = batch.get("attention_mask", torch.ones_like(ids)).int().argmax(1, keepdim=True)
    return ids.gather(1, start.to(ids.device)).cpu()


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
    by_site = weights if isinstance(weights, Mapping) else {"self": weights}
    (batch,) = listed_batches([batch], {*by_site} == {"self"})
    return laid_out(by_site, batch, Marks(delimiters, prefix))


def laid_out(weights: Mapping[Any, Any], batch: Batch, marks: Marks) -> AttentionWeights:
    """The weights of each site, or of a stream as ``self``, as our own models give them."""
    ids, labels = batch["input_ids"], batch["labels"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    layers = _by_site(weights, ids, labels)
    stream = "cross" not in layers
    ends = marks.of(ids, mask).marks.expand(len(ids), -1)
    first, last = ends[:, :1], ends[:, -1:]
    at = first + torch.arange(int((last - first).max()) + 1, device=ids.device)
    inside, source = at <= last, ids.gather(1, at.clamp(min=0).minimum(last))
    at = at.masked_fill(~inside | (stream & (at == last)), -1)
    if not marks.prefix:  # nothing opens it
        at[:, 0] = source[:, 0] = -1
    if stream:  # what closes the source is the output's first token
        output, labels = _outputs(labels.masked_fill(mask == 0, -100), last)
        layers = {"self": tuple(picked(x, output, 2) for x in layers["self"])}
    else:
        layers["encoder"] = tuple(picked(x, at, 2) for x in layers.get("encoder", ()))
    rows: dict[Site, Tensor] = {"encoder": at >= 0, "self": labels >= 0, "cross": labels >= 0}
    layers = {site: _counted(site, x, rows[site]) for site, x in layers.items()}
    if stream:
        selfs, cross = ([picked(x, keys, 3) for x in layers["self"]] for keys in (output, at))
        layers = {"encoder": (), "self": (*selfs,), "cross": (*cross,)}
    else:
        layers |= {site: tuple(picked(x, at, 3) for x in layers[site]) for site in SOURCES}
    for number, layer in enumerate(layers["self"]):
        if layer.numel() and float(layer.triu(1).max()) > LATER:
            raise UsageError(
                f"the attention of self in layer {number} is not causal: a token looks at "
                "later ones, and lines are found in models that write one token after another"
            )
    views = views_of(Marks(marks.delimiters, 1).of(source, inside), labels, stream)
    return AttentionWeights(layers, views, {**rows, "encoder": inside})


def _by_site(weights: Mapping[Any, Any], ids: Tensor, labels: Tensor) -> Layers:
    """The layers of each site; ``UsageError`` unless they are over the tokens of a batch."""
    layers: Layers = {site: tuple(() if x is None else x) for site, x in weights.items()}
    flat = [layer for site_layers in layers.values() for layer in site_layers]
    if not flat or not all(isinstance(x, Tensor) and x.dim() == 4 for x in flat):
        raise UsageError("no attention weights: one tensor (b, h, i, j) for each layer is needed")
    if {*layers} != {"self"} and {"encoder", *layers} != {"encoder", "self", "cross"}:
        raise UsageError(
            f"attention of {', '.join(map(str, layers))}: give a list for a decoder-only model, "
            "or self, cross and, if it has one, encoder"
        )
    (b, n), t = ids.shape, labels.shape[1]
    sizes = {"encoder": (b, n, n), "self": (b, t, t), "cross": (b, t, n)}
    for site, site_layers in layers.items():
        if wrong := [x for x in site_layers if (len(x), *x.shape[2:]) != sizes[site]]:
            raise UsageError(
                f"weights over other tokens than the {b, n} of input_ids and the {b, t} of "
                f"labels: a layer of {site} is {tuple(wrong[0].shape)}"
            )
    return layers


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
    """The layers with zeros in rows that do not count; ``UsageError`` if others are not weights."""
    counted = tuple(torch.where(rows[:, None, :, None], x.detach(), 0.0) for x in layers)
    for number, layer in enumerate(counted):
        if not layer.numel():
            continue
        if bool(layer.isnan().any()):
            raise UsageError(
                f"the attention of {site} in layer {number} holds no numbers (nan): leave out "
                "samples with rows that may look nowhere"
            )
        least, sums = float(layer.min()), layer.sum(3, dtype=torch.float32)
        off = (sums - rows[:, None].float()).abs()
        if least < 0 or not float(off.max()) <= ROUNDED:
            raise UsageError(
                f"the attention of {site} in layer {number} is not weights: its smallest number "
                f"is {least:.3g}, and a row sums to {float(sums.flatten()[off.argmax()]):.3g}, "
                "not to 1: give what softmax returns, before dropout, as (b, h, queries, keys)"
            )
    return counted
