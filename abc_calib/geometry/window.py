"""Windowed attention: a bias that is made by hand, along the line that an answer is read along.

Paper, appendix A.4 (figure 10 and footnote 9). Like a calibrated bias it is a ``LineBias``:

* In decoder self-attention a row sees itself and the ``w`` rows before it.
* In cross-attention it sees ``w`` keys to both sides of a slanted line. With one operand the
  line goes on by one key a row and starts on EOS, the corner of the matrix, so that row 0 has the
  last digit next to it: a row sees its own digit and those of the rows before, none of a later row.
  (Without positions it could not tell a later digit from its own, and the paper's windows work
  without positions.) Where the digits of ``k`` operands stand in columns, the line goes on by
  ``k`` keys and runs through the middle of the row's column: between two digits with ``w = 1``,
  it has one of them on each side. However small ``w`` is, a column is never cut.
* In the encoder a token sees ``w`` tokens to both sides.

Lines are counted from EOS, so one window serves sources of any length; past the digits it stays
on the delimiter that opens them.
"""

from __future__ import annotations

from abc_calib.geometry.bias import LineBias
from abc_calib.geometry.lines import Heads, Line, Site


def window_lines(site: Site, window: int, segment: int, stride: int) -> tuple[Line, ...]:
    """The lines of every head of a site: see the module.

    ``segment`` is the part of the source with the digits, ``stride`` the keys of a column.
    """
    if site == "self":
        return tuple(Line("diag", 0, -back) for back in range(window + 1))
    if site == "encoder":
        return tuple(Line("diag", 0, offset) for offset in range(-window, window + 1))
    if stride == 1:  # offset -1 is EOS in row 0
        offsets = range(-1 - window, window)
    else:  # offsets 0 to stride - 1 are the row's column
        reach = max(window - stride // 2, 0)
        offsets = range(-reach, stride + reach)
    return tuple(Line("anti", segment, offset, stride=stride) for offset in offsets)


def window_bias(
    window: int, layers: dict[Site, int], heads: int, segment: int, stride: int
) -> LineBias:
    """The window for a model with these numbers of layers, alike in all heads and layers."""
    sites: dict[Site, tuple[Heads, ...]] = {
        site: ((window_lines(site, window, segment, stride),) * heads,) * count
        for site, count in layers.items()
        if count
    }
    return LineBias(sites)
