"""Options: typed, frozen, and strict about names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError

import abc_calib
from abc_calib.calibration.plan import plan_calibration
from abc_calib.config import (
    FORMAT_VERSION,
    RETRAIN,
    CalibrationOptions,
    EvaluateOptions,
    RecurrentOptions,
    TrainOptions,
    TransformerOptions,
    build,
    load_config,
    take,
)
from abc_calib.errors import AbcError, OptionError, UsageError
from abc_calib.runs import Run
from cli.main import app

ROOT = Path(__file__).parent.parent
STUB = Path(abc_calib.__file__).with_suffix(".pyi")


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
        (TransformerOptions, "dropout", 1.0, "give a number of at least 0 and below 1"),
        (TransformerOptions, "feedforward", "wide", "give a whole number from 1 to 65,536"),
        (TransformerOptions, "heads", "1_0", "give a whole number from 1 to 256"),
        (TransformerOptions, "heads", True, "give a whole number from 1 to 256"),
        (TrainOptions, "batch", 2.5, "give a whole number of at least 1"),
        (TrainOptions, "learning_rate", 0, "give a number above 0 and up to 1,000"),
        (TrainOptions, "learning_rate", "nan", "give a number above 0 and up to 1,000"),
        (TrainOptions, "seed", -1, "give a whole number of at least 0"),
        (TrainOptions, "seed", 2**64, "give a whole number from 0 to 9,223,372,036,854,775,807"),
        (CalibrationOptions, "off_line_bias", 0, "give a number below 0"),
        (CalibrationOptions, "layer", "middle", "give own, first or last"),
        (EvaluateOptions, "greedy", "often", "give true or false"),
    ):
        with pytest.raises(UsageError, match=f"^{name} = {value!r}: {rule}"):
            build(kind, **{name: value})


WRONG: list[tuple[str, tuple[object, ...], dict[str, object], str]] = [
    ("heatmap", (None, "figures"), {"format": 3}, "format = 3: give a list"),
    ("heatmap", (None, "figures"), {"format": ["png", 3]}, "format = 3: give pdf, svg or png"),
    ("evaluate", (), {"lengths": 3}, "lengths = 3: give a list"),
    ("evaluate", (), {"stpes": 3}, "unknown option 'stpes': choose among max_len"),
    ("train", (3,), {}, "3 is not a task: give its name"),
    ("train", ("addition",), {"stpes": 20}, "unknown option 'stpes': did you mean steps"),
    ("train", ("addition",), {"steps": 0}, "steps = 0: give a whole number of at least 1"),
    ("train", ("addition",), {"batch": "x"}, "batch = 'x': give a whole number"),
    ("train", ("addition",), {"embedding": 8}, "embedding = 8: an option of gru, not of transf"),
    ("check_task", ("addition",), {"base": 1}, "base = 1: give a whole number from 2 to 36"),
]


@pytest.mark.parametrize(("name", "args", "keywords", "words"), WRONG)
def test_a_wrong_option_in_python_is_refused_in_a_line(runs_root, name, args, keywords, words):
    with pytest.raises(UsageError, match=words):
        getattr(abc_calib, name)(*args, **keywords)
    assert not runs_root.exists()


def test_groups_and_keywords_are_the_same_options(make_config):
    """Each is read once: what a group holds is taken as it is."""
    config = make_config("addition")
    groups = CalibrationOptions(fit="nnls", threshold="0.3", dirs="anti"), TrainOptions(steps="7")
    planned = plan_calibration(config, *groups)
    assert planned == plan_calibration(config, fit="nnls", threshold=0.3, dirs=["anti"], steps=7)
    assert planned.train.steps == 7 and planned.train.learning_rate == RETRAIN.learning_rate
    assert planned.calibration is groups[0]
    left = {"steps": "5", "colour": "red", "batch": None}
    assert take(TrainOptions, left).chosen == {"steps": 5} and left == {"colour": "red"}


def test_the_fit_of_rows_refuses_what_has_no_effect_on_it(make_config):
    config = make_config("long_multiplication")
    with pytest.raises(OptionError, match="layer = 'last': the fit rows has no such choice"):
        plan_calibration(config, layer="last")


def test_a_configuration_comes_back_from_its_file(make_config, tmp_path):
    config = make_config("addition", model={"dropout": 0.1}, seed=7, sampling="carry")
    calibration = CalibrationOptions(dirs=("anti", "vert"), threshold=0.25)
    config = config.model_copy(update={"calibration": calibration})
    path = tmp_path / "config.json"
    path.write_text(config.model_dump_json(indent=2))
    assert load_config(path) == config
    assert config.format_version == FORMAT_VERSION


def test_options_that_went_are_dropped_where_they_were_unset(make_config, tmp_path):
    """A run of an earlier version, and one that had a scheme for its decoder alone."""
    config, path = make_config("addition"), tmp_path / "config.json"
    data = json.loads(config.model_dump_json())
    data["model"] |= dict.fromkeys(("encoder_scheme", "decoder_scheme", "cross_scheme"))
    path.write_text(json.dumps(data))
    assert load_config(path) == config
    data["model"]["decoder_scheme"] = "t5"
    path.write_text(json.dumps(data))
    with pytest.raises(AbcError, match=r"is not valid \(unknown option .*decoder_scheme"):
        load_config(path)


def test_a_saved_model_of_an_earlier_version_is_opened_unless_its_sites_differ():
    """Committed models have ``own_schemes`` without a value; with one they would be others."""
    run = Run.open(ROOT / "reports" / "zoo" / "addition")
    model = run.load_model()
    saved = json.loads((run.path / "model" / "config.json").read_text())
    assert "own_schemes" in saved and saved["own_schemes"] is None
    with pytest.raises(UsageError, match="position schemes of their own: train again"):
        type(model).from_hub_config(saved | {"own_schemes": {"cross": "t5"}})
    assert type(model).from_hub_config(saved).lines == model.lines


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
    commands: Any = typer.main.get_command(app)
    options = {p.name: p for p in commands.commands["train"].params}
    assert options["width"].help == "Model width; by default 64, gru: 128."
    assert options["attention_window"].opts == ["--attention-window"]
    assert options["length"].opts == ["--digits"]
    assert options["stop_early"].secondary_opts == ["--no-stop-early"]
    assert options["schedule"].metavar == "<str>"
    again = {p.name: p for p in commands.commands["calibrate"].params}
    assert again["steps"].help == "Most optimiser steps; by default 2000."
    assert again["seed"].help.endswith("; by default as in the first training.")


def test_the_package_names_what_it_offers_and_loads_it_when_asked():
    names = re.findall(r" as (\w+)$", STUB.read_text(), re.MULTILINE)
    assert sorted(abc_calib.__all__) == sorted(names)
    for name in abc_calib.__all__:
        assert name in dir(abc_calib)
        assert getattr(abc_calib, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        _ = abc_calib.colour


def test_results_show_themselves_in_a_notebook():
    from abc_calib import Certificate, Line, LineBias

    bias = LineBias({"cross": (((Line("anti", 1, 2),), ()),)})
    assert repr(bias) == "LineBias(cross: 1 line (1 different) in 2 heads)"
    found = Certificate("refuted", "3 < 4 windows", "addition", 10, 6, "none", "")
    found.counterexamples = [{"problem": "1+1", "answer": "3", "right": "2"}]
    assert repr(found) == "Certificate(refuted: addition in base 10, 3 < 4 windows)"
    shown = found._repr_html_()
    assert "<b>refuted</b>: 3 &lt; 4 windows" in shown
    assert "<code>1+1</code> gives <code>3</code>" in shown
