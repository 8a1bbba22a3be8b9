"""How far float64 can be from the exact result, whatever the order in which it sums.

Every value is carried beside a bound on the 2-norm of its error. A sum of ``n`` products is within
``gamma(n) |W| |x|`` of the exact one in any order, with or without fused multiply-add (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1), and errors made before
pass through a map ``W`` with its 2-norm at most. So the bounds hold for every kernel, batch size
and processor that computes in IEEE double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

UNIT = 2.0**-52
"""Twice the unit roundoff of float64: what is decoded has an error, and what is compared too."""
EXPONENTIAL = 512 * UNIT
"""How far softmax's exponentials and its division may be from exact, relatively."""
HUGE = 1e100
"""Beyond this, nothing is said."""
FAR = 1e8
"""A key off the lines has the weight 0 as long as scores are smaller than this."""


def gamma(terms: int) -> float:
    """The relative error of a sum of so many products (Higham, lemma 3.1)."""
    return terms * UNIT / (1 - terms * UNIT)


def size(x: Tensor) -> Tensor:
    """The 2-norm of each row, ``(n, 1)``."""
    return x.norm(dim=1, keepdim=True)


def largest(matrix: Tensor) -> float:
    """The 2-norm of a matrix."""
    return float(torch.linalg.matrix_norm(matrix, 2))


def unless(wrong: Tensor, error: Tensor) -> Tensor:
    """``error``, infinite where something is wrong."""
    return error.masked_fill(wrong, math.inf)


class Rounded(NamedTuple):
    """``value (n, d)`` and ``error (n, groups)``: of each group of columns, in 2-norm."""

    value: Tensor
    error: Tensor

    @property
    def total(self) -> Tensor:
        """The error of all columns together, ``(n, 1)``."""
        return size(self.error) if self.error.shape[1] > 1 else self.error

    def take(self, index: Tensor) -> Rounded:
        return Rounded(self.value.index_select(0, index), self.error.index_select(0, index))

    def group(self, number: int) -> Rounded:
        """One group of columns."""
        values = self.value.chunk(self.error.shape[1], 1)
        return Rounded(values[number], self.error[:, number : number + 1])

    def __add__(self, other: Rounded) -> Rounded:  # type: ignore[override]
        value = self.value + other.value
        error = self.error + other.error
        return Rounded(value, error + UNIT * (size(value) + error))


def exactly(value: Tensor) -> Rounded:
    """Numbers without an error."""
    return Rounded(value, value.new_zeros(len(value), 1))


def beside(parts: Sequence[Rounded], dim: int) -> Rounded:
    """Rows below each other (0), or columns beside each other (1)."""
    return Rounded(*(torch.cat(each, dim) for each in zip(*parts, strict=True)))


class Normed(NamedTuple):
    """What layer normalisation gives: ``value (n, d)``, and its errors ``(n, 1)``.

    ``passed``: of its input, divided by the deviation; it is still to be multiplied by the gain.
    ``own``: of the normalisation itself.
    """

    value: Tensor
    passed: Tensor
    own: Tensor


class Norm:
    """Layer normalisation; right for two-pass, Welford's and the naive formula of variance."""

    def __init__(self, module: Any):
        self.module, self.highest = module, float(module.weight.abs().max())

    def __call__(self, x: Rounded) -> Normed:
        width, one = x.value.shape[1], self.module
        value, _, inverse = torch.native_layer_norm(
            x.value, one.normalized_shape, one.weight, one.bias, one.eps
        )
        least = 1 / inverse - x.total / math.sqrt(width)
        norm = size(x.value) + x.total
        variance = gamma(4 * width + 16) * norm.square() / width
        relative = variance / (2 * (least.square() - variance))
        # x - mean, its mean wrong by a sum of `width` terms; then scaled, and shifted
        centred = gamma(width + 16) * norm / least + relative * math.sqrt(width)
        own = 1.01 * (self.highest * centred + gamma(4) * one.bias.norm())
        wrong = ~((least > 0) & (relative >= 0) & (relative < 0.01) & (norm < HUGE))
        return Normed(value, unless(wrong, x.total / least), unless(wrong, own))

    def through(self, weight: Tensor) -> Tensor:
        """Gain and ``weight`` on what is left when the mean is taken out."""
        scaled = weight * self.module.weight
        return scaled - scaled.mean(-1, keepdim=True)

    def within(self, x: Normed) -> Tensor:
        """The size that ``x`` may have, ``(n, 1)``."""
        return size(x.value) + x.passed * self.highest + x.own


class Linear:
    """A linear map; of what ``norm`` has normalised, if given. Its output is in ``groups``."""

    def __init__(self, module: Any, norm: Norm | None = None, groups: int = 1):
        self.module, self.norm, self.gamma = module, norm, gamma(module.in_features + 2)
        rows, bias = module.weight.chunk(groups), module.bias.chunk(groups)
        new = module.weight.new_tensor
        self.plain = new([largest(part) for part in rows])
        self.absolute = new([largest(part.abs()) for part in rows])
        self.bias = new([float(part.norm()) for part in bias])
        if norm is not None:
            self.passing = new([largest(norm.through(part)) for part in rows])

    def __call__(self, x: Rounded) -> Rounded:
        if self.norm is None:
            value, within, error = x.value, size(x.value) + x.total, x.total * self.plain
        else:
            normed = self.norm(x)
            value, within = normed.value, self.norm.within(normed)
            error = normed.passed * self.passing + normed.own * self.plain
        norm = self.absolute * within + self.bias
        return Rounded(self.module(value), unless(~(norm < HUGE), error + self.gamma * norm))


def relu(x: Rounded) -> Rounded:
    """No error is added or grows; in place."""
    return Rounded(x.value.relu_(), x.error)


def mixed(
    query: Rounded,
    keys: Sequence[Rounded],
    values: Sequence[Rounded],
    bias: Sequence[Sequence[float]],
) -> Rounded:
    """Attention over a few keys, ``(n, heads * e)`` each, with a bias on each head's scores."""
    heads = query.error.shape[1]
    e = query.value.shape[1] // heads
    q = query.value.unflatten(1, (heads, e))
    of_query = q.norm(dim=2) + query.error
    scores, errors = [], []
    for key, added in zip(keys, map(q.new_tensor, bias), strict=True):
        k = key.value.unflatten(1, (heads, e))
        of_key = k.norm(dim=2)
        score = (q * k).sum(2) / math.sqrt(e) + added
        error = of_query * key.error + of_key * query.error
        error = error + gamma(e + 4) * of_query * (of_key + key.error)
        scores.append(score)
        errors.append(error / math.sqrt(e) + gamma(4) * (score.abs() + added.abs()))
    score = torch.stack(scores)
    extent = score.abs().amax(0)
    off = torch.stack(errors).amax(0) + 2 * UNIT * extent
    weights = score.softmax(0)  # (keys, n, heads)
    relative = torch.expm1(2 * off) + EXPONENTIAL
    each = [v.value.unflatten(1, (heads, e)) for v in values]
    value = torch.stack([w[:, :, None] * v for w, v in zip(weights, each, strict=True)]).sum(0)
    error = torch.zeros_like(off)
    for weight, v, known in zip(weights, each, values, strict=True):
        error = error + weight * (relative * (v - value).norm(dim=2) + (1 + relative) * known.error)
    error = error + (EXPONENTIAL + gamma(len(keys) + 4)) * (value.norm(dim=2) + error)
    return Rounded(value.flatten(1), unless(~(extent < FAR), error))


class Head:
    """The last norm and the logits: margins of one token over all others, with their bounds."""

    def __init__(self, norm: Norm, module: Any):
        self.norm, self.module = norm, module
        self.gamma = gamma(module.in_features + 2)
        between = module.weight[:, None] - module.weight[None]
        self.between = between.norm(dim=2)
        self.passing = norm.through(between).norm(dim=2)

    def margins(self, x: Rounded, right: Tensor) -> tuple[Tensor, Tensor]:
        """``(n,)`` each: the margin of the tokens ``right (n,)``, and what of it is certain.

        The second is the least over the other tokens of their distance less its bound.
        """
        normed = self.norm(x)
        logits = self.module(normed.value)
        rows = self.module.weight.norm(dim=1)
        local = self.gamma * (self.norm.within(normed) * rows + self.module.bias.abs())  # (n, v)
        error = normed.passed * self.passing[right] + normed.own * self.between[right]
        error = error + local + local.gather(1, right[:, None])
        distance = logits.gather(1, right[:, None]) - logits
        itself = torch.nn.functional.one_hot(right, logits.shape[1]).bool()
        margin = distance.masked_fill(itself, math.inf).amin(1)
        certain = (distance - error).masked_fill(itself, math.inf).amin(1)
        nothing = margin.new_tensor(-math.inf)
        return margin.where(~margin.isnan(), nothing), certain.where(~certain.isnan(), nothing)
