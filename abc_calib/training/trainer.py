"""The training loop: optimise until the model interpolates, and never lose what was reached.

Batches depend only on the seed and the step, and the checkpoint holds the optimiser and the
random state, so a run that was interrupted ends with the weights of one that was not.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from abc_calib.config import TrainOptions
from abc_calib.data import Batch
from abc_calib.errors import AbcError, Interrupted
from abc_calib.evaluation import exact_matches
from abc_calib.files import write_text
from abc_calib.nn.base import Model, not_finite, resolve_device
from abc_calib.runs import Run
from abc_calib.stopping import uninterrupted
from abc_calib.training.step import (
    NEARLY,
    TIE,
    PlateauState,
    learning_rate,
    optimise,
    optimizer_of,
    plateau_state,
)

INTERPOLATED = 0.999
"""Exact match on held-out problems of the training length from which a model interpolates."""
VALIDATION_SIZE, GLANCE, RIGHT = 2000, 256, 0.97
"""Held-out problems; how many are looked at first, and all only if this share of those is right."""
THROUGHOUT = 0.99
"""Exact match on problems of all training lengths, below which no training ends early."""
RAN = ("learning_rate", "warmup", "stop_early")
"""Options that a retraining may have otherwise than asked for: the result says how they were."""
UNREACHED_STEP, UNREACHED_SIZE = 2**31, 2048
"""Those problems are drawn as the batch of a step that no training reaches."""


@dataclass(frozen=True)
class Progress:
    """What a progress callback gets after each step."""

    step: int
    steps: int
    loss: float
    accuracy: float | None
    seconds: float


Callback = Callable[[Progress], None]


class Ending(Protocol):
    """What may end a training besides its options, and say what to train on until then.

    ``ends``: what it looks at. ``least``: the share of held-out problems that is right before it is
    asked.
    """

    least: float
    ends: str

    def look(self, model: Model, step: int) -> bool:
        """Is it over? Asked at each validation."""

    def batch(self, usual: Batch, step: int) -> Batch:
        """The training batch of a step."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as plain data."""

    def load(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""


class Trainer:
    """One training of one model in one run folder.

    With ``ending``, that and not the held-out problems stop it early. ``options``: in place of
    those of the run. ``start``: whose weights the model has, which the result says. Where it stands
    follows from its ``history``, one entry for each validation.
    """

    def __init__(
        self,
        run: Run,
        model: Model,
        device: str = "auto",
        ending: Ending | None = None,
        options: TrainOptions | None = None,
        start: str = "fresh",
    ):
        self.run, self.ending, self.start = run, ending, start
        self.options = options or run.config.train
        self.data, self.device = run.data, resolve_device(device)
        self.model = model.to(self.device)
        self.optimizer = optimizer_of(model, self.options.optimizer)
        #: what may end it early
        self.ends = "held out" if ending is None else ending.ends
        self.step, self.saved, self.seconds = 0, 0, 0.0
        self.best: dict[str, Tensor] = {}
        self.history: list[dict[str, Any]] = []
        self.validation = self.data.validation(VALIDATION_SIZE)

    def train(self, on_step: Callback = lambda _: None) -> dict[str, Any]:
        """Train to the end and save the model; gives what ``result.json`` holds.

        Raises ``Interrupted`` on Ctrl-C, after saving a checkpoint, and ``AbcError`` where the loss
        or a weight is no longer finite.
        """
        self.resume()
        started = time.perf_counter() - self.seconds
        try:
            while self.step < self.options.steps and not self.finished:
                with uninterrupted():  # half a step could not be resumed exactly
                    loss = self.finite(float(self.one_step()))
                    self.seconds = time.perf_counter() - started
                    last = self.step == self.options.steps
                    is_due = last or self.step % self.options.validate_every == 0
                    accuracy = self.validate(loss) if is_due else None
                on_step(Progress(self.step, self.options.steps, loss, accuracy, self.seconds))
        except KeyboardInterrupt:
            self.save_checkpoint()
            raise Interrupted(
                f"stopped at step {self.step}; nothing is lost. "
                f"Go on with: abc train --resume {shlex.quote(str(self.run))}"
            ) from None
        with uninterrupted():
            return self.finish()

    def finite(self, loss: float) -> float:
        """``loss``; ``AbcError`` if it is not finite."""
        if math.isfinite(loss):
            return loss
        kept = f"the checkpoint of step {self.saved} is kept" if self.saved else "nothing is kept"
        raise AbcError(
            f"{self.run}: the training diverged at step {self.step} (its loss or weights are "
            f"{loss}); {kept}. Train again with a lower learning rate or another seed"
        )

    @property
    def finished(self) -> bool:
        options = self.options
        given_up = 0 < options.patience < self.plateau.impatience
        saturated = options.halvings > 0 and self.plateau.factor <= 0.5**options.halvings
        over = bool(self.history) and "over" in self.history[-1]
        return given_up or saturated or (options.stop_early and over)

    @property
    def plateau(self) -> PlateauState:
        """What follows from the validations so far."""
        by_loss = self.options.monitor == "loss"
        name, sign = ("validation_loss", -1.0) if by_loss else ("validation_accuracy", 0.01)
        scores = [sign * entry[name] for entry in self.history]
        return plateau_state(scores, 0.0 if by_loss else TIE)

    @property
    def cooling_from(self) -> int | None:
        """The step from which the learning rate cools down, if that has come."""
        steps = (e["step"] for e in self.history if e["validation_accuracy"] >= 100 * NEARLY)
        return next(steps, None) if self.options.cooldown else None

    def one_step(self) -> Tensor:
        """One optimiser step; gives the loss."""
        self.model.train()
        options = self.options
        rate = learning_rate(options, self.step, self.cooling_from)
        if options.schedule == "plateau":
            rate *= self.plateau.factor
        batch = self.data.training(self.step, options.batch)
        if self.ending is not None:
            batch = self.ending.batch(batch, self.step)
        coin, share = [options.seed, 4, self.step], options.teacher_forcing
        forced = share == 1 or bool(np.random.default_rng(coin).random() < share)
        loss = optimise(self.model, self.optimizer, batch, rate, options.max_grad_norm, forced)
        self.step += 1
        return loss

    def validate(self, loss: float) -> float:
        """Exact match on the held-out problems; adds to the history and checkpoints."""
        accuracy, samples = self.held_out_accuracy()
        entry: dict[str, Any] = {
            "step": self.step,
            "loss": round(loss, 6),
            "validation_accuracy": round(100 * accuracy, 3),
            "validation_samples": samples,
            "seconds": round(self.seconds, 2),
        }
        if self.options.monitor == "loss":
            entry["validation_loss"] = round(self.finite(loss_of(self.model, self.validation)), 6)
        self.history.append(entry)
        if self.is_over(accuracy):
            entry["over"] = self.ends
        if self.options.keep_best and self.plateau.best:
            self.best = {name: value.detach().clone() for name, value in self._weights().items()}
        self.save_checkpoint()
        self.write_history()
        return accuracy

    def is_over(self, accuracy: float) -> bool:
        """Does its ending say so, or were enough validations in a row good enough?"""
        options, least = self.options, 100 * self.options.early_stop_at
        if self.ending is not None:
            return accuracy >= self.ending.least and self.ending.look(self.model, self.step)
        latest = self.history[-options.early_stop_after :]
        good = [entry["validation_accuracy"] >= least for entry in latest]
        if not options.stop_early or len(good) < options.early_stop_after or not all(good):
            return False
        batch = self.data.training(UNREACHED_STEP, UNREACHED_SIZE)  # held-out: maybe one length
        return accuracy_of(self.model, batch) >= THROUGHOUT

    def held_out_accuracy(self) -> tuple[float, int]:
        """Exact match on the held-out problems, 0 to 1, and how many of them were looked at.

        A few of them stand for all until nearly all of those are right, unless validations are
        compared with each other, or it is the last one.
        """
        options = self.options
        compared = options.patience or options.keep_best or options.schedule == "plateau"
        if not compared and self.step < options.steps and len(self.validation) > GLANCE:
            apart = -(-len(self.validation) // GLANCE)
            sample = self.validation.take(torch.arange(0, len(self.validation), apart))
            if (few := accuracy_of(self.model, sample)) < RIGHT:
                return few, len(sample)
        return accuracy_of(self.model, self.validation), len(self.validation)

    def write_history(self) -> None:
        """Write ``history.jsonl``."""
        lines = [json.dumps(entry) + "\n" for entry in self.history]
        write_text(self.run.path / "history.jsonl", "".join(lines))

    def finish(self) -> dict[str, Any]:
        """Save the model, then the result, then drop the checkpoint."""
        last = self.history[-1] if self.history else {"validation_accuracy": 0.0}
        accuracy, size = last["validation_accuracy"], len(self.validation)
        if self.best:
            with torch.no_grad():
                for name, value in self._weights().items():
                    value.copy_(self.best[name])
        if self.best or last.get("validation_samples", size) < size:
            accuracy = round(100 * accuracy_of(self.model, self.validation), 3)
        result = {
            "steps": self.step,
            "seconds": round(self.seconds, 2),
            "validation_accuracy": accuracy,
            "validation_samples": size,
            "interpolated": accuracy >= 100 * INTERPOLATED,
            "ran": {
                "start": self.start,
                "ends": self.ends,
                **{name: getattr(self.options, name) for name in RAN},
            },
        }
        self.model.eval()
        self.run.save_model(self.model)
        self.write_history()
        self.run.save_result(result)
        self.run.drop_checkpoint()
        return self.run.result or result

    # Checkpoints

    def save_checkpoint(self) -> None:
        """Replace the checkpoint, unless a weight is not finite."""
        if not_finite(self._weights()):
            self.finite(math.nan)
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state()
        parts = {"model": self._weights(), "best": self.best, "random": random}
        for index, state in self.optimizer.state_dict()["state"].items():
            parts[f"optimizer.{index}"] = state
        tensors = {
            f"{part}.{name}": value.contiguous().clone()
            for part, values in parts.items()
            for name, value in values.items()
        }
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "ending": self.ending.state() if self.ending is not None else {},
            "tensors": sorted(tensors),
        }
        self.run.save_checkpoint(tensors, state)
        self.saved = self.step

    def resume(self) -> None:
        """Go on from the run's checkpoint, if there is one."""
        saved = self.run.load_checkpoint()
        if saved is None:
            return
        tensors, state = saved
        parts: dict[str, dict[str, Tensor]] = {"best": {}}
        optimizer: dict[str, Any] = {**self.optimizer.state_dict(), "state": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            if part == "optimizer":
                index, _, key = rest.partition(".")
                optimizer["state"].setdefault(int(index), {})[key] = value
            else:
                parts.setdefault(part, {})[rest] = value
        try:
            if missing := {*state["tensors"]} - {*tensors}:
                raise KeyError(min(missing))  # torch takes an optimiser's state without it
            with torch.no_grad():
                for name, value in self._weights().items():
                    value.copy_(parts["model"][name])
            self.optimizer.load_state_dict(optimizer)
            torch.set_rng_state(parts["random"]["cpu"])
            if "cuda" in parts["random"] and self.device.type == "cuda":
                torch.cuda.set_rng_state(parts["random"]["cuda"])
            self.step, self.seconds, self.saved = state["step"], state["seconds"], state["step"]
            self.history, self.best = state["history"], parts["best"]
            if self.ending is not None:
                self.ending.load(state["ending"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise AbcError(
                f"{self.run}: the checkpoint is damaged or of another model ({error}): train again"
            ) from None

    def _weights(self) -> dict[str, Tensor]:
        return dict(self.model.named_parameters())


@torch.inference_mode()
def loss_of(model: Model, batch: Batch) -> float:
    """Mean loss of a token of a batch, the right tokens before it given."""
    model.eval()
    return float(model.loss(batch.source.to(model.device), batch.target.to(model.device)))


def accuracy_of(model: Model, batch: Batch) -> float:
    """Exact match of a batch, 0 to 1."""
    return float(exact_matches(model, batch).float().mean())
