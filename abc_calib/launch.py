"""The entry of the command ``abc``: our own packages, or a line that says what is in their way.

``cli`` and ``tasks`` are names that others use too. What stands before ours on the path is looked
for without being run.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from abc_calib.text import visible
from abc_calib.version import ROOT


def main() -> None:
    """Run the command, unless a file hides one of our packages."""
    for name in ("cli", "tasks"):
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found != ROOT / name / "__init__.py":
            other = visible(str(found or "another module"))
            sys.exit(
                f"error: {other} hides the package {name} of abc-calib: rename it, or start from "
                "another folder and leave its folder out of PYTHONPATH"
            )
    from cli.main import app

    app()
