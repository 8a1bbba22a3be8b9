"""Certify a run: check its windows, or look for a source that it gets wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import numpy as np

from abc_calib.data import Data
from abc_calib.evaluation import Evaluator
from abc_calib.nn.base import in_float64
from abc_calib.proof.allowed import check_allowed, check_laid_out
from abc_calib.proof.blackbox import generated
from abc_calib.proof.certificate import Certificate, fingerprint, machine
from abc_calib.proof.forms import Undecided
from abc_calib.proof.page import described
from abc_calib.proof.prove import (
    MOST_WINDOWS,
    Checked,
    Proof,
    check,
    minutes_needed,
    prepare,
)
from abc_calib.proof.search import COUNTEREXAMPLES, counterexamples, decoded, outright, search
from abc_calib.runs import Run

FASTEST = 300_000
"""Windows a second that no machine of today checks: more than that in all minutes is not tried."""
MOST_TESTED = 100_000
"""Windows of a model of transformers that are run; of more a random sample of about this size."""
PART = 2**21
"""Windows of one node that are held for that."""


@dataclass
class Decision:
    """A certificate with what it was made from; the proof is missing where nothing was proved."""

    certificate: Certificate
    proof: Proof | None = None
    checked: list[Checked] = field(default_factory=list)


def decide(
    run: Run,
    model: Any,
    minutes: float = 15.0,
    on_windows: Callable[[int, int], None] = lambda done, total: None,
) -> Decision:
    """Is the model's greedy output right for every source of its task, of every length?

    ``minutes``: the most time that the enumeration may take. ``on_windows`` is called with
    (windows done, all windows).
    """
    started, config = time.perf_counter(), run.config
    loaded = {"weights": model.weights_sha256} if model.weights_sha256 else {}
    certificate = Certificate(
        outcome="unknown",
        reason="",
        task=config.task,
        base=config.base,
        train_length=config.train.length,
        scheme=getattr(config.model, "scheme", config.model.label),
        fingerprint=fingerprint(run) | loaded,  # of the bytes that were loaded
        machine=machine(),
    )
    decision = Decision(certificate)
    model.eval()
    if model.in_whole_sources:
        _test(decision, run, model, started + 60 * minutes, on_windows)
    else:
        _certify(decision, run.data, model, minutes, on_windows)
    certificate.seconds = round(time.perf_counter() - started, 1)
    return decision


def _certify(
    decision: Decision,
    data: Data,
    model: Any,
    minutes: float,
    on_windows: Callable[[int, int], None],
) -> None:
    """Check every window and every short source, decode some, and say what follows."""
    certificate = decision.certificate
    try:
        proof = prepare(model, data, most=min(MOST_WINDOWS, 60 * minutes * FASTEST))
        proof = replace(proof, model=in_float64(model))  # copied once
        check_laid_out(data, proof.listing.setup)
        check_allowed(data.task.rule_task, proof.rule)
        if proof.size >= 100_000 and (needed := minutes_needed(proof)) > minutes:
            raise Undecided(
                f"its {proof.size} windows would take about {needed:.0f} minutes, and {minutes:g} "
                "are allowed: give it more minutes"
            )
    except Undecided as error:
        search(certificate, model, data, str(error))
        return
    _run_windows(decision, proof, on_windows)
    layers: Any = proof.evaluator
    uncertain = layers.uncertain()
    certificate.rounding = _number(uncertain, ROUND_CEILING)
    failing = outright(certificate, Evaluator(proof.model), data) + decoded(certificate, proof)
    if certificate.wrong or failing:
        _refute(decision, proof, failing)
    elif not min(c.margin for c in decision.checked) > uncertain:
        certificate.reason = (
            f"the smallest margin, {certificate.margin}, is within what rounding may take, "
            f"{certificate.rounding if certificate.rounding is not None else 'without bound'}"
        )
    else:
        certificate.outcome = "certified"
        certificate.reason = f"right in each of {certificate.windows} windows"


def _test(
    decision: Decision,
    run: Run,
    model: Any,
    until: float,
    on_windows: Callable[[int, int], None],
) -> None:
    """Test a model of ``transformers``: its windows, all short sources, and what it generates.

    No sources of further lengths once ``time.perf_counter()`` is at ``until``.
    """
    certificate, of, why = decision.certificate, "windows", ""
    try:
        proof = prepare(model, run.data, part=PART)
        if proof.size > MOST_TESTED:
            of = f"of about {proof.size} windows, drawn at random,"
            proof = proof.sample(MOST_TESTED, np.random.default_rng(17))
        _run_windows(decision, proof, on_windows)
        failing = outright(certificate, Evaluator(model), run.data)
        certificate.decoded = {"sources": 0, "longest": 0, "wrong": 0}
        if certificate.wrong or failing:
            _refute(decision, proof, failing)
    except Undecided as error:
        decision.proof, why = None, str(error)
        search(certificate, model, run.data, why)
    if certificate.outcome == "refuted" or getattr(run.task, "follows", None) is None:
        return
    certificate.decoded, wrong = generated(run, model, until)
    sources, longest = certificate.decoded["sources"], certificate.decoded["longest"]
    if wrong:
        certificate.outcome, certificate.counterexamples = "refuted", wrong[:COUNTEREXAMPLES]
        certificate.reason = f"its folder generates {len(wrong)} of {sources} answers wrong"
    elif not certificate.wrong:
        sources += sum(int(row["sources"]) for row in certificate.outright)
        longest = max([longest, *(int(row["width"]) for row in certificate.outright)])
        certificate.outcome = "tested"
        windows = f"{certificate.windows} {of} and " if not why else ""
        certificate.reason = (
            f"no error in {windows}{sources} sources of up to {longest} digits; not a proof"
            + (f" (its windows cannot be listed: {why})" if why else "")
        )


def _refute(decision: Decision, proof: Proof, failing: list[str]) -> None:
    """Name sources that the model gets wrong: those that were run, and those with such windows."""
    certificate = decision.certificate
    certificate.counterexamples = counterexamples(proof, decision.checked, failing)
    if not certificate.counterexamples:
        certificate.reason = (
            f"{certificate.wrong} windows fail, but no source was found in which they do"
        )
        return
    certificate.outcome = "refuted"
    short = sum(int(row["wrong"]) for row in certificate.outright)
    certificate.reason = (
        f"wrong in {certificate.wrong} of {certificate.windows} windows"
        if certificate.wrong
        else f"wrong in {short + certificate.decoded['wrong']} sources that were run"
    )


def _run_windows(decision: Decision, proof: Proof, on_windows: Callable[[int, int], None]) -> None:
    """Check every window of the proof, and note what they are and how they are."""
    certificate, setup = decision.certificate, proof.listing.setup
    checked = check(proof, lambda done: on_windows(done, max(done, proof.size)))
    decision.proof, decision.checked = proof, checked
    certificate.windows = sum(c.windows for c in checked)
    certificate.wrong = sum(c.wrong for c in checked)
    certificate.margin = _number(min(c.margin for c in checked))
    certificate.sizes, certificate.period = proof.listing.sizes, setup.period
    certificate.rule = proof.rule.as_dict()
    certificate.source = {
        "delimiters": [setup.ids[name] for name in setup.layout.delimiters],
        "aligned": setup.layout.aligned,
    } | ({"row": setup.row} if setup.row is not None else {})
    if proof.rule.first.words:
        certificate.source["words"] = proof.data.vocabulary.symbols[: proof.rule.base]
    certificate.lines = {
        site: [["; ".join(x.label(site) for x in head) for head in layer] for layer in layers]
        for site, layers in setup.lines.sites.items()
    }
    certificate.kinds = [
        described(proof.listing.occurrences[c.node][0])
        | {"windows": c.windows, "wrong": c.wrong, "margin": _number(c.margin)}
        for c in checked
    ]


def _number(value: float, way: str = ROUND_FLOOR) -> float | None:
    """Four digits of a margin, rounded down so that it is true; None if it is not finite."""
    if not np.isfinite(value):
        return None
    digits = Decimal(1).scaleb(Decimal(value).adjusted() - 3)
    return float(Decimal(value).quantize(digits, way))
