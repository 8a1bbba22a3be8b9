"""Planted faults: no faulty twin is certified, and right twins are (tests/planted.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from planted import KINDS, Maker, falsely, needlessly, pairs

from abc_calib.proof import search

SUITE = {
    "the rarest window": 5,
    "margin 1e-6": 5,
    "margin of 1.5 bounds": 2,
    "an entry of the rule": 8,
}
"""Pairs of each kind that are judged each time; 20 of every kind in the slow test."""


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setattr(search, "MOST_SOURCES", 500)  # the windows are what is judged
        for name in ("TRIED", "DECODED", "SAMPLES"):
            patch.setattr(search, name, 2)
        yield Maker(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize(
    "kind, number, verified",
    [
        *((kind, number, False) for kind, number in SUITE.items()),
        *(pytest.param(kind, 20, True, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_no_faulty_twin_is_certified_and_every_right_one_is(kind, number, verified, maker):
    rows = [*pairs(kind, maker, number, verified)]
    programs = ("certify", "windows", "check.py", *["verify"] * verified)
    assert len(rows) == 2 * number
    assert not [(row, by) for row in rows for by in programs if falsely(row, by)]
    assert not [(row, by) for row in rows for by in programs if needlessly(row, by)]
