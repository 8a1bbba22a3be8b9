"""The contracts: a third kind of model and a third notation of tasks, each named in one place.

A toy of each, a page of code, goes through training, evaluation, prediction, calibration and
sweeps. Nothing outside of ``abc_calib.nn``, ``abc_calib.data``, the options and the recipes knows
them, so that whatever asks for a kind elsewhere fails here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from abc_calib import stages
from abc_calib.config import MODEL_OPTIONS, ModelOptions, TrainOptions
from abc_calib.config.options import option
from abc_calib.data import DATA, Batch, Data
from abc_calib.data.vocabulary import EOS, SOS, TokenIds
from abc_calib.errors import Interrupted, UsageError
from abc_calib.geometry import Layout
from abc_calib.nn.base import Decoded, Model
from abc_calib.nn.build import MODELS
from abc_calib.runs import Run, list_runs
from abc_calib.sweeps.jobs import Job, Test
from abc_calib.sweeps.worker import ensure
from abc_calib.training.recipes import RECIPES
from tasks import TASKS, Task, TaskError

# A third kind of model


class ToyOptions(ModelOptions):
    """The shape of the toy."""

    width: int = option(16, "Width of the embeddings.", ge=1, le=100)

    @property
    def label(self) -> str:
        return "toy"


class Toy(Model):
    """Writes row ``t`` from what it wrote before and the word ``t`` of its source."""

    options_type = ToyOptions
    hub_names = ("toy", "Toy")
    no_lines = "it has no attention at all"

    def __init__(self, options: ToyOptions, tokens: TokenIds):
        super().__init__(options, tokens)
        self.embed = nn.Embedding(tokens.size, options.width)
        self.written = nn.Embedding(tokens.size, options.width)
        self.head = nn.Linear(options.width, tokens.size)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        steps = target.shape[1]
        beside = nn.functional.pad(source[:, 1 : 1 + steps], (0, steps), value=self.pad)[:, :steps]
        return self.head(torch.tanh(self.embed(beside) + self.written(self.shifted(target))))

    @torch.inference_mode()
    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        ids = source.new_full((len(source), steps), self.pad)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        for t in range(steps):
            best = self(source, ids)[:, t].argmax(-1)
            ids[:, t] = best.masked_fill(ended, self.pad)
            ended |= best == self.eos
        return Decoded(ids)

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        return 8 * batch * steps * (self.options.width + self.tokens.size)

    def hub_config(self) -> dict[str, Any]:
        return {"vocab_size": self.tokens.size, "d_model": self.options.width}

    @classmethod
    def from_hub_config(cls, config: Mapping[str, Any]) -> Toy:
        ids = (config[f"{name}_token_id"] for name in ("pad", "bos", "eos"))
        return cls(ToyOptions(width=config["d_model"]), TokenIds(config["vocab_size"], *ids))


def recipe(task: Task, preset: str, given: Mapping[str, Any]) -> tuple[ModelOptions, TrainOptions]:
    return ToyOptions(), TrainOptions(steps=300, batch=32, learning_rate=0.02, warmup=0)


# A third notation of tasks


@dataclass(frozen=True)
class Words:
    """Words, and what each becomes."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, rows: np.ndarray) -> Words:
        return Words(tuple(self.sources[i] for i in rows), tuple(self.targets[i] for i in rows))

    def joined(self, *others: Words) -> Words:
        every = (self, *others)
        return Words(
            tuple(word for part in every for word in part.sources),
            tuple(word for part in every for word in part.targets),
        )


class Caesar(Task):
    """The next letter for each letter: ``abz -> bca``."""

    name = "caesar"
    notation = "letters"
    laws = ("uniform",)
    symbols = tuple("abcdefg")
    delimiters = ()
    train_length = 4
    unit = "letters"

    def solve(self, source: str) -> str:
        if not source or set(source) - set(self.symbols):
            raise TaskError(f"{source!r} is no word of {self.name}: write letters from a to g")
        after = dict(zip(self.symbols, self.symbols[1:] + self.symbols[:1], strict=True))
        return "".join(after[letter] for letter in source)

    def sample(
        self,
        rng: np.random.Generator,
        n: int,
        length: int,
        law: str = "uniform",
        exact: bool = False,
    ) -> Words:
        lengths = [length if exact else int(rng.integers(1, length + 1)) for _ in range(n)]
        return self.pairs(["".join(rng.choice(self.symbols, size)) for size in lengths])

    def pairs(self, words: Sequence[str]) -> Words:
        return Words(tuple(words), tuple(map(self.solve, words)))

    def parse(self, source: str) -> Words:
        return self.pairs([source])

    def write(self, problems: Words, row: int) -> str:
        return problems.sources[row]

    def read(self, output: str) -> str:
        return output


class LetterData(Data):
    """Words, an eighth of which are held out."""

    task: Caesar
    tests = ("random",)

    def drawn(self, stream: int, n: int, length: int, exact: bool, held_out: bool) -> Batch:
        rng = np.random.default_rng([self.seed, stream, length])
        words: list[Any] = []
        while len(words) < n:
            (word,) = self.task.sample(rng, 1, length, exact=exact).sources
            if length > self.length or (zlib.crc32(word.encode()) % 8 == 0) == held_out:
                words.append(word)
        return self.lay_out(self.task.pairs(words))

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        return self.drawn(step, n, self.length, exact, held_out=False)

    def validation(self, n: int) -> Batch:
        return self.drawn(0, min(n, 50), self.length, exact=True, held_out=True)

    def test(self, length: int, n: int, kind: str = "random", seed: int = 0) -> Batch:
        return self.drawn(seed, n, length, exact=True, held_out=True)

    def test_size(self, length: int) -> int:
        return 20

    def source_tokens(self, length: int) -> int:
        return length + 2

    def lay_out(self, problems: Words) -> Batch:
        return Batch(
            self.ids([SOS + word + EOS for word in problems.sources]),
            self.ids([word + EOS for word in problems.targets]),
            problems,
        )

    def ids(self, texts: Sequence[str]) -> Tensor:
        rows = [torch.tensor([self.vocabulary.ids[symbol] for symbol in text]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.vocabulary.pad)

    def layout(self, problems: Words) -> Layout:
        return self.layout_at(len(problems.sources[0]))

    def layout_at(self, length: int) -> Layout:
        return Layout((length,), (SOS, EOS), words=True)

    def output_steps(self, length: int) -> int:
        return length + 1

    def read(self, output: Sequence[str]) -> str:
        return self.task.read("".join(output))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that makes both known."""
    monkeypatch.setitem(MODEL_OPTIONS, "toy", ToyOptions)
    monkeypatch.setitem(MODELS, "toy", Toy)
    monkeypatch.setitem(RECIPES, "toy", recipe)
    monkeypatch.setitem(TASKS, "caesar", Caesar)
    monkeypatch.setitem(DATA, "letters", LetterData)


SHAPES: dict[str, Any] = {
    "toy": {"model": "toy", "width": 8},
    "transformer": {"width": 8, "heads": 2, "feedforward": 8, "decoder_layers": 1},
    "decoder": {"model": "decoder", "width": 8, "heads": 2, "feedforward": 8, "decoder_layers": 2},
    "gru": {"model": "gru", "width": 8, "embedding": 6, "d_head": 8, "value": 8},
}
LENGTHS = {"caesar": 4, "addition": 3, "copy": 10}
"""Training lengths."""
ALL = [
    ("caesar", "toy"), ("caesar", "transformer"), ("caesar", "gru"), ("caesar", "decoder"),
    ("addition", "toy"), ("copy", "toy"), ("copy", "decoder"), ("addition", "decoder"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "kind"), ALL)
def test_a_run_is_trained_opened_and_evaluated(abc, task, kind):
    length = LENGTHS[task]
    run = stages.train(task, length=length, steps=3, batch=8, **SHAPES[kind])
    assert run.result is not None and run.result["steps"] == 3
    again = Run.open(run.path)
    assert again.config == run.config and again.config.kind == kind
    assert type(again.config.model) is MODEL_OPTIONS[kind]
    assert type(again.data) is DATA[TASKS[task].notation]
    assert [found.path for found in list_runs()] == [run.path]

    model, other = run.load_model(), again.load_model()
    assert type(model) is MODELS[kind]
    batch = again.data.test(length, 7)
    assert torch.equal(model(batch.source, batch.target), other(batch.source, batch.target))
    described = json.loads((run.path / "model" / "config.json").read_text())
    assert described["model_type"] == MODELS[kind].hub_names[0]

    rows = stages.evaluate(again, [length, length + 1], samples=5)
    assert rows["length"].tolist() == [length, length + 1] and (rows["n"] == 5).all()
    said = abc(
        "eval", run.path, "--lengths", f"{length},{length + 1}", "--samples", 5, "--json"
    ).json()
    assert said["task"] == task
    columns = ["length", "set", "n", "accuracy", "test_hash"]
    assert [[row[c] for c in columns] for row in said["rows"]] == rows[columns].values.tolist()
    greedy = stages.evaluate(again, [length], samples=5, greedy=True)
    assert greedy["accuracy"].tolist() == rows["accuracy"].tolist()[:1]


@pytest.mark.parametrize(("task", "kind"), ALL)
def test_a_sweep_job_is_checked_and_has_a_key(task, kind):
    length = LENGTHS[task]
    tests = (Test(length=length, n=3), Test(length=length + 1, n=3))
    options = {**SHAPES[kind], "length": length, "steps": 3}
    job = Job(task=task, options=options, tests=tests)
    job.check()
    assert job.config.kind == kind and job.measures == tests
    assert job.key.startswith(f"{task}-{job.config.model.label}-vanilla-seed0-")
    assert Job(task=task, options=options).key == job.key
    assert Job(task=task, options={**options, "width": 10}).key != job.key
    with pytest.raises(UsageError, match="unknown test set 'nothing'"):
        Job(task=task, options=options, tests=(Test(length=length, set="nothing"),)).check()


@pytest.mark.parametrize(("task", "kind"), ALL)
def test_a_sweep_job_is_done_to_its_end(task, kind, tmp_path):
    """In this process, as a worker does it in one of its own."""
    length = LENGTHS[task]
    options = {**SHAPES[kind], "length": length, "steps": 2, "batch": 4}
    job = Job(task=task, options=options, tests=(Test(length=length, n=3),))
    ensure(job, tmp_path)
    assert job.complete(tmp_path) and not job.missing_tests(tmp_path)
    (row,) = job.rows(tmp_path)
    assert (row["length"], row["n"], row["set"]) == (length, 3, "random")
    found = job.run(tmp_path)
    assert found is not None and type(found.load_model()) is MODELS[kind]


def test_what_was_learnt_is_predicted(abc):
    """Beyond the training length too: the toy looks at one letter at a time."""
    run = stages.train("caesar", model="toy")
    assert run.result is not None and run.result["validation_accuracy"] == 100
    assert stages.predict(run, "abcdefg").answer == "bcdefga"
    found = stages.predict(run, "gag")
    assert found.correct and found.output == ["a", "b", "a", "&"]
    assert found.places == ["", "0", "1", "2", ""]
    said = abc("predict", "gag", "--json").json()
    assert said["answer"] == "aba" and said["correct"]
    rows = abc("eval", "--lengths", 20, "--json").json()["rows"]
    assert [(row["n"], row["accuracy"]) for row in rows] == [(20, 100.0)]
    assert "is no word of caesar" in abc("predict", "xyz").error(2)


def test_a_training_that_was_stopped_goes_on(monkeypatch):
    """From its checkpoint, with the weights of one that was not stopped."""
    whole = stages.train("caesar", model="toy", steps=6, validate_every=2)

    def stop(progress):
        if progress.step == 3:
            raise KeyboardInterrupt

    started: list[Run] = []
    with pytest.raises(Interrupted, match="stopped at step 3"):
        stages.train("caesar", model="toy", steps=6, validate_every=2, on_step=stop,
                     on_start=started.append)  # fmt: skip
    run = stages.resume(started[0])
    one, two = whole.load_model().state_dict(), run.load_model().state_dict()
    assert all(torch.equal(one[name], value) for name, value in two.items())


def test_finetuning_starts_from_a_model_of_the_kind():
    first = stages.train("caesar", model="toy", width=8, steps=3)
    second = stages.train("caesar", finetune=first, steps=1, learning_rate=1e-9)
    assert second.config.kind == "toy" and second.config.model == first.config.model
    one, two = (run.load_model().state_dict() for run in (first, second))
    assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)


def test_a_transformer_on_the_notation_is_calibrated():
    """Lines are counted in the layout of its data."""
    some = {"width": 16, "heads": 2, "feedforward": 32, "decoder_layers": 1}
    run = stages.train("caesar", steps=150, batch=32, learning_rate=0.01, warmup=0, **some)
    made = stages.calibrate(run, force=True, samples=32, threshold=0.05, steps=2, batch=5)
    assert made.load_model().lines == made.bias()
    assert "cross" in made.bias().sites
    assert len(stages.evaluate(made, [4], samples=3)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "toy", "heads": 2}, "heads = 2: an option of transformer and decoder, not of"),
        ({"model": "toy", "width": 0}, "width = 0: give a whole number from 1 to 100"),
        ({"model": "toi"}, "unknown model 'toi': choose transformer or decoder or gru or toy"),
        ({"attention_window": 1, **SHAPES["transformer"]}, "attention_window = 1: .*caesar"),
    ],
)
def test_what_is_not_possible_is_refused_in_one_line(options, message, runs_root):
    with pytest.raises(UsageError, match=message):
        stages.train("caesar", **options)
    assert not runs_root.exists()


def test_what_a_model_or_a_notation_cannot_is_said_by_itself(abc):
    run = stages.train("caesar", model="toy", steps=1)
    with pytest.raises(UsageError, match="it has no attention at all"):
        stages.calibrate(run, force=True)
    with pytest.raises(UsageError, match="has no lines"):
        run.lines()
    batch = run.data.training(0, 3)
    with pytest.raises(UsageError, match="no attention heads: it has no attention at all"):
        run.load_model().attention(batch.source, batch.target)
    assert "caesar" in abc("stress", run.path).error(2)
    assert abc("certify", run.path).error(2)
    assert "unknown test set 'heldout'" in abc("eval", run.path, "--set", "heldout").error(2)
