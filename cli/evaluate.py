"""``abc eval``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli import console
from cli.options import AsJson, Device, Quiet, RunArgument, Threads

KINDS = ("hard", "carry")


class Evaluate(TyperCommand):
    """The command, with ``--stress`` alone for ``--stress hard``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--stress" in args:
            after = args.index("--stress") + 1
            if after == len(args) or args[after].startswith("-"):
                args = [*args[:after], KINDS[0], *args[after:]]
        return super().parse_args(ctx, args)


@console.command
def evaluate(
    run: RunArgument = None,
    max_len: Annotated[int, typer.Option(help="Every length from 1 to this.")] = 50,
    lengths: Annotated[
        str | None, typer.Option(help="These lengths instead, as in 6,10,100.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Samples a length; by default min(base^L - base^(L-1), 10000)."),
    ] = None,
    stress: Annotated[
        str | None,
        typer.Option(help="Also hard inputs: of every family (no value or hard), or carry."),
    ] = None,
    set_: Annotated[
        str | None,
        typer.Option("--set", help="Token tasks: one of the papers' sets, such as heldout_inputs."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the test sets.")] = 0,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Decode token by token instead of in one pass.")
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Exact match of whole outputs at each length, with 95 % intervals.

    Examples: **abc eval --max-len 50 --json** · **abc eval --lengths 100,1000 --samples 1000
    --stress** · **abc eval --stress carry**
    """
    from abc_calib import stages
    from abc_calib.errors import UsageError
    from abc_calib.evaluation.memory import dense_note
    from abc_calib.runs import Run

    console.set_threads(threads)
    if samples is not None and samples < 1:
        raise UsageError(f"--samples {samples} is not possible: give 1 or more")
    if stress is not None and stress not in KINDS:
        raise UsageError(
            f"unknown --stress {stress!r}: choose {' or '.join(KINDS)}, and name a run before it"
        )
    opened = Run.open(run)
    wanted = parse_lengths(lengths, max_len, getattr(opened.task, "shortest", 1))
    sets = (set_,) if set_ else ("random", stress) if stress else ("random",)
    total = len(wanted) * len(sets)
    done: list[Any] = []
    with console.progress("evaluating", total, quiet, "rows") as update:

        def on_row(row: Any) -> None:
            done.append(row)
            measured = f"{row.set} {row.length} {opened.task.unit}: {row.accuracy:.2f} %"
            update(len(done), measured, True)

        stages.evaluate(
            opened,
            wanted,
            samples=samples,
            sets=sets,
            seed=seed,
            greedy=greedy,
            device=device,
            on_row=on_row,
        )
    if as_json:
        rows = [row.as_dict() for row in done]
        console.print_json({"run": str(opened), "task": opened.config.task, "rows": rows})
        return
    from abc_calib.reporting import accuracy_table
    from abc_calib.reporting.tables import token_table

    if hasattr(done[0], "before_end"):
        console.out.print(token_table(done))
    else:
        console.out.print(
            accuracy_table({kind: [r for r in done if r.set == kind] for kind in sets})
        )
    console.say(dense_note(opened), quiet)
    console.say(f"written to {opened.path / 'eval.csv'}", quiet)


def parse_lengths(text: str | None, max_len: int, shortest: int = 1) -> list[int]:
    """``"6,10"`` as numbers, or ``shortest`` to ``max_len``."""
    from abc_calib.errors import UsageError

    if text is None:
        if max_len < shortest:
            raise UsageError(f"--max-len {max_len} is not possible: give {shortest} or more")
        return list(range(shortest, max_len + 1))
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--lengths {text!r}: give whole numbers, as in 6,10,100") from None
    if min(lengths) < 1:
        raise UsageError(f"length {min(lengths)} is not possible: give 1 or more")
    return list(dict.fromkeys(lengths))
