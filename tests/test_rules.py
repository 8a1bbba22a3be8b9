"""Rules write what Python's integers say, and map rows into rows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import TASKS, get_task, rules
from tasks.arithmetic import Arithmetic
from tasks.closure import NotClosed, check_closed
from tasks.rules import Rule

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def written(number: int, base: int) -> list[int]:
    """The digits of a number, last one first."""
    digits: list[int] = []
    while number or not digits:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def tape(digits: list[int], width: int | None = None):
    values = np.array([digits + [0] * ((width or 0) - len(digits))])
    return values, np.array([values.shape[1]])


def row_of(rule: Rule, *numbers: int, base: int) -> list[int]:
    """What the rule writes in its one row, for operands as wide as the widest."""
    digits = [written(number, base) for number in numbers]
    wide = max(len(d) for k, d in enumerate(digits) if k != rule.of_row)
    tapes = [tape(d, None if k == rule.of_row else wide) for k, d in enumerate(digits)]
    ((values, widths),) = rule.rows(tapes)
    return values[0, : widths[0]].tolist()


@given(st.integers(2, 36), st.data())
@settings(max_examples=60, deadline=None)
def test_one_row_is_that_of_integers(base, data):
    number = st.integers(0, base ** data.draw(st.integers(1, 9)) - 1)
    a, b, c = (data.draw(number) for _ in range(3))
    a, b = max(a, b), min(a, b)
    wide = max(len(written(a, base)), len(written(b, base)))
    assert row_of(rules.successor(base), a, base=base) == written(a + 1, base)
    total = written(a + b, base)
    assert row_of(rules.addition(base), a, b, base=base) == total + [0] * (wide - len(total))
    rest = written(a - b, base)
    assert row_of(rules.subtraction(base), a, b, base=base) == rest + [0] * (wide - len(rest))
    factor = data.draw(st.integers(0, base - 1))
    product = written(a * factor, base)
    found = row_of(rules.multiplication(base), a, factor, base=base)
    assert found == product + [0] * (len(written(a, base)) - len(product))
    if base >= 3:
        three = written(a + b + c, base)
        wide = max(wide, len(written(c, base)))
        found = row_of(rules.addition(base, 3), a, b, c, base=base)
        assert found == three + [0] * (wide - len(three))
    bits = written(a, 2)
    parity = np.bitwise_xor.accumulate(bits).tolist()
    assert row_of(rules.running_xor(), a, base=2) == parity
    if b < a:
        with pytest.raises(ValueError):
            row_of(rules.subtraction(base), b, a, base=base)


@given(st.integers(2, 12), st.data())
@settings(max_examples=40, deadline=None)
def test_rows_are_those_of_integers(base, data):
    number = st.integers(0, base ** data.draw(st.integers(1, 6)) - 1)
    a, b = data.draw(number), data.draw(number)
    rows = rules.long_multiplication(base).rows([tape(written(x, base)) for x in (a, b)])
    above, width = 0, len(written(a, base)) + 1
    for digit, (values, widths) in zip(written(b, base), rows, strict=True):
        above = above // base + a * digit
        expected = written(above, base)
        assert widths[0] == width
        assert values[0, :width].tolist() == expected + [0] * (width - len(expected))
    numbers = data.draw(st.lists(number, min_size=1, max_size=5))
    rows = rules.sums(base).rows([tape(written(x, base)) for x in numbers])
    for k, (values, widths) in enumerate(rows):
        assert values[0, : widths[0]].tolist() == written(sum(numbers[: k + 1]), base)


@pytest.mark.parametrize("make", [rules.long_multiplication, rules.sums])
@pytest.mark.parametrize("base", [2, 3, 10])
def test_rows_are_mapped_into_rows(make, base):
    check_closed(make(base))


def bent(rule: Rule, rng: np.random.Generator) -> Rule:
    """The rule with one entry of its table changed: another symbol, or no such column."""
    later = rule.later
    assert later is not None
    after, out = later.next.copy(), later.written.copy()
    there = np.argwhere((after >= 0) & (out < later.base))
    place = tuple(there[rng.integers(len(there))])
    if rng.random() < 0.5:
        out[place] = (out[place] + 1) % later.base
    else:
        after[place] = rules.NO
    return replace(rule, later=replace(later, next=after, written=out))


@pytest.mark.parametrize("make", [rules.long_multiplication, rules.sums])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_closed_never_lacks_a_row_and_most_bent_rules_are_not(make, seed):
    """By brute force: no problem of a rule that passes ends in a row without a next one."""
    rng = np.random.default_rng(seed)
    rule, refused = make(2), 0
    for _ in range(5):
        other = bent(rule, rng)
        try:
            check_closed(other)
        except NotClosed:
            refused += 1
            continue
        for _ in range(200):
            count = int(rng.integers(2, 5)) if rule.listed else 2
            numbers = [tape(written(int(rng.integers(64)), 2)) for _ in range(count)]
            other.rows(numbers)  # a ValueError says that there is no run
    assert refused


def test_states_that_do_the_same_are_one():
    assert rules.addition(10).first.states == 6
    assert rules.successor(10).first.states == 6
    assert rules.multiplication(10).first.symbols == tuple(range(10))


def test_the_task_of_contributing_is_one(monkeypatch):
    """Its class and its rule, as printed, agree."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    section = text.split("## A task\n")[1].split("## A position scheme")[0]
    code, *_ = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.setitem(TASKS, "doubling", Arithmetic)  # what it registers goes with the test
    scope: dict = {}
    exec(compile(code, "<CONTRIBUTING>", "exec"), scope)
    task = scope["Doubling"]()
    for number in [0, 5, 49, 50, 999, 123456789]:
        assert int(task.solve(str(number))) == 2 * number


@pytest.mark.parametrize(("task", "base"), [("addition3", 3), ("addition4", 4), ("addition3", 4)])
def test_sums_whose_last_carry_is_one_digit_are_rules(task, base):
    assert get_task(task, base=base).rule() is not None
    assert get_task(task, base=base - 2 if base > 3 else 2).rule() is None
