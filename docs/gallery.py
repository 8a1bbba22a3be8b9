"""The gallery: pages of ``abc report``, and pictures of them where a Chromium is there.

python docs/gallery.py runs/certified [NAME ...]

The folder holds the two runs of ``abc prove addition --out runs/certified``. Names: of some of the
pages, as below.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import abc_calib as abc
from abc_calib.reporting.page import write_page
from abc_calib.runs import Run

ROOT = Path(__file__).parents[1]
PAGES = {
    "addition": ("addition-seed0-calibrated", "addition-seed0-vanilla"),
    "multiplication": ("zoo:multiplication",),
    "parity": ("zoo:parity",),
    "long_multiplication": ("zoo:product",),
}
SHOTS = {
    "addition": (1280, 1000, False),
    "multiplication": (1280, 1000, True),
    "parity": (390, 844, False),
    "long_multiplication": (1280, 1000, False),
}
"""The size of each picture, and whether it is dark."""
READY = "(v => !v || /[✓✗]/.test(v.textContent))(document.querySelector('.verdict'))"
"""A page without a model that runs has no verdict."""


def main() -> None:
    """Write the pages, then the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PAGES))
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gallery")
    asked = parser.parse_args()
    if unknown := {*asked.names} - {*PAGES}:
        parser.error(f"{min(unknown)!r} is not a page: choose from {', '.join(PAGES)}")
    chosen = asked.names or list(PAGES)
    for name in chosen:
        runs = PAGES[name]
        path = asked.out / f"{name}.html"
        opened = [Run.open(run if run.startswith("zoo:") else asked.runs / run) for run in runs]
        for run in opened:
            if not (run.path / "eval.csv").is_file():
                abc.evaluate(run, samples=100)
        write_page(opened, path)
        print(path)
    sys.path.insert(0, str(ROOT / "tests"))
    import browser

    if browser.find() is None:
        print("no Chromium, no pictures: apt-get install chromium")
        return
    folder = Path(__file__).parent / "gallery"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, browser.started(Path(profile)) as chromium:
        for name in chosen:
            width, height, dark = SHOTS[name]
            chromium.open(asked.out / f"{name}.html", width, height, dark)
            chromium.until(READY)
            chromium.shot(folder / f"{name}.png", whole=False)
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
