"""The page of a certificate: what was proved, how, and what it rests on."""

from __future__ import annotations

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

CAVEAT = """## What it rests on

- Arithmetic: every window is computed in float32 and again in float64. The largest difference
  between them is {rounding:.2g} and the smallest margin {margin:.3f}, so rounding would have to be
  {times:,.0f} times larger to change a token. No sum grows with length: every head reads one key.
- The weights, by the SHA-256 above, and the rule of the task as an automaton, which the tests
  compare with the task itself.
- Not covered: memory. A number has to fit.
"""


def page(c: dict[str, Any]) -> str:
    """A certificate, as the fields of ``Certificate``, in Markdown."""
    title = f"# {c['task'].capitalize()}: {c['outcome']}"
    facts = [
        f"- Trained on at most {c['train_length']} digits in base {c['base']}, positions "
        f"`{c['scheme']}`",
        f"- Weights: `{c['weights']}`",
        f"- Decided by abc-calib {c['code_version']} in {c['seconds']:.0f} s",
    ]
    parts = [title, _verdict(c), "\n".join(facts)]
    if c["windows"]:
        parts += [_outright(c), _cases(c)]
    if c["outcome"] == "certified":
        parts += [
            INDUCTION.strip(),
            CAVEAT.format(
                rounding=c["rounding"], margin=c["margin"], times=c["margin"] / c["rounding"]
            ).strip(),
        ]
    if c["counterexamples"]:
        parts.append(_counterexamples(c))
    if c["repair"]:
        parts.append(_repair(c))
    if c["verified"]:
        told = "; ".join(f"{key.replace('_', ' ')}: {v}" for key, v in c["verified"].items())
        parts.append(f"## Second look\n\nBy another path, plain dense attention: {told}.")
    if c["lines"]:
        parts.append(_lines(c))
    return "\n\n".join(parts) + "\n"


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
    columns = ["where the row stands", "windows", "wrong", "smallest margin", "in float64"]
    rows = [
        [
            r["where"],
            f"{r['windows']:,}",
            f"{r['wrong']:,}",
            f"{r['margin']:.3f}",
            f"{r['margin_float64']:.3f}",
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
