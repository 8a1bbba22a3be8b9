"""A folder of a model of ``transformers``: its class, configuration, weights and lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from abc_calib.config import ForeignOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias
from abc_calib.nn.base import not_finite
from abc_calib.nn.foreign.attention import RECORD, Marks, register
from abc_calib.nn.foreign.inject import put, record_of
from abc_calib.nn.foreign.sites import explain, find_sites, in_one_line
from tasks.written import squeezed

NOT_SHAPE = {RECORD, "attn_implementation", "_name_or_path", "transformers_version", "dtype"}
NOT_SHAPE |= {"torch_dtype"}
"""Entries of a configuration that do not shape a model."""
END = "eos_token_id"
LFS = b"version https://git-lfs"


def load(folder: Path | str) -> Any:
    """The model of ``transformers`` in a folder, with the lines that it was saved with.

    In evaluation mode. ``UsageError`` for a folder without a model, or one without lines.
    """
    network, _ = read_model(folder)
    if record_of(network) is None:
        raise UsageError(f"{folder} has no lines: load it with from_pretrained")
    return network


def read_model(folder: Path | str) -> tuple[Any, ForeignOptions]:
    """The model in a folder that ``save_pretrained`` wrote, its lines in place, and its shape.

    ``UsageError`` for a folder without a model.
    """
    path = Path(folder)
    kind = class_of(path)
    register()
    with in_one_line(f"{path} does not load", "save the whole model again, in float32"):
        network = kind.from_pretrained(path, local_files_only=True, use_safetensors=True)
    network, scheme = network.float().eval(), "own"
    if name := not_finite(dict(network.named_parameters())):
        raise UsageError(f"{path} is damaged ({name} is not finite): save the model again")
    config = {k: v for k, v in network.config.to_dict().items() if k not in NOT_SHAPE}
    if record := record_of(network):
        with in_one_line(f"{path} has lines that nothing can read", "calibrate its model again"):
            lines, delimiters = LineBias.from_dict(record["lines"]), map(int, record["delimiters"])
            marks = Marks((*delimiters,), 0 + record["prefix"])
            put(network, lines, marks, find_sites(network), record["neutral"])
            scheme = "none" if record["neutral"] else "own"
    return network, ForeignOptions(
        folder=str(path.resolve()),
        architecture=type(network).__name__,
        config=json.loads(json.dumps(config, default=str)),
        scheme=scheme,
    )


def class_of(path: Path) -> Any:
    """The class of the model in a folder; ``UsageError`` if it cannot be taken."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = path / "config.json"
    if not config.is_file():
        raise UsageError(f"{path} has no config.json: name a folder that save_pretrained wrote")
    if (path / "adapter_config.json").exists():
        raise UsageError(f"{path} holds an adapter: save the whole model, with merge_and_unload()")
    for file in (*path.glob("*.safetensors"), *path.glob("*.json")):
        with file.open("rb") as opened:
            if opened.read(len(LFS)) == LFS:
                raise UsageError(
                    f"{file} is a pointer of Git LFS, not the file: fetch it with git lfs pull"
                )
    with in_one_line(f"{config} is not a configuration", "save the model again"):
        name = (json.loads(config.read_text()).get("architectures") or [""])[0]
    kind: Any = getattr(transformers, name or "none", None)
    if name.startswith("Abc"):
        raise UsageError(f"{path} holds a model of this program: name its run, without --hf")
    if not hasattr(kind, "from_pretrained"):
        raise UsageError(
            f"{path} is a {name or 'model without a class'}, which transformers "
            f"{transformers.__version__} does not have: save the model with save_pretrained"
        )
    if not kind.can_generate():
        raise UsageError(f"{path} is a {name}, which writes nothing: give a model that generates")
    return kind


def ends_of(network: Any, folder: Path) -> tuple[int, ...]:
    """The ids each of which ends an output; ``UsageError`` if nothing says which."""
    size = network.get_input_embeddings().num_embeddings
    for config in (network.generation_config, network.config):
        value = getattr(config, END, None)
        ends = tuple(value) if isinstance(value, list) else (value,)
        if all(isinstance(end, int) for end in ends) and ends:
            if not 0 <= min(ends) <= max(ends) < size:
                raise UsageError(
                    f"{folder} ends outputs with the tokens {ends}, and its model has {size}: set "
                    f"{END} in model.generation_config and model.config, and save it"
                )
            return ends
    raise UsageError(
        f"nothing in {folder} says which token ends an output: set model.config.{END} and save it"
    )


class LoadedFolder:
    """A model as its users load it, with its own tokenizer and settings; from texts to texts.

    ``UsageError`` for a folder that does not load.
    """

    def __init__(self, path: Path):
        self.network, _ = read_model(path)
        self.ends = torch.tensor(ends_of(self.network, path))
        from transformers import AutoTokenizer

        with in_one_line(f"the tokenizer in {path} does not load", "save it again"):
            self.words: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)

    def answers(self, texts: Sequence[str], steps: int, most: int) -> list[str | None]:
        """What ``generate()`` writes for each source, without spaces; None if it writes no end.

        At most ``steps`` tokens, or fewer if the folder's settings say so. Sources of one length
        are run together, without padding, but at most ``most`` of them.
        """
        read = [self.words(text) for text in texts]
        sizes = [len(encoding["input_ids"]) for encoding in read]
        outputs: dict[int, str | None] = {}
        for size in {*sizes}:
            rows = [row for row, count in enumerate(sizes) if count == size]
            for first in range(0, len(rows), most):
                group = rows[first : first + most]
                outputs |= zip(group, self._written([read[k] for k in group], steps), strict=True)
        return [outputs[row] for row in range(len(texts))]

    @torch.inference_mode()
    def _written(self, read: Sequence[Any], steps: int) -> list[str | None]:
        names = [name for name in ("input_ids", "attention_mask") if name in read[0]]
        inputs = {name: torch.tensor([encoding[name] for encoding in read]) for name in names}
        limit, begun = self.network.generation_config, inputs["input_ids"].shape[1]
        begun = 1 if self.network.config.is_encoder_decoder else begun
        allowed = limit.max_new_tokens or (limit.max_length - begun if limit.max_length else steps)
        try:
            written = self.network.generate(**inputs, max_new_tokens=min(allowed, steps))
        except Exception as error:  # whatever its code raises
            return [f"an error: {explain(error)}"] * len(read)
        written = written[:, begun:]
        ended = torch.isin(written, self.ends).any(1).tolist()
        texts = (squeezed(self.words.decode(ids, skip_special_tokens=True)) for ids in written)
        return [text if end else None for text, end in zip(texts, ended, strict=True)]
