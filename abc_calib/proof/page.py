"""The page of a certificate: what was proved, how, and what it rests on."""

from __future__ import annotations

from typing import Any

from abc_calib.plugins.registry import is_ours
from abc_calib.text import Markup, as_markdown
from tasks import TASKS

INDUCTION = """## Why this covers every length

The model writes an answer from its {last} on, one token after another. Each head of each layer
reads the places that its lines name. So a prediction depends on nothing but the tokens of its
*window*: a few tokens of the source and a few written before. `t` is the column of the prediction,
and the {last} has column 0. There are finitely many windows. The rule below, run over the columns
of a problem, lists those that occur when everything written so far is right.

In each of them the largest logit of the model is that of the right token. So by induction over the
tokens of an answer: the first one is right; if all tokens before one are right, then its window is
in the list, so this token is right too; and the last token is the end. Nothing in this depends on
how long sources are.
"""

SIZES = """## Why the list is complete

A line names its key by adding integers: the place that it is counted from, its slope times the
column, and its offset, kept between the ends of its part. All places that a prediction depends on
are computed for one size of problem after another, {sizes} in all. Each comparison between two
places shows whether it would come out the same in every larger size. A size is in the list as long
as one would not. So every size that is not listed is like a listed one with more columns or rows
between two places, of which a window shows nothing.
{period}
Between two such places the rule may run over any number of columns: the list holds the windows of
every state that this can lead to.
"""

PERIOD = """
Positions repeat every {period} columns. So the sizes of each distance modulo {period} are listed.
"""

ROWS = """## Why this covers every number of rows

The output has several rows, and `p` is the row above. There are two inductions, one in the other:
if all rows above are right, and all tokens before one in its own row, then its window is in the
list, so the token is right. So the row is right, and so are the rows below it, however many there
are.

The row above may be any that the rule accepts. It was computed, for all sizes, by comparing
automata, that every row which the rule writes is one that the next row accepts, and that it then
has a next row for each operand. Digits of rows further up, and of other numbers of the source, may
be any: more windows than occur, never fewer.
"""

CAVEAT = """## What it rests on

- Decoding: greedy, token by token, as `abc predict` does and `generate()` with enough new tokens.
  A model on lines decodes in float64. {decoded:,} sources of up to {longest} were decoded
  one by one; none was wrong.
- Arithmetic: IEEE double precision. In any order of summation, with or without fused multiply-add,
  rounding takes at most {rounding:.2g} of a margin, and the smallest margin is {margin:.4g}. The
  bound is summed over the layers from the norms of weights and states: a sum of n products is wrong
  by at most n u / (1 - n u) times the sum of their sizes (Higham 2002, section 3.1). No sum grows
  with length. Reduced precision is not covered, nor is float32, in which `abc eval` scores.
- Kernels: that a matrix product, layer normalisation, ReLU and softmax compute what they are named
  after.
- Sources: {sources}. Anything else is refused before it is read.
- Everything in the fingerprint; and that the rule below is the task. {rule}
- Not covered: memory. A source has to fit.
"""


def _second_look(seen: dict[str, Any]) -> str:
    """What was done beyond the certificate, and by which program."""
    found = []
    if seen.get("made_again"):
        found.append("The certificate was made again, and every field was the same.")
    if "long_sources" in seen:  # of earlier versions
        found.append(
            f"Whole sources were run by dense attention: {seen['windows_in_random_sources']:,} "
            f"windows in random sources, and {seen['long_sources']:,} long ones of up to "
            f"{_size(seen['longest'])} (seed {seen['seed']}). None was wrong; the smallest margin "
            f"was {seen['smallest_margin']}."
        )
    if checker := seen.get("check_py"):
        found.append(
            "`check.py`, which needs NumPy alone and shares no code with this program, listed "
            f"{checker['windows']:,} windows, all right, with a smallest margin of "
            f"{checker['smallest_margin']}."
        )
    elif "check_py" in seen:
        found.append("`check.py` was not run: it would have to hold too many windows.")
    return " ".join(found)


MOST_SIZES = 12
"""Of short sources that are listed one by one."""


def page(c: dict[str, Any]) -> str:
    """A certificate, as the fields of ``Certificate``, in Markdown."""
    title = f"# {c['task'].replace('_', ' ').capitalize()}: {c['outcome']}"
    versions = c["fingerprint"]
    machine = ", ".join(f"{name} {value}" for name, value in c["machine"].items())
    facts = [
        f"- Trained on at most {c['train_length']} {_unit(c)}"
        f"{f' in base {base}' if (base := c['base']) else ''}, positions `{c['scheme']}`",
        f"- Weights: `{versions['weights']}`",
        f"- Decided by abc-calib {versions['abc_calib']} with torch {versions['torch']}, "
        f"{machine}, in {c['seconds']:.0f} s",
    ]
    parts = [title, _verdict(c), "\n".join(facts)]
    if c["windows"]:
        parts += [_outright(c), _kinds(c)]
    if c["outcome"] == "certified":
        period = PERIOD.format(period=c["period"]) if c["period"] > 1 else ""
        parts += [
            INDUCTION.format(last=_first(c["rule"])).strip(),
            *([ROWS.strip()] if c["rule"]["later"] else []),
            SIZES.format(sizes=c["sizes"], period=period).strip(),
            CAVEAT.format(
                rounding=c["rounding"],
                margin=c["margin"],
                decoded=c["decoded"]["sources"],
                longest=f"{_size(c['decoded']['longest'])} {_unit(c)}",
                sources=_sources(c),
                rule=_compared(c),
            ).strip(),
        ]
    if c["counterexamples"]:
        parts.append(_counterexamples(c))
    if c["repair"]:
        columns = ["round", "failing windows before", "training examples", "longest, digits"]
        rows = [[r["round"], f"{r['wrong']:,}", r["examples"], r["longest"]] for r in c["repair"]]
        parts.append("## Repair\n\n" + as_markdown(columns, rows, "rrrr").rstrip())
    if c["verified"]:
        parts.append("## Second look\n\n" + _second_look(c["verified"]))
    if c["lines"]:
        parts += [_lines(c), _rule(c)]
        rows = [[name.replace("_", " "), value or "–"] for name, value in versions.items()]
        parts.append(
            "## Fingerprint\n\n" + as_markdown(["of", "SHA-256, or version"], rows).rstrip()
        )
    return "\n\n".join(parts) + "\n"


def _words(c: dict[str, Any]) -> list[str] | None:
    """The words of a rule on words."""
    return (c["source"] or {}).get("words")


def _unit(c: dict[str, Any]) -> str:
    """What a length counts."""
    return "digits" if c["base"] else "tokens"


def _first(rule: dict[str, Any]) -> str:
    """What column 0 reads."""
    if not rule["first"].get("words"):
        return "last digit"
    return "first word" if rule.get("forward") else "last word"


def _size(longest: Any) -> str:
    """``50``, or of tasks with rows ``20x15``."""
    return "x".join(map(str, [longest] if isinstance(longest, int) else longest))


def _verdict(c: dict[str, Any]) -> str:
    if c["outcome"] == "certified":
        by = ", by the rule below" if c["compared"] else ""
        return (
            f"**The model's greedy output is right for every source of every length{by}.** "
            f"Checked: {c['windows']:,} windows, none wrong, smallest logit margin "
            f"{c['margin']:.3f}."
        )
    if c["outcome"] == "tested":
        return (
            f"**Tested: {c['reason']}.** Windows were run inside whole sources, and the model's "
            "folder generated with its own tokenizer and settings. Other sources may be wrong."
        )
    if c["outcome"] == "refuted":
        return f"**There are sources that the model gets wrong**: {c['reason']}."
    return f"**Not decided**: {c['reason']}."


def _compared(c: dict[str, Any]) -> str:
    """What the rule has to do with the answers of the task."""
    if c["compared"] is None:
        by = "integers" if c["base"] else "plain Python"
        tested = f"; tests compare it with {by}" if is_ours(TASKS.get(c["task"])) else ""
        return f"Answers of the task are computed by this rule{tested}."
    sources, longest = (c["compared"][name] for name in ("sources", "longest"))
    return (
        "The task answers by code of its own, which no proof reads: the two are the same on "
        f"{sources:,} sources of up to {_size(longest)} {_unit(c)}, "
        "every short one among them. What is certified is the rule."
    )


def _outright(c: dict[str, Any]) -> str:
    each = [f"{r['sources']:,} of width {r['width']}" for r in c["outright"]]
    wrong = sum(r["wrong"] for r in c["outright"])
    done = ", ".join(each)
    if len(each) > MOST_SIZES:
        total = sum(r["sources"] for r in c["outright"])
        done = f"{total:,} of {len(each)} sizes, {each[0]} to {each[-1]}"
    return f"Every short source was also run whole: {done}; {wrong} wrong."


def _kinds(c: dict[str, Any]) -> str:
    largest = max(c["kinds"], key=lambda row: row["windows"])
    atoms = ", ".join(f"`{a}`" for a in largest["atoms"])
    columns = ["seen, for example, at", "windows", "wrong", "smallest margin"]
    rows = [
        [
            r["where"],
            f"{r['windows']:,}",
            f"{r['wrong']:,}",
            "–" if r["margin"] is None else f"{r['margin']:.3g}",
        ]
        for r in c["kinds"]
    ]
    return (
        f"## Windows\n\nThe largest kind of window ({largest['where']}) shows "
        f"{len(largest['atoms'])} tokens: {atoms}. `a`, `b` are operands, `y` is what was "
        "written.\n\n" + as_markdown(columns, rows, "lrrr").rstrip()
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


def _lines(c: dict[str, Any]) -> str:
    rows = [
        [site, layer, Markup(", ".join(f"`{head}`" for head in heads))]
        for site, layers in c["lines"].items()
        for layer, heads in enumerate(layers)
    ]
    return "## Lines of the heads\n\n" + as_markdown(["attention", "layer", "heads"], rows).rstrip()


def _sources(c: dict[str, Any]) -> str:
    rule = c["rule"]
    if _words(c):
        return "what the rule below reads to its end"
    count = len(rule["first"]["tapes"]) + (rule["of_row"] is not None)
    numbers = "one number" if count == 1 else f"{count} numbers"
    if rule["listed"]:
        numbers = "any number of numbers"
    one = rule["of_row"] is not None and not rule["later"]
    more = ", of which the second has one digit" if one else ""
    return f"{numbers} of digits in base {c['base']}, without leading zeros{more}"


MOST_STATES, MOST_COLUMNS = 12, 6
"""Of a transducer that is shown: states, and columns that are done alike in one."""


def _rule(c: dict[str, Any]) -> str:
    """The transducer: what a state writes under each column of letters, and the next state."""
    rule = c["rule"]
    by = rule["later"] or rule["first"]
    count = len(by["next"])
    letters = [*(_words(c) or map(str, range(by["base"])))]
    names = [*letters, "the end", "nothing", "the row's end before another row", "the last end"]
    rows = []
    for state in range(min(count, MOST_STATES)):
        cells: dict[tuple[int, int], list[str]] = {}
        _columns(by["next"][state], by["written"][state], letters, "", cells)
        told = "; ".join(
            f"{names[out]} and state {after}: {', '.join(found[:MOST_COLUMNS])}"
            f"{' ...' if len(found) > MOST_COLUMNS else ''}"
            for (out, after), found in sorted(cells.items())[:20]
        )
        rows.append([state, told])
    start = ", ".join(map(str, by["start"]))
    more = f" The first {len(rows)} of {count} states." if len(rows) < count else ""
    return (
        f"## The rule\n\nIt reads column after column from the {_first(rule)} on, and begins in "
        f"state {start}. For each state: what is written and the next state, with the columns "
        f"where that is so; – stands behind the end of an operand.{more}\n\n"
        + as_markdown(["state", "written and next state: columns"], rows).rstrip()
    )


def _columns(
    after: Any, out: Any, names: list[str], letters: str, cells: dict[tuple[int, int], list[str]]
) -> None:
    """Collect the columns that begin with ``letters``, by what is written and the next state."""
    if isinstance(after, int):
        if after >= 0:
            cells.setdefault((out, after), []).append(letters.strip())
        return
    for letter, (more, written) in enumerate(zip(after, out, strict=True)):
        name = names[letter] if letter < len(names) else "–"
        _columns(more, written, names, f"{letters} {name}", cells)
