"""The verbs that judge a run: evaluate, predict, stress, certify; is it worse than before?

``progress``: show how far the work is; None does in a terminal or a notebook.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abc_calib.certification.certificate import Certificate
from abc_calib.certification.decide import certify as decide
from abc_calib.config import (
    CertifyOptions,
    EvaluateOptions,
    MachineOptions,
    StressOptions,
    build,
    documented,
)
from abc_calib.errors import AbcError, Interrupted
from abc_calib.evaluation import Prediction, Row
from abc_calib.evaluation import evaluate as exact_match_rows
from abc_calib.evaluation import predict as answer
from abc_calib.evaluation.stress import Stressed, smallest
from abc_calib.evaluation.stress import stress as stress_rows
from abc_calib.files import write_text
from abc_calib.nn.base import resolve_device
from abc_calib.progress import bar
from abc_calib.runs import Run
from abc_calib.runs.rows import add_rows, read_rows
from abc_calib.stopping import uninterrupted
from tasks import Size

if TYPE_CHECKING:
    import pandas as pd

AnyRun = Run | Path | str | None
"""A run, its folder or its name; None for the latest one."""


def opened(run: AnyRun) -> Run:
    """The run, whichever way it is named."""
    return run if isinstance(run, Run) else Run.open(run)


def ignore(*_: Any) -> None:
    """Hear nothing."""


@documented(EvaluateOptions, MachineOptions)
def evaluate(
    run: AnyRun = None,
    lengths: Sequence[Size] = tuple(range(1, 51)),
    *,
    operands: Sequence[int] | None = None,
    samples: int | None = None,
    sets: Sequence[str] = ("random",),
    seed: int = 0,
    greedy: bool = False,
    device: str = "auto",
    on_row: Callable[[Row], None] = ignore,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Exact match of a trained run at each length; adds to the run's ``eval.csv``.

    Columns: length, accuracy (percent), n, set, correct, low, high (95 % interval), test_seed,
    test_hash, seconds. In the file, a row of fewer samples never replaces one of more.
    """
    asked = build(EvaluateOptions, lengths=lengths, operands=operands, samples=samples, seed=seed)
    lengths = asked.sizes(())
    found = opened(run)
    path = found.path / "eval.csv"
    read_rows(path)  # refused before anything is measured
    model = found.load_model().to(resolve_device(device))
    rows: list[Row] = []
    known = [kind for kind in sets if kind in found.data.tests]
    total = sum(len(found.data.lengths_of(kind, lengths)) for kind in known)
    try:
        with bar("evaluating", progress, "rows") as update:

            def keep(row: Row) -> None:
                with uninterrupted():
                    add_rows(path, [row.as_dict()])
                    rows.append(row)
                measured = f"{row.set} {row.size} {found.task.unit}: {row.accuracy:.2f} %"
                update(len(rows), total, measured, True)
                on_row(row)

            exact_match_rows(model, found.data, lengths, samples, sets, seed, greedy, keep)
    except KeyboardInterrupt:
        kept = f"they are kept in {path}" if rows else "nothing was measured"
        raise Interrupted(f"stopped after {len(rows)} of {total} rows; {kept}") from None
    import pandas as pd  # takes longer than most predictions

    return pd.DataFrame([row.as_dict() for row in rows])


@documented(MachineOptions)
def predict(run: AnyRun, problem: str, *, device: str = "auto", show: bool = False) -> Prediction:
    """The model's answer to a problem as a person writes it; ``show``: and what it looked at.

    Raises ``TaskError`` if the problem is not one of the run's task, ``AbcError`` if the model
    writes no end within the longest possible answer or the source does not fit the memory.
    """
    found = opened(run)
    found.task.parse(problem)
    return answer(found.load_model().to(resolve_device(device)), found.data, problem, show)


@documented(StressOptions)
def stress(
    run: AnyRun = None,
    lengths: Sequence[int] | None = None,
    *,
    samples: int = 100,
    search: int = 2000,
    seed: int = 0,
    on_row: Callable[[Stressed], None] = ignore,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Hard inputs of every family at each length, and a search; writes the run's ``stress.json``.

    Columns: family, length, n, wrong, margin (of the search), failures (the first of them).

    ``lengths``: by default the training length, one more, and 50.
    """
    found = opened(run)
    short = found.config.train.length
    asked = build(StressOptions, lengths=lengths, samples=samples, search=search, seed=seed)
    wanted = asked.lengths or tuple(dict.fromkeys((short, short + 1, 50)))
    model = found.load_model()
    with bar("stress", progress, "lengths") as update:

        def told_row(row: Stressed) -> None:
            at = wanted.index(row.length) if row.length in wanted else 0
            note = f"{row.length} digits, {row.family}: {row.wrong} wrong"
            update(at + (row.family == "search"), len(wanted), note, True)
            on_row(row)

        rows = stress_rows(model, found.data, wanted, samples, search, seed, told_row)
    least = smallest(rows)
    told: dict[str, Any] = {
        "run": str(found),
        "task": found.config.task,
        "rows": [row.as_dict() for row in rows],
        "smallest": least.as_dict() if least else None,
    }
    write_text(found.path / "stress.json", json.dumps(told, indent=2) + "\n")
    import pandas as pd

    return pd.DataFrame(told["rows"])


@documented(CertifyOptions)
def certify(
    run: AnyRun = None,
    *,
    minutes: float = 15.0,
    on_windows: Callable[[int, int], None] = ignore,
    progress: bool | None = None,
) -> Certificate:
    """Decide about a trained run and write its certificate and page into its folder.

    ``on_windows`` hears how many windows of how many are done. Raises ``AbcError`` if the run has
    no trained model.
    """
    asked = build(CertifyOptions, minutes=minutes)
    with bar("checking windows", progress, "%") as update:

        def both(done: int, total: int) -> None:
            update(100 * done // total, 100, f"of {total}")
            on_windows(done, total)

        found = opened(run)
        found.check()
        return decide(found, minutes=asked.minutes, on_windows=both)


def first_result(run: Run) -> dict[str, Any] | None:
    """How the first training of a calibrated run ended; None where it is no longer there."""
    try:
        return Run.open(run.config.parent).result
    except AbcError:
        return None


def held_out_loss(run: Run) -> str:
    """What to say where a retrained model is worse on held-out problems than the first was."""
    first, result = first_result(run), run.result
    if not first or not result:
        return ""
    before, after = first["validation_accuracy"], result["validation_accuracy"]
    if after >= min(before, 99.9):
        return ""
    return (
        f"worse than before calibration: {after} % of held-out problems, {before} % before. Try "
        "another --threshold, more --steps or another --seed"
    )
