"""Check a certified model with numpy alone: ``python reports/zoo/check.py addition``.

It reads the files of the model's folder here, and runs ``abc_calib/proof/check.py``, which shares
no code with the rest of the program. No other module of the program is imported.
"""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
CHECKER = HERE.parents[1] / "abc_calib" / "proof" / "check.py"
FILES = {
    "model.safetensors": "model/model.safetensors",
    "model_config.json": "model/config.json",
    "generation_config.json": "model/generation_config.json",
    **{f"{name}.json": f"{name}.json" for name in ("config", "certificate", "lines", "rule")},
}
"""What the checker calls them, and where they are in a run."""


def main() -> None:
    names = sorted(path.parent.name for path in HERE.glob("*/certificate.json"))
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        sys.exit(f"usage: python {sys.argv[0]} NAME, one of {', '.join(names)}")
    with TemporaryDirectory() as folder:
        for name, place in FILES.items():
            shutil.copyfile(HERE / sys.argv[1] / place, Path(folder) / name)
        print(runpy.run_path(str(CHECKER))["check"](Path(folder)))


if __name__ == "__main__":
    main()
