"""Figures and tables: what they show, their files, and their errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import VANILLA, digit_data
from matplotlib.collections import PolyCollection
from matplotlib.text import Text
from PIL import Image

from abc_calib.config import RunConfig
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import Line, LineBias, Site
from abc_calib.geometry.layout import Layout, read_labels, written_labels
from abc_calib.nn import hub
from abc_calib.reporting import views
from abc_calib.reporting.attention import Problem, reads
from abc_calib.reporting.curves import accuracy_curve, looks
from abc_calib.reporting.heatmaps import Block, heatmaps, pooled
from abc_calib.reporting.of_runs import accuracy, accuracy_series, labels_of
from abc_calib.reporting.style import COLUMN_WIDTH, FONTS, TEXT_WIDTH, as_svg, font, save_figures
from abc_calib.reporting.views import heatmap, heatmap_figures
from abc_calib.runs import Run

INF = math.inf
POINTS = [(2, 100.0, 99.0, 100.0), (6, 98.0, 96.0, 99.0), (40, 0.0, 0.0, 1.0)]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def images(figure: Any) -> list[Any]:
    """The images of the heads, without the legend's."""
    found = [image for axes in figure.axes for image in axes.images]
    return [image for image in found if image.get_array().shape[0] > 1]


def heads(shape: tuple[int, int, int] = (3, 5, 7), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape)


def drawn(matrices: np.ndarray, width: float = 6.75, **options: Any) -> Any:
    _, rows, keys = matrices.shape
    labels = {"row_labels": written_labels(rows, "&"), "key_labels": read_labels(keys, "$")}
    return heatmaps([Block(matrices, **{**labels, **options})], "heads", width=width)


def curve() -> Any:
    return accuracy_curve({"first": POINTS, "second": POINTS[:2]}, title="T", train_length=6)


@pytest.mark.parametrize("draw", [curve, lambda: drawn(heads((1, 3, 5)))])
def test_a_figure_drawn_twice_has_the_same_bytes_its_fonts_and_no_date(
    tmp_path: Path, draw: Any
) -> None:
    suffixes = ["pdf", "png", "svg"]
    one, two = ([tmp_path / f"{name}.{suffix}" for suffix in suffixes] for name in ("one", "two"))
    for paths in (one, two):
        save_figures(draw(), paths[0].with_suffix(""), suffixes)
    assert sorted(tmp_path.iterdir()) == one + two
    pdf, _, svg = first = [path.read_bytes() for path in one]
    assert first == [path.read_bytes() for path in two]
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf and b"CreationDate" not in pdf
    assert b"<dc:date>" not in svg


def test_a_figure_has_one_colour_scale_with_a_bar_and_closed_cells_are_masked() -> None:
    weights, biases = np.array([[[0.25, 0.5]], [[0.02, 0.01]]]), np.array([[[0.0, -INF]]] * 2)
    labels: dict[str, Any] = {"row_labels": ["y0"], "key_labels": ["$", "a0"]}
    blocks = [Block(weights, **labels), Block(biases, additive=True, **labels)]
    figure = heatmaps(blocks, "T")
    drawn: list[Any] = [image for axes in figure.axes for image in axes.images]
    assert [(image.norm.vmin, image.norm.vmax) for image in drawn[:2]] == [(0, 0.5)] * 2
    assert drawn[1].cmap(drawn[1].norm(0.02)) != drawn[0].cmap(drawn[0].norm(0.5))
    np.testing.assert_array_equal(drawn[2].get_array().mask, [[False, True]])
    assert {"weight", "open (0)", "closed (−∞)"} <= {*texts(figure)} and "bias" not in texts(figure)
    closed, lowest = drawn[0].cmap.get_bad()[:3], drawn[0].cmap(0)[:3]
    assert max(closed) - min(closed) == 0 and np.abs(closed - np.array(lowest)).max() > 0.3
    assert "closed (−∞)" not in texts(heatmaps(blocks[:1]))
    sloped = Block(np.array([[[-2.0, -0.5]]]), additive=True, **labels)
    assert "bias" in texts(heatmaps([sloped]))


def test_heads_without_a_line_are_marked_in_one_way(calibrated: Run) -> None:
    (figure,) = heatmap_figures(calibrated, sites=("cross",)).values()
    told = [text for text in texts(figure) if text.startswith(("0: ", "1: "))]
    assert told == ["0: a[t]", "1: no line, &"]
    table = calibrated.path / "lines.csv"
    table.write_text(table.read_text().replace(",sink", ",transparent"))
    (figure,) = heatmap_figures(calibrated, sites=("cross",)).values()
    assert "1: no line, &" in texts(figure) and "transparent" not in texts(figure)
    (figure,) = heatmap_figures("zoo:product", sites="self", layer=2).values()
    assert sum(text.endswith(": no line") for text in texts(figure)) == 8


@pytest.mark.parametrize(
    ("line", "site", "told"),
    [
        (Line("anti", 1, 0), "cross", "a[t]"),
        (Line("anti", 2, -1), "cross", "b[t-1]"),
        (Line("diag", 2, 0), "cross", "b[end-t-1]"),
        (Line("vert", 1, 0), "cross", "+"),
        (Line("vert", 1, 1), "cross", "a0"),
        (Line("diag", 0, -1), "self", "y[t-2]"),
        (Line("vert", 1, 0), "encoder", "+"),
        (Line("diag", 0, -1), "encoder", ""),
    ],
)
def test_a_line_is_told_by_the_token_that_it_names(line: Line, site: Site, told: str) -> None:
    problem = Problem(Layout((20, 20), ("$", "+", "&")), (22,))
    assert reads(line, site, problem) == told
    words = Problem(Layout((20,), ("$", "&"), words=True), (21,))
    assert reads(Line("diag", 1, 0), "cross", words) == "word t"


def names_apart(figure: Any) -> list[set[str]]:
    """The names on every axis, none of which touches its neighbour."""
    figure.draw_without_rendering()
    found = []
    for axes in figure.axes:
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            named = [label for label in labels if label.get_text()]
            for one, other in pairwise(named):
                first, second = one.get_window_extent(), other.get_window_extent()
                across = one.get_rotation() == 0 and first.y0 == pytest.approx(second.y0, abs=3)
                x = abs(second.x0 + second.x1 - first.x0 - first.x1) / 2
                y = abs(second.y0 - first.y0)
                # side by side they do not touch; over each other they are a font size apart
                size = one.get_fontsize() * 100 / 72
                assert not first.overlaps(second) if across else max(x, y) >= size - 0.5
            found.append({label.get_text() for label in named})
    return found


@pytest.mark.parametrize(("count", "keys"), [(1, 25), (4, 43), (4, 150)])
def test_names_on_an_axis_never_overlap(count: int, keys: int) -> None:
    assert all(len(names) != 1 for names in names_apart(drawn(heads((count, 5, keys)))))


@pytest.mark.parametrize("lengths", [[6], range(1, 51), [6, 20, 50, 100, 200, 500, 1000, 10000]])
def test_lengths_on_an_axis_never_overlap(lengths: list[int]) -> None:
    points = [(length, 100.0, 99.0, 100.0) for length in lengths]
    named = names_apart(accuracy_curve({"a": points}, title="T", train_length=6))
    assert {f"{lengths[0]:,}", f"{lengths[-1]:,}", "6"} <= named[0]


def test_a_line_of_single_cells_is_seen_in_a_small_image() -> None:
    line = np.full((1, 900, 1000), -np.inf)
    line[0, np.arange(900), np.arange(900)] = 0.0
    small = pooled(line[0], 60, 75)
    assert small.shape == (60, 72)
    assert np.isfinite(small).any(1).all() and np.isinf(small).any()
    labels = [str(i) for i in range(1000)]
    shown = texts(heatmaps([Block(line, labels[:900], labels, additive=True)]))
    assert {"open (0)", "closed (−∞)"} <= set(shown) and "weight" not in shown


def test_all_text_is_inside_the_figure_and_of_readable_size(calibrated: Run) -> None:
    figures = heatmap_figures(calibrated)
    assert set(figures) == {"bias-self-layer0", "bias-cross-layer0"}
    for figure in (curve(), *figures.values()):
        figure.draw_without_rendering()
        width, height = figure.bbox.size
        for text in figure.findobj(Text):
            if text.get_text() and text.get_visible():
                assert text.get_fontsize() >= 6
                box = text.get_window_extent()
                assert box.x0 > -1 and box.y0 > -1 and box.x1 < width + 1 and box.y1 < height + 1


def test_labels_of_each_task() -> None:
    for task, base, labels in (
        ("parity", 2, "$ a2 a1 a0 &"),
        ("addition", 10, "$ a2 a1 a0 + b2 b1 b0 &"),
        ("multiplication", 10, "$ a2 a1 a0 * b0 &"),
    ):
        source = digit_data(task, base)
        layout = source.layout_at(3)
        assert layout.labels() == labels.split() and layout.widths[0] == 3
        batch = source.test(3, 5)
        assert batch.source.shape[1] == layout.keys
        for row in batch.source:
            found = torch.isin(row, torch.tensor(source.vocabulary.delimiters)).nonzero()[:, 0]
            assert tuple(found.tolist()) == layout.closes


def test_labels_of_columns_and_of_words() -> None:
    aligned = digit_data("addition", format="aligned").layout_at(2)
    assert aligned.labels() == ["$", "+", "a1", "b1", "a0", "b0", "&"]
    assert (aligned.closes, aligned.stride) == ((0, 1, 6), 2)
    words = Layout((3,), ("$", "&"), words=True)
    assert words.labels() == ["$", "0", "1", "2", "&"]
    assert words.coordinate(1) == (1, 0, 2) and words.coordinate(4) == (1, None, -1)
    vast = Layout((10**15, 1), ("$", "*", "&"))  # nothing is as long as the source
    assert vast.label(vast.keys - 2) == "b0" and vast.coordinate(1).column == 10**15 - 1


# From a run folder

BIAS = LineBias(
    {
        "self": (((Line("diag", 0, 0),), (Line("diag", 0, -1, -0.5), Line("vert", 0, 0))),),
        "cross": (((Line("anti", 1, 0),), (Line("vert", 2, 0),)),),
    }
)
WEIGHTS = """site,layer,head,line,weight,value,note
self,0,0,diag +0,0.75,0.0,
self,0,1,diag -1,0.5,-0.5,
self,0,1,vert +0,0.25,0.0,
cross,0,0,anti +0 segment 1,0.875,0.0,
cross,0,1,vert +0 segment 2,0.0,0.0,sink
"""


@pytest.fixture
def calibrated(make_config: Callable[..., RunConfig], tmp_path: Path) -> Run:
    """A run with a bias for addition of 4 digits: 5 rows, 11 keys, 1 layer, 2 heads."""
    run = Run.create(make_config("addition"), tmp_path / "runs" / "calibrated")
    write_bias(run, WEIGHTS, {"self": heads((2, 5, 5)), "cross": heads((2, 5, 11))})
    return run


def write_bias(run: Run, table: str, arrays: dict[str, np.ndarray]) -> None:
    small = {f"attention.{site}": v[None].astype(np.float32) for site, v in arrays.items()}
    (run.path / "bias.safetensors").unlink(missing_ok=True)
    BIAS.save(run.path / "bias.safetensors", **small)
    (run.path / "lines.csv").write_text(table)


def test_a_calibrated_run_is_drawn_and_its_arrays_stored(calibrated: Run, tmp_path: Path) -> None:
    paths = heatmap(calibrated, tmp_path / "out", format="png", digits=7)
    assert [path.name for path in paths] == [
        *("bias-self-layer0.png", "self.npz"),
        *("bias-cross-layer0.png", "cross.npz"),
    ]
    assert sorted(paths) == sorted((tmp_path / "out").iterdir())
    with np.load(tmp_path / "out" / "cross.npz") as cross:
        np.testing.assert_array_equal(cross["attention"], heads((2, 5, 11))[None].astype("f4"))
        labels = "$ a3 a2 a1 a0 + b3 b2 b1 b0 &"
        assert cross["key_labels"].tolist() == labels.split()
        assert cross["row_labels"].tolist() == ["y0", "y1", "y2", "y3", "&"]
        fit, bias = cross["fit"][0], cross["bias"][0]
        assert len(cross["bias_row_labels"]) == 8 and len(cross["bias_key_labels"]) == 17
    expected = np.zeros((5, 11))
    expected[np.arange(5), [4, 3, 2, 1, 0]] = 0.875
    np.testing.assert_allclose(fit, [expected, np.zeros((5, 11))])
    far = np.full((2, 8, 17), -INF)
    far[0, np.arange(8), 7 - np.arange(8)] = 0  # the first operand's digits, then SOS
    far[1, :, 16] = 0
    np.testing.assert_array_equal(bias, far)


def test_self_attention_is_causal_and_lines_add_up(calibrated: Run, tmp_path: Path) -> None:
    heatmap(calibrated, tmp_path / "out", format="png", sites="self", digits=2)
    with np.load(tmp_path / "out" / "self.npz") as arrays:
        fit, bias = arrays["fit"][0], arrays["bias"][0]
    rows = np.arange(5)
    expected = np.zeros((5, 5))
    expected[:, 0] += 0.25
    expected[rows, np.maximum(rows - 1, 0)] += 0.5
    np.testing.assert_allclose(fit, [0.75 * np.eye(5), expected])
    assert np.isneginf(bias[:, ~np.tri(3, dtype=bool)]).all()
    np.testing.assert_allclose(bias[1], [[0, -INF, -INF], [0, -INF, -INF], [0, -0.5, -INF]])


def test_a_run_without_a_bias_shows_its_attention(
    make_config: Callable[..., RunConfig],
    model_for: Callable[..., Any],
    tmp_path: Path,
) -> None:
    run = Run.create(make_config("successor", {"width": 16, "feedforward": 32}))
    run.save_model(model_for(run.data))
    paths = heatmap(run, tmp_path / "out", format=("png",), sites=("cross",))
    assert [path.name for path in paths] == ["attention-cross-layer0.png", "cross.npz"]
    with np.load(paths[-1]) as arrays:
        assert arrays["attention"].shape == (1, 2, 5, 6)
        np.testing.assert_allclose(arrays["attention"].sum(-1), 1, rtol=1e-5)
        assert sorted(arrays) == ["attention", "key_labels", "row_labels"]


def test_a_stage_has_its_colour_whatever_else_a_name_says() -> None:
    after, before = (
        look.colour for look in looks(["after calibration", "before calibration"]).values()
    )
    names = ["rope, before calibration", "rope, after calibration", "alibi, after calibration"]
    colours = [look.colour for look in looks(names).values()]
    assert colours[:2] == [before, after] and colours[2] not in (before, after)
    sets = looks(["rope, after calibration, random", "rope, after calibration, carry"])
    assert {look.colour for look in sets.values()} == {after}


def test_a_curve_shows_its_data_intervals_and_the_training_length() -> None:
    series = {"one": POINTS[::-1], "two": POINTS[:1]}
    figure: Any = accuracy_curve(series, title="T", train_length=6)
    (axes,) = figure.axes
    lines = {str(line.get_label()): line for line in axes.lines}
    assert [tuple(xy) for xy in lines["one"].get_xydata()] == [p[:2] for p in POINTS]
    assert [tuple(xy) for xy in lines["two"].get_xydata()] == [POINTS[0][:2]]
    (mark,) = (line for line in axes.lines if set(line.get_xdata()) == {6})
    assert mark.get_linestyle() == ":"
    shade: Any = next(c for c in axes.collections if isinstance(c, PolyCollection))
    corners = {tuple(xy) for xy in shade.get_paths()[0].vertices.tolist()}
    assert {(p[0], p[2]) for p in POINTS} | {(p[0], p[3]) for p in POINTS} <= corners
    low, high = axes.get_ylim()
    assert axes.get_xscale() == "log" and low < 0 and high > 100
    assert {"one", "two"} <= {*texts(figure)}
    note = "(dotted: training length 6; shaded: 95 % intervals)"
    assert axes.get_xlabel().endswith(note)
    with pytest.raises(UsageError, match="no accuracies of b to draw: run abc eval"):
        accuracy_curve({"a": POINTS, "b": []}, title="T", train_length=6)


@pytest.mark.parametrize("width", [COLUMN_WIDTH, TEXT_WIDTH])
def test_equal_curves_are_named_apart(width: float) -> None:
    series = dict.fromkeys(("after calibration, random", "after calibration, carry", "c"), POINTS)
    figure: Any = accuracy_curve(series, title="", train_length=6, width=width)
    figure.draw_without_rendering()
    labels = [text for text in figure.findobj(Text) if text.get_text().replace("\n", " ") in series]
    assert len(labels) == 3
    boxes = [label.get_window_extent() for label in labels]
    boxes.append(figure.axes[0].get_window_extent())
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    lines = {str(line.get_label()).replace("\n", " "): line for line in figure.axes[0].lines}
    assert len({lines[name].get_marker() for name in series}) == 3
    assert len({lines[name].get_markersize() for name in series}) == 3


def test_of_many_points_some_have_markers_and_equal_curves_others() -> None:
    points = [(length, 100.0, 99.0, 100.0) for length in range(1, 51)]
    figure = accuracy_curve(dict.fromkeys("ab", points), title="", train_length=6)
    for line in figure.axes[0].lines:
        line.set_gid(f"curve {line.get_label()}")
    parts = [as_svg(figure).split(f'"curve {name}"')[1].split("</g> </g>")[0] for name in "ab"]
    places = [{*re.findall('<use [^>]*x="([^"]+)"', part)} for part in parts]
    assert all(6 <= len(some) <= 10 for some in places)
    assert len(places[0] & places[1]) < 4


def test_runs_are_labelled_by_what_differs() -> None:
    before = {"task": "addition", "scheme": "rpe", "stage": "before calibration", "seed": "seed 0"}
    before["name"] = "x"
    after = {**before, "stage": "after calibration", "name": "y"}
    other = {**before, "scheme": "alibi", "name": "z"}
    assert labels_of([before]) == ["before calibration"]
    assert labels_of([before, after]) == ["before calibration", "after calibration"]
    assert labels_of([before, other]) == ["rpe", "alibi"]
    assert labels_of([after, after | {"name": "w"}]) == [
        "after calibration, y", "after calibration, w"
    ]  # fmt: skip


def test_the_font_of_latex_is_quiet_and_several_runs_are_one_table(tiny, abc, tmp_path, caplog):
    for run in (tiny.vanilla, tiny.calibrated):
        assert abc("eval", run, "--lengths", "3,5", "--samples", 20, "-q").code == 0
    runs = (tiny.vanilla, tiny.calibrated)
    assert abc("curves", *runs, "--font", "latex", "--out", tmp_path).code == 0
    assert caplog.text == ""
    latex = abc("curves", *runs, "--latex", "--out", tmp_path).out
    assert "length & before calibration & after calibration" in latex
    assert latex.count(r"\label{tab:") == latex.count(r"\begin{tabular}") == 1


def test_numbers_at_axes_are_plain_in_every_font(calibrated: Run) -> None:
    for name in FONTS:
        with font(name):
            curve = accuracy_curve({"after": [(5, 100.0, 96.0, 100.0)]}, title="", train_length=3)
            for figure in (curve, *heatmap_figures(calibrated, layer=0).values()):
                figure.canvas.draw()
                ticks = [t.get_text() for a in figure.axes for t in a.yaxis.get_ticklabels()]
                assert any(ticks) and not any("math" in text for text in ticks)


def test_what_the_options_of_a_heatmap_leave_out(calibrated: Run) -> None:
    (name,) = heatmap_figures(calibrated, sites=("cross",), layer=0, head=1, panel="bias")
    assert name == "bias-cross-layer0-head1-bias"
    (alone,) = heatmap_figures(calibrated, sites=("cross",), panel="bias", title=False).values()
    assert not any("digits" in text for text in texts(alone))
    for title in (True, False):
        (figure,) = heatmap_figures(calibrated, sites=("cross",), head=1, title=title).values()
        assert any("cross-attention" in text for text in texts(figure)) is title


def test_the_weights_are_those_of_the_transformers_face(tiny, abc, tmp_path, monkeypatch):
    words = ("heatmap", VANILLA, "--input", "12009", "--out", tmp_path, "--format", "svg", "-q")
    assert abc(*words).code == 0
    run = Run.open(tiny.vanilla)
    face = hub.load(run.path / "model").eval()
    symbols = list(run.data.vocabulary.symbols)
    seen = {site: dict(np.load(tmp_path / f"input-{site}.npz")) for site in ("self", "cross")}
    source, written = (
        torch.tensor([[symbols.index(token) for token in seen["cross"][name]]])
        for name in ("key_labels", "row_labels")
    )
    found = face(source, labels=written, output_attentions=True)
    for site, weights in (("self", found.decoder_attentions), ("cross", found.cross_attentions)):
        drawn = torch.from_numpy(seen[site]["attention"]).float()
        torch.testing.assert_close(drawn, torch.stack(weights)[:, 0])
    monkeypatch.setattr(views, "MOST", 5)
    assert "give a shorter source" in abc("heatmap", VANILLA, "--input", "77").error(2)


def test_files_that_are_missing_or_belong_elsewhere(calibrated: Run, tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(AbcError, match=message):
            heatmap(calibrated, tmp_path / "out", sites=("cross",))

    wide = {"cross": heads((2, 5, 13))}
    for arrays, message in (
        ({}, "holds no averaged attention: calibrate again"),
        (wide, "13 source tokens, but addition of 4 digits has 11"),
    ):
        write_bias(calibrated, WEIGHTS, arrays)
        refused(message)
    (calibrated.path / "bias.safetensors").write_bytes(b"broken")
    refused("is not a bias file")


def test_test_sets_of_a_run_with_equal_points_are_one_curve():
    row = {"length": 6, "accuracy": 99.0, "low": 98.0, "high": 100.0}
    rows = [row | {"series": "random"}, row | {"series": "carry"}]
    assert [*accuracy_series({"a": rows, "b": rows})] == [
        "a, random and carry",
        "b, random and carry",
    ]
    other = [rows[0], rows[1] | {"accuracy": 98.5}]
    assert [*accuracy_series({"a": other})] == ["a, random", "a, carry"]


def test_a_figure_of_several_runs_has_their_rows_under_labels_of_ones_own(
    tiny, abc, tmp_path: Path
) -> None:
    for run, *more in ((tiny.vanilla,), (tiny.calibrated, "--stress", "carry")):
        assert abc("eval", run, "--lengths", "3,5,9", "--samples", 20, "-q", *more).code == 0
    runs = [Run.open(run) for run in (tiny.vanilla, tiny.calibrated)]
    curves = accuracy_series(dict(zip(("before", "after"), map(accuracy, runs), strict=True)))
    assert "before" in curves and {*curves} - {"before"} in (
        {"after, carry", "after, random"},
        {"after, random and carry"},
    )
    rows = pd.read_csv(tiny.vanilla / "eval.csv")
    points = [point[:2] for point in curves["before"]]
    assert points == [*zip(rows["length"], rows["accuracy"], strict=True)]
    words: list[object] = ["curves", *runs, "--labels"]
    said = abc(*words, "before,after", "--format", "png", "--width", 3, "--out", tmp_path)
    assert said.code == 0 and Image.open(tmp_path / "curves.png").width == 900
    for labels in ("before", "before,before", "a,b,c"):
        assert "2 runs: give one label" in abc(*words, labels).error(2)
    other = abc("curves", tiny.vanilla, Run.draft(runs[0].config)).error(2)
    assert "there is no run draft" in other
