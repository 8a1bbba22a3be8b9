"""Rules on words: their answers by other means, what can be seen of their states, and errors."""

from __future__ import annotations

import itertools
import math
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_rules import WORD_RULES

import abc_calib as abc
from abc_calib.config import TrainOptions
from abc_calib.data import make_data
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import Line, LineBias
from abc_calib.proof.outlook import Hopeless, look_ahead
from abc_calib.proof.prove import prepare
from abc_calib.proof.witness import Witnesses
from tasks import Arithmetic, TaskError, WordTask, get_task, rules
from tasks.automata import MACHINES, Automaton
from tasks.closure import NotClosed, check_closed
from tasks.division import Division
from tasks.machine import columns_seen, machine
from tasks.ragged import Ragged
from tasks.rules import ROW, Rule, Transducer
from tasks.tape import UNIVERSAL, Tape

BEAVER = "1RB1LB_1LA0LC_1RZ1LD_1RD0RA"
DOCS = Path(__file__).parent.parent / "docs"
MANY = settings(max_examples=60)


@pytest.mark.parametrize("kind", WORD_RULES)
def test_a_rule_answers_as_it_is_meant(kind):
    task = kind()
    problems = task.sample(np.random.default_rng(0), 120, 7)
    for row in range(len(problems)):
        source = task.write(problems, row)
        assert task.text(problems.answer.row(row)) == task.expected(source.split())
        assert task.solve(source) == task.read(task.expected(source.split()))
    same_again(task)


def same_again(task: Any) -> None:
    """Problems are posed again from their letters; and the rule is closed."""
    problems = task.sample(np.random.default_rng(0), 50, 6)
    again = task.posed(task.letters(problems))
    assert (again.source.flat == problems.source.flat).all()
    assert (again.answer.flat == problems.answer.flat).all()
    check_closed(task.rule())


ANSWERS: dict[str, Any] = {
    "division": divmod,
    "mod": lambda a, b: (a % b,),
    "gcd": lambda a, b: (math.gcd(a, b),),
    "square_root": lambda a: (math.isqrt(a), a - math.isqrt(a) ** 2),
    "compare": lambda a, b: ("<" if a < b else "=" if a == b else ">",),
}
POWERS = [("power", base, modulus) for base, modulus in ((2, 2), (2, 3), (3, 4), (10, 3))]


@pytest.mark.parametrize(
    ("name", "base", "modulus"),
    [*((name, 2, None) for name in ANSWERS), ("division", 10, None), *POWERS],
)
def test_whole_numbers_are_answered_as_python_does(name, base, modulus):
    options, answer = {}, ANSWERS.get(name, lambda a, b: (str(pow(a, b, modulus)),))
    if modulus:
        options = {"machine": f"mod:{modulus}"}
    task, rng = get_task(name, base=base, **options), random.Random(0)
    count = 1 if name == "square_root" else 2
    small = itertools.product(range(1, 18), repeat=count)

    def written(number: Any) -> str:
        return number if isinstance(number, str) else np.base_repr(number, base)

    for numbers in [*small, *((rng.getrandbits(60) + 1,) * count for _ in range(3))]:
        numbers = (numbers[0], *(rng.choice([x, x // 3 + 1]) for x in numbers[1:]))
        source = task.operator.join(np.base_repr(x, base) for x in numbers)
        assert task.solve(source) == " r ".join(map(written, answer(*numbers)))
    assert not modulus or task.solve("0^0") == "1"
    same_again(task)
    for length in (1, 3, 8, 40) if not modulus else ():
        problems = task.hard(np.random.default_rng(3), 10, length)
        assert len(problems) == 10
        assert all(task.solve(task.write(problems, row)) for row in range(10))


def stacked(words: list[str]) -> list[str]:
    """What is left of a stack, from its top on: ``push0 pop : 0 1``."""
    asked, stack = words[: words.index(":")], words[words.index(":") + 1 :]
    for one in asked:
        stack = stack[:-1] if one == "pop" else [*stack, one[-1]]
    return stack[::-1]


@pytest.mark.parametrize(
    ("name", "base", "answer"),
    [
        *(("sort", base, sorted) for base in (2, 10)),
        ("odds_first", None, lambda words: words[1::2] + words[::2]),
        ("stack", None, stacked),
    ],
)
def test_words_are_put_in_order_and_on_a_stack(name, base, answer):
    task, rng = get_task(name, base=base), random.Random(0)
    for count in range(1, 25):
        words = rng.choices("01" if name == "stack" else task.inputs or task.symbols, k=count)
        if name == "stack":
            words = [*rng.choices(task.row_words, k=rng.randint(1, 12)), ":", *words]
        assert task.solve(" ".join(words)).split() == answer(words)
    same_again(task)


def test_what_cannot_be_divided_is_said_in_a_line():
    task = get_task("division", base=2)
    for source in ("5x/1", "101/0", "1/", "/1", "-1/1", "1 1 : x", ""):
        with pytest.raises(TaskError, match=r"whole numbers in base 2, such as 1\d+/11|'x'"):
            task.solve(source)


def test_a_row_that_closes_as_if_it_were_the_last_proves_nothing():
    class Ends(Division):
        def end(self, state: Any) -> Any:
            return () if super().end(state) is not None else None

    with pytest.raises(NotClosed, match="have to close with one of its closers"):
        check_closed(Ends().rule())


# What decides what is written


def told_by(one: Transducer, back: int, length: int) -> bool:
    """Do so many columns before, and the first few, tell what is written? By trying all words."""
    known: dict[Any, int] = {}
    for word in itertools.product(range(one.base), repeat=length):
        state, looks, begun = one.start[0], list[tuple[int, int]](), one.start[0]
        for letter in (*word, one.base, one.base):
            after, out = int(one.next[state, letter]), int(one.written[state, letter])
            if after < 0:
                break
            near = tuple(looks[-back:]) if back else ()
            if known.setdefault((near, begun, min(len(looks), BEGUN), letter), out) != out:
                return False
            looks.append((letter, out))
            state = after
            if len(looks) <= BEGUN:
                begun = state
    return True


BEGUN = 5
"""Columns after which only states that recur are left, of machines of two states."""


@given(st.integers(0, 2**32))
@MANY
def test_how_many_columns_tell_what_is_written(seed):
    rng = np.random.default_rng(seed)
    moves = {(s, x): (int(rng.integers(2)), "ab"[rng.integers(2)]) for s in range(2) for x in "ab"}
    one = machine("ab", lambda state, word: moves[state, word], 0)
    seen = columns_seen(one)
    if seen is not None:
        assert told_by(one, seen, 9)
    if seen != 0:
        assert not told_by(one, 3 if seen is None else seen - 1, 11)


# Machines by name or table


@pytest.mark.parametrize(("name", "size"), [("s3", 6), ("s5", 120), ("a5", 60)])
def test_groups_are_closed_and_multiply_from_left_to_right(name, size):
    def product(one: str, other: str) -> str:
        return "".join(other[int(k) - 1] for k in one)

    task = Automaton(machine=name)
    assert len(task.symbols) == size
    problems = task.sample(np.random.default_rng(1), 20, 9)
    for row in range(20):
        words = task.write(problems, row).split()
        assert task.solve(" ".join(words)).split() == list(itertools.accumulate(words, product))


@given(st.lists(st.sampled_from("01234"), min_size=1, max_size=12), st.data())
def test_the_other_machines_do_sums(digits, data):
    sums = [str(x % 5) for x in itertools.accumulate(map(int, digits))]
    assert Automaton(machine="mod:5").solve(" ".join(digits)).split() == sums
    operators = data.draw(st.lists(st.sampled_from("+-*"), min_size=12, max_size=12))
    text = "".join(itertools.chain(*zip(digits, operators, strict=False)))[: 2 * len(digits) - 1]
    answer = Automaton(machine="arithmetic_mod:5").solve(" ".join(text)).split()
    assert answer[-1] == str(eval(text) % 5)
    bits = [str(int(d) % 2) for d in digits]
    pairs = sum(a != b for a, b in itertools.pairwise(bits)) % 2
    assert Automaton(machine="even_pairs").solve(" ".join(bits)).split()[-1] == str(pairs)
    steps = [{"0": "-", "1": "="}.get(d, "+") for d in digits]
    at = sum({"-": -1, "=": 0, "+": 1}[s] for s in steps) % 7
    assert Automaton(machine="cycle:7").solve(" ".join(steps)).split()[-1] == str(at)


HEAD = "state,symbol,next,output\n"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("a,b\n", "begins with the line state,symbol,next,output"),
        (HEAD + "p,0,p,0\np,0,p,1\n", "two entries for state p and symbol 0"),
        (HEAD + "p,0,q,0\nq,1,p,1\np,1,p,1\n", "no entry for state q and symbol 0"),
        (HEAD + "p,0,r,0\n", "state r of the table has no entries"),
        (HEAD + "p,0 1,p,0\n", "give 4 words"),
        (HEAD, "no entries"),
    ],
)
def test_a_table_that_is_not_one_says_which_entry(table, said):
    with pytest.raises(TaskError, match=said):
        Automaton(table=table)


def test_a_table_is_kept_by_its_run_and_read_from_a_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(HEAD + "p,0,p,a\np,1,q,b\nq,0,q,b\nq,1,p,a\n")
    assert abc.check_task("automaton", table=str(path)).windows == 8
    run = abc.train("automaton", table=str(path), out=tmp_path / "run", steps=2, progress=False)
    path.unlink()
    assert abc.Run.open(run.path).task.solve("1 1 0") == "b a a"
    with pytest.raises(UsageError, match="cannot be read"):
        abc.check_task("automaton", table=str(path))


def test_machines_that_are_none_are_refused():
    for wrong in ("s4", "mod", "mod:1", "mod:61", "s3:2", "arithmetic_mod:13"):
        with pytest.raises(TaskError, match="unknown machine"):
            Automaton(machine=wrong)
    assert {*MACHINES} >= {"s3", "s5", "a5", "parity", "mod", "even_pairs", "cycle"}
    with pytest.raises(TaskError, match="give one of them"):
        Automaton(table=HEAD, machine="s3")
    for wrong in ("mod:1", "mod:11", "7", "s3"):
        with pytest.raises(TaskError, match="choose mod:K, K from 2 to 10"):
            get_task("power", machine=wrong)


# Tapes


def written_rows(task: Tape, source: str) -> str:
    """All rows of an output."""
    return task.text(task.parse(source).answer.row(0))


@given(st.integers(0, 255), st.text("01", min_size=1, max_size=9))
@MANY
def test_cells_follow_their_rule(number, cells):
    rows, row = [], cells
    for _ in range(5):
        wide = f"0{row}0"
        row = "".join(str(number >> int(wide[k : k + 3], 2) & 1) for k in range(len(row)))
        rows.append(" ".join(row))
    found = written_rows(Tape(str(number)), f"5 : {' '.join(cells)}")
    assert found == f" {ROW} ".join(rows)


def simulated(moves: Any, steps: int, cells: list[str]) -> str:
    """A Turing machine, step by step."""
    (head,) = (i for i, cell in enumerate(cells) if len(cell) > 1)
    tape, state, rows = [cell[-1] for cell in cells], cells[head][0], list[str]()
    for _ in range(steps):
        tape[head], way, state = moves[state, tape[head]]
        head, mark = head + (1 if way == "R" else -1), "."
        if head < 0:
            tape.insert(0, "0")
            head, mark = 0, "<"
        if head == len(tape):
            tape.append("0")
        halted = all(state != known for known, _ in moves)
        behind = ["~" * (halted and i > head) + cell for i, cell in enumerate(tape)]
        behind[head] = ("!" if halted else state) + tape[head]
        rows.append(" ".join([mark, *behind]))
        if halted:
            break
    return f" {ROW} ".join(rows)


@pytest.mark.parametrize(
    "rule", [BEAVER, UNIVERSAL, "1RB1LB_1LA1RZ", "1RB2LB1RZ_2LA2RB1LB", "1RA---_0LA1LB"]
)
def test_turing_machines_run_as_they_do(rule):
    task = Tape(rule)
    check_closed(task.rule())
    assert columns_seen(task.rule().later) in (1, 2)
    problems = task.sample(np.random.default_rng(2), 80, 8)
    for row in range(len(problems)):
        count, _, cells = task.write(problems, row).partition(" : ")
        found = task.text(problems.answer.row(row))
        assert found == simulated(task.by.moves, int(count), cells.split())


def test_windows_of_a_machine_are_found_in_sources(model_for):
    """Also where none of the sources that are drawn for a window is one."""
    task = Tape(BEAVER)
    data = make_data(task, TrainOptions(length=4, sampling="uniform"))
    own = (Line("diag", 1, 0), Line("diag", 1, 1), Line("diag", 1, 2), Line("vert", 0, 1))
    crossed = (*(Line("anti", 2, k, part_step=1) for k in (-1, 0, 1)), Line("vert", 1, 2, beta=1))
    model = model_for(data, width=8, heads=4, feedforward=8, scheme="none")
    sites: Any = {"self": (tuple((x,) for x in own),), "cross": (tuple((x,) for x in crossed),)}
    model.set_lines(LineBias(sites))
    proof = prepare(model, data)
    witnesses, rng, found = Witnesses(task, proof.listing), np.random.default_rng(0), 0
    for node in [*proof.codes][:14]:
        codes = proof.codes[node]
        assert codes is not None
        for code in codes[:: max(1, len(codes) // 2)].tolist():
            for at, problems in witnesses.sources(node, code, 1, 6, rng):
                right = code // proof.listing.radix(node)
                assert int(data.lay_out(problems).target[0, at]) == right
                found += 1
    assert found > 4


def test_the_busy_beaver_of_four_states_halts_after_107_steps_with_13_ones():
    task = Tape(BEAVER)
    rows = written_rows(task, "200 : A0").split(f" {ROW} ")
    assert len(rows) == 107 and rows[-1].count("1") == 13
    assert task.solve("200 : A0") == rows[-1].removeprefix(". ")
    assert not task.remark(rows[-1]) and "has not halted" in task.remark(task.solve("50 : A0"))


def test_below_a_mark_of_growth_stands_the_head_on_an_empty_cell():
    """No machine writes other rows, so that no window of them is to be right."""
    task = Tape(BEAVER)
    assert task.step_below("<", "B0") and task.step_below(".", "B1")
    assert task.step_below("<", "B1") is None


def test_tapes_say_what_is_wrong():
    for wrong in ("256", "1RB", "1RB1LB_1LA", "2RA0LA", "x"):
        with pytest.raises(TaskError, match="rule"):
            Tape(wrong)
    task = Tape(BEAVER)
    for source in ("3 : 0 1", "3 : A0 B1", "A0", "0 : A0", "3 : !0", "3 : < A0", "3 :", "x : A0"):
        with pytest.raises(TaskError, match=r"as in '3 : 1 A0 1'"):
            task.solve(source)


# Before a training


class Other(WordTask):
    """It answers by code of its own."""

    name = "other"
    symbols = ("0", "1")

    def step(self, state: int, word: str) -> Any:
        return state, word

    def solve(self, source: str) -> str:
        return "0" if len(source.split()) > 3 else super().solve(source)


class SecondAtEnd(WordTask):
    """A copy, and at the end the second word again, which a vertical sees."""

    name = "second_at_end"
    symbols = ("a", "b")
    start = (0, "")

    def step(self, state: Any, word: str) -> Any:
        count, held = state
        return (min(count + 1, 2), word if count == 1 else held), word

    def end(self, state: Any) -> Any:
        return (state[1],) if state[1] else ()


class Hidden(WordTask):
    """The parity is said at the end alone."""

    name = "hidden"
    symbols = ("0", "1")

    def step(self, state: int, word: str) -> Any:
        return state ^ int(word), "0"

    def end(self, state: int) -> Any:
        return (str(state),)


def test_what_can_be_said_before_a_training():
    for name, windows in (("copy", 120), ("lookup", 80), ("parity", 8), ("successor", 230)):
        assert look_ahead(get_task(name)).windows == windows
    assert look_ahead(get_task("automaton", machine="s5")).windows == 14_640
    assert look_ahead(get_task("automaton", machine="even_pairs")).windows == 14
    assert look_ahead(SecondAtEnd()).columns == 1  # what verticals see is not called hopeless
    with pytest.raises(Hopeless, match="no model on lines can be right"):
        look_ahead(Hidden())
    with pytest.raises(UsageError, match="its task overrides solve"):
        look_ahead(Other())
    with pytest.raises(TaskError, match="more than 10,000 states"):
        machine(["0"], lambda state, word: (state + 1, "0"), 0)
    with pytest.raises(TaskError, match="'2' is written and is not a symbol"):
        machine(["0", "1"], lambda state, word: (0, "2"), 0)
    (text,) = look_ahead(get_task("dedupe")).text
    assert "and evaluated, but not certified: it has no rule" in text
    with pytest.raises(TaskError, match="300 symbols"):
        machine([str(k) for k in range(300)], lambda state, word: (0, word), 0)


MISTAKES = {
    "ahead = 1.5": r"ahead = 1.5: give 0 to 8",
    "stride = 0": "has stride 0: give 1 or more words",
    "stride, symbols = 9, tuple('abcdefgh')": "a column reads 9 words, each of 8 symbols",
    "symbols = ('a', ' b')": "the symbol ' b': give words",
    "counted = True": "one row: all that is about rows needs",
    "ahead, end = 1, lambda self, state: None": "no source ends",
    "step = lambda self, state, word: ([], word)": r"step\(0, 'a'\) gives \(\[\], 'a'\): let the",
    "step = lambda self, state, word: (id([]) % 7, next(N))": r"gives .* and then .*: give",
    "step = lambda self, state, word: (0, 'a' * 9000)": r"step\(0, 'a'\) gives .*….* not a sym",
    "end = lambda self, state: 'ab'": r"end\(0\) gives 'ab': give a tuple",
    "end = lambda self, state: ('c',)": r"end\(0\) gives \('c',\): 'c' is written and is not a sym",
    "end = lambda self, state: ('|', 'a')": r"end\(0\) gives .* give a tuple",
    "start = {}": "the start is {}: let the state be",
    "end = lambda self, state: ('|',)": "closes with [|] and has no step_below",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_in_a_rule_are_said_in_a_line(line):
    scope: dict[str, Any] = {"WordTask": WordTask, "N": itertools.cycle("ab")}
    exec(
        "class Own(WordTask):\n    name, symbols = 'own', ('a', 'b')\n"
        f"    def step(self, state, word): return state, word\n    {line}",
        scope,
    )
    with pytest.raises(TaskError, match=MISTAKES[line]):
        scope["Own"]().rule()


@pytest.mark.parametrize("symbols", [("a", "$"), ("a", "b", "a")])
def test_words_that_are_no_tokens_of_their_own_are_refused(symbols):
    class Same(Hidden):
        pass

    Same.symbols = symbols
    with pytest.raises(AbcError, match="symbol '"):
        Vocabulary(Same())


def test_training_says_at_once_that_no_lines_can_do_it(tmp_path):
    with pytest.warns(abc.errors.AbcWarning, match="no model on lines can be right"):
        abc.train(Hidden, out=tmp_path / "run", steps=2, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["running_sum", "spread"])
def test_the_guide_goes_from_nothing_to_a_certificate(name, tmp_path):
    """And its page shows a part of the file, and what check-task says."""
    page, file = (DOCS / "rules.md").read_text(), DOCS / "my_rules.py"
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown in file.read_text()
    abc.load_plugin(file)
    found = abc.check_task(name)
    if name == "running_sum":
        assert "\n".join(found.text) in page
    run, certificate = abc.certified(name, folder=tmp_path / "runs", progress=False)
    assert certificate.outcome == "certified", certificate.reason
    folder = abc.export(run, tmp_path / "exported")
    told = subprocess.run([sys.executable, folder / "check.py"], capture_output=True, text=True)
    assert told.stdout.startswith("certified"), told.stderr


# Rules of numbers


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


@pytest.mark.parametrize("name", ["long_multiplication", "sum"])
def test_what_is_closed_never_lacks_a_row_and_most_bent_rules_are_not(name):
    """By brute force: no problem of a rule that passes ends in a row without a next one."""
    check_closed(get_task(name, base=3).rule())
    rng, rule = np.random.default_rng(0), get_task(name, base=2).rule()
    check_closed(rule)
    for _ in range(6):
        refused = 0
        for _ in range(5):
            other = bent(rule, rng)
            try:
                check_closed(other)
            except NotClosed:
                refused += 1
                continue
            for _ in range(100):
                count = int(rng.integers(2, 5)) if rule.listed else 2
                texts = [f"{rng.integers(64):b}" for _ in range(count)]
                numbers = [np.array([[*map(int, text[::-1])]]) for text in texts]
                other.rows([Ragged(x, np.array([x.shape[1]])) for x in numbers])
        assert refused


def test_operands_of_words_are_equally_long():
    """Each of them, also where a step takes words that end earlier."""

    class Third(WordTask):
        name, symbols, operands = "third", ("0", "1"), 3

        def step(self, state, first, second, third):
            return None if first is None or third is None else (state, second or "0")

    task = Third()
    assert task.solve("0 1 : 1 0 : 0 0") == "1 0"
    with pytest.raises(TaskError, match="is not a source"):
        task.solve("0 1 : 1 : 0 0")


class Shifted(Arithmetic):
    """Each digit and the one before it: a state need be no carry."""

    name = "shifted"

    def step(self, before, digit):
        return digit, before

    def end(self, before):
        return (before,)


class Same(Shifted):
    """Digits that are not 7: what no source may end in."""

    name = "same"

    def step(self, bad, digit):
        return max(bad, int(digit == 7)), digit

    def end(self, bad):
        return None if bad else ()


def test_a_step_on_digits_is_a_rule():
    for number in ("0", "12", "9070"):
        answer = Shifted().parse(number).answer
        assert [int(x) for x in answer.values[0]][: len(number) + 1] == [
            0,
            *map(int, number[::-1]),
        ]
    check_closed(Shifted().rule())
    assert Same().solve("1234") == "1234"
    with pytest.raises(TaskError, match="127 is not a source of same"):
        Same().solve("127")
    drawn = Same().sample(np.random.default_rng(0), 50, 6, "mixed")
    assert len(drawn) == 50 and not (drawn.operands[0].flat == 7).any()
    assert Same().hard(np.random.default_rng(0), 50, 6)
    assert all(len(Same().mutated(np.random.default_rng(k), drawn, 1)) for k in range(50))


TURNS = itertools.cycle((0, 1))


@pytest.mark.parametrize(
    "step, end, said",
    [
        (lambda self, state, digit: (state + 1, digit), None, "more than 10,000 states"),
        (lambda self, state, digit: (0, 10), None, r"step\(0, 0\) gives \(0, 10\)"),
        (lambda self, state, digit: digit, None, r"step\(0, 0\) gives 0: give \(next state"),
        (
            lambda self, state, digit: ([], 0),
            None,
            r"step\(0, 0\) gives \(\[\], 0\): let the state be",
        ),
        (
            lambda self, state, digit: (0, next(TURNS)),
            None,
            r"gives \(0, 0\) and then \(0, 1\): gi",
        ),
        (
            lambda self, state, digit: (0, digit),
            lambda self, state: (1, 2),
            r"end\(0\) gives \(1, 2",
        ),
        (lambda self, state, digit: (0, digit), lambda self, state: 5, r"end\(0\) gives 5: give a"),
        (lambda self, state, digit: (0, digit), lambda self, state: None, "no source ends"),
    ],
)
def test_a_step_on_digits_that_is_none_is_told(step, end, said):
    own = type("Own", (Arithmetic,), {"name": "own", "step": step, **({"end": end} if end else {})})
    with pytest.raises(TaskError, match=said):
        own().rule()


def test_states_need_no_order_and_too_many_operands_are_refused_at_once():
    class Own(Arithmetic):
        name, end = "own", lambda self, state: ()

        def step(self, state, *digits):
            return "odd" if digits[0] % 2 else None, digits[0]

    assert Own().solve("123") == "123"
    many = type("Many", (Own,), {"operator": "+", "count": 8})
    with pytest.raises(TaskError, match="a column reads 8 digits of base 10: more than 5,000,000"):
        many().rule()
