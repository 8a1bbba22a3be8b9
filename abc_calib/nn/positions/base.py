"""The contract of a position scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.geometry.coords import AttentionView, Coords
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


class Scheme(nn.Module):
    """No positions at all (NoPE): the base of every scheme.

    One scheme serves all layers of a model. One with learned parameters makes them in
    ``__init__`` and fills them in ``reset_parameters``, with functions of ``torch.nn.init`` on
    whole parameters: ``from_pretrained`` has those leave alone what it has loaded. Buffers that
    are not persistent do not survive it, so that constants are computed where they are used.
    """

    #: the options that may follow the scheme's name; fields with defaults
    options_type: type[Options] = Options
    #: whether it counts columns, by the coordinates that ``embed`` gets, and not positions
    by_columns = False
    #: a scheme of one's own has one of these methods at least
    either: ClassVar[tuple[str, ...]] = ("embed", "rotate", "score_bias", "renumber")

    def __init__(self, shape: Shape, options: Options):
        super().__init__()
        self.shape = shape

    @property
    def has_score_bias(self) -> bool:
        """Does it add to the scores?"""
        return type(self).score_bias is not Scheme.score_bias

    def reset_parameters(self) -> None:
        """Fill the learned parameters, if there are any."""

    def renumber(self, places: Tensor, lengths: Tensor) -> Tensor:
        """What ``embed`` is to see for ``places (b|1, i)``, alike.

        ``lengths (b|1, 1)`` are the tokens of each source.
        """
        return places

    def starts(self, at: Coords) -> Tensor | None:
        """What is drawn for each source, ``(b, ...)``, and holds for its output too."""
        return None

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        """Change the embeddings ``x (b, i, d)`` of tokens that stand ``at`` these coordinates."""
        return x

    def rotate(self, x: Tensor, at: Coords) -> Tensor:
        """Change queries or keys ``x (b, h, i, e)``."""
        return x

    def score_bias(self, queries: Tensor, keys: Tensor, view: AttentionView) -> Tensor | None:
        """Added to the scores, ``(b|1, h, i, j)``; None where a site has no bias.

        From queries ``(b, h, i, e)`` and keys ``(b, h, j, e)`` after ``rotate``. Scores are
        already divided by the root of ``e``: a term of the dot product divides by it here.
        """
        return None
