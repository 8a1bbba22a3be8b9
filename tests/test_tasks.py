"""Tasks against Python's integers, in every base, by hand and in bulk."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import written
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import ARITHMETIC, TASKS, Problems, Ragged, TaskError, get_task
from tasks.hard import NUMBERS, chains, families
from tasks.ragged import as_integers

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
LAWS = ("uniform", "balanced", "carry", "mixed")
BASES = st.sampled_from([2, 3, 7, 10, 36])


@cache
def task_of(name: str, base: int) -> Any:
    """A task in that base, or in the largest that it may have here; made once."""
    return get_task(name, base=2 if name == "parity" else base)


WHOLE = st.one_of(st.integers(0, 2000), st.integers(0, 10**45))


def shown(digits: Ragged, row: int) -> str:
    """The digits of one row, as many as it says are written."""
    return "".join(DIGITS[d] for d in digits.row(row)[::-1])


def integers(digits: Ragged, base: int) -> list[int]:
    return [int(shown(digits, row), base) for row in range(len(digits))]


def expected(name: str, operands: list[int], base: int) -> int:
    """The rule on Python's integers."""
    if name == "successor":
        return operands[0] + 1
    if name == "addition":
        return sum(operands)
    if name == "subtraction":
        return operands[0] - operands[1]
    if name == "multiplication":
        return operands[0] * operands[1]
    return operands[0].bit_count() % 2


# The rule


def source_of(task: Any, number: Callable[[int], int]) -> tuple[str, int]:
    """A source as a person writes it, and its answer; ``number``: draws one below a bound."""
    name, base = task.name, task.base
    operands = [number(10**45) for _ in range(task.count)]
    if name == "multiplication":
        operands[1] = number(base)
    if name == "subtraction":
        operands.sort(reverse=True)
    text = (task.operator or "").join(written(operand, base) for operand in operands)
    return text, expected(name, operands, base)


@given(st.sampled_from(list(ARITHMETIC)), BASES, st.data())
@settings(max_examples=150)
def test_answers_are_those_of_pythons_integers(name, base, data):
    task = task_of(name, base)
    most = data.draw(st.sampled_from([2000, 10**45]))

    def number(bound: int) -> int:
        return data.draw(st.integers(0, min(bound, most) - 1))

    source, answer = source_of(task, number)
    assert task.solve(source) == task.solve(source.upper())
    assert int(task.solve(source), task.base) == answer
    assert task.solve(source) == written(answer, task.base)


@given(WHOLE)
def test_parity_writes_the_running_xor_from_the_last_bit(number):
    bits = written(number, 2)
    answer = shown(get_task("parity").parse(bits).answer, 0)
    running, seen = [], 0
    for bit in reversed(bits):
        seen ^= int(bit)
        running.append(str(seen))
    assert answer[::-1] == "".join(running)


@pytest.mark.parametrize(
    ("name", "source", "answer"),
    [
        ("successor", "199", "200"),
        ("addition", " 12 + 007 ", "19"),
        ("addition", "0+0", "0"),
        ("multiplication", "123*6", "738"),
        ("multiplication", "12*006", "72"),
        ("parity", "1011", "1"),
    ],
)
def test_sources_as_a_person_writes_them(name, source, answer):
    assert get_task(name).solve(source) == answer


def test_a_number_with_a_space_in_it_is_none():
    with pytest.raises(TaskError, match="' ' is not a digit of base 10"):
        get_task("addition").solve("1 2 + 7")


@pytest.mark.parametrize("name", ARITHMETIC)
def test_operands_of_ten_thousand_digits(name):
    rng, task = random.Random(7), task_of(name, 16)

    def number(bound: int) -> int:
        return rng.randrange(task.base**10_000 if bound == 10**45 else bound)

    source, answer = source_of(task, number)
    assert len(source) > 9990 and int(task.solve(source), task.base) == answer
    for law in LAWS if name == "addition" else ():
        problems = task.sample(np.random.default_rng(0), 2, 10_000, law, exact=True)
        assert [list(o.lengths) for o in problems.operands] == [[10_000] * 2] * 2


# Sampling


@given(
    st.sampled_from(list(ARITHMETIC)),
    BASES,
    st.sampled_from(LAWS),
    st.booleans(),
    st.integers(0, 11),
    st.integers(1, 13),
    st.integers(0, 2**32),
)
@settings(max_examples=250)
def test_samples_agree_with_the_rule_and_have_the_digits_that_were_asked_for(
    name, base, law, exact, n, length, seed
):
    task = task_of(name, base)
    base = task.base
    problems = task.sample(np.random.default_rng(seed), n, length, law, exact)
    assert len(problems) == n
    for i, operand in enumerate(problems.operands):
        assert operand.values.dtype == np.uint8
        assert operand.values.shape == (n, operand.width)
        assert (operand.values < base).all()
        wanted = 1 if i and name == "multiplication" else length
        if exact:
            assert (operand.lengths == wanted).all()
        elif law != "uniform":
            assert ((operand.lengths >= 1) & (operand.lengths <= wanted)).all()
        else:
            assert all(number <= 2**20 for number in integers(operand, base))
        for row in range(n):
            text = shown(operand, row)
            assert text == "0" or text[0] != "0" or name == "parity"
            assert not operand.values[row, operand.lengths[row] :].any()
    values = [integers(operand, base) for operand in problems.operands]
    for row in range(n):
        source = task.write(problems, row)
        answer = task.solve(source)
        assert int(answer, base) == expected(name, [v[row] for v in values], base), source
        assert task.read(shown(problems.answer, row)) == answer
        assert shown(task.parse(source).answer, 0) == shown(problems.answer, row)


def test_balanced_sampling_draws_every_digit_count_equally_often():
    problems = get_task("addition").sample(np.random.default_rng(0), 6000, 6)
    for operand in problems.operands:
        counts = np.bincount(operand.lengths, minlength=7)[1:]
        assert (abs(counts - 1000) < 150).all(), counts


def test_every_digit_begins_a_number_of_one_digit_but_no_longer_one_begins_with_zero():
    task, rng = get_task("successor", base=3), np.random.default_rng(0)
    for length, numbers in ((1, range(3)), (2, range(3, 9))):
        drawn = task.sample(rng, 600, length, exact=True).operands[0]
        counts = np.bincount(integers(drawn, 3), minlength=9)
        expected = [600 / len(numbers) if number in numbers else 0 for number in range(9)]
        assert (abs(counts - expected) <= 0.3 * np.array(expected)).all(), counts


def carried(name: str, problems: Problems, base: int) -> np.ndarray:
    """Whether each column, from the last one on, passes something on, ``(n, columns)``.

    A product turns over in every column of a run of nines if a one is added below it.
    """
    if name == "multiplication":
        return problems.answer.values == base - 1
    width = max(o.width for o in problems.operands)
    numbers = [o.widened(width).astype(int) for o in problems.operands]
    carry, found = np.full(len(problems), int(name == "successor")), []
    for column in range(width):
        first, *others = (number[:, column] for number in numbers)
        rest = sum(others) + carry
        total = first - rest if name == "subtraction" else first + rest
        carry = ((total < 0) | (total >= base)).astype(int)
        found.append(carry)
    return np.stack(found, 1)


@pytest.mark.parametrize(
    ("name", "base", "often"),
    [
        *(("addition", base, 0.5) for base in (2, 10, 23)),
        *(("successor", 10, 0.35), ("subtraction", 10, 0.25), ("multiplication", 10, 0.25)),
    ],
)
def test_the_carry_law_has_long_chains(name, base, often):
    task = task_of(name, base)

    def share(law: str) -> float:
        problems = task.sample(np.random.default_rng(1), 1000, 21, law, exact=True)
        run = longest = np.zeros(1000, int)
        for column in carried(name, problems, base).T:
            run = (run + 1) * column
            longest = np.maximum(longest, run)
        return float((longest > 10).mean())

    assert share("carry") > often
    assert share("balanced") < 0.1
    assert name != "addition" or share("carry") * 0.15 < share("mixed") < share("carry") * 0.5


# Padding


@given(
    st.sampled_from([name for name in ARITHMETIC if name != "parity"]),
    BASES,
    st.integers(0, 11),
    st.integers(0, 2**32),
)
def test_padding_changes_neither_operand_nor_answer(name, base, extra, seed):
    task = task_of(name, base)
    base = task.base
    problems = task.sample(np.random.default_rng(seed), 7, 5)
    for width in (None, 5 + extra):
        operands = task.padded(problems.operands, width)
        for before, after in zip(problems.operands, operands, strict=True):
            assert integers(before, base) == integers(after, base)
        padded = task.answer(*operands)
        assert integers(padded, base) == integers(problems.answer, base)
        if width:
            assert (operands[0].lengths == width).all()
        elif name == "addition":
            assert (operands[0].lengths == operands[1].lengths).all()
            longer = np.max([o.lengths for o in problems.operands], axis=0)
            assert (operands[0].lengths == longer).all()


# Digits


@given(BASES, st.integers(0, 2**70))
def test_digits_as_integers_are_modulo_64_bits(base, number):
    digits = get_task("successor", base=base).parse(written(number, base)).operands[0]
    assert as_integers(digits, base).tolist() == [number % 2**64]


# Messages


ADDITION: Any = get_task("addition")


def drawn(length: int, **law: str) -> Any:
    return ADDITION.sample(np.random.default_rng(0), 3, length, **law)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_task("addition", base=37), "base 37 is not possible: choose 2 to 36"),
        (lambda: get_task("addition", base=8).solve("8+1"), "'8' is not a digit of base 8"),
        (lambda: get_task("addition").solve("1+2+3"), "it has 3 numbers, not 2"),
        (lambda: get_task("addition").solve("12+"), r"a number next to '\+' is missing"),
        (lambda: get_task("addition").solve("12-3"), "'-' is not a digit of base 10"),
        (lambda: get_task("successor").solve(""), "'' is not a source of successor"),
        (
            lambda: get_task("multiplication").solve("12*34"),
            "number 2 may have one digit alone",
        ),
        (lambda: get_task("subtraction").parse("99-100"), "99-100 is below 0: subtraction takes"),
        (lambda: drawn(3, law="even"), "no sampling law 'even': choose one of uniform"),
        (lambda: drawn(0), "length 0 is not possible for addition: give 1"),
        (lambda: ADDITION.padded(ADDITION.parse("1+1234").operands, 3), "4 digits does not fit 3"),
    ],
)
def test_input_that_cannot_be_taken_is_named(call, message):
    with pytest.raises(TaskError, match=message):
        call()


@pytest.mark.parametrize("name", [name for name in TASKS if name != "cfq"])
def test_the_example_in_a_refusal_is_accepted(name):
    task: Any = get_task(name)
    example = re.search(r"as in '([^']+)'|such as (\S+)$|: '([^']+)'$", task.usage)
    assert example is not None
    assert task.solve(example[1] or example[2] or example[3])


# Hard problems


BY_BASE = [("successor", 10), ("multiplication", 10), ("parity", 2), ("addition", 3)]
BY_BASE += [("addition", 10), ("subtraction", 10)]


@given(st.sampled_from(BY_BASE), st.integers(1, 30), st.integers(0, 2**32))
@settings(max_examples=60)
def test_families_are_right_and_of_the_length(task_and_base, length, seed):
    task = get_task(task_and_base[0], base=task_and_base[1])
    made = families(task, np.random.default_rng(seed), 6, length)
    assert set(made) == {"carry chains", "chains of each length and place", *NUMBERS}
    for problems in made.values():
        assert len(problems) == 6
        longest = np.max([o.lengths for o in problems.operands], axis=0)
        assert (longest == length).all()
        for row in range(6):
            again = task.parse(task.write(problems, row)).answer
            assert shown(problems.answer, row) == shown(again, 0)


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


def test_chains_have_every_length_and_place():
    task = get_task("addition")
    n = 5 * 6 // 2
    problems = chains(task, task.rule(), np.random.default_rng(0), n, 5)
    seen = set()
    for row in carried("addition", problems, 10):
        places = np.flatnonzero(row).tolist()
        assert places == list(range(places[0], places[-1] + 1))
        seen.add((places[0], places[-1]))
    assert len(seen) == n
