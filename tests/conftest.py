"""What every test shares: one thread, a private folder for runs, and small models."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

from abc_calib.calibration import pipeline, trial
from abc_calib.config import PRESETS, RunConfig, TrainOptions, TransformerOptions
from abc_calib.data import DigitData, make_data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.geometry import ALONE, CORNER, DIRECTIONS, Line, LineBias
from abc_calib.geometry.coords import AttentionView, Coords
from abc_calib.geometry.window import window_bias
from abc_calib.nn.build import build_model
from abc_calib.nn.transformer.model import Transformer
from abc_calib.runs import Run
from abc_calib.runs.records import CALIBRATION, RESULT, write_record
from abc_calib.sweeps.workers import ensure, unpacked
from cli import console
from cli.main import app
from tasks import get_task

torch.set_num_threads(1)
# tests begun with & would hand an ignored Ctrl-C to the processes they interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "abc", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("abc")


LONGEST = ("verify", "foreign_runs", "exports", "rows", "whole", "until", "readme", "damage")
"""Files that take longest, begun first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        name = item.path.stem.removeprefix("test_")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=turn)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrates models that are not right, on whatever lines are found."""
    monkeypatch.setattr(pipeline, "THROUGHOUT", -1.0)
    monkeypatch.setattr(trial, "undecided", lambda *_, **__: (0, 1))


@pytest.fixture(autouse=True)
def runs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for runs, private to the test."""
    root = tmp_path / "runs"
    monkeypatch.setenv("ABC_RUNS", str(root))
    return root


def digit_data(
    task: str = "addition",
    base: int | None = None,
    format: str = "free",
    seed: int = 0,
    sampling: str = "mixed",
    length: int = 6,
) -> DigitData:
    """Data of a task on digits."""
    options = TrainOptions(format=format, seed=seed, sampling=sampling, length=length)
    data = make_data(get_task(task, base=base), options)
    assert isinstance(data, DigitData)
    return data


def quicker(
    patch: pytest.MonkeyPatch, shape: Any, first: Any, second: Any, name: str = "default"
) -> None:
    """A preset with these values in its shape, its first training and its retraining."""
    parts = zip(PRESETS[name], (shape, first, second), strict=True)
    changed = tuple(part.model_copy(update=values) for part, values in parts)
    patch.setitem(PRESETS, name, changed)


@pytest.fixture
def make_config() -> Callable[..., RunConfig]:
    """The options of a run that trains in a blink; arguments go to ``TrainOptions``."""

    def make(task: str = "successor", model: dict[str, Any] | None = None, **train: Any):
        small = {"decoder_layers": 1, "heads": 2, "width": 8, "feedforward": 16}
        quick: dict[str, Any] = {"steps": 6, "batch": 5, "warmup": 2, "length": 4}
        quick |= {"validate_every": 100, "early_stop_at": 0.999, "early_stop_after": 2}
        return RunConfig(
            code_version="0",
            stage="vanilla",
            task=task,
            base=10,
            model=TransformerOptions(**{**small, **(model or {})}),
            train=TrainOptions(**{**quick, **train}),
        )

    return make


def written(number: int, base: int) -> str:
    """The digits of a number, most significant first, by repeated division."""
    text = ""
    while number or not text:
        number, digit = divmod(number, base)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text


def standing(place: Any, marks: Any = ((0,),), lengths: Any = (1,)) -> Coords:
    """Tokens of one part at these places, ``(n,)`` or ``(b, n)``."""
    at = torch.atleast_2d(torch.as_tensor(place))
    zeros, length = torch.zeros_like(at), torch.as_tensor(lengths)[:, None]
    return Coords(zeros, at, zeros, at, at, torch.as_tensor(marks), length)


def view_of(site: Any, rows: Any, keys: int, lengths: Any, delimiters: Any = None) -> AttentionView:
    """How queries at the positions ``rows`` see so many keys, of sources of these lengths."""
    marks = ((0,),) if delimiters is None else delimiters
    queries = standing(torch.as_tensor(list(rows)), lengths=lengths)
    return AttentionView(
        site, queries, standing(torch.arange(keys), marks, lengths), site == "self"
    )


TOKENS = TokenIds(15, pad=14, sos=12, eos=13, delimiters=(12, 10, 11, 13))
"""The vocabulary of arithmetic in base 10."""


@pytest.fixture
def make_model() -> Callable[..., Transformer]:
    """A tiny model with random weights; arguments go to ``TransformerOptions``."""

    def make(seed: int = 0, **options: Any) -> Transformer:
        torch.manual_seed(seed)
        small = {"width": 20, "heads": 2, "feedforward": 23, "decoder_layers": 2}
        return Transformer(TransformerOptions(**{**small, **options}), TOKENS).eval()

    return make


@pytest.fixture
def model_for() -> Callable[..., Transformer]:
    """A tiny model that fits the vocabulary of data; arguments go to ``TransformerOptions``."""

    def make(data: DigitData, seed: int = 0, **options: Any) -> Transformer:
        small = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 32}
        model = build_model("transformer", TransformerOptions(**{**small, **options}), data, seed)
        assert isinstance(model, Transformer)
        return model.eval()

    return make


def random_heads(
    rng: random.Random,
    site: Any,
    heads: int,
    empty: float = 0.0,
    single: bool = False,
    segments: int = 2,
) -> tuple[tuple[Line, ...], ...]:
    """Lines of every head: one segment line each (``single``), or none to four of any kind."""

    def line() -> Line:
        direction = rng.choice(DIRECTIONS)
        # verticals of an encoder segment are its closing delimiter: they have no offset
        last = segments if site in ("cross", "encoder") else 0
        segment = rng.choice([*range(0 if single else CORNER, last + 1)])
        fixed = site == "encoder" and direction == "vert" and segment != CORNER
        offset = 0 if fixed else rng.randint(-4, 9)
        slanted = site == "cross" and direction != "vert"
        stride = rng.choice([1, 1, 2, 3]) if slanted else 1
        value = rng.choice([0.0, -0.5, round(rng.uniform(-2, 0), 3), rng.uniform(-9, 0)])
        return Line(direction, segment, offset, value, stride)

    if single:
        return tuple((line(),) for _ in range(heads))
    counts = [0 if rng.random() < empty else rng.randint(1, 4) for _ in range(heads)]
    return tuple(tuple(line() for _ in range(count)) for count in counts)


@pytest.fixture
def random_bias() -> Callable[..., LineBias]:
    """Random lines for a model's sites; more arguments go to ``random_heads``."""

    def make(layers: dict[Any, int], heads: int, seed: int = 0, *how: Any, **more: Any) -> LineBias:
        rng = random.Random(seed)
        return LineBias(
            {
                site: tuple(random_heads(rng, site, heads, *how, **more) for _ in range(count))
                for site, count in layers.items()
                if count
            }
        )

    return make


@pytest.fixture
def build(make_model: Any, random_bias: Any) -> Callable[..., Transformer]:
    """``build(shape, biased, seed)``: a model with the lines that a case names, or with none."""

    def make(shape: dict[str, Any], biased: str, seed: int = 0) -> Transformer:
        model = make_model(seed, **shape)
        layers, heads = model.attention_layers, model.options.heads
        if biased == "window":  # of aligned operands
            model.set_lines(window_bias(1, layers, heads, 2, 2))
        elif biased != "none":
            empty = 0.4 if biased == "some transparent" else 0.0
            single = biased == "one line a head"
            model.set_lines(random_bias(layers, heads, seed, empty, single=single))
        return model

    return make


def additions() -> torch.Tensor:
    """Additions of unequal length, padded."""
    ids = digit_data().training(0, 7).source
    assert len({int((row != 14).sum()) for row in ids}) > 2
    return ids


def in_stream(lines: LineBias, seed: int = 0, single: bool = False) -> LineBias:
    """Lines of a decoder-only model: heads keep those to the source, or the output, or both.

    Both unless ``single``. A head that had some keeps some, and tokens of the source look at
    themselves.
    """
    rng, sites = random.Random(seed), dict(lines.sites)

    def parted(own: Any, crossed: Any) -> tuple[Any, Any]:
        kept = rng.choice(["self", "cross", "both"][: 2 if single else 3])
        if not own or not crossed or kept == "both":
            return own, crossed
        return (own, ()) if kept == "self" else ((), crossed)

    pairs = zip(sites["self"], sites["cross"], strict=True)
    made = [[parted(a, b) for a, b in zip(own, read, strict=True)] for own, read in pairs]
    sites["self"], sites["cross"] = (
        tuple(tuple(head[k] for head in heads) for heads in made) for k in (0, 1)
    )
    sites["encoder"] = tuple(((ALONE,),) * len(heads) for heads in sites["self"][:-1])
    every = {site: layers for site, layers in sites.items() if layers}
    return LineBias(every, lines.off_line_bias, stream=True)


@pytest.fixture(scope="session")
def half_trained() -> tuple[DigitData, Transformer]:
    """A model of base-3 successors, of whose outputs some are right and some are wrong."""
    data = digit_data("successor", base=3, length=5)
    options = TransformerOptions(decoder_layers=1, heads=2, width=16, feedforward=32)
    model = build_model("transformer", options, data, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(150):
        batch = data.training(step, 64)
        loss = model.loss(batch.source, batch.target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert isinstance(model, Transformer)
    return data, model.eval()


# The command line


@dataclass(frozen=True)
class Said:
    """How a command ended and what it wrote, without colours."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON value that stdout must hold, on one line, and nothing else."""
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), self.out
        return json.loads(self.out)

    def error(self, code: int) -> str:
        """The one line of an error, and that there is nothing but it."""
        assert self.code == code, self
        assert self.out == ""
        assert self.err.startswith("error: ") and self.err.count("\n") == 1, self.err
        return self.err.removeprefix("error: ").rstrip("\n")


def run_command(*words: object) -> Said:
    """``abc WORDS`` in this process; an unexpected exception is raised, as a traceback would be."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in (result.stdout, result.stderr)]
    return Said(result.exit_code, *plain)


@pytest.fixture
def abc(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """The command: ``abc("eval", "--max-len", 5)``."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(console.out, "width", 150)
    return run_command


# fmt: off
TRAIN = (
    "train", "successor", "--digits", 5, "--heads", 8, "--width", 32, "--feedforward", 64,
    "--decoder-layers", 2, "--encoder-layers", 0, "--batch", 64, "--steps", 1500,
    "--learning-rate", 0.005, "--optimizer", "adam", "--validate-every", 100, "--cooldown", 600,
    "--early-stop-at", 0.999, "--early-stop-after", 2,
)
CALIBRATE = (
    "calibrate", "--steps", 400, "--width", 32, "--feedforward", 64, "--optimizer", "adam",
    "--validate-every", 100, "--cooldown", 0,
)
# fmt: on
VANILLA, CALIBRATED = "successor-seed0-vanilla-1", "successor-seed0-calibrated-1"


@dataclass(frozen=True)
class Trained:
    """The folder of a small model of successors up to 5 digits and its calibrated run."""

    root: Path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run that interpolates and its calibrated run, exact at any length. Not to be changed."""
    return Trained(made_once(tmp_path_factory, "trained", made_and_calibrated) / "runs")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made by the first process that needs it, for all of them."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            make(folder)
            (folder / "made").touch()
    return folder


def made_and_calibrated(folder: Path) -> None:
    """Both runs, made by the commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(folder / "runs"))
        for words in (TRAIN, CALIBRATE):
            said = run_command(*words)
            assert said.code == 0, said


@dataclass(frozen=True)
class Runs:
    """Copies of the trained runs in the test's own folder; the calibrated one is the latest."""

    vanilla: Path
    calibrated: Path


@pytest.fixture
def tiny(trained: Trained, runs_root: Path) -> Runs:
    """The trained runs, the test's own to use and damage."""
    shutil.copytree(trained.root, runs_root)
    runs = Runs(runs_root / VANILLA, runs_root / CALIBRATED)
    change_json(runs.calibrated / "config.json", parent=str(runs.vanilla))
    vouch(runs.calibrated)
    return runs


def vouch(run: Path) -> None:
    """Make a run's records vouch for its files as they are now."""
    for name in (CALIBRATION, RESULT):
        if (run / name).exists():
            write_record(run / name, json.loads((run / name).read_text()))


def attempt_here(payload: str, folder: Path, device: str, *_: Any) -> float:
    """Runs a job of a sweep in this process, in place of ``abc_calib.sweeps.workers.attempt``."""
    ensure(unpacked(payload), folder.parent, device)
    return 0.0


def assert_same_weights(one: Any, other: Any) -> None:
    """Of models or their states: the same names in the same order, and the same numbers."""
    one, other = (x.state_dict() if isinstance(x, torch.nn.Module) else x for x in (one, other))
    assert list(one) == list(other)
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@torch.no_grad()
def assert_greedy(model: Any, source: torch.Tensor, ids: torch.Tensor) -> None:
    """Each token is the argmax of one pass over those before it; behind EOS there is padding."""
    read = torch.cat([torch.full((len(ids), 1), 12), ids[:, :-1]], 1)
    best = model.run(model.encode(source), read).argmax(-1)
    assert torch.equal(ids, best.masked_fill((read == 13).cumsum(1) > 0, 14))


@torch.no_grad()
def changed_copy(run: Run, folder: Path, change: Callable[[Any], None]) -> Run:
    """A copy of a run in a new folder, whose weights ``change`` has set."""
    made = Run.open(shutil.copytree(run.path, folder))
    model = made.load_model()
    change(model)
    made.save_model(model)
    vouch(made.path)
    return made


def change_json(path: Path, **changes: Any) -> None:
    """Give keys of a JSON file new values."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
