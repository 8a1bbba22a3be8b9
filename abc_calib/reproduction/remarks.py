"""Notes that are made of the results, by the name that a target has in braces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from abc_calib.reproduction.cells import (
    AGREES,
    BETTER,
    DIFFERS,
    MARKS,
    MEASURES,
    SUCCEEDS,
    TITLES,
    rounded,
    shown,
)
from abc_calib.reproduction.layouts import answered
from abc_calib.reproduction.report import Study


def how_to_read(study: Study) -> Iterator[str]:
    """What stands in a cell, and when it agrees."""
    within = "; ".join(
        f"{MEASURES[name].label}: {MEASURES[name].tolerance:g}"
        + (f" or {100 * MEASURES[name].share:g} %" if MEASURES[name].share else "")
        for name in study.target.measures
    )
    yield (
        "Each cell: median / worst over seeds, the paper's number in brackets. "
        f"{MARKS[AGREES]} {AGREES}: our median is as near as this to the paper's number "
        f"({within}). {MARKS[BETTER]} {BETTER}: it is better, in a row that the paper "
        f"proposes. {MARKS[DIFFERS]} {DIFFERS}: it is worse, or better in a row that the "
        "paper compares with. No mark where the paper has no number. Columns are lengths, "
        "counted as the task counts them."
    )


def verdicts(study: Study) -> Iterator[str]:
    """How many cells agree, and which do not."""
    judged = [one for one in study.cells if one.verdict]
    if not judged:
        yield "Nothing is measured yet that the paper has a number for."
        return
    counts = Counter(one.verdict for one in judged)
    text = ", ".join(f"{kind} in {counts[kind]}" for kind in (AGREES, BETTER, DIFFERS))
    lines = [f"Of {len(judged)} cells with a number in the paper: {text}."]
    off = [
        f"{study.label(one)} at {one.length} ({rounded(one.median)} against {rounded(one.paper)})"
        for one in judged
        if one.verdict == DIFFERS
    ]
    lines += [f"Disagreement: {'; '.join(off)}."] if off else []
    yield from [" ".join(lines)] if study.target.layout == "lengths" else lines


def samples(study: Study) -> Iterator[str]:
    """How many samples per seed and length, with the exceptions."""
    cells = [one for one, *_ in answered(study)] if study.target.answers else study.cells
    counts = Counter(one.n for one in cells if one.n)
    if not counts:
        yield "Nothing is measured yet."
        return
    usual = counts.most_common(1)[0][0]
    other: dict[tuple[int, int], list[str]] = {}
    for one in cells:
        if one.n not in (0, usual):
            other.setdefault((one.n, one.length), []).append(study.label(one))
    lines = [f"{n:,} at {x} digits ({', '.join(names)})" for (n, x), names in other.items()]
    yield "; ".join([f"Samples a length and seed: {usual:,}", *lines]) + "."


def not_calibrated(study: Study) -> Iterator[str]:
    """Which rows have seeds whose first training did not interpolate, a line for each task."""
    told: dict[str, list[str]] = {}
    for (task, row), count in study.refused.items():
        told.setdefault(task, []).append(f"{row} ({count})")
    for task, rows in told.items():
        yield (
            f"{TITLES[task]}, not calibrated since the first training did not interpolate, with "
            f"the number of seeds: {'; '.join(rows)}."
        )


def schedule(study: Study) -> Iterator[str]:
    """How long the models were trained, from the results themselves."""
    columns = ["key", "task", "preset", "batch", "steps", "steps_taken", "train_seconds", "n"]
    runs = study.results.reindex(columns=columns).dropna().drop_duplicates("key")
    if not runs.empty:
        taken = f"{int(runs['steps_taken'].min()):,} to {int(runs['steps_taken'].max()):,}"
        batches = " and ".join(str(int(b)) for b in sorted(set(runs["batch"])))
        hours = runs["train_seconds"].sum() / 3600
        yield (
            f"Schedule: preset {' and '.join(sorted(set(runs['preset'])))}, batches of {batches}, "
            f"at most {int(runs['steps'].max()):,} steps, {taken} taken; {len(runs)} models "
            f"trained in {hours:.1f} hours. {int(runs['n'].min()):,} test samples a length or more."
        )


def lost(study: Study) -> Iterator[str]:
    """Which rows have calibrated models that are wrong at training lengths already."""
    for one in study.cells:
        row = study.row(one)
        at_start = one.length == study.target.lengths_of(one.task)[0]
        if row.calibrate is not None and at_start and one.seeds and (one.min or 0) < SUCCEEDS:
            yield (
                f"{TITLES[one.task]}, {row.label}: {shown(one.min)} % at the training "
                f"length itself in the worst of {one.seeds} seeds. None of the sets of lines "
                "found is enough there, and a calibration tells so from training lengths alone."
            )


def reached(study: Study) -> Iterator[str]:
    """How far models get, alone and calibrated."""
    for task in study.target.tasks_shown:
        longest = study.target.lengths_of(task)[-1]
        last = [
            one for one in study.cells if (one.task, one.length) == (task, longest) and one.seeds
        ]
        for calibrated in (False, True):
            mine = [one for one in last if (study.row(one).calibrate is not None) == calibrated]
            if mine:
                good = sum((one.min or 0) >= SUCCEEDS for one in mine)
                best = max(one.median or 0.0 for one in mine)
                yield (
                    f"{TITLES[task]} {'with' if calibrated else 'without'} ABC at {longest}: "
                    f"{good} of {len(mine)} rows at {SUCCEEDS:g} % or more in every seed, the best "
                    f"median {shown(best)} %."
                )


REMARKS: dict[str, Callable[[Study], Iterable[str]]] = {
    one.__name__: one
    for one in (
        how_to_read,
        verdicts,
        samples,
        not_calibrated,
        schedule,
        lost,
        reached,
    )
}


def notes(study: Study) -> list[str]:
    """The notes of a target, in its order."""
    found: list[str] = []
    for note in study.target.notes:
        found += REMARKS[note[1:-1]](study) if note.startswith("{") else [note]
    return found
