"""A run as the plain data that its page shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from abc_calib.errors import UsageError
from abc_calib.reporting.page import judged
from abc_calib.reporting.page.charts import history_chart
from abc_calib.reporting.page.commands import commands
from abc_calib.reporting.page.heads import heads_of
from abc_calib.reporting.page.weights import embedded
from abc_calib.runs import Run


def collected(run: Run, on_part: Callable[[str], None] = lambda part: None) -> dict[str, Any]:
    """Everything about a run. Where the page cannot compute its model, ``why`` says why not.

    ``on_part`` is called with what is looked at next.
    """
    on_part("model")
    model = run.load_model()
    config, result = run.config, run.result or {}
    rule = run.task.rule()
    spelling, weights, why = run.data.spelling(), None, "it does not know how sources are written"
    if spelling is not None:
        try:
            weights, why = embedded(model), ""
        except UsageError as error:
            why = str(error)
    on_part("examples")
    shown = judged.examples(run, model)
    on_part("attention")
    heads = heads_of(run)
    return {
        "name": run.path.resolve().name,
        "summary": run.summary,
        "task": config.task,
        "about": _plain((inspect.getdoc(type(run.task)) or "").split("\n\n")[0]),
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
        "doubt": run.doubt,
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
        f"{model[name]} {name.replace('_', ' ')}"
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
