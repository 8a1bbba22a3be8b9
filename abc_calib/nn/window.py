"""Windowed attention: a bias that is made by hand, along the lines that an answer is read along.

Paper, appendix A.4 (figure 10 and footnote 9). Like a calibrated bias it is a ``LineBias``:

* In decoder self-attention a row sees itself and the ``w`` rows before it.
* In cross-attention it sees ``w`` keys to both sides of a slanted line. With one operand the
  line goes on by one key a row and starts on EOS, the corner of the matrix, so that row 0 has the
  last digit beside it: a row sees its own digit and those of the rows before, none of a later row.
  (Without positions it could not tell a later digit from its own, and the paper's windows work
  without positions.) Where the digits of ``k`` operands stand in columns, the line goes on by
  ``k`` keys and runs through the middle of the row's column: between two digits with ``w = 1``,
  it has one of them on each side. However small ``w`` is, a column is never cut.
* In the encoder a token sees ``w`` tokens to both sides.

Lines are counted from EOS, so one window serves sources of any length; past the digits it stays
on the delimiter that opens them.
"""

from __future__ import annotations

from abc_calib.config import ModelOptions
from abc_calib.data.digits import Data, Source
from abc_calib.errors import UsageError
from abc_calib.geometry.lines import Heads, Line, LineBias, Site


def check_window(window: int | None, source: Data) -> None:
    """Raise ``UsageError`` for a window on operands that stand one after another, or on words."""
    if window is None:
        return
    if not isinstance(source, Source):
        raise UsageError(
            f"window = {window}: a window follows an answer that is read from the last digit, and "
            f"{source.task.name} has none; leave it out"
        )
    if source.segments > 1 and not source.layout.aligned:
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
    if column == 1:  # offset -1 is EOS in row 0
        offsets = range(-1 - window, window)
    else:  # offsets 0 to column - 1 are the row's column
        more = max(window - column // 2, 0)
        offsets = range(-more, column + more)
    return tuple(Line("anti", segment, offset, step=column) for offset in offsets)


def window_bias(options: ModelOptions, source: Data) -> LineBias:
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
