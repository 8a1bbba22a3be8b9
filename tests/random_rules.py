"""Random rules on words: rows that close inside, closers, words behind the end, further tapes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from tasks import TaskError, WordTask
from tasks.rules import END, ROW

KINDS = ("row", "two", "marks", "counted", "closers")
"""One row, two rows, three rows (each begins with its number), as many as asked for, and one for
each word in front, below rows that close in two ways."""


def random_rule(rng: random.Random) -> WordTask:
    """A task with tables drawn at random; drawn again where no source ends."""
    while True:
        try:
            task = _drawn(rng)
            task.rule()
            return task
        except TaskError:
            continue


def _drawn(rng: random.Random) -> WordTask:
    kind = rng.choice(KINDS)
    letters = "abc"[: rng.choice([2, 2, 3])]
    states = range(rng.choice([1, 2, 2, 3]))
    last = kind in ("two", "counted", "marks") and rng.random() < 0.5
    about: dict[str, Any] = {"symbols": (*letters, *"x" * last)}
    if kind == "row":
        about |= {"backward": rng.random() < 0.3, "stride": rng.choice([1, 1, 2])}
        about |= {"closes_source": rng.random() < 0.1}
    elif kind == "counted":
        about["counted"] = True
    elif kind == "marks":
        about["symbols"] += ("1", "2", "3")
    elif kind == "closers":
        about |= {"closers": ("y", "z"), "row_words": tuple(letters[:2])}
        about["symbols"] += ("y", "z")
    if kind != "row":
        about["rereads"] = kind in ("two", "counted") and rng.random() < 0.25
    about["ahead"] = rng.choice([0, 0, 0, 1, 2]) if kind != "marks" else 0
    read = rng.choice([0.0, 0.1])  # how often a letter cannot stand
    first = _tables(rng, letters, states, about.get("stride", 1), read)
    tapes = 1 + about.get("rereads", False)
    later = _tables(rng, letters, states, tapes, 0.0, closes=kind == "marks" or rng.random() < 0.2)

    def closing(number: int, word: Any) -> Any:
        """How a row closes: in row ``number`` (from 0 on, 1 for all later ones) of this word."""
        if kind == "closers":
            return None if word is None else rng_of(word)
        ends = {"row": True, "counted": True, "two": number > 0, "marks": number > 1}
        return None if ends[kind] else ROW

    ways = {word: rng.choice("yz") for word in letters}

    def rng_of(word: Any) -> str:
        return ways[word]

    def stepped(tables: Any, number: int, state: Any, *words: Any) -> Any:
        if {*words} & {*"yz123"}:
            return None
        word, q = state
        if "x" in words:  # behind the others alone
            return (state, closing(number, word)) if number and not words[1:] else None
        found = tables[0][q, words]
        if found is None:
            return None
        to, out = found
        if out == "close":
            return state, closing(number, word)
        return (word, to), END if out == "end" else out

    def ended(tables: Any, number: int, state: Any) -> Any:
        word, q = state
        closes = closing(number, word)
        more = tables[1][q]
        if more is None and not number:
            return None
        behind = ("x",) if last and not number and tables[2][q] else ()
        return (*(more or ()), *behind, *((closes,) if closes else ()))

    def step(self: Any, state: Any, *words: Any) -> Any:
        if kind == "marks" and state[1] == "new":
            return None if {*words} & {*"x123"} else ((1, 0), "1")
        return stepped(first, 0, state, *words)

    def step_below(self: Any, state: Any, above: Any, *words: Any) -> Any:
        if kind == "marks" and state[1] == "new":
            return {"1": ((2, 0), "2"), "2": ((3, 0), "3")}.get(above)
        number = state[0] - 1 if kind == "marks" else 1
        return stepped(later, number, state, above, *words)

    def below_end(self: Any, state: Any) -> Any:
        return ended(later, state[0] - 1 if kind == "marks" else 1, state)

    about |= {"name": f"random_{kind}", "step": step}
    about["start"] = (None, "new" if kind == "marks" else 0)
    about["end"] = lambda self, state: ended(first, 0, state)
    about["begin"] = lambda self, word, closer: (word, 0)
    if kind != "row":
        about |= {"step_below": step_below, "end_below": below_end}
    return type("Random", (WordTask,), about)()


def _tables(
    rng: random.Random, letters: str, states: Any, tapes: int, lacks: float, closes: bool = True
) -> Any:
    """What is written of every state and column, what behind the last one, and a choice.

    ``closes``: may a row close where no letter may follow, and not only as the last one?
    """
    inside = rng.choice([0.0, 0.1, 0.2])
    choose: Callable[..., Any] = rng.choice

    def entry(words: Any) -> Any:
        drawn = rng.random()
        if drawn < lacks:
            return None
        if drawn < lacks + inside:
            return 0, choose(["close", "close", "end"] if closes else ["end"])
        return choose(states), choose(letters)

    every = itertools.product(states, itertools.product([*letters, None], repeat=tapes))
    table = {(q, words): entry(words) for q, words in every}
    behind = [[choose(letters) for _ in range(choose([0, 0, 0, 1, 2, 3, 5]))] for _ in states]
    return (
        table,
        [None if rng.random() < lacks else more for more in behind],
        [rng.random() < 0.7 for _ in states],
    )
