"""``abc eval``, ``abc stress``, ``abc predict``, ``abc inspect`` and ``abc diagnose``."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice, zip_longest
from typing import Annotated, Any

import typer

import abc_calib as abc
from abc_calib.config import DrawOptions, EvaluateOptions, StressOptions
from abc_calib.errors import UsageError
from abc_calib.text import Table
from cli.command import Device, Figures, RunArgument, command, run_names
from cli.console import Result


@command(threads=0, tables=True)
def evaluate(options: EvaluateOptions, run: RunArgument = None, device: Device = "auto") -> Result:
    """Measure exact match at each length.

    An output is right if all of it is; the intervals are of 95 %.

    Examples: **abc eval --max-len 50 --json** · **abc eval --lengths 100,1000 --samples 1000
    --stress hard** · **abc eval --stress carry**
    """
    from abc_calib.reporting.page.commands import plugin_flags
    from abc_calib.reporting.tables import accuracy_table, token_table
    from abc_calib.runs.run import STAGES

    opened_run, rows = abc.Run.open(run), list[Any]()
    abc.evaluate(opened_run, options=options, device=device, on_row=rows.append)
    by_set: dict[str, list[Any]] = {}
    for row in rows:
        by_set.setdefault(row["set"], []).append(row)
    task, config = opened_run.task, opened_run.config
    about = f"{config.task} {STAGES[config.stage]}"
    title = f"{opened_run}: {about}, trained on at most {config.train.length} {task.unit}"
    caption, label = (
        f"Exact match in percent by length, {about}, seed {config.train.seed}",
        opened_run.path.resolve().name,
    )
    words = [row for row in rows if "edit_distance" in row]
    remarks = [f"written to {opened_run.path / 'eval.csv'} (rows of more samples stay as they are)"]
    if opened_run.data.only_lengths:
        remarks.append("longer problems are not known: its pairs follow no rule (--task names one)")
    if config.stage == "calibrated":
        remarks.append(f"next: abc certify{plugin_flags(config)}")
    return Result(
        {"run": str(opened_run), "task": config.task, "rows": rows},
        [token_table(words, title) if words else accuracy_table(by_set, title=title)],
        remarks,
        accuracy_table(by_set, caption, f"tab:{label}", intervals=False),
    )


@command(threads=0, tables=True)
def stress(options: StressOptions, run: RunArgument = None) -> Result:
    """Search for inputs that a model gets wrong.

    Mutates the worst of hard problems, such as carry chains; writes stress.json into the run.

    Examples: **abc stress** · **abc stress RUN --lengths 6,50,200 --search 5000**
    """
    from abc_calib.evaluation.stress import smallest

    opened_run, rows = abc.Run.open(run), list[Any]()
    abc.stress(opened_run, options=options, on_row=rows.append)
    heads = ("digits", "tried", "wrong", "smallest margin")
    table = Table(heads, [[row.length, row.n, row.wrong, row.margin] for row in rows], right=heads)
    failure, least = "nothing failed", smallest(rows)
    if least is not None:
        failure = f"the shortest problem that it gets wrong: {least.text()}"
    path = opened_run.path / "stress.json"
    return Result(json.loads(path.read_text()), [table, failure], [f"written to {path}"], table)


RunOption = Annotated[
    str | None, typer.Option(help="A run; the latest by default.", autocompletion=run_names)
]
Show = Annotated[
    bool,
    typer.Option("--show", help="Also all rows, and what each output token read."),
]


@command()
def predict(
    problem: Annotated[str, typer.Argument(help='A problem of the run\'s task, as in "999+1".')],
    run: RunOption = None,
    show: Show = False,
    device: Device = "auto",
) -> Result:
    """Let a trained model answer one problem.

    Example: **abc predict "999999999999+1"**
    """
    from tasks.base import TaskError

    opened_run = abc.Run.open(run)
    try:
        prediction = abc.predict(opened_run, problem, device=device, show=show)
    except TaskError as error:
        if run is not None:
            raise
        raise UsageError(f"{error} ({opened_run} is the latest run; --run names another)") from None
    trained = f"{opened_run.config.train.length} {opened_run.task.unit}"
    remark = {
        True: prediction.remark,
        False: f"this is wrong: {prediction.expected} is right (trained on at most {trained})",
        None: "nothing says whether this is right: its pairs follow no rule that is known",
    }[prediction.correct]
    answer = prediction.answer
    data: dict[str, Any] = {"problem": problem, "answer": answer, "correct": prediction.correct}
    data["expected"] = prediction.expected
    if not show:
        return Result(data, [answer], [remark])
    data["attended"] = [[token._asdict() for token in row] for row in prediction.attended]
    data["output"] = prediction.output
    words = opened_run.data.layout_at(1).words
    shown = written(prediction.output, data["attended"], words)
    return Result(data, [answer, *shown], [remark])


def written(
    output: list[str], attended: list[list[dict[str, Any]]], words: bool
) -> list[str | Table]:
    """Return the rows of an output, if it has several, and what each of its tokens read."""
    from abc_calib.geometry.layout import written_labels
    from tasks.rules import ROW

    read = ["  ".join(map(_read, row)) for row in attended]
    places = written_labels(len(output), output[-1])
    first = "0: the first word" if words else "a0: the last digit of the first operand"
    table = Table(
        ("", "writes", "reads directly (weight of its attention)"),
        [list(row) for row in zip(places, output, read, strict=False)],
        caption=f"{first}; y0: the first that is written. Weights are the largest of any head. "
        "What these tokens have read, such as a carry, comes with them.",
    )
    rows = " ".join(output[:-1]).replace(f" {ROW} ", f" {ROW}\n")
    return [*([f"rows\n{rows}"] if ROW in output else []), table]


def _read(token: dict[str, Any]) -> str:
    """A token that was read, as ``a0=9 (1.00)``; a delimiter is its own place."""
    place, symbol, weight = token.values()
    is_closer = place == symbol and not place.isdigit()
    return f"{place if is_closer else f'{place}={symbol}'} ({weight:.2f})"


Source = Annotated[str, typer.Option("--input", help="A source of the run's task.")]


@command()
def inspect(
    options: DrawOptions, source: Source, run: RunArgument = None, out: Figures = None
) -> Result:
    """Show where a recurrent model attended on one source.

    A table of each step, and figures.

    Example: **abc inspect --input "010 t3 t4 ."**
    """
    from abc_calib.evaluation import inspect as inspection
    from abc_calib.reporting.steps import draw_steps
    from abc_calib.reporting.style import font

    opened_run = inspection.opened(run)
    trace = inspection.inspect(opened_run, source)
    title = f"{opened_run.config.task}, {opened_run.config.model.label}"
    with font(options.font):
        folder = out or opened_run.path / "figures"
        files = draw_steps(trace, folder, title, options.format, options.inches)
    names = [str(path) for path in files]
    data = {"run": str(opened_run), "source": source, "files": names}
    for name in ("output", "correct", "looked", "gold", "variables"):
        data[name] = getattr(trace, name)
    wrong = "" if trace.correct else "this is wrong: the model has not learned this one"
    return Result(data, [steps(trace), *names], [wrong])


def steps(trace: Any) -> Table:
    """Return a row for each step: what was written, where it looked, the attender's variables."""
    columns = {
        "t": range(len(trace.output)),
        "writes": trace.output,
        "looks at": [f"{position:.2f}" for position in trace.looked],
        **({"gold": trace.gold} if trace.gold else {}),
        **{name: [f"{x:.3f}" for x in values] for name, values in trace.variables.items()},
    }
    rows = list(islice(zip_longest(*columns.values()), len(trace.output)))
    caption = "positions in words of the source, from 0; a step goes the way it is read"
    return Table([*columns], rows, right=columns.keys() - {"writes"}, caption=caption)


@command()
def diagnose(run: RunArgument = None) -> Result:
    """Measure whether the attention of a recurrent model works.

    Can it distinguish places?

    Example: **abc diagnose --json**
    """
    from abc_calib.evaluation import inspect as inspection

    opened_run = inspection.opened(run)
    diagnosis = inspection.diagnose(opened_run)
    numbers = {
        "score variance": diagnosis.score_variance,
        "cosine of states": diagnosis.similarity,
        "largest weight": diagnosis.peak,
        "read forwards (1), turned around (0)": diagnosis.forwards,
    }
    rows = [(name, f"{value:.4f}") for name, value in numbers.items() if value is not None]
    title = f"on {diagnosis.samples} held-out problems"
    table = Table(("measure", "value"), rows, right=("value",), title=title)
    findings = diagnosis.findings or ["nothing is wrong with its attention"]
    return Result({"run": str(opened_run), **asdict(diagnosis)}, [table, *findings])
