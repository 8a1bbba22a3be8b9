"""How much a row sees with given lines, before any model is trained with them."""

from __future__ import annotations

import math
from typing import Any

from abc_calib.certification.places import Unbounded
from abc_calib.certification.prove import Undecided, receptive_field
from abc_calib.certification.windows import TooMany
from abc_calib.data import Data
from abc_calib.geometry import LineBias

COUNTED = 500_000
"""Windows that are counted exactly; of more, all that the places could hold."""


def windows_inside(model: Any, data: Data, lines: LineBias) -> float:
    """Windows of a row far from both ends of its number; infinitely many if its field is unbounded.

    Puts the lines into the model.
    """
    model.set_lines(lines)
    try:
        field = receptive_field(model, data)
        case = field.inner
        found = field.enumeration(case, field.atoms(field.layers, case.place, case))
    except TooMany as error:
        return error.estimate
    except (Unbounded, Undecided):
        return math.inf
    try:
        return float(len(found.windows(COUNTED)))
    except TooMany:
        return float(math.prod(found.radix))
