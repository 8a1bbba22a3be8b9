"""A user's own tasks and schemes, tried on a few problems before anything is trained."""

from __future__ import annotations

from typing import Any

import torch

from abc_calib import plugins
from abc_calib.config import RunConfig
from abc_calib.data import Data
from abc_calib.data.vocabulary import EOS
from abc_calib.errors import AbcError, UsageError
from abc_calib.nn.build import build_model

PROBLEMS = 4


def check_own(config: RunConfig, data: Data) -> None:
    """``UsageError`` where a class of a user's fails, or a task draws what its rule denies."""
    if not config.plugins:
        return
    what = " and ".join(config.plugins)
    try:
        _try(config, data)
    except AbcError as error:
        raise UsageError(f"{what}: {error}") from None
    except Exception as error:
        raise UsageError(f"{what}: the first problems fail ({plugins.described(error)})") from None


def _try(config: RunConfig, data: Data) -> None:
    batch = data.training(0, PROBLEMS)
    data.validation(PROBLEMS)
    if any(label.startswith("task ") for label in config.plugins):
        for row in range(len(batch)):
            _check_rule(data, batch.problems, row, batch.target[row].tolist())
    with torch.random.fork_rng(devices=[]):
        model = _built(config, data)
        loss = model.loss(batch.source, batch.target)
        loss.backward()
        model.eval().decode(batch.source, 2)
    if not torch.isfinite(loss):
        raise UsageError(f"the loss of the first problems is {loss.item()}: mend the scheme")


def _built(config: RunConfig, data: Data) -> Any:
    """The model; ``UsageError`` where a parameter has whatever the memory held."""
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # what torch.empty gives is NaN then
    try:
        model = build_model(config.kind, config.model, data, 0)
    finally:
        torch.use_deterministic_algorithms(was)
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise UsageError(
                f"the parameter {name} is never filled: fill it in reset_parameters, as in "
                "nn.init.zeros_(self.strength), and call that at the end of __init__"
            )
    return model


def _check_rule(data: Data, problems: Any, row: int, target: list[int]) -> None:
    source = data.task.write(problems, row)
    symbols = [data.vocabulary.symbols[i] for i in target]
    drawn, solved = data.read(symbols[: symbols.index(EOS)]), data.task.solve(source)
    if drawn != solved:
        raise UsageError(
            f"its problems and its rule differ: {source!r} has the answer {drawn!r} where it is "
            f"drawn, and {solved!r} by solve"
        )
    data.lay_out(data.task.parse(source))
