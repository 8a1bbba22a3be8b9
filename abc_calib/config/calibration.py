"""How the lines of a trained model are found."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from abc_calib.config.options import Options, Word, by_site, csv_field, option

Direction = Literal["diag", "anti", "vert"]
Site = Literal["encoder", "self", "cross"]
Directions = Annotated[tuple[Direction, ...], Field(min_length=1)]
Threshold = Annotated[float, Field(ge=-(10**6), le=10**6)]


class CalibrationOptions(Options):
    """How lines are found. See ``abc_calib.calibration``.

    None: as the fit does by itself (``abc_calib.calibration.fits``).
    """

    group_title: ClassVar[str] = "a calibration"
    removed: ClassVar[tuple[str, ...]] = ("anchors", "values", "empty")

    fit: Word = option(
        "nnls",
        "nnls (lines from the delimiters), mean (the paper's), or rows (by default of tasks that "
        "write rows).",
    )
    dirs: Directions | dict[Site, Directions] = option(
        ("diag", "anti", "vert"),
        "Directions of lines: diag, anti, vert, with commas between; or by site, as in "
        "cross=anti+vert,self=diag.",
    )
    threshold: Threshold | dict[Site, Threshold] | None = option(
        None,
        "nnls: least share of a head's attention on a line, by default of 0.4, 0.3, 0.2 and 0.1 "
        "the set that works on longer lengths and reads fewest tokens; mean: k, for lines above "
        "mean + k standard deviations, by default 4, or by site, as in cross=4.5,self=0.87; rows: "
        "least share of the heaviest line, 0.01.",
    )
    samples: int = option(2048, "Training samples to read attention from.", ge=1, le=10**7)
    layer: Literal["own", "first", "last"] | None = option(
        None, "Whose attention a layer's lines are from: own, first, last."
    )
    sites: tuple[Site, ...] = option(
        ("encoder", "self", "cross"),
        "Where to put lines: self, cross, encoder, with commas, or all.",
        min_length=1,
    )
    average: Literal["all", "sum"] | None = option(
        None,
        "mean: lines averaged over all cells (all); or, as in the public code, summed over the "
        "first rows of the output, as many as the training length (sum).",
    )
    attention: Literal["weights", "raw"] | None = option(
        None, "mean: weights, or, as in the paper's text, the scores before softmax (raw)."
    )
    off_line_bias: float | None = option(
        None, "Added off the lines, such as -5; by default -inf.", lt=0, ge=-(10**8)
    )

    def dirs_at(self, site: Site) -> tuple[Direction, ...]:
        """The directions of lines at a site; none where others are named."""
        return self.dirs.get(site, ()) if isinstance(self.dirs, dict) else self.dirs

    @field_validator("sites", mode="before")
    @classmethod
    def _every_site(cls, words: Any) -> Any:
        return ("encoder", "self", "cross") if words == ("all",) else words

    _several = csv_field("dirs", "sites")  # runs before the validator above
    _thresholds = by_site("threshold")
    _directions = by_site("dirs", each=lambda words: tuple(words.split("+")))
