"""A certificate with everything that a sceptic needs to check it without this program."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from abc_calib.certification import check
from abc_calib.certification.certificate import FILE, Certificate
from abc_calib.certification.fingerprint import FILES
from abc_calib.certification.whole import only_ours
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import write_atomically
from abc_calib.runs import Run

CHECK_ROWS, CHECK_SUMS = (
    Path(check.__file__).with_name(f"check_{name}.py") for name in ("rows", "sums")
)
"""Beside ``check.py``, for answers in several rows."""


def export(run: Run | Path | str | None, folder: Path) -> Path:
    """Write weights, lines, rule, configurations, certificate and ``check.py`` into a new folder.

    ``python FOLDER/check.py`` needs numpy alone; where answers have several rows, it is
    ``check_rows.py`` or, of sums, ``check_sums.py``. Raises ``UsageError`` if the folder is there
    already, and ``AbcError`` if the run has no certificate, or one without windows.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    opened.check()
    only_ours(opened, "abc export certificate")
    certificate = Certificate.load(opened)
    lines, rules = opened.fresh_model().lines, opened.task.row_rule()
    rule = rules or opened.task.column_rule()
    if not certificate.windows or lines is None or rule is None:
        raise AbcError(f"the certificate of {opened} lists no windows: there is nothing to check")
    if folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder")

    def write(made: Path) -> None:
        made.mkdir()
        for name, path in FILES.items():
            suffix = "model.safetensors" if name == "weights" else f"{name}.json"
            shutil.copyfile(opened.path / path, made / suffix)
        shutil.copyfile(opened.path / FILE, made / FILE)
        more = [CHECK_ROWS, *([CHECK_SUMS] if rules.ends else [])] if rules else []
        for program in (Path(check.__file__), *more):
            shutil.copyfile(program, made / program.name)
        for name, content in (("lines", lines.to_dict()), ("rule", rule.as_dict())):
            (made / f"{name}.json").write_text(json.dumps(content) + "\n")

    write_atomically(folder, write, replace=False)
    return folder
