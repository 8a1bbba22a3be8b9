"""The automata of the tasks write what the rules write."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import TASKS, get_task
from tasks.arithmetic import Arithmetic


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("successor", 10),
        ("addition", 10),
        ("multiplication", 10),
        ("parity", 2),
        ("addition", 7),
        ("subtraction", 10),
        ("subtraction", 2),
        ("addition3", 10),
        ("addition4", 5),
    ],
)
@given(data=st.data())
def test_automaton_agrees_with_the_rule(name, base, data):
    task = get_task(name, base=base)
    rule = task.column_rule()
    length = data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    law = data.draw(st.sampled_from(["balanced", "carry"]))
    problems = task.sample(rng, 3, length, law)
    padded = task.padded(problems.operands)
    for row in range(3):
        width = int(padded[0].lengths[row])
        columns = [
            [int(padded[k].values[row, -1 - c]) for k in rule.operands] for c in range(width)
        ]
        starts = [
            s
            for s in rule.start
            if rule.constant is None
            or rule.constants[s] == problems.operands[rule.constant].values[row, -1]
        ]
        assert len(starts) == 1
        n = int(problems.answer.lengths[row])
        expected = problems.answer.values[row][::-1][:n].tolist()
        assert rule.run(columns, starts[0]) == expected


def test_multiplication_carries_stay_below_the_factor():
    rule = get_task("multiplication").column_rule()
    reached = set(rule.start)
    while True:
        more = reached | {int(s) for q in reached for s in rule.next[q].ravel()}
        if more == reached:
            break
        reached = more
    assert all(s % 10 <= max(s // 10 - 1, 0) for s in reached)
    assert all(rule.constants[s] == s // 10 for s in reached)


def test_the_task_of_contributing_is_one(monkeypatch):
    """Its class and its column rule, as printed, agree."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    section = text.split("## A task\n")[1].split("## A position scheme")[0]
    code, *_ = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.setitem(TASKS, "doubling", Arithmetic)  # what it registers goes with the test
    scope: dict = {}
    exec(compile(code, "<CONTRIBUTING>", "exec"), scope)
    task = scope["Doubling"]()
    rule = task.column_rule()
    for number in [0, 5, 49, 50, 999, 123456789]:
        digits = [[int(d)] for d in reversed(str(number))]
        written = rule.run(digits, rule.start[0])
        assert int("".join(map(str, reversed(written)))) == 2 * number
        assert task.solve(str(number)) == str(2 * number)
