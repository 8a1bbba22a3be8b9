"""A fit: how lines are found in attention: explained in CONTRIBUTING.md, executed by a test."""

from typing import Literal

from abc_calib.calibration.fits import FITS, Fit
from abc_calib.calibration.fits.mean import segment_means
from abc_calib.calibration.fits.nnls import candidates
from abc_calib.config import CalibrationOptions
from abc_calib.geometry import LineBias


class LoudestOptions(CalibrationOptions):
    """A calibration by this fit: one line a head, heads without one closed onto a delimiter."""

    layer: Literal["own", "first", "last"] = "own"
    anchors: Literal["segment"] = "segment"
    values: Literal["hard"] = "hard"
    empty: Literal["transparent", "sink"] = "sink"


class Loudest(Fit):
    """Each head follows the line along which its averaged attention is largest."""

    options_type = LoudestOptions
    thresholds = (0.5, 0.2)

    def __init__(self, evidence, options):
        super().__init__(evidence, options)
        self.looked = self.means = {}
        for site in options.sites:
            layers = evidence.averaged.get(site, ())
            lines = candidates(site, options.dirs, evidence.parts, evidence.length)
            self.means[site] = [
                segment_means(layers[k], lines, evidence.views[site])
                for k in self.origins(len(layers))
            ]

    def bias(self, threshold):
        def kept(site, means):
            line = max(means, key=means.get)
            line = line if means[line] >= threshold else self.sinks[site]
            return (line,) if line else ()

        sites = {
            site: tuple(tuple(kept(site, means) for means in heads) for heads in layers)
            for site, layers in self.means.items()
            if layers
        }
        return LineBias(sites, self.options.off_line_bias)

    def share(self, site, layer, head, line):
        return self.means[site][layer][head].get(line, 0.0), ""


FITS["loudest"] = Loudest
