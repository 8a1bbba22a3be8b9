"""Models of ``transformers``, whose layers this program does not compute: tested, not certified.

A window is put into a source of the smallest size that has room for it, everything else in source
and output drawn at random, and the model is run on that as its users run it. Besides, the folder is
loaded anew and generates with its own tokenizer and ``generation_config.json``. An error is a
counterexample; no error is a test, not a proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.data import Batch
from abc_calib.data.vocabulary import EOS
from abc_calib.errors import UsageError
from abc_calib.evaluation.failures import Failure, logit_margins
from abc_calib.memory import lacking
from abc_calib.nn.build import model_type
from abc_calib.nn.foreign.folder import LoadedFolder
from abc_calib.nn.foreign.inject import record_of
from abc_calib.proof.certificate import folder_of
from abc_calib.proof.forms import Undecided
from abc_calib.proof.occurrence import Occurrence
from abc_calib.proof.setup import Setup
from abc_calib.proof.windows import AllWindows
from abc_calib.runs import Run
from tasks.ragged import Ragged
from tasks.written import squeezed

TOKENS = 2**15
"""Tokens of one batch."""
SAMPLE = 64
"""Problems on which it is seen how digits are written."""
LENGTHS = 10, 30, 100, 300, 1000
"""Digits of sources for which the folder generates."""
EACH = 8
"""Random sources of each length, and as many hard ones; besides, one of each digit repeated."""
MOST_BYTES = 2**30
"""What sources that are run together may take."""


def only_ours(run: Run, command: str) -> None:
    """``UsageError`` where a command computes layers itself and the run has those of others."""
    if model_type(run.config.kind).in_whole_sources:
        raise UsageError(
            f"{command} computes the layers of this program's own models, and {run} is a "
            f"{run.config.model.label}: abc certify tests it, which proves nothing, and its folder "
            "model can be shared"
        )


def setup_of_foreign(model: Any, data: Any) -> Setup:
    """What a model of ``transformers`` and its sources look like; ``Undecided`` if that is open."""
    lines, record = model.lines, record_of(model.network)
    if lines is None or record is None:
        raise Undecided("its attention is not restricted to lines: abc calibrate it")
    if lines.off_line_bias is not None or not record["restricted"]:
        raise Undecided("keys off its lines are only penalised, or a head has none: it sees all")
    if not record["neutral"]:
        raise Undecided("it has positions of its own")
    written = data.task.follows
    if written is None or written.task.rule() is None:
        raise Undecided("its pairs follow no rule on columns of digits")
    rule = written.task.rule()
    if len(rule.first.tapes) > 1 and "padded" not in written.ways:
        raise Undecided("its pairs write numbers of several widths in one source: pad them")
    if not written.backwards:
        raise Undecided("its answers begin with their first digit, and the rule with their last")
    if "reversed" in written.ways:
        raise Undecided("its operands begin with their last digit, and windows with their first")
    if written.filled or written.target.behind.strip():
        raise Undecided("its answers hold more than the rule writes: zeros that fill, or a sign")
    ids = {**data.vocabulary.ids, EOS: rule.base}
    encoder = 0 if model.stream else model.attention_layers["encoder"]
    return Setup(
        rule,
        lines,
        len(model.sites.modules["self"]),
        encoder,
        data.layout_at(9),
        ids,
        last_is_first=model.stream,
        opened=model.marks.prefix > 0 or not model.stream,
    )


def _room(occurrence: Occurrence) -> tuple[int, int]:
    """Orders places of a node: in how many columns its atoms stand, then the narrowest first."""
    columns = {
        (a.kind, a.of, None if a.column is None else a.column.value) for a in occurrence.atoms
    }
    return len(columns), -occurrence.query.wide.value


class BlackBox:
    """Runs windows of a model in whole sources."""

    def __init__(self, model: Any, data: Any, listing: AllWindows):
        self.model, self.data, self.listing = deepcopy(model).eval(), data, listing
        self.rule, self.rng = listing.setup.rule, np.random.default_rng(12)

    def run(
        self, windows: Iterator[tuple[int, np.ndarray]]
    ) -> Iterator[tuple[int, np.ndarray, Tensor]]:
        """Node, windows and their margins: as ``evaluate.Layers``."""
        for node, codes in windows:
            occurrence = max(self.listing.occurrences[node], key=_room)
            yield node, codes, self.margins(occurrence, codes)

    def margins(self, occurrence: Occurrence, codes: np.ndarray) -> Tensor:
        """How far the right token's logit is above the others in each window, ``(n,)`` float64."""
        chunks, model, gaps = [], self.model, occurrence.query.gaps.values
        row, width = occurrence.query.column.at(gaps), occurrence.query.wide.at(gaps)
        size = max(1, TOKENS // (self.data.layout_at(width).keys + row + 1))
        for first in range(0, len(codes), size):
            values, right = occurrence.split(codes[first : first + size])
            batch = self.batch(occurrence, values, gaps)
            with torch.inference_mode():
                inputs = (tensor.to(model.device) for tensor in (batch.source, batch.target))
                logits = model(*inputs)[:, row].double().cpu()
            chunks.append(logit_margins(logits, self.tokens[1][torch.from_numpy(right)]))
        return torch.cat(chunks).nan_to_num(nan=-torch.inf, posinf=torch.inf)  # no number: wrong

    def batch(self, occurrence: Occurrence, values: np.ndarray, gaps: tuple[int, ...]) -> Batch:
        """Windows in sources with these gaps, what is not in them at random."""
        row, width = occurrence.query.column.at(gaps), occurrence.query.wide.at(gaps)
        n = len(values)
        layout, base, (read, written) = self.data.layout_at(width), self.rule.base, self.tokens
        source = self.data.lay_out(self.data.task.ones(width)).source.repeat(n, 1)
        fixed: dict[tuple[int, int], np.ndarray] = {}
        target = self.rng.integers(0, base, (n, row + 1))
        for atom, value in zip(occurrence.atoms, values.T, strict=True):
            column = 0 if atom.column is None else atom.column.at(gaps)
            if atom.kind == "written":
                target[:, column] = value
            else:
                fixed[atom.of, column] = value
        for position in range(layout.keys):
            _, operand, column = layout.coordinate(position)
            if operand is not None:
                digits = fixed.pop((operand, column), None)
                drawn = self.rng.integers(0, base, n) if digits is None else digits
                source[:, position] = read[torch.from_numpy(drawn.astype(np.int64))]
        if fixed:
            raise Undecided("a window does not fit its source")
        return Batch(source, written[torch.from_numpy(target)], self.data.task.pairs)

    @cached_property
    def tokens(self) -> tuple[Tensor, Tensor]:
        """The token of each digit in a source; and in an output, with that of its end.

        ``Undecided`` if a digit has several tokens, or there are others.
        """
        rng, task = np.random.default_rng(13), self.data.task.rule_task
        read, written = set[tuple[int, int]](), set[tuple[int, int]]()
        for width in (2, 3, 5):
            problems = task.sample(rng, SAMPLE, width, "mixed", exact=True)
            batch = self.data.lay_out(self.data.task.render(problems))
            layout, wide = self.data.layout_at(width), problems.operands
            if batch.source.shape[1] != layout.keys or layout.widths != task.widths(width):
                raise Undecided("its sources have other tokens than digits and delimiters")
            if len(self.rule.first.tapes) > 1:
                wide = task.padded(wide, width)
            for position, tokens in enumerate(batch.source.T.tolist()):
                _, operand, column = layout.coordinate(position)
                if operand is not None:
                    digits = wide[operand].values[:, column].tolist()
                    read |= {*zip(digits, tokens, strict=True)}
            for row, target in enumerate(batch.target):
                plain = task.digits_of(problems.answer, row)[::-1]
                tokens = target[target != self.data.vocabulary.pad].tolist()
                if len(tokens) != len(plain) + 1 or tokens[-1] != self.model.eos:
                    raise Undecided("its answers leave out zeros that the rule's columns give")
                written |= {*zip(map(task.symbols.index, plain), tokens[:-1], strict=True)}
        for pairs in (read, written):
            if [digit for digit, _ in sorted(pairs)] != [*range(self.rule.base)]:
                raise Undecided("its tokenizer does not write each digit as one and the same token")
        of_read, of_written = ([token for _, token in sorted(pairs)] for pairs in (read, written))
        return torch.tensor(of_read), torch.tensor([*of_written, self.model.eos])


def generated(run: Run, model: Any, until: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What ``generate()`` of the run's folder writes: how much was tried, and what is wrong.

    Shorter sources first, until some are wrong, the memory lacks, or ``time.perf_counter()`` is at
    ``until`` behind a length. ``model``: the run's. ``UsageError`` where the folder
    does not load.
    """
    folder, task = LoadedFolder(folder_of(run)), run.task
    wrong, tried = list[dict[str, Any]](), {"sources": 0, "longest": 0}
    for length in LENGTHS:
        steps = run.data.output_steps(length) + 2
        needed = model.memory_needed(1, run.data.layout_at(length).keys, steps)
        if wrong or lacking(needed) or (tried["longest"] and time.perf_counter() > until):
            break
        tried["longest"] = length
        for texts in sources(task, length):
            answers = folder.answers(texts, steps, max(1, MOST_BYTES // needed))
            for source, answer in zip(texts, answers, strict=True):
                if answer != (right := squeezed(task.solve(source))):
                    wrong.append(_failure(source, answer, right, length).as_dict())
            tried["sources"] += len(texts)
            if wrong:
                break
    return tried | {"wrong": len(wrong)}, wrong


def sources(task: Any, length: int) -> Iterator[list[str]]:
    """Random and hard problems of a length as texts, then those of one digit repeated.

    The latter one by one: what experts of a layer take may depend on all sources of a batch.
    """
    rng, by = np.random.default_rng([16, length]), task.rule_task
    drawn = by.sample(rng, EACH, length, task.sampling, exact=True)
    digits = np.arange(1, by.base, dtype=np.uint8)
    repeated = by.problems(
        *(Ragged(np.tile(digits[:, None], w), np.full(len(digits), w)) for w in by.widths(length))
    )
    hard, repeated = (task.render(problems) for problems in (by.hard(rng, EACH, length), repeated))
    yield [*task.render(drawn).source, *hard.source]
    yield from ([source] for source in repeated.source)


def _failure(source: str, answer: str | None, right: str, digits: int) -> Failure:
    wrote = answer or ""
    pairs = zip(f"{wrote}\0", f"{right}\0", strict=False)
    step = next((k for k, (letter, other) in enumerate(pairs) if letter != other), len(right))
    token, expected = (text[step : step + 1] or "the end" for text in (wrote, right))
    return Failure(source, answer, right, digits, step, token, expected)
