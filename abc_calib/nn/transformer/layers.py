"""The configuration of the Transformer, and its layers."""

from typing import Any

from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import EncoderDecoderCache, PreTrainedConfig

from abc_calib.geometry.lines import Site
from abc_calib.nn.biases import Frame, LayerBias
from abc_calib.nn.positions import Scheme
from abc_calib.nn.transformer.attention import Attention, is_single


@strict
class AbcConfig(PreTrainedConfig):
    """Everything that shapes the model, the calibrated lines included (``line_bias``).

    ``own_schemes``: the schemes of the sites that do not have ``scheme``.
    """

    model_type = "abc_transformer"
    attribute_map = {"num_hidden_layers": "decoder_layers", "num_attention_heads": "heads"}
    is_encoder_decoder: bool = True

    vocab_size: int = 15
    d_model: int = 128
    encoder_layers: int = 0
    decoder_layers: int = 2
    heads: int = 8
    feedforward: int = 512
    dropout: float = 0.0
    scheme: str = "sinusoidal"
    own_schemes: dict[str, str] | None = None
    cyclic: int | None = None
    delimiter_ids: list[int] | None = None
    line_bias: dict[str, Any] | None = None
    pad_token_id: int | None = 14
    bos_token_id: int | None = 12
    eos_token_id: int | None = 13
    decoder_start_token_id: int | None = 12

    @property
    def pad(self) -> int:
        """The id that fills up short rows."""
        assert self.pad_token_id is not None, "the configuration names no pad_token_id"
        return self.pad_token_id

    @property
    def sos(self) -> int:
        """The id that the decoder reads first."""
        assert self.decoder_start_token_id is not None, "no decoder_start_token_id is named"
        return self.decoder_start_token_id


class FeedForward(nn.Sequential):
    """Two linear maps with ReLU between them."""

    def __init__(self, width: int, hidden: int, dropout: float):
        super().__init__(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width)
        )


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward part."""

    def __init__(self, config: AbcConfig):
        super().__init__()
        self.attention = Attention(config.d_model, config.heads, config.dropout)
        self.feedforward = FeedForward(config.d_model, config.feedforward, config.dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(config.d_model) for _ in range(2))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, frame: Frame, scheme: Scheme, bias: LayerBias | None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        y = self.norms[0](x)
        keys, values = self.attention.project(
            y, frame.row_positions, scheme, is_single(bias, scheme, **options)
        )
        y, weights = self.attention(y, keys, values, frame, scheme, bias, **options)
        x = x + self.dropout(y)
        return x + self.dropout(self.feedforward(self.norms[1](x))), weights


class DecoderLayer(nn.Module):
    """Self-attention over the output so far, cross-attention to the source, feed-forward."""

    def __init__(self, config: AbcConfig, index: int):
        super().__init__()
        self.index = index
        self.self_attention = Attention(config.d_model, config.heads, config.dropout)
        self.cross_attention = Attention(config.d_model, config.heads, config.dropout)
        self.feedforward = FeedForward(config.d_model, config.feedforward, config.dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(config.d_model) for _ in range(3))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        frames: dict[Site, Frame],
        schemes: dict[Site, Scheme],
        biases: dict[Site, LayerBias | None],
        cache: EncoderDecoderCache | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        frame, scheme = frames["self"], schemes["self"]
        y = self.norms[0](x)
        single = is_single(biases["self"], scheme, **options)
        keys, values = self.self_attention.project(y, frame.row_positions, scheme, single)
        if cache is not None:
            keys, values = cache.self_attention_cache.update(keys, values, self.index)
        y, own = self.self_attention(y, keys, values, frame, scheme, biases["self"], **options)
        x = x + self.dropout(y)

        frame, scheme = frames["cross"], schemes["cross"]
        if cache is not None and cache.is_updated.get(self.index):
            stored: Any = cache.cross_attention_cache.layers[self.index]
            keys, values = stored.keys, stored.values
        else:
            single = is_single(biases["cross"], scheme, **options)
            positions = frame.key_positions
            keys, values = self.cross_attention.project(memory, positions, scheme, single)
            if single:
                keys = keys[:, :, :0]  # never compared, so not kept
            if cache is not None:
                keys, values = cache.cross_attention_cache.update(keys, values, self.index)
                cache.is_updated[self.index] = True
        y, crossed = self.cross_attention(
            self.norms[1](x), keys, values, frame, scheme, biases["cross"], **options
        )
        x = x + self.dropout(y)
        return x + self.dropout(self.feedforward(self.norms[2](x))), own, crossed
