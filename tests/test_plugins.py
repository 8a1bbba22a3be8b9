"""Tasks and schemes of a user's own: from files, packages and classes, and what is refused."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import quicker
from hypothesis import given
from hypothesis import strategies as st

import abc_calib
from abc_calib import plugins, stages
from abc_calib.calibration import trial
from abc_calib.config import Origin
from abc_calib.errors import AbcError, UsageError
from abc_calib.nn.positions import SCHEMES, Scheme
from abc_calib.plugins import files
from abc_calib.runs import Run
from abc_calib.sweeps import Job, Test, run_jobs
from abc_calib.sweeps.jobs import JobPayload
from tasks import TASKS, Successor, WordTask

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "own-task.md").read_text()
GUIDE, IN_PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TINY = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 16, "steps": 2, "batch": 4}
FLAGS = [w for k, v in TINY.items() for w in (f"--{k.replace('_', '-')}", v)]
TASK = """
from tasks import WordTask
class Again(WordTask):
    "The same again."
    name = "again"
    symbols = tuple("abc")
    def solve(self, source):
        return " ".join(self.words(source))
"""


def test_a_file_that_is_the_first_to_import_schemes_is_read():
    """In a process of its own: here they were imported long ago."""
    code = "import sys, abc_calib.plugins as p; print(*p.load_plugin(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, DOCS / "my_task.py"], capture_output=True, text=True
    )
    assert done.stdout == "minus twice nearby\n", done.stderr


def forget() -> None:
    """As in a process that has loaded nothing."""
    for one in files.loaded():
        files._forget(one)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of the test's own to work in; registries as they were once it is over."""
    monkeypatch.chdir(tmp_path)
    registries: list[dict[str, Any]] = [TASKS, SCHEMES]
    before = [dict(registry) for registry in registries]
    yield
    forget()
    for registry, known in zip(registries, before, strict=True):
        registry.clear()
        registry.update(known)


def written(text: str | bytes, name: str = "my_task.py") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# The guide


def test_the_guide_shows_the_file_that_lies_beside_it():
    assert (DOCS / "my_task.py").read_text() == GUIDE


def test_the_guide_does_what_it_says(abc, monkeypatch, untrained):
    """Its file, its commands and its Python, with models that train in a blink."""
    shape = {k: v for k, v in TINY.items() if k not in ("steps", "batch")}
    learned = {"steps": 300, "batch": 32, "learning_rate": 0.01, "warmup": 0}
    quicker(monkeypatch, shape, learned, {"steps": 2, "batch": 4})
    monkeypatch.setattr(trial, "STEPS", 1)
    written(GUIDE)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    train, *rest, twice = [shlex.split(line)[1:] for line in block.splitlines()]
    assert abc(*train, "--steps", 2).code == 0
    assert Run.open().task.solve("502-7") == "495" and Run.open().task.solve("3-5") == "8"
    assert abc(*train, "--base", 2, "--digits", 2).code == 0
    for line in rest:
        assert line[-2:] == ["--plugin", "my_task.py"]
        forget()
        assert abc(*line[:-2]).error(2).startswith("this run's task minus comes from my_task.py: ")
        assert abc(*line, *(["--samples", 3] if line[0] == "eval" else [])).code == 0, line
    assert abc(*twice, "--steps", 2).code == 0
    assert Run.open().task.solve("c a b") == "c c a a b b"
    forget()
    scope: dict[str, Any] = {}
    asked = 'print(abc.predict(run, "502-7").answer)'
    exec(IN_PYTHON.replace(asked, "").replace('"nearby")', '"nearby", steps=2)'), scope)
    assert scope["run"].config.task == "minus" and scope["run"].config.model.scheme == "nearby"
    shown = re.findall(r"```text\nerror: (.*?)\n```", PAGE)
    forget()
    assert shown == [abc("predict", "1-1").error(2).replace("scheme nearby", "task minus")]


# Runs and their files


def test_a_run_says_where_its_classes_are_from_and_asks_for_the_file(abc, runs_root):
    file = written(GUIDE, "mine/my task.py")
    assert abc("train", "twice", "--scheme", "nearby", "--plugin", file, *FLAGS).code == 0
    folder = runs_root / "twice-vanilla-seed0-1"
    recorded = json.loads((folder / "config.json").read_text())["plugins"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert recorded == {
        label: {"file": "my task.py", "sha256": digest, "package": ""}
        for label in ("task twice", "scheme nearby")
    }
    forget()
    ask = "this run's task twice comes from my task.py: pass --plugin 'my task.py'"
    commands: list[list[object]] = [
        ["predict", "a b"], ["eval", "--lengths", 5], ["calibrate"], ["heatmap"], ["stress"],
        ["certify"], ["train", "--resume", folder], ["retrain"], ["eval", "--force"],
    ]  # fmt: skip
    for command in commands:
        assert abc(*command).error(2) == ask
    assert "twice" not in TASKS, "nobody named the file"
    for line in abc("runs", "--json").json():
        assert (line["task"], line["state"]) == ("twice", "trained")
    said = abc("retrain", folder, "--plugin", file).error(2)
    assert said.endswith(f"is not calibrated: abc calibrate {folder} --plugin '{file}'")
    rows = abc("eval", "--lengths", 5, "--samples", 3, "--json", "--plugin", file).json()["rows"]
    assert rows[0]["n"] == 3


def test_a_file_that_was_changed_is_refused(abc, runs_root):
    file = written(TASK)
    assert abc("train", "again", "--plugin", file, *FLAGS).code == 0
    written(TASK + "# changed\n", "other/my_task.py")
    forget()
    said = abc("eval", "--plugin", "other/my_task.py", "--lengths", 5).error(2)
    assert re.fullmatch(
        r"this run's task again comes from my_task.py with the SHA-256 [0-9a-f]{12}…, and it is "
        r"from my_task.py \([0-9a-f]{12}…\) here: pass the file as it was, or train again",
        said,
    )
    looked = abc("eval", "--force", "--lengths", 5, "--samples", 2, "--plugin", "other/my_task.py")
    assert looked.code == 0 and "opened in spite of this: this run's task again" in looked.err


def test_a_saved_model_asks_too(runs_root):
    from abc_calib.nn import hub

    stages.load_plugin(written(GUIDE))
    run = stages.train("successor", scheme="nearby", **TINY)
    assert hub.load(run.path / "model").config.plugins["scheme nearby"]["file"] == "my_task.py"
    forget()
    with pytest.raises(
        UsageError, match=r"this model's scheme nearby comes from my_task\.py: pass"
    ):
        hub.load(run.path / "model")
    stages.load_plugin(written(GUIDE + "\n", "later/my_task.py"))
    with pytest.raises(UsageError, match="pass the file as it was"):
        hub.load(run.path / "model")
    described = json.loads((run.path / "model" / "config.json").read_text())
    for wrong in ({"scheme nearby": 1}, {"scheme nearby": {"code": "x"}}, {"x": {}}):
        described["plugins"] = wrong
        (run.path / "model" / "config.json").write_text(json.dumps(described))
        with pytest.raises(AbcError):
            hub.load(run.path / "model")


# Classes in Python


class Mine(WordTask):
    """Backwards."""

    name = "mine"
    symbols = tuple("abc")

    def solve(self, source: str) -> str:
        return " ".join(reversed(self.words(source)))


class Still(Scheme):
    name = "still"


def test_classes_are_taken_as_they_are():
    run = abc_calib.train(Mine, scheme=Still, decoder_scheme="alibi", **TINY)
    assert (run.config.task, run.config.model.schemes) == ("mine", ("still", "alibi"))
    assert {o.file for o in run.config.plugins.values()} == {"test_plugins.py"}
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert {o.sha256 for o in run.config.plugins.values()} == {digest}
    assert Run.open(run.path).task.solve("a b") == "b a"
    del TASKS["mine"]
    with pytest.raises(UsageError, match=r"task mine comes from test_plugins\.py: pass --plugin"):
        Run.open(run.path)
    assert abc_calib.train(Successor, **TINY).config.plugins == {}


def test_a_class_that_was_typed_can_be_typed_again(monkeypatch):
    """As in a notebook, where a cell is run twice; nothing says what its file was."""
    scope: dict[str, Any] = {"__name__": "typed"}
    exec(TASK, scope)
    run = stages.train(scope["Again"], **TINY)
    assert run.config.plugins["task again"] == Origin()
    exec(TASK, scope)
    stages.train(scope["Again"], **TINY)
    assert TASKS["again"] is scope["Again"]
    assert Run.open(run.path).result is not None
    del TASKS["again"]
    with pytest.raises(UsageError, match="was a class in Python: write it into a file"):
        Run.open(run.path)


@pytest.mark.parametrize("wrong", [None, 3, Mine(), Still, int, ["mine"]])
def test_what_is_no_task_is_refused(wrong):
    with pytest.raises(UsageError, match="is not a task: give its name, or a subclass of Task"):
        stages.train(wrong, **TINY)


# Sweeps


def test_workers_get_the_file(tmp_path):
    file = written(TASK)
    stages.load_plugin(file)
    job = Job(task="again", options=TINY, tests=(Test(length=5, n=3),))
    errand = JobPayload.of(job).model_dump_json()
    file.unlink()  # as on another machine
    (outcome,) = run_jobs([job], tmp_path / "jobs", workers=1)
    assert outcome.state == "done", outcome
    assert job.rows(tmp_path / "jobs")[0]["n"] == 3
    forget()
    assert JobPayload.model_validate_json(errand).unpacked().key == job.key
    forget()
    stages.load_plugin(written(TASK + "\n"))
    assert Job(task="again", options=TINY).key != job.key


# Packages


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package, as ``importlib.metadata`` finds it."""
    site = tmp_path / "site"
    about = site / "bring_your_own-1.2.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bring-your-own\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(
        "[abc_calib.tasks]\nagain = bring_your_own:Again\nbroken = bring_your_own:Nothing\n"
        "[abc_calib.schemes]\nstraight = bring_your_own:Straight\n"
    )
    scheme = "\nfrom abc_calib.nn.positions import Scheme\nclass Straight(Scheme):\n    pass\n"
    (site / "bring_your_own.py").write_text(TASK + scheme)
    monkeypatch.syspath_prepend(site)
    yield site
    sys.modules.pop("bring_your_own", None)


def test_an_installed_package_is_imported_when_it_is_asked_for(abc, package):
    stages.train("successor", **TINY)
    assert "bring_your_own" not in sys.modules
    run = stages.train("again", scheme="straight", **TINY)
    assert {o.package for o in run.config.plugins.values()} == {"bring-your-own 1.2"}
    assert "again" in {row["task"] for row in abc("tasks", "--json").json()}
    with pytest.raises(UsageError, match=r"broken of bring-your-own .* does not import"):
        stages.train("broken", **TINY)
    del TASKS["again"], SCHEMES["straight"]
    assert Run.open(run.path).task.solve("a b") == "a b"
    del TASKS["again"]
    shutil.rmtree(package)
    with pytest.raises(UsageError, match=r"comes from the package bring-your-own .*: install it"):
        Run.open(run.path)


# What is refused

ABSTRACT = "from tasks import WordTask\nclass Half(WordTask):\n    name = 'half'\n"
BAD = {
    "a sentence": ("this is no Python", "does not import, line 1 (SyntaxError: invalid syntax"),
    "an exit": ("raise SystemExit(0)", "does not import, line 1 (SystemExit: 0)"),
    "nothing": ("", "has no task and no scheme"),
    "another's": ("from tasks import Addition", "has no task and no scheme"),
    "a taken name": (TASK.replace('"again"', '"copy"'), "there is a task copy already"),
    "no class": ("import tasks\ntasks.TASKS['plus'] = 3", "plus is not a subclass of Task"),
    "an abstract class": (ABSTRACT, "the task half lacks step or solve: write it"),
    "a class without a name": (TASK.replace('name = "again"', "pass"), "has no name of its own"),
    "a name for a path": (
        TASK.replace('"again"', '"../again"'),
        "'../again' is not a name of a task",
    ),
    "a taken scheme": (
        "from abc_calib.nn.positions import Scheme\nclass S(Scheme):\n    name = 'rope'",
        "there is a scheme rope already",
    ),
    "one good, one bad": (TASK + ABSTRACT, "the task half lacks step or solve"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_plugin_is_refused_in_a_line_and_leaves_nothing(abc, kind, runs_root):
    text, reason = BAD[kind]
    before = dict(TASKS), dict(SCHEMES), {*sys.modules}
    said = abc("train", "successor", *FLAGS, "--plugin", written(text)).error(2)
    assert said.startswith("plugin my_task.py") and reason in said, said
    assert (dict(TASKS), dict(SCHEMES)) == before[:2]
    assert not [name for name in {*sys.modules} - before[2] if name.startswith("abc_plugin")]
    assert not runs_root.exists()


def test_what_is_no_file_is_refused(abc):
    written(TASK, "my_task.txt")
    written("#" * 2_000_000, "large.py")
    for name, reason in {
        "missing.py": "No such file or directory",
        "my_task.txt": "ends in .py",
        "large.py": "at most 1000000 are read",
        "": "ends in .py",
    }.items():
        assert reason in abc("tasks", "--plugin", name).error(2)


COUNTING = """
    count = 0
    def calls(self):
        type(self).count += 1
        return self.count % 2
"""
ODD = """
from abc_calib.nn.positions import Scheme
class Odd(Scheme):
    name = "odd"
    def embed(self, x, at):
        return """
FAILING = {
    "return ' '.join(self.words(source)[:1]) if '  ' in source else 1 / 0": "line 8: ZeroDiv",
    "return None": "AttributeError: 'NoneType' object has no attribute 'split'",
    "return str(id(self) + len(source.split())) and source + ' a' * self.calls()": "differ",
}
PARTS = {
    "symbols = ('a', 'a')": "symbol 'a': give words",
    "notation = 'pictures'": "has the notation 'pictures': choose digits or rows",
    "train_length = property(lambda self: 1 / 0)": "the task again cannot be made: my_task.py",
    "__init__ = lambda self, more: None": "the task again cannot be made: TypeError",
}
WRONG = {
    "x + 1 / 0": "my_task.py, line 6: ZeroDivisionError",
    "x[:, :1, :3]": "the first problems fail (RuntimeError",
    "None": "the first problems fail (",
    "x * float('nan')": "the loss of the first problems is nan",
}
SOLVED = 'return " ".join(self.words(source))'
REFUSED = [
    *(
        (TASK.replace(SOLVED, code) + COUNTING, "task again: ", told)
        for code, told in FAILING.items()
    ),
    *((f"{TASK}    {line}\n", "", told) for line, told in PARTS.items()),
    *((ODD + code, "scheme odd: ", told) for code, told in WRONG.items()),
]
"""A file, how the refusal begins, and what it says: of the answers, parts and numbers in it."""


@pytest.mark.parametrize(("text", "begins", "told"), REFUSED)
def test_what_fails_is_refused_before_training(abc, text, begins, told, runs_root):
    words = ("successor", "--scheme", "odd") if "odd" in begins else ("again",)
    said = abc("train", *words, *FLAGS, "--plugin", written(text)).error(2)
    assert said.startswith(begins) and told in said, said
    assert not runs_root.exists()


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_bytes_are_a_traceback(content):
    before = dict(TASKS)
    with pytest.raises(UsageError):
        files.load_content(Path("x.py"), content)
    assert before == TASKS


def test_the_rule_of_the_guide_is_a_register():
    stages.load_plugin(written(GUIDE))
    task: Any = plugins.make_task("minus", base=3)
    for a, b in itertools.product(range(27), repeat=2):
        wide = 3 ** max(len(str_base3(a)), len(str_base3(b)))
        assert int(task.solve(f"{str_base3(a)}-{str_base3(b)}"), 3) == (a - b) % wide


def str_base3(number: int) -> str:
    return "".join(str(number // 3**k % 3) for k in reversed(range(3))).lstrip("0") or "0"
