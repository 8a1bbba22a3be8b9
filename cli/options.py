"""Options that several commands take, spelled once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[
    str | None, typer.Argument(help="A run folder or its name; the latest run by default.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[
    int | None,
    typer.Option(help="Threads that torch may use; by default one to train, its own choice else."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
Out = Annotated[Path | None, typer.Option(help="The folder to make, instead of one in runs/.")]
Seed = Annotated[int, typer.Option(help="Seed of the weights, the data and the split.")]
