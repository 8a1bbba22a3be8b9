"""The ``transformers`` face of our models: save and load through the Auto classes, ``generate()``.

Importing this room registers both kinds; no other room imports it, since importing
``transformers`` takes longer than most commands. A run's folder ``model`` is read by ``load`` or
``AutoModelForSeq2SeqLM.from_pretrained``, and its weights have the same names here and there.
"""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    EncoderDecoderCache,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import LineBias
from abc_calib.nn.base import Model
from abc_calib.nn.recurrent.model import Recurrent
from abc_calib.nn.saved import check_keys, read_folder
from abc_calib.nn.transformer.base import Autoregressive, draw
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.decoder_only import DecoderOnly
from abc_calib.nn.transformer.encoder import Encoded
from abc_calib.nn.transformer.model import Transformer


class StrictConfig(PreTrainedConfig):
    """Base of both: a file with a key that shapes no model is refused."""

    @classmethod
    def names(cls) -> set[str]:
        """What shapes the model."""
        return {*cls.__annotations__}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **given: Any) -> Any:
        check_keys(config_dict, cls.names())
        return super().from_dict(config_dict, **given)


@strict
class AbcConfig(StrictConfig):
    """Everything that shapes the Transformer, the calibrated lines included (``line_bias``).

    ``own_schemes``: the schemes of the sites that do not have ``scheme``; ``plugins``: where those
    are from that are a user's own.
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
    row_id: int | None = None
    line_bias: dict[str, Any] | None = None
    plugins: dict[str, Any] | None = None
    pad_token_id: int | None = 14
    bos_token_id: int | None = 12
    eos_token_id: int | None = 13
    decoder_start_token_id: int | None = 12


@strict
class AbcDecoderConfig(StrictConfig):
    """Everything that shapes the decoder-only Transformer, which is given its source alone."""

    model_type = "abc_decoder"
    attribute_map = AbcConfig.attribute_map
    is_encoder_decoder: bool = True

    vocab_size: int = 15
    d_model: int = 64
    decoder_layers: int = 3
    heads: int = 8
    feedforward: int = 256
    dropout: float = 0.0
    scheme: str = "sinusoidal"
    delimiter_ids: list[int] | None = None
    row_id: int | None = None
    line_bias: dict[str, Any] | None = None
    plugins: dict[str, Any] | None = None
    pad_token_id: int | None = 14
    bos_token_id: int | None = 12
    eos_token_id: int | None = 13
    decoder_start_token_id: int | None = 12


@strict
class AbcRecurrentConfig(StrictConfig):
    """Everything that shapes the GRU encoder-decoder; ``body``: an older name of ``backbone``."""

    model_type = "abc_recurrent"
    is_encoder_decoder: bool = True

    vocab_size: int = 15
    backbone: str | None = None
    body: str | None = None
    attender: str = "content"
    d_embedding: int = 64
    d_model: int = 128
    d_head: int = 128
    d_value: int = 128
    layers: int = 1
    dropout: float = 0.5
    legacy_normalisation: bool = False
    pad_token_id: int | None = 14
    bos_token_id: int | None = 12
    eos_token_id: int | None = 13
    decoder_start_token_id: int | None = 12


FROM_AUTO = ("revision", "trust_remote_code", "adapter_kwargs", "_from_auto")
"""What the Auto classes add, without a meaning here."""


class HubModel(PreTrainedModel):
    """Base of both: a network whose parts are the model's own, so that weights keep their names."""

    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = False
    network_type: ClassVar[type[Model]]
    config_type: ClassVar[type[StrictConfig]]
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


@dataclass
class EncoderOutput(BaseModelOutput):
    """The encoded source, how long each is ``(b,)``, and where its delimiters are ``(b, c)``.

    ``start``: from where cyclic positions count; ``drawn``: what a scheme drew for the output;
    of a stream ``states (b, layers, s, d)``, before each layer, and ``numbers (b, n)``, what a
    scheme calls its positions. All of them have the samples first, as beams want it.
    """

    lengths: Tensor | None = None
    delimiters: Tensor | None = None
    start: int | None = None
    drawn: Tensor | None = None
    states: Tensor | None = None
    numbers: Tensor | None = None


class EncoderFace:
    """What ``generate`` calls to read the source."""

    main_input_name = "input_ids"

    def __init__(self, network: Autoregressive):
        self.network = network

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool = False,
        **_: Any,
    ) -> EncoderOutput:
        """``input_ids (b, s)``; what ``attention_mask`` leaves out is padding."""
        mask = None if attention_mask is None else attention_mask.bool()
        found = self.network.encode(input_ids, mask, bool(output_attentions))
        numbers = found.numbers
        return EncoderOutput(
            last_hidden_state=found.memory,
            attentions=found.attention or None,
            lengths=found.lengths,
            delimiters=found.delimiters,
            start=found.start,
            drawn=found.drawn,
            states=torch.stack(found.states, 1) if found.states else None,
            numbers=None if numbers is None else numbers.expand(len(found.memory), -1),
        )

    __call__ = forward


class GenerationCache(EncoderDecoderCache):
    """Our own cache, as ``generate`` hands it from step to step."""

    def __init__(self, cache: Cache):
        super().__init__(DynamicCache(), DynamicCache())
        self.cache = cache

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        return self.cache.seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.cache.reordered(beam_idx)


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
            encoder_outputs = self.get_encoder()(input_ids, attention_mask, weights)
        if decoder_input_ids is None:
            assert labels is not None, "give decoder_input_ids or labels"
            decoder_input_ids = self.shifted(labels)
        if use_cache and not isinstance(past_key_values, GenerationCache):
            past_key_values = GenerationCache(Cache(None if weights else self.network.kept_rows))
        held = past_key_values.cache if isinstance(past_key_values, GenerationCache) else None
        found = self.network.run(_encoded(encoder_outputs), decoder_input_ids, held, weights)
        loss = None if labels is None else self.network.cross_entropy(found.logits, labels)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=found.logits,
            past_key_values=past_key_values,
            decoder_attentions=found.own or None,
            cross_attentions=found.crossed or None,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_attentions=encoder_outputs.attentions,
        )


def _encoded(output: EncoderOutput) -> Encoded:
    memory, lengths, delimiters = output.last_hidden_state, output.lengths, output.delimiters
    known = memory is not None and lengths is not None and delimiters is not None
    assert known, "encoder_outputs have to come from this model's encoder"
    found: Any = Encoded(memory, lengths, delimiters, output.start or 0, drawn=output.drawn)  # type: ignore[arg-type]
    states = () if output.states is None else output.states.unbind(1)
    return replace(found, states=states, numbers=output.numbers)


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


FACES: dict[type[Model], type[HubModel]] = {
    Transformer: AbcTransformer,
    DecoderOnly: AbcDecoder,
    Recurrent: AbcRecurrent,
}
"""The face of each kind of model."""

for _face in FACES.values():
    AutoConfig.register(_face.config_type.model_type, _face.config_type)
    AutoModelForSeq2SeqLM.register(_face.config_type, _face)


def load(folder: Path | str) -> HubModel:
    """The model in a run's folder ``model``, in evaluation mode."""
    described, _ = read_folder(Path(folder))
    faces = {face.config_type.model_type: face for face in FACES.values()}
    if described.get("model_type") not in faces:
        raise AbcError(f"{folder} is no model of this program: name another folder")
    return faces[described["model_type"]].from_pretrained(folder)


def wrapped(model: Model) -> HubModel:
    """A copy of one of our models with its ``transformers`` face."""
    face = FACES[type(model)]
    ids = {"pad": model.pad, "bos": model.sos, "eos": model.eos, "decoder_start": model.sos}
    named = {f"{name}_token_id": value for name, value in ids.items()}
    made = face(face.config_type(**{**model.hub_config(), **named}))
    made.load_state_dict(model.state_dict())
    return made.train(model.training)
