"""The options of verbs as type checkers see them: made by ``docs/make_api.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict


class Shared0(TypedDict, total=False):
    """Of ``calibrate`` and ``certified`` and ``train``."""

    steps: int | None
    batch: int | None
    learning_rate: float | None
    optimizer: Literal["adam", "muon"] | None
    warmup: int | None
    validate_every: int | None
    stop_early: bool | None
    cooldown: int | None
    sampling: str | None
    dev: Literal["same", "longer"] | None
    early_stop_at: float | None
    early_stop_after: int | None
    patience: int | None
    halvings: int | None
    schedule: Literal["cosine", "plateau"] | None
    keep_best: bool | None
    monitor: Literal["accuracy", "loss"] | None
    max_grad_norm: float | None
    teacher_forcing: float | None


class Shared1(TypedDict, total=False):
    """Of ``certified`` and ``check_task`` and ``train``."""

    tables: int | None
    tables_seed: int | None
    data: str | None
    table: str | None
    machine: str | None
    rule: str | None


class Shared2(TypedDict, total=False):
    """Of ``certified`` and ``train``."""

    model: str | None
    epochs: int | None
    length: int | None
    format: str | None
    decoder_layers: int | None
    heads: int | None
    width: int | None
    feedforward: int | None
    dropout: float | None
    scheme: str | type | None
    encoder_layers: int | None
    encoder_scheme: str | type | None
    decoder_scheme: str | type | None
    cross_scheme: str | type | None
    post_norm: bool | None
    cyclic: int | None
    attention_window: int | None
    backbone: str | None
    attender: str | None
    embedding: int | None
    d_head: int | None
    value: int | None
    layers: int | None
    legacy_normalisation: bool | None


class Shared3(TypedDict, total=False):
    """Of ``heatmap`` and ``heatmap_figures``."""

    digits: int | None
    input: str | None
    layer: int | None
    head: int | None
    panel: Literal["attention", "fit", "bias"] | None
    title: bool | None


class CalibrateKeywords(Shared0, total=False):
    """Of ``calibrate``."""

    fit: str | None
    dirs: Sequence[Literal["diag", "anti", "vert"]] | str | dict | None
    threshold: float | dict | None
    samples: int | None
    layer: Literal["own", "first", "last"] | None
    sites: Sequence[Literal["encoder", "self", "cross"]] | str | None
    anchors: Literal["segment", "corner"] | None
    average: Literal["all", "digits", "sum"] | None
    attention: Literal["weights", "raw"] | None
    off_line_bias: float | None
    values: Literal["hard", "soft"] | None
    empty: Literal["transparent", "sink"] | None
    seed: int | None


class CertifiedKeywords(Shared0, Shared1, Shared2, total=False):
    """Of ``certified``."""

    base: int | None
    preset: str | None


class CertifyKeywords(TypedDict, total=False):
    """Of ``certify``."""

    minutes: float | None


class CheckTaskKeywords(Shared1, total=False):
    """Of ``check_task``."""

    base: int | None


class CurvesKeywords(TypedDict, total=False):
    """Of ``curves``."""

    format: Sequence[Literal["pdf", "svg", "png"]] | str | None
    width: str | None
    font: Literal["serif", "sans", "latex"] | None


class EvaluateKeywords(TypedDict, total=False):
    """Of ``evaluate``."""

    max_len: int | None
    operands: Sequence[int] | str | None
    samples: int | None
    stress: Literal["hard", "carry"] | None
    set: str | None
    seed: int | None
    greedy: bool | None
    dense: bool | None


class HeatmapKeywords(Shared3, total=False):
    """Of ``heatmap``."""

    format: Sequence[Literal["pdf", "svg", "png"]] | str | None
    sites: Sequence[Literal["encoder", "self", "cross"]] | str | None
    width: str | None
    font: Literal["serif", "sans", "latex"] | None


class HeatmapFiguresKeywords(Shared3, total=False):
    """Of ``heatmap_figures``."""

    sites: Sequence[Literal["encoder", "self", "cross"]] | str | None
    width: str | None
    font: Literal["serif", "sans", "latex"] | None


class StressKeywords(TypedDict, total=False):
    """Of ``stress``."""

    samples: int | None
    search: int | None
    seed: int | None
    dense: bool | None


class TrainKeywords(Shared0, Shared1, Shared2, total=False):
    """Of ``train``."""

    seed: int | None
