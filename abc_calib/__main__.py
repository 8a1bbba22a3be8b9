"""Run the command ``abc``: ``python -m abc_calib``."""

from cli.main import app

app()
