"""Make the documentation as a site that needs no network: ``python docs/make_site.py FOLDER``.

Pages keep their places (README, docs, reports), so that links hold in the checkout and in the site;
mkdocs refuses a link to what is not there.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
PARTS = ("*.md", "*.cff", "LICENSE", "*.txt", "docs", "reports", "tasks")
SHOWN = {".md", ".cff", ".png", ".svg", ".csv", ".toml", ".py", ".ipynb", ".json", ".txt", ""}
"""Ends of the names of pages and of what they link to."""
START = {
    "All pages by purpose": "index",
    "Quickstart": "quickstart",
    "Why it works": "concept",
    "FAQ": "faq",
    "Limitations": "limitations",
    "Comparison": "comparison",
}
GUIDES = {
    "Certificates": "certificates",
    "Your own task": "own-task",
    "Rules of your own": "rules",
    "Outputs of several rows": "rows",
    "Your own model": "foreign-models",
    "Attention from any other tool": "any-module",
    "Models, schemes and tables": "models",
    "Figures, tables, JSON": "figures",
    "Sweeps, clusters, trackers": "clusters",
}
REFERENCE = {
    "API and options": "api",
    "Glossary": "glossary",
    "Architecture": "architecture",
    "Different from the paper": "paper",
}


def navigation() -> list[dict[str, Any]]:
    """The menu."""

    def pages(named: dict[str, str]) -> list[dict[str, str]]:
        return [{title: f"docs/{name}.md"} for title, name in named.items()]

    return [
        {"README": "README.md"},
        {"Start": pages(START)},
        {"Guides": pages(GUIDES)},
        {"Reference": pages(REFERENCE)},
        {"Project": [{name.title(): f"{name}.md"} for name in ("CONTRIBUTING", "CHANGELOG")]},
    ]


def copied(folder: Path) -> Path:
    """A copy of all pages, and of the files next to them."""
    files = [file for part in PARTS for one in ROOT.glob(part) for file in (one, *one.rglob("*"))]
    for file in files:
        if file.is_file() and file.suffix in SHOWN and "__pycache__" not in file.parts:
            there = folder / file.relative_to(ROOT)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, there)
    return folder


def make(site: Path) -> None:
    """Write the site; ``mkdocs.exceptions.Abort`` where a link leads nowhere."""
    with TemporaryDirectory() as made:
        settings = Path(made) / "mkdocs.yml"
        settings.write_text("site_name: abc-calib\n")
        config = load_config(
            str(settings),
            docs_dir=str(copied(Path(made) / "pages")),
            site_dir=str(site),
            theme={"name": "readthedocs", "highlightjs": False},
            use_directory_urls=False,
            strict=True,
            nav=navigation(),
            plugins=[],  # the search of mkdocs needs a server
            markdown_extensions=["tables", "fenced_code", "toc"],
            validation={"nav": {"omitted_files": "ignore"}, "links": {"anchors": "warn"}},
        )
        build(config)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
