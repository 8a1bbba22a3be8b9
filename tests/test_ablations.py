"""Every option of a calibration changes what it says that it changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import VANILLA, view_of

from abc_calib.calibration.fits import nnls
from abc_calib.calibration.fits.base import sinks
from abc_calib.calibration.fits.mean import outstanding, segment_means
from abc_calib.calibration.pipeline import calibrate
from abc_calib.config import CalibrationOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import CORNER, Line, LineBias
from abc_calib.nn.base import Attention
from abc_calib.nn.lines import Lines
from abc_calib.runs import Run


@pytest.fixture(scope="module")
def vanilla(trained) -> Run:
    return Run(trained.root / VANILLA)


@pytest.fixture(scope="module")
def find(vanilla):
    """``find(**options)``: the calibration of the trained model with these options."""
    model = vanilla.load_model()

    def made(**options):
        quick = {"samples": 300, "threshold": 0.3 if options.get("fit") != "mean" else 1.5}
        return calibrate(model, vanilla.data, CalibrationOptions(**{**quick, **options}))

    return made


FITS = pytest.mark.parametrize("fit", ["nnls", "mean"])


def lines_of(bias: LineBias) -> list[Line]:
    return [line for layers in bias.sites.values() for heads in layers for h in heads for line in h]


def test_each_fit_has_its_own_defaults(find):
    for fit, own in (
        ("nnls", {"layer": "own", "anchors": "segment", "values": "hard", "empty": "sink"}),
        ("mean", {"layer": "last", "anchors": "corner", "values": "soft", "empty": "transparent"}),
    ):
        assert find(fit=fit).bias == find(fit=fit, **own).bias


@FITS
def test_layer_says_whose_attention_is_read(find, fit):
    own, first, last = (find(fit=fit, layer=layer).bias for layer in ("own", "first", "last"))
    for site, layers in own.sites.items():
        assert first.sites[site] == (layers[0],) * len(layers)
        assert last.sites[site] == (layers[-1],) * len(layers)
    assert own != first != last


@FITS
def test_only_the_asked_sites_are_biased(find, fit):
    whole = find(fit=fit).bias
    assert set(whole.sites) == {"self", "cross"}  # the model has no encoder layer
    part = find(fit=fit, sites=("cross",)).bias
    assert part.sites == {"cross": whole.sites["cross"]}


@FITS
@pytest.mark.parametrize("anchors", ["segment", "corner"])
def test_lines_count_from_the_asked_anchors(find, fit, anchors):
    found = find(fit=fit, anchors=anchors, empty="transparent", sites=("cross",), layer="own").bias
    assert lines_of(found)
    assert {line.anchor for line in lines_of(found)} == {anchors}


def test_a_penalty_takes_the_place_of_minus_infinity(find):
    hard, soft = find().bias, find(off_line_bias=-5.0).bias
    assert soft.off_line_bias == -5 and soft.sites == hard.sites and hard.off_line_bias is None
    heads = soft.heads("cross", 0)
    frame = view_of("cross", torch.arange(4), 6, torch.tensor([6]), torch.tensor([[0, 5]]))
    layer = Lines({"cross": heads}, soft.off_line_bias)
    assert not layer.restricted and not layer.single and not layer.may_mask_rows
    plain = Lines({"cross": heads}).dense([frame])
    matrix = layer.dense([frame])
    assert torch.equal(matrix, torch.where(plain < -1e8, torch.tensor(-5.0), plain))


@torch.no_grad()
def test_a_head_behind_a_penalty_still_sees_the_other_keys(make_model):
    model = make_model(decoder_layers=1, scheme="none")
    source, outputs = torch.tensor([[12, 1, 2, 3, 13]]), torch.tensor([[4, 13]])
    line = ((Line("vert", 1, 0),),) * 2
    seen = []
    for closed in (None, -50.0, -3.0):
        model.set_lines(LineBias({"cross": (line,)}, closed))
        seen.append(model.attention(source, outputs).weights["cross"][0])
    assert torch.equal(seen[0][..., :-1], torch.zeros_like(seen[0][..., :-1]))
    torch.testing.assert_close(seen[1], seen[0])
    assert (seen[2][..., :-1] > 1e-3).all()


@pytest.mark.parametrize("closed", [0.0, 3.0, -np.inf, np.nan])
def test_a_penalty_that_closes_nothing_is_refused(closed):
    with pytest.raises(UsageError, match="give a finite number below 0, or none"):
        LineBias({}, closed)


def test_soft_values_are_logarithms_of_weights(find):
    found = find(values="soft", threshold=0.1)
    assert any(line.value < 0 for line in lines_of(found.bias))
    for site, layers in found.bias.sites.items():
        for layer, heads in enumerate(layers):
            for head, lines in enumerate(heads):
                rows = [r for r in found.table if (r.site, r.layer, r.head) == (site, layer, head)]
                if rows[0].note == "sink":
                    continue
                strongest = max(row.weight for row in rows)
                for row, line in zip(rows, lines, strict=True):
                    assert line.value == pytest.approx(np.log(row.weight / strongest), abs=2e-3)


def test_hard_values_open_the_papers_lines_wide(find):
    soft, hard = find(fit="mean").bias, find(fit="mean", values="hard").bias
    assert {line.value for line in lines_of(hard)} == {0.0}
    assert any(line.value < 0 for line in lines_of(soft))
    for a, b in zip(lines_of(soft), lines_of(hard), strict=True):
        assert (a.direction, a.segment, a.offset) == (b.direction, b.segment, b.offset)


@FITS
def test_heads_without_lines_are_open_or_closed_as_asked(find, fit):
    above = 1.0 if fit == "nnls" else 9.0
    open_ = find(fit=fit, empty="transparent", threshold=above)
    closed = find(fit=fit, empty="sink", threshold=above)
    assert not lines_of(open_.bias) and open_.bias.transparent()
    assert {row.note for row in open_.table} == {"transparent"}
    assert not closed.bias.transparent()
    for site, layers in closed.bias.sites.items():
        assert {head for heads in layers for head in heads} == {(sinks(1)[site],)}
    assert "sink" in {row.note for row in closed.table} <= {"sink", ""}


# What the options rest on


def test_corner_lines_are_fitted_where_they_are_inside_the_matrix():
    """Attention along one corner line, over samples of two lengths, gives back that line."""
    wanted = nnls.candidates("cross", ("diag", "anti", "vert"), 1, 5, "corner")
    assert {line.segment for line in wanted} == {CORNER}
    line = Line("anti", CORNER, 1)
    lengths = torch.tensor([7, 5])
    places = torch.tensor([[0, 6], [0, 4]])
    frame = view_of("cross", torch.arange(8), 7, lengths, places)
    dense = Lines({"cross": ((line,),)}).dense([frame])
    weights = (dense == 0).float()

    rows = torch.arange(8) < lengths[:, None]
    part = Attention({"cross": (weights,)}, {"cross": frame}, {"cross": rows})
    fitted = nnls.fit([part], {"cross": wanted})["cross"]
    assert fitted.lines[int(fitted.weights[0, 0].argmax())] == line
    assert fitted.weights[0, 0].max() == pytest.approx(1, abs=1e-3)


def test_segment_means_are_means_over_the_rows_of_a_line():
    rng = np.random.default_rng(0)
    matrix = rng.random((1, 5, 7))
    frame = view_of("cross", torch.arange(5), 7, torch.tensor([7]), torch.tensor([[0, 6]]))
    lines = nnls.candidates("cross", ("anti", "vert"), 1, 5)
    (means,) = segment_means(matrix, lines, frame)
    heads = (outstanding(means, 1.0),)
    for line in lines:
        keys = [min(max(5 - i - line.offset, 0), 6) for i in range(5)]
        if line.direction == "vert":
            keys = [{0: 0, 1: 6 - line.offset}[line.segment]] * 5
        expected = np.mean([matrix[0, i, key] for i, key in enumerate(keys)])
        assert means[line] == pytest.approx(expected)
    for direction in ("anti", "vert"):
        values = {line: m for line, m in means.items() if line.direction == direction}
        limit = np.mean(list(values.values())) + np.std(list(values.values()))
        kept = {(x.direction, x.segment, x.offset) for x in heads[0] if x.direction == direction}
        wanted = {(x.direction, x.segment, x.offset) for x, m in values.items() if m > limit}
        assert kept == wanted
