"""A GRU over rows of unequal length, and how the weights of one are drawn."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


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


def draw_closed(gru: nn.GRU | nn.GRUCell) -> None:
    """Draw the weights of a GRU with closed reset gates, as the code of Dubois et al. (2020) does.

    Gate by gate, Xavier-uniform maps of the input and orthogonal ones of the state; both biases
    of the reset gate are -1, all others stay as PyTorch draws them.
    """
    for name, parameter in gru.named_parameters():
        gates = parameter.chunk(3)
        if "bias" in name:
            nn.init.constant_(gates[0], -1.0)
        else:
            draw = nn.init.orthogonal_ if "hh" in name else nn.init.xavier_uniform_
            for gate in gates:
                draw(gate)
