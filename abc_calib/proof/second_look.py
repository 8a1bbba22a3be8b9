"""A second look at a certificate: made again, in whole sources, and by a program of its own.

Every field is computed anew by the same code and compared. Whole sources are run through the plain
model with dense attention, which has no table of windows: windows in random sources, then long
random and hard sources. A node with more windows than are held shows those of a part, drawn at
random. Last, ``check.py`` is run on an export, in a process of its own: it shares no code with this
program, lists all windows and computes all margins again. The certificate says that no margin
anywhere is smaller than the one it names, so one smaller margin would refute it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from abc_calib.data import Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.failures import margins, smallest_margins
from abc_calib.nn.base import in_float64
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import Certificate, difference
from abc_calib.proof.decide import WIDEST, Decision, decide
from abc_calib.proof.export import export
from abc_calib.proof.witness import Witnesses
from abc_calib.runs import Run
from tasks import Problems

VERDICT = re.compile(r"certified: right in each of (\d+) windows, smallest margin (\S+): ")
"""What ``check.py`` says of a certificate that holds."""
MOST = 5_000_000
"""Windows of a certificate that ``check.py`` is run on: it holds all of them, some 4 GB of 2.6
million."""
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
        stated, now = (str(c.as_dict()[name])[:100] for c in (certificate, again))
        raise AbcError(
            f"the certificate of {opened} does not hold: it says {name} = {stated}, and made again "
            f"it is {now}"
        )
    decision = replace(decision, certificate=certificate)
    return seen_again(opened, decision, samples, sources, seed, made_again=True)


def seen_again(
    run: Run,
    decision: Decision,
    samples: int = 1000,
    sources: int = 20,
    seed: int = 1,
    made_again: bool = False,
) -> Certificate:
    """``verify`` where the certificate has just been made: all of it but making it again.

    ``made_again``: was that done before?
    """
    certificate, data, proof = decision.certificate, run.data, decision.proof
    assert certificate.margin is not None and proof is not None
    exact: Any = in_float64(proof.model)
    exact.set_path("dense")
    long = Witnesses(data.task, proof.listing).long
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
        "made_again": made_again,
        "check_py": by_checker(run, certificate) if certificate.windows <= MOST else None,
    }
    certificate.save(run)
    certificate.note_verified()
    return certificate


def by_checker(run: Run, certificate: Certificate) -> dict[str, Any]:
    """What ``check.py`` finds on an export: how many windows, and the smallest margin.

    ``AbcError`` where it does not certify, or lists another number of windows.
    """
    with TemporaryDirectory() as folder:
        exported = export(run, Path(folder) / "export")
        command = [sys.executable, str(exported / "check.py")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (ended.stdout or ended.stderr).strip().splitlines() or ["nothing"]
    match = VERDICT.match(lines[-1])
    if ended.returncode or not match:
        raise AbcError(f"the certificate of {run} is not confirmed by check.py: {lines[-1]}")
    windows = int(match[1])
    if windows != certificate.windows:
        raise AbcError(
            f"the certificate of {run} has {certificate.windows} windows, and check.py lists "
            f"{windows}"
        )
    return {"windows": windows, "smallest_margin": float(match[2])}


def _drawn(decision: Decision, samples: int, seed: int) -> list[tuple[int, Problems]]:
    """Windows drawn at random, as far as sources with them are found: the token, and the source."""
    rng = np.random.default_rng([seed, 6])
    proof = decision.proof
    assert proof is not None
    witnesses = Witnesses(proof.data.task, proof.listing)
    sizes = np.array([checked.windows for checked in decision.checked])
    pairs: list[tuple[int, Problems]] = []
    for checked, count in zip(
        decision.checked, rng.multinomial(samples, sizes / sizes.sum()), strict=True
    ):
        if not count:
            continue
        codes = proof.any_part(checked.node, rng)
        for code in rng.permutation(codes)[:count]:
            pairs += witnesses.sources(checked.node, int(code), 1, WIDEST, rng)
    return pairs


def _margin_in_rows(model: Any, data: Data, drawn: Sequence[tuple[int, Problems]]) -> float:
    """The smallest margin of rows, each of a source of its own."""
    rows, (first, *others) = zip(*drawn, strict=True)
    batch = data.lay_out(first.joined(*others))
    steps = (batch.target != model.pad).sum(1).tolist()
    for row, length in zip(rows, steps, strict=True):
        if row >= length:
            raise AbcError(f"a window of row {row} is in no answer: the certificate is not sound")
    values = margins(model, batch)[range(len(rows)), rows]
    return float(values.min())
