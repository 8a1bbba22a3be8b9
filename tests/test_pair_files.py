"""Files of pairs as people have them, rules as they write them, tokenizers as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from others import tokenizer
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from abc_calib.data.pairs import Coder
from abc_calib.proof.forms import Unbounded
from abc_calib.proof.tokenizers import whole
from tasks import TaskError, get_task
from tasks.pair_files import Texts, read_pairs
from tasks.written import rule_named, rule_of, wrong_pairs

READ = {
    "bom-crlf.jsonl": ('\ufeff{"source": "1+2=", "target": 03}\r\n'.replace("03", "3"), "3"),
    "numbers.jsonl": ('{"source": "1+2=", "target": 3, "id": 1}', "3"),
    "completion.jsonl": ('{"prompt": "1+2=", "completion": " 3"}', " 3"),
    "array.json": ('[{"input": "1+2=",\n "output": "3"}]', "3"),
    "lists.json": ('[["1+2=", "3"]]', "3"),
    "list.jsonl": ('["1+2=", "3"]\n', "3"),
    "header.csv": ('Source,Target\r\n1+2=,"3"\r\n', "3"),
    "more.csv": ("id,question,answer\n7,1+2=,3\n", "3"),
    "spaced.csv": ("source, target\n1+2=, 3\n", "3"),
    "a-space.csv": ("source,target\n1+2=, 3\n", " 3"),
    "returns.txt": ("1+2=3\r\r", "3"),
    "bare.csv": ("1+2=,3\n", "3"),
    "header.txt": ("source,target\n1+2=,3\n", "3"),
    "tabs.tsv": ("1+2=\t3\n", "3"),
    "tabs.txt": ("1+2=\t3\n", "3"),
    "plain.txt": ("1+2=3\n\n", "3"),
    "boms.jsonl": ('\ufeff\ufeff{"source": "1+2=", "target": "3"}', "3"),
    "tab-inside.txt": (' {"source": "1+2=",\t"target": "3"}', "3"),
}


@pytest.mark.parametrize("name", READ)
def test_files_of_others_are_read(tmp_path, name):
    text, target = READ[name]
    (tmp_path / name).write_bytes(text.encode())
    assert read_pairs(tmp_path / name)[0] == Texts(("1+2=",), (target,))


def test_a_separator_of_lines_inside_a_text_stays_there(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"source": "1\u2028+2=", "target": "3"}\n')
    assert read_pairs(tmp_path / "p.jsonl")[0].source == ("1\u2028+2=",)


UNREAD = {
    "keys.jsonl": ('{"q": "1", "a": "2"}', "line 1 .*keys 'q', 'a'"),
    "two.jsonl": ('{"source": "1", "input": "2", "target": "3"}', "'source', 'input', 'target'"),
    "none.jsonl": ('{"source": "1", "target": null}', "line 1 .*not two texts"),
    "half.jsonl": ('{"source": "1", "target": "2"}\n{"source": "1"', "line 2 .*is not JSON"),
    "twice.jsonl": ('{"source": "1", "source": "2", "target": "3"}', "a key stands there twice"),
    "chain.txt": ("1+2=3=3\n", "line 1 .*is '1\\+2=3=3', and no pair"),
    "words.txt": ("1+2=3\nhello\n", "line 2 .*is 'hello'"),
    "wide.csv": ("1,2,3\n", "row 1 .*no pair"),
    "inside.json": ('[{"source": "1", "target": "2"}, 7]', "entry 2 .*'7'"),
    "empty.jsonl": ("\n", "holds no pairs"),
    "thousands.csv": ("source,target\n1,000+2=,1,002\n", "row 2 .*4 cells, and the header 2"),
    "named-twice.csv": ("source,target,target\n1+2=,3,4\n", "row 1 .*no pair"),
    "named-twice.jsonl": ('{"Source": "1", "source": "2", "target": "3"}', "'Source', 'source'"),
    "operands.jsonl": ('{"x": "1", "y": "2", "sum": "3"}', "the keys 'x', 'y', 'sum'"),
    "separated.txt": ("1+2=,3\n", "line 1 .*no pair"),
    "tab-later.txt": ("1+2=3\n1+2=\t3\n", "line 2 .*no pair"),
    "blank.jsonl": ('{"source": "1+2=", "target": " "}', "line 1 .*not two texts"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_was_found_instead_is_told(tmp_path, name):
    text, told = UNREAD[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(TaskError, match=told) as found:
        read_pairs(tmp_path / name)
    assert "source,target" in str(found.value)


def test_an_array_of_lines_is_no_pair(tmp_path):
    (tmp_path / "p.json").write_text('["1+2=3", "4+5=9"]')
    assert read_pairs(tmp_path / "p.json")[0] == Texts(("1+2=", "4+5="), ("3", "9"))


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "p.jsonl").write_bytes(b"\xff\xfe1\x00")
    with pytest.raises(TaskError, match="UTF-8"):
        read_pairs(tmp_path / "p.jsonl")


FORMS: dict[str, Any] = {
    "addition": lambda a, b: (f"{a}+{b}=", f"{a + b}"),
    "addition backwards": lambda a, b: (f"{a}+{b}=", f"{a + b}"[::-1]),
    "addition backwards reversed": lambda a, b: (
        f"{str(a)[::-1]}+{str(b)[::-1]}=",
        f"{a + b}"[::-1],
    ),
    "addition zeros padded": lambda a, b: (f"{a:04}+{b:04}=", f"{a + b:05}"),
    "addition backwards-zeros padded": lambda a, b: (f"{a:04}+{b:04}=", f"{a + b:05}"[::-1]),
    "addition backwards padded": lambda a, b: (f"{a:04}+{b:04}=", f"{a + b}"[::-1]),
}
AROUND: dict[str, Any] = {
    "as it is": lambda s, t: (s, t),
    "dollars": lambda s, t: (f"${s}", f"{t}$"),
    "spaces": lambda s, t: (" ".join(s), " ".join(t)),
    "words apart": lambda s, t: (s.replace("+", " + ").replace("=", " ="), f" {t}"),
    "a line": lambda s, t: (s, f"{t}\n"),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", FORMS)
def test_a_rule_is_recognised_as_others_write_it(name, around):
    """By Python's integers; and problems of the rule are written in the same way."""
    numbers = np.random.default_rng(0).integers(0, 10 ** np.arange(1, 5), (60, 4)).ravel()
    numbers = np.append(numbers, [9999, 9999])
    both = [FORMS[name](int(a), int(b)) for a, b in numbers.reshape(-1, 2)]
    pairs = Texts(*zip(*(AROUND[around](*one) for one in both), strict=True))
    found = rule_of(pairs)
    assert found is not None and found.name == name
    assert not wrong_pairs(found, pairs)
    problems = get_task("addition").parse(f"{numbers[-2]}+{numbers[-1]}")
    assert found.texts(problems) == pairs.take(np.array([len(pairs) - 1]))
    again = rule_named(found.name, pairs)
    assert again.solve(pairs.source[3]) == pairs.target[3]


@pytest.mark.parametrize("behind", ["=", "", " ="])
@pytest.mark.parametrize("order", ["", "backwards", "columns"])
def test_a_rule_is_recognised_in_what_it_writes(order, behind):
    drawn = get_task("multiplication").sample(np.random.default_rng(0), 40, 4)
    name = f"multiplication {order}".strip()
    found = rule_of(rule_named(name, Texts((f"1*2{behind}",), ("2",))).texts(drawn))
    assert found is not None and found.name.startswith(name)


def test_a_pair_without_its_closing_delimiter_does_not_follow():
    sources = [f"{a}+{b}=" for a in range(10, 20) for b in range(10, 20)]
    targets = [f"{a + b}" for a in range(10, 20) for b in range(10, 20)]
    sources[57] = sources[57].removesuffix("=")
    pairs = Texts(tuple(sources), tuple(targets))
    found = rule_of(pairs)
    assert found is not None and wrong_pairs(found, pairs) == [57]


ALPHABET = "0123456789+="
KNOWN = {symbol: i for i, symbol in enumerate(["<unk>", *ALPHABET])}


def made(how: str) -> Any:
    """A tokenizer of a kind."""
    found: Any = tokenizer().backend_tokenizer
    bpe = how.startswith("bpe")
    if bpe:
        vocab = {**KNOWN, "12": 20}
        found = Tokenizer(models.BPE(vocab=vocab, merges=[("1", "2")], unk_token="<unk>"))
    if how in ("spaced", "unspaced"):
        found = Tokenizer(models.WordLevel(KNOWN, unk_token="<unk>"))
        found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if how in ("added", "added spaced"):
        found.add_tokens(["777777"])
    if how == "added special":
        found.add_special_tokens([AddedToken("0" * 70)])
    normalizer: dict[str, Any] = {
        "replaced": Regex("8{12}"),
        "replaced text": "8" * 120,
        "harmless": " ",
    }
    if how in normalizer:
        found.normalizer = normalizers.Replace(normalizer[how], "")
    split = {"long split": Regex("9{99}|."), "bpe removed": Regex("9{99}")}
    if how.endswith("pieces"):  # of 5,000 characters
        found = Tokenizer(models.BPE(vocab=KNOWN, merges=[], unk_token="<unk>"))
        pieces = pre_tokenizers.Split(Regex(".{1,5000}"), "isolated")
        opened = pre_tokenizers.ByteLevel(add_prefix_space="prefixed" in how, use_regex=False)
        found.pre_tokenizer = pre_tokenizers.Sequence([pieces, opened])
    if how in split:
        behaviour = "removed" if bpe else "isolated"
        found.pre_tokenizer = pre_tokenizers.Split(split[how], behaviour)
    if how.startswith("word piece"):  # of digits that are the same wherever they stand
        known = {"unk_token": "<unk>", "continuing_subword_prefix": ""}
        found = Tokenizer(models.WordPiece(KNOWN, max_input_chars_per_word=100, **known))
        found.pre_tokenizer = pre_tokenizers.Whitespace()
    if how == "bpe dropout":
        found.model.dropout = 0.999
    written = {"full width": normalizers.NFKC(), "with a sign": normalizers.Replace("~", "")}
    if how in written:
        found.normalizer = written[how]
        found.add_tokens([AddedToken({"full width": "４２"}.get(how, "4~2"), normalized=True)])
    decoded: dict[str, Any] = {"ctc": decoders.CTC(), "stripped": decoders.Strip("0", 1, 0)}
    decoded["decoded"] = decoders.Replace(Regex("9{99}"), "8")
    decoded["continued"] = decoders.WordPiece(prefix="1")
    if how in decoded:
        found.decoder = decoded[how]
    if how == "bpe digits":
        found.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    return found


@pytest.mark.parametrize(
    "how", ["plain", "harmless", "spaced", "word piece spaced", "bpe digits", "pieces"]
)
def test_a_tokenizer_of_one_token_a_symbol(how, tmp_path):
    made(how).save(str(tmp_path / "tokenizer.json"))
    whole(Coder(str(tmp_path)), ALPHABET, " " if "spaced" in how else "")


@pytest.mark.parametrize(
    "how",
    [
        *("added", "added special", "replaced", "replaced text", "long split", "unspaced"),
        *("bpe", "bpe removed", "bpe dropout", "word piece", "full width", "with a sign"),
        *("ctc", "decoded", "stripped", "continued", "prefixed pieces"),
    ],
)
def test_a_tokenizer_that_reads_some_texts_otherwise(how, tmp_path):
    """However rare they are: no sample of short problems holds them."""
    made(how).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(Unbounded, match="its tokenizer"):
        whole(Coder(str(tmp_path)), ALPHABET)
