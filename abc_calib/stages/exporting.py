"""The lines of a run as arrays, for any other framework."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.errors import UsageError
from abc_calib.files import write_atomically
from abc_calib.runs import Run
from tasks import Size

FAR = 50
"""A length that arrays are made for besides the training length."""


def export_lines(
    run: Run | Path | str | None,
    lengths: Sequence[Size] | None = None,
    *,
    out: Path | str | None = None,
) -> Path:
    """Write the biases of a calibrated run into an npz file, one array a length, site and layer.

    ``lengths``: of the problems, one random problem of each; by default the training length and 50.
    Array ``50/cross/layer0``, float32 ``(heads, queries, keys)``, is what is added to the scores of
    that layer; its queries and keys are the tokens of ``50/source`` and ``50/read``, ids of
    ``tokens``. ``out``: a new file, by default ``lines.npz`` in the run's folder. Raises
    ``UsageError`` for a run without lines, and for a file that is there.
    """
    loaded = Run.open(run)
    loaded.check()
    bias, data, arrays = loaded.lines(), loaded.data, dict[str, Any]()
    path = Path(out) if out is not None else loaded.path / "lines.npz"
    if out is not None and path.exists():
        raise UsageError(f"{path} is there already: name a new file")
    for length in lengths or dict.fromkeys((data.size, data.sized(FAR))):
        name = "x".join(map(str, length)) if isinstance(length, tuple) else str(length)
        batch = data.test(length, 1)
        target = batch.target[0].numpy()
        read = np.concatenate([[data.vocabulary.sos], target[:-1]])
        closes = np.flatnonzero(np.isin(target, [*data.vocabulary.rows, data.vocabulary.eos]))
        rows = np.diff(closes, prepend=-1).tolist()
        arrays |= {f"{name}/source": batch.source[0].numpy(), f"{name}/read": read}
        for site, layers in bias.sites.items():
            for layer in range(len(layers)):
                array = bias.matrix(site, layer, data.layout(batch.problems), rows)
                arrays[f"{name}/{site}/layer{layer}"] = array
    arrays["tokens"] = np.array(data.vocabulary.symbols)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(path, write)
    return path
