"""Nobody else's code: another module named as one of our packages is named, and never run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTRY = "from abc_calib.launch import main; main()"


@pytest.fixture
def folder(tmp_path):
    """A working directory with a module that tells when it is run."""
    made = tmp_path / "somewhere"
    made.mkdir()
    return made


def started(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    asked = {"PYTHONPATH": f"{path}{ROOT}", "ABC_RUNS": str(folder / "runs")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [("tasks", "module", ""), ("cli", "package", "."), ("cli", "module", "")],
)
def test_a_module_in_the_way_is_named_and_not_run(folder, name, kind, path):
    file = folder / (f"{name}.py" if kind == "module" else f"{name}/__init__.py")
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('it ran')")
    safe = ["-P"] if path else []
    done = started(folder, *safe, "-c", ENTRY, "tasks", path=path and f"{path}{os.pathsep}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {file} hides the package {name} of abc-calib: rename")
    assert done.stderr.count("\n") == 1
