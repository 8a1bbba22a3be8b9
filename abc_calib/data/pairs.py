"""Data of a file of pairs, in the token ids of an external tokenizer.

A source is what the file says between what opens it and the delimiter that closes it; an id of our
own stands for an opening token where the tokenizer puts none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from abc_calib.config import TrainOptions
from abc_calib.data.base import Batch, Data
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import UsageError
from abc_calib.geometry import Layout
from tasks.pair_files import Texts
from tasks.pairs import FilePairs
from tasks.written import squeezed

HELD_OUT = 8
"""One in this number of pairs is held out, but none of the shortest."""
SHORTEST = 2
"""Pairs of sources up to this wide are always for training."""
TESTED = 1000
PAD = "<padding of abc>"
"""No token of a tokenizer, as ``@`` may be one."""


class PairVocabulary(Vocabulary):
    """A tokenizer's file: its ids, then two of ours, padding and a token that opens sources."""

    def __init__(self, task: FilePairs):
        self.tokenizer = read_tokenizer(Path(task.tokenizer))
        #: how many tokens the tokenizer knows
        self.size = int(self.tokenizer.get_vocab_size(with_added_tokens=True))
        symbols = (self.tokenizer.id_to_token(token) or "" for token in range(self.size))
        self.symbols = [*symbols, PAD, ""]
        numbers = list(enumerate(self.symbols))
        self.ids = {symbol: i for i, symbol in reversed(numbers)}  # the tokenizer's own come first
        self.eos, self.pad = task.eos, self.size

        self.encoded(task.pairs.source[:1])  # which says what it cannot read
        whole = self.tokenizer.encode(task.pairs.source[0])
        text = [k for k, special in enumerate(whole.special_tokens_mask) if not special]
        start, end = (text[0], text[-1] + 1) if text else (0, 0)
        first, self.suffix = whole.ids[start:end], (*whole.ids[end:],)
        #: what each source begins with that stands for no text, as ``▁``
        self.blank = tuple(takewhile(lambda token: not self.plain(token), first))
        self.prefix = (*whole.ids[:start], *self.blank)
        self.sos = self.prefix[-1] if self.prefix else self.size + 1
        named = tuple(self.delimiter(text, first) for text in task.delimiters)
        #: does a token that the tokenizer puts behind a source close it?
        self.closed = first[-1:] != [named[-1]]
        self.behind = self.suffix[: int(self.closed)]
        self.named = (*named, *self.behind)
        self.delimiters = (self.sos, *self.named)
        added = self.tokenizer.get_added_tokens_decoder().items()
        #: special tokens that do not end a part of a source
        self.special = {token for token, entry in added if entry.special} - {*named}

    @cache  # noqa: B019
    def plain(self, token: int) -> str:
        """What a token stands for, without spaces and the signs of a tokenizer."""
        symbol, decoder = self.symbols[token], self.tokenizer.decoder
        text = _decoded(decoder.decode, [symbol]) if decoder else symbol
        return "".join(text.strip("▁ĠĊ").removeprefix("##").split())

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without special tokens that the tokenizer adds."""
        try:
            encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        except Exception as error:  # the library raises nothing more exact
            for text in texts if len(texts) > 1 else ():
                self.encoded([text])
            raise UsageError(
                f"the tokenizer cannot read {texts[0]!r} ({error}): leave it out, or train a "
                "model with all of its signs"
            ) from None
        return [encoding.ids for encoding in encodings]

    def unread(self, texts: Sequence[str]) -> list[str]:
        """Up to 6 characters of texts that the tokenizer drops or does not know, or such texts.

        BPE without a token for unknown text drops it.
        """
        model, rows = json.loads(self.tokenizer.to_str())["model"], self.encoded(texts)
        name, signs = model.get("unk_token"), sorted({*"".join(texts)})
        unknown = model.get("unk_id") if name is None else self.tokenizer.token_to_id(name)
        tokens, lost = {token for row in rows for token in row}, []
        if unknown in tokens:
            lost = [c for c in signs if unknown in self.encoded([c])[0]]
            lost = lost or [t for t, row in zip(texts, rows, strict=True) if unknown in row]
        elif unknown is None and model["type"] == "BPE":
            shown = "".join(map(self.plain, tokens))
            signs = [c for c in signs if not c.isspace() and c not in shown]
            lost = [c for c in signs if not any(map(self.plain, self.encoded([c])[0]))]
        return lost[:6]

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of sources, without what each begins with."""
        n = len(self.blank)
        return [ids[n:] if (*ids[:n],) == self.blank else ids for ids in self.encoded(texts)]

    def targets(self, problems: Texts, joined: bool) -> list[list[int]]:
        """Ids of targets; ``joined``: as what goes on behind their sources.

        ``UsageError`` where a token goes from one into the other.
        """
        if not joined:
            return self.encoded(problems.target)
        texts = [*zip(problems.source, problems.target, strict=True)]
        both, rows = self.encoded([source + target for source, target in texts]), []
        for source, ids, whole in zip(
            problems.source, self.encoded(problems.source), both, strict=True
        ):
            if whole[: len(ids)] != ids:
                raise UsageError(
                    f"the tokenizer reads {source!r} otherwise where its target follows: end "
                    "sources with a sign that it never merges"
                )
            rows.append(whole[len(ids) :])
        return rows

    def delimiter(self, text: str, source: Sequence[int]) -> int:
        """The token of a delimiter in a source; ``UsageError`` if it is none, or several."""
        tokens = {token for token in source if text in (self.symbols[token], self.plain(token))}
        token = tokens.pop() if len(tokens) == 1 else self.tokenizer.token_to_id(text)
        if token is None:
            raise UsageError(
                f"the delimiter {text!r} is not a single token of this tokenizer: name tokens, "
                "with commas between"
            )
        return int(token)

    def text(self, ids: Iterable[int], separator: str = "") -> str:
        """What a person reads, up to the end."""
        text = _decoded(self.tokenizer.decode, self.shown(ids))
        return text.strip() if separator else "".join(text.split())


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder; ``UsageError`` if there is none."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UsageError(
            f"{folder} has no tokenizer.json: save the model's fast tokenizer there, with "
            "tokenizer.save_pretrained(FOLDER)"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more exact
        raise UsageError(f"{path} is not a tokenizer ({error}): save it again") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _decoded(decode: Callable[[Any], str], tokens: list[Any]) -> str:
    """Their text; ``UsageError`` where the library panics, which is no ``Exception``."""
    try:
        return decode(tokens)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UsageError(
            f"the tokenizer's decoder fails on {tokens!r} ({error}): mend the decoder in "
            "tokenizer.json, or save the tokenizer again"
        ) from None


class PairData(Data):
    """Draws batches of a file of pairs; beyond it, of the rule that they follow."""

    task: FilePairs
    laws = {"random": "balanced", "carry": "carry", "hard": "hard"}
    """How each test set is drawn where there is a rule."""

    def __init__(self, task: FilePairs, options: TrainOptions):
        super().__init__(task, options, PairVocabulary(task))
        self.tests = tuple(self.laws) if task.follows is not None else ("random",)

    @cached_property
    def widths(self) -> np.ndarray:
        """The widest part of each source, in digits where there is a rule, else in tokens."""
        sources = self.task.pairs.source
        if self.task.follows is not None:
            return np.array([self.task.follows.width(source) for source in sources])
        return np.array([max(self._widths(ids)) for ids in self.vocabulary.sources(sources)])

    def _widths(self, ids: Sequence[int]) -> list[int]:
        """How many tokens each part of a source has, given its own ids."""
        widths, width = [], 0
        for token in ids:
            if token in self.vocabulary.named:
                widths.append(width)
                width = 0
            else:
                width += 1
        return [*widths, width] if self.vocabulary.closed else widths

    @cached_property
    def _kept_back(self) -> frozenset[str]:
        """The sources that are kept from training, without spaces."""
        rng = np.random.default_rng([self.seed, 0])
        chosen = rng.random(len(self.widths)) < 1 / HELD_OUT
        chosen &= self.widths > min(SHORTEST, self.widths.max() - 1)
        return frozenset(map(squeezed, self.task.pairs.take(np.flatnonzero(chosen)).source))

    @cached_property
    def held_out(self) -> np.ndarray:
        """Which pairs are kept from training: a source may stand there several times."""
        sources = map(squeezed, self.task.pairs.source)
        return np.array([source in self._kept_back for source in sources])

    @cached_property
    def everything(self) -> Batch:
        """All pairs of the file."""
        return self.lay_out(self.task.pairs)

    def may_train(self, problems: Texts) -> bool:
        """Is the first of ``problems`` of a training size, and not held out?"""
        kept_back = squeezed(problems.source[0]) in self._kept_back
        return self.size_of(problems) <= self.length and not kept_back

    # Batches

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        rng = np.random.default_rng([self.seed, 1, step])
        wide = self.widths == self.length if exact else self.widths <= self.length
        rows = np.flatnonzero(wide & ~self.held_out)
        if not len(rows):
            raise UsageError(f"no pairs of sources up to {self.length} wide: give more of them")
        widths = self.widths[rows]  # every width is as likely, however few pairs it has
        distinct, counts = np.unique(widths, return_counts=True)
        share = 1 / (len(distinct) * counts[np.searchsorted(distinct, widths)])
        return self.everything.take(rng.choice(rows, n, p=share)).cut(self.vocabulary.pad)

    def validation(self, n: int) -> Batch:
        """Held-out pairs of the longest training length, or where there are none, all of it."""
        return self._of_file(self.length, n, 2)

    def _of_file(self, length: int, n: int, seed: int) -> Batch:
        wide = self.widths == length
        rows = np.flatnonzero(wide & self.held_out)
        rows = rows if len(rows) else np.flatnonzero(wide)
        rows = np.random.default_rng([self.seed, seed]).permutation(rows)[:n]
        return self.everything.take(rows).cut(self.vocabulary.pad)

    def test(self, length: int, n: int, kind: str = "random", seed: int = 0) -> Batch:
        """At most ``n`` pairs of the file, held-out ones if there are any, or of the rule."""
        in_file = bool((self.widths == length).any())
        if kind == "random" and in_file and (length <= self.length or self.task.follows is None):
            return self._of_file(length, n, 3)
        self.sized(length)
        law = self.laws[kind]
        if law == "hard":
            return self.lay_out(self.task.hard(np.random.default_rng([seed, 4, length]), n, length))
        rng = np.random.default_rng([seed, 3, length])
        return self.lay_out(self.task.sample(rng, n, length, law, exact=True))

    def sized(self, length: Any) -> Any:
        if (only := self.only_lengths) and super().sized(length) not in only:
            raise UsageError(
                f"length {length}: the pairs follow no rule that is known, and none is so long; "
                f"choose {', '.join(map(str, only))}"
            )
        return super().sized(length)

    @property
    def only_lengths(self) -> Sequence[int] | None:
        return None if self.task.follows else np.unique(self.widths).tolist()

    def test_size(self, length: int) -> int:
        return TESTED

    def left_out(self) -> tuple[Data, list[int]]:
        widths = np.unique(self.widths).tolist()
        few = max(1, len(widths) * 2 // 3)
        return self.shortened(widths[few - 1]), widths[few:]

    # Tokens

    def lay_out(self, problems: Texts) -> Batch:
        vocabulary = self.vocabulary
        read = vocabulary.sources(problems.source)
        sources = [[vocabulary.sos, *ids, *vocabulary.behind] for ids in read]
        written = vocabulary.targets(problems, self.task.joined)
        targets = [[*ids, vocabulary.eos] for ids in written]
        for row, target in enumerate(problems.target):
            if not target:  # unknown: up to the longest
                if unread := vocabulary.unread([source := problems.source[row]]):
                    signs = ", ".join(map(repr, unread))
                    raise UsageError(f"{source!r}: the tokenizer has no token for {signs}")
                widest = self.size_of(problems.take(np.array([row])))
                targets[row] = [vocabulary.eos] * self.output_steps(widest)
        return Batch(self._filled(sources), self._filled(targets), problems)

    def _filled(self, rows: list[list[int]]) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=self.vocabulary.pad)

    def layout(self, problems: Texts) -> Layout:
        return self._layout(self._widths(self.vocabulary.sources(problems.source[:1])[0]))

    def layout_at(self, length: int) -> Layout:
        if self.task.follows is None:
            return self._layout([length] * len(self.vocabulary.named))
        return self.layout(self.task.ones(length))

    def _layout(self, widths: Sequence[int]) -> Layout:
        vocabulary = self.vocabulary
        return Layout(tuple(widths), tuple(vocabulary.symbols[i] for i in vocabulary.delimiters))

    def output_steps(self, length: int) -> int:
        longest = int(self.everything.target.ne(self.vocabulary.pad).sum(1).max())
        near, far = (self.layout_at(int(n)).keys for n in (self.widths.max(), length))
        return longest + 2 * max(0, far - near)

    def read(self, output: Sequence[str]) -> str:
        between = " " if " " in self.task.pairs.source[0] else ""
        return self.vocabulary.text([self.vocabulary.ids[symbol] for symbol in output], between)

    def size_of(self, problems: Texts) -> int:
        if self.task.follows is not None:
            return self.task.follows.width(problems.source[0])
        if not (widths := self.layout(problems).widths):
            example = self.task.pairs.source[0]
            raise UsageError(
                f"{problems.source[0]!r} has none of the delimiters: write a source as {example!r}"
            )
        return max(widths)
