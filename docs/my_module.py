"""Lines for a module that is not of transformers: explained in docs/any-module.md."""

import numpy as np
import torch
from torch import nn

import abc_calib as abc
from abc_calib.geometry import Layout

START, EQUALS, END = 10, 11, 12  # ids: ten digits, the start, "=", the end


class Mine(nn.Module):
    """A decoder-only Transformer without positions."""

    def __init__(self, width=32, heads=2, layers=2):
        super().__init__()
        self.heads, self.embedding = heads, nn.Embedding(13, width)
        self.layers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.head = nn.Linear(width, 13)

    def forward(self, ids, biases=None):
        x, self.weights = self.embedding(ids), []
        for number, layer in enumerate(self.layers):
            q, k, v = layer(x).view(*ids.shape, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            causal = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
            scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(causal, -torch.inf)
            weights = (scores if biases is None else scores + biases[number]).softmax(-1)
            self.weights.append(weights)
            x = x + (weights @ v).transpose(1, 2).flatten(2)
        return self.head(x)


def reversed_digits(width, samples=64):
    """Make a batch of digits and the same digits backwards, as ids."""
    digits = torch.randint(10, (samples, width))
    start, equals, end = (torch.full((samples, 1), token) for token in (START, EQUALS, END))
    ids = torch.cat([start, digits, equals, digits.flip(1), end], 1)
    labels = ids.clone()
    labels[:, : width + 2] = -100  # the source is not written
    return {"input_ids": ids, "labels": labels}


def biases_of(lines, width):
    """The bias (heads, n, n) of each layer: `cross` reads the source, `self` the output."""
    layout = Layout((width,), ("$", "="))
    source, rows = layout.keys, width + 2  # rows begin at "=", which is read first
    for layer in range(len(lines.sites["self"])):
        cross, own = (lines.matrix(site, layer, layout, [rows]) for site in ("cross", "self"))
        bias = np.full((len(own), source - 1 + rows, source - 1 + rows), -np.inf, np.float32)
        bias[:, range(source), range(source)] = 0  # tokens of the source see themselves
        bias[:, source - 1 :, :source] = cross
        both = bias[:, source - 1 :, source - 1 :]
        both[:] = np.maximum(both, own)
        yield torch.from_numpy(bias)


module, batches = Mine(), [reversed_digits(width) for width in (3, 5)]
attention = []
for batch in batches:
    module(batch["input_ids"])
    attention.append(abc.as_attention(module.weights, batch, delimiters=[EQUALS], prefix=1))
maps = attention[0].weights["cross"][1][0]  # of layer 1, as matplotlib's matshow draws each head

lines = abc.fit_lines(attention, threshold=0.2)
print(lines.summary)
logits = module(reversed_digits(50)["input_ids"], [*biases_of(lines, 50)])
