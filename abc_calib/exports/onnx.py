"""A calibrated model as ONNX: one pass from source and target ids to logits, of any length."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from abc_calib.data import Batch
from abc_calib.errors import AbcError, UsageError
from abc_calib.exports.lines import opened, place
from abc_calib.files import write_atomically
from abc_calib.runs import Run

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
AXES = {
    "source": {0: "batch", 1: "source_length"},
    "target": {0: "batch", 1: "target_length"},
}
FARTHEST = 1e-3
"""The file's logits may differ by less than this from the model's; float32 gives some 1e-5."""


def export_onnx(run: Run | Path | str | None, *, out: Path | str | None = None) -> Path:
    """Write the model of a calibrated run as an ONNX file, and run it at three lengths.

    Inputs ``source (batch, source_length)`` and ``target (batch, target_length)``, int64; output
    ``logits (batch, target_length, vocabulary)``, float32. ``target`` is the answer, of which each
    token is read for the ones behind it alone. ``out``: a new file, by default
    ``exports/model.onnx`` in the run's folder. Raises ``UsageError`` for a run without lines and
    where the extra ``onnx`` is not installed; ``AbcError`` where torch cannot trace the model, or
    onnxruntime computes something else.
    """
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise UsageError(
            f'onnx needs {", ".join(missing)}, not installed here: pip install "abc-calib[onnx]"'
        )
    found = opened(run)
    model: Any = found.load_model()
    try:
        program = traced(model, found.data.test(found.data.size, 3))
    except Exception as error:
        scheme = model.options.scheme
        advice = "try another torch" if scheme == "none" else "calibrate one with scheme none"
        raise AbcError(
            f"{found}: torch {torch.__version__} cannot export a model with the scheme "
            f"{scheme} ({type(error).__name__}): {advice}"
        ) from None
    path = place(found, "model.onnx", out)

    def write(made: Path) -> None:
        with quiet():
            program.save(str(made))
        agrees(found, model, made)

    write_atomically(path, write)
    return path


def traced(model: Any, batch: Batch) -> Any:
    """The program of a model, whose pass over a batch of two or more samples shows the way."""
    given = batch.source, batch.target
    model(*given)  # tensors that follow from the lines alone are made outside the trace
    with quiet():
        return torch.onnx.export(
            model,
            given,
            dynamo=True,
            dynamic_shapes=tuple(AXES.values()),
            input_names=[*AXES],
            output_names=["logits"],
            verbose=False,
        )


def agrees(run: Run, model: Any, file: Path) -> None:
    """``AbcError`` unless onnxruntime finds the model's logits, at three lengths."""
    session = import_module("onnxruntime").InferenceSession(str(file))
    for times in (1, 2, 5):
        batch = run.data.test(run.data.sized(times * run.data.length), times)
        if not (apart := difference(session, model, batch)) < FARTHEST:
            raise AbcError(f"{run}: onnxruntime's logits are {apart:.2g} from the model's: no file")


def difference(session: Any, model: Any, batch: Batch) -> float:
    """How far the logits of a file are at most from the model's."""
    given = {"source": batch.source.numpy(), "target": batch.target.numpy()}
    found = torch.from_numpy(session.run(None, given)[0])
    with torch.inference_mode():
        return float((model(batch.source, batch.target) - found).abs().max())


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing of what the exporter prints, warns of and logs."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
