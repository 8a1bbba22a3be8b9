"""``abc eval``, ``abc stress`` and ``abc predict``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from abc_calib.config import EvaluateOptions, StressOptions
from abc_calib.text import Table, counted
from cli.command import Device, RunArgument, command
from cli.completion import run_names
from cli.console import Result


@command(threads=0, tables=True)
def evaluate(
    options: EvaluateOptions,
    run: RunArgument = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="With --latex and --csv: the 95 % intervals, too.")
    ] = False,
    device: Device = "auto",
) -> Result:
    """Exact match of whole outputs at each length, with 95 % intervals.

    Examples: **abc eval --max-len 50 --json** · **abc eval --lengths 100,1000 --samples 1000
    --stress hard** · **abc eval --stress carry**
    """
    from abc_calib import stages
    from abc_calib.evaluation import Row, SequenceRow
    from abc_calib.reporting.tables import accuracy_table, token_table
    from abc_calib.runs import Run
    from abc_calib.runs.rows import kept_rows
    from abc_calib.runs.run import STAGES

    opened_run = Run.open(run)
    rows: list[Row] = []
    stages.evaluate(opened_run, options=options, device=device, on_row=rows.append)
    by_set: dict[str, list[Row]] = {}
    for row in rows:
        by_set.setdefault(row.set, []).append(row)
    words = [row for row in rows if isinstance(row, SequenceRow)]
    records = [row.as_dict() for row in rows]
    remark = f"written to {opened_run.path / 'eval.csv'}"
    if kept := kept_rows(opened_run.path / "eval.csv", records):
        remark += f", which keeps {kept} of {counted(len(rows), 'rows')}, of more samples"
    task, stage = opened_run.config.task, STAGES[opened_run.config.stage]
    caption = f"Exact match in percent of {task}, {stage}, by length"
    trained = f"trained on at most {opened_run.config.train.length} {opened_run.task.unit}"
    title = f"{opened_run}: {task}, {stage}, {trained}"
    return Result(
        {"run": str(opened_run), "task": task, "rows": records},
        [token_table(words, title) if words else accuracy_table(by_set, title=title)],
        [remark],
        accuracy_table(by_set, caption, f"tab:{opened_run.path.resolve().name}", intervals),
    )


@command(threads=0, tables=True)
def stress(options: StressOptions, run: RunArgument = None) -> Result:
    """Look for inputs that a model gets wrong: carry chains, all nines, and a search.

    Writes stress.json into the run.

    Examples: **abc stress** · **abc stress RUN --lengths 6,50,200 --search 5000**
    """
    from abc_calib import stages
    from abc_calib.evaluation.stress import smallest
    from abc_calib.runs import Run

    opened_run, rows = Run.open(run), list[Any]()
    stages.stress(opened_run, options=options, on_row=rows.append)
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        cells.setdefault(row.family, {})[row.length] = f"{row.wrong}/{row.n}"
    if margins := {row.length: f"{row.margin:.2f}" for row in rows if row.margin is not None}:
        cells["smallest margin in the search"] = margins
    lengths = sorted({row.length for row in rows})
    heads = [str(length) for length in lengths]
    lines = [[name, *map(by_length.get, lengths)] for name, by_length in cells.items()]
    table = Table(["inputs", *heads], lines, right=heads, title="wrong of tried, by digits")
    failure, least = "nothing failed", smallest(rows)
    if least is not None:
        around = " / ".join(least.around)
        failure = f"smallest failure: {least.text()}; around it are {around}"
    path = opened_run.path / "stress.json"
    return Result(json.loads(path.read_text()), [table, failure], [f"written to {path}"], table)


@command()
def predict(
    problem: Annotated[str, typer.Argument(help='A problem of the run\'s task, as in "999+1".')],
    run: Annotated[
        str | None, typer.Option(help="A run; the latest by default.", autocompletion=run_names)
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Also all rows, and which input digits each output digit read."
        ),
    ] = False,
    device: Device = "auto",
) -> Result:
    """Let a trained model answer one problem.

    Example: **abc predict "999999999999+1"**
    """
    from abc_calib import stages
    from tasks.rules import ROW

    prediction = stages.predict(run, problem, device=device, show=show)
    remark = {
        True: prediction.remark,
        False: "this is wrong: the model has not learned this one",
        None: "nothing says whether this is right: its pairs follow no rule that is known",
    }[prediction.correct]
    data: dict[str, Any] = {
        "problem": problem,
        "answer": prediction.answer,
        "correct": prediction.correct,
    }
    if not show:
        return Result(data, [prediction.answer], [remark])
    attended = [
        [
            {"place": prediction.places[key], "digit": prediction.tokens[key], "weight": weight}
            for key, weight in keys
        ]
        for keys in prediction.attended
    ]
    read = [
        "  ".join(f"{key['place']}={key['digit']} ({key['weight']:.2f})" for key in keys)
        for keys in attended
    ]
    table = Table(
        ("step", "writes", "reads (a0: the last token of the first operand)"),
        [[n, *pair] for n, pair in enumerate(zip(prediction.output, read, strict=False), 1)],
        title="output, in the order of writing; of what is read, the digits of the source",
    )
    rows = " ".join(prediction.output[:-1]).replace(f" {ROW} ", f" {ROW}\n")
    shown = [f"rows\n{rows}"] if ROW in prediction.output else []
    data |= {"attended": attended, "output": prediction.output}
    return Result(data, [prediction.answer, *shown, table], [remark])
