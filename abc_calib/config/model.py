"""The shapes of the models, one group of options a kind."""

from __future__ import annotations

from typing import ClassVar

from abc_calib.config.options import Options, Word, option

SCHEME = (
    "Positions: sinusoidal, none, learned, randomized, alibi, rope, rpe, t5, xl, coupled, "
    "abacus or fire; options behind a colon, such as rpe:clip=8 or learned:size=64."
)


class ModelOptions(Options):
    """Base of the options of all kinds of models."""

    @property
    def label(self) -> str:
        """What distinguishes models of the kind, for names and tables."""
        return ""

    @property
    def schemes(self) -> tuple[str, ...]:
        """The position schemes that it names, with their options."""
        return ()


class StackOptions(ModelOptions):
    """What both kinds of Transformers have."""

    help_panel: ClassVar[str] = "Transformer"

    decoder_layers: int = option(3, "Decoder layers.", ge=1, le=64)
    heads: int = option(8, "Attention heads.", ge=1, le=256)
    width: int = option(64, "Model width.", ge=2, le=16384)
    feedforward: int = option(256, "Feed-forward width.", ge=1, le=65536)
    dropout: float = option(0.0, "Dropout.", ge=0, lt=1)
    scheme: Word = option("sinusoidal", SCHEME)

    @property
    def schemes(self) -> tuple[str, ...]:
        return (self.scheme,)


class TransformerOptions(StackOptions):
    """The shape of the Transformer.

    ``cyclic``: positions modulo this, from a random phase on in training. ``attention_window``:
    attention only to this number of keys on each side of the line that an answer is read along
    (paper, appendix A.4).
    """

    group_title: ClassVar[str] = "transformer"
    removed: ClassVar[tuple[str, ...]] = ("encoder_scheme", "decoder_scheme", "cross_scheme")

    encoder_layers: int = option(
        0, "Encoder layers, by default 1; 0: embeddings only.", ge=0, le=64
    )
    post_norm: bool = option(
        False,
        "Blocks of Vaswani et al. 2017: layers normalise what they have added, and embeddings are "
        "multiplied by the root of the width.",
    )
    cyclic: int | None = option(None, "Positions modulo this number.", ge=1, le=10**6)
    attention_window: int | None = option(
        None,
        "Attend to N keys on each side of the answer's line; see --format aligned.",
        ge=1,
        le=100,
    )

    @property
    def label(self) -> str:
        return self.scheme


class DecoderOptions(StackOptions):
    """The shape of the decoder-only Transformer, which reads source and output as one stream."""

    group_title: ClassVar[str] = "decoder"

    @property
    def label(self) -> str:
        return f"decoder-{self.scheme}"

    @property
    def cyclic(self) -> None:
        """Positions are not cyclic."""


class RecurrentOptions(ModelOptions):
    """The shape of a GRU encoder and decoder with an attender: ``abc_calib.nn.recurrent``.

    ``backbone``: what is around the attender, by default as in the attender's own paper.
    ``legacy_normalisation``: location weights as the public code of Ray Chowdhury & Caragea has
    them, which wrap around to the start far beyond the end.
    """

    group_title: ClassVar[str] = "gru"
    help_panel: ClassVar[str] = "Recurrent models (--model gru)"

    backbone: Word | None = option(
        None, "What is around the attender: ray_chowdhury or dubois; as in the attender's paper."
    )
    attender: Word = option("content", "How the decoder looks at its source.")
    embedding: int = option(64, "Width of the embeddings.", ge=1, le=16384)
    width: int = option(128, "Model width.", ge=2, le=16384)
    d_head: int = option(128, "Width of queries and keys.", ge=2, le=16384)
    value: int = option(128, "Width of the values.", ge=1, le=16384)
    layers: int = option(1, "Layers of encoder and decoder each.", ge=1, le=64)
    dropout: float = option(0.5, "Dropout.", ge=0, lt=1)
    legacy_normalisation: bool = option(False, "Location weights as the public code has them.")

    @property
    def label(self) -> str:
        return self.attender


MODEL_OPTIONS: dict[str, type[ModelOptions]] = {
    "transformer": TransformerOptions,
    "decoder": DecoderOptions,
    "gru": RecurrentOptions,
}
"""The options of each kind of model, by the name of the kind."""
