"""Figures 3, 4, 7 and 8 of Duan & Shi from runs of ours, and the README's layer.

for task in successor addition multiplication; do abc prove $task; done
python reports/paper_figures.py runs/certified
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from abc_calib.reporting import heatmap_figures
from abc_calib.reporting.style import save_figures

HERE = Path(__file__).parent / "figures"
LAST = 2
FIGURES: dict[str, tuple[str, dict[str, Any]]] = {
    "paper-figure3": ("addition-seed0-calibrated", {"layer": 1, "block": "bias"}),
    "paper-figure4": ("multiplication-seed0-calibrated", {"layer": 1, "block": "bias"}),
    "paper-figure7": ("successor-seed0-vanilla", {"layer": LAST, "input": "03611451449241919819"}),
    "paper-figure8": ("addition-seed0-vanilla", {"layer": LAST, "input": "078114514+0241919810"}),
    "demo-addition-cross": ("addition-seed0-calibrated", {"layer": 1}),
}
"""The run of each, and what is drawn of its cross-attention."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    root = parser.parse_args().runs
    for name, (run, options) in FIGURES.items():
        (figure,) = heatmap_figures(root / run, sites=("cross",), **options).values()
        save_figures(figure, HERE / name, ("pdf", "png"))


if __name__ == "__main__":
    main()
