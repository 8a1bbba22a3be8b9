"""The contract of a model: what training, calibration, evaluation and certificates need of one.

A model is plain torch. Its kind is known in ``abc_calib.nn`` alone; elsewhere it is asked. What
makes it a ``transformers`` model is ``abc_calib.nn.hub``.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_calib.config import ModelOptions, build
from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.geometry.coords import AttentionView


@dataclass(frozen=True)
class Decoded:
    """What a model wrote: ``ids (b, t)``, filled up with padding where a row has ended.

    ``attention (b, t, s)``: over the tokens of the source, where each step has one such row, as
    with an attender, up to the last end; None where many heads look in many ways. ``carried``:
    what an attender left from each step to the next.
    """

    ids: Tensor
    attention: Tensor | None = None
    carried: list[dict[str, Tensor]] = field(default_factory=list)


@dataclass(frozen=True)
class AttentionWeights:
    """Attention of some samples: ``weights[site]`` has one ``(b, h, i, j)`` a layer.

    ``views[site]`` says where its queries and keys stand; ``rows[site]`` is ``(b, i)`` bool: the
    queries that are not padding.
    """

    weights: dict[Site, tuple[Tensor, ...]]
    views: dict[Site, AttentionView]
    rows: dict[Site, Tensor]


class Model(nn.Module):
    """Base of all models. Kinds are listed in ``abc_calib.nn.build.MODELS``.

    ``source (b, s)`` is ``$ ... &`` and padding, ``target (b, t)`` the answer, ``&``, padding.
    """

    #: the options of the kind, a group in ``abc_calib.config.MODEL_OPTIONS``
    options_type: ClassVar[type[ModelOptions]]
    #: ``model_type`` and class name of its ``transformers`` face
    hub_names: ClassVar[tuple[str, str]]
    #: its options in ``config.json``, by their names there
    hub_options: ClassVar[dict[str, str]] = {}
    #: what else may stand there
    hub_extras: ClassVar[tuple[str, ...]] = ()
    #: are source and output one stream, which each head looks at as a whole?
    stream: bool = False
    #: why no lines can be put into its attention; empty where they can
    no_lines: ClassVar[str] = ""
    #: does a certificate put windows into whole sources, as it does not compute its layers?
    in_whole_sources: ClassVar[bool] = False
    #: does it look at its source by an attender, whose steps can be shown?
    has_attender: ClassVar[bool] = False
    #: what it may be trained with: see ``abc_calib.training.step``
    optimizers: ClassVar[tuple[str, ...]] = ("adam",)
    #: SHA-256 of the file that its weights were read from; None where they are not from a file
    weights_sha256: str | None = None
    #: tokens of source and output that are decoded at once: what bounds the memory
    tokens_at_once: ClassVar[int] = 8192

    def __init__(self, options: Any, tokens: TokenIds):
        super().__init__()
        self.options, self.tokens = options, tokens
        self.pad, self.sos, self.eos = tokens.pad, tokens.sos, tokens.eos

    @classmethod
    def resolve_defaults(cls, options: Any, data: Data | None = None) -> Any:
        """``options`` with what follows from them; ``UsageError`` for what cannot be.

        ``data``: that the model is to read, where it is known.
        """
        return options

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @abstractmethod
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits ``(b, t, v)`` of each token of ``target``, the right ones before it given."""

    def loss(self, source: Tensor, target: Tensor, teacher_forcing: bool = True) -> Tensor:
        """Mean loss of a token. Without ``teacher_forcing`` a step may read the model's own."""
        return self.cross_entropy(self(source, target), target)

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean loss of the tokens that are not padding."""
        labels = target.masked_fill(target.eq(self.pad), -100)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def shifted(self, target: Tensor) -> Tensor:
        """What the decoder reads to write ``target``: SOS, then the target but its last token."""
        read = target.roll(1, dims=1)
        read[:, 0] = self.sos
        return read.masked_fill_(read.eq(-100), self.pad)

    @abstractmethod
    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        """Write greedily, at most ``steps`` tokens; with ``attention`` say what was looked at."""

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """The weights of every head while ``target`` is written; ``UsageError`` without heads."""
        raise UsageError(f"it has no attention heads: {self.no_lines}")

    def set_lines(self, lines: LineBias | None) -> None:
        """Attend along these lines from now on; ``UsageError`` if they do not fit."""
        if lines is not None:
            raise UsageError(f"it takes no lines: {self.no_lines}")

    @property
    def lines(self) -> LineBias | None:
        """The lines that it attends along."""
        return None

    def own_lines(self, data: Data) -> LineBias | None:
        """Lines that follow from its options, such as a window's; None without any."""
        return None

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """What it is trained with; the learning rate is set at each step."""

    @property
    def matrices(self) -> list[Tensor]:
        """The weights between embedding and output that Muon may train, if there are any."""
        return []

    @abstractmethod
    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        """Bytes that one pass over ``batch`` sources of ``keys`` tokens may take, roughly."""

    # Beside the weights

    def write_folder(self, folder: Path) -> bool:
        """Write its folder in a way of its own, and say so; all of ours are written alike."""
        return False

    def read_weights(self, weights: dict[str, Tensor]) -> bool:
        """Take weights of such a folder, and say so; ``AbcError`` if they are another model's."""
        return False

    def hub_config(self) -> dict[str, Any]:
        """Everything that shapes it, as plain data: ``config.json`` next to its weights."""
        values = {key: getattr(self.options, name) for key, name in self.hub_options.items()}
        return {"vocab_size": self.tokens.size, **values}

    @classmethod
    def from_hub_config(cls, config: Mapping[str, Any], **options: Any) -> Self:
        """A model of that shape; ``options``: those that are not in ``hub_options``."""
        values = {name: config[key] for key, name in cls.hub_options.items()}
        pad, sos, eos = (config[f"{name}_token_id"] for name in ("pad", "bos", "eos"))
        delimiters = tuple(config.get("delimiter_ids") or ())
        row = config.get("row_id")
        rows = () if row is None else (row,) if isinstance(row, int) else tuple(row)
        ids = TokenIds(config["vocab_size"], pad, sos, eos, delimiters, rows)
        return cls(build(cls.options_type, **values, **options), ids)


AnyModel = TypeVar("AnyModel", bound=Model)


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """The name of a tensor with a number that is not finite, if there is one."""
    return next((name for name, value in tensors.items() if not torch.isfinite(value).all()), "")


def in_float64(model: AnyModel) -> AnyModel:
    """A copy of a model in float64 and evaluation mode; one that is in float64 is its own."""
    if next(model.parameters()).dtype == torch.float64:
        return model
    twin = copy.deepcopy(model)
    return (twin.cpu() if model.device.type == "mps" else twin).double().eval()


def greedy(
    model: Model, source: Tensor, steps: int, write: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Write ``(b, steps)`` tokens greedily behind each source, and padding behind its end.

    ``write`` gives the logits ``(b, v)`` of a step behind the tokens ``(b,)`` of the one before.
    """
    tokens = source.new_full((len(source),), model.sos)
    ids = source.new_full((len(source), steps), model.pad)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    for step in range(steps):
        tokens = write(tokens, step).argmax(-1).masked_fill(ended, model.pad)
        ids[:, step] = tokens
        ended |= tokens.eq(model.eos)
        if bool(ended.all()):
            break
    return ids


def resolve_device(name: str, doubles: bool = False) -> torch.device:
    """``auto``, ``cpu``, ``cuda`` or ``mps`` as a device; ``UsageError`` if it is not there.

    ``auto`` never is mps, which has no float64; where ``doubles`` are needed mps is the CPU.
    """
    if name not in ("auto", "cpu", "cuda", "mps"):
        raise UsageError(f"unknown device {name!r}: choose auto, cpu, cuda or mps")
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(name, True):
        raise UsageError(f"device {name}: this torch sees no such device; choose auto or cpu")
    if name == "auto":
        name = "cuda" if available["cuda"] else "cpu"
    return torch.device("cpu" if doubles and name == "mps" else name)
