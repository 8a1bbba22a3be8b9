"""``abc certify``, ``abc verify``, ``abc repair`` and ``abc prove``."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated, Any

import typer

import abc_calib as abc
from abc_calib.config import AdoptOptions, CertifyOptions, RecipeOptions, TaskOptions
from abc_calib.errors import UsageError
from abc_calib.progress import bar
from abc_calib.text import grouped
from cli.command import Out, RunArgument, Seed, TaskArgument, Track, command
from cli.console import Result, say, typed
from cli.train import adopted


@command()
def certify(
    options: CertifyOptions, foreign: AdoptOptions, run: RunArgument = None, out: Out = None
) -> Result:
    """Decide whether a model is right at every length.

    Writes certificate.json and certificate.md into the run: certified, refuted with
    counterexamples, or unknown with the reason. A model of transformers is tested.

    Examples: **abc certify** · **abc certify RUN --minutes 60** · **abc certify --hf FOLDER
    --data pairs.jsonl --delimiters "+,="**
    """
    if out is not None and foreign.hf is None:
        raise UsageError(f"--out {typed(out)}: it names the run that --hf makes; leave it out")
    opened_run = abc.Run.open(adopted(run, foreign, lined=True, out=out))
    return verdict(opened_run, abc.certify(opened_run, options=options))


@command()
def verify(options: CertifyOptions, run: RunArgument = None) -> Result:
    """Make a certificate again, and check it in two other ways.

    Compares every field, computes each window by dense attention, and runs check.py.

    A run without a certificate is certified first.

    Example: **abc verify RUN**
    """
    certified_run = certified_first(run, options)
    with bar("certifying again", None, "%") as update:

        def on_windows(done: int, total: int) -> None:
            last = "then by dense attention" if done == total else f"of {total}"
            update(100 * done // total, 100, last)

        again = abc.verify(certified_run, minutes=options.minutes, on_windows=on_windows)
    return verdict(certified_run, again)


def certified_first(name: str | None, options: CertifyOptions) -> abc.Run:
    """Return the run, which has a certificate: one is made where there is none."""
    from abc_calib.proof.certificate import FILE

    opened_run = abc.Run.open(name)
    if not os.path.lexists(opened_run.path / FILE):
        say("there is no certificate yet: certifying first")
        abc.certify(opened_run, options=options)
    return opened_run


@command()
def repair(options: CertifyOptions, run: RunArgument = None, out: Out = None) -> Result:
    """Train a copy of a run on its failures until it is certified.

    Example: **abc repair RUN --out FOLDER**
    """
    repaired = abc.repair(run, minutes=options.minutes, out=out)
    return verdict(repaired, abc.Certificate.load(repaired))


@command(TaskOptions, RecipeOptions)
def prove(
    options: CertifyOptions,
    task: TaskArgument,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, in order.")] = 1,
    seed: Seed = 0,
    out: Out = None,
    track: Track = None,
    **keywords: Any,
) -> Result:
    """Train, calibrate, retrain, certify and verify a model.

    Goes on from the runs that are in the folder already.

    Examples: **abc prove addition --seeds 3** · **abc prove addition --seed 11 --base 16** ·
    **abc prove parity --model decoder**
    """
    from abc_calib.reporting.page.commands import commands, plugin_flags

    work: Any = {"folder": out, "minutes": options.minutes, "track": track, **keywords}
    verdicts = []
    for number in range(seed, seed + seeds):
        run, certificate = abc.certified(task, number, **work)
        verdicts.append(verdict(run, certificate))
        typed = "; ".join([*commands(run), f"abc certify{plugin_flags(run.config)}"])
        say(f"seed {number}: {certificate.outcome}, as by {typed}")
    return Result(
        [result.data for result in verdicts],
        [part for result in verdicts for part in result.shown],
        [remark for result in verdicts for remark in result.remarks],
    )


def verdict(run: abc.Run, certificate: abc.Certificate) -> Result:
    """Report what was decided about a run, and where the page is."""
    shown = [f"{certificate.outcome}: {grouped(certificate.reason)}"]
    for case in certificate.counterexamples[:3]:
        answer = case["answer"] or "no end"
        shown.append(f"{case['problem']} gives {answer} instead of {case['right']}")
    if certificate.verified:
        least = certificate.verified["smallest_margin"]
        shown.append(f"verified by dense attention, on some sources: smallest margin {least}")
        if by := certificate.verified.get("check_py"):
            windows, least = grouped(str(by["windows"])), by["smallest_margin"]
            shown.append(f"check.py agrees: of all {windows} windows, smallest margin {least}")
    page = f"how and why: {run.path / 'certificate.md'}"
    return Result({"run": str(run), **asdict(certificate)}, shown, [page])
