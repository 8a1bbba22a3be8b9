"""Our models as ``transformers`` has them: ``forward``, ``generate()``, loading and saving."""

import copy
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqLMOutput

from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import LineBias
from abc_calib.nn.base import Model
from abc_calib.nn.hub.configs import AbcConfig, AbcDecoderConfig, AbcRecurrentConfig, HubConfig
from abc_calib.nn.hub.generation import (
    CACHE,
    EncoderFace,
    EncoderOutput,
    GenerationCache,
    encoded,
)
from abc_calib.nn.recurrent.model import Recurrent
from abc_calib.nn.saved import read_folder
from abc_calib.nn.transformer.base import Autoregressive, draw
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.decoder_only import DecoderOnly
from abc_calib.nn.transformer.model import Transformer

FROM_AUTO = ("revision", "trust_remote_code", "adapter_kwargs", "_from_auto")
"""What the Auto classes add, without a meaning here."""


class HubModel(PreTrainedModel):
    """Base of all: a network whose parts are the model's own, so that weights keep their names."""

    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = False
    network_type: ClassVar[type[Model]]
    config_type: ClassVar[type[HubConfig]]
    network: Any

    def __init__(self, config: Any):
        super().__init__(config)
        network = self.network_type.from_hub_config(config.to_dict())
        for name, part in network.named_children():
            self.add_module(name, part)
        # beside the modules, or every weight would be there twice
        object.__setattr__(self, "network", network)
        self.post_init()

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, folder: Path | str, *, config: Any = None, **given: Any
    ) -> Any:
        """The model in a folder that ``save_pretrained`` or a run wrote, in evaluation mode.

        Nothing is downloaded, and no file but the three of a saved model is read. ``given``:
        ``dtype``, ``output_loading_info``, and changes of the configuration.
        """
        described, weights = read_folder(Path(folder))
        if described.get("model_type") != cls.config_type.model_type:
            raise AbcError(f"{folder} is no {cls.config_type.model_type}: name another folder")
        told = given.pop("output_loading_info", False)
        changes = {name: given.pop(name) for name in cls.config_type.names() & {*given}}
        if strange := sorted({*given} - {"dtype", *FROM_AUTO}):
            raise UsageError(f"unknown option {strange[0]!r}: give dtype or output_loading_info")
        how = {name: given[name] for name in given if name not in FROM_AUTO}
        config = config or cls.config_type.from_dict({**described, **changes})
        loaded: Any = super().from_pretrained(
            None, config=config, state_dict=weights, output_loading_info=True, **how
        )
        made, info = loaded
        if any(info.values()) and not changes:
            name = next(str(next(iter(names))) for names in info.values() if names)
            raise AbcError(f"{folder} is damaged ({name}): its weights are another model's")
        return (made, info) if told else made

    def train(self, mode: bool = True) -> Any:
        self.network.train(mode)
        return super().train(mode)

    def shifted(self, target: Tensor) -> Tensor:
        """What the decoder reads to write ``target``: SOS, then the target but its last token."""
        return self.network.shifted(target)


class AbcTransformer(HubModel, GenerationMixin):
    """The Transformer. ``forward`` takes the usual arguments of an encoder-decoder."""

    config_class = config_type = AbcConfig
    config: AbcConfig
    network_type: ClassVar[type[Model]] = Transformer
    network: Autoregressive
    #: the part that ``generate`` takes for an encoder
    reader: ClassVar[str] = "encoder"

    def __init__(self, config: Any):
        super().__init__(config)
        encoder: Any = self.network.get_submodule(self.reader)
        encoder.main_input_name = self.main_input_name  # what generate asks for

    def _init_weights(self, module: nn.Module) -> None:
        draw(module)

    def get_encoder(self, *_: Any, **__: Any) -> Any:
        return EncoderFace(self.network)

    def get_input_embeddings(self) -> nn.Module:
        return self.network.embed

    def set_lines(self, lines: LineBias | None) -> None:
        """Attend along these lines from now on; they are saved with the model."""
        self.network.set_lines(lines)
        self.config.line_bias = lines.to_dict() if lines is not None else None

    def generate(self, *args: Any, **options: Any) -> Any:
        """As ``GenerationMixin`` does; along lines in float64, like our own decoding."""
        exact: Any = self
        if self.network.on_lines and self.dtype != torch.float64:
            exact = copy.deepcopy(self).double().eval()
        return GenerationMixin.generate(exact, *args, **options)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: EncoderOutput | None = None,
        cache: EncoderDecoderCache | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Logits ``(b, t, v)`` for ``input_ids (b, s)`` and ``decoder_input_ids (b, t)``.

        ``labels`` (b, t), with -100 or the pad id where nothing counts, give a ``loss``, and
        the decoder's input where that is left out. ``cache`` or, as releases of ``transformers``
        before 5.24 call it, ``past_key_values``: what an earlier call has kept.
        """
        weights = bool(output_attentions)
        if encoder_outputs is None:
            assert input_ids is not None, "give input_ids or encoder_outputs"
            encoder_outputs = self.get_encoder()(input_ids, attention_mask, weights)
        if decoder_input_ids is None:
            assert labels is not None, "give decoder_input_ids or labels"
            decoder_input_ids = self.shifted(labels)
        cache = past_key_values if cache is None else cache
        if use_cache and not isinstance(cache, GenerationCache):
            cache = GenerationCache(Cache(None if weights else self.network.kept_rows))
        held = cache.cache if isinstance(cache, GenerationCache) else None
        given: dict[str, Any] = {CACHE: cache}
        found = self.network.run(encoded(encoder_outputs), decoder_input_ids, held, weights)
        loss = None if labels is None else self.network.cross_entropy(found.logits, labels)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=found.logits,
            **given,
            decoder_attentions=found.own or None,
            cross_attentions=found.crossed or None,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_attentions=encoder_outputs.attentions,
        )


class AbcDecoder(AbcTransformer):
    """The decoder-only Transformer, which is given its source as ``input_ids``."""

    config_class = config_type = AbcDecoderConfig  # type: ignore[assignment]
    network_type = DecoderOnly
    reader = "embed"


class AbcRecurrent(HubModel):
    """The GRU encoder-decoder. ``forward`` takes ``input_ids`` and ``labels``."""

    config_class = config_type = AbcRecurrentConfig
    config: AbcRecurrentConfig
    network_type = Recurrent
    network: Recurrent

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: every part draws its own weights when it is made."""

    def forward(self, input_ids: Tensor, labels: Tensor, **_: Any) -> Seq2SeqLMOutput:
        """Logits ``(b, t, v)`` and the mean loss of a token of ``labels (b, t)``."""
        logits = self.network(input_ids, labels)
        return Seq2SeqLMOutput(loss=self.network.cross_entropy(logits, labels), logits=logits)

    @torch.inference_mode()
    def generate(self, input_ids: Tensor, max_new_tokens: int, **_: Any) -> Tensor:
        """Greedy output behind its SOS, ``(b, 1 + t)``."""
        start = input_ids.new_full((len(input_ids), 1), self.network.sos)
        return torch.cat([start, self.network.decode(input_ids, max_new_tokens).ids], 1)
