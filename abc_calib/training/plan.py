"""From options to the configuration of a first training, checked.

What is not possible is refused here; nothing is trained or written. A user's own tasks and schemes
are tried on a few problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from abc_calib import plugins
from abc_calib.config import MODEL_OPTIONS, RunConfig, TrainOptions, refuse_unknown, take
from abc_calib.data import Data, make_data
from abc_calib.data.vocabulary import EOS
from abc_calib.errors import AbcError, OptionError, UsageError
from abc_calib.memory import BYTES_PER_DIGIT, check_samples, refuse
from abc_calib.nn.build import MODELS, build_model, model_type
from abc_calib.nn.skip_init import skip_init
from abc_calib.runs import Run
from abc_calib.training.recipes import recipe_of
from abc_calib.version import __version__

PROBLEMS = 10_000
"""What a training draws at least at once: a training set, or what is held out."""
TRIED = 4
"""Problems on which a user's own class is tried."""
KEPT = 4
"""A training step takes about this many times the memory of a pass: it keeps all for gradients."""


def plan_training(
    task: str,
    *,
    base: int | None = None,
    task_options: Mapping[str, int | str | None] | None = None,
    preset: str = "default",
    model: str | None = None,
    finetune: Run | None = None,
    **keywords: Any,
) -> RunConfig:
    """The configuration of a first training, checked; nothing is trained or written.

    ``model``: its kind, ``transformer`` by default. ``finetune``: the run whose model and weights
    to start from. ``keywords``: options of the model and of the training.
    """
    kind = kind_of(model, finetune)
    options = {key: value for key, value in (task_options or {}).items() if value is not None}
    problem = plugins.make_task(task, base=base, **options)
    of_model, of_training = options_of(kind, keywords)
    inherited = finetune.config.model if finetune else None
    with plugins.in_one_line(task):
        chosen = {**(inherited.model_dump() if inherited else {}), **of_model, **of_training}
        recipe = recipe_of(problem, preset, kind, chosen)
        shape = (inherited or recipe.shape).model_copy(update=of_model)
        drawn = {"length": problem.train_length, "sampling": problem.sampling}
        unset = {name: drawn[name] for name in drawn if name not in recipe.first.model_fields_set}
        training = recipe.first.model_copy(update=unset | of_training)
        check_samples(PROBLEMS, training.length, "length")
        data = make_data(problem, training)
        shape = model_type(kind).resolve_defaults(shape, data)
        config = RunConfig(
            code_version=__version__,
            stage="vanilla",
            task=task,
            base=getattr(problem, "base", None),
            task_options=options,
            preset=preset,
            kind=kind,
            model=shape,
            train=training,
            plugins=plugins.origins(shape.schemes, task),
        )
        check_config(config, data)
        return _starting_from(finetune, config)


def kind_of(model: str | None, finetune: Run | None) -> str:
    """The kind of model that is asked for, by default that of the run to start from."""
    kind = model or (finetune.config.kind if finetune else "transformer")
    if kind not in MODELS:
        raise UsageError(f"unknown model {kind!r}: choose {' or '.join(MODELS)}")
    if finetune is not None and kind != finetune.config.kind:
        raise UsageError(f"finetune {finetune}: its model is {finetune.config.kind}, not {kind}")
    return kind


def options_of(kind: str, keywords: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that were chosen of a kind of model and of its training; no others are left."""
    keywords = {name: value for name, value in keywords.items() if value is not None}
    model_options = model_type(kind).options_type
    of_model, of_training = take(model_options, keywords), take(TrainOptions, keywords)
    for name, value in keywords.items():
        if kinds := [k for k, group in MODEL_OPTIONS.items() if name in group.model_fields]:
            near = [field for field in model_options.model_fields if field.endswith(f"_{name}")]
            hint = f"did you mean {' or '.join(near)}?" if near else "leave it out"
            rule = f"an option of {' and '.join(kinds)}, not of {kind}; {hint}"
            raise OptionError(name, value, rule)
    refuse_unknown(keywords, model_options, TrainOptions)
    return of_model.chosen, of_training.chosen


def check_config(config: RunConfig, data: Data, memory: bool = True) -> None:
    """``UsageError`` for a training that cannot run.

    That is an optimiser that the model does not take, a step that would not fit the free
    ``memory``, or a class of a user's that fails.
    """
    taken = model_type(config.kind).optimizers
    if config.train.optimizer not in taken:
        rule = f"this model takes {' or '.join(taken)}"
        raise OptionError("optimizer", config.train.optimizer, rule)
    for name, is_used, where in (
        ("teacher_forcing", config.kind == "gru", "recurrent models"),
        ("dev", config.kind == "gru" or data.decoded, "tasks on tokens"),
    ):
        value = getattr(config.train, name)
        if not is_used and value != TrainOptions.model_fields[name].default:
            raise OptionError(name, value, f"it is for {where} alone; leave it out")
    if memory and not torch.cuda.is_available():
        _check_memory(config, data)
    if config.plugins:
        what = " and ".join(config.plugins)
        try:
            _try_plugins(config, data)
        except AbcError as error:
            raise UsageError(f"{what}: {error}") from None
        except Exception as error:
            why = plugins.described(error)
            raise UsageError(f"{what}: the first problems fail ({why})") from None


def _check_memory(config: RunConfig, data: Data) -> None:
    """``OptionError`` unless weights, gradients and moments, activations, and problems fit."""
    batch, length = config.train.batch, config.train.length
    with torch.random.fork_rng(devices=[]), skip_init():
        network = model_type(config.kind)(config.model, data.vocabulary.tokens)
    longest = data.training(0, 1, exact=True)
    size = batch, longest.source.shape[1], longest.target.shape[1]
    needed = 16 * sum(weight.numel() for weight in network.parameters())
    needed += KEPT * network.memory_needed(*size) + 3 * BYTES_PER_DIGIT * batch * length
    what = f"a step of {batch} samples of {length} {data.task.unit} with this model needs"
    refuse("batch", batch, needed, what)


def _try_plugins(config: RunConfig, data: Data) -> None:
    """Train on and decode a few problems; ``UsageError`` where a task draws what its rule denies,
    or a parameter has whatever the memory held."""
    batch = data.training(0, TRIED)
    data.validation(TRIED)
    if any(label.startswith("task ") for label in config.plugins):
        for row in range(len(batch)):
            _check_rule(data, batch.problems, row, batch.target[row].tolist())
    deterministic = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.use_deterministic_algorithms(True)  # what torch.empty gives is NaN then
        try:
            model = build_model(config.kind, config.model, data, 0)
        finally:
            torch.use_deterministic_algorithms(deterministic)
        for name, weight in model.named_parameters():
            if not torch.isfinite(weight).all():
                raise UsageError(
                    f"the parameter {name} is never filled: fill it in reset_parameters, as in "
                    "nn.init.zeros_(self.strength), and call that at the end of __init__"
                )
        given = _score_biases(model)
        loss = model.loss(batch.source, batch.target)
        if given and all(bias is None for bias in given):
            raise UsageError("its score_bias is None at every site: does it return its tensor?")
        loss.backward()
        model.eval().decode(batch.source, 2)
    if not torch.isfinite(loss):
        raise UsageError(f"the loss of the first problems is {loss.item()}: mend the scheme")


def _score_biases(model: torch.nn.Module) -> list[Tensor | None]:
    """What the schemes of a model add to scores, a list that grows as it is used."""
    given: list[Tensor | None] = []

    def kept(score_bias: Any, *args: Any) -> Tensor | None:
        given.append(score_bias(*args))
        return given[-1]

    scheme: Any
    for scheme in model.modules():
        if getattr(scheme, "has_score_bias", False):
            scheme.score_bias = partial(kept, scheme.score_bias)
    return given


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


def _starting_from(start: Run | None, config: RunConfig) -> RunConfig:
    """``config`` with ``start`` as its parent; ``UsageError`` if its model is another one."""
    if start is None:
        return config
    if start.config.stage != "vanilla":
        raise UsageError(f"finetune {start}: it is calibrated; name a first training")
    if start.result is None:
        raise UsageError(f"finetune {start}: its training has not ended; abc train --resume it")
    if config.model != start.config.model:
        raise UsageError(f"finetune {start}: leave out the model's options, it has that run's")
    if Run.draft(config).task.symbols != start.task.symbols:
        raise UsageError(
            f"finetune {start}: {config.task} has other symbols than its task "
            f"{start.config.task}; choose a task with the same"
        )
    return config.model_copy(update={"parent": str(start.path)})
