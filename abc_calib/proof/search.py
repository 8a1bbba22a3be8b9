"""Sources that a model gets wrong: short ones, those with windows that fail, and hard ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from abc_calib.data import Data
from abc_calib.errors import UsageError
from abc_calib.evaluation.exact import matches
from abc_calib.evaluation.failures import Failure, failure
from abc_calib.evaluation.stress import searched, smallest
from abc_calib.nn.base import Model
from abc_calib.nn.evaluator import Evaluator
from abc_calib.proof.certificate import Certificate
from abc_calib.proof.page import described
from abc_calib.proof.prove import Checked, Proof
from abc_calib.proof.sources import Sources
from abc_calib.proof.witness import Witnesses
from abc_calib.text import counted
from tasks import TaskError
from tasks.closure import NotClosed, check_closed

MOST_SOURCES = 20_000
"""Short sources are run through the model, all of one width after another, as long as a width has
at most this number; no more widths once it is reached."""
DECODED, SAMPLES = 100, 4
"""Short sources that are decoded one by one, and random and hard ones of each longer length."""
COUNTEREXAMPLES = 20
"""Sources that the model gets wrong, and that are named; all windows that fail are counted."""
WIDEST = 64
"""Digits of a counterexample at most."""
TRIED = 400
"""Sources that are tried for counterexamples."""


def outright(certificate: Certificate, model: Model | Evaluator, data: Data) -> list[str]:
    """Run every source of each size from the smallest on; give some that fail.

    Notes how many there are of each size. Where nothing is proved, the first size with an error is
    the last.
    """
    task, failing = data.task, list[str]()
    for width, drawn in Sources(task.rule_task, task.rule_task.rule()).short(MOST_SOURCES):
        problems = task.render(drawn)
        wrong = (~matches(model, data, data.lay_out(problems))).nonzero()[:, 0].numpy()
        certificate.outright.append({"width": width, "sources": len(problems), "wrong": len(wrong)})
        failing += [task.plain(problems, int(i)) for i in wrong[:COUNTEREXAMPLES]]
        if failing and not certificate.windows:
            break
    return failing


def decoded(certificate: Certificate, proof: Proof) -> list[str]:
    """Decode sources one by one, as ``abc predict`` does; those that fail."""
    task, rng = proof.data.task, np.random.default_rng(11)
    sources, groups = Sources(task.rule_task, proof.rule), list[Any]()
    for _, few in itertools.islice(sources.short(MOST_SOURCES), 1):  # there may be none
        step = max(1, len(few) // DECODED)
        groups.append(task.render(few.take(np.arange(0, len(few), step))))
    groups += [task.sample(rng, SAMPLES, n, task.sampling, exact=True) for n in sources.lengths]
    groups += [task.hard(rng, SAMPLES, n) for n in sources.lengths]
    texts = [task.plain(group, i) for group in groups for i in range(len(group))]
    evaluator = Evaluator(proof.model)
    failing = [text for text in texts if failure(evaluator, proof.data, text) is not None]
    certificate.decoded = {
        "sources": len(texts),
        "longest": max(sources.lengths),
        "wrong": len(failing),
    }
    return failing


def failing_sources(
    proof: Proof,
    checks: list[Checked],
    each: int,
    widest: int,
    rng: np.random.Generator,
    near: bool = False,
    windows: int | None = None,
    unfound: set[tuple[int, int]] | None = None,
) -> Iterator[tuple[int, int, str]]:
    """Sources of at most ``widest`` digits with failing windows, ``each`` a window.

    Gives the node, the number of its failing window and the source; nodes by turns. ``near`` as in
    ``Witnesses.sources``. ``windows``: how many are tried, by default all. ``unfound``: windows of
    which no source was found; they are not tried, and others are added.
    """
    unfound = set() if unfound is None else unfound
    task = proof.data.task
    witnesses = Witnesses(task.rule_task, proof.listing)
    most = max((len(checked.failing) for checked in checks), default=0)
    turns = (
        (checked.node, number, int(checked.failing[number]))
        for number, checked in itertools.product(range(most), checks)
        if number < len(checked.failing)
    )
    untried = (turn for turn in turns if (turn[0], turn[2]) not in unfound)
    for node, number, code in itertools.islice(untried, windows):
        unfound.add((node, code))
        for _, problem in witnesses.sources(node, code, each, widest, rng, near):
            unfound.discard((node, code))
            yield node, number, task.plain(task.render(problem), 0)


def counterexamples(
    proof: Proof, checks: list[Checked], failing: list[str]
) -> list[dict[str, Any]]:
    """Name sources that the model gets wrong: of ``failing`` ones, and with windows that fail."""
    evaluator, cases = Evaluator(proof.model), dict[str, dict[str, Any]]()
    for source in failing[: COUNTEREXAMPLES // 2]:
        if (wrong := failure(evaluator, proof.data, source)) is not None:
            cases[source] = wrong.as_dict()
    refuted, by_node = set[tuple[int, int]](), {checked.node: checked for checked in checks}
    drawn = failing_sources(proof, checks, 2, WIDEST, np.random.default_rng(0))
    for node, number, source in itertools.islice(drawn, TRIED):
        if len(cases) >= COUNTEREXAMPLES:
            break
        wrong = None if (node, number) in refuted else failure(evaluator, proof.data, source)
        if wrong is not None:
            refuted.add((node, number))
            cases[source] = wrong.as_dict() | shown(proof, node, by_node[node].failing[number])
    return [*cases.values()]


def shown(proof: Proof, node: int, code: int) -> dict[str, Any]:
    """A window for people: where it is, for example, and what stands at each of its atoms."""
    occurrence = proof.listing.occurrences[node][0]
    values, _ = occurrence.split(np.array([code]))
    symbols: Any = range(proof.rule.base)
    if not proof.model.in_whole_sources:
        symbols = proof.data.vocabulary.symbols
    stands, about = [str(symbols[value]) for value in values[0].tolist()], described(occurrence)
    window = dict(zip(about["atoms"], stands, strict=True))
    return {"where": about["where"], "failing_window": window}


def search(certificate: Certificate, model: Model, data: Data, why: str) -> None:
    """Look for a source that a model gets wrong, where nothing is proved; ``why`` that is so.

    Refuted with the shortest one that is found: among all short ones of a sound rule, then by a
    search at lengths up to eight times the training's. Else unknown.
    """
    try:
        example = _shortest(certificate, model, data)
    except TaskError as error:
        raise UsageError(f"nothing can be judged: {error}; abc eval tests what can be") from None
    if example is None:
        sizes = certificate.outright
        scope = f"all sources of up to {sizes[-1]['width']} {data.task.unit}" if sizes else ""
        scope = scope or "hard sources"
        certificate.reason = f"{why}; {scope} are right, and a search found none that is wrong"
    else:
        certificate.outcome, certificate.counterexamples = "refuted", [example.as_dict()]
        size = counted(example.digits, data.task.unit)
        certificate.reason = f"a source of {size} is wrong ({why})"


def _shortest(certificate: Certificate, model: Model, data: Data) -> Failure | None:
    rule = data.task.rule_task.rule()
    with suppress(NotClosed):
        if rule is not None:
            check_closed(rule)
            for source in outright(certificate, model, data)[:1]:
                if (wrong := failure(model, data, source)) is not None:
                    return wrong
    widths = [row["width"] for row in certificate.outright]
    first = len(widths) + 1 if widths and not isinstance(widths[0], str) else data.length
    times = [data.length * factor for factor in (2, 4, 8)]
    for length in dict.fromkeys([*range(first, data.length + 2), *times]):
        wrong = smallest([searched(model, data, length, samples=20, search=256)])
        if wrong is not None:
            return wrong
    return None
