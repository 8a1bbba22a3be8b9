"""Windowed attention: a bias that is made by hand, along the lines that an answer is read along.

Paper, appendix A.4 (figure 10 and footnote 9). Like a calibrated bias it is a ``LineBias``:

* In decoder self-attention a row sees itself and the ``w`` rows before it.
* In cross-attention it sees a window around a slanted line, and ``w`` keys to both sides of it.
  The line starts where the source ends, at EOS, so that row 0 has EOS on the line and the digit
  that it needs beside it; a window shows a row the digits that it needs and those of the rows
  before, never one that belongs to a later row. (Without positions a row could not tell a later
  digit from its own, and the paper's windows work without positions.)
* With one operand the line goes on by one key a row. Where the digits of ``k`` operands are
  interleaved, a column has ``k`` keys: the line goes on by ``k`` and is ``k`` wide.
* In the encoder a token sees ``w`` tokens to both sides.

Lines are counted from EOS, so one window serves sources of any length; past the digits it stays
on the delimiter that opens them.
"""

from __future__ import annotations

from abc_calib.calibration.lines import Heads, Line, LineBias, Site
from abc_calib.config import ModelOptions
from abc_calib.data import Source
from abc_calib.errors import UsageError


def check_window(window: int | None, source: Source) -> None:
    """Raise ``UsageError`` for a window on operands that stand one after another."""
    if window is not None and source.segments > 1 and not source.layout.aligned:
        raise UsageError(
            f"window = {window} on {source.task.name} in format {source.layout.text}: a window "
            "follows one line, and the operands stand one after another; choose the format "
            "aligned, which interleaves their digits"
        )


def window_lines(site: Site, window: int, segment: int, column: int) -> tuple[Line, ...]:
    """The lines of every head of a site: see the module.

    ``segment`` is the part of the source with the digits, ``column`` the keys of a column.
    """
    if site == "self":
        return tuple(Line("diag", 0, -back) for back in range(window + 1))
    if site == "encoder":
        return tuple(Line("diag", 0, offset) for offset in range(-window, window + 1))
    # offset -1 is the delimiter that closes the segment, in row 0
    first, last = -1 - window, column - 2 + window
    return tuple(Line("anti", segment, o, step=column) for o in range(first, last + 1))


def window_bias(options: ModelOptions, source: Source) -> LineBias:
    """The window of ``options`` for a model that reads ``source``, alike in all heads and layers.

    Raises ``UsageError`` where the source's operands stand one after another.
    """
    check_window(options.window, source)
    assert options.window is not None, "the options name no window"
    layers: dict[Site, int] = {
        "encoder": options.encoder_layers,
        "self": options.decoder_layers,
        "cross": options.decoder_layers,
    }
    sites: dict[Site, tuple[Heads, ...]] = {}
    for site, count in layers.items():
        lines = window_lines(site, options.window, source.segments, source.column)
        if count:
            sites[site] = ((lines,) * options.heads,) * count
    return LineBias(sites)
