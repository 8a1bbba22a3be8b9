"""How the lines of a trained model are found."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import field_validator

from abc_calib.config.options import Options, Word, csv_field, option


class CalibrationOptions(Options):
    """How lines are found. See ``abc_calib.calibration``.

    None is what the fit does by itself: each fit has these options with its own defaults
    (``abc_calib.calibration.fits``).
    """

    group_title: ClassVar[str] = "a calibration"

    fit: Word = option(
        "nnls",
        "nnls (lines from the delimiters), mean (the paper's), or rows (by default of tasks that "
        "write rows).",
    )
    dirs: tuple[Literal["diag", "anti", "vert"], ...] = option(
        ("diag", "anti", "vert"),
        "Directions of lines: diag, anti, vert, with commas between.",
        min_length=1,
    )
    threshold: float | None = option(
        None,
        "nnls: least share of a head's attention on a line, by default of 0.4, 0.3, 0.2 and 0.1 "
        "what carries over to training lengths left out and sees least; mean: k, for lines above "
        "mean + k standard deviations, by default 4; rows: least share of the heaviest line, 0.01.",
        ge=-(10**6),
        le=10**6,
    )
    samples: int = option(2048, "Training samples to read attention from.", ge=1, le=10**7)
    layer: Literal["own", "first", "last"] | None = option(
        None, "Whose attention a layer's lines are from: own, first, last."
    )
    sites: tuple[Literal["encoder", "self", "cross"], ...] = option(
        ("encoder", "self", "cross"),
        "Where to put lines: self, cross, encoder, with commas, or all.",
        min_length=1,
    )
    anchors: Literal["segment", "corner"] | None = option(
        None, "Lines count from a segment's delimiters, or the corner."
    )
    average: Literal["all", "digits"] | None = option(
        None,
        "mean: lines averaged over all cells, or, as in the public code, over those of digits that "
        "are not padding.",
    )
    off_line_bias: float | None = option(
        None, "Added off the lines, such as -5; by default -inf.", lt=0, ge=-(10**8)
    )
    values: Literal["hard", "soft"] | None = option(
        None, "Lines fully open (hard), or as far as attention follows them (soft)."
    )
    empty: Literal["transparent", "sink"] | None = option(
        None, "Heads without lines: transparent, or a sink, which reads nothing new."
    )

    @field_validator("sites", mode="before")
    @classmethod
    def _every_site(cls, words: Any) -> Any:
        return ("encoder", "self", "cross") if words == ("all",) else words

    _several = csv_field("dirs", "sites")  # runs before the validator above
