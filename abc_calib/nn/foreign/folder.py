"""A folder of an external model: its class, its configuration and its weights."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from abc_calib.config import ForeignOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import LineBias
from abc_calib.nn.foreign.attention import RECORD, register
from abc_calib.nn.foreign.sites import DEPTHS, explain

NOT_SHAPE = {RECORD, "attn_implementation", "_name_or_path", "transformers_version", "dtype"}
NOT_SHAPE |= {"torch_dtype"}
"""Entries of a configuration that do not shape a model."""
END = "eos_token_id"
LFS = b"version https://git-lfs"


@dataclass(frozen=True)
class Found:
    """A model as it was loaded, and what shapes another of its kind. ``ends``: its outputs, each.

    ``lines``: that it was saved with.
    """

    network: Any
    options: ForeignOptions
    ends: tuple[int, ...]
    lines: LineBias | None = None


def load(folder: Path | str, lined: bool = False) -> Found:
    """The model in a folder that ``save_pretrained`` wrote; ``UsageError`` if it is none.

    ``lined``: may it have lines already?
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise UsageError(f"{path} has no config.json: name a folder that save_pretrained wrote")
    try:
        described = json.loads((path / "config.json").read_text())
        name = (described.get("architectures") or [""])[0]
    except (OSError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(f"{path / 'config.json'} is not a configuration ({error})") from None
    kind: Any = getattr(transformers, str(name), None)
    if not hasattr(kind, "from_pretrained") or not name:
        raise UsageError(
            f"{path} is a {name or 'model without a class'}, which transformers "
            f"{transformers.__version__} does not have: save the model with save_pretrained"
        )
    if not kind.can_generate():
        raise UsageError(f"{path} is a {name}, which writes nothing: give a model that generates")
    if (path / "adapter_config.json").exists() or described.get("quantization_config"):
        raise UsageError(
            f"{path} holds an adapter or quantised weights: save the whole model in float32, with "
            "merge_and_unload() or dequantize() first"
        )
    for file in path.glob("*.safetensors"):
        with file.open("rb") as opened:
            if opened.read(len(LFS)) == LFS:
                raise UsageError(
                    f"{file} is a pointer of Git LFS, not the weights: fetch them with git lfs pull"
                )
    check_size(path, described)
    register()
    try:
        network = kind.from_pretrained(path, local_files_only=True, use_safetensors=True)
    except Exception as error:  # whatever its code raises
        raise UsageError(f"{path} does not load ({explain(error)}): save the model again") from None
    record = getattr(network.config, RECORD, None)
    if record and not lined:
        raise UsageError(f"{path} has lines already: give the model that it was made from")
    ends, options = ends_of(network, path), described_by(network, path)
    if not record:
        return Found(network.float().eval(), options, ends)
    try:
        lines = LineBias.from_dict(record["lines"])
        for token in (*record["delimiters"], record["prefix"]):
            operator.index(token)
        options = options.model_copy(update={"scheme": "none" if record["neutral"] else "own"})
    except (AbcError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} has lines that nothing can read ({explain(error)})") from None
    return Found(network.float().eval(), options, ends, lines)


def check_size(path: Path, described: dict[str, Any]) -> None:
    """``UsageError`` for more layers than the files of the weights have tensors."""
    tensors = 0
    try:
        for file in path.glob("*.safetensors"):
            with safe_open(file, "pt") as opened:
                tensors += len(opened.keys())
    except (OSError, SafetensorError):  # loading says what is wrong with it
        return
    layers = max([0, *(n for name in DEPTHS if isinstance(n := described.get(name), int))])
    if tensors and layers > tensors:
        raise UsageError(
            f"{path / 'config.json'} describes a model of {layers:,} layers, and the weights in "
            f"its folder are {tensors:,} tensors: give the configuration that they were saved with"
        )


def described_by(network: Any, folder: Path) -> ForeignOptions:
    """The class and configuration of a model; ``folder``: of its tokenizer."""
    config = {k: v for k, v in network.config.to_dict().items() if k not in NOT_SHAPE}
    plain = json.loads(json.dumps(config, default=str))
    return ForeignOptions(
        folder=str(folder.resolve()), architecture=type(network).__name__, config=plain
    )


def ends_of(network: Any, folder: Path) -> tuple[int, ...]:
    """The ids each of which ends an output; ``UsageError`` if nothing says which."""
    for config in (network.generation_config, network.config):
        value = getattr(config, END, None)
        ends = tuple(value) if isinstance(value, list) else (value,)
        if all(isinstance(end, int) for end in ends) and ends:
            return ends
    raise UsageError(
        f"nothing in {folder} says which token ends an output: set model.config.{END} and save it"
    )
