"""From options to the configuration of a calibration and its retraining, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abc_calib import plugins
from abc_calib.calibration.fits import fit_type
from abc_calib.config import (
    PRESETS,
    CalibrationOptions,
    Options,
    RetrainedOptions,
    RunConfig,
    TrainOptions,
    refuse_unknown,
    take,
)
from abc_calib.errors import OptionError, UsageError
from abc_calib.memory import check_samples
from abc_calib.nn.build import model_type
from abc_calib.runs import Run
from abc_calib.training.plan import check_config
from abc_calib.training.recipes import Recipe, recipe_of
from abc_calib.version import __version__


def retrained_shape(
    options: Any, scheme: str = "none", sizes: Mapping[str, int] | None = None
) -> Any:
    """The model that is trained with the lines: other positions and ``sizes``, no window."""
    changed = {
        **(sizes or {}),
        "scheme": scheme,
        "attention_window": None,
        "cyclic": None if scheme == "none" else getattr(options, "cyclic", None),
    }
    update = {name: changed[name] for name in changed if name in type(options).model_fields}
    return options.model_copy(update=update)


def narrow_widths(config: RunConfig, recipe: Recipe, scheme: str) -> Mapping[str, int]:
    """The widths of a recipe's retrained model; empty if the first model's are to be kept.

    The first model's are kept where the retrained one has positions, or has too many heads.
    """
    width = recipe.retrained.get("width", 0)
    shape: Any = config.model
    if scheme != "none" or not 0 < width < shape.width or width % shape.heads:
        return {}
    return recipe.retrained


def depth(config: RunConfig, decoder_layers: int | None) -> dict[str, int]:
    """The decoder layers that were asked for; ``OptionError`` if the first model has fewer."""
    if decoder_layers is None:
        return {}
    most = getattr(config.model, "decoder_layers", 0)
    if decoder_layers > most:
        raise OptionError("decoder_layers", decoder_layers, f"the first model has {most}")
    return {"decoder_layers": decoder_layers}


def resolve_defaults(options: CalibrationOptions) -> CalibrationOptions:
    """The same with the fit's own choice wherever nothing was asked for."""
    return fit_type(options.fit).resolved(options)


def check_sites(options: CalibrationOptions, config: RunConfig) -> None:
    """``OptionError`` for an option by site without one of the sites at which lines are put."""
    if options.attention == "raw" and config.kind not in ("transformer", "decoder"):
        rule = "the scores of this model are not read; choose weights"
        raise OptionError("attention", "raw", rule)
    layers = {"encoder": getattr(config.model, "encoder_layers", 1)}
    sites = [site for site in options.sites if layers.get(site, 1)]
    for name, value in (("threshold", options.threshold), ("dirs", options.dirs)):
        missing = [site for site in sites if isinstance(value, dict) and site not in value]
        if missing:
            rule = f"{missing[0]} is not named; name {', '.join(sites)}, or choose fewer sites"
            raise OptionError(name, value, rule)


def plan_calibration(config: RunConfig, *groups: Options, **keywords: Any) -> RunConfig:
    """Return the configuration of calibrating a run of ``config``, checked; write nothing.

    ``groups``: options of the calibration, the retraining and the retrained model, which
    ``keywords`` may name, too.
    """
    model_class = model_type(config.kind)
    if model_class.no_lines:
        raise UsageError(f"no lines can be put into this model: {model_class.no_lines}")
    data = Run.draft(config).data
    options = take(CalibrationOptions, keywords, groups)
    chosen = take(TrainOptions, keywords, groups)
    shape_options = take(RetrainedOptions, keywords, groups)
    refuse_unknown(keywords, CalibrationOptions, TrainOptions, RetrainedOptions)
    if data.fit and "fit" not in options.model_fields_set:
        options = options.model_copy(update={"fit": data.fit})
    resolve_defaults(options)
    check_sites(options, config)
    preset = config.preset if config.preset in PRESETS else "default"  # of an earlier version
    recipe = recipe_of(data.task, preset, config.kind, {})
    widths = shape_options.widths or narrow_widths(config, recipe, shape_options.scheme)
    sizes = {**widths, **depth(config, shape_options.decoder_layers)}
    retrained = retrained_shape(config.model, shape_options.scheme, sizes)
    shape = model_class.resolve_defaults(retrained, data)
    kept = {name: getattr(config.train, name) for name in ("sampling", "length", "format", "seed")}
    if kept["sampling"] == "few":
        kept["sampling"] = "uniform"  # of all symbols
    training = recipe.retraining.model_copy(update=kept | chosen.chosen)
    if (training.length, training.format) != (config.train.length, config.train.format):
        raise UsageError(
            f"a retraining has the length {config.train.length} and the format "
            f"{config.train.format} of the first training: leave them out"
        )
    planned = config.model_copy(
        update={
            "code_version": __version__,
            "stage": "calibrated",
            "model": shape,
            "train": training,
            "calibration": options,
            "plugins": plugins.origins(shape.schemes, config.task),
        }
    )
    check_samples(3 * options.samples, training.length)
    larger = training.batch > recipe.retraining.batch
    check_config(planned, Run.draft(planned).data, memory=larger)
    return planned
