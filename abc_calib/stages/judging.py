"""The functions that judge a run and write what it is: evaluate, predict, stress, certify, export.

``progress``: show how far the work is; None does in a terminal or a notebook.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abc_calib import plugins
from abc_calib.config import CertifyOptions, EvaluateOptions, StressOptions, TaskOptions, build
from abc_calib.errors import Interrupted, OptionError, UsageError
from abc_calib.evaluation import Evaluator, Prediction
from abc_calib.evaluation import predict as answer
from abc_calib.evaluation.exact import planned_rows, row_of
from abc_calib.evaluation.stress import CHILDREN, Stressed, searched, smallest
from abc_calib.files import write_atomically, write_text
from abc_calib.memory import check_samples, check_source
from abc_calib.nn.base import resolve_device
from abc_calib.progress import bar
from abc_calib.proof.certificate import Certificate
from abc_calib.proof.decide import decide
from abc_calib.proof.outlook import Outlook, look_ahead
from abc_calib.runs import Run
from abc_calib.runs.rows import Row, add_rows, read_rows, size_of
from abc_calib.runs.run import STAGES
from abc_calib.stopping import uninterrupted
from abc_calib.text import counted, names
from tasks import Size, Task

if TYPE_CHECKING:
    import pandas as pd

AnyRun = Run | Path | str | None
"""A run, its folder or its name; None for the latest one."""


def ignore(*_: Any) -> None:
    """A callback that does nothing."""


def check_task(
    task: str | type[Task], *, options: TaskOptions | None = None, **keywords: Any
) -> Outlook:
    """Say whether a model on lines can do a task, and what it would see; in seconds, untrained.

    ``options`` or ``keywords``: ``TaskOptions``. ``UsageError`` says why not, or where the task's
    answers and its rule differ.
    """
    group = options or build(TaskOptions, **keywords)
    name = plugins.by_name("task", task)
    problem = plugins.make_task(name, base=group.base, **group.of_the_task)
    with plugins.in_one_line(name):
        return look_ahead(problem)


def evaluate(
    run: AnyRun = None,
    lengths: Sequence[Size] | None = None,
    *,
    sets: Sequence[str] = (),
    device: str = "auto",
    on_row: Callable[[Row], None] = ignore,
    progress: bool | None = None,
    options: EvaluateOptions | None = None,
    **keywords: Any,
) -> pd.DataFrame:
    """Exact match of a trained run at each length; adds to the run's ``eval.csv``.

    Columns: length, accuracy (percent), n, set, correct, low, high (95 % interval), test_seed,
    test_hash, seconds. In the file, a row of fewer samples never replaces one of more. ``on_row``
    is called with each row, a dict of these.

    ``sets``: test sets by their names, such as ``random`` and ``carry``. ``options`` or
    ``keywords``: ``EvaluateOptions``.
    """
    chosen = options or build(EvaluateOptions, lengths=lengths, **keywords)
    if chosen.lengths and "max_len" in chosen.model_fields_set:
        raise OptionError("max_len", chosen.max_len, "lengths are given; leave one out")
    loaded = Run.open(run)
    path, data = loaded.path / "eval.csv", loaded.data
    read_rows(path)  # refused before anything is measured
    sizes = chosen.lengths or lengths_by_default(loaded, chosen)
    kinds = names(sets) or chosen.sets(data.tests)
    model = loaded.load_model().to(resolve_device(device, doubles=True))
    evaluator, rows = Evaluator(model, chosen.dense), list[Row]()
    option = "lengths" if chosen.lengths else "max_len"
    planned = planned_rows(evaluator, data, sizes, chosen.samples, kinds, option)
    try:
        about = f"{loaded.config.task} {STAGES[loaded.config.stage]}"
        with bar(f"evaluating {about}", progress) as update:
            for plan in planned:
                row = row_of(evaluator, data, *plan, chosen.seed, chosen.greedy)
                with uninterrupted():
                    add_rows(path, [row])
                    rows.append(row)
                measured = f"{row['set']}, {counted(size_of(row), loaded.task.unit)}"
                tenths = [10 * done // len(planned) for done in (len(rows) - 1, len(rows))]
                update(len(rows), len(planned), measured, tenths[0] < tenths[1])
                on_row(row)
    except KeyboardInterrupt:
        kept = f"they are kept in {path}" if rows else "nothing was measured"
        raise Interrupted(f"stopped after {len(rows)} of {len(planned)} rows; {kept}") from None
    import pandas as pd  # takes longer than most predictions

    return pd.DataFrame(rows)


def lengths_by_default(run: Run, chosen: EvaluateOptions) -> list[int]:
    """Every length up to ``max_len``, or of these the ones that there are problems of."""
    shortest = getattr(run.task, "shortest", 1)
    if chosen.lengths is None and chosen.max_len < shortest:
        raise OptionError("max_len", chosen.max_len, f"give {shortest} or more")
    every = run.data.only_lengths or range(shortest, chosen.max_len + 1)
    return [length for length in every if length <= chosen.max_len]


def predict(run: AnyRun, problem: str, *, device: str = "auto", show: bool = False) -> Prediction:
    """The model's answer to a problem as a person writes it; ``show``: and what it looked at.

    Raises ``TaskError`` if the problem is not one of the run's task, ``AbcError`` if the model
    writes no end within the longest possible answer or the source does not fit the memory.
    """
    if not isinstance(problem, str):
        raise UsageError(f"{problem!r} is not text: give a problem as it is written, as in '12+34'")
    loaded = Run.open(run)
    loaded.task.parse(problem)
    return answer(
        loaded.load_model().to(resolve_device(device, doubles=True)), loaded.data, problem, show
    )


def stress(
    run: AnyRun = None,
    lengths: Sequence[int] | None = None,
    *,
    on_row: Callable[[Stressed], None] = ignore,
    progress: bool | None = None,
    options: StressOptions | None = None,
    **keywords: Any,
) -> pd.DataFrame:
    """Search each length for problems that a run gets wrong; writes its ``stress.json``.

    Columns: length, n, wrong, margin (the smallest), failures (the worst of them).

    ``lengths``: by default the training length, one more, and 50. ``options`` or ``keywords``:
    ``StressOptions``.
    """
    chosen = options or build(StressOptions, lengths=lengths, **keywords)
    loaded = Run.open(run)
    data, short = loaded.data, loaded.config.train.length
    sizes = chosen.lengths or tuple(dict.fromkeys((short, short + 1, 50)))
    evaluator, rows = Evaluator(loaded.load_model(), chosen.dense), list[Stressed]()
    check_source(evaluator, data.layout_at(max(sizes)).keys, 16, "lengths")
    check_samples(chosen.samples, max(sizes))
    check_samples(min(chosen.search, CHILDREN), max(sizes), "lengths")
    with bar("stress", progress, "lengths") as update:
        for number, length in enumerate(sizes, 1):
            row = searched(evaluator, data, length, chosen.samples, chosen.search, chosen.seed)
            note = f"{counted(length, 'digits')}: {row.wrong} wrong"
            update(number, len(sizes), note, True)
            rows.append(row)
            on_row(row)
    least = smallest(rows)
    record: dict[str, Any] = {
        "run": str(loaded),
        "task": loaded.config.task,
        "rows": [asdict(row) for row in rows],
        "smallest": asdict(least) if least else None,
    }
    write_text(loaded.path / "stress.json", json.dumps(record, indent=2) + "\n")
    import pandas as pd

    return pd.DataFrame(record["rows"])


def certify(
    run: AnyRun = None,
    *,
    on_windows: Callable[[int, int], None] = ignore,
    progress: bool | None = None,
    options: CertifyOptions | None = None,
    **keywords: Any,
) -> Certificate:
    """Decide about a trained run and write its certificate and page into its folder.

    ``on_windows`` is called with how many windows are done, of how many. ``options`` or
    ``keywords``: ``CertifyOptions``. Raises ``AbcError`` if the run has no trained model.
    """
    chosen = options or build(CertifyOptions, **keywords)
    with bar("checking windows", progress, "%") as update:

        def report(done: int, total: int) -> None:
            update(100 * done // total, 100, f"of {total}")
            on_windows(done, total)

        loaded = Run.open(run)
        loaded.check()
        certificate = decide(loaded, loaded.load_model(), chosen.minutes, report).certificate
        certificate.save(loaded)
        return certificate


FAR = 50
"""A length that arrays are made for besides the training length."""


def export_lines(
    run: AnyRun, lengths: Sequence[Size] | None = None, *, out: Path | str | None = None
) -> Path:
    """Write the biases of a calibrated run into an npz file, one array a length, site and layer.

    ``lengths``: of the problems, one random problem of each; by default the training length and 50,
    which pairs without a rule do not have.
    Array ``50/cross/layer0``, float32 ``(heads, queries, keys)``, is what is added to the scores of
    that layer; its queries and keys are the tokens of ``50/source`` and ``50/read``, ids of
    ``tokens``. ``out``: a new file, by default ``lines.npz`` in the run's folder. Raises
    ``UsageError`` for a run without lines, and for a file that is there.
    """
    loaded = Run.open(run)
    loaded.check()
    bias, data, arrays = loaded.lines(), loaded.data, dict[str, Any]()
    path = Path(out) if out is not None else loaded.path / "lines.npz"
    if out is not None and path.exists():
        raise UsageError(f"{path} is there already: name a new file")
    usual = dict.fromkeys((data.size, *(() if data.only_lengths else (data.sized(FAR),))))
    for length in lengths or usual:
        data.sized(length)  # which refuses what it does not have
        name = "x".join(map(str, length)) if isinstance(length, tuple) else str(length)
        batch = data.test(length, 1)
        target = batch.target[0].numpy()
        read = np.concatenate([[data.vocabulary.sos], target[:-1]])
        closes = np.flatnonzero(np.isin(target, [*data.vocabulary.rows, data.vocabulary.eos]))
        rows = np.diff(closes, prepend=-1).tolist()
        arrays |= {f"{name}/source": batch.source[0].numpy(), f"{name}/read": read}
        for site, layers in bias.sites.items():
            for layer in range(len(layers)):
                array = bias.matrix(site, layer, data.layout(batch.problems), rows)
                arrays[f"{name}/{site}/layer{layer}"] = array
    arrays["tokens"] = np.array(data.vocabulary.symbols)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(path, write)
    return path
