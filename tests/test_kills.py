"""Killed at any moment: what is begun again ends as if nobody had stopped it."""

from __future__ import annotations

import pytest
from killed import KINDS


@pytest.mark.parametrize(
    ("name", "number"), [("train", 1), pytest.param("sweep", 4, marks=pytest.mark.slow)]
)
def test_a_killed_command_ends_as_if_it_had_not_been(trained, tmp_path, name, number):
    """At a random moment of its work: the first by SIGTERM, the others by SIGKILL."""
    one = KINDS[name](trained.root, tmp_path).kill(number)
    assert one.fine, one


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_kills(trained, tmp_path, name):
    kind = KINDS[name](trained.root, tmp_path)
    assert [one for one in map(kind.kill, range(12)) if not one.fine] == []
