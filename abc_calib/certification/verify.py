"""A second look at a certificate, by a path that shares nothing with the first.

Whole sources through the plain model with dense attention: windows drawn at random and put into
random sources, then long random and hard sources. The certificate says that no margin anywhere is
smaller than the one it names, so one smaller margin would refute it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.certification.certificate import Certificate
from abc_calib.certification.decide import MOST_WINDOWS
from abc_calib.certification.prove import SAFETY, Proof, Undecided, prepare
from abc_calib.certification.sources import Realiser
from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.failures import margins, smallest_margins
from abc_calib.runs import Run
from tasks import Problems

LONG = (20, 50, 100, 200, 400)
"""Digits of the long sources."""
TOKENS = 2**14
"""Tokens of one batch: dense attention takes their square."""


def verify(
    run: Run | Path | str | None = None, *, samples: int = 1000, sources: int = 50, seed: int = 1
) -> Certificate:
    """Check the run's certificate again and write what was found into it.

    ``samples`` windows inside random sources, and ``sources`` random and as many hard sources of
    each length in ``LONG``. Raises ``UsageError`` where nothing is certified, and ``AbcError``
    where the certificate does not hold.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    certificate = Certificate.load(opened)
    if certificate.outcome != "certified" or certificate.margin is None:
        raise UsageError(f"{opened} is not certified but {certificate.outcome}: nothing to verify")
    model: Any = opened.load_model()
    data = opened.data
    model.set_path("dense")
    least = min(
        _margin_in_windows(model, data, samples, seed),
        *(_margin_of(model, data.test(n, sources, "random", seed)) for n in LONG),
        *(_margin_of(model, data.test(n, sources, "hard", seed)) for n in LONG),
    )
    assert certificate.rounding is not None
    if least < certificate.margin - SAFETY * certificate.rounding - 1e-4:
        raise AbcError(
            f"the certificate of {opened} does not hold: it says that no margin is below "
            f"{certificate.margin:g}, and dense attention shows {least:g}"
        )
    certificate.verified = {
        "windows_in_random_sources": samples,
        "long_sources": 2 * sources * len(LONG),
        "longest": max(LONG),
        "seed": seed,
        "wrong": 0,
        "smallest_margin": round(least, 4),
    }
    certificate.save(opened)
    return certificate


def _margin_of(model: Any, batch: Batch) -> float:
    """The smallest margin of a batch, all rows."""
    return float(smallest_margins(model, batch, TOKENS).min())


def _margin_in_windows(model: Any, data: Data, samples: int, seed: int) -> float:
    """The smallest margin in windows drawn at random, each in a source of its own."""
    rng = np.random.default_rng([seed, 6])
    try:
        proof: Proof = prepare(model, data, MOST_WINDOWS)
    except Undecided as error:
        raise AbcError(f"its windows cannot be listed any more: {error}") from None
    realiser = Realiser(data.task, proof.rule, proof.field.reach, proof.field.period)
    reach = proof.field.reach
    widest = 2 * (reach.rows + reach.columns) + proof.field.period
    least = float("inf")
    for number in rng.integers(0, proof.size, samples):
        place = int(number)
        for windows in proof.windows:
            if place < len(windows):
                break
            place -= len(windows)
        drawn = realiser.sources(windows.case, windows.atoms, windows.values[place], 1, widest, rng)
        for row, problems in drawn:
            least = min(least, _margin_in_row(model, data, problems, row))
    return least


def _margin_in_row(model: Any, data: Data, problems: Problems, row: int) -> float:
    batch = data.lay_out(problems)
    if row >= batch.target.shape[1]:
        raise AbcError(f"a window of row {row} is in no answer: the certificate is not sound")
    return float(margins(model, batch)[0, row])
