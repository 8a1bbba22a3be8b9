"""The wheel and the archive of the sources, built and installed away from the checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from abc_calib.version import __version__

ROOT = Path(__file__).parents[1]


def test_every_place_names_the_same_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{__version__}}}" in (ROOT / "docs" / "paper.md").read_text()
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == __version__


@pytest.mark.slow
def test_a_wheel_made_of_the_archive_works_without_the_checkout(tmp_path):
    """In an environment of its own; only what it depends on is borrowed from this one."""

    def done(*words: object) -> str:
        """What a command writes; without anything of this process's path."""
        kept = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        command = [str(word) for word in words]
        found = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout

    done(sys.executable, "-m", "build", "--no-isolation", "-o", tmp_path / "dist", ROOT)
    (archive,), (wheel,) = (list((tmp_path / "dist").glob(end)) for end in ("*.tar.gz", "*.whl"))
    with tarfile.open(archive) as made:
        names = {name.split("/", 1)[-1] for name in made.getnames()}
    assert {"CITATION.cff", "CHANGELOG.md", "LICENSE", "README.md"} <= names
    packages = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert packages == {"abc_calib", "tasks", "cli", f"abc_calib-{__version__}.dist-info"}

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    how = ("--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    done(sys.executable, "-m", "pip", *how)
    site = done(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))").strip()
    (Path(site) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    where = done(python, "-c", "import abc_calib, cli, tasks; print(abc_calib.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path)
    assert "successor" in done(tmp_path / "venv" / "bin" / "abc", "tasks")
    quick = ("--steps", "20", "--width", "16", "--heads", "2", "--quiet")
    done(python, "-m", "abc_calib", "train", "successor", *quick)
    assert "successor" in done(python, "-m", "abc_calib", "runs")
    assert done(python, "-m", "abc_calib", "--version").startswith("abc-calib 1.")
