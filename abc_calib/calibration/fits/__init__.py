"""The fits, one per file: from attention to lines and their weights."""

from __future__ import annotations

from abc_calib.calibration.fits.base import Evidence, Fit, LineRow
from abc_calib.calibration.fits.mean import Mean
from abc_calib.calibration.fits.nnls import Nnls
from abc_calib.calibration.fits.rows import Rows
from abc_calib.errors import UsageError

__all__ = ["FITS", "Evidence", "Fit", "LineRow", "fit_type"]

FITS: dict[str, type[Fit]] = {
    "nnls": Nnls,
    "mean": Mean,
    "rows": Rows,
}
"""By the name that ``--fit`` takes."""


def fit_type(name: str) -> type[Fit]:
    """The fit of that name; ``UsageError`` names the known ones."""
    if name not in FITS:
        raise UsageError(f"unknown fit {name!r}: choose one of {', '.join(FITS)}")
    return FITS[name]
