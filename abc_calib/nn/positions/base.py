"""The contract of a position scheme, and where an attention call stands."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.geometry.lines import SITES, Site


@dataclass(frozen=True)
class Shape:
    """The model that a scheme is for: its width, heads, and sites that have any layer."""

    width: int
    heads: int
    sites: tuple[Site, ...] = SITES

    @property
    def head_width(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class Places:
    """Where the rows and keys of one attention call stand.

    ``rows (i,)`` and ``keys (j,)`` are positions, counted from 0: those of cross-attention are
    not square, and those of a cached step do not begin at 0. Where they differ from sample to
    sample (cyclic positions of a source), they are ``(b, i)`` and ``(b, j)``. ``lengths (b|1,)``
    are the tokens of each source without its padding.
    """

    site: Site
    rows: Tensor
    keys: Tensor
    lengths: Tensor

    def offsets(self) -> Tensor:
        """How far each key stands behind its row, ``j - i``: ``(b|1, 1, i, j)``."""
        keys, rows = torch.atleast_2d(self.keys), torch.atleast_2d(self.rows)
        return (keys[:, None] - rows[:, :, None])[:, None]


@dataclass(frozen=True)
class Coordinates:
    """Where tokens stand in their part, ``(b, i)`` each; see ``abc_calib.geometry.layout``.

    ``part``: of a source from 1 on, a delimiter belonging to what it closes; of an output 0.
    ``column``: of a source counted from the last token of its part (of words from the first), -1
    for a delimiter; of an output the column that is written next, so that what is read there stands
    in the one before it. ``row``: of the output, 0 in a source. ``start``: what ``Scheme.starts``
    drew for the source.
    """

    part: Tensor
    column: Tensor
    row: Tensor
    start: Tensor | None = None


class Scheme(nn.Module):
    """No positions at all (NoPE): the base of every scheme.

    One scheme serves all layers of a model. One with learned parameters makes them in
    ``__init__`` and fills them in ``reset_parameters``, with functions of ``torch.nn.init`` on
    whole parameters: ``from_pretrained`` has those leave alone what it has loaded. Buffers that
    are not persistent do not survive it, so that constants are computed where they are used.
    """

    #: the options that may follow the scheme's name; fields with defaults
    options_type: type[Options] = Options
    #: whether an attention score may depend on an absolute position, without bound
    absolute = False
    #: whether it counts columns, by the coordinates that ``embed`` gets, and not positions
    by_columns = False
    #: whether ``score_bias`` returns anything
    has_score_bias = False
    #: whether ``value_term`` does
    has_value_term = False

    def __init__(self, shape: Shape, options: Options):
        super().__init__()
        self.shape = shape

    def reset_parameters(self) -> None:
        """Fill the learned parameters, if there are any."""

    def renumber(self, positions: Tensor, lengths: Tensor) -> Tensor:
        """The positions that ``embed`` is to see for ``positions (i,)`` or ``(b, i)``.

        ``lengths (b|1,)`` are the tokens of each source.
        """
        return positions

    def starts(self, at: Coordinates) -> Tensor | None:
        """What is drawn for each source, ``(b, ...)``, and holds for its output too."""
        return None

    def embed(self, x: Tensor, positions: Tensor, at: Coordinates | None = None) -> Tensor:
        """Change the embeddings ``x (b, i, d)`` at ``positions (i,)`` or ``(b, i)``.

        A model says by ``at`` where the tokens stand in their parts.
        """
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Change queries or keys ``x (b, h, i, e)`` at ``positions (i,)`` or ``(b, i)``."""
        return x

    def score_bias(self, queries: Tensor, keys: Tensor, places: Places) -> Tensor | None:
        """Added to the scores, ``(b|1, h, i, j)``; None where a site has no bias.

        From queries ``(b, h, i, e)`` and keys ``(b, h, j, e)`` after ``rotate``. Scores are
        already divided by the root of ``e``: a term of the dot product divides by it here.
        """
        return None

    def value_term(self, weights: Tensor, places: Places) -> Tensor:
        """Added to the mixed values ``(b, h, i, e)``, from the weights ``(b, h, i, j)``."""
        raise NotImplementedError(f"{type(self).__name__} has no value term")
