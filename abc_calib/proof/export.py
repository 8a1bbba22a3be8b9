"""A certificate with everything that a sceptic needs to check it without this program."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from abc_calib.errors import AbcError, UsageError
from abc_calib.files import write_atomically
from abc_calib.proof import check
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import FILE, Certificate
from abc_calib.proof.fingerprint import FILES
from abc_calib.runs import Run


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
