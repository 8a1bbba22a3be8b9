"""Attention weights as images without axes: for trackers, and for what a notebook shows."""

from __future__ import annotations

import base64
import io

import numpy as np

WIDE, GAP = 160, 4
"""Pixels of a head, about, and between two heads."""
MOST_CELLS = 400
"""Rows and keys that are drawn; of more, the first."""


def heads_image(weights: np.ndarray) -> np.ndarray:
    """The heads ``(h, i, j)`` of a layer in a row, each on its own scale: RGB, ``uint8``.

    Queries go downwards and keys to the right; dark is nothing, bright the highest of the head.
    """
    from matplotlib import colormaps

    shown = np.nan_to_num(weights[:, :MOST_CELLS, :MOST_CELLS].astype(np.float64))
    scale = np.maximum(shown.max((1, 2), keepdims=True), 1e-12)
    colours = colormaps["viridis"](shown / scale, bytes=True)[..., :3]
    times = max(1, WIDE // max(shown.shape[1:]))
    large = colours.repeat(times, 1).repeat(times, 2)
    framed = np.pad(large, ((0, 0), (0, 0), (0, GAP), (0, 0)), constant_values=255)
    return np.concatenate(list(framed), 1)[:, :-GAP]


def as_html(pixels: np.ndarray) -> str:
    """An image as an element of HTML that needs no file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return f'<img src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
