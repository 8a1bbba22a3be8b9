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


@dataclass(frozen=True)
class Neutrality:
    """What a bias of zeros changes at most: the ``logits``, and the ``attention`` captured."""

    logits: float
    attention: float


def try_out(model: Foreign, source: Tensor, target: Tensor) -> Neutrality:
    """Put a bias of zeros into a model, generate, and train a step of it on lines.

    ``UsageError`` says what it cannot do. In float64: in float32 the rounding of a trained model
    alone may change logits by 1e-4.
    """
    with in_a_line(model):
        tried = in_float64(model)
        change = check_neutral(tried, source, target)
        check_cache(tried, source[:2], target.shape[1])
        del tried  # memory
        lined = Foreign(model.options.model_copy(update={"scheme": "none"}), model.tokens)
        lined.network.load_state_dict(model.network.state_dict())
        lined = lined.to(model.device).double().eval()
        lined.set_lines(trial_lines(lined))
        lined.train().loss(source, target).backward()
        check_cache(lined.eval(), source[:2], target.shape[1])
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
    differences = [
        float((before - after)[written[:, None, :, None].expand_as(before)].abs().max())
        for site in ("self", "cross")
        for before, after in zip(captured[site], weights[site], strict=True)
    ]
    change = Neutrality(float((plain - logits)[written].abs().max()), max(differences, default=0.0))
    if not (change.logits <= LOGITS and change.attention <= WEIGHTS):
        raise UsageError(
            f"{name} does not attend as its eager attention says: a bias of zeros changes its "
            f"logits by {change.logits:.1g} and its attention by {change.attention:.1g}"
        )
    return change


def trial_lines(model: Foreign) -> LineBias:
    """A line in every head: along an operand, or what was written before."""
    heads, layers = model.sites.heads, model.attention_layers
    none, alone = list[Line](), [Line("diag", 0, 0)]
    crossed, causal = [Line("anti", 1, 0)], [Line("diag", 0, -1)]
    sites = {"encoder": [alone] * heads, "self": [causal] * heads, "cross": [crossed] * heads}
    if model.stream:  # each head at one of its two sites
        sites["cross"] = [none if head % 2 else crossed for head in range(heads)]
        sites["self"] = [causal if head % 2 else none for head in range(heads)]
    return LineBias(
        {site: (tuple(map(tuple, sites[site])),) * n for site, n in layers.items() if n}
    )


@torch.no_grad()
def check_cache(model: Foreign, source: Tensor, steps: int) -> None:
    """``UsageError`` unless a model writes the same with its cache as without."""
    written = model.decode(source, steps).ids
    again = model(source, written.masked_fill(written == model.pad, model.eos)).argmax(-1)
    if not bool(((written == again) | (written == model.pad)).all()):
        name = type(model.network).__name__
        raise UsageError(f"{name} generates with its cache what it does not write without")


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
