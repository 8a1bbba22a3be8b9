"""How far float64 can be from the exact result, whatever the order in which it sums.

A sum of ``n`` products is within ``gamma(n) |W| |x|`` of the exact one in any order, with or
without fused multiply-add (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
section 3.1), and errors made before pass through a map ``W`` with its 2-norm at most. One bound a
layer, from the largest norms of what went through it, holds for every window, kernel, batch size
and processor that computes in IEEE double precision.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

UNIT = 2.0**-52
"""Twice the unit roundoff of float64: what is decoded has an error, and what is compared too."""
EXPONENTIAL = 512 * UNIT
"""How far softmax's exponentials and its division may be from exact, relatively."""
FAR = 1e8
"""A key off the lines has the weight 0 as long as scores are smaller than this."""


def gamma(terms: int) -> float:
    """The relative error of a sum of ``terms`` products (Higham, lemma 3.1)."""
    return terms * UNIT / (1 - terms * UNIT)


def largest(matrix: Tensor) -> float:
    """The 2-norm of a matrix."""
    return float(torch.linalg.matrix_norm(matrix, 2))


class Rounding:
    """The largest norms of what was computed, and the bound that follows."""

    def __init__(self) -> None:
        #: of (normalisation, "input") and its "inverse" deviation, of the heads' parts of each map
        #: to queries, keys or values, of every "state", and of the "memory" of cross-attention
        self.largest: dict[Any, float] = {}

    def note(self, what: Any, norms: Tensor) -> None:
        """Take note of the norms of some vectors, by what they are."""
        self.largest[what] = max(self.largest.get(what, 0.0), float(norms.amax()))

    def bound(self, blocks: Any, keys: int, bias: float) -> float:
        """What rounding may take of a margin, at most; infinite where nothing can be said.

        ``keys``: the most that a head reads in a row; ``bias``: the largest that is added.
        """
        d = blocks.model.embed.weight.shape[1]
        # an angle of a sinusoid is wrong by its size, and the sum of two vectors once more
        source = written = 32 * blocks.period * UNIT * math.sqrt(d) * (blocks.period > 1)
        extra = keys, bias
        try:
            if blocks.stream:
                for block in blocks.decoder:
                    written = self._block(block, written, written, *extra)
            else:
                for block in blocks.encoder:
                    source = self._block(block, source, source, *extra)
                if blocks.memory is not None:
                    source, _ = self._normed(blocks.memory, source)
                for block in blocks.decoder:
                    written = self._block(block, written, source, *extra)
            return self._head(blocks.model, written)
        except (OverflowError, ZeroDivisionError):
            return math.inf

    def _normed(self, module: Any, error: float) -> tuple[float, float]:
        """The error and the size of what a layer normalisation gives.

        Right for two-pass, Welford's and the naive formula of the variance.
        """
        if (module, "input") not in self.largest:  # nothing went through it
            return 0.0, 0.0
        size, inverse = self.largest[module, "input"], self.largest[module, "inverse"]
        width = module.weight.numel()
        highest, shift = float(module.weight.abs().max()), float(module.bias.norm())
        least, norm = 1 / inverse - error / math.sqrt(width), size + error
        variance = gamma(4 * width + 16) * norm**2 / width
        if not (least > 0 and variance < 0.01 * least**2):
            raise OverflowError
        relative = variance / (2 * (least**2 - variance))
        centred = gamma(width + 16) * norm / least + relative * math.sqrt(width)
        local_error = 1.01 * (highest * centred + gamma(4) * shift)
        return highest * error / least + local_error, highest * math.sqrt(width) + shift

    def _linear(self, module: Any, bounds: tuple[float, float], heads: int = 1) -> Any:
        """The largest error and size of any of ``heads`` groups of what a linear map gives."""
        error, size = bounds
        measured = self.largest.get(module, math.inf)
        groups = []
        for weight, bias in zip(module.weight.chunk(heads), module.bias.chunk(heads), strict=True):
            of_sizes = largest(weight.abs()) * (size + error) + float(bias.norm())
            local_error = gamma(module.in_features + 2) * of_sizes
            groups.append((largest(weight) * error + local_error, of_sizes))
        error = max(error for error, _ in groups)
        return error, min(max(size for _, size in groups), measured + error)

    def _block(self, block: Any, error: float, memory: float, keys: int, bias: float) -> float:
        """The error of a state after a layer; ``memory``: of what cross-attention reads."""
        several = zip(block.attentions, block.norms, strict=False)
        state = self.largest.get("state", 0.0)
        for number, (attention, norm) in enumerate(several):
            normed = self._normed(norm, error)
            read = (memory, self.largest.get("memory", 0.0)) if number else normed
            heads = attention.heads
            options, key, value = (
                self._linear(module, bounds, heads)
                for module, bounds in (
                    (attention.query, normed),
                    (attention.key, read),
                    (attention.value, read),
                )
            )
            mixed = value[0]  # all that a head of one key reads is a value
            if attention.query in self.largest:
                width = attention.query.in_features // heads
                mixed = _mixed(options, key, value, width, keys, bias)
            all_heads = math.sqrt(heads)
            added, _ = self._linear(attention.output, (all_heads * mixed, all_heads * value[1]))
            error = error + added + UNIT * (state + error + added)
        hidden = self._linear(block.feedforward[0], self._normed(block.norms[-1], error))
        added, _ = self._linear(block.feedforward[-1], hidden)
        return error + added + UNIT * (state + error + added)

    def _head(self, model: Any, error: float) -> float:
        """Of the difference of two logits."""
        error, size = self._normed(model.norm, error)
        weight = model.head.weight
        between = float((weight[:, None] - weight[None]).norm(dim=2).max())
        rows = float(weight.norm(dim=1).max()) * size + float(model.head.bias.abs().max())
        return between * error + 2 * gamma(model.head.in_features + 2) * rows


def _mixed(
    options: tuple[float, float],
    key: tuple[float, float],
    value: tuple[float, float],
    width: int,
    keys: int,
    bias: float,
) -> float:
    """The error of what a head reads, from those of its query, keys and values."""
    size = options[1] * key[1] / math.sqrt(width) + bias
    if not size < FAR:
        raise OverflowError
    products = options[1] * key[0] + options[0] * key[1] + gamma(width + 4) * options[1] * key[1]
    off = products / math.sqrt(width) + (gamma(4) + 2 * UNIT) * size
    relative = math.expm1(2 * off) + EXPONENTIAL
    error = 2 * relative * value[1] + (1 + relative) * value[0]
    return error + (EXPONENTIAL + gamma(keys + 4)) * (value[1] + error)
