"""``abc certify``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from cli import console
from cli.options import AsJson, Out, Quiet, RunArgument, Threads


@console.command
def certify(
    run: RunArgument = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the certificate again by dense attention.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Train on failing windows until it is certified.")
    ] = False,
    task: Annotated[
        str | None, typer.Option(help="From nothing: train, calibrate and certify this task.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="With --task: seeds 0 to this less one.")] = 1,
    minutes: Annotated[float, typer.Option(help="Most time for one enumeration.")] = 15.0,
    out: Out = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Decide whether a model is right for every source of every length.

    Writes certificate.json and certificate.md into the run: certified, refuted with
    counterexamples, or unknown with the reason.

    Examples: **abc certify** · **abc certify RUN --verify** · **abc certify RUN --repair** ·
    **abc certify --task addition --seeds 3**
    """
    from abc_calib.errors import UsageError

    console.set_threads(threads, training=repair or task is not None)
    if not minutes > 0:
        raise UsageError(f"--minutes {minutes:g} is not possible: give more than 0")
    if sum([verify, repair, task is not None]) > 1 or (task and run):
        raise UsageError("choose one of --verify, --repair and --task; --task makes its own run")
    if seeds < 1 or (seeds > 1 and task is None):
        raise UsageError(f"--seeds {seeds}: give 1 or more, and --task with it")
    if out is not None and task is None and not repair:
        raise UsageError("--out names the folder of a repaired run, or of the runs of --task")
    found = []
    if task is not None:
        for seed in range(seeds):
            found.append(_from_nothing(task, seed, minutes, out, quiet))
            if not as_json:
                _report(*found[-1], quiet)
    else:
        found.append(_decide(run, verify, repair, minutes, out, quiet))
        if not as_json:
            _report(*found[0], quiet)
    if as_json:
        told = [{"run": str(path), **asdict(certificate)} for path, certificate in found]
        console.print_json(told if task is not None else told[0])


def _decide(
    name: str | None, verify: bool, repair: bool, minutes: float, out: Any, quiet: bool
) -> tuple[Any, Any]:
    from abc_calib.certification.certificate import Certificate
    from abc_calib.certification.decide import certify as decide
    from abc_calib.certification.repair import repair as repaired
    from abc_calib.certification.verify import verify as verified
    from abc_calib.errors import AbcError
    from abc_calib.runs import Run

    opened = Run.open(name)
    if repair:
        made = repaired(
            opened,
            minutes=minutes,
            out=out,
            on_round=lambda c: console.say(f"{c.outcome}: {c.reason}", quiet),
        )
        return made, Certificate.load(made)
    if verify:
        try:
            Certificate.load(opened)
        except AbcError as error:
            console.say(f"{error}; certifying first", quiet)
            decide(opened, minutes=minutes)
        return opened, verified(opened)
    with console.progress("checking windows", 100, quiet, "%") as update:
        found = decide(
            opened,
            minutes=minutes,
            on_windows=lambda done, total: update(100 * done // total, f"of {total}"),
        )
    return opened, found


def _from_nothing(task: str, seed: int, minutes: float, out: Any, quiet: bool) -> tuple[Any, Any]:
    from abc_calib.stages import certified

    started = time.perf_counter()
    with console.progress(f"{task}, seed {seed}:", 100, quiet, "%") as update:

        def on_step(stage: str, done: Any) -> None:
            seen = "" if done.accuracy is None else f", held-out {100 * done.accuracy:.1f} %"
            update(100 * done.step // done.steps, stage + seen, bool(seen))

        found = certified(task, seed, folder=out, minutes=minutes, on_step=on_step)
    console.say(f"{time.perf_counter() - started:.0f} s in all", quiet)
    return found


def _report(run: Any, certificate: Any, quiet: bool) -> None:
    """The verdict on stdout, and where the page is on stderr."""
    typer.echo(f"{certificate.outcome}: {certificate.reason}")
    for one in certificate.counterexamples[:3]:
        answer = one["answer"] or "no end"
        typer.echo(f"  {one['problem']} gives {answer} instead of {one['right']}")
    if certificate.verified:
        least = certificate.verified["smallest_margin"]
        typer.echo(f"verified by dense attention: smallest margin {least}")
    console.say(f"how and why: {run.path / 'certificate.md'}", quiet)
