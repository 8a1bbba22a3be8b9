"""The pages in ``docs`` agree with the code, and the tutorial runs."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import abc_calib
from abc_calib.calibration.fits.nnls import Nnls
from abc_calib.config import Options
from abc_calib.nn.positions import SCHEMES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "abc_calib"
ARCHITECTURE = (DOCS / "architecture.md").read_text()


# Architecture


def floors() -> list[str]:
    """The floors of the picture, from the top down."""
    (picture,) = re.findall(r"## The floors.*?```text\n(.*?)```", ARCHITECTURE, re.DOTALL)
    lines = [line for line in picture.splitlines() if not line.startswith("--")]
    return [re.split(r"\s{2,}", line)[0] for line in lines]


def test_the_floors_are_those_of_the_import_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["name"] == "Imports go down the floors")
    assert floors() == [layer.replace("abc_calib.", "") for layer in layers]
    for floor in floors():
        for room in floor.split(" | "):
            here = ROOT / room if room in ("cli", "tasks") else PACKAGE / room
            assert here.is_dir() or here.with_suffix(".py").is_file(), room


def sections() -> dict[str, str]:
    """The section of each folder in the code map."""
    code_map = ARCHITECTURE.split("## Code map")[1].split("\n## ")[0]
    found = re.findall(r"^### `(.*?)/`\n(.*?)(?=^### |\Z)", code_map, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_the_code_map_names_every_folder_and_no_other():
    there = {str(p.parent.relative_to(ROOT)) for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE}
    assert set(sections()) == there
    named = set(re.findall(r"`(abc_calib/[\w/]+\.py)`", ARCHITECTURE))
    assert all((ROOT / name).is_file() for name in named)
    assert {str(p.relative_to(ROOT)) for p in PACKAGE.glob("*.py")} <= named


@pytest.mark.parametrize("folder", sections())
def test_each_room_has_its_files_and_its_invariant(folder):
    """Every file of the room is named unless all are one kind, listed in the room's registry."""
    text = sections()[folder]
    assert "never" in text
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    there = {p.name for p in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert {name for name in named if "/" not in name} <= there
    if folder not in ("abc_calib/nn/positions", "abc_calib/reproduction"):
        assert there <= named, there - named


def test_geometry_and_config_are_light():
    """What their sections say: no torch, but where tokens of a batch stand."""
    for room in ("geometry", "config"):
        for file in (PACKAGE / room).glob("*.py"):
            torch = re.search(r"^\s*(import|from) torch", file.read_text(), re.MULTILINE)
            assert not torch or file.name == "coords.py", file


# Glossary


# fmt: off




# Reference


def test_the_api_page_is_what_the_code_says():
    made = runpy.run_path(str(DOCS / "make_api.py"))["page"]()
    assert (DOCS / "api.md").read_text() == made, "stale: python docs/make_api.py"
    assert all(f"### {name}\n" in made for name in abc_calib.__all__ if name != "__version__")
    every = {kind.__name__ for kind in Options.__subclasses__()} - {"RunConfig", "Listed"}
    assert {n for n in every if f"### {n}\n" in made} >= {"TrainOptions", "CalibrationOptions"}


def test_the_table_of_schemes_is_complete():
    text = (DOCS / "schemes.md").read_text()
    rows = dict(re.findall(r"^\| (\w+) \| [^|]* \|([^|]*)\|$", text, re.MULTILINE))
    rows.pop("scheme", None)
    assert list(rows) == list(SCHEMES)
    for name, kind in SCHEMES.items():
        options = {n: str(f.default).lower() for n, f in kind.options_type.model_fields.items()}
        assert rows[name].strip() == ", ".join(f"{n}={value}" for n, value in options.items())


# Tutorial


NOTEBOOK = json.loads((DOCS / "tutorial.ipynb").read_text())
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]






def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    """Cell by cell, as printed, but for one threshold less to try."""
    monkeypatch.setattr(Nnls, "thresholds", (0.3, 0.2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    scope: dict = {}
    for number, cell in enumerate(CELLS):
        exec(compile(cell, f"<cell {number}>", "exec", dont_inherit=True), scope)
    assert scope["vanilla"].result["validation_accuracy"] >= 99
    assert scope["before"]["accuracy"].tolist()[-1] < 100
    assert scope["after"]["accuracy"].tolist() == [100] * 5
    assert scope["found"].answer == "10000000000" and scope["found"].correct
    assert scope["certificate"].outcome == "certified"
    assert scope["refuted"].outcome == "refuted" and scope["refuted"].counterexamples
    assert "certified " in capsys.readouterr().out
    assert list((tmp_path / "figures").glob("*.png"))


# The site


def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path):
    """mkdocs refuses links that lead nowhere; a page loads its own files alone."""
    runpy.run_path(str(DOCS / "make_site.py"))["make"](tmp_path)
    pages = [tmp_path / "index.html", *(tmp_path / "docs").glob("*.html")]
    assert {page.stem for page in pages} >= {page.stem for page in DOCS.glob("*.md")}
    for page in pages:
        loaded = re.findall(r"<(?:script|img)[^>]*src=\"(.*?)\"", page.read_text())
        loaded += re.findall(r"<link[^>]*stylesheet[^>]*href=\"(.*?)\"", page.read_text())
        assert loaded and not [one for one in loaded if one.startswith(("http", "//"))]
        assert all((page.parent / one.split("?")[0]).is_file() for one in loaded if one)
