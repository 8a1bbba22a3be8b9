"""Certify a run: check its windows, or look for a source that it gets wrong."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.certification.certificate import Certificate, weights_hash
from abc_calib.certification.places import atom_name
from abc_calib.certification.prove import (
    SAFETY,
    Checked,
    Proof,
    Undecided,
    check,
    prepare,
    windows_a_second,
)
from abc_calib.certification.sources import Realiser
from abc_calib.evaluation import exact_matches
from abc_calib.evaluation.failures import failure
from abc_calib.evaluation.stress import smallest, stress
from abc_calib.runs import Run
from tasks import Problems
from tasks.hard import from_rows

MOST_WINDOWS = 40_000_000
"""More would not fit the memory of a laptop (some 60 bytes each)."""
MOST_SOURCES = 20_000
"""Short sources are all run through the model as far as there are so many of one width."""
COUNTEREXAMPLES = 20
"""Failing windows that are named, each with a source; all of them are counted."""
WIDEST = 64
"""Digits of a counterexample at most."""


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

    ``minutes``: the most time that the enumeration may take. ``on_windows`` hears how many
    windows of how many are done.
    """
    started = time.perf_counter()
    config = run.config
    certificate = Certificate(
        outcome="unknown",
        reason="",
        task=config.task,
        base=config.base,
        train_length=config.train.length,
        scheme=config.model.label,
        weights=weights_hash(run),
    )
    decision = Decision(certificate)
    try:
        decision.proof = prepare(model, run.data, MOST_WINDOWS)
        _check_time(decision.proof, minutes)
        _enumerate(decision, on_windows)
    except Undecided as error:
        decision.proof = None
        _search(certificate, run, model, str(error))
    certificate.seconds = round(time.perf_counter() - started, 1)
    return decision


def _check_time(proof: Proof, minutes: float) -> None:
    """Raise ``Undecided`` where the enumeration would take longer than allowed."""
    if proof.size < 100_000:
        return
    needed = proof.size / windows_a_second(proof) / 60
    if needed > minutes:
        raise Undecided(
            f"its {proof.size} windows would take about {needed:.0f} minutes, and {minutes:g} are "
            "allowed: give it more --minutes"
        )


def _enumerate(decision: Decision, on_windows: Callable[[int, int], None]) -> None:
    """Check every window and every short source, and say what follows."""
    certificate, proof = decision.certificate, decision.proof
    assert proof is not None
    decision.checked = check(proof, lambda done: on_windows(done, proof.size))
    checked = decision.checked
    certificate.windows = proof.size
    certificate.wrong = sum(c.wrong for c in checked)
    certificate.margin = round(min(c.margin for c in checked), 4)
    certificate.margin_float64 = round(min(c.margin64 for c in checked), 4)
    certificate.rounding = float(f"{max(c.rounding for c in checked):.3g}")
    certificate.reach = {**asdict(proof.field.reach), "period": proof.field.period}
    assert proof.field.bias is not None
    certificate.lines = {
        site: [["; ".join(x.label(site) for x in head) for head in layer] for layer in layers]
        for site, layers in proof.field.bias.sites.items()
    }
    certificate.cases = [_as_row(c) for c in checked]
    certificate.outright = outright(proof)
    if certificate.wrong or any(row["wrong"] for row in certificate.outright):
        _refute(decision)
    elif certificate.margin <= SAFETY * certificate.rounding:
        certificate.reason = (
            f"the smallest margin, {certificate.margin:g}, is not {SAFETY} times the rounding of "
            f"float32, {certificate.rounding:g}"
        )
    else:
        certificate.outcome = "certified"
        certificate.reason = f"right in each of {proof.size} windows"


def _as_row(checked: Checked) -> dict[str, Any]:
    return {
        "where": checked.case.label(),
        "row": checked.case.row,
        "left": checked.case.left,
        "atoms": [atom_name(atom) for atom in checked.atoms],
        "windows": checked.windows,
        "wrong": checked.wrong,
        "margin": round(checked.margin, 4),
        "margin_float64": round(checked.margin64, 4),
    }


def outright(proof: Proof) -> list[dict[str, int]]:
    """Run every source of each width from 1 on, while there are not too many of them."""
    rule = proof.rule
    rows: list[dict[str, int]] = []
    for width in itertools.count(1):
        kinds = len(rule.operands) * width + (rule.constant is not None)
        if rule.base**kinds > MOST_SOURCES:
            return rows
        problems = every_problem(proof, width)
        batch = proof.data.lay_out(problems)
        wrong = int((~exact_matches(proof.model, batch)).sum())
        rows.append({"width": width, "sources": len(batch), "wrong": wrong})
    return rows


def every_problem(proof: Proof, width: int) -> Problems:
    """Every problem whose longest operand has ``width`` digits."""
    rule, base = proof.rule, proof.rule.base
    wide = len(rule.operands)
    places = wide * width + (rule.constant is not None)
    digits = np.indices((base,) * places).reshape(places, -1).T.astype(np.uint8)
    parts = [digits[:, k * width : (k + 1) * width] for k in range(wide)]
    if width > 1:
        keep = np.any([part[:, 0] != 0 for part in parts], axis=0)
        digits, parts = digits[keep], [part[keep] for part in parts]
    numbers = dict(zip(rule.operands, parts, strict=True))
    if rule.constant is not None:
        numbers[rule.constant] = digits[:, -1:]
    operands = tuple(from_rows(list(numbers[k])) for k in sorted(numbers))
    task = proof.data.task
    return Problems(operands, task.answer(*task.padded(operands)))


def _refute(decision: Decision) -> None:
    """For failing windows, find whole sources that contain them and that the model gets wrong."""
    certificate, proof = decision.certificate, decision.proof
    assert proof is not None
    found: dict[tuple[int, tuple[int, ...]], dict[str, Any]] = {}
    for case, values, problem in failing_sources(decision, 1, WIDEST, np.random.default_rng(0)):
        checked = decision.checked[case]
        key = (case, tuple(values.tolist()))
        wrong = None if key in found else failure(proof.model, proof.data, problem)
        if wrong is not None:
            places = [atom_name(atom) for atom in checked.atoms]
            digits = [proof.data.vocabulary.symbols[v] for v in values.tolist()]
            found[key] = wrong.as_dict() | {
                "where": checked.case.label(),
                "failing_window": dict(zip(places, digits, strict=True)),
            }
        if len(found) >= COUNTEREXAMPLES:
            break
    certificate.counterexamples = list(found.values())
    if found:
        certificate.outcome = "refuted"
        certificate.reason = f"wrong in {certificate.wrong} of {certificate.windows} windows"
    else:
        certificate.reason = (
            f"{certificate.wrong} windows fail, but no source was found in which they do"
        )


def failing_sources(
    decision: Decision, each: int, widest: int, rng: np.random.Generator, near: bool = False
) -> Iterator[tuple[int, np.ndarray, str]]:
    """Sources of at most ``widest`` digits with failing windows, ``each`` a window.

    Gives the number of the case, the window's values and the source; cases by turns. With
    ``near`` also where a window stands nearer to an end than where it fails.
    """
    proof = decision.proof
    assert proof is not None
    task = proof.data.task
    realiser = Realiser(task, proof.rule, proof.field.reach, proof.field.period)
    most = max((len(checked.failing) for checked in decision.checked), default=0)
    for number, (case, checked) in itertools.product(range(most), enumerate(decision.checked)):
        if number >= len(checked.failing):
            continue
        values = checked.failing[number]
        for _, one in realiser.sources(
            checked.case, checked.atoms, values, each, widest, rng, near
        ):
            yield case, values, task.plain(one, 0)


def _search(certificate: Certificate, run: Run, model: Any, why: str) -> None:
    """Where nothing can be enumerated: is there a source that the model gets wrong?"""
    short = run.config.train.length
    certificate.reason = why
    for length in (short, short + 1, 2 * short, 4 * short, 8 * short):
        found = smallest(stress(model, run.data, [length], samples=20, search=256))
        if found is not None:
            certificate.outcome = "refuted"
            certificate.counterexamples = [found.as_dict()]
            certificate.reason = f"{why}; a search found a source of {found.digits} digits"
            return


def certify(
    run: Run | Path | str | None = None,
    *,
    minutes: float = 15.0,
    on_windows: Callable[[int, int], None] = lambda done, total: None,
) -> Certificate:
    """Decide about a trained run and write its certificate and page into its folder.

    Raises ``AbcError`` if the run has no trained model.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    certificate = decide(opened, opened.load_model(), minutes, on_windows).certificate
    certificate.save(opened)
    return certificate
