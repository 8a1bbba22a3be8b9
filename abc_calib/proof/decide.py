"""Certify a run: check its windows, or look for a source that it gets wrong."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import numpy as np

from abc_calib.evaluation import Evaluator, exact_matches
from abc_calib.evaluation.failures import failure
from abc_calib.nn.base import in_float64
from abc_calib.proof.allowed import check_allowed
from abc_calib.proof.blackbox import BlackBox
from abc_calib.proof.certificate import Certificate
from abc_calib.proof.fingerprint import fingerprint, machine
from abc_calib.proof.forms import Unbounded
from abc_calib.proof.labels import atom_name, where
from abc_calib.proof.laid_out import check_laid_out
from abc_calib.proof.prove import (
    MOST_WINDOWS,
    Checked,
    Proof,
    Undecided,
    check,
    minutes_needed,
    prepare,
)
from abc_calib.proof.search import judge
from abc_calib.proof.tested import generated
from abc_calib.proof.witness import Witnesses
from abc_calib.runs import Run

MOST_SOURCES = 20_000
"""Short sources are run through the model, all of one width after another, as long as a width has
at most this number; no more widths once it is reached."""
DECODED, SAMPLES = 100, 4
"""Short sources that are decoded one by one, and random and hard ones of each longer length."""
FASTEST = 300_000
"""Windows a second that no machine of today checks: more than that in all minutes is not tried."""
MOST_TESTED = 100_000
"""Windows of a model of transformers that are run; of more a random sample of about this size."""
PART = 2**21
"""Windows of one node that are held for that."""
COUNTEREXAMPLES = 20
"""Sources that the model gets wrong, and that are named; all windows that fail are counted."""
WIDEST = 64
"""Digits of a counterexample at most."""
TRIED = 400
"""Sources that are tried for counterexamples."""


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
    started = time.perf_counter()
    config = run.config
    certificate = Certificate(
        outcome="unknown",
        reason="",
        task=config.task,
        base=config.base,
        train_length=config.train.length,
        scheme=getattr(config.model, "scheme", config.model.label),
        fingerprint=fingerprint(run) | _loaded(model),
        machine=machine(),
    )
    decision = Decision(certificate)
    model.eval()
    if model.in_whole_sources or model.no_certificate:
        if model.in_whole_sources:
            _test(decision, run, model, started + 60 * minutes, on_windows)
        else:
            judge(certificate, model, run.data, model.no_certificate)
        certificate.seconds = round(time.perf_counter() - started, 1)
        return decision
    try:
        most = min(MOST_WINDOWS, 60 * minutes * FASTEST)
        proof = prepare(model, run.data, most=most)
        decision.proof = proof = replace(proof, model=in_float64(model))  # copied once
        check_laid_out(run.data, proof.listing.setup)
        check_allowed(run.data.task.rule_task, proof.rule)
        _check_time(proof, minutes)
        _enumerate(decision, on_windows)
    except (Undecided, Unbounded) as error:
        decision.proof = None
        judge(certificate, model, run.data, str(error))
    certificate.seconds = round(time.perf_counter() - started, 1)
    return decision


def _loaded(model: Any) -> dict[str, str | None]:
    """The hash of the bytes that the weights were read from, where they are from a file."""
    return {"weights": model.weights_sha256} if model.weights_sha256 else {}


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
    certificate, of, why = decision.certificate, "", ""
    try:
        proof = prepare(model, run.data, part=PART)
        if proof.size > MOST_TESTED:
            of = f" of about {proof.size} windows, drawn at random,"
            proof = proof.sample(MOST_TESTED, np.random.default_rng(17))
        decision.proof = proof
        _run_windows(decision, on_windows)
        failing = outright(certificate, proof)
        certificate.decoded = {"sources": 0, "longest": 0, "wrong": 0}
        if certificate.wrong or failing:
            _refute(decision, failing)
    except (Undecided, Unbounded) as error:
        decision.proof, why = None, str(error)
        judge(certificate, model, run.data, why)
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
        windows = f"{certificate.windows}{of or ' windows'} and " if not why else ""
        certificate.reason = (
            f"no error in {windows}{sources} sources of up to {longest} digits; not a proof"
            + (f" (its windows cannot be listed: {why})" if why else "")
        )


def _check_time(proof: Proof, minutes: float) -> None:
    """Raise ``Undecided`` where the enumeration would take longer than allowed."""
    if proof.size < 100_000:
        return
    if (needed := minutes_needed(proof)) > minutes:
        raise Undecided(
            f"its {proof.size} windows would take about {needed:.0f} minutes, and {minutes:g} are "
            "allowed: give it more minutes"
        )


def _enumerate(decision: Decision, on_windows: Callable[[int, int], None]) -> None:
    """Check every window and every short source, decode some, and say what follows."""
    certificate, proof = decision.certificate, decision.proof
    assert proof is not None
    _run_windows(decision, on_windows)
    uncertain = proof.evaluator.uncertain()
    certificate.rounding = _number(uncertain, ROUND_CEILING)
    failing = [*outright(certificate, proof), *decoded(certificate, proof)]
    if certificate.wrong or failing:
        _refute(decision, failing)
    elif not min(c.margin for c in decision.checked) > uncertain:
        certificate.reason = (
            f"the smallest margin, {certificate.margin}, is within what rounding may take, "
            f"{certificate.rounding if certificate.rounding is not None else 'without bound'}"
        )
    else:
        certificate.outcome = "certified"
        certificate.reason = f"right in each of {certificate.windows} windows"


def _run_windows(decision: Decision, on_windows: Callable[[int, int], None]) -> None:
    """Check every window of the proof, and note what they are and how they are."""
    certificate, proof = decision.certificate, decision.proof
    assert proof is not None
    decision.checked = check(proof, lambda done: on_windows(done, max(done, proof.size)))
    checked, setup = decision.checked, proof.listing.setup
    margin = min(c.margin for c in checked)
    certificate.windows = sum(c.windows for c in checked)
    certificate.wrong = sum(c.wrong for c in checked)
    certificate.margin = _number(margin)
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
    certificate.kinds = [_as_row(proof, c) for c in checked]


def _number(value: float, way: str = ROUND_FLOOR) -> float | None:
    """Four digits of a margin, rounded down so that it is true; None if it is not finite."""
    if not np.isfinite(value):
        return None
    digits = Decimal(1).scaleb(Decimal(value).adjusted() - 3)
    return float(Decimal(value).quantize(digits, way))


def _as_row(proof: Proof, checked: Checked) -> dict[str, Any]:
    occurrence = proof.listing.occurrences[checked.node][0]
    return {
        "where": where(occurrence),
        "atoms": [atom_name(occurrence, atom) for atom in occurrence.atoms],
        "windows": checked.windows,
        "wrong": checked.wrong,
        "margin": _number(checked.margin),
    }


def outright(certificate: Certificate, proof: Proof) -> list[str]:
    """Run every source of each size from the smallest on, while there are not too many in all.

    Gives those that fail.
    """
    failing, evaluator = list[str](), Evaluator(proof.model)
    task = proof.data.task
    for width, drawn in Witnesses(task.rule_task, proof.listing).short(MOST_SOURCES):
        problems = task.render(drawn)
        wrong = (~exact_matches(evaluator, proof.data.lay_out(problems))).nonzero()[:, 0].numpy()
        certificate.outright.append({"width": width, "sources": len(problems), "wrong": len(wrong)})
        failing += [task.plain(problems, int(i)) for i in wrong[:COUNTEREXAMPLES]]
    return failing


def decoded(certificate: Certificate, proof: Proof) -> list[str]:
    """Decode sources one by one, as ``abc predict`` does; those that fail."""
    task, rng = proof.data.task, np.random.default_rng(11)
    witnesses = Witnesses(task.rule_task, proof.listing)
    groups = []
    for _, few in itertools.islice(witnesses.short(MOST_SOURCES), 1):  # there may be none
        step = max(1, len(few) // DECODED)
        groups.append(task.render(few.take(np.arange(0, len(few), step))))
    groups += [task.sample(rng, SAMPLES, n, task.sampling, exact=True) for n in witnesses.lengths]
    groups += [task.hard(rng, SAMPLES, n) for n in witnesses.lengths]
    sources = [task.plain(group, i) for group in groups for i in range(len(group))]
    evaluator = Evaluator(proof.model)
    failing = [s for s in sources if failure(evaluator, proof.data, s) is not None]
    certificate.decoded = {
        "sources": len(sources),
        "longest": max(witnesses.lengths),
        "wrong": len(failing),
    }
    return failing


def _refute(decision: Decision, failing: list[str]) -> None:
    """Name sources that the model gets wrong: those that were run, and those with such windows."""
    certificate, proof = decision.certificate, decision.proof
    assert proof is not None
    evaluator = Evaluator(proof.model)
    counterexamples: dict[str, dict[str, Any]] = {}
    for source in failing[: COUNTEREXAMPLES // 2]:
        if (wrong := failure(evaluator, proof.data, source)) is not None:
            counterexamples[source] = wrong.as_dict()
    refuted: set[tuple[int, int]] = set()
    by_node = {checked.node: checked for checked in decision.checked}
    drawn = failing_sources(proof, decision.checked, 2, WIDEST, np.random.default_rng(0))
    for node, number, source in itertools.islice(drawn, TRIED):
        if len(counterexamples) >= COUNTEREXAMPLES:
            break
        wrong = None if (node, number) in refuted else failure(evaluator, proof.data, source)
        if wrong is not None:
            refuted.add((node, number))
            occurrence = proof.listing.occurrences[node][0]
            values, _ = occurrence.split(by_node[node].failing[number : number + 1])
            shown = [_value(proof, value) for value in values[0].tolist()]
            names = [atom_name(occurrence, atom) for atom in occurrence.atoms]
            counterexamples[source] = wrong.as_dict() | {
                "where": where(occurrence),
                "failing_window": dict(zip(names, shown, strict=True)),
            }
    certificate.counterexamples = list(counterexamples.values())
    if counterexamples:
        certificate.outcome = "refuted"
        short = sum(int(row["wrong"]) for row in certificate.outright)
        certificate.reason = (
            f"wrong in {certificate.wrong} of {certificate.windows} windows"
            if certificate.wrong
            else f"wrong in {short + certificate.decoded['wrong']} sources that were run"
        )
    else:
        certificate.reason = (
            f"{certificate.wrong} windows fail, but no source was found in which they do"
        )


def _value(proof: Proof, value: int) -> str:
    """What stands at an atom, for people."""
    if isinstance(proof.evaluator, BlackBox):
        return str(value)
    return str(proof.data.vocabulary.symbols[value])


def failing_sources(
    proof: Proof,
    checks: list[Checked],
    each: int,
    widest: int,
    rng: np.random.Generator,
    near: bool = False,
    patient: bool = False,
) -> Iterator[tuple[int, int, str]]:
    """Sources of at most ``widest`` digits with failing windows, ``each`` a window.

    Gives the node, the number of its failing window and the source; nodes by turns. ``near`` and
    ``patient`` as in ``Witnesses.sources``.
    """
    task = proof.data.task
    witnesses = Witnesses(task.rule_task, proof.listing)
    most = max((len(checked.failing) for checked in checks), default=0)
    for number, checked in itertools.product(range(most), checks):
        if number < len(checked.failing):
            code = int(checked.failing[number])
            for _, problem in witnesses.sources(
                checked.node, code, each, widest, rng, near, patient
            ):
                yield checked.node, number, task.plain(task.render(problem), 0)
