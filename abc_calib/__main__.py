"""``python -m abc_calib`` is the command ``abc``."""

from abc_calib.launch import main

main()
