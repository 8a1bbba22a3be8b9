"""What a line reads, in words."""

from __future__ import annotations

from abc_calib.geometry import CORNER, Layout, Line, Site
from abc_calib.geometry.layout import digit_name

ORDER = ("first", "second", "third", "fourth")


def in_words(line: Line, site: Site, layout: Layout) -> str:
    """A sentence without its subject: ``reads the last operand from its last digit on, ...``."""
    if site == "self" and line.segment == 0 and line.direction != "anti":
        return _own_row(line)
    if site == "cross" and line.segment != CORNER:
        return _of_source(line, layout)
    return f"follows {line.label(site)}"


def _own_row(line: Line) -> str:
    """A line over what was written: position ``i`` holds what was written in row ``i - 1``."""
    if line.direction == "vert":
        return f"always reads {'the start' if line.offset <= 0 else f'y{line.offset - 1}'}"
    back = max(0, -line.offset)
    return f"reads {_count(back, 'row')} back" if back else "reads its own row: what it wrote last"


def _of_source(line: Line, layout: Layout) -> str:
    """A line of cross-attention over one part of the source."""
    if line.segment == 0 or line.segment >= len(layout.closes):
        return f"reads {layout.delimiters[0]}, the start of the source"
    part, unit = _part(line.segment, layout), "word" if layout.words else "digit"
    rows = f"; {_count(abs(line.beta), 'column')} further in each row" if line.beta else ""
    rows += "; the next operand in each row" if line.part_step else ""
    if line.direction == "vert" and line.offset <= 0:
        return f"rests on {layout.delimiters[line.segment]}, which closes {part}"
    if line.direction == "vert":
        operands = layout.parts[line.segment - 1].operands
        if layout.words or not operands:
            return f"always reads {unit} {line.offset} from the end of {part}{rows}"
        column, which = divmod(line.offset - 1, len(operands))
        name = digit_name(operands[which], column)
        return f"always reads {name}, {unit} {column} of {part}{rows}"
    first, side = ("last", "left") if line.direction == "anti" else ("first", "right")
    start = f"from its {first} {unit} on"
    if line.offset:
        late = f", {_count(-line.offset, 'row')} late"
        start += f", {line.offset} ahead" if line.offset > 0 else late
    return f"reads {part} {start}, {_count(line.stride, unit)} further {side} each row{rows}"


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
