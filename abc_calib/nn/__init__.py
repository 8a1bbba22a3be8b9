"""Models: plain torch behind one contract, ``abc_calib.nn.base.Model``."""
