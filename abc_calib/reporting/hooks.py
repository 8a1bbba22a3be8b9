"""The attention on one source, under the names that TransformerLens gives it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from abc_calib.errors import UsageError
from abc_calib.evaluation.predict import Answer, answered
from abc_calib.files import write_atomically
from abc_calib.geometry import Site
from abc_calib.nn.base import Attention, Model
from abc_calib.nn.build import model_type
from abc_calib.runs import Run

MOST = 1000
"""Tokens of source and output whose attention is kept."""
NAMES: dict[Site, str] = {
    "encoder": "encoder.{}.attn.hook_pattern",
    "self": "decoder.{}.attn.hook_pattern",
    "cross": "decoder.{}.cross_attn.hook_pattern",
}
IN_STREAM = "blocks.{}.attn.hook_pattern"


def with_heads(run: Run | Path | str | None) -> Run:
    """The run, if its model has heads; ``UsageError`` otherwise."""
    found = Run.open(run)
    if reason := model_type(found.config.kind).no_lines:
        raise UsageError(f"{found} has no heads to show ({reason}): abc inspect --input")
    return found


def watched(run: Run, model: Model, source: str) -> tuple[Answer, Attention]:
    """The attention while ``model`` answers ``source``; ``UsageError`` where it is too long."""
    batch = run.data.lay_out(run.data.task.parse(source))
    if batch.source.shape[1] + batch.target.shape[1] > MOST:
        raise UsageError(f"--input of {len(source)} characters: give a shorter source to draw")
    found = answered(model, run.data, source)
    with torch.inference_mode():
        return found, found.attention(model)


def patterns(run: Run | Path | str | None, source: str) -> dict[str, np.ndarray]:
    """Attention weights of a run on one source, under the hook names of TransformerLens.

    Each is ``(1, heads, rows, keys)``, float32. Of an encoder-decoder
    ``encoder.LAYER.attn.hook_pattern``, ``decoder.LAYER.attn.hook_pattern`` and
    ``decoder.LAYER.cross_attn.hook_pattern``. Of a decoder-only model
    ``blocks.LAYER.attn.hook_pattern``: its rows are those of the output, its keys the source, then
    the output. ``source`` and ``output`` hold the tokens; row i is the one that writes the
    output's token i, and key i of the output what is read there, the start before its first token.
    Raises ``UsageError`` for a model without heads, or a source that is no problem or too long.
    """
    found = with_heads(run)
    model = found.load_model()
    seen, attention = watched(found, model, source)
    sites = attention.weights
    arrays: dict[str, np.ndarray] = {}
    if model.stream:
        for i, (crossed, own) in enumerate(zip(sites["cross"], sites["self"], strict=True)):
            arrays[IN_STREAM.format(i)] = torch.cat([crossed, own], 3).float().numpy()
    else:
        for site, name in NAMES.items():
            for i, weights in enumerate(sites.get(site, ())):
                arrays[name.format(i)] = weights.float().numpy()
    arrays["source"] = np.array(seen.tokens(found.data))
    return {**arrays, "output": np.array(seen.symbols(found.data))}


def write_patterns(run: Run | Path | str | None, source: str, path: Path) -> list[str]:
    """Write ``patterns`` to a ``.npz`` file; gives the names of its weights."""
    if path.suffix != ".npz":
        raise UsageError(f"--out {path}: attention goes into an .npz file")
    arrays = patterns(run, source)
    write_atomically(path, lambda made: np.savez_compressed(made, **arrays))  # type: ignore[arg-type]
    return [name for name in arrays if name.endswith("hook_pattern")]
