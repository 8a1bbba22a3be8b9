"""2-tag systems on the tape of a universal machine: words are those of the system itself."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks import TaskError, get_task
from tasks.rules import ROW
from tasks.tag import MOST_STEPS, UNIVERSAL, TagSystem


@pytest.fixture(scope="module")
def machine():
    return get_task("tape", rule=UNIVERSAL)


def followed(productions: Mapping[str, str], word: str) -> Iterator[str]:
    """The words after each tag step, until H begins one or fewer than two letters are left."""
    queue = [*word]
    while len(queue) > 1 and queue[0] != "H":
        queue += productions[queue[0]]
        del queue[:2]
        yield "".join(queue)


def drawn(rng: random.Random, padded: bool) -> tuple[dict[str, str], str]:
    """Productions of one to three letters and a word; ``padded``: of any kind."""
    letters = "abc"[: rng.randint(1, 3)]
    productions = {}
    for k, letter in enumerate(letters):
        some = letters if padded else letters[k:] + "H"
        word = "".join(rng.choices(letters + "H", k=rng.randint(0, 2)))
        productions[letter] = rng.choice(["", *some]) + word if padded else rng.choice(some) + word
    return productions, "".join([rng.choice(letters), *rng.choices(letters + "H", k=3)])


@pytest.mark.parametrize("padded", [False, True])
def test_words_on_the_tape_are_those_of_the_system(machine, padded):
    rng, cases = random.Random(0), []
    while len(cases) < 15:
        productions, word = drawn(rng, padded)
        system = TagSystem.padded(productions) if padded else TagSystem(productions)
        most = rng.randint(1, 6)
        made = [*islice(followed(system.productions, word), most)]
        try:
            source = system.encode(word, most)
        except TaskError:  # the machine takes too many steps
            continue
        if int(source.split()[0]) < 800:
            halts = len(made) < most and len([word, *made][-1]) > 1
            cases.append((productions, system, word, source, made, halts))
    problems = machine.parse(*(source for *_, source, _, _ in cases))
    total = 0
    for k, (productions, system, word, source, made, halts) in enumerate(cases):
        output = machine.text(problems.target.row(k))
        assert system.words(output.split()) == made == [*islice(system.run(word), len(made))]
        assert ("!" in output) == halts
        begun = re.escape(source.partition(" : ")[2].partition(" A")[0])
        for row in output.split(f" {ROW} "):
            assert "C5" not in row or re.fullmatch(rf"\. {begun}( 1)* C5( [15])+", row)
        plain = system.plain(made) if padded else made
        meant = [*islice(followed(productions, word), len(plain))]
        assert plain[: len(meant)] == meant  # dummies go on behind a last letter
        total += len(meant)
    assert total > 15 and any(halts for *_, halts in cases)


def test_the_machine_halts_after_517_steps(machine):
    doubling = TagSystem({"a": "aa"})
    source = doubling.encode("aaH")
    assert source == "518 : 4 2 2 1 2 1 2 2 2 A1 5 1 5 1 1 1 1 1"
    output = machine.text(machine.parse(source).target.row(0))
    assert ["!" in row for row in output.split(ROW)] == [False] * 517 + [True]
    assert doubling.words(output.split()) == [*doubling.run("aaH")] == ["Haa"]


def test_the_guide_shows_words_of_a_system(machine, monkeypatch, capsys):
    """With the right output in place of a model's."""
    page = (Path(__file__).parent.parent / "docs" / "rules.md").read_text()
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "tag" in b)

    def predict(run: None, source: str) -> SimpleNamespace:
        output = machine.text(machine.parse(source).target.row(0))
        return SimpleNamespace(output=[*output.split(), "&"])

    monkeypatch.setattr("abc_calib.certified", lambda task, rule: (None, None))
    monkeypatch.setattr("abc_calib.predict", predict)
    exec(block, {})
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and f"print(system.words(answer.output))  # {first}\n" in block


def test_words_of_a_padded_system_are_the_ones_without_dummies():
    """As of the Collatz function (De Mol 2008), until one letter is left."""
    productions = {"c": "aaa", "a": "bc", "b": "a"}
    system = TagSystem.padded(productions)
    assert system.productions == {"c": "aaa", "a": "bc", "b": "DDa", "D": "DD"}
    for n in range(2, 12):
        made = [*followed(productions, "a" * n)]
        words = (x for x in followed(system.productions, "a" * n) if x[0] != "D")
        assert made[-1] == "a" and system.plain(islice(words, len(made))) == made
        powers = [len(word) for word in made if {*word} == {"a"}]
        while n > 1:
            n = (3 * n + 1) // 2 if n % 2 else n // 2
            assert powers.pop(0) == n
        assert not powers


def test_what_the_tape_does_not_take():
    refused: list[tuple[dict[str, str], str]] = [
        ({"a": ""}, "cannot be empty or begin with a letter before its own"),
        ({"a": "ab", "b": "a"}, "b -> a: .* give another order, or use TagSystem.padded"),
        ({"a": "ax"}, "'x' in 'ax' is not a letter: a, H"),
        ({"a": "a", "H": "a"}, "no production of the last one"),
        ({"ab": "H"}, "give single characters"),
    ]
    for productions, said in refused:
        with pytest.raises(TaskError, match=said):
            TagSystem(productions)
    system = TagSystem({"a": "aa"})
    for word, most, said in (
        ("a", 1, "1 tag steps on 'a': give at least 1"),
        ("aa", 0, "0 tag steps on 'aa': give at least 1"),
        ("ab", 1, "'b' in 'ab' is not a letter"),
        ("aaa", None, f"[0-9]+ tag steps in {MOST_STEPS:,} steps of its own"),
    ):
        with pytest.raises(TaskError, match=said):
            system.encode(word, *([] if most is None else [most]))
    with pytest.raises(TaskError, match="'D' is taken: give another dummy"):
        TagSystem.padded({"D": "D"})
    assert TagSystem.padded({"D": ""}, dummy="E").productions == {"D": "EE", "E": "EE"}
    assert system.words(["C5", *"1511511111", "&", "C5", "5"]) == ["a?H", "??"]
