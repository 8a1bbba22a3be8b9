"""README is executed: every command it shows exists, and the quick ones and the Python run.

The commands, options and links of the pages in ``docs`` and of CONTRIBUTING are checked too.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.main import get_command

from abc_calib.calibration import trial as check
from abc_calib.config import PRESETS
from abc_calib.nn.base import Decoded
from abc_calib.nn.transformer.model import Transformer
from cli.main import app
from tasks import TASKS, Addition

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def shell_lines(page: str = README) -> list[list[str]]:
    """The words of every line of the shell blocks, comments left out."""
    text = "\n".join(blocks("sh", page)).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


ABC_LINES = [words[1:] for words in shell_lines() if words[0] == "abc"]
QUICK = [words for words in ABC_LINES if words[0] in ("tasks", "runs", "predict", "heatmap")]
JUDGED = [words for words in ABC_LINES if words[0] in ("certify", "verify", "stress")]
SHOWN = sorted(
    {tuple(w[1:]) for page in PAGES for w in shell_lines(page.read_text()) if w[0] == "abc"}
)
EVALS = [words for words in ABC_LINES if words[0] == "eval"]


def parsed(words: list[str]) -> dict:
    """The parameters that the command's own parser makes of the words."""
    name, *rest = words
    assert name in COMMANDS, f"there is no command abc {name}"
    return COMMANDS[name].make_context(name, rest, resilient_parsing=False).params


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_every_command_line_parses(words):
    if not words[0].startswith("-"):
        parsed(list(words))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_example_in_the_help_parses(name):
    text = " ".join((COMMANDS[name].help or "").split())
    examples = re.findall(r"\*\*abc (.+?)\*\*", text)
    assert examples
    for example in examples:
        words = shlex.split(example)
        assert words[0] == name
        parsed(words)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_options_named_in_the_text_exist(page):
    known = {option for command in COMMANDS.values() for p in command.params for option in p.opts}
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    named = set(re.findall(r"--[a-z][a-z-]*", prose))
    assert named <= known | {"--help", "--version", "--install-completion"}


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        target, _, anchor = link.partition("#")
        found = page.parent / target if target else page
        if "://" not in link and (not found.exists() or (anchor and anchor not in anchors(found))):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("words", [*QUICK, *EVALS, *JUDGED], ids=" ".join)
def test_commands_run(tiny, abc, words):
    """With fewer samples, appended: the last one counts."""
    few = {"eval": ("--samples", 2, "--json"), "stress": ("--samples", 3, "--search", 20)}
    said = abc(*words, *few.get(words[0], ()))
    assert said.code == 0 and said.out
    if words[0] == "predict":
        assert said.out.splitlines()[0] == str(int(words[1]) + 1)
    elif words[0] == "eval":
        assert {row["accuracy"] for row in said.json()["rows"]} == {100.0}
    elif words in JUDGED:
        assert "certified" in said.out or "nothing failed" in said.out


class OneDigit(Addition):
    """Sums of two digits."""

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = 1


def test_the_python_block_runs(tmp_path, monkeypatch, capsys, untrained):
    """As printed, on a model so small that it learns little; its answer is put in its mouth."""
    (code,) = blocks("python")
    model, first, second = PRESETS["small"]
    small = {"decoder_layers": 1, "heads": 4, "width": 16, "feedforward": 16}
    preset = (
        model.model_copy(update=small),
        first.model_copy(update={"steps": 60, "learning_rate": 0.01}),
        second.model_copy(update={"steps": 2}),
    )
    monkeypatch.setitem(PRESETS, "small", preset)
    monkeypatch.setitem(TASKS, "addition", OneDigit)
    monkeypatch.setattr(check, "STEPS", 1)
    answer = Decoded(torch.tensor([[7, 4, 13]]))
    monkeypatch.setattr(Transformer, "decode", lambda *_: answer)
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(compile(code, "<README>", "exec"), scope)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["length", "accuracy", "n"]
    assert [line.split()[1] for line in shown[1:-1]] == ["6", "50", "1000"]
    assert shown[-1] == "47"
    assert list((tmp_path / "figures").glob("*.pdf"))
    assert scope["model"].network.lines == scope["calibrated"].bias()
    assert scope["bias"].shape == (1, 4, 4)
