"""The shape of an external model of ``transformers``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from abc_calib.config.model import ModelOptions
from abc_calib.config.options import Options, Word, option
from abc_calib.errors import UsageError


class ForeignOptions(ModelOptions):
    """A class of ``transformers`` and its configuration.

    ``scheme``: ``own`` for the positions that the class has, ``none`` for a model without.
    ``prefix`` and ``suffix``: token ids that its tokenizer puts around each source. ``closed``: is
    the first of the suffix what closes the source, and the last delimiter not?
    """

    group_title: ClassVar[str] = "foreign"

    folder: str = option("", "Where it came from, with its tokenizer.")
    architecture: Word = option("", "The class.")
    config: dict[str, Any] = option({}, "Its configuration.")
    scheme: Word = option("own", "Its positions.")
    prefix: tuple[int, ...] = option((), "Ids before each source.")
    suffix: tuple[int, ...] = option((), "Ids behind each source.")
    closed: bool = option(False, "Does the suffix close the source?")

    @property
    def heads(self) -> int:
        """Attention heads of a layer, under whichever name the class has them."""
        names = ("decoder_attention_heads", "num_attention_heads", "num_heads", "n_head")
        return next(int(self.config[name]) for name in names if self.config.get(name))

    @property
    def label(self) -> str:
        return self.architecture


Text = Annotated[str, Field(min_length=1, max_length=4096)]


class AdoptOptions(Options):
    """A model of ``transformers`` in a folder, and pairs of what it reads and writes."""

    group_title: ClassVar[str] = "a foreign model"
    help_panel: ClassVar[str] = "A model of transformers"

    hf: Text | None = option(
        None, "A folder that save_pretrained wrote, the model's and its tokenizer's."
    )
    data: Text | None = option(None, "Its pairs: JSON lines of source and target.")
    delimiters: Text | None = option(
        None,
        "Tokens that end the parts of a source, in their order, with commas between, as in +,=.",
    )
    task: Word | None = option(
        None, "The rule that the pairs have to follow, such as addition, or 'addition zeros'."
    )

    @property
    def is_given(self) -> bool:
        """Is a model named? ``UsageError`` for options that do not go together."""
        names = {name for name, value in self if value is not None}
        missing = [name for name in ("hf", "data", "delimiters") if name not in names]
        if names and missing:
            raise UsageError(f"--{missing[0]} is missing: give --hf, --data and --delimiters")
        return bool(names)
