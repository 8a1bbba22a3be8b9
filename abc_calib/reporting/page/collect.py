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


LEARNED = {
    "successor": "add 1 to a number",
    "addition": "add two numbers",
    "addition3": "add three numbers",
    "addition4": "add four numbers",
    "subtraction": "subtract one number from another",
    "sum": "add any number of numbers",
    "multiplication": "multiply a number by one digit",
    "multiplication2": "multiply a number by one of two digits",
    "multiplication3": "multiply a number by one of three digits",
    "long_multiplication": "multiply two long numbers",
    "parity": "tell whether a number of ones is odd",
    "automaton": "run a finite automaton",
    "tape": "run a machine, one row of output per step,",
    "sort": "sort symbols",
    "division": "divide numbers",
    "compare": "compare two numbers",
    "copy": "copy words",
    "reverse_copy": "write words backwards",
}
"""What a model of a task learned, for the first line of its page; others have their name."""


def intro(task: str, kind: str, length: int, unit: str, other_base: int | None = None) -> str:
    """What a model is, in one sentence for a person who knows nothing of it."""
    model = "recurrent network" if kind == "gru" else "Transformer"
    learned = LEARNED.get(task, f"solve the task {task}")
    base = f" in base {other_base}" if other_base else ""
    return (
        f"A small {model} that learned to {learned}{base} from examples of at most {length} {unit}."
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
    other = config.base if usual not in (None, config.base) else None
    on_part("examples")
    shown = judged.examples(run, model)
    on_part("attention")
    heads = heads_of(run)
    return {
        "name": run.path.resolve().name,
        "summary": run.summary,
        "task": config.task,
        "intro": intro(config.task, config.kind, config.train.length, run.task.unit, other),
        "about": about.partition(":")[0] + "." if other else about,
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
    found = [
        ("Task", f"{config.task}{base}"),
        ("Trained on", f"at most {train.length} {run.task.unit}, {train.sampling} sampling"),
        ("Model", ", ".join(shape)),
        (
            "Positions" if "scheme" in model else "Attender",
            getattr(config.model, "scheme", config.model.label),
        ),
        ("Parameters", f"{parameters:,}"),
        ("Steps", f"{result.get('steps', '?'):,} of {train.batch} problems"),
        ("Time", f"{result.get('seconds', 0):.0f} s" if result else "unknown"),
        ("Held out", f"{result.get('validation_accuracy', '?')} % of held-out problems right"),
        ("Seed", str(train.seed)),
    ]
    if config.calibration is not None:
        found.insert(1, ("Calibrated by", config.calibration.fit))
        found.append(("Lines", run.bias().summary))
    return found


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
    if config["scheme"] != "none" or config.get("own_schemes") or config.get("cyclic"):
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
