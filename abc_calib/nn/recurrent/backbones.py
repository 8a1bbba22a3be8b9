"""The two recurrent backbones: what is around an attender in each line of papers.

``ray_chowdhury``: Ray Chowdhury & Caragea (2023). One embedding for source, target and output;
the source between a learned START and END; a bidirectional GRU whose two last states start the
decoder; values transformed twice.

``dubois``: Dubois et al. (2020). Embeddings of their own on both sides; a one-directional GRU
with a learned first state; values with the embeddings as residual; dropout on the state that
starts the decoder, and nowhere else.

A backbone gives the values of the source places, and one map from a mixture of them to the gates
of the decoder's GRU: what is linear behind the mixture is multiplied before the steps.

Widths are options: ``embedding``, ``width`` of the decoder's state, ``value`` between two maps.

Encoder and decoder have the same number of layers. The decoder's first layer reads the token and
the mixture of source places, each further one the state below it. The top layer's state gives
the logits and queries the attender, as in the public code of Ray Chowdhury & Caragea for two
layers. There each layer starts from the top one's last states (their appendix E); with the body of
Dubois et al., who have one layer, from those of the encoder's layer of the same number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_calib.config import RecurrentOptions
from abc_calib.nn.recurrent.attenders.base import Attender, Memory, linear, xavier
from abc_calib.nn.recurrent.gru import draw_closed, run_gru


@dataclass(frozen=True)
class Encoded:
    """A source that is ready: ``memory`` for the attender, values, and first states.

    ``values (b, s, e)`` are what is mixed, and ``maps (3d, e)`` takes a mixture to the gates.
    ``states``, each ``(b, d)``, start the decoder's layers from the lowest to the top; ``query
    (b, d)`` is what the attender sees first.
    """

    memory: Memory
    values: Tensor
    maps: Tensor
    states: tuple[Tensor, ...]
    query: Tensor


def further_cells(options: RecurrentOptions) -> nn.ModuleList:
    """The decoder's layers above the first."""
    d = options.width
    return nn.ModuleList(nn.GRUCell(d, d) for _ in range(options.layers - 1))


def looked_up(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of ``table (n, d)``: ``(..., d)``; its gradient is faster than that of an embedding."""
    return table.index_select(0, ids.flatten()).view(*ids.shape, -1)


class RayChowdhury(nn.Module):
    """Section 4 and appendix B of Ray Chowdhury & Caragea (2023), and their public code."""

    #: source places before the first word
    offset = 1

    def __init__(self, options: RecurrentOptions, vocabulary: int):
        super().__init__()
        self.options = options
        d, e = options.width, options.embedding
        self.embed = nn.Embedding(vocabulary, e)
        self.start = nn.Parameter(torch.zeros(e))
        self.end = nn.Parameter(torch.zeros(e))
        self.encoder = nn.GRU(
            e, d // 2, num_layers=options.layers, bidirectional=True, batch_first=True
        )
        self.dropout = nn.Dropout(options.dropout)
        self.value = linear(d, options.value)
        self.projected = linear(options.value, d, bias=False)
        self.combined = linear(d, d, bias=False)
        self.cell = nn.GRUCell(e + d, d)
        self.further = further_cells(options)
        self.output = linear(d, e)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """What the paper's code draws; the GRUs keep their own defaults."""
        nn.init.kaiming_normal_(self.embed.weight, mode="fan_out")
        for parameter in (self.start, self.end, self.bias):
            nn.init.zeros_(parameter)
        xavier(self.value, self.projected, self.combined, self.output)

    def encode(self, source: Tensor, lengths: Tensor, attender: Attender) -> Encoded:
        """``source (b, s)``: ``$ ... &`` and padding, ``lengths (b,)`` with both."""
        places = torch.arange(source.shape[1], device=source.device)
        words = len(self.embed.weight)
        ids = torch.where(places == lengths[:, None] - 1, words + 1, source)
        ids[:, 0] = words
        table = torch.cat([self.embed.weight, self.start[None], self.end[None]])
        states, final = run_gru(self.encoder, looked_up(table, ids), lengths)
        summary = torch.cat([final[-2], final[-1]], 1)
        states = self.dropout(states)
        memory = Memory(states, lengths, summary)
        turned = attender.turned(states, memory)
        weight = self.cell.weight_ih[:, self.options.embedding :]
        maps = weight @ (self.combined.weight @ self.projected.weight)
        values, first = F.leaky_relu(self.value(turned)), (summary,) * self.options.layers
        return Encoded(memory.with_states(turned), values, maps, first, summary)

    def reads(self) -> Tensor:
        """What each token, just written, gives to the gates: ``(v, 3d)``."""
        weight = self.cell.weight_ih[:, : self.options.embedding]
        return F.linear(self.embed.weight, weight, self.cell.bias_ih)

    def logits(self, states: Tensor) -> Tensor:
        """``(..., d)`` to ``(..., v)``."""
        words = self.embed.weight
        bias = torch.addmv(self.bias, words, self.output.bias)
        return F.linear(states, words @ self.output.weight, bias)


class Dubois(nn.Module):
    """Section 4 and appendix of Dubois et al. (2020), and their public code."""

    offset = 0

    def __init__(self, options: RecurrentOptions, vocabulary: int):
        super().__init__()
        self.options = options
        d, e = options.width, options.embedding
        self.embed = nn.Embedding(vocabulary, e)
        self.embed_target = nn.Embedding(vocabulary, e)
        self.first = nn.Parameter(torch.empty(options.layers, 1, d))
        self.encoder = nn.GRU(e, d, num_layers=options.layers, batch_first=True)
        self.value = linear(d, e)
        self.dropout = nn.Dropout(options.dropout)
        self.cell = nn.GRUCell(2 * e, d)
        self.further = further_cells(options)
        self.output = nn.Linear(d, vocabulary)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """What the paper's code draws: small embeddings and first state, GRUs that start closed."""
        for drawn in (self.embed.weight, self.embed_target.weight, self.first):
            nn.init.uniform_(drawn, -0.05, 0.05)
        xavier(self.value, self.output)
        draw_closed(self.encoder)
        for cell in (self.cell, *self.further):
            draw_closed(cell)

    def encode(self, source: Tensor, lengths: Tensor, attender: Attender) -> Encoded:
        """As in the other backbone; START and END are cut off."""
        lengths = lengths - 2
        source = source[:, 1:-1]
        first = self.first.expand(-1, len(source), -1)
        read = looked_up(self.embed.weight, source)
        states, final = run_gru(self.encoder, read, lengths, first.contiguous())
        memory = Memory(states, lengths, final[-1])
        turned = attender.turned(states, memory)
        values = self.value(turned) + attender.turned(read, memory)
        maps = self.cell.weight_ih[:, : self.options.embedding]
        firsts = self.dropout(final).unbind()
        return Encoded(memory.with_states(turned), values, maps, firsts, final[-1])

    def reads(self) -> Tensor:
        weight = self.cell.weight_ih[:, self.options.embedding :]
        return F.linear(self.embed_target.weight, weight, self.cell.bias_ih)

    def logits(self, states: Tensor) -> Tensor:
        return self.output(states)


BACKBONES: dict[str, type[RayChowdhury] | type[Dubois]] = {
    "ray_chowdhury": RayChowdhury,
    "dubois": Dubois,
}
