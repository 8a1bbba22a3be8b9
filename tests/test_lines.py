"""Lines: their geometry, their file, and the refusal of those that do not fit a model."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import CORNER, DIRECTIONS, SITES, Line, LineBias
from abc_calib.geometry.layout import Layout
from abc_calib.geometry.lines import formula
from abc_calib.nn.lines import LineGather

HALF: Any = 0.5
WORD: Any = "0"
DOWN: Any = "down"


def lines_at(site: str) -> st.SearchStrategy[Line]:
    """Every line that a site may have."""
    segments = st.integers(CORNER, 0 if site == "self" else 3)
    offsets, values = st.integers(-40, 40), st.floats(-50, 0, allow_nan=False)
    strides = st.integers(1, 3 if site == "cross" else 1)
    slanted = st.sampled_from(["diag", "anti"])
    fixed = st.just(0) if site == "encoder" else offsets
    return st.one_of(
        st.builds(Line, st.just("vert"), segments, fixed, values),
        st.builds(Line, slanted, segments, offsets, values, stride=strides),
    )


def layers_at(site: str) -> st.SearchStrategy[tuple]:
    head = st.lists(lines_at(site), max_size=3).map(tuple)
    layer = st.lists(head, min_size=2, max_size=2).map(tuple)
    return st.lists(layer, min_size=1, max_size=3).map(tuple)


BIASES = st.builds(
    LineBias,
    st.fixed_dictionaries({}, optional={site: layers_at(site) for site in SITES}),
    st.sampled_from([None, -5.0]),
    stream=st.booleans(),
)


def some_bias() -> LineBias:
    """Two layers of cross-attention and one of self-attention, two heads each."""
    anti, vert = Line("anti", 2, -1, -0.25), Line("vert", 1, 0)
    return LineBias(
        {"cross": (((anti,), (vert, anti)), ((), (vert,))), "self": (((Line("diag", 0, -1),), ()),)}
    )


# Geometry


def test_a_row_above_is_read_from_its_last_token():
    """Rows ``$ a b c | d e |``: in column t of the second and the third the key of ``anti``."""
    opens = [6, 4, 0]
    for offset in (-1, 0, 2):
        line = formula(Line("anti", 1, offset), "self")
        for column in range(5):
            key, _ = line.key((4, 4 + column, 4, 0), column)
            assert key == min(max(4 - 1 - column - offset, 0), 4)
            key, _ = line.key((6, 6 + column, *opens), column)
            assert key == min(max(6 - 1 - column - offset, 4), 6)


def test_a_site_without_any_line_is_open():
    bias = LineBias({"self": (((), ()),)}).matrix("self", 0, Layout((2,), ("$", "&")), (3,))
    assert bias.shape == (2, 3, 3)
    np.testing.assert_array_equal(np.isfinite(bias[1]), np.tri(3, dtype=bool))


def test_labels_tell_lines_apart():
    every = itertools.product(DIRECTIONS, (CORNER, 0, 1, 2), (-2, 0, 2))
    assert len({Line(*one).label("cross") for one in every}) == 36
    assert Line("anti", 2, -1).label("cross") == "anti -1 segment 2"
    assert Line("anti", CORNER, 3).label("cross") == "anti +3 corner"
    assert Line("vert", 2, 0).label("encoder") == "vert +0 segment 2"
    assert Line("diag", 2, 0).label("self") == "diag +0 row -2"
    assert some_bias().transparent() == [("cross", 1, 0), ("self", 0, 1)]


# LineBias


@pytest.mark.parametrize(
    ("bias", "layers", "heads", "said"),
    [
        (some_bias(), {"cross": 3, "self": 3}, 2, "has 2 cross-attention layers and the model 3"),
        (some_bias(), {"cross": 2, "self": 1}, 8, "has 2 heads and the model 8: calibrate a model"),
        (LineBias({"encoder": (((),),)}), {}, 1, "has 1 encoder-attention layers and the model 0"),
    ],
)
def test_check_names_what_does_not_fit(bias, layers, heads, said):
    with pytest.raises(UsageError, match=f"the bias {said}"):
        bias.check(layers, heads=heads)


def test_a_value_is_the_number_that_a_model_adds():
    """The certificate counts with it in double precision, the model in single."""
    bias = LineBias({"cross": (((Line("anti", 1, 0, -0.1),),),)})
    ((line,),) = bias.sites["cross"][0]
    assert line.value == float(np.float32(-0.1)) != -0.1
    added = (
        LineGather({"cross": (((Line("anti", 1, 0, -0.1)),),)})
        .at("cross", torch.device("cpu"))
        .value
    )
    assert added.double().item() == line.value


@pytest.mark.parametrize(
    ("site", "line", "said"),
    [
        ("decoder", Line("diag", 1, 0), "unknown site 'decoder': choose one of encoder, self, c"),
        ("cross", Line(DOWN, 1, 0), "unknown direction 'down': choose diag, anti, vert"),
        ("self", Line("diag", -2, 0), "segment -2 of a diag line of self-attention: give 0 or mo"),
        ("self", Line("diag", 1, 0, beta=1), "beta 1 and part_step 0 of a diag line .*: give 0"),
        ("cross", Line("vert", CORNER, 0, part_step=1), "part_step 1 of a vert .*: give 0"),
        ("self", Line("diag", 0, 0, stride=2), "stride 2 .*: give 1 or more keys a row in cross"),
        ("cross", Line("vert", 1, 0, stride=2), "stride 2 .*for a vertical, which has no slope"),
        ("encoder", Line("vert", 1, 1), "offset 1 .*: give 0, since it is the delimiter"),
        ("cross", Line("diag", 1, HALF), "offset 0.5 .*: give a whole number within"),
        ("cross", Line("diag", 1, 0, float("nan")), "value nan .*: give a number within"),
        ("cross", Line("diag", 1, 0, WORD), "value '0' .*: give a number within"),
    ],
)
def test_lines_that_cannot_be_followed_are_refused_where_they_are_made(site, line, said):
    with pytest.raises(UsageError, match=said):
        LineBias({site: (((line,),),)})


# The file


@given(BIASES)
def test_plain_data_and_files_come_back(tmp_path_factory, bias):
    assert LineBias.from_dict(json.loads(json.dumps(bias.to_dict()))) == bias
    path = tmp_path_factory.mktemp("bias") / "bias.safetensors"
    bias.save(path)
    assert LineBias.load(path) == bias


def test_arrays_are_saved_beside_the_lines(tmp_path):
    path = tmp_path / "bias.safetensors"
    with pytest.raises(AbcError, match=r"no bias at .*bias.safetensors: run abc calibrate first"):
        LineBias.load(path)
    attention = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5).transpose(2, 0, 1)
    some_bias().save(path, attention=attention)
    saved = load_file(path)
    assert (saved["attention"] == attention).all()
    assert saved["values"].tolist() == [-0.25, 0.0, -0.25, 0.0, 0.0]
    assert LineBias.load(path) == some_bias()
