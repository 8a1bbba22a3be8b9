"""Options: typed, frozen, and strict about names."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from abc_calib.config import (
    FORMAT_VERSION,
    MODEL_OPTIONS,
    PRESETS,
    RETRAIN,
    CalibrationOptions,
    EvaluateOptions,
    RecurrentOptions,
    TrainOptions,
    TransformerOptions,
    build,
    iter_options,
    load_config,
)
from abc_calib.errors import OptionError, UsageError


@pytest.mark.parametrize(
    "kind", [TransformerOptions, RecurrentOptions, TrainOptions, CalibrationOptions]
)
def test_options_are_frozen_and_know_their_names(kind):
    options = kind()
    name = next(iter(kind.model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(options, name, getattr(options, name))
    message = f"unknown option 'colour' of {kind.group_title}: choose among"
    with pytest.raises(UsageError, match=message):
        build(kind, colour="red")


def test_a_value_out_of_range_is_named_with_the_rule():
    for kind, name, value, rule in (
        (TransformerOptions, "heads", 0, "give a whole number from 1 to 256"),
        (TransformerOptions, "dropout", 1.0, "give a number from 0 to below 1"),
        (TransformerOptions, "feedforward", "wide", "give a whole number from 1 to 65,536"),
        (TrainOptions, "batch", 2.5, "give a whole number from 1 to 1,000,000"),
        (TrainOptions, "learning_rate", 0, "give a number above 0 and at most 1,000"),
        (TrainOptions, "seed", -1, "give a whole number from 0 to 9,223,372,036,854,775,807"),
        (CalibrationOptions, "off_line_bias", 0, "give a number from -100,000,000 to below 0"),
        (CalibrationOptions, "layer", "middle", "choose own, first or last"),
        (EvaluateOptions, "greedy", "often", "give true or false"),
    ):
        with pytest.raises(UsageError, match=f"^{name} = {value!r}: {rule}"):
            build(kind, **{name: value})


def test_a_configuration_comes_back_from_its_file(make_config, tmp_path):
    config = make_config("addition", model={"dropout": 0.1}, seed=7, sampling="carry")
    calibration = CalibrationOptions(dirs=("anti", "vert"), threshold=0.25)
    config = config.model_copy(update={"calibration": calibration})
    path = tmp_path / "config.json"
    path.write_text(config.model_dump_json(indent=2))
    assert load_config(path) == config
    assert config.format_version == FORMAT_VERSION


def test_the_papers_preset_is_the_papers_model():
    model, *_ = PRESETS["paper"]
    assert (model.encoder_layers, model.decoder_layers, model.heads) == (0, 3, 8)
    assert (model.width, model.feedforward, model.dropout) == (128, 512, 0.3)
    assert model.post_norm


def test_lists_are_words_with_commas_each_once_and_not_none():
    assert CalibrationOptions(dirs="diag, anti,diag").dirs == ("diag", "anti")
    assert CalibrationOptions(sites="all").sites == ("encoder", "self", "cross")
    assert EvaluateOptions(lengths="6, 10,6").lengths == (6, 10)
    assert EvaluateOptions(lengths=[3, 3]).lengths == (3,)
    for kind, name in ((CalibrationOptions, "dirs"), (EvaluateOptions, "lengths")):
        for given in ("", ",", " , ", ()):
            with pytest.raises(OptionError, match=f"^{name} = "):
                build(kind, **{name: given})


def test_options_that_two_kinds_share_are_one_with_both_defaults():
    options = iter_options(TrainOptions, *MODEL_OPTIONS.values())
    assert options["width"].help == "Model width; by default 64 (gru: 128)."
    assert options["attention_window"].flag == "--attention-window"
    assert options["length"].flag == "--digits"
    assert options["stop_early"].type is bool
    assert options["schedule"].what == "cosine|plateau"
    again = iter_options(RETRAIN, without=("length",), kept=("seed",))
    assert "length" not in again
    assert again["steps"].default == "2000"
    assert again["seed"].help.endswith("; by default as in the first training.")


def test_the_package_names_what_it_offers_and_loads_it_when_asked():
    import abc_calib

    for name in abc_calib.__all__:
        assert name in dir(abc_calib)
        assert getattr(abc_calib, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        _ = abc_calib.colour


def test_results_show_themselves_in_a_notebook():
    from abc_calib import Certificate, Line, LineBias

    bias = LineBias({"cross": (((Line("anti", 1, 2),), ()),)})
    assert repr(bias) == "LineBias(cross: 1 line (1 different) in 2 heads)"
    assert "<td>anti +2 segment 1</td>" in bias._repr_html_()
    found = Certificate("refuted", "3 < 4 windows", "addition", 10, 6, "none", "")
    found.counterexamples = [{"problem": "1+1", "answer": "3", "right": "2"}]
    assert repr(found) == "Certificate(refuted: addition in base 10, 3 < 4 windows)"
    shown = found._repr_html_()
    assert "<b>refuted</b>: 3 &lt; 4 windows" in shown
    assert "<code>1+1</code> gives <code>3</code>" in shown
