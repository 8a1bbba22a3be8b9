"""Options: typed, frozen, and strict about names."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from abc_calib.config import (
    FORMAT_VERSION,
    PRESETS,
    CalibrationOptions,
    ModelOptions,
    RunConfig,
    TrainOptions,
    build,
    load_config,
)
from abc_calib.errors import AbcError, UsageError


@pytest.mark.parametrize("kind", [ModelOptions, TrainOptions, CalibrationOptions])
def test_options_are_frozen_and_know_their_names(kind):
    options = kind()
    name = next(iter(kind.model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(options, name, getattr(options, name))
    with pytest.raises(UsageError, match="given: colour = 'red': extra inputs are not permitted"):
        build(kind, "given", colour="red")


@pytest.mark.parametrize(
    ("kind", "name", "value", "rule"),
    [
        (ModelOptions, "heads", 0, "greater than or equal to 1"),
        (ModelOptions, "decoder_layers", 0, "greater than or equal to 1"),
        (ModelOptions, "encoder_layers", -1, "greater than or equal to 0"),
        (ModelOptions, "width", 1, "greater than or equal to 2"),
        (ModelOptions, "dropout", 1.0, "less than 1"),
        (ModelOptions, "dropout", -0.1, "greater than or equal to 0"),
        (ModelOptions, "feedforward", "wide", "valid integer"),
        (TrainOptions, "steps", 0, "greater than or equal to 1"),
        (TrainOptions, "batch", 2.5, "valid integer"),
        (TrainOptions, "learning_rate", 0, "greater than 0"),
        (TrainOptions, "validate_every", 0, "greater than or equal to 1"),
        (TrainOptions, "length", 0, "greater than or equal to 1"),
        (TrainOptions, "seed", -1, "greater than or equal to 0"),
        (CalibrationOptions, "fit", "best", "'nnls' or 'mean'"),
        (CalibrationOptions, "samples", 0, "greater than or equal to 1"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_rule(kind, name, value, rule):
    with pytest.raises(UsageError, match=f"given: {name} = {value!r}: .*{rule}"):
        build(kind, "given", **{name: value})


def test_an_unknown_direction_is_named():
    with pytest.raises(UsageError, match=r"dirs.1 = 'down': input should be 'diag', 'anti' or 've"):
        build(CalibrationOptions, "calibration", dirs=("diag", "down"))


def test_numbers_that_are_not_finite_are_refused():
    for value in (float("nan"), float("inf")):
        with pytest.raises(UsageError, match="learning_rate"):
            build(TrainOptions, "training", learning_rate=value)


def test_the_papers_preset_is_the_papers_model():
    model = PRESETS["paper"]
    model = model[0] if isinstance(model, tuple) else model
    assert (model.encoder_layers, model.decoder_layers, model.heads) == (1, 6, 8)
    assert (model.width, model.feedforward, model.dropout) == (128, 512, 0.3)


def test_a_configuration_comes_back_from_its_file(make_config, tmp_path):
    config = make_config("addition", model={"dropout": 0.1}, seed=7, law="carry")
    config = config.model_copy(
        update={"calibration": CalibrationOptions(dirs=("anti", "vert"), threshold=0.25)}
    )
    path = tmp_path / "config.json"
    path.write_text(config.model_dump_json(indent=2))
    assert load_config(path) == config
    assert config.format_version == FORMAT_VERSION


def test_a_configuration_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AbcError, match=r"config.json cannot be read \(.*\): train again"):
        load_config(tmp_path / "config.json")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"null", b"3", b'"text"'])
def test_a_configuration_that_is_none_is_named(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(AbcError, match="train again"):
        load_config(path)


def test_a_run_needs_its_stage_and_task(make_config):
    data = make_config().model_dump()
    with pytest.raises(UsageError, match="stage = 'trained': input should be 'vanilla' or 'calib"):
        build(RunConfig, "run", **{**data, "stage": "trained"})
    del data["task"]
    with pytest.raises(UsageError, match=r"task = .*: field required"):
        build(RunConfig, "run", **data)
