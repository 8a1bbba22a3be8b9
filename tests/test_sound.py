"""Holes in certificates that were built: what is not followed is refused by both programs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from conftest import vouch
from test_random_models import in_sources
from test_verify import double, program_margin, smallest
from word_rules import Again, Copied, Shorter

from abc_calib.config import TrainOptions, TransformerOptions
from abc_calib.data import make_data
from abc_calib.errors import AbcError
from abc_calib.evaluation.stress import searched
from abc_calib.geometry import ALONE, Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.proof import check as check_py
from abc_calib.proof import prove, windows
from abc_calib.proof.allowed import ALLOWED, check_allowed, check_laid_out, overridden
from abc_calib.proof.forms import Undecided
from abc_calib.proof.occurrence import TooMany
from abc_calib.proof.prove import check, parts, prepare
from abc_calib.proof.search import decoded
from abc_calib.proof.witness import Witnesses
from abc_calib.runs import Run
from tasks import Arithmetic, TaskError, WordTask, get_task, rules
from tasks.basic import Addition
from tasks.closure import NotClosed, check_closed
from tasks.ragged import Ragged
from tasks.rules import END, ROW, Rule, Transducer
from tasks.word_rule import WordRule


def small(task: Any, own: Any, cross: Any, encoder: Any = None, **options: Any) -> tuple[Any, Any]:
    """A model of one head and one layer with these lines, and its data."""
    how = {name: options.pop(name) for name in ("format",) if name in options}
    data: Any = make_data(task, TrainOptions(length=3, sampling=task.sampling, **how))
    about: dict[str, Any] = {"width": 8, "heads": 1, "feedforward": 8, "decoder_layers": 1}
    about |= {"encoder_layers": int(encoder is not None), "scheme": "none", **options}
    model: Any = build_model("transformer", TransformerOptions(**about), data, 0)
    sites = {"self": own, "cross": cross, "encoder": encoder}
    lines: Any = {site: ((tuple(x),),) for site, x in sites.items() if x is not None}
    model.set_lines(LineBias(lines))
    return model.eval(), data


def agreed(model: Any, data: Any) -> tuple[int, float]:
    """Windows and smallest margin by both programs; no source has a smaller one."""
    proof = prepare(model, data)
    checked = check(proof)
    least, windows = min(c.margin for c in checked), sum(c.windows for c in checked)
    assert program_margin(model, data, proof) == pytest.approx((windows, least), rel=1e-9)
    assert smallest(double(model), data) >= least - 1e-9
    return windows, least


# Rules


class FirstDigit(Arithmetic):
    """Numbers that do not begin with a 7 are written as they are read."""

    name, count = "first_digit", 1

    def step(self, bad: int, *digits: int) -> Any:
        return int(digits[0] == 7), digits[0]

    def end(self, bad: int) -> Any:
        return None if bad else ()

    def _chains(self, rng, *counts):
        return (self._random(rng, counts[0]),)


def test_what_a_rule_does_not_take_is_not_answered():
    """States that read digits alike may end differently; numbers with more zeros end as without."""
    task = FirstDigit()
    assert task.solve("1877") == "1877" and task.solve("0") == "0"
    for source in ("71828", "7"):
        with pytest.raises(TaskError, match="is not a source of first_digit"):
            task.solve(source)
    by = task.rule().first
    (row,) = Rule(by).rows([Ragged(np.array([[8, 1, 0, 0], [7, 1, 0, 0]]), np.array([4, 4]))])
    assert [row.row(k).tolist() for k in range(2)] == [[8, 1, 0, 0], [7, 1, 0, 0]]
    with pytest.raises(rules.NoSource) as caught:
        Rule(by).rows([Ragged(np.array([[8, 1], [1, 7]]), np.array([2, 2]))])
    assert caught.value.args[0].tolist() == [1]


class Cut(WordTask):
    """The words but for a last b; in a second row the same again."""

    name = "cut"
    symbols = ("a", "b", "c")

    def step(self, state: int, word: str) -> Any:
        if word == "b":
            return (1, ROW) if state else None
        return 1, word

    def end(self, state: int) -> Any:
        return (ROW,)

    def step_below(self, state: int, above: Any, *word: Any) -> Any:
        return state, above

    def end_below(self, state: int) -> Any:
        return ()


@pytest.mark.parametrize("own", [Line("diag", 1, 0), Line("diag", 1, 1), Line("diag", 1, -1)])
def test_rows_that_close_inside_have_no_fixed_width(own):
    task = Cut()
    assert task.solve("a c") == f"a c {ROW} a c" == task.solve("a c b")
    assert task.rule().first.extra is None and task.rule().extra is None
    agreed(*small(task, [ALONE, own], [Line("vert", 1, 0)]))


class TwoEnds(Copied):
    """Whose sources are closed by two ends."""

    name = "two_ends"
    closes_source = True


def test_sources_that_are_laid_out_otherwise_are_refused():
    model, data = small(TwoEnds(), [ALONE], [Line("diag", 1, 0)])
    with pytest.raises(Undecided, match=r"number of tokens of the source is 5, not 4"):
        check_laid_out(data, prove.setup_of(model, data))


class Pairs(WordTask):
    """Rows with words of their own, below rows that close in two ways."""

    name = "pairs_of_words"
    symbols = ("a", "b", "x", "y")
    row_words = ("a", "b")
    closers = ("x", "y")

    def step(self, state: Any, word: str) -> Any:
        return None if word in self.closers else (state, word)

    def end(self, state: Any) -> Any:
        return () if state is None else ("x",) if state == "a" else ("y",)

    def step_below(self, state: Any, above: str, *word: Any) -> Any:
        return state, above

    def begin(self, word: Any, closer: Any) -> Any:
        return (word,) if word is None else word

    def end_below(self, state: Any) -> Any:
        return () if state == (None,) else self.end(state)


class Missing(Pairs):
    """Which has no row of the word a below one that closes with y."""

    name = "missing_pair"

    def begin(self, word: Any, closer: Any) -> Any:
        return None if (word, closer) == ("a", "y") else super().begin(word, closer)


class TwoWays(Pairs):
    """Which closes with a delimiter, too."""

    name = "two_ways"

    def end(self, state: Any) -> Any:
        return (ROW,) if state == "b" else super().end(state)


def test_every_row_that_may_follow_is_there():
    check_closed(Pairs().rule())
    assert Pairs().solve("a b : a a") == "a a x a a y a a"
    with pytest.raises(NotClosed, match="no row with the symbol number 0 stands below one"):
        check_closed(Missing().rule())
    assert Missing().solve("a b : a a") == "a a x a a y a a"
    with pytest.raises(TaskError, match="not a source of missing_pair"):
        Missing().solve("b a : a a")
    with pytest.raises(TaskError, match=r"a row closes with \|: it has closers"):
        TwoWays().rule()


def test_rules_whose_rows_above_differ_in_too_many_ways_are_refused(monkeypatch):
    monkeypatch.setattr("tasks.closure.MOST_SUBSETS", 3)
    with pytest.raises(NotClosed, match="more than 3 kinds of rows above"):
        check_closed(get_task("long_multiplication", base=2).rule())


class Fewer(WordTask):
    """Each row is the one above without its first word, as long as a word is left."""

    name = "fewer"
    symbols = ("a", "b")

    def step(self, state: int, word: str) -> Any:
        return min(state + 1, 2), word

    def step_below(self, state: int, above: Any, *word: Any) -> Any:
        return min(state + 1, 2), above

    def end(self, state: int) -> Any:
        return (ROW,) if state == 2 else (END,)

    @cached_property
    def _rule(self) -> Rule:
        return replace(vars(WordRule)["_rule"].func(self), shift=1)


@pytest.mark.parametrize(
    ("own", "crossed"),
    [
        (Line("diag", 1, 0), Line("vert", 0, 0)),
        (Line("diag", 1, 2), Line("vert", 0, 0)),
        (ALONE, Line("anti", 1, 1)),
        (ALONE, Line("anti", 1, -2)),
    ],
)
def test_rows_that_skip_what_is_above_have_no_fixed_width(own, crossed):
    task = Fewer()
    assert task.solve("a b b") == f"a b b {ROW} b b {ROW} b"
    assert task.rule().first.extra == 0 and task.rule().extra is None
    model, data = small(task, [ALONE, own], [crossed])
    windows, _ = agreed(model, data)
    assert in_sources(double(model), data)[0] <= windows


def copied(written: Any = (), after: Any = (), lag: int = 0) -> Transducer:
    """Binary numbers as they are read, but for some entries of its tables.

    States: nothing was read, something was, the row is closed, and one that is not reached.
    """
    to = np.array([[1, 1, -1], [1, 1, 2], [-1, -1, 2], [-1, -1, -1]])
    out = np.array([[0, 1, 3], [0, 1, 2], [3, 3, 3], [3, 3, 3]])
    for table, entries in ((to, after), (out, written)):
        for state, letter, value in entries:
            table[state, letter] = value
    return Transducer(2, (0,), (0,), to, out, lag=lag)


TABLES: dict[str, Any] = {
    "nothing inside a row": {"written": [(1, 0, 3)]},
    "nothing as a row's first symbol": {"written": [(0, 0, 3)]},
    "two states by turns behind the close": {"after": [(2, 2, 3), (3, 2, 2)]},
    "a pause before the close": {
        **{"after": [(2, 2, 3), (3, 2, 3)], "written": [(1, 2, 3), (2, 2, 2)]}
    },
    "two closes": {"after": [(2, 2, 3), (3, 2, 3)], "written": [(2, 2, 2)]},
    "a symbol behind the close": {"after": [(2, 2, 3), (3, 2, 3)], "written": [(2, 2, 1)]},
    "symbols for ever": {"written": [(1, 2, 1), (2, 2, 1)]},
    "closed for ever": {"written": [(2, 2, 2)]},
    "a symbol in the first column of a row that is late": {"lag": 1},
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_close_once_and_nothing_is_written_around_them(name):
    one = copied(**TABLES[name])
    with pytest.raises(SystemExit, match=r"a row (writes nothing before|goes on for ever)"):
        check_py.Rule(one.as_dict())


class Counted(WordTask):
    """As many rows as a source asks for."""

    name = "counted"
    symbols = ("a", "b")
    counted = True

    def step(self, state: Any, word: Any) -> Any:
        return state, word

    def step_below(self, state: Any, above: Any, *word: Any) -> Any:
        return state, above


class Follows(Counted):
    """Whose rows say that another one follows, the last one, too."""

    name = "follows"

    def end(self, state: Any) -> Any:
        return (ROW,)


def test_rows_that_sources_count_do_not_say_that_others_follow():
    check_closed(Counted().rule())
    same = replace(Pairs().rule(), past=False)
    for rule, said in ((Follows().rule(), "sources say how many"), (same, "its last row")):
        with pytest.raises(NotClosed, match=said):
            check_closed(rule)
        with pytest.raises(SystemExit, match="sources say how many rows"):
            taken(rule=rule.as_dict(), source={"delimiters": [7, 8, 9], "row": 6})


PRODUCT, SUM, OTHER = (
    cast(Rule, get_task(name, base=base).rule())
    for name, base in (("long_multiplication", 2), ("sum", 2), ("sum", 3))
)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (PRODUCT, {"shift": -1}),
        (PRODUCT, {"of_row": None}),
        (PRODUCT, {"listed": True}),
        (SUM, {"of_row": 0}),
        (SUM, {"of_row": 0, "listed": False}),
        (SUM, {"first": SUM.later}),
        (SUM, {"later": SUM.first}),
        (SUM, {"later": OTHER.later}),
        (SUM, {"first": replace(SUM.first, lag=-1)}),
    ],
)
def test_what_a_rule_says_of_its_rows_fits_together(rule, change):
    given = replace(rule, **change)
    with pytest.raises(SystemExit, match=r"^not certified: (shift|rows|later rows|lag)"):
        taken(rule=given.as_dict(), source={"delimiters": [7, 8, 9], "row": 6})


@pytest.mark.parametrize("operands", [0, -1, 1.5, True])
def test_rows_are_counted_beside_other_words(operands):
    with pytest.raises(TaskError, match=f"counted has operands = {operands!r}: give 1 or more"):
        type("None", (Counted,), {"operands": operands})().rule()


class CountedPairs(Counted):
    """Two parts with words besides the number of rows."""

    name, operands = "counted_pairs", 2

    def step(self, state: Any, *words: Any) -> Any:
        return state, words[0] or words[1]


def test_sources_of_several_parts_besides_a_number_of_rows_are_drawn():
    model, data = small(CountedPairs(), [ALONE], [Line("vert", 0, 0)])
    short = Witnesses(data.task, prepare(model, data).listing).short(200)
    assert sum(len(problems) for _, problems in short) > 10


class ManyWords(Copied):
    """Five words follow those of the source."""

    name = "many_words"

    def end(self, state: int) -> Any:
        return tuple("abaab")


class Copies(Again, Copied):
    """Rows that say that they are copied again."""

    name = "copies"


CASES: dict[str, Any] = {
    "what opens a row and the row above": (  # two keys, though the same token
        *(Copies, [Line("vert", 0, 0), Line("vert", 1, 0), Line("diag", 0, -1)]),
        *([Line("anti", 2, 0)], {}),
    ),
    "words far behind the end": (ManyWords, [Line("diag", 0, -1)], [Line("diag", 1, 0)], {}),
    "aligned operands": (
        *(lambda: get_task("subtraction", base=3), [ALONE]),
        *([Line("anti", 2, 0, stride=2), Line("anti", 2, 1, stride=2)], {"format": "aligned"}),
    ),
    "a line of stride 2": (
        lambda: get_task("automaton", machine="cycle:3"),
        *([ALONE], [Line("diag", 1, 0, stride=2)], {}),
    ),
    "lines in both directions": (  # the choice of lines tries such sets, and has to end
        lambda: get_task("addition", base=2),
        *([ALONE], [Line("anti", 1, 0), Line("diag", 1, 0)], {}),
    ),
    "a row two above": (
        Shorter,
        *([ALONE, Line("diag", 2, 0)], [Line("vert", 1, 0)], {}),
    ),
    "an encoder line of a product": (
        lambda: get_task("long_multiplication", base=2),
        *([ALONE], [Line("vert", 2, 0, beta=1)], {"encoder": [ALONE, Line("diag", 0, -1)]}),
    ),
    "fixed verticals of a sort": (
        lambda: get_task("sort", base=3),
        *([ALONE, Line("diag", 0, -1)], [Line("vert", 1, 3)], {}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_checker_lists_what_the_program_lists(name):
    make, own, cross, options = CASES[name]
    windows, _ = agreed(*small(make(), own, cross, **options))
    assert windows > 10


@pytest.mark.parametrize(
    "line", [Line("vert", 1, 2), Line("vert", 1, -1), Line("diag", 1, 0), Line("anti", 2, 0)]
)
def test_numbers_of_other_rows_are_read_by_neither_program(line, monkeypatch):
    """A line that may stand on a digit or on a delimiter, as another number's width is."""
    monkeypatch.setattr(check_py, "MOST", 100)
    model, data = small(get_task("sum", base=2), [ALONE], [line])
    try:
        proof = prepare(model, data)
    except Undecided:
        proof = prepare(small(get_task("sum", base=2), [ALONE], [Line("vert", 0, 0)])[0], data)
        with pytest.raises(SystemExit, match=r"another row's number|too many sizes|segment of"):
            program_margin(model, data, proof)
    else:
        agreed(model, data)


# What check.py is given

LINE = {"direction": "diag", "segment": 0, "offset": 0, "value": 0.0}
CROSS = {"direction": "anti", "segment": 1, "offset": 0, "value": 0.0}


def taken(
    own: Any = LINE, cross: Any = CROSS, rule: Any = None, source: Any = None, **more: Any
) -> Any:
    """Export.take of check.py on a model of one layer and one head."""
    e: Any = object.__new__(check_py.Export)
    config = {"d_model": 8, "heads": 1, "decoder_layers": 1, "scheme": "none"}
    config |= {"bos_token_id": 4, "eos_token_id": 5, **more}
    source = {"aligned": False, "delimiters": [4, 5]} | (source or {})
    task: Any = get_task("successor", base=2)
    rule = rule or task.rule().as_dict()
    e.take_model({"self": [[[own]]], "cross": [[[cross]]]}, config)
    e.take_rule(rule, source)
    return e


MALFORMED: dict[str, Any] = {
    "segment of": [{"own": LINE | {"segment": x}} for x in (0.5, "1", -1, True)],
    "direction of": [{"own": LINE | {"direction": "horz"}}, {"cross": CROSS | {"direction": 1}}],
    "value of": [{"own": LINE | {"value": x}} for x in ("0", None, True, float("nan"), 1e9)],
    "no line": [{"own": {"segment": 0}}, {"own": LINE | {"slope": 1}}, {"cross": [1]}],
    "beta of": [{"own": LINE | {"beta": 1}}, {"cross": CROSS | {"beta": 0.5}}],
    "part_step of": [{"own": LINE | {"part_step": 1}}],
    "stride of": [
        *({"own": LINE | {"stride": 2}}, {"cross": CROSS | {"stride": 0}}),
        {"cross": CROSS | {"direction": "vert", "stride": 2}},
    ],
    "segment of .* from 0 to 1": [{"cross": CROSS | {"segment": 2}}],
    "heads of": [{"heads": 2}],
    "cyclic is": [{"scheme": "sinusoidal", "cyclic": x} for x in (2.5, -3, 0, "3")],
    "decoder_layers is": [{"decoder_layers": x} for x in (0, 1.0, "1")],
    "aligned is 'no'": [{"source": {"aligned": "no"}}],
    "aligned are several operands": [{"source": {"aligned": True, "delimiters": [4, 3, 5]}}],
}


@pytest.mark.parametrize("said", MALFORMED)
def test_the_checker_names_what_it_cannot_follow(said):
    taken()
    for given in MALFORMED[said]:
        with pytest.raises(SystemExit, match=f"^not certified: {said}"):
            taken(**given)


def test_the_checker_compares_how_operands_lie_with_what_the_run_recorded():
    addition = {
        "rule": get_task("addition", base=2).rule().as_dict(),
        "source": {"delimiters": [4, 2, 5]},
    }
    aligned = addition | {"source": {"delimiters": [4, 2, 5], "aligned": True}}
    for given, fits in ((addition, "free"), (aligned, "aligned"), ({}, "aligned")):
        e = taken(**given)
        e.recorded({}, {"base": 2, "train": {"format": fits}})
        if given:
            other = "free" if fits == "aligned" else "aligned"
            with pytest.raises(SystemExit, match=f"aligned is .*, and its format {other}"):
                e.recorded({}, {"base": 2, "train": {"format": other}})


# Tasks


class Harder(Addition):
    """Which draws and names its problems as it likes."""

    usage, title = "numbers", "A sum"

    def __repr__(self) -> str:
        return "a sum"

    def _chains(self, rng: Any, *counts: Any) -> Any:
        return super()._chains(rng, *counts)

    def helper(self) -> int:
        return 1


def overriding(name: str) -> Addition:
    """A task that has a method of its own, which does the same."""
    usual = getattr(Addition, name)
    return type("Mine", (Addition,), {"name": "mine", name: lambda *given: usual(*given)})()


class Misread(Addition):
    """Which reads long numbers otherwise than they are written."""

    def tapes(self, operands):
        return [
            Ragged(np.where(x.lengths[:, None] > 90, 0, x.values), x.lengths)
            for x in super().tapes(operands)
        ]


class Fickle(Addition):
    """Whose rule is another one from the second time on."""

    times = 0

    def step(self, carry, *digits):
        self.times += 1
        after, digit = super().step(carry, *digits)
        return after, (digit + (self.times > 200)) % 10


def put_in_place(name: str) -> Addition:
    """A task of which one object has a method of its own."""
    task = Addition()
    vars(task)[name] = getattr(task, name)
    return task


Hiding: Any = type("Hiding", (type(Addition),), {"__dict__": property(lambda kind: {})})
Hidden: Any = Hiding("Hidden", (Addition,), {"name": "hidden", "answer": lambda *_: None})
"""Answers by code of its own, which its metaclass does not show."""

SUMS, OWN, ONE = [Line("anti", 1, 0), Line("anti", 2, 0)], Line("diag", 0, 0), Line("anti", 1, 0)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        *((overriding(name), f"{name}: a certificate") for name in ("tokens", "rule", "answer")),
        *((Misread(), "tapes"), (put_in_place("tapes"), "tapes"), (Hidden(3), "__class__")),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_task_overrides_what_is_on_the_list_alone(task, said):
    model, data = small(task, [ALONE], SUMS)
    with pytest.raises(Undecided, match=f"its task overrides .*{said}"):
        check_allowed(task, prepare(model, data).rule)


def with_symbols(symbols: str) -> Addition:
    task = Addition()
    task.symbols = (*symbols, *task.delimiters)
    return task


@pytest.mark.parametrize(
    ("task", "said"),
    [
        *((with_symbols(x), "begin with the digits 0") for x in ("9876543210", "ABCDEFGHIJ")),
        (Fickle(), "is not the same each time"),
    ],
)
def test_a_task_shows_the_digits_that_it_reads_and_has_one_rule(task, said):
    with pytest.raises((Undecided, TaskError), match=said):
        check_allowed(task, task.rule())


def test_what_draws_problems_and_names_them_may_be_of_its_own():
    for task in (Addition(), Harder()):
        model, data = small(task, [ALONE], SUMS)
        check_allowed(task, prepare(model, data).rule)


class Pauses(Copied):
    """Which writes what stands for nothing inside a row."""

    name, end = "pauses", lambda self, state: ()

    def step(self, state: Any, word: str) -> Any:
        return state, self.writes

    writes: Any = ("nothing",)


def test_rows_are_made_of_words():
    for writes in (("nothing",), ("closed",), 3, type("Word", (str,), {})("a")):
        with pytest.raises(
            TaskError, match=r"step\(.*\) gives .*: give a text as the word, or None"
        ):
            type("_", (Pauses,), {"writes": writes})().rule()
        with pytest.raises(TaskError, match=r"end\(.*\) gives"):
            type("_", (Copied,), {"end": lambda *_, x=writes: (x,)})().rule()


def test_a_value_that_is_put_in_place_of_a_cached_one_is_seen():
    task: Any = get_task("sort")
    assert task.sample(np.random.default_rng(0), 3, 3, "few") and {"_rule", "_few"} <= {*vars(task)}
    assert not overridden(task) - ALLOWED
    vars(task)["_few"] = ~task._few
    assert overridden(task) - ALLOWED == {"_few"}
    vars(task)["_rule"] = replace(task._rule, shift=1)
    with pytest.raises(Undecided, match="its rule is not the same each time"):
        check_allowed(task, task._rule)


# What no certificate follows


class Bars(Addition):
    """A sum in which 2 is written ``|``, which opens rows of other tasks."""

    name = "bars"

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.symbols = tuple("|" if x == "2" else x for x in self.symbols)


class StrayClosers(Addition):
    """A sum whose ones close rows that it does not have."""

    name, closers = "stray", ("1",)


class OtherBase(Addition):
    """Accepts digits of base 3 and has the rule of base 2."""

    name = "other_base"

    @cached_property
    def _rule(self) -> Any:
        return Addition(2).rule()


class OtherDelimiter(Addition):
    """Whose model knows another sign between numbers than its sources have."""

    name = "other_delimiter"

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.delimiters = ("*",)


def hook(model: Any) -> None:
    model.layers[0].register_forward_hook(lambda *_: None)


def method(model: Any) -> None:
    model.positions.embed = lambda x, at: x * x.shape[1]


def layer(model: Any) -> None:
    model.head = type("Mine", (torch.nn.Linear,), {})(8, model.head.out_features)


def named(model: Any) -> None:
    like = {"__module__": torch.nn.Linear.__module__}
    model.head = type("Linear", (torch.nn.Linear,), like)(8, model.head.out_features)


def penalised(model: Any) -> None:
    model.set_lines(LineBias(model.lines.sites, -5.0))


THREE = [[Line("diag", 0, -back) for back in range(3)], [Line("anti", 1, k) for k in range(3)]]
"""Three lines a head, so that scores count."""
FAR = [OWN], [Line("anti", 2, -9000, stride=2)]
REFUSED: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("head 0 of layer 0 .cross-attention. is transparent", "successor", ([OWN], []), {}),
    ("corners of a matrix", "successor", ([Line("diag", -1, 0)], [ONE]), {}),
    ("not restricted to lines", "successor", (None, [ONE]), {}),
    (r"only penalised \(-5\)", "successor", ([OWN], [ONE]), {"change": penalised}),
    ("absolute and grow with length", "successor", ([OWN], [ONE]), {"scheme": "sinusoidal"}),
    ("absolute and grow with length", "successor", ([OWN], [ONE]), {"scheme": "learned:size=64"}),
    ("scores depend on positions", "successor", THREE, {"scheme": "rope"}),
    ("drawn anew", "successor", ([OWN], [ONE]), {"scheme": "randomized", "cyclic": 3}),
    ("not restricted to lines at every site", "successor", ([OWN], [ONE]), {"encoder_layers": 1}),
    ("pads every operand to a fixed width", "successor", ([OWN], [ONE]), {"format": "fixed:9"}),
    ("its blocks are post-norm", "addition", ([ALONE], SUMS), {"post_norm": True}),
    *(
        ("cannot follow", "addition", ([ALONE], SUMS), {"change": change})
        for change in (hook, method, layer, named)
    ),
    ("tokens begin rows in the model", Bars(3), ([ALONE], SUMS), {}),
    ("tokens begin rows in the model", StrayClosers(3), ([ALONE], SUMS), {}),
    ("other letters", OtherBase(3), ([ALONE], SUMS), {}),
    ("its delimiters are", OtherDelimiter(3), ([ALONE], SUMS), {}),
    ("count from segment", "addition", ([ALONE], [Line("anti", 3, 0)]), {}),
    ("count from segment", "addition", ([ALONE], SUMS[1:], [Line("vert", 3, 0)]), {}),
    ("count from segment", "sum", ([ALONE], [Line("vert", 2, 0)]), {}),
    (
        *("drifts through digits", "addition"),
        *(([OWN], [Line("anti", 2, 0, stride=3)]), {"format": "aligned"}),
    ),
    ("reach so far", "addition", FAR, {"format": "aligned"}),
]


@pytest.mark.parametrize(("said", "task", "lines", "how"), REFUSED, ids=lambda x: str(x)[:30])
def test_what_a_window_does_not_hold_is_named(said, task, lines, how, monkeypatch):
    """Keys off the lines, penalised keys, positions that grow or are drawn, layers of one's own.

    Also sources of other letters, signs or parts than the rule and the lines are of.
    """
    monkeypatch.setattr(windows, "MOST_SIZES", 50)
    made = get_task(task, base=3) if isinstance(task, str) else task
    options = {name: value for name, value in how.items() if name != "change"}
    model, data = small(made, *lines, **options)
    how.get("change", lambda model: None)(model)
    with pytest.raises(Undecided, match=said):
        prepare(model, data)


def test_what_is_not_in_the_rules_base_is_no_source():
    with pytest.raises(TaskError, match="is not a source of other_base"):
        OtherBase(3).solve("2+1")


def test_what_is_no_number_is_wrong():
    model, data = small(get_task("successor", base=3), [OWN], [ONE])
    with torch.no_grad():
        model.head.bias[0] = torch.nan
    assert all(c.wrong == c.windows for c in check(prepare(model, data)))


# Windows


def test_windows_that_are_not_run_decide_nothing(monkeypatch):
    model, data = small(Addition(2), [ALONE], SUMS)
    proof = prepare(model, data)
    run = type(proof.evaluator).run

    def some(self: Any, windows: Any) -> Any:
        yield from ((node, codes[1:], m[1:]) for node, codes, m in run(self, windows))

    monkeypatch.setattr(type(proof.evaluator), "run", some)
    with pytest.raises(AbcError, match="windows were run: nothing is decided"):
        check(proof)


def test_parts_of_large_nodes_are_drawn_at_random():
    model, data = small(Addition(3), [ALONE], SUMS)
    proof = prepare(model, data)
    node = max(proof.sizes, key=lambda node: proof.sizes[node])
    whole, first = proof.codes[node], set()
    for seed in range(8):
        made = [*parts(proof.listing, node, 12, rng=np.random.default_rng(seed))]
        assert np.array_equal(np.sort(np.concatenate(made)), whole)
        first.add(tuple(made[0].tolist()))
    assert len(first) > 1
    streamed = prepare(model, data, part=12)
    assert streamed.codes[node] is None and not streamed.whole
    few = [streamed.sample(8, np.random.default_rng(seed)).codes[node] for seed in range(8)]
    each = [{*codes.tolist()} for codes in few if codes is not None]
    assert len(each) == 8 and all(drawn and drawn <= {*whole.tolist()} for drawn in each)
    assert len(set().union(*each)) > max(map(len, each))
    with pytest.raises(TooMany):
        proof.listing.windows(node, {}, 12)


# What a loaded model does besides


def test_the_checker_refuses_what_a_loaded_model_does_besides():
    """Rows of a rule that has one, weights in half precision, two signs that are one token."""
    lines = {"self": [[[LINE]]], "cross": [[[CROSS]]]}
    signs = dict.fromkeys(("bos_token_id", "decoder_start_token_id"), 4)
    signs |= {"eos_token_id": 5, "pad_token_id": 6}
    config = signs | {"delimiter_ids": [4, 5], "line_bias": lines, "dtype": "float32"}
    taken().same(lines, config, signs)
    for change, said in (
        ({"row_id": 1}, "it opens rows"),
        ({"dtype": "float16"}, "another type"),
        ({"dtype": None}, "another type"),
    ):
        e = taken(source={"row": change.get("row_id")})
        with pytest.raises(SystemExit, match=said):
            e.same(lines, config | change, signs)
    rows = Rule(copied(), copied()).as_dict() | {"listed": False}
    with pytest.raises(SystemExit, match="two signs are one token"):
        taken(rule=rows, source={"row": 5})
    with pytest.raises(SystemExit, match="its one row has operands of other rows"):
        taken(rule=get_task("successor", base=2).rule().as_dict() | {"listed": True})


def test_another_tokenizer_is_no_part_of_a_run(tiny):
    run = Run.open(tiny.calibrated)
    path = run.path / "model" / "tokenizer.json"
    words = json.loads(path.read_text())
    vocabulary = words["model"]["vocab"]
    vocabulary["7"], vocabulary["8"] = vocabulary["8"], vocabulary["7"]
    path.write_text(json.dumps(words))
    vouch(run.path)
    with pytest.raises(
        AbcError, match=r"tokenizer\.json says another model .*; the task's symbols"
    ):
        Run.open(run.path).load_model()


class ManyTogether(Copied):
    """Two words or more of very many."""

    symbols: Any = tuple(f"w{k}" for k in range(200))

    def step(self, state, word):
        return min(state + 1, 2), word

    def end(self, state):
        return () if state == 2 else None


def test_where_there_is_nothing_to_draw_nothing_is_tried():
    """No short sources to run whole, and no problem of a length to search from."""
    model, data = small(ManyTogether(), [ALONE], [Line("diag", 1, 0)])
    certificate: Any = SimpleNamespace()
    decoded(certificate, prepare(model, data))
    assert certificate.decoded["sources"] > 0
    drawn = data.task.hard(np.random.default_rng(0), 4, 3).take(np.arange(0))
    data.task.hard = lambda *_: drawn
    assert searched(model, data, 3, 64, 64).n == 0


def test_the_checker_refuses_other_formats_and_an_end_that_closes_rows():
    e = taken()
    for config, said in (
        ({"base": 2, "train": {"format": "fixed:9"}}, "its format is fixed:9"),
        ({"base": 2, "train": {"format": "hints"}}, "its format is hints"),
        ({"base": None, "train": {"format": "free"}}, "its rule has 2 letters, not None"),
        ({"base": 3, "train": {"format": "free"}}, "its rule has 2 letters, not 3"),
    ):
        with pytest.raises(SystemExit, match=said):
            e.recorded({}, config)
    rows = Rule(copied(), copied()).as_dict() | {"listed": False}
    with pytest.raises(SystemExit, match="two signs are one token"):
        taken(rule=rows, source={"row": 7, "delimiters": [4, 6]}, eos_token_id=7)
