"""What shapes our models, as ``transformers`` saves it."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from abc_calib.nn.saved import check_keys


class HubConfig(PreTrainedConfig):
    """Base of all: a file with a key that shapes no model is refused."""

    is_encoder_decoder: bool = True

    vocab_size: int = 15
    d_model: int = 128
    dropout: float = 0.0
    pad_token_id: int | None = 14
    bos_token_id: int | None = 12
    eos_token_id: int | None = 13
    decoder_start_token_id: int | None = 12

    @classmethod
    def names(cls) -> set[str]:
        """What shapes the model."""
        ours = (kind for kind in cls.__mro__ if issubclass(kind, HubConfig))
        return {name for kind in ours for name in kind.__annotations__}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **given: Any) -> Any:
        check_keys(config_dict, cls.names())
        return super().from_dict(config_dict, **given)


class AttentionConfig(HubConfig):
    """What both kinds of Transformer have, the calibrated lines included (``line_bias``).

    ``plugins``: where the schemes are from that are a user's own.
    """

    attribute_map = {"num_hidden_layers": "decoder_layers", "num_attention_heads": "heads"}

    decoder_layers: int = 2
    heads: int = 8
    feedforward: int = 512
    scheme: str = "sinusoidal"
    delimiter_ids: list[int] | None = None
    row_id: int | list[int] | None = None
    line_bias: dict[str, Any] | None = None
    plugins: dict[str, Any] | None = None


@strict
class AbcConfig(AttentionConfig):
    """Everything that shapes the Transformer.

    ``own_schemes``: the schemes of the sites that do not have ``scheme``.
    """

    model_type = "abc_transformer"

    encoder_layers: int = 0
    own_schemes: dict[str, str] | None = None
    cyclic: int | None = None


@strict
class AbcDecoderConfig(AttentionConfig):
    """Everything that shapes the decoder-only Transformer, which is given its source alone."""

    model_type = "abc_decoder"

    d_model: int = 64
    decoder_layers: int = 3
    feedforward: int = 256


@strict
class AbcRecurrentConfig(HubConfig):
    """Everything that shapes the GRU encoder-decoder."""

    model_type = "abc_recurrent"

    backbone: str | None = None
    attender: str = "content"
    d_embedding: int = 64
    d_head: int = 128
    d_value: int = 128
    layers: int = 1
    dropout: float = 0.5
    legacy_normalisation: bool = False
