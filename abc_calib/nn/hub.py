"""The ``transformers`` face of our models: save and load through the Auto classes, ``generate()``.

Importing this module registers every kind; no other module imports it, since importing
``transformers`` takes longer than most commands. A run's folder ``model`` is read by ``load`` or
``AutoModelForSeq2SeqLM.from_pretrained``, and its weights have the same names here and there.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqLMOutput

from abc_calib.errors import AbcError, UsageError
from abc_calib.nn.base import Model
from abc_calib.nn.build import MODELS
from abc_calib.nn.evaluator import Evaluator
from abc_calib.nn.saved import IDS, check_keys, read_folder

GREEDY = {"do_sample": False, "num_beams": 1}
"""Options of ``generate`` that may have these values alone."""
FIRST_STEPS, ENDLESS = 64, 2**18
"""Tokens that are written at first, and those after which an output without an end ends."""


class HubConfig(PreTrainedConfig):
    """What shapes a model, by its names in ``hub_config``. Other keys are refused."""

    network_type: ClassVar[type[Model]]

    is_encoder_decoder: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    decoder_start_token_id: int | None = None

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        kind = cls.network_type
        check_keys(config_dict, {*IDS, "vocab_size", *kind.hub_options, *kind.hub_extras})
        return super().from_dict(config_dict, **kwargs)


class HubModel(PreTrainedModel):
    """Base of all: a network whose parts are the model's own, so that weights keep their names."""

    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = False
    config_class: Any
    network: Any

    def __init__(self, config: Any):
        super().__init__(config)
        network = config.network_type.from_hub_config(config.to_dict())
        for name, part in network.named_children():
            self.add_module(name, part)
        # outside the modules, or every weight would be there twice
        object.__setattr__(self, "network", network)
        self.post_init()

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, folder: Path | str, *, config: Any = None, **kwargs: Any
    ) -> Any:
        """The model in a folder that ``save_pretrained`` or a run wrote, in evaluation mode.

        No file but the three of a saved model is read. ``kwargs``: as of ``transformers``, such as
        ``dtype``. ``hf download USER/NAME --local-dir FOLDER`` makes a folder of a model on the
        hub.
        """
        folder = Path(folder) / (kwargs.pop("subfolder", None) or "")
        described, weights = read_folder(folder)
        if described.get("model_type") != cls.config_class.model_type:
            kind = cls.config_class.model_type
            raise AbcError(f"{folder} is not a model of type {kind}: name another folder")
        with_info = kwargs.pop("output_loading_info", False)
        kwargs |= {"state_dict": weights, "output_loading_info": True}
        config = config or cls.config_class.from_dict(described)
        loaded: Any = super().from_pretrained(None, config=config, **kwargs)
        model, info = loaded
        if any(info.values()):
            name = next(str(next(iter(names))) for names in info.values() if names)
            raise AbcError(f"{folder} is damaged ({name}): its weights are another model's")
        return (model, info) if with_info else model

    def train(self, mode: bool = True) -> Any:
        self.network.train(mode)
        return super().train(mode)

    def _init_weights(self, module: nn.Module) -> None:
        """Draw nothing: the network has drawn its weights."""

    def get_input_embeddings(self) -> Any:
        return getattr(self.network, "embed", None)

    def _padded(self, ids: Tensor, mask: Tensor | None, what: str) -> Tensor:
        """Rows ``(b, n)`` with the pad id wherever a mask leaves tokens out.

        ``UsageError`` for padding before a token.
        """
        valid = ids != self.network.pad
        if mask is not None:
            if mask.shape != ids.shape:
                shapes = " ".join(str(tuple(x.shape)) for x in (mask, ids))
                raise UsageError(f"the shapes of mask and {what}, {shapes}, differ: give one shape")
            valid &= mask != 0
        if bool((valid[:, 1:] & ~valid[:, :-1]).any()):
            raise UsageError(f"padding before a token of {what}: put it behind the row")
        return ids.masked_fill(~valid, self.network.pad)

    def _source(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if ids.ndim != 2 or not len(ids):
            raise UsageError(f"input_ids have the shape {(*ids.shape,)}: give (b, n)")
        source = self._padded(ids, mask, "input_ids")
        if source.shape[1] == 0 or bool((source[:, 0] == self.network.pad).any()):
            raise UsageError("a row of input_ids has nothing but padding: leave it out")
        starts = source == self.network.sos
        if not bool(starts[:, 0].all()) or int(starts.sum()) > len(source):
            raise UsageError(
                f"a row of input_ids does not begin with start token {self.network.sos}, or has "
                "it twice: the tokenizer writes it, so give it sources without it"
            )
        return source

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        **options: Any,
    ) -> Seq2SeqLMOutput:
        """Logits ``(b, t, v)`` while ``labels (b, t)`` are written, and the mean loss of a token.

        ``input_ids (b, s)``; labels are -100 or the pad id where nothing counts. With
        ``output_attentions`` the weights of every head, ``(b, h, i, j)`` a layer.
        """
        if labels is None or options.get("decoder_input_ids") is not None:
            raise UsageError(
                "give labels, which the logits are of, and no decoder_input_ids, which follow from "
                "them; generate() writes without"
            )
        source = self._source(input_ids, attention_mask)
        target = self._padded(labels.masked_fill(labels == -100, self.network.pad), None, "labels")
        logits = self.network(source, target)
        weights = self.network.attention(source, target).weights if output_attentions else {}
        return Seq2SeqLMOutput(
            loss=self.network.cross_entropy(logits, target),
            logits=logits,
            decoder_attentions=weights.get("self"),
            cross_attentions=weights.get("cross"),
            encoder_attentions=weights.get("encoder"),
        )

    @torch.inference_mode()
    def generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        max_new_tokens: int | None = None,
        **options: Any,
    ) -> Tensor:
        """Greedy output behind its SOS, ``(b, 1 + t)``, as our own decoding writes it.

        Up to the end token of every source, or ``max_new_tokens``. ``UsageError`` for another way
        of decoding.
        """
        for name, value in options.items():
            if name != "use_cache" and value != GREEDY.get(name, ...):
                raise UsageError(
                    f"{name}={value!r}: this model decodes greedily; give input_ids, "
                    "attention_mask and max_new_tokens"
                )
        source = self._source(input_ids, attention_mask)
        evaluator, eos = Evaluator(self.network), self.network.eos
        steps = FIRST_STEPS if max_new_tokens is None else max_new_tokens
        written = evaluator.decode(source, steps).ids
        while max_new_tokens is None and not bool(written.eq(eos).any(1).all()):
            if steps >= ENDLESS:
                raise AbcError(f"an output has no end within {steps:,} tokens: give max_new_tokens")
            steps *= 8
            written = evaluator.decode(source, steps).ids
        longest = max([0, *(written.ne(self.network.pad).any(0).nonzero()[:, 0] + 1).tolist()])
        start = input_ids.new_full((len(input_ids), 1), self.network.sos)
        return torch.cat([start, written[:, :longest]], 1)


def _face(kind: type[Model]) -> type[HubModel]:
    """The face of a kind of model, registered with its configuration."""
    model_type, name = kind.hub_names
    named = {"model_type": model_type, "network_type": kind, "__module__": __name__}
    config: Any = type(f"{name}Config", (HubConfig,), named)
    face = type(name, (HubModel,), {"config_class": config, "__module__": __name__})
    AutoConfig.register(model_type, config)
    AutoModelForSeq2SeqLM.register(config, face)
    globals().update({f"{name}Config": config, name: face})  # where pickle looks for them
    return face


FACES = {kind.hub_names[0]: _face(kind) for kind in MODELS.values()}
"""The face of each kind of model, by ``model_type``."""


def load(folder: Path | str) -> HubModel:
    """The model in a run's folder ``model``, in evaluation mode."""
    described, _ = read_folder(Path(folder))
    if described.get("model_type") not in FACES:
        raise AbcError(f"{folder} is not a model of this program: name another folder")
    return FACES[described["model_type"]].from_pretrained(folder)
