"""The page of a certificate: what was proved, how, and what it rests on."""

from __future__ import annotations

import itertools
from typing import Any

from abc_calib.text import Markup, as_markdown

INDUCTION = """## Why this covers every length

The model writes the answer from its last digit on, one token a row. Each head of each layer reads
one place that its line names, so what a row predicts depends on nothing but the tokens of its
*window*: a few digits of the operands and a few tokens written before, named below relative to the
row `t`, the last digit being column 0. There are finitely many windows. An automaton that does
the task by hand, column by column, lists exactly those that occur when everything written so far
is right: inside a number, at either end, and in short numbers where both ends are near.

In every one of them the model's largest logit is that of the right token. So by induction over the
rows: the first token is right; if all tokens before a row are right, its window is in the list, so
its token is right too; and after the last digit EOS is written. Nothing in this depends on how
long the number is.
"""

DISTANCE = """## Why the distance to the ends does not matter

A line names its key by adding up: the place that it is counted from, its slope times the row, and
its offset, kept between the ends of its part. Layer by layer these sums reach at most {rows} rows
back and {columns} columns on, which is the reach below. A row that is further from an end than
that has keys at the same places relative to itself, whichever row it is, so all such rows are one
case; every row that is nearer is a case of its own. Lines of one head that name the same key there
count once, as they do in the model; where lines would meet in some rows of one case and not in
others, nothing is certified.
{period}
The digits between two places that a window shows may be any number of columns: the automaton's
states are closed under them.
"""

ROWS = """## Why this covers every number of rows

The output has one row for each digit of `b`. A token stands in column `t` of row `r`, and its
window holds digits of `a` around its column, the digit of `b` that belongs to its row and those
beside it, what its own row holds so far, and digits of the row above: `p[t]` is the one that is
added in column `t`. The automaton below writes one row, with the row above as an operand.
{above}
Two inductions, one in the other: if all rows above are right and all tokens before this one in its
row, its window is in the list, so its token is right; so the row is right, and the rows below it,
however many there are. Whether it is the first or the last row matters, and up to {up} rows below
the first and {down} above the last; all others are one case.
"""

ENDING = """## Why this covers every number of rows

The output has one row for each number. A token stands in column `t` of row `r`, and its window
holds digits of `a`, the number that belongs to its row, around its column, what its own row holds
so far, and digits of the row above: `p[t]` is the one of its own column. Beyond its digits a number
reads as what opens it, and the row above as what closes it. The automaton below writes one row and
its end, which is where both numbers are over and nothing is carried. The row above may be any
number.
Two inductions, one in the other: if all rows above are right and all tokens before this one in its
row, its window is in the list, so its token is right; so the row is right, and the rows below it,
however many there are. Whether it is the first or the last row matters, and up to {up} rows below
the first; all others are one case.
"""

SUPERSET = """
The row above may be any that the automaton allows: all digits of which it reads, without its last
one, as a number below `a`. Every row of a product is so, since s < a + (b-1) a where the row above
it is. These are more windows than occur, and no fewer.
"""

PERIOD = """
Positions repeat every {period} rows: a window also holds the row, and the width of the numbers,
modulo {period}, in all combinations.
"""

CAVEAT = """## What it rests on

- Decoding: greedy, token by token, as `abc predict` and `generate()` do: a model on lines decodes
  in float64. {decoded:,} sources of up to {longest} digits were decoded so, one by one; none was
  wrong.
- Arithmetic: IEEE double precision. In any order of summation, with or without fused
  multiply-add, rounding takes at most {rounding:.2g} of a margin, and the smallest is {margin:.4g}.
  The bound is summed over the layers from the weights and the states: a sum of n products is wrong
  by at most n u / (1 - n u) times the sum of their sizes (Higham 2002, section 3.1). No sum grows
  with length. Reduced precision is not covered, nor is float32, in which `abc eval` scores.
- Kernels: that a matrix product, layer normalisation, ReLU and softmax compute what they are named
  after.
- Sources: {sources}. Anything else is refused before it is read.
- Everything in the fingerprint, and the rule of the task as the automaton below, which the tests
  compare with the task itself.
- Not covered: memory. A number has to fit.
"""


def page(c: dict[str, Any]) -> str:
    """A certificate, as the fields of ``Certificate``, in Markdown."""
    title = f"# {c['task'].replace('_', ' ').capitalize()}: {c['outcome']}"
    facts = [
        f"- Trained on at most {c['train_length']} digits in base {c['base']}, positions "
        f"`{c['scheme']}`",
        f"- Weights: `{c['fingerprint']['weights']}`",
        f"- Decided by abc-calib {c['fingerprint']['abc_calib']} with torch "
        f"{c['fingerprint']['torch']}, {_machine(c)}, in {c['seconds']:.0f} s",
    ]
    parts = [title, _verdict(c), "\n".join(facts)]
    if c["windows"]:
        parts += [_outright(c), _cases(c)]
    if c["outcome"] == "certified":
        parts += [
            INDUCTION.strip(),
            *([_rows(c)] if _in_rows(c) else []),
            DISTANCE.format(
                rows=c["reach"]["rows"],
                columns=c["reach"]["columns"],
                period=PERIOD.format(**c["reach"]) if c["reach"]["period"] > 1 else "",
            ).strip(),
            CAVEAT.format(
                rounding=c["rounding"],
                margin=c["margin"],
                decoded=c["decoded"]["sources"],
                longest=_size(c["decoded"]["longest"]),
                sources=_sources(c),
            ).strip(),
        ]
    if c["counterexamples"]:
        parts.append(_counterexamples(c))
    if c["repair"]:
        parts.append(_repair(c))
    if c["verified"]:
        seen = c["verified"] | {"longest": _size(c["verified"]["longest"])}
        told = "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in seen.items())
        parts.append(
            "## Second look\n\nMade again, every field the same. By another path, plain dense "
            f"attention: {told}."
        )
    if c["lines"]:
        rule = c["rule"]["later"] if _in_rows(c) else c["rule"]
        parts += [_lines(c), _rule(rule), _fingerprint(c)]
    return "\n\n".join(parts) + "\n"


def _size(longest: Any) -> str:
    """``50``, or of tasks with rows ``20x15``."""
    return "x".join(map(str, [longest] if isinstance(longest, int) else longest))


def _in_rows(c: dict[str, Any]) -> bool:
    """Has the output several rows?"""
    return "later" in c["rule"]


def _rows(c: dict[str, Any]) -> str:
    """The induction over rows."""
    text = ENDING if c["rule"].get("ends") else ROWS
    return text.format(above=SUPERSET, **c["reach"]).strip()


def _verdict(c: dict[str, Any]) -> str:
    if c["outcome"] == "certified":
        return (
            f"**The model's greedy output is right for every source of every length.** Checked: "
            f"{c['windows']:,} windows, none wrong, smallest logit margin {c['margin']:.3f}."
        )
    if c["outcome"] == "refuted":
        return f"**There are sources that the model gets wrong**: {c['reason']}."
    return f"**Not decided**: {c['reason']}."


def _outright(c: dict[str, Any]) -> str:
    done = ", ".join(f"{r['sources']:,} of width {r['width']}" for r in c["outright"])
    wrong = sum(r["wrong"] for r in c["outright"])
    return f"Every short source was also run whole: {done}; {wrong} wrong."


def _cases(c: dict[str, Any]) -> str:
    inner = max(c["cases"], key=lambda row: row["windows"])
    atoms = ", ".join(f"`{a}`" for a in inner["atoms"])
    columns = ["where the row stands", "windows", "wrong", "smallest margin", "rounding, at most"]
    rows = [
        [
            r["where"],
            f"{r['windows']:,}",
            f"{r['wrong']:,}",
            *("–" if r[k] is None else f"{r[k]:.3g}" for k in ("margin", "rounding")),
        ]
        for r in c["cases"]
    ]
    return (
        f"## Windows\n\nThe largest kind of window ({inner['where']}) has {len(inner['atoms'])} "
        f"places: {atoms}. `a`, `b` are operands, `y` is what was written.\n\n"
        + as_markdown(columns, rows, "lrrrr").rstrip()
    )


def _counterexamples(c: dict[str, Any]) -> str:
    lines = []
    for f in c["counterexamples"]:
        text = (
            f"- `{f['problem']}` gives `{f['answer'] or 'no end'}` instead of `{f['right']}`: "
            f"token {f['step']} is `{f['wrote']}` instead of `{f['wanted']}`"
        )
        if "failing_window" in f:
            places = f["failing_window"].items()
            window = ", ".join(f"{place} = {digit}" for place, digit in places)
            text += f". Failing window ({f['where']}): `{window}`"
        lines.append(text)
    more = c["wrong"] - len(c["counterexamples"])
    if c["windows"] and more > 0:
        lines.append(f"- {more:,} more windows fail")
    return "\n".join(["## Counterexamples", "", *lines])


def _repair(c: dict[str, Any]) -> str:
    columns = ["round", "failing windows before", "training examples", "longest, digits"]
    rows = [[r["round"], f"{r['wrong']:,}", r["examples"], r["longest"]] for r in c["repair"]]
    return "## Repair\n\n" + as_markdown(columns, rows, "rrrr").rstrip()


def _lines(c: dict[str, Any]) -> str:
    rows = [
        [site, layer, Markup(", ".join(f"`{head}`" for head in heads))]
        for site, layers in c["lines"].items()
        for layer, heads in enumerate(layers)
    ]
    return "## Lines of the heads\n\n" + as_markdown(["attention", "layer", "heads"], rows).rstrip()


def _machine(c: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in c["machine"].items())


def _sources(c: dict[str, Any]) -> str:
    rule = c["rule"]
    if _in_rows(c):
        many = "any number of" if rule.get("ends") else "two"
        return f"{many} numbers of digits in base {c['base']}, without leading zeros"
    count = len(rule["operands"]) + (rule["constant"] is not None)
    numbers = "one number" if count == 1 else f"{count} numbers"
    one = "" if rule["constant"] is None else ", of which one has one digit"
    return f"{numbers} of digits in base {c['base']}, without leading zeros{one}"


MOST_STATES = 12
"""Rows of an automaton that are shown."""


def _rule(rule: dict[str, Any]) -> str:
    """The automaton: what a state writes under each column of digits, and the state after it."""
    base, digits = rule["base"], len(rule["operands"])
    symbols = range(len(rule["next"][0]))  # one more than digits where numbers end by themselves
    shown, rows = min(len(rule["next"]), MOST_STATES), []
    for state in range(shown):
        after, written = rule["next"][state], rule["written"][state]
        cells: dict[tuple[int, int], list[str]] = {}
        for places in itertools.product(symbols, repeat=digits):
            here, there = after, written
            for place in places:
                here, there = here[place], there[place]
            if here < 0 or there > base:
                continue
            named = (str(place) if place < base else "–" for place in places)
            cells.setdefault((there, here), []).append(" ".join(named))
        last = "the end" if rule["last"][state] < 0 else f"{rule['last'][state]}, then the end"
        last = "–" if base in symbols else last
        told = "; ".join(
            f"{there if there < base else 'the end'} and state {here}: {', '.join(found[:6])}"
            f"{' ...' if len(found) > 6 else ''}"
            for (there, here), found in sorted(cells.items())[:20]
        )
        rows.append([state, told, last])
    start = ", ".join(map(str, rule["start"]))
    more = f" The first {shown} of {len(rule['next'])} states." if shown < len(rule["next"]) else ""
    return (
        f"## The rule\n\nColumn by column from the last one, beginning in state {start}. For each "
        "state, what is written and the state after it, with the digits of the columns where that "
        f"is so; and what is written when the columns are used up.{more}\n\n"
        + as_markdown(["state", "written and next state: columns", "at the end"], rows).rstrip()
    )


def _fingerprint(c: dict[str, Any]) -> str:
    rows = [[name.replace("_", " "), value or "–"] for name, value in c["fingerprint"].items()]
    return "## Fingerprint\n\n" + as_markdown(["of", "SHA-256, or version"], rows).rstrip()
