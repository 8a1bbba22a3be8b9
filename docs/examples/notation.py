"""A task that is written in letters: explained in CONTRIBUTING.md, executed by a test."""

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from abc_calib.data import DATA, Batch, Data
from abc_calib.data.vocabulary import EOS, SOS
from abc_calib.geometry import Layout
from tasks import TASKS, Task, TaskError


@dataclass(frozen=True)
class Words:
    """Pairs of a source and a target."""

    pairs: tuple

    def __len__(self):
        return len(self.pairs)

    def take(self, rows):
        return Words(tuple(self.pairs[i] for i in rows))

    def joined(self, *others):
        return Words(sum((other.pairs for other in others), self.pairs))


class Caesar(Task):
    """The next letter for each letter: ``abg -> bca``."""

    name = "caesar"
    notation = "letters"
    laws = ("uniform",)
    symbols = tuple("abcdefg")
    delimiters = ()
    train_length = 4
    unit = "letters"

    def solve(self, source):
        if not source or set(source) - set(self.symbols):
            raise TaskError(f"{source!r} is not a word of {self.name}: write letters from a to g")
        return source.translate(str.maketrans("abcdefg", "bcdefga"))

    def sample(self, rng, n, length, law="uniform", exact=False):
        sizes = [length if exact else int(rng.integers(1, length + 1)) for _ in range(n)]
        words = ["".join(rng.choice(self.symbols, size)) for size in sizes]
        return Words(tuple((word, self.solve(word)) for word in words))

    def parse(self, source):
        return Words(((source, self.solve(source)),))

    def write(self, problems, row):
        return problems.pairs[row][0]

    def read(self, output):
        return output


class LetterData(Data):
    """Words, an eighth of which are held out."""

    tests = ("random",)

    def drawn(self, stream, n, length, exact, held_out):
        rng, kept = np.random.default_rng([self.seed, stream, length]), []
        while len(kept) < n:
            ((source, target),) = self.task.sample(rng, 1, length, exact=exact).pairs
            if length > self.length or (zlib.crc32(source.encode()) % 8 == 0) == held_out:
                kept.append((source, target))
        return self.lay_out(Words(tuple(kept)))

    def training(self, step, n, exact=False):
        return self.drawn(step, n, self.length, exact, held_out=False)

    def validation(self, n):
        return self.drawn(0, min(n, 50), self.length, exact=True, held_out=True)

    def test(self, length, n, kind="random", seed=0):
        return self.drawn(seed, n, length, exact=True, held_out=True)

    def test_size(self, length):
        return 20

    def lay_out(self, problems):
        sources = [SOS + source + EOS for source, _ in problems.pairs]
        targets = [target + EOS for _, target in problems.pairs]
        return Batch(self.ids(sources), self.ids(targets), problems)

    def ids(self, texts):
        rows = [torch.tensor([self.vocabulary.ids[symbol] for symbol in text]) for text in texts]
        return pad_sequence(rows, batch_first=True, padding_value=self.vocabulary.pad)

    def layout(self, problems):
        return self.layout_at(len(problems.pairs[0][0]))

    def layout_at(self, length):
        return Layout((length,), (SOS, EOS), words=True)

    def output_steps(self, length):
        return length + 1

    def read(self, output):
        return self.task.read("".join(output))


TASKS["caesar"] = Caesar
DATA["letters"] = LetterData
