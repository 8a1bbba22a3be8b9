"""Killed at any moment: what is begun again ends as if nobody had stopped it."""

from __future__ import annotations

import pytest
from killed import KINDS


@pytest.mark.parametrize("name", KINDS)
def test_a_killed_command_ends_as_if_it_had_not_been(trained, tmp_path, name):
    """One at a random moment by SIGKILL, another by SIGTERM."""
    kind = KINDS[name](trained.root, tmp_path)
    assert [one for one in map(kind.kill, (4, 1)) if not one.fine] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_kills(trained, tmp_path, name):
    kind = KINDS[name](trained.root, tmp_path)
    assert [one for one in map(kind.kill, range(12)) if not one.fine] == []
