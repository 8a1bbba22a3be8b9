"""From options to the configuration of a calibration and its retraining, checked."""

from __future__ import annotations

from typing import Any

from abc_calib import plugins
from abc_calib.calibration.fits import fit_type
from abc_calib.config import (
    CalibrationOptions,
    Options,
    RunConfig,
    TrainOptions,
    build,
    preset,
    refuse_unknown,
    take,
)
from abc_calib.errors import OptionError, UsageError
from abc_calib.evaluation.memory import check_samples, check_training
from abc_calib.nn.build import model_type
from abc_calib.runs import Run
from abc_calib.training.optimizers import check_optimizer
from abc_calib.training.own import check_own
from abc_calib.version import __version__

FEW_STEPS = 2000
"""Of fewer a retraining may cool down: a sum in base 10 has 948, a product 14,269."""


def retrained_shape(options: Any, scheme: str = "none") -> Any:
    """The model that is trained with the lines: the same, with other positions and no window."""
    changed = {
        "scheme": scheme,
        "attention_window": None,
        "cyclic": None if scheme == "none" else getattr(options, "cyclic", None),
    }
    update = {name: changed[name] for name in changed if name in type(options).model_fields}
    return options.model_copy(update=update)


def _is_soon_learned(task: Any) -> bool:
    """Whether the outputs of a task have rows and its rule has few steps."""
    rule = task.rule() if task.notation == "rows" else None
    parts = (rule.first, rule.later) if rule else ()
    return bool(parts) and all(len(part.steps[0]) < FEW_STEPS for part in parts if part)


def resolve_defaults(options: CalibrationOptions) -> CalibrationOptions:
    """The same with the fit's own choice wherever nothing was asked for."""
    values = {name: value for name, value in options.model_dump().items() if value is not None}
    return build(fit_type(options.fit).options_type, **values)


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


def plan_calibration(
    config: RunConfig, *groups: Options, scheme: str = "none", **keywords: Any
) -> RunConfig:
    """Return the configuration of calibrating a run of ``config``, checked; write nothing.

    ``groups``: options of the calibration and of the retraining, which ``keywords`` may name, too.
    """
    model_class = model_type(config.kind)
    if model_class.no_lines:
        raise UsageError(f"no lines can be put into this model: {model_class.no_lines}")
    data = Run.draft(config).data
    options = take(CalibrationOptions, keywords, groups)
    chosen = take(TrainOptions, keywords, groups)
    refuse_unknown(keywords, CalibrationOptions, TrainOptions)
    if data.fit and "fit" not in options.model_fields_set:
        options = options.model_copy(update={"fit": data.fit})
    resolve_defaults(options)
    check_sites(options, config)
    shape = model_class.resolve_defaults(retrained_shape(config.model, scheme), data)
    _, _, retraining = preset(config.preset, data.task.notation, _is_soon_learned(data.task))
    kept = {name: getattr(config.train, name) for name in ("sampling", "length", "format", "seed")}
    training = retraining.model_copy(update=kept | chosen.chosen)
    check_optimizer(model_class, training)
    if (training.length, training.format) != (config.train.length, config.train.format):
        raise UsageError("length and format of the retraining are those of the first training")
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
    check_own(planned, Run.draft(planned).data)
    if training.batch > retraining.batch:
        check_training(planned, Run.draft(planned).data)
    return planned
