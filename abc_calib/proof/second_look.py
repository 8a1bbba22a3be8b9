"""A second look at a certificate: made again, in whole sources, and by a program of its own.

Every field is computed anew by the same code and compared. Long random and hard sources are run
through the plain model with dense attention, which has no table of windows. Last, ``check.py`` is
run on an export, in a process of its own: it shares no code with this program, lists all windows
and computes all margins again. The certificate says that no margin anywhere is smaller than the one
it names, so one smaller margin would refute it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.failures import smallest_margins
from abc_calib.files import write_atomically
from abc_calib.nn.base import in_float64
from abc_calib.proof import check
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import FILE, FILES, Certificate, difference
from abc_calib.proof.decide import Decision, decide
from abc_calib.proof.sources import Sources
from abc_calib.runs import Run

VERDICT = re.compile(r"certified: right in each of (\d+) windows, smallest margin (\S+): ")
"""What ``check.py`` says of a certificate that holds."""
MOST = 5_000_000
"""Windows of a certificate that ``check.py`` is run on: it holds all of them, some 4 GB of 2.6
million."""
TOKENS = 2**14
"""Tokens of one batch: dense attention takes their square."""
KINDS = ("random", "hard")


def verify(
    run: Run | Path | str | None = None,
    *,
    sources: int = 20,
    seed: int = 1,
    minutes: float = 15.0,
    on_windows: Callable[[int, int], None] = lambda done, total: None,
) -> Certificate:
    """Make the run's certificate again, look at it by another path, and write what was found.

    ``sources``: random and as many hard sources of each length in ``Sources.long``. ``on_windows``
    is called with (windows done, all windows), before sources are looked at. Raises ``UsageError``
    where nothing is certified, and ``AbcError`` where the certificate does not hold.
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
    return seen_again(opened, decision, sources, seed, made_again=True)


def seen_again(
    run: Run, decision: Decision, sources: int = 20, seed: int = 1, made_again: bool = False
) -> Certificate:
    """Verify a certificate that has just been made: all of ``verify`` but making it again.

    ``made_again``: was that done before?
    """
    certificate, data, proof = decision.certificate, run.data, decision.proof
    assert certificate.margin is not None and proof is not None
    exact: Any = in_float64(proof.model)
    exact.set_path("dense")
    long = Sources(data.task, proof.rule).long
    least = min(
        float(smallest_margins(exact, data.test(n, sources, kind, seed), TOKENS).min())
        for n in long
        for kind in KINDS
    )
    if not least > certificate.margin * (1 - 1e-3) - 1e-6:
        raise AbcError(
            f"the certificate of {run} does not hold: it says that no margin is below "
            f"{certificate.margin:g}, and dense attention shows {least:g}"
        )
    certificate.verified = {
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


def export(run: Run | Path | str | None, folder: Path | str) -> Path:
    """Write weights, lines, rule, configurations, certificate and ``check.py`` into a new folder.

    ``python FOLDER/check.py`` needs numpy alone. Raises ``UsageError`` if the folder is there
    already, and ``AbcError`` if the run has no certificate, or one without windows.
    """
    folder, opened = Path(folder), Run.open(run)
    opened.check()
    only_ours(opened, "abc export certificate")
    certificate = Certificate.load(opened)
    lines, rule = opened.fresh_model().lines, opened.task.rule()
    if not certificate.windows or lines is None or rule is None:
        raise AbcError(f"the certificate of {opened} lists no windows: there is nothing to check")
    if folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder")

    def write(target: Path) -> None:
        target.mkdir()
        for name, path in FILES.items():
            suffix = "model.safetensors" if name == "weights" else f"{name}.json"
            shutil.copyfile(opened.path / path, target / suffix)
        shutil.copyfile(opened.path / FILE, target / FILE)
        shutil.copyfile(check.__file__, target / "check.py")
        for name, content in (("lines", lines.to_dict()), ("rule", rule.as_dict())):
            (target / f"{name}.json").write_text(json.dumps(content) + "\n")

    write_atomically(folder, write, replace=False)
    return folder
