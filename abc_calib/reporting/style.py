"""The look of every figure, and how figures are written: the same bytes for the same data."""

from __future__ import annotations

import functools
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from abc_calib.files import make_folder, write_atomically

F = TypeVar("F", bound=Callable[..., Any])

COLUMN_WIDTH = 3.25
TEXT_WIDTH = 6.75
"""Widths of a paper's column and of its text, in inches."""

TITLE_SIZE, LABEL_SIZE, TICK_SIZE, SMALL = 9.0, 8.0, 7.0, 7.0
"""Font sizes in points."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers tell apart; darkest first."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

CLOSED = "#262626"
"""Cells that a row may not look at: neutral, and darker than any value."""
OPEN = "#E4E4E4"
"""Cells of a transparent head."""

FONTS: dict[str, list[str]] = {
    "serif": ["STIXGeneral", "DejaVu Sans"],
    "sans": ["DejaVu Sans"],
    "latex": ["cmr10", "STIXGeneral", "DejaVu Sans"],
}
"""Families by name; all of them come with matplotlib. The next one has what the first lacks."""

STYLE: Any = {
    "font.family": FONTS["serif"],
    "font.size": LABEL_SIZE,
    "text.parse_math": False,  # a lone $ is the token that opens a source
    "mathtext.fontset": "stix",
    "axes.titlesize": TITLE_SIZE,
    "axes.titlelocation": "left",
    "axes.labelsize": LABEL_SIZE,
    "xtick.labelsize": TICK_SIZE,
    "ytick.labelsize": TICK_SIZE,
    "legend.fontsize": TICK_SIZE,
    "legend.frameon": False,
    "figure.titlesize": TITLE_SIZE,
    "axes.axisbelow": True,
    "axes.linewidth": 0.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "pdf.fonttype": 42,  # fonts embedded as TrueType
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "abc-calib",
    "savefig.dpi": 300,
    "savefig.bbox": None,
    "path.simplify": False,
}

_font: ContextVar[str] = ContextVar("font", default="serif")


@contextmanager
def font(name: str) -> Iterator[None]:
    """Figures that are made and written meanwhile have this font of ``FONTS``."""
    token = _font.set(name)
    try:
        yield
    finally:
        _font.reset(token)


def styled(function: F) -> F:
    """Decorates functions that make or write figures; the user's own settings stay as they are."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        name = _font.get()
        fonts: Any = {"font.family": FONTS[name], "axes.formatter.use_mathtext": name == "latex"}
        with matplotlib.rc_context({**STYLE, **fonts}):
            return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


FORMATS: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}
"""What can be written, and the metadata that must not be."""


def value_colours() -> Colormap:
    """Viridis without its dark end, so that low values differ from closed (masked) cells."""
    upper = matplotlib.colormaps["viridis"].resampled(256)(range(70, 256))
    colours = LinearSegmentedColormap.from_list("upper viridis", upper)
    return colours.with_extremes(bad=CLOSED)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches, tied to no window and to no global state.

    Its parts find their room by themselves (matplotlib's constrained layout).
    """
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes) -> None:
    """The look of axes with curves: horizontal grid lines, and no frame above and at the right."""
    axes.grid(axis="y", color="0.9", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def wrapped(text: str, inches: float, size: float = SMALL) -> str:
    """``text`` in lines that are about so wide at most."""
    return textwrap.fill(text, max(8, int(inches * 72 / (0.52 * size))), break_long_words=False)


@styled
def as_svg(figure: Figure) -> str:
    """A figure as an element of HTML, its text as text."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the reader's own fonts have more of them
        figure.savefig(file, format="svg", metadata=FORMATS["svg"])
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r"(\.\d\d)\d+", r"\1", re.sub(r"\s*\n\s*", " ", text))  # half as large


@styled
def save_figures(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    """Write ``figure`` as ``stem`` with the suffix of each format, atomically; gives the files.

    Drawn again from the same data, a file has the same bytes.
    """
    make_folder(stem.parent)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        save = partial(figure.savefig, format=kind, metadata=FORMATS[kind])
        write_atomically(path, save)
    return paths
