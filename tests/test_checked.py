"""Calls from Python: what cannot be taken is an ``AbcError``, in Python's own words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import abc_calib as abc
from abc_calib.checked import checked, in_python
from abc_calib.errors import AbcError, OptionError, UsageError

BATCH = {"input_ids": torch.ones(1, 2).long(), "labels": torch.ones(1, 2).long()}
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("heatmap", (None, "figures"), {"format": 3}, "format = 3: choose among pdf"),
    ("heatmap", (None, "figures"), {"format": ["png", 3]}, "format = 3: choose among"),
    ("heatmap", (None, 3), {}, "out = 3: give a path or a text"),
    ("heatmap", (None, "figures"), {"options": 3}, "give FigureOptions or None"),
    ("heatmap", (None,), {}, r"heatmap\(\): missing a required argument: 'out'"),
    ("LineBias", (3,), {}, "LineBias: give sites as"),
    ("LineBias", ({}, "x"), {}, "LineBias: give sites as"),
    ("extend_bias", (), {"shape": 3}, "missing a required argument: 'attention'"),
    ("extend_bias", ([[[1.0]]],), {"shape": 3}, "shape = 3: give a list of whole numbers"),
    ("extend_bias", ([[[1.0]]], (2, 2)), {"threshold": "x"}, "give a number"),
    ("predict", (None, 12), {}, "problem = 12: give a text"),
    ("predict", (None, "12"), {"show": "maybe"}, "show = 'maybe': give True or False"),
    ("evaluate", (), {"lengths": 3}, "lengths = 3: give a list of whole numbers"),
    ("train", (), {}, "missing a required argument: 'task'"),
    ("train", (3,), {}, "task = 3: give a text or a class"),
    ("train", ("addition",), {"task_options": 3}, "task_options = 3: give a dictionary"),
    ("train", ("addition",), {"out": 3}, "out = 3: give a path or a text or None"),
    ("train", ("addition",), {"on_step": 3}, "on_step = 3: give a function"),
    ("train", ("addition",), {"stpes": 20}, "unknown option 'stpes': choose among"),
    ("verify", (), {"samples": "x"}, "samples = 'x': give a whole number"),
    ("capture", (nn.Linear(2, 2),), {}, "missing a required argument: 'batches'"),
    ("capture", (nn.Linear(2, 2), BATCH), {"delimiters": [1]}, "not a model of transformers"),
    ("capture", (nn.Linear(2, 2), None), {"delimiters": [1]}, "batches = None: give a dictionary"),
    ("capture", (nn.Linear(2, 2), BATCH), {"delimiters": "="}, "delimiters = '=': give a list"),
    ("fit_lines", ([],), {}, "no attention to fit"),
    ("fit_lines", ("text",), {}, "attention = 'text': give a list of Attention"),
    ("extend_bias", ([[[1, [2]]]], (1, 2)), {}, "attention is not an array"),
    ("unexplained", ([1], None), {}, "give a list of Attention"),
    ("inject", (nn.Linear(2, 2), 3), {}, "bias = 3: give LineBias or None"),
    ("as_attention", (5, BATCH), {"delimiters": [1]}, "weights = 5: give a list of Tensor or a"),
    ("Run", (3,), {}, "path = 3: give a path or a text"),
]


@pytest.mark.parametrize(("name", "args", "keywords", "words"), WRONG, ids=str)
def test_a_wrong_call_is_told_before_anything_is_done(runs_root, name, args, keywords, words):
    with pytest.raises(UsageError, match=words):
        getattr(abc, name)(*args, **keywords)
    assert not runs_root.exists()


def test_messages_have_keywords_in_place_of_flags():
    flags = {"--digits": "length", "--max-len": "max_len"}
    for said, wanted in (
        ("give less --max-len or --digits", "give less max_len= or length="),
        ("try --learning-rate, or --no-stop-early", "try learning_rate=, or stop_early=False"),
        ("go on: abc train --resume a/b; or --steps", "go on: abc train --resume a/b; or steps="),
        ("a-b --- c -- d", "a-b --- c -- d"),
    ):
        assert in_python(said, flags) == wanted

    def fails(kind: str) -> None:
        raise OptionError("steps", 3, "see --max-len") if kind else AbcError("--max-len 3")

    with pytest.raises(OptionError, match="steps = 3: see max_len="):
        checked(fails)("x")
    with pytest.raises(AbcError, match="max_len= 3"):
        checked(fails)("")
    for text in ("a\0b", "\ud800"):
        with pytest.raises(UsageError, match=r"kind = '.*': give text without null characters"):
            checked(fails)(text)


def misspelt() -> None:
    """Never called: a type checker refuses what is ignored here, or says that it need not be."""
    abc.train("addition", stpes=20)  # type: ignore[call-arg]
    abc.train("addition", steps="many")  # type: ignore[arg-type]
    abc.calibrate(dirs=["up"])  # type: ignore[list-item]
    abc.evaluate(max_len=10, samples=5)
