"""Which runs can be exported, and where to."""

from __future__ import annotations

from pathlib import Path

from abc_calib.errors import UsageError
from abc_calib.nn.build import model_type
from abc_calib.nn.transformer.model import Transformer
from abc_calib.runs import Run


def opened(run: Run | Path | str | None) -> Run:
    """The run; ``UsageError`` if it has no lines, or its model is not a Transformer of ours."""
    found = Run.open(run)
    found.check()
    if not issubclass(model_type(found.config.kind), Transformer):
        raise UsageError(
            f"{found} is a {found.config.model.label}: only models of the kinds transformer and "
            "decoder are exported"
        )
    found.lines()
    return found


def place(run: Run, name: str, out: Path | str | None) -> Path:
    """The file to write: ``out``, which must be new, or one of that name in the run's folder."""
    if out is None:
        (run.path / "exports").mkdir(exist_ok=True)
        return run.path / "exports" / name
    if (path := Path(out)).exists():
        raise UsageError(f"{path} is there already: name a new file")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
