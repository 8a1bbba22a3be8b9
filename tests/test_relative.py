"""Diagonal lines are clipped relative positions: the same matrix from either, at any size."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CALIBRATED, VANILLA, view_of
from hypothesis import given
from hypothesis import strategies as st

from abc_calib.calibration.relative import relative_tables
from abc_calib.errors import UsageError
from abc_calib.geometry import CORNER, Line, LineBias
from abc_calib.nn.attend import MASKED
from abc_calib.nn.lines import Lines


def dense(bias: LineBias, site: Any, head: int, rows: int, keys: int) -> np.ndarray:
    """The head's bias from its lines, keys that do not exist left out of account."""
    places = None if site == "self" else torch.tensor([[0, keys - 1]])
    frame = view_of(site, torch.arange(rows), keys, torch.tensor([keys]), places)
    matrix = Lines({site: bias.sites[site][0]}, bias.off_line_bias).dense([frame])[0, head].double()
    return np.where(matrix <= MASKED / 2, -np.inf, matrix)


@given(
    st.integers(0, 2**32),
    st.sampled_from(["self", "encoder", "cross"]),
    st.sampled_from([None, -7.0]),
    st.integers(1, 13),
    st.integers(0, 4),
)
def test_the_table_is_the_bias_at_every_size(seed, site, closed, rows, more):
    rng = random.Random(seed)
    keys = rows if site != "cross" else rows + more

    def head(segment: int) -> tuple[Line, ...]:
        offsets = rng.sample(range(-4, 1 if site == "self" else 4), rng.randint(0, 3))
        return tuple(Line("diag", segment, o, rng.choice([0.0, -1.0, -2.5])) for o in offsets)

    segments = [CORNER, CORNER if site == "cross" else 0]
    bias = LineBias({site: (tuple(head(s) for s in segments),)}, closed)
    tables = relative_tables(bias, site)
    assert [t.head for t in tables] == [0, 1]
    for table in tables:
        seen = np.tri(rows, keys, dtype=bool) if site == "self" else np.ones((rows, keys), bool)
        expected = dense(bias, site, table.head, rows, keys)
        found = table.dense(rows, keys)
        np.testing.assert_allclose(np.where(seen, found, 0), np.where(seen, expected, 0), rtol=1e-6)


def test_a_table_by_hand():
    bias = LineBias({"self": (((Line("diag", 0, -1, -0.5), Line("diag", 0, 0)), ()),)})
    first, second = relative_tables(bias)
    assert (first.clip, first.edge) == (2, "stay")
    assert first.values == (-np.inf, -0.5, 0.0, -np.inf, -np.inf)
    assert set(second.values) == {0.0}
    assert first.dense(2, 2).tolist() == [[0.0, -np.inf], [-0.5, 0.0]]


@pytest.mark.parametrize(
    ("site", "line", "name"),
    [
        ("self", Line("vert", 0, 0), "vert \\+0"),
        ("cross", Line("diag", CORNER, 0, 0.0, 2), "diag \\+0 stride 2 corner"),
        ("cross", Line("diag", 1, 0), "diag \\+0 segment 1"),
        ("cross", Line("anti", CORNER, 1), "anti \\+1 corner"),
    ],
)
def test_other_lines_are_refused_or_left_out(site, line, name):
    diag = (Line("diag", CORNER, 0),)
    bias = LineBias({site: (((line,), diag),)})
    with pytest.raises(UsageError, match=f"{site} layer 0 head 0 follows {name}, which is no func"):
        relative_tables(bias, site)
    assert [t.head for t in relative_tables(bias, site, skip=True)] == [1]
    with pytest.raises(UsageError, match="no encoder-attention head of diagonals alone"):
        relative_tables(bias, "encoder")


def test_the_command_writes_tables_and_a_figure(tiny, abc, tmp_path):
    json_file, csv, figure = (tmp_path / f"t.{kind}" for kind in ("json", "csv", "png"))
    words = ("export", "rpe", CALIBRATED, "--skip")
    said = abc(*words, "--out", json_file, "--figure", figure, "--json").json()
    assert said["files"] == [str(json_file), str(figure)] and figure.stat().st_size > 3000
    tables = json.loads(json_file.read_text())
    assert abc(*words, "--out", csv).out == f"{csv}\n"
    rows = pd.read_csv(csv)
    assert len(rows) == sum(2 * table["clip"] + 1 for table in tables)
    first = rows[(rows.layer == tables[0]["layer"]) & (rows["head"] == tables[0]["head"])]
    values = [None if np.isinf(v) else v for v in first.value]
    assert values == tables[0]["values"]


def test_a_run_without_lines_and_unknown_words_are_refused(tiny, abc, tmp_path):
    assert "has no lines: abc calibrate" in abc("export", "rpe", VANILLA).error(2)
    assert "unknown site 'up'" in abc("export", "rpe", "--site", "up").error(2)
    assert "unknown form 't5': choose rpe, patterns, certificate" in abc("export", "t5").error(2)
    words = ("export", "rpe", "--skip", "--out", tmp_path / "t.txt")
    assert "a table is written as .json or .csv" in abc(*words).error(2)
