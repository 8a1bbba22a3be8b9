"""A second look at a certificate: made again, and found again by a program of its own.

Every field is computed anew by the same code and compared. Then ``check.py`` is run on an export,
in a process of its own: it shares no code with this program, lists all windows and computes all
margins again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from abc_calib.errors import AbcError, UsageError
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import Certificate, difference
from abc_calib.proof.decide import decide
from abc_calib.proof.export import export
from abc_calib.runs import Run

VERDICT = re.compile(r"certified: right in each of (\d+) windows, smallest margin (\S+): ")
"""What ``check.py`` says of a certificate that holds."""
MOST = 5_000_000
"""Windows of a certificate that ``check.py`` is run on: it holds all of them, some 4 GB of 2.6
million."""


def verify(
    run: Run | Path | str | None = None,
    *,
    minutes: float = 15.0,
    on_windows: Callable[[int, int], None] = lambda done, total: None,
) -> Certificate:
    """Make the run's certificate again, let ``check.py`` find it, and write what was found.

    ``on_windows`` is called with (windows done, all windows), before ``check.py`` is run. Raises
    ``UsageError`` where nothing is certified, and ``AbcError`` where the certificate does not hold.
    """
    opened = Run.open(run)
    opened.check()
    only_ours(opened, "abc verify")
    certificate = Certificate.load(opened)
    if certificate.outcome != "certified":
        raise UsageError(f"{opened} is not certified but {certificate.outcome}: nothing to verify")
    again = decide(opened, opened.load_model(), minutes, on_windows).certificate
    if again.outcome == "unknown":
        raise AbcError(f"the certificate of {opened} cannot be made again: {again.reason}")
    if name := difference(certificate, again):
        stated, now = (str(c.as_dict()[name])[:100] for c in (certificate, again))
        raise AbcError(
            f"the certificate of {opened} does not hold: it says {name} = {stated}, and made again "
            f"it is {now}"
        )
    return confirm(opened, certificate, made_again=True)


def confirm(run: Run, certificate: Certificate, made_again: bool = False) -> Certificate:
    """Run ``check.py`` on a certificate that has just been made, and write what it finds.

    ``made_again``: was it compared with another one of the same model before?
    """
    checker = by_checker(run, certificate) if certificate.windows <= MOST else None
    certificate.verified = {"made_again": made_again, "check_py": checker}
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
