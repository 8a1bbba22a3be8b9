"""Rules write what Python's integers say, and map rows into rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks import get_task, rules
from tasks.closure import NotClosed, check_closed
from tasks.rules import Rule


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


@pytest.mark.parametrize(("task", "base"), [("addition3", 3), ("addition4", 4), ("addition3", 4)])
def test_sums_whose_last_carry_is_one_digit_are_rules(task, base):
    assert get_task(task, base=base).rule() is not None
    assert get_task(task, base=base - 2 if base > 3 else 2).rule() is None
