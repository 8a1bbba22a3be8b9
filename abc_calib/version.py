"""The version, and where the program lies, without importing anything of ours."""

from pathlib import Path

__version__ = "1.0.0"
ROOT = Path(__file__).resolve().parents[1]
"""Where our packages lie, all three of them."""
