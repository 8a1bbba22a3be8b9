"""A fit: how lines are found in attention: explained in CONTRIBUTING.md, executed by a test."""

from abc_calib.calibration.fits import FITS, Fit
from abc_calib.calibration.fits.nnls import candidates, fit


class Loudest(Fit):
    """Each head follows the line that explains most of its attention."""

    thresholds = (0.5, 0.2)

    def __init__(self, evidence, options):
        super().__init__(evidence, options)
        size = evidence.parts, evidence.length
        lines = {site: candidates(site, options.dirs_at(site), *size) for site in options.sites}
        self.weights = fit(evidence.captured(), lines)  # (layers, heads, lines) by site
        self.looked = self.lines = lines

    def bias(self, threshold):
        def kept(site, weights):
            best = weights.argmax()
            return (self.lines[site][best],) if weights[best] >= threshold else self.sink(site)

        return self.bias_of(
            {
                site: tuple(tuple(kept(site, head) for head in layer) for layer in layers)
                for site, layers in self.weights.items()
            }
        )

    def share(self, site, layer, head, line):
        lines, weights = self.lines[site], self.weights[site][layer, head]
        return float(weights[lines.index(line)]) if line in lines else 0.0, ""


FITS["loudest"] = Loudest
