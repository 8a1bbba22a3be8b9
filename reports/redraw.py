"""Draw the figures of the reproductions again, from the committed rows: python reports/redraw.py"""

from __future__ import annotations

from pathlib import Path

from abc_calib.reporting.style import save_figures
from abc_calib.reproduction import get_target, load_results, make_report
from abc_calib.reproduction.targets import TARGETS

HERE = Path(__file__).parent


def main() -> None:
    for name in TARGETS:
        if not (HERE / "reproduction" / f"{name}-seeds.csv").is_file():
            continue
        for stem, figure in make_report(get_target(name), load_results(name)).figures.items():
            save_figures(figure, HERE / "reproduction" / stem, ("pdf", "png"))


if __name__ == "__main__":
    main()
