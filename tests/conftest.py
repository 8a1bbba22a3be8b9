"""What every test shares: one thread, a private folder for runs, and small models."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

from abc_calib.config import ModelOptions, RunConfig, TrainOptions
from abc_calib.data.digits import Format, Source
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.geometry.lines import CORNER, DIRECTIONS, Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.nn.transformer.model import AbcConfig, AbcTransformer
from cli import console
from cli.main import app
from tasks import get_task

torch.set_num_threads(1)
settings.register_profile(
    "abc", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("abc")


@pytest.fixture(autouse=True)
def runs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for runs, private to the test."""
    root = tmp_path / "runs"
    monkeypatch.setenv("ABC_RUNS", str(root))
    return root


@pytest.fixture
def make_source() -> Callable[..., Source]:
    """Data of a task: ``make_source("addition", base=10, layout="free", length=6)``."""

    def make(
        task: str = "addition",
        base: int | None = None,
        layout: str = "free",
        seed: int = 0,
        law: str = "mixed",
        length: int = 6,
    ) -> Source:
        return Source(get_task(task, base=base), Format(layout), seed, law, length)

    return make


@pytest.fixture
def make_config() -> Callable[..., RunConfig]:
    """The options of a run that trains in a blink; arguments go to ``TrainOptions``."""

    def make(task: str = "successor", model: dict[str, Any] | None = None, **train: Any):
        small = {"decoder_layers": 1, "heads": 2, "width": 8, "feedforward": 16}
        quick = {"steps": 6, "batch": 5, "warmup": 2, "validate_every": 100, "length": 4}
        return RunConfig(
            code_version="0",
            stage="vanilla",
            task=task,
            base=10,
            model=ModelOptions(**{**small, **(model or {})}),
            train=TrainOptions(**{**quick, **train}),
        )

    return make


@pytest.fixture
def make_model() -> Callable[..., AbcTransformer]:
    """A tiny model with random weights; arguments go to ``AbcConfig``."""

    def make(seed: int = 0, **options: Any) -> AbcTransformer:
        torch.manual_seed(seed)
        small = {"d_model": 20, "heads": 2, "feedforward": 23, "decoder_layers": 2}
        config = AbcConfig(**{**small, "delimiter_ids": [12, 10, 11, 13], **options})
        return AbcTransformer(config).eval()

    return make


@pytest.fixture
def model_for() -> Callable[..., AbcTransformer]:
    """A tiny model that fits the vocabulary of a source; arguments go to ``ModelOptions``."""

    def make(source: Source, seed: int = 0, **options: Any) -> AbcTransformer:
        small = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 32}
        chosen = ModelOptions(**{**small, **options})
        return build_model(chosen, Vocabulary(source.task), seed).eval()

    return make


@pytest.fixture
def random_bias() -> Callable[..., LineBias]:
    """Random lines for a model's sites.

    ``empty`` is the share of transparent heads; with ``single`` each head has one segment line,
    else one to four of any kind.
    """

    def make(
        layers: dict[str, int],
        heads: int,
        seed: int = 0,
        empty: float = 0.0,
        segments: int = 2,
        single: bool = False,
    ) -> LineBias:
        rng = random.Random(seed)

        def line(site: str) -> Line:
            direction = rng.choice(DIRECTIONS)
            # verticals of an encoder segment are its closing delimiter: they have no offset
            last = segments if site in ("cross", "encoder") else 0
            segment = rng.choice([*range(0 if single else CORNER, last + 1)])
            fixed = site == "encoder" and direction == "vert" and segment != CORNER
            offset = 0 if fixed else rng.randint(-3, 5)
            step = 1 if direction == "vert" else rng.choice([1, 1, 2])
            return Line(direction, segment, offset, round(rng.uniform(-2, 0), 3), step)

        def head(site: str) -> tuple[Line, ...]:
            if rng.random() < empty:
                return ()
            return tuple(line(site) for _ in range(1 if single else rng.randint(1, 4)))

        return LineBias(
            {
                site: tuple(tuple(head(site) for _ in range(heads)) for _ in range(count))
                for site, count in layers.items()
                if count
            }
        )

    return make


@pytest.fixture(scope="session")
def half_trained() -> tuple[Source, AbcTransformer]:
    """A model of base-3 successors, of whose outputs some are right and some are wrong."""
    source = Source(get_task("successor", base=3), Format("free"), 0, "mixed", 5)
    options = ModelOptions(decoder_layers=1, heads=2, width=16, feedforward=32)
    model = build_model(options, source.vocabulary, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(150):
        batch = source.training(step, 64)
        mask = batch.source != source.vocabulary.pad
        loss = model(batch.source, mask, labels=batch.target).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return source, model.eval()


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
    "--decoder-layers", 2, "--batch", 64, "--steps", 1500, "--learning-rate", 0.005,
)
# fmt: on
VANILLA, CALIBRATED = "successor-vanilla-seed0-1", "successor-calibrated-seed0-1"


@dataclass(frozen=True)
class Trained:
    """A small model of successors up to 5 digits, and what the commands that made it said."""

    root: Path
    train: Said
    calibrate: Said


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run that interpolates and its calibrated run, exact at any length. Not to be changed."""
    root = tmp_path_factory.mktemp("trained") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(root))
        patch.delenv("FORCE_COLOR", raising=False)
        train = run_command(*TRAIN)
        calibrate = run_command("calibrate", "--steps", 400)
    assert (train.code, calibrate.code) == (0, 0), (train, calibrate)
    return Trained(root, train, calibrate)


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
    return runs


def change_json(path: Path, **changes: Any) -> None:
    """Give keys of a JSON file new values."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
