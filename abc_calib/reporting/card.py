"""A folder to upload: a run's model with its tokenizer, and a model card that says what holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from abc_calib.errors import UsageError
from abc_calib.files import write_atomically
from abc_calib.nn.saved import OURS
from abc_calib.nn.tokenizer import tokenizer_files
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import FILE, Certificate
from abc_calib.proof.page import page
from abc_calib.reporting.page.commands import commands
from abc_calib.runs import Run
from abc_calib.runs.rows import read_rows
from abc_calib.text import as_markdown, grouped
from tasks.arithmetic import Arithmetic
from tasks.whole import Whole

CARD = """---
license: mit
library_name: transformers
tags: [abc-calib, arithmetic, length-generalization, attention-bias-calibration{tag}]
---
# {name}

A small Transformer for the task *{task}*{base}, trained on at most {length} {unit}.

{verdict}

## Use

```python
from abc_calib.nn import hub  # registers the model
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
ids = tokenizer("{source}", return_tensors="pt")
print(tokenizer.decode(model.generate(**ids)[0], skip_special_tokens=True))  # {written}
print(pipeline("abc-calib", model=model, tokenizer=tokenizer)("{source}"))
```

One token is one symbol. Sources are written as above{aligned}; {order}.
It needs the program abc-calib: `pip install .` in a checkout of its repository. FOLDER is
this folder, or what `hf download USER/NAME --local-dir FOLDER` made.

## How it was made

```sh
{commands}
```
{table}{certificate}"""


def card(run: Run | Path | str | None, folder: Path | str) -> Path:
    """Write model, tokenizer, certificate and model card of a run into a new folder.

    ``UsageError`` if the folder is there already, or for a model of ``transformers``, whose folder
    has its own tokenizer.
    """
    found, folder = Run.open(run), Path(folder)
    found.check()
    only_ours(found, "abc card")
    if folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder")
    text = _text(found)

    def write(made: Path) -> None:
        made.mkdir()
        for name in OURS:
            shutil.copyfile(found.path / "model" / name, made / name)
        for name, content in tokenizer_files(found.data.vocabulary).items():
            (made / name).write_text(json.dumps(content, indent=2) + "\n")
        (made / "README.md").write_text(text)
        if (found.path / FILE).exists():
            shutil.copyfile(found.path / FILE, made / FILE)

    write_atomically(folder, write, replace=False)
    return folder


def _text(run: Run) -> str:
    """The card."""
    config, model, data = run.config, run.load_model(), run.data
    certificate = Certificate.load(run) if (run.path / FILE).exists() else None
    batch = data.test(min(3, config.train.length), 1)
    target = batch.target.to(model.device)
    separator = "" if all(len(symbol) == 1 for symbol in data.vocabulary.symbols) else " "
    given = [i for i in batch.source[0].tolist() if i != data.vocabulary.pad]
    source = separator.join(data.vocabulary.symbols[i] for i in given[1:-1])
    written = model.decode(batch.source.to(model.device), target.shape[1]).ids[0]
    digits = isinstance(run.task, Arithmetic)
    numbers = digits or isinstance(run.task, Whole)
    return CARD.format(
        name=f"{config.task} ({config.stage}, seed {config.train.seed})",
        tag=f", {certificate.outcome}" if certificate else "",
        task=config.task.replace("_", " "),
        base=f" in base {config.base}" if config.base else "",
        length=config.train.length,
        unit=run.task.unit,
        verdict=_verdict(certificate),
        source=source,
        written=data.vocabulary.text(written.tolist(), separator),
        aligned=", numbers of one problem filled with zeros to one width" if numbers else "",
        order="answers begin with their last digit" if digits else "answers as they are written",
        commands="\n".join(commands(run)),
        table=_evaluated(run),
        certificate=f"\n{page(certificate.as_dict())}" if certificate else "",
    )


def _verdict(certificate: Certificate | None) -> str:
    if certificate is None:
        return "It has no certificate: its accuracy was at most measured, not proved."
    reason = grouped(certificate.reason)
    if certificate.outcome != "certified":
        return f"Its certificate says **{certificate.outcome}**: {reason}."
    return (
        "It is **certified for every length**: "
        f"{reason}, smallest logit margin {certificate.margin}. The certificate is "
        f"in `{FILE}` and below. It was {'' if certificate.verified_here else 'not '}verified on "
        "the machine where this card was written."
    )


def _evaluated(run: Run) -> str:
    """What ``abc eval`` measured, if it did."""
    rows = read_rows(run.path / "eval.csv")
    if not len(rows):
        return ""
    shown = [[r["length"], r["set"], f"{r['accuracy']:g}", f"{r['n']:,}"] for r in rows]
    columns = ["length", "test set", "right, %", "samples"]
    return f"\n## Measured\n\n{as_markdown(columns, shown, 'rlrr')}"
