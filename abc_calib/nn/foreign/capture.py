"""The attention of external models: read while they write batches, and laid out as ours is.

Batches are what such a model is trained on: ``input_ids``, ``attention_mask`` and ``labels``, which
are -100 where nothing counts. Whatever they hold besides, and on whichever side they are padded,
``cross`` is what the output reads of its source, ``self`` what it reads of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry import Site
from abc_calib.geometry.coords import AttentionView, output_coords
from abc_calib.nn.base import AttentionWeights
from abc_calib.nn.foreign.attention import NAME, Marks
from abc_calib.nn.foreign.inject import MARKS, marked
from abc_calib.nn.foreign.sites import check_model, find_sites

Batch = Mapping[str, Tensor]
NAMED = ("input_ids", "attention_mask", "position_ids", "labels", "decoder_input_ids")
"""What is read of a batch."""
STANDARD = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
"""Attention functions that compute what eager attention does."""
LATER = 1e-4
"""Attention to later tokens that rounding may leave."""


@dataclass(frozen=True)
class Pairs:
    """Sources and targets of a batch, from the left on, and where their tokens are in it.

    ``source (b, s)`` from what opens it to what closes it, ``target (b, t)`` and what was ``read``
    before each of its tokens. ``inside (b, s)`` and ``written (b, t)``: which of them count.
    ``source_at (b, s)``: positions in ``input_ids``, -1 for no token; of a stream what closes the
    source is the output's first token, ``output_at (b, t)``.
    """

    source: Tensor
    target: Tensor
    read: Tensor
    inside: Tensor
    written: Tensor
    views: dict[Site, AttentionView]
    source_at: Tensor
    output_at: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, marks: Marks, stream: bool) -> Pairs:
        """The pairs of a batch; ``UsageError`` for a source without its delimiters."""
        ids, labels = batch["input_ids"], batch["labels"]
        mask = batch.get("attention_mask", torch.ones_like(ids))
        ends = marks.of(ids, mask).marks.expand(len(ids), -1)
        first, last = ends[:, :1], ends[:, -1:]
        at = first + torch.arange(int((last - first).max()) + 1, device=ids.device)
        inside = at <= last
        source = ids.gather(1, at.clamp(min=0).minimum(last))
        source_at = at.masked_fill(~inside | (at >= last if stream else at > last), -1)
        if not marks.prefix:  # nothing opens it
            source_at[:, 0] = source[:, 0] = -1
        output_at = None
        if stream:
            rows = F.pad(labels[:, 1:], (0, 1), value=-100)
            place = torch.arange(ids.shape[1], device=ids.device)
            steps = int(((rows >= 0) * (1 + place) - last).max())
            output_at = last + torch.arange(max(steps, 0), device=ids.device)
            behind, output_at = output_at >= len(place), output_at.clamp(max=len(place) - 1)
            target = rows.gather(1, output_at).masked_fill(behind, -100)
            read = ids.gather(1, output_at)
        else:
            target, shifted = labels, F.pad(labels[:, :-1], (1, 0), value=-1)
            read = batch.get("decoder_input_ids", shifted)
        where = Marks(marks.delimiters, 1).of(source, inside)
        output = output_coords(target)
        views: dict[Site, AttentionView] = {
            "self": AttentionView("self", output, output, True),
            "cross": AttentionView("cross", output, where),
        }
        if not stream:
            views["encoder"] = AttentionView("encoder", where, where)
        return cls(source, target, read, inside, target >= 0, views, source_at, output_at)

    def split(self, layers: Mapping[Site, Sequence[Tensor]]) -> dict[Site, tuple[Tensor, ...]]:
        """The weights of each site, with the rows and keys of these sources and targets."""
        at, rows = self.source_at, self.output_at
        if rows is not None:
            output = [picked(x, rows, 2) for x in layers["self"]]
            written, crossed = ([picked(x, keys, 3) for x in output] for keys in (rows, at))
            return {"encoder": (), "self": (*written,), "cross": (*crossed,)}
        inner = [picked(picked(x, at, 3), at, 2) for x in layers.get("encoder", ())]
        crossed = [picked(x, at, 3) for x in layers.get("cross", ())]
        return {"encoder": (*inner,), "self": (*layers["self"],), "cross": (*crossed,)}


def picked(x: Tensor, at: Tensor, dim: int) -> Tensor:
    """``x (b, h, i, j)`` at some places ``(b, s)`` of a dimension; zeros at -1."""
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
    marks, batch_list = marked(delimiters, prefix), listed_batches(batches)
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
        return as_attention(outputs.attentions, batch, delimiters=marks)
    layers: dict[Site, Any] = {
        "encoder": outputs.encoder_attentions,
        "self": outputs.decoder_attentions,
        "cross": outputs.cross_attentions,
    }
    return as_attention(layers, batch, delimiters=marks)


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
    delimiters: Sequence[int] | Marks,
    prefix: int = 0,
) -> AttentionWeights:
    """Attention that another tool read, as ``fit_lines`` takes it.

    ``weights``: a tensor ``(b, h, i, j)`` a layer, each row of which sums to 1; of an
    encoder-decoder by site. ``batch``, ``delimiters`` and ``prefix`` as of ``capture``.
    """
    marks, (batch,) = marked(delimiters, prefix), listed_batches(batch)
    by_site: Mapping[Site, Any] = weights if isinstance(weights, Mapping) else {"self": weights}
    layers = {site: tuple(x or ()) for site, x in by_site.items()}
    flat = [layer for site_layers in layers.values() for layer in site_layers]
    if not flat or not all(isinstance(x, Tensor) and x.dim() == 4 for x in flat):
        raise UsageError("no attention weights: one tensor (b, h, i, j) for each layer is needed")
    ids, stream = batch["input_ids"], {*layers} == {"self"}
    if stream and any(len(x) != len(ids) or {*x.shape[2:]} != {ids.shape[1]} for x in flat):
        raise UsageError(f"weights over other tokens than the {tuple(ids.shape)} of input_ids")
    pairs = Pairs.of(batch, marks, stream)
    rows = {"encoder": pairs.inside, "self": pairs.written, "cross": pairs.written}
    split = {site: _counted(site, x, rows[site]) for site, x in pairs.split(layers).items()}
    return AttentionWeights(split, pairs.views, {site: rows[site] for site in split})


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
