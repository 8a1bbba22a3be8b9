"""A run as the plain data that its page shows."""

from __future__ import annotations

import inspect
import os
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import torch

from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.exact import matches
from abc_calib.evaluation.predict import answered
from abc_calib.nn.base import Model
from abc_calib.proof.certificate import FILE, Certificate
from abc_calib.reporting.curves import history_curve
from abc_calib.reporting.of_runs import about, accuracy, parent_of, verdict
from abc_calib.reporting.page.commands import commands
from abc_calib.reporting.page.heads import heads_of
from abc_calib.reporting.style import as_svg, font
from abc_calib.runs import Run
from abc_calib.runs.run import STAGES
from abc_calib.text import grouped

FITS = {
    "nnls": "non-negative least squares",
    "rows": "non-negative least squares, by kind of row",
    "mean": "means along lines, as in the paper",
}
KINDS = ("abc_transformer", "abc_decoder")
"""The kinds of models that the page's JavaScript computes."""
SHAPE = ("d_model", "heads", "encoder_layers", "decoder_layers")


def collected(run: Run) -> dict[str, Any]:
    """Return everything about a run; ``why`` says why the page cannot compute its model."""
    before = parent_of(run)
    model, config, rule = run.load_model(), run.config, run.task.rule()
    spelling = run.data.spelling()
    weights, why = None, "this page cannot read problems of this task"
    if spelling is not None:
        try:
            weights, why = embedded(model), ""
        except UsageError as error:
            why = str(error)
    heads = heads_of(run)
    return {
        **about(run),
        "summary": run.summary,
        "task": config.task,
        "title": titled(run),
        **introduction(run),
        "verdicts": {
            STAGES[r.config.stage]: verdict(accuracy(r), r.config.train.length, r.task.unit)
            for r in (before, run)
            if r
        },
        "unit": run.task.unit,
        "length": config.train.length,
        "facts": facts(run, sum(weight.numel() for weight in model.parameters())),
        "commands": commands(run),
        "history": history_chart([before, run] if before else [run]),
        "accuracy": accuracy(run),
        "certificate": certificate(run),
        "examples": examples(run, model),
        "heads": heads,
        "rests": heads["rests"] if heads else {},
        "spelling": spelling,
        "symbols": list(run.data.vocabulary.symbols),
        "rule": None if rule is None or rule.first.words else rule.padded.as_dict(),
        "model": weights,
        "why": why,
    }


def titled(run: Run) -> str:
    """Return what a person calls the run's task."""
    return run.task.title or run.config.task.replace("_", " ")


def introduction(run: Run) -> dict[str, str]:
    """Say in a sentence what a model is (``intro``), and in one what its task is (``about``)."""
    config = run.config
    kind = "recurrent network" if config.kind == "gru" else "Transformer"
    usual = getattr(run.task, "default_base", config.base)
    base = f" in base {config.base}" if config.base != usual else ""
    about = (inspect.getdoc(type(run.task)) or "").split("\n\n")[0]
    about = " ".join(about.replace("`", "").replace("->", "→").split())
    intro = (
        f"A small {kind} that learned {titled(run)}{base} from examples of at "
        f"most {config.train.length} {run.task.unit}."
    )  # the example of ``about`` has digits of the usual base
    return {"intro": intro, "about": about.partition(":")[0] + "." if base else about}


def facts(run: Run, parameters: int) -> list[tuple[str, str]]:
    """Return what a run is and how it was made, as names and values."""
    config, result = run.config, run.result
    model, train = config.model.model_dump(), config.train
    names = ("encoder_layers", "decoder_layers", "layers", "heads", "width")
    sizes = {name.replace("_", " "): model[name] for name in names if model.get(name) is not None}
    shape = [f"{n} {name.removesuffix('s') if n == 1 else name}" for name, n in sizes.items()]
    rows = [
        ("Task", config.task + ("" if config.base is None else f", base {config.base}")),
        ("Trained on", f"at most {train.length} {run.task.unit}, {train.sampling} sampling"),
        ("Model", ", ".join(shape)),
        ("Positions" if "scheme" in model else "Attender", model.get("scheme", config.model.label)),
        ("Parameters", f"{parameters:,}"),
        ("Seed", str(train.seed)),
    ]
    if result:
        rows += [
            ("Steps", f"{result['steps']:,} of {train.batch} problems"),
            ("Time", f"{result['seconds']:.0f} s"),
            ("Held out", f"{result['validation_accuracy']} % of held-out problems right"),
        ]
    if config.calibration is not None:
        rows += [
            ("Lines found by", FITS.get(config.calibration.fit, config.calibration.fit)),
            ("Lines", run.bias().summary),
        ]
    return rows


def history_chart(runs: Sequence[Run]) -> str:
    """Draw held-out accuracy by step; empty where there is nothing to draw."""
    histories: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        points = [entry for entry in run.history() if entry["validation_accuracy"] is not None]
        histories |= {STAGES[run.config.stage]: points} if points else {}
    with font("sans"):
        return as_svg(history_curve(histories)) if histories else ""


def embedded(model: Model) -> dict[str, Any]:
    """Return the model as plain data; ``UsageError`` says why the page cannot run it."""
    config = model.hub_config()
    if model.hub_names[0] not in KINDS:
        raise UsageError("the page computes Transformers, and this model is not one")
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
    return {
        **{name: config.get(name, 0) for name in SHAPE},
        "stream": model.stream,
        "sos": tokens.sos,
        "eos": tokens.eos,
        "row": tokens.rows[0] if tokens.rows else None,
        "delimiters": list(tokens.delimiters),
        "lines": model.lines.to_dict() if model.lines is not None else None,
        "tensors": tensors,
    }


# How good it is: what other commands have found is read, and nothing measured but examples

LENGTHS, LONGEST_IN_ROWS = (20, 50), 20
"""Of the examples, with the training length, the next one and twice it; longest in rows."""
TRIED = 8
"""Problems of a length, of which a wrong one is the example."""
HIDDEN = ("fingerprint", "rule", "lines", "source", "machine", "repair")
"""Fields of a certificate that the page does not show."""


def certificate(run: Run) -> dict[str, Any] | None:
    """Return the run's certificate, or why it does not count; None where there is none."""
    if not os.path.lexists(run.path / FILE):
        return None
    try:
        stored = Certificate.load(run)
    except AbcError as error:
        return {"outcome": "not valid", "reason": str(error)}
    fields = {name: value for name, value in stored.as_dict().items() if name not in HIDDEN}
    fields |= {"verified_here": stored.verified_here, "reason": grouped(stored.reason)}
    return {**fields, "counterexamples": fields["counterexamples"][:3]}


@torch.inference_mode()
def examples(run: Run, model: Model) -> list[dict[str, Any]]:
    """Return a problem of each length, wrong if one is: what was written, and what is right."""
    data, short = run.data, run.config.train.length
    lengths = {short, short + 1, *(n for n in (2 * short, *LENGTHS) if n > short)}
    if data.vocabulary.tokens.rows:
        lengths = {length for length in lengths if length <= LONGEST_IN_ROWS}
    cases = []
    for length in sorted(lengths):
        try:
            batch = data.test(length, TRIED)
        except AbcError:  # a task without problems of this length
            continue
        if not len(batch):
            continue
        wrong = (~matches(model, data, batch)).nonzero()[:1, 0]
        sample = batch.take(wrong if len(wrong) else torch.tensor([0]))
        problem = data.task.write(sample.problems, 0)
        ids = [i for i in sample.target[0].tolist() if i != data.vocabulary.pad]
        right = [data.vocabulary.symbols[i] for i in ids]
        answer, solution = answered(model, data, problem, 2).text, data.read(right[:-1])
        case = {"length": length, "problem": problem, "answer": answer, "solution": solution}
        cases.append({**case, "right": right, "good": not len(wrong)})
    return cases
