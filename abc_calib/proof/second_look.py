"""A second look at a certificate: all of it again, and by a path that shares nothing with it.

Every field is computed anew and compared. Then whole sources through the plain model with dense
attention: windows drawn at random and put into random sources, then long random and hard sources.
The certificate says that no margin anywhere is smaller than the one it names, so one smaller
margin would refute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.data import Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.failures import margins, smallest_margins
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import Certificate, difference
from abc_calib.proof.decide import WIDEST, Decision, decide
from abc_calib.proof.witness import Witnesses
from abc_calib.runs import Run
from tasks import Problems

TOGETHER = 64
"""Sources of one batch that are drawn around windows."""
TOKENS = 2**14
"""Tokens of one batch: dense attention takes their square."""
KINDS = ("random", "hard")


def verify(
    run: Run | Path | str | None = None,
    *,
    samples: int = 1000,
    sources: int = 20,
    seed: int = 1,
    minutes: float = 15.0,
    on_windows: Callable[[int, int], None] = lambda done, total: None,
) -> Certificate:
    """Make the run's certificate again, look at it by another path, and write what was found.

    ``samples`` windows inside random sources, and ``sources`` random and as many hard sources of
    each length in ``Witnesses.long``. ``on_windows`` is called with (windows done, all windows),
    before sources are looked at. Raises ``UsageError`` where nothing is certified, and
    ``AbcError`` where the certificate does not hold.
    """
    opened = Run.open(run)
    opened.check()
    only_ours(opened, "abc verify")
    certificate = Certificate.load(opened)
    if certificate.outcome != "certified":
        raise UsageError(f"{opened} is not certified but {certificate.outcome}: nothing to verify")
    decision = decide(opened, opened.load_model(), minutes, on_windows)
    again = decision.certificate
    if again.outcome == "unknown":
        raise AbcError(f"the certificate of {opened} cannot be made again: {again.reason}")
    if name := difference(certificate, again):
        said, now = (str(c.as_dict()[name])[:100] for c in (certificate, again))
        raise AbcError(
            f"the certificate of {opened} does not hold: it says {name} = {said}, and made again "
            f"it is {now}"
        )
    return seen_again(opened, replace(decision, certificate=certificate), samples, sources, seed)


def seen_again(
    run: Run, decision: Decision, samples: int = 1000, sources: int = 20, seed: int = 1
) -> Certificate:
    """``verify`` where the certificate has just been made: all of it but making it again."""
    certificate, data, proof = decision.certificate, run.data, decision.proof
    assert certificate.margin is not None and proof is not None
    exact: Any = proof.model.exact()
    exact.set_path("dense")
    long = Witnesses(data.task, proof.field).long
    drawn = _drawn(decision, samples, seed)
    parts = (drawn[first : first + TOGETHER] for first in range(0, len(drawn), TOGETHER))
    least = min(
        *(_margin_in_rows(exact, data, part) for part in parts),
        *(
            float(smallest_margins(exact, data.test(n, sources, kind, seed), TOKENS).min())
            for n in long
            for kind in KINDS
        ),
    )
    if not least > certificate.margin * (1 - 1e-3) - 1e-6:
        raise AbcError(
            f"the certificate of {run} does not hold: it says that no margin is below "
            f"{certificate.margin:g}, and dense attention shows {least:g}"
        )
    certificate.verified = {
        "windows_in_random_sources": len(drawn),
        "long_sources": 2 * sources * len(long),
        "longest": max(long),
        "seed": seed,
        "wrong": 0,
        "smallest_margin": round(least, 4),
    }
    certificate.save(run)
    return certificate


def _drawn(decision: Decision, samples: int, seed: int) -> list[tuple[int, Problems]]:
    """Windows drawn at random, as far as sources with them are found: the token, and the source."""
    rng = np.random.default_rng([seed, 6])
    proof = decision.proof
    assert proof is not None
    witnesses = Witnesses(proof.data.task, proof.field)
    sizes = np.array([checked.windows for checked in decision.checked])
    found: list[tuple[int, Problems]] = []
    for checked, count in zip(
        decision.checked, rng.multinomial(samples, sizes / sizes.sum()), strict=True
    ):
        if not count:
            continue
        codes = next(part for part in proof.parts(checked.node) if len(part))
        for code in rng.permutation(codes)[:count]:
            found += witnesses.sources(checked.node, int(code), 1, WIDEST, rng)
    return found


def _margin_in_rows(model: Any, data: Data, drawn: Sequence[tuple[int, Problems]]) -> float:
    """The smallest margin of rows, each of a source of its own."""
    rows, (first, *others) = zip(*drawn, strict=True)
    batch = data.lay_out(first.joined(*others))
    steps = (batch.target != model.pad).sum(1).tolist()
    for row, there in zip(rows, steps, strict=True):
        if row >= there:
            raise AbcError(f"a window of row {row} is in no answer: the certificate is not sound")
    found = margins(model, batch)[range(len(rows)), rows]
    return float(found.min())
