"""The two recurrent backbones: what is around an attender in each line of papers.

``ray_chowdhury``: Ray Chowdhury & Caragea (2023). One embedding for source, target and output;
the source between a learned START and END; a bidirectional GRU whose two last states start the
decoder; values transformed twice.

``dubois``: Dubois et al. (2020). Embeddings of their own on both sides; a one-directional GRU
with a learned first state; values with the embeddings as residual; dropout on the state that
starts the decoder, and nowhere else.

A backbone gives the values of the source places; what is linear behind a mixture is applied before.

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
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from abc_calib.config import RecurrentOptions
from abc_calib.nn.recurrent.attenders.base import Attender, Memory, draw_closed, linear, xavier


@dataclass(frozen=True)
class Encoded:
    """A source that is ready: ``memory`` for the attender, values, and first states.

    ``values (b, s, e)`` are what is mixed. ``states``, each ``(b, d)``, start the decoder's layers
    from the lowest to the top; ``query (b, d)`` is what the attender sees first.
    """

    memory: Memory
    values: Tensor
    states: tuple[Tensor, ...]
    query: Tensor


def run_gru(
    gru: nn.GRU, x: Tensor, lengths: Tensor, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """States ``(b, s, k d)`` and last states ``(layers k, b, d)`` for rows ``x (b, s, e)``.

    ``k`` is 2 for a bidirectional GRU: forwards, then backwards, each row from its own end.
    ``first``: as the last states. States behind a row's length are 0.
    """
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, final = gru(packed, first)
    return pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0], final


class Backbone(nn.Module):
    """What both have: the decoder's cells."""

    def __init__(self, options: RecurrentOptions):
        super().__init__()
        self.options = options

    def draw_cells(self, read: int) -> None:
        """The first of which has an input of the width ``read``."""
        d = self.options.width
        self.cell = nn.GRUCell(read, d)
        self.further = nn.ModuleList(nn.GRUCell(d, d) for _ in range(self.options.layers - 1))

    def step(self, read: Tensor, states: list[Tensor]) -> None:
        """The next states, from the lowest to the top, in their place."""
        for i, cell in enumerate((self.cell, *self.further)):
            read = states[i] = cell(read, states[i])


class RayChowdhury(Backbone):
    """Section 4 and appendix B of Ray Chowdhury & Caragea (2023), and their public code."""

    #: source places before the first word
    offset = 1

    def __init__(self, options: RecurrentOptions, vocabulary: int):
        super().__init__(options)
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
        self.draw_cells(e + d)
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
        is_end = (places == lengths[:, None] - 1)[:, :, None]
        read = torch.where((places == 0)[:, None], self.start, self.embed(source))
        read = torch.where(is_end, self.end, read)
        states, final = run_gru(self.encoder, read, lengths)
        summary = torch.cat([final[-2], final[-1]], 1)
        states = self.dropout(states)
        memory = Memory(states, lengths, summary)
        turned = attender.turned(states, memory)
        values = self.combined(self.projected(F.leaky_relu(self.value(turned))))
        first = (summary,) * self.options.layers
        return Encoded(memory.with_states(turned), values, first, summary)

    def token(self, ids: Tensor) -> Tensor:
        """What was just written, ``(..., e)``."""
        return self.embed(ids)

    def read(self, token: Tensor, mixed: Tensor) -> Tensor:
        """What a step reads: a token and a mixture of values."""
        return torch.cat([token, mixed], 1)

    def logits(self, states: Tensor) -> Tensor:
        """``(..., d)`` to ``(..., v)``."""
        return F.linear(self.output(states), self.embed.weight, self.bias)


class Dubois(Backbone):
    """Section 4 and appendix of Dubois et al. (2020), and their public code."""

    offset = 0

    def __init__(self, options: RecurrentOptions, vocabulary: int):
        super().__init__(options)
        d, e = options.width, options.embedding
        self.embed = nn.Embedding(vocabulary, e)
        self.embed_target = nn.Embedding(vocabulary, e)
        self.first = nn.Parameter(torch.empty(options.layers, 1, d))
        self.encoder = nn.GRU(e, d, num_layers=options.layers, batch_first=True)
        self.value = linear(d, e)
        self.dropout = nn.Dropout(options.dropout)
        self.draw_cells(2 * e)
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
        read = self.embed(source)
        states, final = run_gru(self.encoder, read, lengths, first.contiguous())
        memory = Memory(states, lengths, final[-1])
        turned = attender.turned(states, memory)
        values = self.value(turned) + attender.turned(read, memory)
        firsts = self.dropout(final).unbind()
        return Encoded(memory.with_states(turned), values, firsts, final[-1])

    def token(self, ids: Tensor) -> Tensor:
        return self.embed_target(ids)

    def read(self, token: Tensor, mixed: Tensor) -> Tensor:
        return torch.cat([mixed, token], 1)

    def logits(self, states: Tensor) -> Tensor:
        return self.output(states)


BACKBONES: dict[str, type[RayChowdhury] | type[Dubois]] = {
    "ray_chowdhury": RayChowdhury,
    "dubois": Dubois,
}
