"""The look of every figure, and how figures are written: the same bytes for the same data."""

from __future__ import annotations

import io
import logging
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from abc_calib.files import make_folder, write_atomically

COLUMN_WIDTH, TEXT_WIDTH = 3.25, 6.75
"""Widths of a paper's column and of its text, in inches."""
TITLE_SIZE, LABEL_SIZE, SMALL = 9.0, 8.0, 7.0
"""Font sizes in points."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers tell apart; darkest first."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

FONTS: dict[str, list[str]] = {
    "serif": ["STIXGeneral", "DejaVu Sans"],
    "sans": ["DejaVu Sans"],
    "latex": ["cmr10", "STIXGeneral", "DejaVu Sans"],
}
"""Families by name; all of them come with matplotlib. The next one has what the first lacks."""
TICK = {"labelsize": SMALL, "major.width": 0.5, "major.size": 2, "major.pad": 2}
STYLE: Any = {
    "font.sans-serif": FONTS["serif"],  # what is used outside of ``font``
    "font.size": LABEL_SIZE,
    "text.parse_math": False,  # a lone $ is the token that opens a source
    "mathtext.fontset": "stix",
    "axes.titlesize": TITLE_SIZE,
    "axes.titlelocation": "left",
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "figure.titlesize": TITLE_SIZE,
    "axes.axisbelow": True,
    "axes.linewidth": 0.5,
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in TICK.items()},
    "pdf.fonttype": 42,  # fonts embedded as TrueType
    "svg.fonttype": "path",
    "svg.hashsalt": "abc-calib",
    "savefig.dpi": 300,
    "savefig.bbox": None,
    "path.simplify": False,
}
FORMATS: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}
"""What can be written, and the metadata that must not be."""


@contextmanager
def font(name: str) -> Iterator[None]:
    """Use this font of ``FONTS`` in figures that are made and written meanwhile."""
    with matplotlib.rc_context({"font.family": FONTS[name]}):
        yield


@contextmanager
def _style() -> Iterator[None]:
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cmr10 font")  # its minus is the next family's
        yield


styled = _style()
"""Decorates a function that makes or writes figures; the user's own settings stay."""


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure, ``width`` by ``height`` inches, tied to no window and no global state.

    Its parts find their room by themselves (matplotlib's constrained layout).
    """
    figure = Figure((width, height), layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes) -> None:
    """Draw horizontal grid lines, and no frame above and at the right."""
    axes.grid(axis="y", color="0.9", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def wrapped(text: str, inches: float, size: float = SMALL) -> str:
    """Break ``text`` into lines that are about ``inches`` wide at most."""
    return textwrap.fill(text, max(8, int(inches * 72 / (0.52 * size))), break_long_words=False)


@styled
def as_svg(figure: Figure) -> str:
    """Return a figure as an element of HTML, its text as text."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the reader's own fonts have more of them
        figure.savefig(file, format="svg", metadata=FORMATS["svg"])
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r"(\.\d\d)\d+", r"\1", re.sub(r"\s*\n\s*", " ", text))  # half as large


@styled
def save_figures(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    """Write ``figure`` as ``stem`` with the suffix of each format, atomically; return the files.

    Drawn again from the same data, a file has the same bytes.
    """
    make_folder(stem.parent, stem)
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it remarks on dates in cmr10
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        save = partial(figure.savefig, format=kind, metadata=FORMATS[kind])
        write_atomically(path, save)
    return paths
