"""The page of runs: one HTML file with everything in it, which needs no network.

A template, a style sheet and plain JavaScript, which lie here as files, are filled with what
``collect`` makes of the runs. Models without positions are computed in the page itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from abc_calib.errors import UsageError
from abc_calib.files import make_folder, write_text
from abc_calib.reporting.curves import accuracy_curve
from abc_calib.reporting.of_runs import accuracy_series, labels_of
from abc_calib.reporting.page.collect import collected
from abc_calib.reporting.style import as_svg, font
from abc_calib.runs import Run
from abc_calib.version import __version__

STATIC = files("abc_calib.reporting.page") / "static"
MOST_RUNS = 12
SCRIPTS = ("geometry", "model", "problem", "play")
"""The files of JavaScript, in their order."""
PLAYED = ("task", "unit", "length", "examples", "spelling", "symbols", "rule", "model", "rests")
"""What they need of a run."""


def write_page(
    runs: Sequence[Run],
    path: Path,
    title: str = "",
    on_run: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> Path:
    """Write the page of some runs; ``UsageError`` for none or too many.

    ``on_run`` is called with (runs read, all runs) and the name of the next one.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise UsageError(f"a page of {len(runs)} runs: name 1 to {MOST_RUNS}")
    make_folder(path.parent, path)
    runs = sorted(runs, key=lambda run: run.config.stage != "calibrated")
    labels = names([run.path for run in runs])
    parts: list[dict[str, Any]] = []
    for run, name in zip(runs, labels, strict=True):
        on_run(len(parts), len(runs), name)
        parts.append(collected(run) | {"name": name})
    write_text(path, rendered(parts, title))
    return path


def names(paths: Sequence[Path]) -> list[str]:
    """Return the names of run folders; whole paths where two of them are alike."""
    short = [path.resolve().name for path in paths]
    alike = len(set(short)) < len({path.resolve() for path in paths})
    return [str(path) for path in paths] if alike else short


def rendered(runs: Sequence[dict[str, Any]], title: str = "") -> str:
    """Fill the page of collected runs."""
    from jinja2 import Environment, FunctionLoader

    loader = FunctionLoader(text_of)
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html").render(
        version=__version__,
        style=text_of("style.css"),
        title=title or ", ".join(run["name"] for run in runs),
        runs=[{**run, "chart": accuracy_chart([run])} for run in runs],
        together=together(runs),
        data=json.dumps({"runs": [{k: run[k] for k in PLAYED} for run in runs]}, allow_nan=False),
        script="\n".join(text_of(f"{name}.js") for name in SCRIPTS),
    )


def accuracy_chart(runs: Sequence[Mapping[str, Any]]) -> str:
    """Draw the exact match of some runs by length; empty where nothing is measured."""
    measured = [run for run in runs if run["accuracy"]]
    rows = dict(zip(labels_of(measured), (run["accuracy"] for run in measured), strict=True))
    if not rows:
        return ""
    with font("sans"):
        length = min(run["length"] for run in measured)
        look: dict[str, Any] = {"unit": runs[0]["unit"], "title": ""}
        return as_svg(accuracy_curve(accuracy_series(rows), train_length=length, **look))


def together(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return several runs by task: its name, a chart and its runs; nothing for a run alone."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for index, run in enumerate(runs if len(runs) > 1 else ()):
        tasks.setdefault(run["task"], []).append({**run, "index": index})
    return [
        {
            "name": group[0]["title"].capitalize(),
            "chart": accuracy_chart(group),
            "verdicts": contrasted(group),
            "certificates": [run["certificate"] for run in group] if comparable(group) else [],
            "runs": group,
        }
        for task, group in tasks.items()
    ]


def contrasted(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what is said of runs of a task by stage, where there is one of each at most."""
    verdicts = (pair for run in runs for pair in run["verdicts"].items())
    return {stage: text for stage, text in verdicts if text} if comparable(runs) else {}


def comparable(runs: Sequence[Mapping[str, Any]]) -> bool:
    """Is there one run of each stage at most?"""
    return len({run["stage"] for run in runs}) == len(runs)


def text_of(name: str) -> str:
    """Read a file of the page: a template, the style sheet or a script."""
    return (STATIC / name).read_text("utf-8")
