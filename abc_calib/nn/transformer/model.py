"""A small encoder-decoder Transformer with pluggable positions and calibrated biases.

At the outside a ``transformers`` model: save and load through ``AutoModelForSeq2SeqLM``,
``generate()`` with a cache, attention weights on request. Pre-norm layers; an encoder of 0
layers passes the embeddings straight to cross-attention, as the public code of Duan & Shi does.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    EncoderDecoderCache,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from abc_calib.geometry.lines import SITES, LineBias, Site
from abc_calib.nn.biases import Frame, LayerBias
from abc_calib.nn.positions import Scheme, build_scheme
from abc_calib.nn.transformer.cache import Window, left_out, use_window, window
from abc_calib.nn.transformer.layers import AbcConfig, DecoderLayer, EncoderLayer


@dataclass
class EncoderOutput(BaseModelOutput):
    """The encoded source, how long each is ``(b,)``, and where its delimiters are ``(b, c)``.

    ``start``: from where cyclic positions count.
    """

    lengths: Tensor | None = None
    delimiters: Tensor | None = None
    start: int | None = None


class AbcEncoder(nn.Module):
    """Embeds the source and runs the encoder layers, if there are any.

    Cyclic positions are all alike, but short problems do not show it: the fifth digit of six is
    the only one far from both ends, and would be seen in one phase alone. So in every step of
    training they start in a random phase, the same for source and output; else in phase 0.
    """

    def __init__(self, config: AbcConfig, embed: nn.Embedding, scheme: Scheme):
        super().__init__()
        self.config, self.embed, self.scheme = config, embed, scheme
        self.main_input_name = "input_ids"
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.encoder_layers else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.biases: list[LayerBias | None] = [None] * config.encoder_layers
        self.path = "auto"

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool = False,
        **_: Any,
    ) -> EncoderOutput:
        mask = input_ids.ne(self.config.pad) if attention_mask is None else attention_mask
        lengths = mask.long().sum(1)
        delimiters = delimiter_positions(input_ids, self.config.delimiter_ids or [])
        rows = torch.arange(input_ids.shape[1], device=input_ids.device)
        period = self.config.cyclic
        start = int(torch.randint(period, ())) if self.training and period else 0
        frame = Frame("encoder", rows, len(rows), lengths, delimiters, period, start)
        positions = self.scheme.renumber(frame.row_positions, lengths)
        x = self.dropout(self.scheme.embed(self.embed(input_ids), positions))
        weights = []
        for layer, bias in zip(self.layers, self.biases, strict=True):
            x, seen = layer(x, frame, self.scheme, bias, path=self.path, weights=output_attentions)
            weights.append(seen)
        return EncoderOutput(
            last_hidden_state=self.norm(x),
            attentions=tuple(weights) if output_attentions else None,
            lengths=lengths,
            delimiters=delimiters,
            start=start,
        )


class AbcTransformer(PreTrainedModel, GenerationMixin):
    """The model. ``forward`` takes the usual ``transformers`` arguments."""

    config_class = AbcConfig
    config: AbcConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = False
    _tied_weights_keys = {"encoder.embed.weight": "embed.weight"}

    def __init__(self, config: AbcConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        sites: tuple[Site, ...] = ("encoder", "self", "cross")
        sites = sites if config.encoder_layers else sites[1:]
        own = config.own_schemes or {}
        names = {site: own.get(site, config.scheme) for site in SITES}
        same = tuple(site for site in sites if names[site] == names["encoder"])
        scheme = build_scheme(names["encoder"], config.d_model, config.heads, same)
        self.encoder = AbcEncoder(config, self.embed, scheme)
        self.own_schemes = nn.ModuleDict(
            {
                site: build_scheme(names[site], config.d_model, config.heads, (site,))
                for site in sites
                if names[site] != names["encoder"]
            }
        )
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.d_model, config.vocab_size)
        self.path = "auto"
        self.post_init()
        self.set_line_bias(LineBias.from_dict(config.line_bias) if config.line_bias else None)

    def _init_weights(self, module: nn.Module) -> None:
        """Xavier-uniform linear maps, unit-normal embeddings (as large as the sinusoids)."""
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Scheme):
            module.reset_parameters()

    @property
    def scheme(self) -> Scheme:
        """The encoder's positions, and those of every site that has no scheme of its own."""
        return self.encoder.scheme

    def scheme_of(self, site: Site) -> Scheme:
        """The scheme of a site: ``encoder`` and ``self`` also embed what they read."""
        own: Any = self.own_schemes
        return own[site] if site in own else self.scheme  # noqa: SIM401 (a ModuleDict)

    def set_line_bias(self, bias: LineBias | None) -> None:
        """Use these calibrated lines from now on (``UsageError`` if they do not fit)."""
        layers: dict[Site, int] = {
            "encoder": self.config.encoder_layers,
            "self": self.config.decoder_layers,
            "cross": self.config.decoder_layers,
        }
        if bias is not None:
            bias.check(layers, self.config.heads)
        self.line_bias = bias
        self.config.line_bias = bias.to_dict() if bias is not None else None

        def built(site: Site) -> list[LayerBias | None]:
            lines = [bias.heads(site, i) if bias else None for i in range(layers[site])]
            closed = bias.closed if bias else None
            return [
                LayerBias(heads, site, closed) if heads is not None else None for heads in lines
            ]

        self.biases = {site: built(site) for site in layers}
        self.encoder.biases = self.biases["encoder"]

    def set_path(self, path: str) -> None:
        """How restricted heads are computed: ``auto``, ``dense`` or ``lines``."""
        self.path = self.encoder.path = path

    @property
    def window(self) -> Window | None:
        """The output rows that later ones still read, or None where any may be read."""
        biases = self.biases["self"]
        single = all(bias is not None and bias.single for bias in biases)
        scheme = self.scheme_of("self")
        if self.path == "dense" or scheme.has_value_term or (scheme.has_score_bias and not single):
            return None
        return window(biases)

    def get_encoder(self, *_: Any, **__: Any) -> AbcEncoder:
        return self.encoder

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: EncoderOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Logits ``(b, t, v)`` for ``input_ids (b, s)`` and ``decoder_input_ids (b, t)``.

        ``labels`` (b, t), with -100 or the pad id where nothing counts, give a ``loss``, and
        the decoder's input where that is left out.
        """
        weights = bool(output_attentions)
        if encoder_outputs is None:
            assert input_ids is not None, "give input_ids or encoder_outputs"
            encoder_outputs = self.encoder(input_ids, attention_mask, output_attentions=weights)
        if decoder_input_ids is None:
            assert labels is not None, "give decoder_input_ids or labels"
            decoder_input_ids = self.shifted(labels)
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        kept = self.window
        if past_key_values is not None and kept is not None and not weights:
            use_window(past_key_values, kept, self.config.decoder_layers)
        memory = encoder_outputs.last_hidden_state
        assert memory is not None
        frames = self._frames(
            decoder_input_ids, memory, encoder_outputs, attention_mask, past_key_values
        )
        schemes = {site: self.scheme_of(site) for site in ("self", "cross")}
        positions = schemes["self"].renumber(frames["self"].row_positions, frames["self"].lengths)
        x = self.dropout(schemes["self"].embed(self.embed(decoder_input_ids), positions))
        own, crossed = [], []
        for i, layer in enumerate(self.layers):
            biases = {site: self.biases[site][i] for site in ("self", "cross")}
            x, seen, seen_across = layer(
                x,
                memory,
                frames,
                schemes,
                biases,
                past_key_values,
                path=self.path,
                weights=weights,
            )
            own.append(seen)
            crossed.append(seen_across)
        logits = self.head(self.norm(x))
        loss = None
        if labels is not None:
            wanted = labels.masked_fill(labels.eq(self.config.pad), -100)
            loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=past_key_values,
            decoder_attentions=tuple(own) if weights else None,
            cross_attentions=tuple(crossed) if weights else None,
            encoder_last_hidden_state=memory,
            encoder_attentions=encoder_outputs.attentions,
        )

    def shifted(self, target: Tensor) -> Tensor:
        """What the decoder reads to write ``target``: SOS, then the target but its last token."""
        read = target.roll(1, dims=1)
        read[:, 0] = self.config.sos
        return read.masked_fill_(read.eq(-100), self.config.pad)

    def _frames(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor,
        encoded: EncoderOutput,
        attention_mask: Tensor | None,
        cache: EncoderDecoderCache | None,
    ) -> dict[Site, Frame]:
        past = cache.get_seq_length() if cache is not None else 0
        device, steps = memory.device, decoder_input_ids.shape[1]
        rows = torch.arange(past, past + steps, device=device)
        lengths, delimiters, period = encoded.lengths, encoded.delimiters, self.config.cyclic
        start = encoded.start or 0
        assert lengths is not None, "encoder_outputs have to come from this model's encoder"
        if self.line_bias is not None and alike(lengths) and alike(delimiters):
            lengths = lengths[:1]
            delimiters = delimiters[:1] if delimiters is not None else None
        return {
            "self": Frame(
                "self", rows, past + steps, lengths, None, period, start, left_out(cache)
            ),
            "cross": Frame("cross", rows, memory.shape[1], lengths, delimiters, period, start),
        }


def alike(rows: Tensor | None) -> bool:
    """Are all rows of a tensor the same?"""
    return rows is None or bool((rows == rows[:1]).all())


def delimiter_positions(ids: Tensor, delimiters: list[int]) -> Tensor:
    """Where the delimiters stand in each source: ``(b, c)``, ascending.

    A row with fewer delimiters than the others repeats its last one.
    """
    found = torch.isin(ids, torch.tensor(delimiters, device=ids.device))
    count = int(found.sum(1).max()) if found.numel() else 0
    places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    places = torch.where(found, places, ids.shape[1]).sort(1).values[:, :count]
    last = torch.where(found, torch.arange(ids.shape[1], device=ids.device), 0).amax(1)
    return torch.minimum(places, last[:, None])


AutoConfig.register("abc_transformer", AbcConfig)
AutoModelForSeq2SeqLM.register(AbcConfig, AbcTransformer)
