"""Data: problems as token ids, and where every token stands."""

from __future__ import annotations

from abc_calib.config import TrainOptions
from abc_calib.data.base import Batch, Data
from abc_calib.data.digits import DigitData, RowData
from abc_calib.data.pairs import PairData
from abc_calib.data.tokens import RowWordData, TokenData
from abc_calib.errors import UsageError
from tasks import Task

DATA: dict[str, type[Data]] = {
    "digits": DigitData,
    "rows": RowData,
    "tokens": TokenData,
    "row words": RowWordData,
    "pairs": PairData,
}
"""By the ``notation`` of a task."""


def make_data(task: Task, options: TrainOptions) -> Data:
    """The data of a task, as ``options`` draw it; ``UsageError`` for what it cannot have."""
    notation = getattr(task, "notation", None)
    if notation not in DATA:
        raise UsageError(
            f"the task {task.name} has the notation {notation!r}: choose {' or '.join(DATA)}"
        )
    return DATA[notation](task, options)
