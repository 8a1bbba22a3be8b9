"""Hard problems: right answers, exact lengths, and chains where they should be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import get_task
from tasks.hard import NUMBERS, chains, families, hard

TASKS = [
    ("successor", 10),
    ("addition", 10),
    ("multiplication", 10),
    ("parity", 2),
    ("addition", 3),
    ("subtraction", 10),
]


@pytest.mark.parametrize(("name", "base"), TASKS)
@given(length=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_families_are_right_and_of_the_length(name, base, length, seed):
    task = get_task(name, base=base)
    made = families(task, np.random.default_rng(seed), 12, length)
    assert set(made) == {"carry chains", "chains of each length and place", *NUMBERS}
    for problems in made.values():
        assert len(problems) == 12
        longest = np.max([o.lengths for o in problems.operands], axis=0)
        assert (longest == length).all()
        for row in range(12):
            again = task.parse(task.write(problems, row)).answer
            n = int(problems.answer.lengths[row])
            assert problems.answer.values[row, -n:].tolist() == again.values[0, -n:].tolist()
            assert again.lengths[0] == n


def test_the_families_are_what_they_say():
    task = get_task("addition")
    made = families(task, np.random.default_rng(0), 20, 7)
    sources = {name: [task.write(p, i) for i in range(20)] for name, p in made.items()}
    assert any(s == "9999999+9999999" for s in sources["all nines"])
    assert any(s == "9999999+1" for s in sources["all nines"])
    assert any(s.endswith("+0") for s in sources["a one and zeros"])
    assert all("1000001" in s for s in sources["ones at both ends"])
    for source in sources["palindromes"]:
        assert any(part == part[::-1] and len(part) == 7 for part in source.split("+"))
    widths = {min(len(part) for part in s.split("+")) for s in sources["repeated patterns"]}
    assert len(widths) > 2  # operands of very different widths


def carries(first: int, second: int, length: int) -> list[bool]:
    """Out of which columns an addition carries, by school arithmetic."""
    found, carry = [], 0
    for _ in range(length):
        carry = (first % 10 + second % 10 + carry) // 10
        found.append(bool(carry))
        first, second = first // 10, second // 10
    return found


def test_chains_have_every_length_and_place():
    task = get_task("addition")
    n = 5 * 6 // 2
    problems = chains(task, task.rule(), np.random.default_rng(0), n, 5)
    seen = set()
    for row in range(n):
        first, second = map(int, task.write(problems, row).split("+"))
        places = [i for i, carry in enumerate(carries(first, second, 5)) if carry]
        assert places == list(range(places[0], places[-1] + 1))
        seen.add((places[0], places[-1]))
    assert len(seen) == n


def test_hard_sets_depend_on_the_seed_only():
    task = get_task("addition")
    one, same, other = (hard(task, np.random.default_rng(s), 50, 40) for s in (1, 1, 2))
    assert len(one) == 50
    assert np.array_equal(one.operands[0].values, same.operands[0].values)
    assert not np.array_equal(one.operands[0].values, other.operands[0].values)
