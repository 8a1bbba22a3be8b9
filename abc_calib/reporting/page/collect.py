"""A run as the plain data that its page shows."""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from abc_calib.errors import UsageError
from abc_calib.nn.base import Model
from abc_calib.reporting.curves import history_curve
from abc_calib.reporting.page import judged
from abc_calib.reporting.page.commands import commands
from abc_calib.reporting.page.heads import heads_of
from abc_calib.reporting.style import as_svg, font
from abc_calib.runs import Run
from abc_calib.text import counted

RUNS = ("abc_transformer", "abc_decoder")
"""The kinds of models that the page's JavaScript computes."""
SHAPE = ("d_model", "heads", "encoder_layers", "decoder_layers")


def intro(run: Run) -> str:
    """Say what a model is, in one sentence for a person who knows nothing of it."""
    config = run.config
    kind = "recurrent network" if config.kind == "gru" else "Transformer"
    usual = getattr(run.task, "default_base", config.base)
    base = f" in base {config.base}" if config.base != usual else ""
    task = config.task.replace("_", " ")
    return (
        f"A small {kind} that learned {task}{base} from examples of at most "
        f"{config.train.length} {run.task.unit}."
    )


def collected(run: Run, on_part: Callable[[str], None] = lambda part: None) -> dict[str, Any]:
    """Everything about a run. Where the page cannot compute its model, ``why`` says why not.

    ``on_part`` is called with what is looked at next.
    """
    on_part("model")
    model = run.load_model()
    config, result = run.config, run.result or {}
    rule = run.task.rule()
    spelling, weights, why = run.data.spelling(), None, "it cannot read problems of this task"
    if spelling is not None:
        try:
            weights, why = embedded(model), ""
        except UsageError as error:
            why = str(error)
    about = _plain((inspect.getdoc(type(run.task)) or "").split("\n\n")[0])
    usual = getattr(run.task, "default_base", None)  # whose digits the example of ``about`` has
    other_base = usual not in (None, config.base)
    on_part("examples")
    shown = judged.examples(run, model)
    on_part("attention")
    heads = heads_of(run)
    return {
        "name": run.path.resolve().name,
        "summary": run.summary,
        "task": config.task,
        "intro": intro(run),
        "about": about.partition(":")[0] + "." if other_base else about,
        "stage": config.stage,
        "unit": run.task.unit,
        "length": config.train.length,
        "facts": facts(run, sum(weight.numel() for weight in model.parameters()), result),
        "commands": commands(run),
        "history": history_chart(run.history()),
        "accuracy": judged.accuracy(run),
        "hard": judged.hard(run),
        "certificate": judged.certificate(run),
        "examples": shown,
        "heads": heads,
        "spelling": spelling,
        "symbols": list(run.data.vocabulary.symbols),
        "rule": None if rule is None or rule.first.words else rule.padded.as_dict(),
        "model": weights,
        "why": why,
    }


def _plain(text: str) -> str:
    """A docstring's first lines as a person reads them."""
    return " ".join(text.replace("`", "").replace("->", "→").split())


def facts(run: Run, parameters: int, result: dict[str, Any]) -> list[tuple[str, str]]:
    """What it is and how it was made, as names and values."""
    config = run.config
    model, train = config.model.model_dump(), config.train
    base = "" if config.base is None else f", base {config.base}"
    shape = [
        counted(model[name], name.replace("_layers", "-layers")).replace("-", " ")
        for name in ("encoder_layers", "decoder_layers", "layers", "heads", "width")
        if model.get(name) is not None
    ]
    rows = [
        ("Task", f"{config.task}{base}"),
        ("Trained on", f"at most {train.length} {run.task.unit}, {train.sampling} sampling"),
        ("Model", ", ".join(shape)),
        (
            "Positions" if "scheme" in model else "Attender",
            getattr(config.model, "scheme", config.model.label),
        ),
        ("Parameters", f"{parameters:,}"),
        *_of_training(result, train.batch),
        ("Seed", str(train.seed)),
    ]
    if config.calibration is not None:
        rows.insert(1, ("Calibrated by", config.calibration.fit))
        rows.append(("Lines", run.bias().summary))
    return rows


def _of_training(result: dict[str, Any], batch: int) -> list[tuple[str, str]]:
    """How a training ended; nothing of one without a result."""
    if not result:
        return [("Training", "no result is recorded")]
    return [
        ("Steps", f"{result['steps']:,} of {batch} problems"),
        ("Time", f"{result['seconds']:.0f} s"),
        ("Held out", f"{result['validation_accuracy']} % of held-out problems right"),
    ]


def history_chart(history: Sequence[Mapping[str, Any]]) -> str:
    """Held-out accuracy by step; empty where there is nothing to draw."""
    points = [entry for entry in history if entry["validation_accuracy"] is not None]
    if len(points) < 2:
        return ""
    with font("sans"):
        return as_svg(history_curve(points))


def embedded(model: Model) -> dict[str, Any]:
    """The model as plain data; ``UsageError`` says why the page cannot run it."""
    config = model.hub_config()
    if model.hub_names[0] not in RUNS:
        raise UsageError("the page computes Transformers, and this model is none")
    if config["scheme"] != "none" or config.get("cyclic"):
        raise UsageError(
            f"the page computes models without positions, and this one has {config['scheme']}"
        )
    if config.get("post_norm"):
        raise UsageError("the page computes pre-norm models, and this one is post-norm")
    tokens = model.tokens
    tensors = {
        name: b64encode(weight.numpy(force=True).astype("<f4").tobytes()).decode("ascii")
        for name, weight in model.state_dict().items()
    }
    lines = model.lines.to_dict() if model.lines is not None else None
    return {
        **{name: config.get(name, 0) for name in SHAPE},
        "stream": model.stream,
        **{"sos": tokens.sos, "eos": tokens.eos, "row": tokens.rows[0] if tokens.rows else None},
        **{"delimiters": list(tokens.delimiters)},
        **{"lines": lines, "tensors": tensors},
    }
