"""Any ``nn.Module``: its attention is read, and lines are added, where it takes a softmax.

While the module runs, a torch function mode sees each call of ``softmax``,
``scaled_dot_product_attention`` and ``nn.MultiheadAttention`` over all queries and keys, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.nn.attend import MASKED, weighed
from abc_calib.nn.foreign.attention import ModuleLines
from abc_calib.nn.foreign.places import Marks, State

SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
WHOLE = "give whole sequences, without a cache and without keys of its own, such as memory tokens"


class AnyModule:
    """A module of your own, as ``capture`` and ``inject`` take it.

    A decoder-only ``module`` is called with ids ``(b, n)``, of source and output; heads of its
    layers attend over all ``n`` keys by a softmax of torch. ``sites``: of an encoder-decoder,
    which is called with the ids of both, the site of each attention in the order in which they are
    computed. ``call``: how the module is called with a batch, by default with its ``input_ids``
    (and ``decoder_input_ids``).
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        sites: Sequence[Site] = (),
        call: Callable[[nn.Module, Mapping[str, Tensor]], Any] | None = None,
    ):
        self.module, self.sites, self.call = module, tuple(sites), call or _called
        self.marks: Marks | None = None
        self.lines: LineBias | None = None
        self.kept: list[Tensor] | None = None
        self.mode: _Attending | None = None
        self.state, self.held = State(), dict[int, ModuleLines]()
        module.register_forward_pre_hook(self._before, with_kwargs=True)
        module.register_forward_hook(self._check)
        module.register_forward_hook(self._after, always_call=True)

    @property
    def stream(self) -> bool:
        return not self.sites

    def weights(self, batch: Mapping[str, Tensor]) -> dict[Site, list[Tensor]]:
        """The attention ``(b, h, i, j)`` of each layer by site; a stream's is ``self`` alone."""
        training, self.kept = self.module.training, []
        try:
            with torch.no_grad():
                self.call(self.module.eval(), batch)
            kept = self.kept
        finally:
            self.kept = None
            self.module.train(training)
        if not kept or (self.sites and len(kept) != len(self.sites)):
            raise UsageError(
                f"{type(self.module).__name__} took {len(kept)} softmaxes over its keys, and "
                f"{len(self.sites) or 'one or more'} are needed: its attention has to call torch's "
                f"softmax or scaled_dot_product_attention; {WHOLE}"
            )
        if not self.sites:
            return {"self": kept}
        order = list(zip(self.sites, kept, strict=True))
        return {site: [x for at, x in order if at == site] for site in self.sites}

    def inject(self, lines: LineBias, marks: Marks) -> None:
        """Attend along these lines from now on."""
        if lines.sites and lines.stream != self.stream:
            one, other = ("decoder-only", "encoder-decoder")[:: 1 if lines.stream else -1]
            raise UsageError(f"the lines are of a {one} model, and this is an {other} one")
        self.lines, self.marks, self.held = lines, marks, {}

    def _before(self, module: nn.Module, args: Any, given: dict[str, Any]) -> None:
        if self.lines is None and self.kept is None:
            return
        ids = [one for one in args if _is_ids(one)]
        ids += [x for name, x in given.items() if _is_ids(x) and "mask" not in name]
        if len(ids) < (2 if self.sites else 1):
            raise UsageError("it was called without ids (b, n) of whole numbers: lines need them")
        there = (given[name] for name in ("attention_mask", "mask") if name in given)
        mask = next((x for x in there if isinstance(x, Tensor) and x.shape == ids[0].shape), None)
        self.mode = _Attending(self, ids, mask)
        self.mode.__enter__()

    def _check(self, *_: Any) -> None:
        """``UsageError`` if lines found no attention to be added to."""
        if self.mode is not None and self.lines is not None and self.lines.sites:
            wanted = len(self.sites) or len(self.lines.sites["self"])
            if (met := self.mode.count) != wanted:
                raise UsageError(f"lines of {wanted} attentions, and {met} met: {WHOLE}")

    def _after(self, *_: Any) -> None:
        mode, self.mode = self.mode, None
        if mode is not None:
            mode.__exit__(None, None, None)


def _called(module: nn.Module, batch: Mapping[str, Tensor]) -> Any:
    names = ("input_ids", "decoder_input_ids")
    return module(*(batch[name] for name in names if name in batch))


def _is_ids(given: Any) -> bool:
    return isinstance(given, Tensor) and given.dim() == 2 and given.dtype in (torch.long, torch.int)


class _Attending(TorchFunctionMode):
    """One call of a module: reads its attention, and adds lines to the scores."""

    def __init__(self, owner: AnyModule, ids: Sequence[Tensor], mask: Tensor | None):
        super().__init__()
        self.owner, self.count, self.batch = owner, 0, len(ids[0])
        n, m = ids[0].shape[1], ids[-1].shape[1]
        shapes: dict[Site, tuple[int, int]] = {"encoder": (n, n), "self": (m, m), "cross": (m, n)}
        self.shapes = [shapes[site] for site in owner.sites]
        self.usual = (n, n)
        if owner.lines is not None and owner.marks is not None:
            owner.state.source, owner.state.tokens = owner.marks.of(ids[0], mask), n

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        how = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            return self._fused(*args, **how)
        if func is F.multi_head_attention_forward:
            return self._multi_head(args, how)
        if func in SOFTMAX and self._is_next(args[0].shape):
            scores, *rest = args
            heads = scores.view(self.batch, -1, *scores.shape[-2:])
            biased = heads if (bias := self._bias(heads)) is None else heads + bias
            found = func(biased.view(scores.shape), *rest, **how)
            self._keep(found.view(heads.shape))
            return found
        return func(*args, **how)

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **how: Any,
    ) -> Tensor:
        scores = query.new_empty(()).expand(*query.shape[:-1], key.shape[-2])
        if not self._is_next(scores.shape):
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, **how
            )
        added = _as_bias(attn_mask, scores)
        if is_causal:
            added = added.masked_fill(~torch.ones_like(added[0, 0]).tril().bool(), MASKED)
        if (bias := self._bias(scores)) is not None:
            added = added + bias
        if self.owner.kept is not None:
            many = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            self.owner.kept.append(weighed(query, many, added, how.get("scale")).detach())
        self.count += 1
        return F.scaled_dot_product_attention(query, key, value, added, dropout_p, **how)

    def _multi_head(self, args: Any, how: dict[str, Any]) -> Any:
        """Of ``nn.MultiheadAttention``, whose query and key are ``(i, b, e)`` and ``(j, b, e)``."""
        query, key, _, _, heads, *_ = args
        scores = query.new_empty(()).expand(self.batch, heads, len(query), len(key))
        if query.dim() != 3 or not self._is_next(scores.shape):
            return F.multi_head_attention_forward(*args, **how)
        mask = how.get("attn_mask")
        if mask is not None and mask.dim() == 3:
            mask = mask.view(scores.shape)
        bias, added = self._bias(scores), _as_bias(mask, scores)
        added = (added if bias is None else added + bias).reshape(-1, len(query), len(key))
        wanted = {name: how.get(name, True) for name in ("need_weights", "average_attn_weights")}
        how |= {"attn_mask": added, "is_causal": False}
        how |= {"need_weights": True, "average_attn_weights": False}
        made: Any = F.multi_head_attention_forward(*args, **how)
        mixed, weights = made
        self._keep(weights)
        told = weights.mean(1) if wanted["average_attn_weights"] else weights
        return mixed, told if wanted["need_weights"] else None

    def _is_next(self, shape: Sequence[int]) -> bool:
        """Are these the scores of the next attention: over all its queries and keys?"""
        sized = self.shapes[self.count : self.count + 1] if self.shapes else [self.usual]
        return len(shape) in (3, 4) and [tuple(shape[-2:])] == sized

    def _keep(self, weights: Tensor) -> None:
        self.count += 1
        if self.owner.kept is not None:
            self.owner.kept.append(weights.detach())

    def _bias(self, scores: Tensor) -> Tensor | None:
        """What the lines add to the scores ``(b, h, i, j)`` of the next attention."""
        lines, sites, n = self.owner.lines, self.owner.sites, self.count
        if lines is None or not lines.sites:
            return None
        site: Site = sites[n] if sites else "self"
        layer = sites[:n].count(site) if sites else n
        there: tuple[Site, ...] = (site,) if sites else ("cross", "self")
        b, h, i, j = scores.shape
        if n not in self.owner.held:
            every = {one: lines.sites.get(one, (((),) * h,) * (layer + 1)) for one in there}
            if any(len(x) <= layer or len(x[layer]) != h for x in every.values()):
                raise UsageError(f"the lines are not of a layer {layer} of {h} heads at {site}")
            heads = {one: layers[layer] for one, layers in every.items()}
            opened = self.owner.marks is not None and self.owner.marks.prefix > 0
            held = ModuleLines(self.owner.state, heads, lines.off_line_bias, opened)
            self.owner.held[n] = held
        held = self.owner.held[n]
        views = held.views(b, i, j)
        return held.matrix(views, j).to(scores.dtype) if views else None


def _as_bias(mask: Tensor | None, scores: Tensor) -> Tensor:
    """A mask as torch takes it, bool or added, as what is added to ``scores (b, h, i, j)``."""
    zeros = torch.zeros(scores.shape, dtype=scores.dtype, device=scores.device)
    if mask is None:
        return zeros
    return zeros.masked_fill(~mask, MASKED) if mask.dtype == torch.bool else zeros + mask
