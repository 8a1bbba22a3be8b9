"""``abc eval``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from abc_calib.config import EvaluateOptions, MachineOptions, build
from abc_calib.errors import OptionError
from cli import console
from cli.options import AsJson, AsLatex, Force, Quiet, RunArgument, opened, options

if TYPE_CHECKING:
    from abc_calib.evaluation import Row


class Evaluate(TyperCommand):
    """The command, with ``--stress`` alone for ``--stress hard``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--stress" in args:
            after = args.index("--stress") + 1
            if after == len(args) or args[after].startswith("-"):
                args = [*args[:after], "hard", *args[after:]]
        return super().parse_args(ctx, args)


@console.command
@options(EvaluateOptions, MachineOptions, in_parts=True)
def evaluate(
    run: RunArgument = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    as_latex: AsLatex = False,
    **given: Any,
) -> None:
    """Exact match of whole outputs at each length, with 95 % intervals.

    Examples: **abc eval --max-len 50 --json** · **abc eval --lengths 100,1000 --samples 1000
    --stress** · **abc eval --stress carry**
    """
    from abc_calib import stages
    from abc_calib.evaluation import SequenceRow
    from abc_calib.evaluation.memory import dense_note
    from abc_calib.reporting import accuracy_table
    from abc_calib.reporting.tables import accuracy_latex, token_table

    device = given.pop("device", "auto")
    asked = build(EvaluateOptions, **given)
    found = opened(run, force, quiet)
    shortest = getattr(found.task, "shortest", 1)
    if asked.lengths is None and asked.max_len < shortest:
        raise OptionError("max_len", asked.max_len, f"give {shortest} or more")
    done: list[Row] = []
    try:
        stages.evaluate(
            found,
            asked.sizes(range(shortest, asked.max_len + 1)),
            samples=asked.samples,
            sets=asked.sets,
            seed=asked.seed,
            greedy=asked.greedy,
            device=device,
            on_row=done.append,
            progress=not quiet,
        )
    except OptionError as error:
        if error.option != "lengths" or asked.lengths:
            raise
        raise OptionError("max_len", asked.max_len, error.rule) from None
    if as_json:
        rows = [row.as_dict() for row in done]
        console.print_json({"run": str(found), "task": found.config.task, "rows": rows})
        return
    sets = {kind: [row for row in done if row.set == kind] for kind in asked.sets}
    if as_latex:
        caption = f"Exact match in percent of {found.config.task} ({found.config.stage}), by length"
        console.tell(accuracy_latex(sets, caption, f"tab:{found.config.task}").rstrip())
    elif words := [row for row in done if isinstance(row, SequenceRow)]:
        console.out.print(token_table(words))
    else:
        console.out.print(accuracy_table(sets))
    console.say(dense_note(found), quiet)
    console.say(f"written to {found.path / 'eval.csv'}", quiet)
