"""Random models: no source has a smaller margin than the proof, and check.py agrees with it."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from math import isclose
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from random_models import drawn, sources
from test_verify import double, judged, program_margin

from abc_calib.evaluation.failures import logit_margins
from abc_calib.proof import check as check_py
from abc_calib.proof.allowed import check_laid_out
from abc_calib.proof.forms import Undecided
from abc_calib.proof.prove import setup_of


@dataclass
class Seen:
    """Of a random model what both programs list (None: not followed), and what sources show.

    ``windows`` and ``margin`` of the program and of check.py; ``distinct``: rows of logits that
    differ with the right token, of which each is a window of its own; ``least``: their margin.
    """

    seed: int
    task: str
    model: str
    program: tuple[int, float] | None
    checker: tuple[int, float] | None
    refusal: str
    distinct: int
    least: float

    @property
    def below(self) -> list[str]:
        """Which programs miss a window that occurs in a source."""
        found = {"program": self.program, "check.py": self.checker}
        return [
            name
            for name, one in found.items()
            if one and (self.least < one[1] - 1e-6 or self.distinct > one[0])
        ]

    @property
    def agree(self) -> bool:
        """Do both list the same windows, or does one of them refuse?"""
        if self.program is None or self.checker is None:
            return True
        same = self.program[0] == self.checker[0]
        return same and isclose(self.program[1], self.checker[1], rel_tol=1e-6)


def in_sources(model: Any, data: Any) -> tuple[int, float]:
    """How many rows of logits with their right token differ in short sources; the least margin."""
    every, least = set[bytes](), float("inf")
    with torch.inference_mode():
        for some in sources(data):
            if not len(some):
                continue
            batch = data.lay_out(some)
            inside = batch.target != model.pad
            logits, right = model(batch.source, batch.target)[inside], batch.target[inside]
            least = min(least, float(logit_margins(logits, right).min()))
            rows = torch.cat([(logits * 1e5).round(), right[:, None].double()], 1)
            every |= {row.tobytes() for row in rows.unique(dim=0).numpy()}
    return len(every), least


def seen(seed: int, sizes: int, alone: bool = True) -> Seen:
    """Judge a random model by both programs and by its sources.

    ``alone``: by check.py, for a minute, also where the program does not follow it.
    """
    model, data = drawn(seed)
    kind = "decoder-only" if model.stream else "encoder-decoder"
    if getattr(model.options, "encoder_layers", 0):
        kind += ", encoder layers"
    found = judged(seed, sizes)
    ends = (data.spelling() or {}).get("closes", 1)
    if found:
        try:
            check_laid_out(data, found[2].listing.setup)
        except Undecided:
            assert ends == 2
            found = None
    proof: Any = found[2] if found else None
    program = found and (sum(c.windows for c in found[3]), min(c.margin for c in found[3]))
    if proof is None and alone:
        rule = data.task.rule()
        shape = SimpleNamespace(layout=data.layout_at((1, 2) if rule.listed else 9))
        proof = SimpleNamespace(rule=rule, listing=SimpleNamespace(setup=shape))
    checker, refusal = None, ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_py, "MOST", 3 * sizes)
        try:
            check_py.require(proof is not None or alone, "not run")
            check_py.require(ends == 1, f"its sources end with {ends} tokens")  # as Export.same
            signal.signal(signal.SIGALRM, lambda *_: sys.exit("it takes more than a minute"))
            signal.alarm(60 if found is None else 0)
            checker = program_margin(model, data, proof)
        except SystemExit as error:
            refusal = str(error)
        finally:
            signal.alarm(0)
    shown = in_sources(double(model), data)
    return Seen(seed, data.task.name, kind, program, checker, refusal, *shown)


@pytest.mark.parametrize(
    "first, number, sizes",
    [(0, 140, 40), pytest.param(10_000, 2000, 120, marks=pytest.mark.slow)],
)
def test_no_source_has_a_smaller_margin_than_either_program_lists(first, number, sizes):
    """And both list the same windows, where neither of them refuses."""
    every = [seen(seed, sizes, alone=number > 200) for seed in range(first, first + number)]
    assert not [one for one in every if one.below or not one.agree]
    attained = [one for one in every if one.program and abs(one.least - one.program[1]) < 1e-6]
    both = sum(one.program is not None and one.checker is not None for one in every)
    assert len(attained) > 0.12 * number and both > 0.2 * number


def test_sources_with_a_second_end_are_refused():
    seeds = [seed for seed in range(400) if getattr(drawn(seed)[1].task, "closes_source", False)]
    assert seeds
    for seed in seeds[:3]:
        model, data = drawn(seed)
        with pytest.raises(Undecided, match="number of tokens of the source"):
            check_laid_out(data, setup_of(model, data))
