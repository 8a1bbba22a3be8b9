"""Files of pairs as people have them, and rules as they write them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from functools import partial
from typing import Any

import numpy as np
import pytest

from tasks import TaskError, get_task
from tasks.pair_files import Texts, read_pairs
from tasks.written import rule_named, rule_of, wrong_pairs

READ = {
    "bom-crlf.jsonl": ('\ufeff{"source": "1+2=", "target": 03}\r\n'.replace("03", "3"), "3"),
    "completion.jsonl": ('{"prompt": "1+2=", "completion": " 3"}', " 3"),
    "array.json": ('[{"input": "1+2=",\n "output": "3"}]', "3"),
    "lists.json": ('[["1+2=", "3"]]', "3"),
    "header.csv": ('Source,Target\r\n1+2=,"3"\r\n', "3"),
    "a-space.csv": ("source,target\n1+2=, 3\n", " 3"),
    "returns.txt": ("1+2=3\r\r", "3"),
    "returns.csv": ("source,target\r1+2=,3\r", "3"),
    "objects.csv": ('{"source": "1+2=", "target": "3"}\n', "3"),
    "sums.csv.jsonl": ('\n["1+2=", "3"]\n', "3"),
    "sums.tsv.txt": ("1+2=3\n", "3"),
    "blank-first.csv": ("\n\nsource,target\n1+2=,3\n", "3"),
    "blank-first.tsv": ("\nsource\ttarget\n1+2=\t3\n", "3"),
    "blank-first.txt": ("\nsource,target\n1+2=,3\n", "3"),
    "two-files.csv": ("source,target\n1+2=,3\nSource, target\n", "3"),
    "header.txt": ("source,target\n1+2=,3\n", "3"),
    "tabs.tsv": ("1+2=\t3\n", "3"),
    "boms.jsonl": ('\ufeff\ufeff{"source": "1+2=", "target": "3"}', "3"),
    "tab-inside.txt": (' {"source": "1+2=",\t"target": "3"}', "3"),
}


def test_files_of_others_are_read(tmp_path):
    for name, (text, target) in READ.items():
        (tmp_path / name).write_bytes(text.encode())
        assert read_pairs(tmp_path / name)[0] == Texts(("1+2=",), (target,)), name
    (tmp_path / "array-of-lines.json").write_text('["1+2=3", "4+5=9"]')
    read = read_pairs(tmp_path / "array-of-lines.json")[0]
    assert read == Texts(("1+2=", "4+5="), ("3", "9"))
    # a separator of lines inside a text stays there
    (tmp_path / "p.jsonl").write_text('{"source": "1\u2028+2=", "target": "3"}\n')
    assert read_pairs(tmp_path / "p.jsonl")[0].source == ("1\u2028+2=",)


def test_quotation_marks_of_tsv_and_packed_files_are_read(tmp_path):
    """Fifteen rows of which one begins with a mark are fifteen pairs; no text is too long."""
    rows = [(f"{k}+{k}=", f'"{2 * k}' if k == 4 else str(2 * k)) for k in range(15)]
    text = "".join(f"{source}\t{target}\n" for source, target in rows)
    (tmp_path / "p.tsv").write_text(text)
    assert [*zip(*vars(read_pairs(tmp_path / "p.tsv")[0]).values(), strict=True)] == rows
    alone = partial(lzma.compress, format=lzma.FORMAT_ALONE)
    packs = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "lzma": alone}
    for name, pack in packs.items():
        path = tmp_path / f"p.tsv.{name}"
        path.write_bytes(pack(text.encode()))
        assert read_pairs(path)[0].source == tuple(source for source, _ in rows)
        path.write_bytes(pack(text.encode())[:-9])
        with pytest.raises(TaskError, match="cannot be read"):
            read_pairs(path)
    (tmp_path / "long.csv").write_text(f"source,target\n{'1' * 200_000}+2=,3\n")
    assert len(read_pairs(tmp_path / "long.csv")[0].source[0]) == 200_003
    for begin, told in (
        (b"PK\x03\x04", "unpack it first, or save it as CSV"),
        (b"PAR1", "is a Parquet file: write it"),
        (b"\x28\xb5\x2f\xfd", "packed with zstd"),
        (gzip.compress(b"sums.txt\0\0001+2=3\n"), "it has NUL bytes, as UTF-16"),
        (gzip.compress(b"")[:10] + b"\xff" * 9, "cannot be read"),
    ):
        (tmp_path / "p.jsonl").write_bytes(begin)
        with pytest.raises(TaskError, match=told):
            read_pairs(tmp_path / "p.jsonl")


UNREAD = {
    "keys.jsonl": ('{"q": "1", "a": "2"}', "line 1 .*keys 'q', 'a'"),
    "two.jsonl": ('{"source": "1", "input": "2", "target": "3"}', "'source', 'input', 'target'"),
    "none.jsonl": ('{"source": "1", "target": null}', "line 1 .*not two texts"),
    "half.jsonl": ('{"source": "1", "target": "2"}\n{"source": "1"', "line 2 .*is not JSON"),
    "chain.txt": ("1+2=3=3\n", "line 1 .*is '1\\+2=3=3', and no pair"),
    "wide.csv": ("1,2,3\n", "line 1 .*has 3 columns: name two of them source and target"),
    "wide.tsv": ("7\t1+2=\t3\n", "line 1 .*has 3 columns: name two of them source and target"),
    "open.csv": ('source,target\n1+2=,"3\n4+5=,9\n', "line 2 .*goes on to line 4: close its quo"),
    "excel.csv": ('source,target\n"=""12+34=""",46\n', "line 2 .*as a spreadsheet writes it"),
    "large.csv": ("source,target\n1+2=,1.77585E+19\n", "'1.77585E.19', a number as a spread"),
    "prose.txt": ("The sum of 1 and 2 is\n1 + 2 = 3\n", "line 1 .*no pair"),
    "asked.txt": ("what is it if x = 3\n", "line 1 .*no pair"),
    "empty.jsonl": ("\n", "holds no pairs"),
    "thousands.csv": ("source,target\n1,000+2=,1,002\n", "line 2 .*4 cells, and the header 2"),
    "named-twice.jsonl": ('{"Source": "1", "source": "2", "target": "3"}', "'Source', 'source'"),
    "tab-later.txt": ("1+2=3\n1+2=\t3\n", "line 2 .*no pair"),
    "half.json": ('[["1+2=", "3\\ud800"]]', "entry 1 .*half of a character"),
    "blank.jsonl": ('{"source": "1+2=", "target": " "}', "line 1 .*not two texts"),
}


def test_what_was_found_instead_is_told(tmp_path):
    for name, (text, told) in UNREAD.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(TaskError, match=told) as found:
            read_pairs(tmp_path / name)
        assert "source,target" in str(found.value)
    (tmp_path / "p.jsonl").write_bytes(b"\xff\xfe1\x00")
    with pytest.raises(TaskError, match=r"as UTF-16.*name a UTF-8 file"):
        read_pairs(tmp_path / "p.jsonl")


FORMS: dict[str, Any] = {
    "addition": lambda a, b: (f"{a}+{b}=", f"{a + b}"),
    "addition backwards": lambda a, b: (f"{a}+{b}=", f"{a + b}"[::-1]),
    "addition backwards reversed": lambda a, b: (
        f"{str(a)[::-1]}+{str(b)[::-1]}=",
        f"{a + b}"[::-1],
    ),
    "addition zeros padded": lambda a, b: (f"{a:04}+{b:04}=", f"{a + b:05}"),
    "addition backwards padded": lambda a, b: (f"{a:04}+{b:04}=", f"{a + b}"[::-1]),
}
AROUND: dict[str, Any] = {
    "as it is": lambda s, t: (s, t),
    "dollars": lambda s, t: (f"${s}", f"{t}$"),
    "spaces": lambda s, t: (" ".join(s), " ".join(t)),
    "words apart": lambda s, t: (s.replace("+", " + ").replace("=", " ="), f" {t}"),
    "a line": lambda s, t: (s, f"{t}\n"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_rule_is_recognised_as_others_write_it(name):
    """By Python's integers; and problems of the rule are written in the same way."""
    numbers = np.random.default_rng(0).integers(0, 10 ** np.arange(1, 5), (60, 4)).ravel()
    numbers = np.append(numbers, [9999, 9999])
    both = [FORMS[name](int(a), int(b)) for a, b in numbers.reshape(-1, 2)]
    for around in AROUND.values():
        pairs = Texts(*zip(*(around(*one) for one in both), strict=True))
        at_once = name in ("addition", "addition backwards", "addition backwards padded")
        found = rule_of(pairs, "" if at_once else name)
        assert found is not None and found.name == name
        assert at_once or rule_of(pairs) is None
        assert not wrong_pairs(found, pairs)
        problems = get_task("addition").parse(f"{numbers[-2]}+{numbers[-1]}")
        assert found.texts(problems) == pairs.take(np.array([len(pairs) - 1]))
        again = rule_named(found.name, pairs)
        assert again.solve(pairs.source[3]) == pairs.target[3]


def test_a_rule_is_recognised_in_what_it_writes():
    drawn = get_task("multiplication").sample(np.random.default_rng(0), 40, 4)
    for behind in ("=", "", " ="):
        for name in ("multiplication", "multiplication backwards", "multiplication columns"):
            pairs = rule_named(name, Texts((f"1*2{behind}",), ("2",))).texts(drawn)
            found = rule_of(pairs, name)
            assert found is not None and found.name == f"{name} padded"


def test_a_pair_without_its_closing_delimiter_does_not_follow():
    sources = [f"{a}+{b}=" for a in range(10, 20) for b in range(10, 20)]
    targets = [f"{a + b}" for a in range(10, 20) for b in range(10, 20)]
    sources[57] = sources[57].removesuffix("=")
    pairs = Texts(tuple(sources), tuple(targets))
    found = rule_of(pairs)
    assert found is not None and wrong_pairs(found, pairs) == [57]
