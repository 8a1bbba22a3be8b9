"""What a line reads, in words."""

from __future__ import annotations

from abc_calib.geometry import CORNER, Layout, Line, Site
from abc_calib.geometry.layout import digit_name

ORDER = ("first", "second", "third", "fourth")


def in_words(line: Line, site: Site, layout: Layout) -> str:
    """A sentence without its subject: ``reads the last operand from its last digit on, ...``."""
    if line.segment == CORNER:
        return _from_corner(line)
    if site == "self":
        return _own_row(line)
    if site == "encoder":
        return _own_token(line, layout)
    return _of_source(line, layout)


def _from_corner(line: Line) -> str:
    """A line of the matrix, as in the paper."""
    shift = f", shifted by {line.offset:+d}" if line.offset else ""
    if line.direction == "vert":
        return f"reads key {line.offset} in every row"
    side = "left" if line.direction == "diag" else "right"
    return f"follows the diagonal from the top {side}{shift}"


def _own_row(line: Line) -> str:
    """A line over what was written: position ``i`` holds what was written in row ``i - 1``."""
    if line.segment:
        return _row_above(line)
    if line.direction == "vert":
        return f"always reads {_written(line.offset)}"
    if line.direction == "anti":
        return "reads what was written, one token further back each row"
    back = max(0, -line.offset)
    if back == 0:
        return "reads its own row: the token written last"
    return f"reads {_count(back, 'row')} back: the token written {back + 1} steps ago"


def _row_above(line: Line) -> str:
    """A line over a row above the query's own."""
    where = "the row above" if line.segment == 1 else f"{line.segment} rows above"
    if line.direction == "vert":
        return f"always reads token {line.offset} of {where}"
    side = f", {_count(abs(line.offset), 'column')} {'on' if line.offset > 0 else 'back'}"
    return f"reads {where} beside its own column{side if line.offset else ''}"


def _written(position: int) -> str:
    return "the start" if position <= 0 else f"the token y{position - 1}"


def _own_token(line: Line, layout: Layout) -> str:
    """A line of the encoder over its source."""
    if line.direction == "vert":
        return f"reads the delimiter that closes {_part(line.segment, layout)}"
    if line.direction == "anti":
        return "reads the source turned around"
    if not line.offset:
        return "reads its own token"
    side = "right" if line.offset > 0 else "left"
    return f"reads {_count(abs(line.offset), 'token')} to the {side}"


def _of_source(line: Line, layout: Layout) -> str:
    """A line of cross-attention over one part of the source."""
    part = _part(line.segment, layout)
    unit = "word" if layout.words else "digit"
    if line.segment == 0 or line.segment >= len(layout.closes):
        return f"reads {layout.delimiters[0]}, the start of the source"
    if line.direction == "vert":
        return _one_key(line, layout, part, unit)
    first = "last" if line.direction == "anti" else "first"
    side = "left" if line.direction == "anti" else "right"
    step = "one" if line.stride == 1 else str(line.stride)
    onwards = f"{step} {unit}{'' if line.stride == 1 else 's'} further {side} each row"
    start = f"from its {first} {unit} on"
    if line.offset > 0:
        start += f", {line.offset} ahead"
    if line.offset < 0:
        start += f", {_count(-line.offset, 'row')} late"
    return f"reads {part} {start}, {onwards}{_moves(line)}"


def _one_key(line: Line, layout: Layout, part: str, unit: str) -> str:
    if line.offset <= 0:
        return f"rests on {layout.delimiters[line.segment]}, which closes {part}"
    operands = layout.parts[line.segment - 1].operands
    if layout.words or not operands:
        return f"always reads {unit} {line.offset} from the end of {part}"
    column, which = divmod(line.offset - 1, len(operands))
    if line.beta or line.part_step:
        return f"reads {digit_name(operands[which], column)} in the first row{_moves(line)}"
    return f"always reads {digit_name(operands[which], column)}, {unit} {column} of {part}"


def _moves(line: Line) -> str:
    """How it goes on from one row of an output to the next."""
    said = f"; {_count(abs(line.beta), 'column')} further in each row of the output"
    part = "; the next operand in each row of the output"
    return (said if line.beta else "") + (part if line.part_step else "")


def _part(number: int, layout: Layout) -> str:
    """``the last operand``, for part ``number`` of a source."""
    operands = layout.parts[number - 1].operands if 0 < number <= len(layout.parts) else ()
    if len(layout.widths) == 1 or not operands:
        return "the source"
    if len(operands) > 1:
        return "the columns of digits"
    if operands[0] == len(layout.widths) - 1:
        return "the last operand"
    return f"the {ORDER[operands[0]]} operand" if operands[0] < len(ORDER) else "an operand"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
