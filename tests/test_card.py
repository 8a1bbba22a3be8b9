"""A folder to upload loads through ``transformers`` alone, and says what holds."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoModelForSeq2SeqLM

import abc_calib as abc
from abc_calib.config import TrainOptions
from abc_calib.data import make_data
from abc_calib.errors import AbcError
from abc_calib.nn import hub
from abc_calib.nn.tokenizer import tokenizer_files
from abc_calib.runs.rows import add_rows
from tasks import TASKS, get_task

OPTIONS = {"automaton": {"machine": "s3"}, "tape": {"rule": "110"}}
FILES = {"scan", "cfq", "pairs"}
"""Tasks that read files."""


def test_the_card_runs(tiny: Any, tmp_path: Any, abc: Any) -> None:
    folder = tmp_path / "card"
    assert "there is no run" in abc("card", "nothing", "--out", folder).error(2)
    said = abc("card", tiny.calibrated, "--out", folder)
    assert said.code == 0 and "hf upload" in said.err
    text = (folder / "README.md").read_text()
    assert "has no certificate" in text
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    wanted = re.findall(r"# (\d+)$", code, re.MULTILINE)[0]
    seen: list[Any] = []
    exec(code.replace("FOLDER", str(folder)), {"print": seen.append})
    assert seen == [wanted]
    source = int(re.findall(r'tokenizer\("(\d+)"', code)[0])
    assert int(wanted[::-1]) == source + 1
    assert "is there already" in abc("card", tiny.calibrated, "--out", folder).error(2)
    assert "abc card --out FOLDER" in abc("card").error(2)


def test_of_many_measurements_a_card_has_some_and_the_lowest(tiny: Any, tmp_path: Any) -> None:
    rows = [
        {"length": n, "accuracy": 100.0 - (n == 9), "n": 50, "set": kind, "correct": 50, "low": 9.0}
        | {"high": 100.0, "test_seed": 0, "test_hash": "x", "seconds": 0.5}
        for kind, longest in (("carry", 10), ("random", 59))
        for n in range(1, longest)
    ]
    (tiny.calibrated / "eval.csv").unlink(missing_ok=True)
    add_rows(tiny.calibrated / "eval.csv", rows)
    text = (abc.card(tiny.calibrated, tmp_path / "card") / "README.md").read_text()
    lengths = re.findall(r"\| (\d+) \| random \|", text)
    assert {"1", "9", "58"} < {*lengths} and len(lengths) <= 13 and text.count("| carry |") == 9
    assert f"{9 + len(lengths)} of 67 measurements" in text


@pytest.mark.parametrize("name", sorted({*TASKS} - FILES))
def test_a_tokenizer_reads_what_the_model_reads(name: str) -> None:
    """Problems of every task, as the model is given them, from their text."""
    task = get_task(name, **OPTIONS.get(name, {}))
    data = make_data(task, TrainOptions(length=task.train_length, sampling=task.sampling))
    words = Tokenizer.from_str(json.dumps(tokenizer_files(data.vocabulary)["tokenizer.json"]))
    batch, known = data.training(0, 20), data.vocabulary
    separator = "" if all(len(symbol) == 1 for symbol in known.symbols) else " "
    for row in batch.source.tolist():
        ids = [one for one in row if one != known.pad]
        text = separator.join(known.symbols[one] for one in ids[1:-1])  # may hold an end itself
        assert words.encode(text).ids == ids
        assert words.decode(ids) == known.text(row, separator)


def test_a_certified_card_loads_with_what_a_download_leaves_behind(
    tiny: Any, tmp_path: Any
) -> None:
    made = abc.certify(tiny.calibrated)
    folder = abc.card(tiny.calibrated, tmp_path / "card")
    assert "certified for every length" in (folder / "README.md").read_text()
    assert json.loads((folder / "certificate.json").read_text())["windows"] == made.windows
    (folder / ".gitattributes").touch()
    assert hub.load(folder).network.lines is not None
    shutil.rmtree(folder)
    with pytest.raises(AbcError, match="is not a saved model"):
        AutoModelForSeq2SeqLM.from_pretrained(
            str(folder), config=hub.FACES["abc_transformer"].config_class()
        )
