"""``abc certify``."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abc_calib.config import (
    AdoptOptions,
    CertifyOptions,
    MachineOptions,
    RecipeOptions,
    TaskOptions,
    build,
)
from abc_calib.config.options import taken
from abc_calib.errors import UsageError
from abc_calib.progress import bar
from cli import console
from cli.options import AsJson, Out, Quiet, RunArgument, options

if TYPE_CHECKING:
    from abc_calib.certification.certificate import Certificate
    from abc_calib.runs import Run


@console.command
@options(
    *(CertifyOptions, AdoptOptions, TaskOptions, RecipeOptions, MachineOptions),
    without=("device", "tables", "tables_seed", "fit_lengths", "check_lengths", "preset", "epochs"),
)
def certify(
    run: RunArgument = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Decide whether a model is right for every source of every length.

    Writes certificate.json and certificate.md into the run: certified, refuted with
    counterexamples, or unknown with the reason.

    Examples: **abc certify** · **abc certify RUN --verify** · **abc certify RUN --repair** ·
    **abc certify RUN --export FOLDER** · **abc certify --task addition --seeds 3** ·
    **abc certify --task addition --seed 11 --base 16** · **abc certify --task parity --model
    decoder** · **abc certify --hf FOLDER --data pairs.jsonl --delimiters "+,="**
    """
    from abc_calib import stages

    training = {name: given.pop(name, None) for name in ("base", "model")}
    foreign = build(AdoptOptions, **taken(AdoptOptions, given))
    asked = build(CertifyOptions, **given)
    if foreign.check():
        found_run, certificate = _of_others(foreign, asked, run, out, quiet)
        if as_json:
            console.print_json({"run": str(found_run), **asdict(certificate)})
        else:
            _report(found_run, certificate, quiet)
        return
    ways = asked.verify, asked.repair, asked.export is not None, asked.task is not None
    if sum(ways) > 1 or (asked.task and run):
        raise UsageError(
            "choose one of --verify, --repair, --export and --task; --task makes its own run"
        )
    for name, value in {**given, **training}.items():
        if asked.task is None and name in ("seeds", "seed", *training) and value is not None:
            raise UsageError(f"--{name} {value}: give --task with it")
    if out is not None and asked.task is None and not asked.repair:
        raise UsageError(
            f"--out {console.typed(out)}: it names what --repair or --task makes; give one of them"
        )
    found = []
    for seed in range(asked.seed, asked.seed + asked.seeds):
        started = time.perf_counter()
        if asked.task is not None:
            how: dict[str, Any] = {"minutes": asked.minutes, "progress": not quiet, **training}
            found.append(stages.certified(asked.task, seed, folder=out, **how))
            console.say(f"{time.perf_counter() - started:.0f} s in all", quiet)
        else:
            found.append(_decide(run, asked, out, quiet))
        if not as_json:
            _report(*found[-1], quiet)
    if as_json:
        told = [{"run": str(path), **asdict(certificate)} for path, certificate in found]
        console.print_json(told if asked.task is not None else told[0])


def _of_others(
    foreign: AdoptOptions, asked: CertifyOptions, run: str | None, out: Any, quiet: bool
) -> tuple[Run, Certificate]:
    """The run of somebody else's model, and its certificate."""
    from abc_calib import stages

    if run or asked.verify or asked.repair or asked.export:
        raise UsageError("--hf names the model: leave out a run, --verify, --repair and --export")
    assert foreign.hf and foreign.data and foreign.delimiters
    made = stages.adopt(
        foreign.hf, foreign.data, foreign.delimiters, task=asked.task or "", lined=True, out=out
    )
    return made, stages.certify(made, progress=not quiet)


def _decide(
    name: str | None, asked: CertifyOptions, out: Any, quiet: bool
) -> tuple[Run, Certificate]:
    """The run that was judged, or was made by a repair, and its certificate."""
    from abc_calib import stages
    from abc_calib.certification.certificate import FILE, Certificate
    from abc_calib.runs import Run

    opened = Run.open(name)
    if asked.repair:
        made = stages.repair(
            opened,
            minutes=asked.minutes,
            out=out,
            on_round=lambda c: console.say(f"{c.outcome}: {c.reason}", quiet),
        )
        return made, Certificate.load(made)
    again = asked.verify or asked.export is not None
    if not again or not os.path.lexists(opened.path / FILE):
        if again:
            console.say("there is no certificate yet: certifying first", quiet)
        found = stages.certify(opened, minutes=asked.minutes, progress=not quiet)
        if not again:
            return opened, found
    if asked.verify:
        with bar("certifying again", not quiet, "%") as update:

            def on_windows(done: int, total: int) -> None:
                last = "then by dense attention" if done == total else f"of {total}"
                update(100 * done // total, 100, last)

            return opened, stages.verify(opened, minutes=asked.minutes, on_windows=on_windows)
    folder = stages.export(opened, Path(str(asked.export)))
    program = next(path for path in sorted(folder.glob("check*.py"), reverse=True))
    console.say(f"check it with numpy alone: python {program}", quiet)
    return opened, Certificate.load(opened)


def _report(run: Run, certificate: Certificate, quiet: bool) -> None:
    """The verdict on stdout, and where the page is on stderr."""
    console.tell_sentence(f"{certificate.outcome}: {certificate.reason}")
    for one in certificate.counterexamples[:3]:
        answer = one["answer"] or "no end"
        console.tell_sentence(f"  {one['problem']} gives {answer} instead of {one['right']}")
    if certificate.verified:
        least = certificate.verified["smallest_margin"]
        console.tell(f"verified by dense attention: smallest margin {least}")
    console.say(f"how and why: {run.path / 'certificate.md'}", quiet)
