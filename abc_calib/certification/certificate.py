"""The certificate of a run as a file: certified, refuted or unknown, with what was checked."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Literal

from abc_calib.certification.page import page
from abc_calib.errors import AbcError
from abc_calib.files import write_text
from abc_calib.runs import Run
from abc_calib.version import __version__

FILE, PAGE = "certificate.json", "certificate.md"

Outcome = Literal["certified", "refuted", "unknown"]


@dataclass(repr=False)
class Certificate:
    """What ``certificate.json`` holds; see the fields' names, and the page for how to read it.

    ``weights``: SHA-256 of the model's weights. ``margin``, ``margin_float64`` and ``rounding``
    are logits: the smallest distance of a right token from the next one, the same in float64,
    and the largest difference between the two precisions. ``outright``: short widths of which
    every source was run, as {width, sources, wrong}.
    """

    outcome: Outcome
    reason: str
    task: str
    base: int | None
    train_length: int
    scheme: str
    weights: str
    code_version: str = __version__
    windows: int = 0
    wrong: int = 0
    margin: float | None = None
    margin_float64: float | None = None
    rounding: float | None = None
    reach: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, Any] = field(default_factory=dict)
    cases: list[dict[str, Any]] = field(default_factory=list)
    outright: list[dict[str, int]] = field(default_factory=list)
    counterexamples: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    verified: dict[str, Any] | None = None
    repair: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        base = "" if self.base is None else f" in base {self.base}"
        return f"Certificate({self.outcome}: {self.task}{base}, {self.reason})"

    def _repr_html_(self) -> str:
        wrong = "".join(
            f"<li><code>{escape(str(one['problem']))}</code> gives "
            f"<code>{escape(str(one['answer'] or 'no end'))}</code></li>"
            for one in self.counterexamples[:3]
        )
        said = f"<p><b>{self.outcome}</b>: {escape(self.reason)}</p>"
        return said + (f"<ul>{wrong}</ul>" if wrong else "")

    def save(self, run: Run) -> None:
        """Write the certificate and its page into the run's folder."""
        write_text(run.path / FILE, json.dumps(asdict(self), indent=2) + "\n")
        write_text(run.path / PAGE, page(asdict(self)))

    @classmethod
    def load(cls, run: Run) -> Certificate:
        """The run's certificate; ``AbcError`` if there is none or it is of other weights."""
        path = run.path / FILE
        try:
            found = cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            raise AbcError(f"{run} has no certificate: abc certify {run}") from None
        except (OSError, ValueError, TypeError) as error:
            raise AbcError(f"{path} is not a certificate ({error}): certify again") from None
        if found.weights != weights_hash(run):
            raise AbcError(f"{path} is of other weights than {run} has now: certify again")
        return found


def weights_hash(run: Run) -> str:
    """SHA-256 of the run's weight file."""
    path = run.path / "model" / "model.safetensors"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise AbcError(f"{path} cannot be read ({error.strerror}): train again") from None
