"""``abc certify``, ``abc verify``, ``abc repair`` and ``abc prove``."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from abc_calib.config import (
    AdoptOptions,
    CertifyOptions,
    ProveOptions,
    RecipeOptions,
    TaskOptions,
    ThreadOptions,
    TrackOptions,
)
from abc_calib.errors import UsageError
from abc_calib.progress import bar
from abc_calib.text import grouped
from cli.calibrate import adopted
from cli.command import Out, RunArgument, TaskArgument, command
from cli.console import Result, Sentence, say, show_early, typed

if TYPE_CHECKING:
    from abc_calib.proof.certificate import Certificate
    from abc_calib.runs import Run


@command(ThreadOptions, without=("fit_lengths", "check_lengths"))
def certify(
    wanted: CertifyOptions, foreign: AdoptOptions, run: RunArgument = None, out: Out = None
) -> Result:
    """Decide whether a model is right for every source of every length.

    Writes certificate.json and certificate.md into the run: certified, refuted with
    counterexamples, or unknown with the reason. A model of transformers is tested.

    Examples: **abc certify** · **abc certify RUN --minutes 60** · **abc certify --hf FOLDER
    --data pairs.jsonl --delimiters "+,="**
    """
    from abc_calib import stages

    if out is not None and foreign.hf is None:
        raise UsageError(f"--out {typed(out)}: it names the run that --hf makes; leave it out")
    found = stages.opened(adopted(run, foreign, lined=True, out=out))
    return verdict(found, stages.certify(found, options=wanted))


@command(ThreadOptions)
def verify(wanted: CertifyOptions, run: RunArgument = None) -> Result:
    """Make a run's certificate again, compare every field, and check it by dense attention.

    A run without a certificate is certified first.

    Example: **abc verify RUN**
    """
    from abc_calib import stages

    found = certified_first(run, wanted)
    with bar("certifying again", None, "%") as update:

        def on_windows(done: int, total: int) -> None:
            last = "then by dense attention" if done == total else f"of {total}"
            update(100 * done // total, 100, last)

        again = stages.verify(found, minutes=wanted.minutes, on_windows=on_windows)
    return verdict(found, again)


def certified_first(name: str | None, wanted: CertifyOptions) -> Run:
    """The run, which has a certificate: one is made where there is none."""
    from abc_calib import stages
    from abc_calib.proof.certificate import FILE

    found = stages.opened(name)
    if not os.path.lexists(found.path / FILE):
        say("there is no certificate yet: certifying first")
        stages.certify(found, options=wanted)
    return found


@command(ThreadOptions)
def repair(wanted: CertifyOptions, run: RunArgument = None, out: Out = None) -> Result:
    """Train a copy of a run on the windows in which it fails, until it is certified.

    Example: **abc repair RUN --out FOLDER**
    """
    from abc_calib import stages
    from abc_calib.proof.certificate import Certificate

    made = stages.repair(
        stages.opened(run),
        minutes=wanted.minutes,
        out=out,
        on_round=lambda found: say(f"{found.outcome}: {grouped(found.reason)}"),
    )
    return verdict(made, Certificate.load(made))


@command(
    *(TaskOptions, RecipeOptions, ThreadOptions, TrackOptions),
    without=("tables", "tables_seed", "data", "preset", "epochs"),
)
def prove(
    task: TaskArgument,
    wanted: ProveOptions,
    out: Out = None,
    **given: Any,
) -> Result:
    """From nothing to a certificate: train, calibrate, retrain, certify and verify a model.

    Goes on from the runs that are in the folder already.

    Examples: **abc prove addition --seeds 3** · **abc prove addition --seed 11 --base 16** ·
    **abc prove parity --model decoder**
    """
    from abc_calib import stages

    found = []
    for seed in range(wanted.seed, wanted.seed + wanted.seeds):
        started = time.perf_counter()
        run, certificate = stages.certified(task, seed, folder=out, minutes=wanted.minutes, **given)
        told = verdict(run, certificate)
        show_early(*told.shown)
        for remark in (*told.remarks, f"{time.perf_counter() - started:.0f} s in all"):
            say(remark)
        found.append(told.data)
    return Result(found)


def verdict(run: Run, certificate: Certificate) -> Result:
    """What was decided about a run, and where the page is."""
    shown = [Sentence(f"{certificate.outcome}: {grouped(certificate.reason)}")]
    for one in certificate.counterexamples[:3]:
        answer = one["answer"] or "no end"
        shown.append(Sentence(f"  {one['problem']} gives {answer} instead of {one['right']}"))
    if certificate.verified:
        least = certificate.verified["smallest_margin"]
        shown.append(Sentence(f"verified by dense attention: smallest margin {least}"))
        if by := certificate.verified.get("check_py"):
            windows, least = grouped(str(by["windows"])), by["smallest_margin"]
            shown.append(Sentence(f"check.py agrees: {windows} windows, smallest margin {least}"))
    page = f"how and why: {run.path / 'certificate.md'}"
    return Result({"run": str(run), **asdict(certificate)}, shown, [page])
