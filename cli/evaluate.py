"""``abc eval``, ``abc stress`` and ``abc predict``."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import DeviceOptions, EvaluateOptions, StressOptions, ThreadOptions
from abc_calib.progress import busy
from abc_calib.text import Table, counted
from cli.command import FREE, RunArgument, RunOption, command
from cli.console import Result, Sentence

if TYPE_CHECKING:
    from abc_calib.evaluation import Prediction, Row
    from abc_calib.evaluation.stress import Stressed


@command(ThreadOptions, threads=FREE, tables=True)
def evaluate(
    options: EvaluateOptions,
    machine: DeviceOptions,
    run: RunArgument = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="With --latex and --csv: the 95 % intervals, too.")
    ] = False,
) -> Result:
    """Exact match of whole outputs at each length, with 95 % intervals.

    Examples: **abc eval --max-len 50 --json** · **abc eval --lengths 100,1000 --samples 1000
    --stress hard** · **abc eval --stress carry**
    """
    from abc_calib import stages
    from abc_calib.evaluation import SequenceRow
    from abc_calib.reporting.tables import accuracy_table, token_table
    from abc_calib.runs import Run
    from abc_calib.runs.rows import kept_rows

    opened_run = Run.open(run)
    rows: list[Row] = []
    stages.evaluate(opened_run, options=options, device=machine.device, on_row=rows.append)
    by_set: dict[str, list[Row]] = {}
    for row in rows:
        by_set.setdefault(row.set, []).append(row)
    words = [row for row in rows if isinstance(row, SequenceRow)]
    file = opened_run.path / "eval.csv"
    remark = f"written to {file}"
    if kept := kept_rows(file, (row.as_dict() for row in rows)):
        remark += (
            f", which keeps {kept} of {counted(len(rows), 'rows')}, measured with more samples"
        )
    caption = (
        f"Exact match in percent of {opened_run.config.task} ({opened_run.config.stage}), by length"
    )
    return Result(
        {
            "run": str(opened_run),
            "task": opened_run.config.task,
            "rows": [row.as_dict() for row in rows],
        },
        [token_table(words) if words else accuracy_table(by_set)],
        [remark],
        accuracy_table(by_set, caption, f"tab:{opened_run.config.task}", intervals),
    )


@command(ThreadOptions, threads=FREE, tables=True)
def stress(options: StressOptions, run: RunArgument = None) -> Result:
    """Look for inputs that a model gets wrong: carry chains, all nines, and a search.

    Writes stress.json into the run.

    Examples: **abc stress** · **abc stress RUN --lengths 6,50,200 --search 5000**
    """
    from abc_calib import stages
    from abc_calib.evaluation.stress import smallest
    from abc_calib.runs import Run

    opened_run = Run.open(run)
    rows: list[Stressed] = []
    stages.stress(opened_run, options=options, on_row=rows.append)
    least, path, table = smallest(rows), opened_run.path / "stress.json", _table(rows)
    failure = (
        "nothing failed"
        if least is None
        else Sentence(f"smallest failure: {least.text()}; around it are {' / '.join(least.around)}")
    )
    report = json.loads(path.read_text())
    return Result(report, [table, failure], [f"written to {path}"], table)


def _table(rows: list[Stressed]) -> Table:
    lengths = sorted({row.length for row in rows})
    lines: dict[str, dict[int, str]] = {}
    for row in rows:
        lines.setdefault(row.family, {})[row.length] = f"{row.wrong}/{row.n}"
    if margins := {row.length: f"{row.margin:.2f}" for row in rows if row.margin is not None}:
        lines["smallest margin in the search"] = margins
    heads = [str(length) for length in lengths]
    cells = [[name, *map(by_length.get, lengths)] for name, by_length in lines.items()]
    return Table(["inputs", *heads], cells, right=heads, title="wrong of tried, by digits")


@command(ThreadOptions)
def predict(
    machine: DeviceOptions,
    problem: Annotated[str, typer.Argument(help='A problem of the run\'s task, as in "999+1".')],
    run: RunOption = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Also all rows, and which input digits each output digit read."
        ),
    ] = False,
) -> Result:
    """Let a trained model answer one problem.

    Example: **abc predict "999999999999+1"**
    """
    from abc_calib import stages
    from tasks.rules import ROW

    with busy("writing", None):
        prediction = stages.predict(run, problem, device=machine.device, show=show)
    data: dict[str, Any] = {
        "problem": problem,
        "answer": prediction.answer,
        "correct": prediction.correct,
    }
    remark = (
        prediction.remark
        if prediction.correct
        else "this is wrong: the model has not learned this one"
    )
    if prediction.correct is None:
        remark = "nothing says whether this is right: its pairs follow no rule that is known"
    if not show:
        return Result(data, [prediction.answer], [remark])
    rows = " ".join(prediction.output[:-1]).replace(f" {ROW} ", f" {ROW}\n")
    several = [f"rows\n{rows}"] if ROW in prediction.output else []
    data |= {"attended": _named(prediction), "output": prediction.output}
    return Result(data, [prediction.answer, *several, _attention(prediction)], [remark])


def _named(prediction: Prediction) -> list[list[dict[str, Any]]]:
    return [
        [
            {"place": prediction.places[k], "digit": prediction.tokens[k], "weight": w}
            for k, w in keys
        ]
        for keys in prediction.attended
    ]


def _attention(prediction: Prediction) -> Table:
    """For each output token, the source tokens it attended to."""
    read = [
        "  ".join(
            f"{prediction.places[key]}={prediction.tokens[key]} ({weight:.2f})"
            for key, weight in keys
        )
        for keys in prediction.attended
    ]
    return Table(
        ("step", "writes", "reads (a0: the last token of the first operand)"),
        list(zip(count(1), prediction.output, read, strict=False)),
        title="output, in the order of writing",
    )
