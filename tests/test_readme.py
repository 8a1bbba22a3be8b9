"""README and the quickstart are executed: each command exists; the quick ones and the Python run.

The commands, options and links of the pages in ``docs`` and of CONTRIBUTING are checked too.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import torch
from conftest import quicker
from typer.main import get_command

import abc_calib
from abc_calib.calibration import trial as check
from abc_calib.calibration.fits.nnls import Nnls
from abc_calib.config import Options
from abc_calib.evaluation import Evaluator
from abc_calib.nn.base import Decoded
from abc_calib.nn.positions import SCHEMES
from cli.main import app
from tasks import TASKS, Addition

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text() + (ROOT / "docs" / "quickstart.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def shell_lines(page: str = README) -> list[list[str]]:
    """The words of every line of the shell blocks, comments left out."""
    text = "\n".join(blocks("sh", page)).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


ABC_LINES = [words[1:] for words in shell_lines() if words[0] == "abc"]
RUN = ("tasks", "runs", "predict", "heatmap", "eval", "certify", "verify", "stress")
SHOWN = sorted(
    {tuple(w[1:]) for page in PAGES for w in shell_lines(page.read_text()) if w[0] == "abc"}
)


def parsed(words: list[str]) -> dict:
    """The parameters that the command's own parser makes of the words."""
    name, *rest = words
    assert name in COMMANDS, f"there is no command abc {name}"
    return COMMANDS[name].make_context(name, rest, resilient_parsing=False).params


def test_every_command_line_parses():
    for words in SHOWN:
        if not words[0].startswith("-"):
            parsed(list(words))


def test_every_example_in_the_help_parses():
    for name, command in COMMANDS.items():
        text = " ".join((command.help or "").split())
        examples = re.findall(r"\*\*abc (.+?)\*\*", text)
        assert examples, name
        for example in examples:
            words = shlex.split(example)
            assert words[0] == name
            parsed(words)


def test_help_lists_every_command_in_a_line_of_a_group(abc, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    shown = abc("--help").out
    for name, command in COMMANDS.items():
        first = (command.help or "").split("\n")[0]
        assert re.search(rf"│ {name} +{re.escape(first)} +│", shown), name
    groups = re.findall("─ ([A-Z].+?) ─", shown)
    assert groups[1:3] == ["First steps", "Step by step"] and "Commands" not in groups


def test_options_named_in_the_text_exist():
    every = [p for command in COMMANDS.values() for p in command.params]
    known = {option for p in every for option in (*p.opts, *p.secondary_opts)}
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        named = set(re.findall(r"--[a-z][a-z-]*", prose))
        assert named <= known | {"--help", "--version", "--install-completion"}, page


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}


def test_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            target, _, anchor = link.partition("#")
            found = page.parent / target if target else page
            if "://" not in link:
                assert found.exists(), (page, link)
                assert not anchor or anchor in anchors(found), (page, link)


def test_commands_run(tiny, abc):
    """With fewer samples and heads, appended: the last one counts."""
    few: dict[str, tuple] = {
        **{"eval": ("--samples", 2, "--json"), "stress": ("--samples", 3, "--search", 20)},
        **{"heatmap": ("--layer", 1, "--head", 0)},
    }
    done = []
    for words in ABC_LINES:
        if words[0] not in RUN or words in done:
            continue
        done.append(words)
        said = abc(*words, *few.get(words[0], ()))
        assert said.code == 0 and said.out, words
        if words[0] == "predict":
            total = sum(map(int, words[1].split("+")))
            assert said.out.splitlines()[0] == str(total if "+" in words[1] else total + 1)
        elif words[0] == "eval":
            assert {row["accuracy"] for row in said.json()["rows"]} == {100.0}
        elif words[0] in ("certify", "verify", "stress"):
            assert "certified" in said.out or "nothing failed" in said.out
    assert {words[0] for words in done} == {*RUN}


class OneDigit(Addition):
    """Sums of two digits."""

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = 1


def test_the_python_block_runs(tmp_path, monkeypatch, capsys, untrained):
    """As printed, on a model so small that it learns little; its answer is put in its mouth."""
    (code,) = blocks("python")
    small = {"encoder_layers": 0, "decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 16}
    quicker(monkeypatch, small, {"steps": 60, "learning_rate": 0.01}, {"steps": 2})
    monkeypatch.setitem(TASKS, "addition", OneDigit)
    monkeypatch.setattr(check, "STEPS", 1)
    answer = Decoded(torch.tensor([[7, 4, 13]]))
    monkeypatch.setattr(Evaluator, "decode", lambda *_, **__: answer)
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    few = code.replace("samples=1000", "samples=20")
    exec(compile(few, "<README>", "exec"), scope)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["length", "accuracy", "n"] and shown[-1] == "47"
    assert [line.split()[1] for line in shown[1:-1]] == ["6", "50", "1000"]
    assert list((tmp_path / "figures").glob("*.pdf"))
    assert scope["model"].network.lines == scope["calibrated"].bias()
    assert scope["bias"].shape == (1, 4, 4)


DOCS = ROOT / "docs"


def test_the_layers_are_those_of_the_import_contract():
    text = (DOCS / "architecture.md").read_text()
    (picture,) = re.findall(r"## Layers of packages.*?```text\n(.*?)```", text, re.DOTALL)
    lines = [line for line in picture.splitlines() if not line.startswith("--")]
    pictured = [re.split(r"\s{2,}", line)[0] for line in lines]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (
        c["layers"] for c in contracts["contracts"] if c["name"] == "Imports go down the layers"
    )
    assert pictured == [layer.replace("abc_calib.", "") for layer in layers]


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_geometry_and_config_are_light():
    """What their sections say: no torch, but where tokens of a batch stand."""
    for name in ("geometry", "config"):
        for file in (ROOT / "abc_calib" / name).glob("*.py"):
            torch = re.search(r"^\s*(import|from) torch", file.read_text(), re.MULTILINE)
            assert not torch or file.name == "coords.py", file


def test_the_code_map_says_of_every_folder_what_it_never_does():
    text = (DOCS / "architecture.md").read_text()
    found = dict(re.findall(r"^- `(abc_calib/[\w/]+)` (.*)$", text, re.MULTILINE))
    package = ROOT / "abc_calib"
    folders = {str(p.parent.relative_to(ROOT)) for p in package.rglob("*.py")} - {"abc_calib"}
    assert sorted(found) == sorted(folders)
    assert all(re.match(r"never \w+", rule) for rule in found.values())
    named = re.findall(r"`(tasks/[\w/]+\.py)`", text)
    assert all((ROOT / name).is_file() for name in named)


def test_the_api_page_is_what_the_code_says():
    code = runpy.run_path(str(DOCS / "make_api.py"))
    made = code["page"]()
    assert (DOCS / "api.md").read_text() == made, "stale: python docs/make_api.py"
    assert all(f"### {name}\n" in made for name in abc_calib.__all__ if name != "__version__")
    every = {kind.__name__ for kind in Options.__subclasses__()} - {"RunConfig", "Listed"}
    assert {n for n in every if f"### {n}\n" in made} >= {"TrainOptions", "CalibrationOptions"}


def test_the_table_of_schemes_is_complete():
    text = (DOCS / "models.md").read_text().partition("## Decoder")[0]
    rows = dict(re.findall(r"^\| (\w+) \| [^|]* \|([^|]*)\|$", text, re.MULTILINE))
    rows.pop("scheme", None)
    assert list(rows) == list(SCHEMES)
    for name, kind in SCHEMES.items():
        options = {n: str(f.default).lower() for n, f in kind.options_type.model_fields.items()}
        assert rows[name].strip() == ", ".join(f"{n}={value}" for n, value in options.items())


def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    """Cell by cell, as printed, but for the one threshold that is taken."""
    cells = json.loads((DOCS / "tutorial.ipynb").read_text())["cells"]
    monkeypatch.setattr(Nnls, "thresholds", (0.2,))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    scope: dict = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), f"<cell {number}>", "exec", dont_inherit=True)
            exec(code, scope)
    assert scope["vanilla"].result["validation_accuracy"] >= 99
    assert scope["before"]["accuracy"].tolist()[-1] < 100
    assert scope["after"]["accuracy"].tolist() == [100] * 5
    assert scope["found"].answer == "10000000000" and scope["found"].correct
    assert scope["certificate"].outcome == "certified"
    assert scope["refuted"].outcome == "refuted" and scope["refuted"].counterexamples
    assert "certified " in capsys.readouterr().out
    assert scope["figure"].axes
    shown = [out.get("data", {}) for cell in cells for out in cell.get("outputs", ())]
    assert sum("image/png" in data for data in shown) == 4, "run the notebook again, with outputs"


def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path):
    """mkdocs refuses links that lead nowhere; a page loads its own files alone."""
    site = runpy.run_path(str(DOCS / "make_site.py"))
    named = {page for part in ("START", "GUIDES", "REFERENCE") for page in site[part].values()}
    assert named == {page.stem for page in DOCS.glob("*.md")}, "the menu names every page"
    site["make"](tmp_path)
    pages = [tmp_path / "index.html", *(tmp_path / "docs").glob("*.html")]
    assert {page.stem for page in pages} >= {page.stem for page in DOCS.glob("*.md")}
    for page in pages:
        loaded = re.findall(r"<(?:script|img)[^>]*src=\"(.*?)\"", page.read_text())
        loaded += re.findall(r"<link[^>]*stylesheet[^>]*href=\"(.*?)\"", page.read_text())
        assert loaded and not [one for one in loaded if one.startswith(("http", "//"))]
        assert all((page.parent / one.split("?")[0]).is_file() for one in loaded if one)
