"""Small models with random weights, random lines and rules, and all their short sources."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from random_rules import random_rule
from word_rules import WORD_RULES

from abc_calib.config import DecoderOptions, TrainOptions, TransformerOptions
from abc_calib.data import make_data
from abc_calib.geometry import ALONE, Line, LineBias
from abc_calib.nn.build import build_model
from tasks import TaskError, get_task
from tasks.ragged import from_integers

TASKS: list[tuple[Any, int | None]] = [
    *[("successor", 2), ("successor", 3), ("parity", 2), ("addition", 2), ("addition", 3)],
    *[("multiplication", 2), ("multiplication", 3), ("subtraction", 2), ("addition", 3)],
    *[("long_multiplication", 2), ("long_multiplication", 2), ("long_multiplication", 3)],
    *[("sum", 2), ("sum", 2), ("sum", 3)],
    *[(kind, None) for kind in WORD_RULES],
    *[("division", None), ("power", 2), ("sort", 3), ("compare", 3), ("missing_duplicate", None)],
    *[("subtraction", 3), ("sum", 2), ("sum", 3), ("gcd", 2), ("square_root", 2)],
    *[(random_rule, None)] * 24,
]
ALIGNED = {"subtraction": 0.6}
"""How often operands of a task are aligned, where it is not 0.2."""


class Lines:
    """Draws lines for a model of a task."""

    def __init__(self, rng: random.Random, rule: Any, parts: int, stride: int):
        self.rng, self.rule, self.parts, self.stride = rng, rule, parts, stride

    def own(self) -> Line:
        """In self-attention."""
        rng, rows = self.rng, self.rule.in_rows
        direction: Any = rng.choice(["diag", "diag", "diag", "vert", "vert", "anti"])
        segment = rng.choice([0, 0, 1]) if rows else 0
        if rows and not self.rule.listed and rng.random() < 0.1:
            segment = 2
        if segment and direction != "vert" and rng.random() < 0.9:  # along the rule's columns
            direction = "diag"
        offset = rng.choice([0, 0, 1, -1] if direction == "vert" else [0, -1, -1, -2, 1, 2])
        return Line(direction, segment, offset, rng.choice([0.0, 0.0, -0.5]))

    def crossed(self) -> Line:
        """In cross-attention."""
        rng, rule = self.rng, self.rule
        direction: Any = rng.choice(["anti", "anti", "anti", "vert", "diag"])
        if rule.forward:
            direction = rng.choice(["diag", "diag", "vert", "anti"])
        if rule.listed:
            direction = rng.choice(["anti", "anti", "vert"])
            step = rng.choice([1, 1, 1, 0])
            offset = rng.choice([0, -1, 1])
            if not step:
                direction, offset = "vert", rng.choice([0, 0, 0, 0, 1, -1, 2])
            return Line(direction, 1, offset, rng.choice([0.0, -0.5]), part_step=step)
        segment = rng.randint(0 if direction == "vert" else 1, self.parts)
        beta = 0
        step = 0
        if rule.first.words:
            if rule.in_rows and direction == "anti":
                step = rng.choice([0, 1, 1])
            if rule.of_row is not None and segment == 1:
                direction, beta = "vert", rng.choice([1, 1, 0])
        elif rule.in_rows and segment == 2:
            direction, beta = "vert", rng.choice([1, 1, 0])
        elif rule.in_rows and segment == 1 and rng.random() < 0.15:
            beta = rng.choice([1, -1])
        offset = rng.choice([0, 1, 2, -1] if direction == "vert" else [0, 0, 0, -1, 1, -2])
        stride = 1 if direction == "vert" else self.stride + (rng.random() < 0.05)
        if rule.in_rows and rng.random() < 0.05:
            beta, step = rng.choice([(2, 0), (-1, 0), (0, -1), (1, 1)])
        return Line(direction, segment, offset, rng.choice([0.0, -0.5]), stride, beta, step)

    def of_source(self, stream: bool) -> Line:
        """In the encoder."""
        rng = self.rng
        if self.rule.listed:
            return rng.choice([ALONE, Line("vert", rng.choice([0] if stream else [0, 1]), 0)])
        if rng.random() < 0.3:
            return Line("vert", rng.randint(0, 0 if stream else self.parts), 0)
        return Line("diag", 0, rng.choice([0, 0, -1] if stream else [0, 0, -1, 1]))

    def heads(self, draw: Any, most: int) -> Any:
        return tuple(tuple(draw() for _ in range(self.rng.randint(1, most))) for _ in range(2))


def drawn(seed: int) -> tuple[Any, Any]:
    """A model, and its data."""
    rng = random.Random(seed)
    name, base = rng.choice(TASKS)
    task: Any = get_task(name, base=base) if isinstance(name, str) else None
    if task is None:
        task = name(rng) if name is random_rule else name()
    rule = task.rule()
    several = not (rule.in_rows or rule.first.words) and len(rule.first.tapes) > 1
    aligned = several and rng.random() < ALIGNED.get(task.name, 0.2)
    how = TrainOptions(
        format="aligned" if aligned else "free", seed=seed, length=3, sampling=task.sampling
    )
    data: Any = make_data(task, how)
    stream, layers = rng.random() < 0.3, rng.choice([1, 1, 2])
    shape: dict[str, Any] = {"width": 8, "heads": 2, "feedforward": 12, "decoder_layers": layers}
    cyclic = not (stream or rule.in_rows) and rng.random() < 0.2
    period = rng.choice([2, 3, 3, 5])
    shape |= {"scheme": "sinusoidal", "cyclic": period} if cyclic else {"scheme": "none"}
    encoder = 0 if stream else rng.choice([0, 0, 0, 1, 1, 2])
    options: Any = DecoderOptions(**shape) if stream else None
    options = options or TransformerOptions(encoder_layers=encoder, **shape)
    with torch.random.fork_rng():
        model: Any = build_model("decoder" if stream else "transformer", options, data, seed)
    if seed % 2:
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(2.0 if weight.dim() > 1 else 1.0)
    layout, most = data.layout_at((1, 2) if rule.listed else 1), rng.choice([1, 2, 2])
    lines = Lines(rng, rule, len(layout.parts), layout.stride * rule.stride)
    sites: Any = {
        "self": tuple(lines.heads(lines.own, most) for _ in range(layers)),
        "cross": tuple(lines.heads(lines.crossed, most) for _ in range(layers)),
    }
    of_source = layers - 1 if stream else encoder
    if of_source or stream:
        each = [lines.heads(lambda: lines.of_source(stream), most) for _ in range(of_source)]
        sites["encoder"] = tuple(((ALONE,),) * 2 if rng.random() < 0.4 else h for h in each)
    model.set_lines(LineBias(sites, stream=stream))
    return model.eval(), data


def sources(data: Any, most: int = 400) -> Iterator[Any]:
    """Problems of each small size, all of them if they are not too many, and some longer ones."""
    task, rng = data.task, np.random.default_rng(0)
    rule = task.rule()
    base = rule.base
    if rule.first.words:
        for length in (1, 2, 3, 4, 5, 7, 9):
            with suppress(TaskError):  # where a source has more words
                yield task.sample(rng, most // 2, length, exact=length > 5)
        return
    if rule.in_rows:
        for rows in range(1, 5):
            number = [np.arange(base ** (w - 1) if w > 1 else 0, base**w) for w in range(1, 5)]
            for digits in range(4):
                widths = [digits, rows - 1] if not rule.listed else None
                if widths is not None:
                    pair = np.meshgrid(*(number[w] for w in widths))
                    operands = [x.ravel()[:most] for x in pair]
                else:
                    every = np.concatenate(number[: digits + 1])
                    count = len(every) ** rows
                    index = rng.choice(count, min(count, most), replace=False)
                    operands = [every[index // len(every) ** k % len(every)] for k in range(rows)]
                yield task.problems(*(from_integers(x, base) for x in operands))
        return
    places = len(rule.first.tapes)
    for width in itertools.takewhile(lambda w: base ** (w * places) < 4 * most, itertools.count(1)):
        yield task.sample(
            rng, min(4 * base ** (w_ := width * places), most) + w_, width, exact=True
        )
    for width in (6, 9, 14):
        yield task.sample(rng, most // 4, width, "mixed", exact=True)
