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

import numpy as np
import pytest
from conftest import attempt_here, change_json, quicker
from hypothesis import given, settings
from hypothesis import strategies as st

import abc_calib
from abc_calib import plugins, stages
from abc_calib.calibration import trial
from abc_calib.errors import AbcError, UsageError
from abc_calib.nn.positions import SCHEMES, Scheme
from abc_calib.plugins import files
from abc_calib.plugins.origins import typed_hash
from abc_calib.reporting.page.commands import commands
from abc_calib.runs import Run
from abc_calib.sweeps import Job, Test, engine, run_jobs
from tasks import TASKS, WordTask, get_task

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "own-task.md").read_text()
GUIDE = (DOCS / "my_task.py").read_text()
SHOWN, IN_PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TINY: dict[str, Any] = {
    **{"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 16, "steps": 2, "batch": 4}
}
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
    for module in [*files.PLUGINS]:
        files.forget(module)


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


def test_the_guide_does_what_it_says(abc, monkeypatch, untrained):
    """Its file, its commands and its Python, with models that train in a blink."""
    assert SHOWN in GUIDE
    shape = {k: v for k, v in TINY.items() if k not in ("steps", "batch")}
    learned = {"steps": 120, "batch": 32, "learning_rate": 0.01, "warmup": 0}
    quicker(monkeypatch, shape, learned, {"steps": 2, "batch": 4})
    monkeypatch.setattr(trial, "STEPS", 1)
    written(GUIDE)
    block = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    check, train, *rest, twice = [
        shlex.split(line, comments=True)[1:]
        for line in block.replace("502-7", "101-1").splitlines()
    ]
    assert abc(*check).code == 0
    forget()
    assert abc(*train, "--base", 2, "--digits", 2).code == 0
    for line in rest:
        forget()
        said = abc(*line, *(["--samples", 3] if line[0] == "eval" else []))
        assert said.code == 0 or (line[0] == "predict" and "wrote no end" in said.err), line
    assert abc(*twice, "--steps", 2).code == 0
    forget()
    scope: dict[str, Any] = {}
    asked = 'print(abc.predict(run, "502-7").answer)'
    exec(IN_PYTHON.replace(asked, "").replace('"nearby")', '"nearby", steps=2)'), scope)
    run = scope["run"]
    assert run.config.model.scheme == "nearby" and run.task.solve("502-7") == "495"
    forget()
    assert "task minus comes from my_task.py" in abc("predict", "1-1").error(2)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the guide's ``twice`` with its ``nearby``, of ``mine/my task.py``."""
    root = tmp_path_factory.mktemp("plugins") / "runs"
    file = root.parent / "my task.py"
    file.write_text(GUIDE)
    stages.load_plugin(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(root))
        stages.train("twice", scheme="nearby", **TINY)
    forget()
    return root


@pytest.fixture
def run(trained_once: Path, runs_root: Path) -> Path:
    """A copy of that run, the latest of the test's own; its file is not loaded."""
    shutil.copytree(trained_once, runs_root)
    return runs_root / "twice-seed0-vanilla-1"


def test_a_run_says_where_its_classes_are_from_and_asks_for_the_file(abc, run):
    file = written(GUIDE, "mine/my task.py")
    recorded = json.loads((run / "config.json").read_text())["plugins"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    code = files.code_hash(file.read_bytes())
    assert recorded == {
        label: {"file": "my task.py", "sha256": digest, "package": "", "code": code}
        for label in ("task twice", "scheme nearby")
    }
    ask = f"the run {run}'s task twice comes from my task.py: pass --plugin 'my task.py'"
    commands: list[list[object]] = [
        ["predict", "a b"], ["eval", "--lengths", 5], ["calibrate"], ["heatmap"], ["stress"],
        ["certify"], ["train", "--resume", run], ["retrain"],
    ]  # fmt: skip
    for command in commands:
        assert abc(*command).error(2) == ask
    assert "twice" not in TASKS, "no command named the file"
    for line in abc("runs", "--json").json():
        assert (line["task"], line["state"]) == ("twice", "trained")
    said = abc("retrain", run, "--plugin", file).error(2)
    assert said.endswith(f"is not calibrated: abc calibrate {run}")
    rows = abc("eval", "--lengths", 5, "--samples", 3, "--json", "--plugin", file).json()["rows"]
    assert rows[0]["n"] == 3

    changed = ("eval", "--plugin", written(GUIDE + "more = 1\n", "later/my task.py"))
    forget()
    assert re.fullmatch(
        r"the run .*'s task twice comes from my task.py with the SHA-256 [0-9a-f]{12}…, and it is "
        r"from my task.py \([0-9a-f]{12}…\) here, with other code: pass the file as it was, or "
        r"train again",
        abc(*changed, "--lengths", 5).error(2),
    )


def test_a_saved_model_asks_too(run):
    from abc_calib.nn import hub

    with pytest.raises(UsageError, match=r"this model's scheme nearby comes from my task\.py: pa"):
        hub.load(run / "model")
    stages.load_plugin(written(GUIDE, "mine/my task.py"))
    described = hub.load(run / "model").config
    assert described.plugins["scheme nearby"]["file"] == "my task.py"
    forget()
    stages.load_plugin(written(GUIDE + "more = 1\n", "later/my task.py"))
    with pytest.raises(UsageError, match="pass the file as it was"):
        hub.load(run / "model")
    file = run / "model" / "config.json"
    for wrong in ({"scheme nearby": 1}, {"scheme nearby": {"cod": "x"}}, {"x": {}}):
        change_json(file, plugins=wrong)
        with pytest.raises(AbcError):
            hub.load(run / "model")


class Mine(WordTask):
    """Backwards."""

    name = "mine"
    symbols = tuple("abc")

    def solve(self, source: str) -> str:
        return " ".join(reversed(self.words(source)))


class Still(Scheme):
    name = "still"

    def embed(self, x: Any, at: Any) -> Any:
        return x


def test_classes_are_taken_as_they_are():
    run = abc_calib.train(Mine, scheme=Still, **TINY)
    assert (run.config.task, run.config.model.schemes) == ("mine", ("still",))
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    origins = {(o.file, o.sha256) for o in run.config.plugins.values()}
    assert origins == {("test_plugins.py", digest)}
    assert Run.open(run.path).task.solve("a b") == "b a"
    del TASKS["mine"]
    with pytest.raises(UsageError, match=r"task mine comes from test_plugins\.py: pass --plugin"):
        Run.open(run.path)
    for wrong in (None, 3, Mine(), Still, int, ["mine"]):
        with pytest.raises(UsageError, match="is not a task: give its name, or a subclass of Task"):
            stages.train(wrong, **TINY)


def test_a_class_that_was_typed_can_be_typed_again_and_not_changed():
    """As in a notebook, where a cell is run twice, or after a change."""

    def typed(text: str) -> Any:
        scope: dict[str, Any] = {"__name__": "typed"}
        exec(text, scope)
        return scope["Again"]

    for _ in range(2):
        new = typed(TASK)
        run = stages.train(new, **TINY)
        assert run.config.plugins["task again"].file == "" and TASKS["again"] is new
    assert Run.open(run.path).task.solve("a b") == typed(TASK)().solve("a b")
    other = typed(TASK.replace("return", "# a comment\n        return"))
    stages.train(other, **TINY)
    assert Run.open(run.path)  # a comment is no change
    changed = typed(TASK + "    train_length = 5\n")
    stages.train(changed, **TINY)
    with pytest.raises(
        UsageError, match=r"class in Python with the SHA-256 .*: define it as it was"
    ):
        Run.open(run.path)
    del TASKS["again"]
    with pytest.raises(UsageError, match="was a class in Python: write it into a file"):
        Run.open(run.path)


def test_what_a_typed_class_uses_is_part_of_it():
    """Typed bases, and globals that its functions call, also by way of others."""
    used = """
def inner(x): return x + 1
def helper(x): return [inner(y) for y in x]
class Base: size = 3
unused = 4
class Own(Base):
    def solve(self, x): return helper(x), self.unused
"""

    def digest(*change: str) -> str:
        scope: dict[str, Any] = {"__name__": "typed"}
        exec(used.replace(*change) if change else used, scope)
        return typed_hash(scope["Own"])

    assert digest() == digest() == digest("unused = 4", "unused = 5")
    for old, new in (("x + 1", "x + 2"), ("size = 3", "size = 4")):
        assert digest(old, new) != digest()


LONG = """
from tasks import WordTask
class Long(WordTask):
    "The same number, by way of an int."
    name = "long"
    symbols = tuple("0123456789")
    def solve(self, source):
        return " ".join(str(int("".join(self.words(source)))))
"""


def test_numbers_of_more_digits_than_python_reads_by_default():
    """int() takes 4,300 digits unless it is told to take more."""
    stages.load_plugin(written(LONG))
    assert len(get_task("long").solve(" ".join("1" * 5000)).split()) == 5000


def test_workers_get_the_file(tmp_path, monkeypatch):
    """What a job's process is given is enough, as on another machine."""

    def elsewhere(*given):
        forget()
        return attempt_here(*given)

    monkeypatch.setattr(engine, "attempt", elsewhere)
    file = written(TASK)
    stages.load_plugin(file)
    job = Job(task="again", options=TINY, tests=(Test(length=5, n=3),))
    file.unlink()
    (outcome,) = run_jobs([job], tmp_path / "jobs", workers=1)
    assert outcome.state == "done", outcome
    assert job.rows(tmp_path / "jobs")[0]["n"] == 3
    forget()
    stages.load_plugin(written(TASK + "\n"))
    assert Job(task="again", options=TINY).key != job.key


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
    scheme = "\nfrom abc_calib.nn.positions import Scheme\nclass Straight(Scheme):\n"
    scheme += "    def embed(self, x, at):\n        return x\n"
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


SIZED = TASK.replace(
    "class Again(WordTask):",
    """class Again(WordTask):
    options = ("size",)
    def __init__(self, size: int = 3):
        super().__init__()
        self.size = size
""",
)


def test_the_command_of_a_task_with_an_option_of_its_own_runs(tmp_path):
    (tmp_path / "sized.py").write_text(SIZED)
    abc_calib.load_plugin(tmp_path / "sized.py")
    run = stages.train("again", task_options={"size": 2}, **TINY)
    (command,) = commands(run)
    code = shlex.split(command)[2]
    assert "task_options={'size': 2}" in code
    said: dict[str, Any] = {}
    exec(code.replace("; abc.train", "; again = abc.train"), said)
    assert not said["again"].config.difference(run.config)


HALF = "from tasks import WordTask\nclass Half(WordTask):\n    name = 'half'\n"
SCHEME = "from abc_calib.nn.positions import Scheme\nclass Odd(Scheme):\n    name = 'odd'\n"
EMBEDDING = f"{SCHEME}    def embed(self, x, at):\n        return "
SCORES = f"{SCHEME}    def score_bias(self, queries, keys, view):\n        return 1 / 0\n"
ANSWER = 'return " ".join(self.words(source))'
BROKEN = [
    ("this is no Python", "does not import, line 1 (SyntaxError: invalid syntax"),
    ("raise SystemExit(0)", "does not import, line 1 (SystemExit: 0)"),
    ("from tasks import Addition", "has no task and no scheme"),
    ("import tasks\ntasks.TASKS['plus'] = 3", "changes TASKS or SCHEMES: leave that out"),
    (HALF, "the task half lacks step or solve: write it"),
    (TASK.replace('"again"', '"copy"'), "there is a task copy already"),
    (TASK.replace('name = "again"', "pass"), "has no name of its own"),
    (TASK.replace('"again"', '"../again"'), "'../again' is not a name of a task"),
    (SCHEME.replace("odd", "rope"), "there is a scheme rope already"),
    (EMBEDDING.replace("embed", "embeded") + "x", "scheme odd lacks embed or rotate or score_bias"),
]
"""Files that are not loaded, and what is said of them."""
FAILING = [
    (TASK.replace(ANSWER, "return None"), "AttributeError: 'NoneType' object has no attribute 's"),
    (TASK.replace(ANSWER, "return source if '  ' in source else 1 / 0"), "line 8: ZeroDiv"),
    (TASK.replace(ANSWER, "TASK.append(1); return source + ' a' * (len(TASK) % 2)"), "differ"),
    (TASK.replace(ANSWER, "return 'z'"), "'z' is written and is not a symbol of again"),
    (TASK.replace(ANSWER, "raise SystemExit(3)"), "line 8: SystemExit: 3"),
    (TASK + "    symbols = ('a', 'a')\n", "symbol 'a': give words"),
    (TASK + "    notation = 'pictures'\n", "has the notation 'pictures': choose digits or rows"),
    (TASK + "    train_length = property(lambda self: 1 / 0)\n", "cannot be made (my_task.py"),
    (TASK + "    __init__ = lambda self, more: None\n", "again: cannot be made (TypeError"),
    (EMBEDDING + "x + 1 / 0", "scheme odd: the first problems fail (my_task.py, line 5: ZeroDi"),
    (SCORES, "my_task.py, line 5: ZeroDivisionError"),
    (SCORES.replace("return 1 / 0", "keys"), "its score_bias is None at every site: does it"),
    (EMBEDDING + "x[:, :1, :3]", "scheme odd: the first problems fail (RuntimeError"),
    (EMBEDDING + "x * float('nan')", "scheme odd: the loss of the first problems is nan"),
]
"""Files that are loaded, and what is said of the first problems of a training."""


@pytest.mark.parametrize(("text", "reason"), BROKEN)
def test_a_bad_plugin_is_refused_in_a_line_and_leaves_nothing(abc, text, reason, runs_root):
    before = dict(TASKS), dict(SCHEMES), {*sys.modules}
    said = abc("train", "successor", *FLAGS, "--plugin", written(text)).error(2)
    assert said.startswith("plugin my_task.py") and reason in said, said
    assert (dict(TASKS), dict(SCHEMES)) == before[:2]
    assert not [name for name in {*sys.modules} - before[2] if name.startswith("abc_plugin")]
    assert not runs_root.exists()


@pytest.mark.parametrize(("text", "reason"), FAILING)
def test_what_fails_is_refused_before_training(abc, text, reason, runs_root):
    words = ("successor", "--scheme", "odd") if SCHEME in text else ("again",)
    said = abc("train", *words, *FLAGS, "--plugin", written(text + "\nTASK = []\n")).error(2)
    assert reason in said, said
    assert not runs_root.exists()


def test_check_task_says_in_a_line_that_a_step_fails(abc):
    file = written(GUIDE.replace("def step(self, borrow, a, b):", "def step(self, borrow, a):"))
    said = abc("check-task", file, "minus").error(2)
    assert "the first problems fail (my_task.py, line 15: TypeError: Minus.step() takes" in said
    assert said.endswith("but 4 were given, in step(0, 0, 0))")


def test_what_is_no_file_is_refused(abc):
    written(TASK, "my_task.txt")
    written("#" * 2_000_000, "large.py")
    assert "No such file or directory" in abc("tasks", "--plugin", "missing.py").error(2)
    assert "ends in .py" in abc("tasks", "--plugin", "my_task.txt").error(2)
    assert "at most 1000000 are read" in abc("tasks", "--plugin", "large.py").error(2)


@settings(max_examples=12)
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
        x, y = np.base_repr(a, 3), np.base_repr(b, 3)
        assert int(task.solve(f"{x}-{y}"), 3) == (a - b) % 3 ** max(len(x), len(y))


CARETS = """
from tasks import Arithmetic
class Carets(Arithmetic):
    "Sums of digits without a carry."
    name, operator, count = "carets", "^", 2
    def __init__(self, base=None):
        super().__init__(base)
        INIT
    def step(self, state, a, b):
        return 0, (a + b) % self.base
    def end(self, state):
        return ()
"""


def test_an_operator_in_no_list_is_taken_and_one_that_was_left_out_is_named(abc):
    file = written(CARETS.replace("INIT", "self.symbols = tuple('0123456789')"))
    said = abc("train", "carets", "--plugin", file, *FLAGS).error(2)
    assert said.startswith("the task carets has the operator '^', which is not in its symbols")
    advice = said.partition("behind super().__init__(base), ")[2]
    for init in (advice, "pass"):
        forget()
        written(CARETS.replace("INIT", init))
        assert abc("train", "carets", "--plugin", file, *FLAGS).code == 0
        assert get_task("carets").solve("12^39") == "41"


def test_a_task_of_one_base_is_opened_again(abc):
    init = "__init__(self, base=None):\n        super().__init__(base)"
    alone = "options = ()\n    def __init__(self):\n        super().__init__(7)"
    text = CARETS.replace("def " + init, alone).replace("INIT", "pass")
    file = written(text.replace('"^"', '"+"'))
    assert abc("train", "carets", "--plugin", file, *FLAGS).code == 0
    run = Run.open()
    assert (run.config.base, run.task.base) == (7, 7) and "--base" not in commands(run)[0]
    assert "has no option 'base'" in abc("check-task", file, "carets", "--base", 5).error(2)
    forget()
    written(text.replace("options = ()", ""))
    assert "unexpected keyword argument 'base'" in abc("check-task", file, "carets").error(2)


UNREADABLE = {
    "symbols = tuple('9876543210^')": "its symbols have to begin with the digits 0123456789",
    "symbols = tuple('0123456789^\\ud800')": r"the symbol '\ud800': give words that can be",
    "operator = 'X'": "the operator 'X': give a sign",
    "operator = ' '": "the operator ' ': give a sign",
    "operator = '#'": "the operator '#': give a sign",
    "operator = '|'": "the operator '|': give a sign",
    "train_length = 0": "has train_length = 0: give a number from 1 on",
    "operator = None": "the operator None: give a sign",
    "count = 0": "count = 0: give a whole number of 1 or more",
    "count = '2'": "count = '2': give a whole number of 1 or more",
    "train_length = '7'": "train_length = '7': give a number from 1 on",
}


@pytest.mark.parametrize("line", UNREADABLE)
def test_what_cannot_be_read_or_shown_is_refused_before_training(abc, line):
    file = written(CARETS.replace("INIT", f"self.{line}"))
    assert UNREADABLE[line] in abc("check-task", file, "carets").error(2)


def test_a_parameter_that_is_never_filled_is_named(abc):
    file = written(GUIDE.replace("nn.init.zeros_(self.strength)", "pass"))
    said = abc("train", "addition", "--scheme", "nearby", "--plugin", file, *FLAGS).error(2)
    assert "strength is never filled: fill it in reset_parameters" in said


def test_a_faulty_class_hides_no_other(abc):
    file = written(TASK + "class Bare(WordTask):\n    name = 'bare'\n    symbols = ('a',)\n")
    said = abc("tasks", "--plugin", file)
    assert said.code == 0 and "again" in said.out and "bare" not in said.out
    assert "warning: plugin my_task.py: the task bare lacks step or solve: write it" in said.err
    forget()
    faulty = (
        TASK.replace("again", "fails").replace("return", "return 1 / 0 or").replace("Again", "F")
    )
    said = abc("tasks", "--plugin", written(TASK + faulty))
    assert said.code == 0 and "fails: ZeroDivisionError: division by zero" in said.out
    assert "again" in said.out


def test_a_comment_locks_no_run_and_code_does(abc, run):
    commented = "# a remark\n" + GUIDE.replace('"""Each word two', '"""Every word two')
    file = written(commented, "my task.py")
    said = abc("predict", "a b", "--plugin", file)
    assert said.code == 0, said.err
    forget()
    written(GUIDE.replace("{word} {word}", "{word}  {word}"), "my task.py")
    assert "with other code: pass the file as it was" in abc(
        "predict", "a b", "--plugin", file
    ).error(2)


def test_examples_in_messages_are_accepted():
    for name in TASKS:
        task = get_task(name) if name != "cfq" else None
        for source in ("", "?!") if task else ():
            with pytest.raises(UsageError) as error:
                task.parse(source)
            for example in re.findall(r"(?:as in|such as) '([^']*)'", str(error.value)):
                task.parse(example)
