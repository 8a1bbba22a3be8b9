"""Templates of the page, filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from matplotlib.figure import Figure

from abc_calib.reporting.style import as_svg
from abc_calib.text import Table
from abc_calib.version import __version__

STATIC = files("abc_calib.reporting.page") / "static"


def text_of(name: str) -> str:
    """A file of the page: the template, the style sheet or a script."""
    return (STATIC / name).read_text("utf-8")


def filled(template: str, **values: Any) -> str:
    """A template with values, which are escaped, and the style sheet."""
    from jinja2 import Environment, FunctionLoader

    loader = FunctionLoader(text_of)
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made = environment.get_template(template)
    return made.render(version=__version__, style=text_of("style.css"), **values)


def tables_page(
    title: str, tables: Sequence[Table], figures: Mapping[str, Figure], notes: Sequence[str]
) -> str:
    """One HTML file of tables, figures by name, and notes below."""
    images = {name: as_svg(figure) for name, figure in figures.items()}
    return filled("tables.html", title=title, tables=tables, figures=images, notes=notes)
