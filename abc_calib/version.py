"""The version, and where the program lies, without importing anything of ours."""

from pathlib import Path

__version__ = "1.0.0"
ROOT = Path(__file__).resolve().parents[1]
"""Where our packages lie, all three of them."""
ZOO = next((p for p in (ROOT / "abc_calib" / "zoo", ROOT / "reports" / "zoo") if p.is_dir()), ROOT)
"""Where the certified models lie that come with the program: in a wheel, or in the checkout."""
