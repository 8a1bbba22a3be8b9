"""Tasks against Python's integers, in every base, by hand and in bulk."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import ARITHMETIC, Digits, Problems, TaskError, get_task

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
LAWS = ("uniform", "balanced", "carry", "mixed")
BASES = st.integers(2, 36)
NUMBERS = st.one_of(st.integers(0, 2000), st.integers(0, 10**45))


def written(number: int, base: int) -> str:
    """``number`` in that base, by repeated division."""
    text = ""
    while number or not text:
        number, digit = divmod(number, base)
        text = DIGITS[digit] + text
    return text


def shown(digits: Digits, row: int) -> str:
    """The digits of one row, as many as it says are written."""
    start = digits.width - digits.lengths[row]
    return "".join(DIGITS[d] for d in digits.values[row, start:])


def integers(digits: Digits, base: int) -> list[int]:
    return [int(shown(digits, row), base) for row in range(len(digits))]


def expected(name: str, operands: list[int], base: int) -> int:
    """The rule on Python's integers."""
    if name == "successor":
        return operands[0] + 1
    if name.startswith("addition"):
        return sum(operands)
    if name == "subtraction":
        return operands[0] - operands[1]
    if name.startswith("multiplication"):
        return operands[0] * operands[1]
    if name == "zigzag":
        return int(zigzag(written(operands[0], base)), base)
    return operands[0].bit_count() % 2


@contextmanager
def unlimited_integers():
    """Python writes integers of more than some 4,000 digits only if asked to."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def zigzag(text: str) -> str:
    """The digits taken from the end and the start by turns, the last one taken first."""
    taken = ""
    while text:
        taken, text = text[-1] + taken, text[:-1]
        if text:
            taken, text = text[0] + taken, text[1:]
    return taken


# The rule


@given(BASES, NUMBERS)
def test_successor_is_one_more(base, number):
    task = get_task("successor", base=base)
    assert task.solve(written(number, base)) == written(number + 1, base)


@given(BASES, NUMBERS, NUMBERS)
def test_addition_is_the_sum(base, first, second):
    task = get_task("addition", base=base)
    source = f"{written(first, base)}+{written(second, base)}"
    assert task.solve(source) == written(first + second, base)


@given(BASES, NUMBERS, st.data())
def test_multiplication_is_the_product_by_one_digit(base, number, data):
    digit = data.draw(st.integers(0, base - 1))
    task = get_task("multiplication", base=base)
    source = f"{written(number, base)}*{written(digit, base)}"
    assert task.solve(source) == written(number * digit, base)


@given(NUMBERS)
def test_parity_counts_the_ones(number):
    assert get_task("parity").solve(written(number, 2)) == str(number.bit_count() % 2)


@given(NUMBERS)
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
        ("successor", "999", "1000"),
        ("successor", "0", "1"),
        ("addition", "999+1", "1000"),
        ("addition", " 1 2 + 007 ", "19"),
        ("addition", "0+0", "0"),
        ("multiplication", "123*6", "738"),
        ("multiplication", "123*0", "0"),
        ("multiplication", "0*9", "0"),
        ("multiplication", "12*006", "72"),
        ("parity", "1011", "1"),
        ("parity", "0011", "0"),
        ("parity", "0", "0"),
    ],
)
def test_sources_as_a_person_writes_them(name, source, answer):
    assert get_task(name).solve(source) == answer


def test_upper_case_digits_are_digits():
    assert get_task("addition", base=16).solve("FF+1") == "100"


@given(BASES, st.lists(NUMBERS, min_size=4, max_size=4), st.integers(3, 4))
def test_sums_of_three_and_four_numbers(base, numbers, count):
    task = get_task(f"addition{count}", base=base)
    source = "+".join(written(number, base) for number in numbers[:count])
    assert task.solve(source) == written(sum(numbers[:count]), base)


@given(BASES, NUMBERS, st.integers(2, 3), st.data())
def test_products_by_two_and_three_digits(base, number, count, data):
    factor = data.draw(st.integers(0, base**count - 1))
    task = get_task(f"multiplication{count}", base=base)
    source = f"{written(number, base)}*{written(factor, base)}"
    assert task.solve(source) == written(number * factor, base)


@given(NUMBERS)
def test_zigzag_takes_digits_from_both_ends(number):
    assert get_task("zigzag").solve(str(number)) == zigzag(str(number))


def test_zigzag_writes_the_last_digit_then_the_first():
    """The model's output is the answer from its last digit on: 6 1 5 2 4 3."""
    task = get_task("zigzag")
    assert shown(task.parse("123456").answer, 0)[::-1] == "615243"
    assert task.solve("10000") == "00010"


def test_further_tasks_take_ten_thousand_digits():
    numbers = [random.Random(i).randint(10**9_999, 10**10_000 - 1) for i in range(4)]
    with unlimited_integers():
        text = [str(number) for number in numbers]
        assert get_task("addition4").solve("+".join(text)) == str(sum(numbers))
        assert get_task("multiplication3").solve(f"{text[0]}*987") == str(numbers[0] * 987)
        assert get_task("zigzag").solve(text[0])[::-1][:2] == text[0][-1] + text[0][0]


def test_operands_of_ten_thousand_digits():
    rng = random.Random(7)
    first, second = (
        rng.choice("123456789abcdef") + f"{rng.getrandbits(39996):09999x}" for _ in range(2)
    )
    assert len(first) == len(second) == 10_000
    a, b = int(first, 16), int(second, 16)
    assert get_task("addition", base=16).solve(f"{first}+{second}") == f"{a + b:x}"
    assert get_task("successor", base=16).solve(first) == f"{a + 1:x}"
    assert get_task("multiplication", base=16).solve(f"{first}*e") == f"{a * 14:x}"
    bits = f"{a:b}"[:10_000]
    assert get_task("parity").solve(bits) == str(bits.count("1") % 2)
    nines = "9" * 10_000
    assert get_task("successor").solve(nines) == "1" + "0" * 10_000
    assert get_task("addition").solve(f"1+{nines}") == "1" + "0" * 10_000


@pytest.mark.parametrize("law", LAWS)
def test_ten_thousand_digits_can_be_sampled(law):
    problems = get_task("addition").sample(np.random.default_rng(0), 2, 10_000, law, exact=True)
    assert [list(o.lengths) for o in problems.operands] == [[10_000] * 2] * 2


# Sampling


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("name", "base"),
    [(name, base) for name in ARITHMETIC if name != "parity" for base in (2, 3, 10, 36)]
    + [("parity", 2)],
)
def test_samples_agree_with_the_rule(name, base, law, exact):
    task = get_task(name, base=base)
    problems = task.sample(np.random.default_rng([base, exact]), 53, 7, law, exact)
    assert len(problems) == 53
    values = [integers(operand, base) for operand in problems.operands]
    for row in range(len(problems)):
        source = task.write(problems, row)
        answer = task.solve(source)
        assert int(answer, base) == expected(name, [v[row] for v in values], base), source
        assert task.read(shown(problems.answer, row)) == answer
        parsed = task.parse(source)
        assert shown(parsed.answer, 0) == shown(problems.answer, row)


@given(
    st.sampled_from([name for name in ARITHMETIC if name != "parity"]),
    BASES,
    st.sampled_from(LAWS),
    st.booleans(),
    st.integers(0, 11),
    st.integers(1, 13),
    st.integers(0, 2**32),
)
def test_samples_have_the_digits_that_were_asked_for(name, base, law, exact, n, length, seed):
    task = get_task(name, base=base)
    problems = task.sample(np.random.default_rng(seed), n, length, law, exact)
    assert len(problems) == n
    for i, operand in enumerate(problems.operands):
        assert operand.values.dtype == np.uint8
        assert operand.values.shape == (n, operand.width)
        assert (operand.values < base).all()
        second = {"multiplication": 1, "multiplication2": 2, "multiplication3": 3}
        wanted = second.get(name, length) if i else length
        if exact:
            assert (operand.lengths == wanted).all()
        elif law != "uniform":
            assert ((operand.lengths >= 1) & (operand.lengths <= wanted)).all()
        else:
            assert all(number <= 2**20 for number in integers(operand, base))
        for row in range(n):
            text = shown(operand, row)
            assert text == "0" or text[0] != "0"
            assert not operand.values[row, : operand.width - operand.lengths[row]].any()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_sampling_repeats_from_the_same_seed_only(name, law):
    task = get_task(name)

    def draw(seed: int) -> list[str]:
        problems = task.sample(np.random.default_rng(seed), 29, 11, law, exact=True)
        return [task.write(problems, row) for row in range(29)]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


@pytest.mark.parametrize("source", ["5-7", "0-1", "99-100", "1000-9999"])
def test_a_difference_below_zero_is_refused(source):
    with pytest.raises(TaskError, match=f"{source} is below 0: subtraction takes a-b with a not"):
        get_task("subtraction").parse(source)


def test_the_carry_law_of_subtraction_has_long_borrows():
    task = get_task("subtraction")

    def share(law: str) -> float:
        problems = task.sample(np.random.default_rng(0), 500, 20, law, exact=True)
        a, b = (o.widened(20).astype(int) for o in problems.operands)
        borrow, run, longest = (np.zeros(500, int) for _ in range(3))
        for column in range(19, -1, -1):
            borrow = (a[:, column] - b[:, column] - borrow < 0).astype(int)
            run = (run + 1) * borrow
            longest = np.maximum(longest, run)
        return float((longest > 8).mean())

    assert share("carry") > 0.3
    assert share("balanced") < 0.05


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


def longest_chain(problems: Problems, base: int) -> np.ndarray:
    """The most columns in a row that pass a carry on, ``(n,)``, when the operands are added."""
    width = max(o.width for o in problems.operands)
    a, b = (o.widened(width).astype(int) for o in problems.operands)
    carry, run = np.zeros(len(a), int), np.zeros(len(a), int)
    longest = run.copy()
    for column in range(width - 1, -1, -1):
        carry = (a[:, column] + b[:, column] + carry >= base).astype(int)
        run = (run + 1) * carry
        longest = np.maximum(longest, run)
    return longest


@pytest.mark.parametrize("base", [2, 10, 23])
def test_the_carry_law_of_addition_has_long_chains(base):
    task = get_task("addition", base=base)

    def share(law: str) -> float:
        problems = task.sample(np.random.default_rng(1), 1000, 21, law, exact=True)
        return float((longest_chain(problems, base) > 10).mean())

    assert share("carry") > 0.5
    assert share("balanced") < 0.1
    assert share("carry") * 0.15 < share("mixed") < share("carry") * 0.5


def test_the_carry_law_of_addition_also_carries_out_of_unequal_operands():
    problems = get_task("addition").sample(np.random.default_rng(2), 1000, 13, "carry")
    longer = np.max([o.lengths for o in problems.operands], axis=0)
    assert (problems.answer.lengths > longer).mean() > 0.3


@pytest.mark.parametrize("name", ["successor", "multiplication"])
def test_the_carry_law_draws_numbers_of_nines_only(name):
    problems = get_task(name).sample(np.random.default_rng(3), 1000, 17, "carry", exact=True)
    nines = (problems.operands[0].values == 9).all(1).mean()
    assert 0.15 < nines < 0.5


def test_the_carry_law_of_the_successor_has_long_chains():
    problems = get_task("successor").sample(np.random.default_rng(3), 1000, 17, "carry", True)
    trailing = (problems.operands[0].values[:, ::-1] == 9).cumprod(1).sum(1)
    assert (trailing > 8).mean() > 0.4
    assert len(set(trailing)) == 18


def test_the_carry_law_of_multiplication_writes_runs_of_nines():
    """Such a product turns over in every column of the run if a one is added below it."""

    def share(law: str) -> float:
        task: Any = get_task("multiplication")
        answer = task.sample(np.random.default_rng(4), 1000, 17, law, exact=True).answer
        run = longest = np.zeros(len(answer), int)
        for column in range(answer.width):
            run = (run + 1) * (answer.values[:, column] == 9)
            longest = np.maximum(longest, run)
        return float((longest > 8).mean())

    assert share("carry") > 0.3
    assert share("balanced") < 0.05


# Padding


@given(
    st.sampled_from([name for name in ARITHMETIC if name not in ("parity", "zigzag")]),
    BASES,
    st.integers(0, 11),
    st.integers(0, 2**32),
)
def test_padding_changes_neither_operand_nor_answer(name, base, extra, seed):
    task = get_task(name, base=base)
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


def test_padding_to_less_than_an_operand_is_refused():
    task = get_task("addition")
    with pytest.raises(TaskError, match="an operand of 4 digits does not fit 3"):
        task.padded(task.parse("1+1234").operands, 3)


def test_multiplication_pads_the_number_only():
    task = get_task("multiplication")
    number, digit = task.padded(task.parse("12*3").operands, 5)
    assert (shown(number, 0), shown(digit, 0)) == ("00012", "3")


# Digits


@given(BASES, st.integers(0, 2**70))
def test_digits_as_integers_are_modulo_64_bits(base, number):
    digits = get_task("successor", base=base).parse(written(number, base)).operands[0]
    assert digits.as_integers(base).tolist() == [number % 2**64]


@pytest.mark.parametrize("base", [2, 10, 36])
def test_digits_as_integers_of_very_long_numbers_are_modulo_64_bits(base):
    number = 123456789**37
    digits = get_task("successor", base=base).parse(written(number, base)).operands[0]
    assert digits.as_integers(base).tolist() == [number % 2**64]


def test_taking_rows_keeps_problems_whole():
    task = get_task("addition")
    problems = task.sample(np.random.default_rng(0), 11, 5)
    taken = problems.take(np.array([7, 2]))
    assert [task.write(taken, r) for r in (0, 1)] == [task.write(problems, r) for r in (7, 2)]
    assert [shown(taken.answer, r) for r in (0, 1)] == [shown(problems.answer, r) for r in (7, 2)]


# Messages


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_task("adition"), r"unknown task 'adition' \(did you mean addition\?\)"),
        (lambda: get_task("xyz"), "unknown task 'xyz': choose one of successor, addition"),
        (lambda: get_task("addition", base=1), "base 1 is not possible: choose 2 to 36"),
        (lambda: get_task("addition", base=37), "base 37 is not possible: choose 2 to 36"),
        (lambda: get_task("parity", base=10), "parity .* base 10 is not possible, only 2"),
        (lambda: get_task("addition").solve("12+3x"), "'x' is not a digit of base 10"),
        (lambda: get_task("addition", base=8).solve("8+1"), "'8' is not a digit of base 8"),
        (lambda: get_task("successor").solve("-3"), "'-' is not a digit of base 10"),
        (lambda: get_task("addition").solve("+3"), "'\\+3' is not a source of addition"),
        (lambda: get_task("addition").solve("3"), "write digits 0-9, as in '123\\+123'"),
        (lambda: get_task("addition").solve("1+2+3"), "is not a source of addition"),
        (lambda: get_task("successor").solve(""), "'' is not a source of successor"),
        (lambda: get_task("multiplication").solve("12*34"), "second operand of one digit"),
        (lambda: get_task("multiplication2").solve("12*345"), "operand of at most 2 digits, as in"),
        (lambda: get_task("addition3").solve("1+2"), "write digits 0-9, as in '123\\+123\\+123'"),
    ],
)
def test_input_that_cannot_be_taken_is_named(call, message):
    with pytest.raises(TaskError, match=message):
        call()


def test_sampling_options_that_cannot_be_taken_are_named():
    task, rng = get_task("addition"), np.random.default_rng(0)
    with pytest.raises(TaskError, match="unknown sampling law 'even': choose one of uniform"):
        task.sample(rng, 3, 3, law="even")
    with pytest.raises(TaskError, match="length 0 is not possible: give 1 or more"):
        task.sample(rng, 3, 0)
