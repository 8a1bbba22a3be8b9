"""A folder to upload: a run's model with its tokenizer, and a model card that says what holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from abc_calib.errors import UsageError
from abc_calib.files import write_atomically
from abc_calib.nn.saved import OURS
from abc_calib.nn.tokenizer import tokenizer_files
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import FILE, PAGE, Certificate
from abc_calib.proof.page import filled
from abc_calib.reporting.page.commands import commands
from abc_calib.runs import Run
from abc_calib.runs.rows import Row, read_rows
from abc_calib.text import as_markdown, grouped
from tasks.arithmetic import Arithmetic
from tasks.whole import Whole

TEMPLATE = Path(__file__).with_name("card.md.jinja")


def card(run: Run | Path | str | None, folder: Path | str) -> Path:
    """Write model, tokenizer, certificate and model card of a run into a new folder.

    ``UsageError`` if the folder is there already, or for a model of ``transformers``, whose folder
    has its own tokenizer.
    """
    run, folder = Run.open(run), Path(folder)
    run.check()
    only_ours(run, "abc card")
    if folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder")
    text, tokenizer = _text(run), tokenizer_files(run.data.vocabulary)

    def write(temporary: Path) -> None:
        temporary.mkdir()
        for path in [
            *(run.path / "model" / name for name in OURS),
            run.path / FILE,
            run.path / PAGE,
        ]:
            if path.exists():
                shutil.copyfile(path, temporary / path.name)
        for name, content in tokenizer.items():
            (temporary / name).write_text(json.dumps(content, indent=2) + "\n")
        (temporary / "README.md").write_text(text)

    write_atomically(folder, write, replace=False)
    return folder


def _text(run: Run) -> str:
    """The card: its example is a problem that the model answers now."""
    config, model, data = run.config, run.load_model(), run.data
    certificate = Certificate.load(run) if (run.path / FILE).exists() else None
    batch = data.test(min(3, config.train.length), 1)
    symbols = data.vocabulary.symbols
    separator = "" if all(len(symbol) == 1 for symbol in symbols) else " "
    ids = [i for i in batch.source[0].tolist() if i != data.vocabulary.pad]
    output = model.decode(batch.source.to(model.device), batch.target.shape[1]).ids[0]
    measured = read_rows(run.path / "eval.csv")
    rows = [
        [row["length"], row["set"], f"{row['accuracy']:g}", f"{row['n']:,}"]
        for _, of_set in groupby(measured, key=itemgetter("set"))
        for row in _spread([*of_set])
    ]
    return filled(
        TEMPLATE.read_text("utf-8"),
        config=config,
        unit=run.task.unit,
        certificate=certificate,
        reason=grouped(certificate.reason) if certificate else "",
        source=separator.join(symbols[i] for i in ids[1:-1]),
        output=data.vocabulary.text(output.tolist(), separator),
        digits=isinstance(run.task, Arithmetic),
        aligned=isinstance(run.task, Arithmetic | Whole),
        commands=commands(run),
        table=as_markdown(["length", "test set", "right, %", "samples"], rows, "rlrr"),
        rows=rows,
        measured=measured,
    )


def _spread(rows: Sequence[Row]) -> list[Row]:
    """At most 12 rows from the first to the last, and the one of the lowest accuracy."""
    lowest = min(range(len(rows)), key=lambda k: rows[k]["accuracy"])
    kept = {*np.linspace(0, len(rows) - 1, 12).astype(int).tolist(), lowest}
    return [rows[k] for k in sorted(kept)]
