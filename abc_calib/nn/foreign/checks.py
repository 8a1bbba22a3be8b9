"""What is tried on a model of transformers before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.base import in_float64
from abc_calib.nn.foreign.inject import put
from abc_calib.nn.foreign.model import Foreign
from abc_calib.nn.foreign.sites import explain

LOGITS, WEIGHTS = 1e-5, 1e-6
"""What a bias of zeros may change: of logits, and of attention."""
STRETCHED = 10_007
"""Between position ids, where they must not matter."""
LONG, LONG_ONES = 150, 8
"""Tokens of each part of long sources, and how many of these are tried."""


@dataclass(frozen=True)
class Neutrality:
    """What a bias of zeros changes at most: the ``logits``, and the ``attention`` captured."""

    logits: float
    attention: float


def try_out(model: Foreign, source: Tensor, target: Tensor) -> Neutrality:
    """Do with a model whatever a calibration does; ``UsageError`` says what it cannot.

    In float64: in float32 the rounding of a trained model alone may change logits by 1e-4.
    """
    with in_a_line(model):
        tried = in_float64(model)
        change = check_neutral(tried, source, target)
        check_cache(tried, source[:2], target.shape[1])
        del tried  # memory
        lined = Foreign(model.options.model_copy(update={"scheme": "none"}), model.tokens)
        lined.network.load_state_dict(model.network.state_dict())
        lined = lined.to(model.device).double().eval()
        lined.set_lines(lines_alone(lined))
        check_alone(lined, long_sources(lined, source), target[:LONG_ONES])
        lined.set_lines(trial_lines(lined))
        check_lined(lined, source, target)
    return change


@contextmanager
def in_a_line(model: Foreign) -> Iterator[None]:
    """Turn what the code of a model raises into a ``UsageError``."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # whatever its code raises
        name = type(model.network).__name__
        raise UsageError(
            f"{name} does not do what a calibration needs ({explain(error)})"
        ) from None


@torch.no_grad()
def check_neutral(model: Foreign, source: Tensor, target: Tensor) -> Neutrality:
    """Put a bias of zeros into a model and take it out again; ``UsageError`` if that is felt."""
    name = type(model.network).__name__
    plain, captured = model(source, target), model.attention(source, target).weights
    put(model.network, LineBias({}), model.marks, model.sites)
    try:
        logits, weights = model(source, target), model.attention(source, target).weights
    finally:
        model.set_lines(None)
    written = target != model.pad
    apart = [
        float((before - after)[written[:, None, :, None].expand_as(before)].abs().max())
        for site in ("self", "cross")
        for before, after in zip(captured[site], weights[site], strict=True)
    ]
    change = Neutrality(float((plain - logits)[written].abs().max()), max(apart, default=0.0))
    if not (change.logits <= LOGITS and change.attention <= WEIGHTS):
        raise UsageError(
            f"{name} does not attend as its eager attention says: a bias of zeros changes its "
            f"logits by {change.logits:.1g} and its attention by {change.attention:.1g}"
        )
    return change


def trial_lines(model: Foreign) -> LineBias:
    """Lines of the kinds that a calibration finds, in every head."""
    parts, heads, layers = len(model.marks.delimiters), model.sites.heads, model.attention_layers
    read = [[Line("anti", 1 + head % parts, 0)] for head in range(heads)]
    read[0].append(Line("anti", 1, -1, -1.0))
    self_lines = [[Line("diag", 0, -(head % 2))] for head in range(heads)]
    if model.stream:  # each head at one of its two sites
        read[1::2], self_lines[::2] = [[]] * len(read[1::2]), [[]] * len(self_lines[::2])
    inner = [[Line("diag", 0, 0)]] * heads
    sites = {"encoder": inner, "self": self_lines, "cross": read}
    return LineBias(
        {site: (tuple(map(tuple, sites[site])),) * count for site, count in layers.items() if count}
    )


def lines_alone(model: Foreign) -> LineBias:
    """Lines along which tokens see themselves and delimiters."""
    diagonal, closer = (Line("diag", 0, 0),), (() if model.stream else (Line("vert", 1, 0),))
    sites = {"encoder": diagonal, "self": diagonal, "cross": closer}
    return LineBias(
        {s: ((sites[s],) * model.sites.heads,) * n for s, n in model.attention_layers.items() if n}
    )


def check_lined(model: Foreign, source: Tensor, target: Tensor) -> None:
    """``UsageError`` unless a model attends along its lines alone, with a cache and in training."""
    name = type(model.network).__name__
    with torch.no_grad():
        plain = model(source, target)
        dense = model._run(source, target, output_attentions=True)
        dense = dense.logits[:, -target.shape[1] :]
        if not float((plain - dense)[target != model.pad].abs().max()) <= LOGITS:
            raise UsageError(f"{name} attends in another way where its weights are asked for")
    check_positions(model, source, target)
    check_cache(model, source[:2], target.shape[1])
    model.train()
    model.loss(source, target).backward()


@torch.no_grad()
def check_cache(model: Foreign, source: Tensor, steps: int) -> None:
    """``UsageError`` unless a model writes the same with its cache as without."""
    written = model.decode(source, steps).ids
    again = model(source, written.masked_fill(written == model.pad, model.eos)).argmax(-1)
    if not bool(((written == again) | (written == model.pad)).all()):
        name = type(model.network).__name__
        raise UsageError(f"{name} generates with its cache what it does not write without")


def long_sources(model: Foreign, source: Tensor) -> Tensor:
    """Sources with long parts, of tokens of given ones."""
    none = source.new_tensor([model.pad, model.sos, *model.marks.delimiters])
    tokens, rng = source[~torch.isin(source, none)], torch.Generator().manual_seed(0)
    parts = [source.new_full((LONG_ONES, 1), model.sos)]
    for delimiter in model.marks.delimiters:
        drawn = torch.randint(len(tokens), (LONG_ONES, LONG), generator=rng)
        parts += [tokens[drawn], source.new_full((LONG_ONES, 1), delimiter)]
    return torch.cat(parts, 1)


def check_alone(model: Foreign, source: Tensor, target: Tensor) -> None:
    """``UsageError`` if digits change the first or the last row, by lines that lead to none.

    As where layers without attention pass tokens on, of the source or of what is written.
    """
    kept = source.new_tensor([model.pad, model.eos, model.sos, *model.marks.delimiters])
    digits, written = ~torch.isin(source, kept), ~torch.isin(target, kept)
    written[:, -2:] = False  # the last row is given the last token but one
    _check_rows(model, source, digits, target, written)


@torch.no_grad()
def _check_rows(
    model: Foreign, source: Tensor, mask: Tensor, target: Tensor, written: Tensor | None = None
) -> None:
    """``UsageError`` if tokens of the source change the first row, and those written the last."""
    varied = torch.where(mask, source[:, 1:2].roll(1, 0), source)
    also, rows = target, [0]
    if written is not None:
        also, rows = torch.where(written, target[:, :1].roll(1, 0), target), [0, -1]
    changed = float((model(varied, also) - model(source, target))[:, rows].abs().max())
    if not changed <= LOGITS:
        raise UsageError(
            f"{type(model.network).__name__} sees tokens that are not on its lines: others change "
            f"its logits by {changed:.2g}"
        )


@torch.no_grad()
def check_positions(model: Foreign, source: Tensor, target: Tensor) -> None:
    """``UsageError`` where a stream without positions counts them somewhere else."""
    if not model.sites.stream:
        return
    plain, moved = (model._run(source, target, step=step).logits for step in (1, STRETCHED))
    if not (changed := float((moved - plain).abs().max())) <= 1e-4:
        raise UsageError(
            f"{type(model.network).__name__} counts positions somewhere else, too: other position "
            f"ids change its logits by {changed:.2g}"
        )


def check_tokenizer(coder: Any, task: Any) -> None:
    """``UsageError`` unless ``AutoTokenizer`` reads sources as the file says, and knows its tokens.

    Files next to ``tokenizer.json`` may add some.
    """
    from transformers import AutoTokenizer

    try:
        words: Any = AutoTokenizer.from_pretrained(task.tokenizer, local_files_only=True)
        read = words([*task.pairs.source]).input_ids
    except Exception as error:  # whatever its code raises
        raise UsageError(
            f"the tokenizer in {task.tokenizer} does not load ({explain(error)}): save it again"
        ) from None
    same = words.get_vocab() == coder.tokenizer.get_vocab(with_added_tokens=True)
    if not same or read != coder.ids(task.pairs.source, special=True):
        raise UsageError(
            f"AutoTokenizer reads texts otherwise than {task.tokenizer}/tokenizer.json: load it, "
            "and save it again with save_pretrained"
        )
