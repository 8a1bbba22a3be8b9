"""A GRU encoder and decoder with an attender between them.

At the outside as the Transformer: a ``transformers`` configuration and model, saved and loaded
in the same way, ``forward`` with ``labels`` for a loss, ``shifted`` for the decoder's input. A
decoder's step depends on the one before, so writing is a loop; all that does not depend on it
(projections of keys and values, embeddings, position scores, logits) is outside of it.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqLMOutput

from abc_calib.nn.recurrent.attenders import AttenderShape, attender_type
from abc_calib.nn.recurrent.attenders.base import Carry
from abc_calib.nn.recurrent.backbones import BODIES, BodyShape, Encoded
from abc_calib.nn.recurrent.deferred import CellSteps, GruSteps


@strict
class RecurrentConfig(PreTrainedConfig):
    """Everything that shapes the model."""

    model_type = "abc_recurrent"
    is_encoder_decoder: bool = True

    vocab_size: int = 15
    body: str = "ray_chowdhury"
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

    @property
    def eos(self) -> int:
        """The id that closes an output."""
        assert self.eos_token_id is not None, "the configuration names no eos_token_id"
        return self.eos_token_id


@dataclass
class Written:
    """What a decoder wrote: ``ids (b, t)``, weights ``(b, t, s)`` and what each step carried.

    Weights are over the tokens of the source as it was given, ``$`` first.
    """

    ids: Tensor
    weights: Tensor | None
    carried: list[Carry]


class RecurrentModel(PreTrainedModel):
    """The model. ``forward`` takes ``input_ids`` and ``labels`` or ``decoder_input_ids``."""

    config_class = RecurrentConfig
    config: RecurrentConfig
    base_model_prefix = ""
    main_input_name = "input_ids"

    def __init__(self, config: RecurrentConfig):
        super().__init__(config)
        shape = BodyShape(
            vocabulary=config.vocab_size,
            embedding=config.d_embedding,
            state=config.d_model,
            value=config.d_value,
            layers=config.layers,
            dropout=config.dropout,
            sos=config.sos,
            eos=config.eos,
        )
        attender = AttenderShape(config.d_model, config.d_head, config.legacy_normalisation)
        self.body = BODIES[config.body](shape)
        self.attender = attender_type(config.attender)(attender)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: every part draws its own weights when it is made."""

    def _over_tokens(self, weights: list[Tensor], encoded: Encoded, input_ids: Tensor) -> Tensor:
        """Weights ``(b, t, s)`` of tokens as they were given, those that the body cuts off too."""
        over = self.attender.over_source(torch.stack(weights, 1), encoded.memory)
        before = 1 - self.body.offset
        return F.pad(over, (before, input_ids.shape[1] - before - over.shape[2]))

    def needed_memory(self, batch: int, keys: int, steps: int) -> int:
        """Bytes that one pass over ``batch`` sources of ``keys`` tokens may take, roughly."""
        return 4 * batch * (12 * self.config.d_model * (keys + steps) + 2 * keys * steps)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Encoded:
        """``input_ids (b, s)``: ``$ ... &`` and padding."""
        mask = input_ids.ne(self.config.pad) if attention_mask is None else attention_mask
        return self.body.encode(input_ids, mask.long().sum(1), self.attender)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        teacher_forcing: bool = True,
        output_attentions: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Logits ``(b, t, v)`` and, with ``labels (b, t)``, the mean loss of a token.

        Without ``teacher_forcing`` each step reads what the model itself wrote.
        """
        if decoder_input_ids is None:
            assert labels is not None, "give decoder_input_ids or labels"
            decoder_input_ids = self.shifted(labels)
        encoded = self.encode(input_ids, attention_mask)
        steps = decoder_input_ids.shape[1]
        read = self.body.read(decoder_input_ids).unbind(1) if teacher_forcing else None
        loop = Loop(self, encoded, steps)
        states, weights = [], []
        tokens = decoder_input_ids[:, 0]
        for t in range(steps):
            given = read[t] if read is not None else self.body.read(tokens[:, None])[:, 0]
            states.append(loop.step(given, t))
            if output_attentions:
                weights.append(loop.weights)
            if read is None:
                tokens = self.body.logits(states[-1].detach()).argmax(-1)
        logits = self.body.logits(torch.stack(states, 1))
        loss = None
        if labels is not None:
            wanted = labels.masked_fill(labels.eq(self.config.pad), -100)
            loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        seen = None
        if output_attentions:
            seen = (self._over_tokens(weights, encoded, input_ids)[:, None],)
        return Seq2SeqLMOutput(loss=loss, logits=logits, cross_attentions=seen)

    def shifted(self, target: Tensor) -> Tensor:
        """What the decoder reads to write ``target``: SOS, then the target but its last token."""
        read = target.roll(1, dims=1)
        read[:, 0] = self.config.sos
        return read.masked_fill_(read.eq(-100), self.config.pad)

    @torch.inference_mode()
    def write(self, input_ids: Tensor, steps: int, show: bool = False) -> Written:
        """Decode greedily at most ``steps`` tokens; ``show`` keeps weights and variables.

        Rows that have ended are filled up with padding.
        """
        encoded = self.encode(input_ids)
        loop = Loop(self, encoded, steps)
        tokens = input_ids.new_full((len(input_ids),), self.config.sos)
        ended = torch.zeros_like(tokens, dtype=torch.bool)
        ids, weights, carried = [], [], []
        for t in range(steps):
            state = loop.step(self.body.read(tokens[:, None])[:, 0], t)
            tokens = self.body.logits(state).argmax(-1).masked_fill(ended, self.config.pad)
            ids.append(tokens)
            if show:
                weights.append(loop.weights)
                carried.append(loop.carry)
            ended |= tokens.eq(self.config.eos)
            if bool(ended.all()):
                break
        rows = torch.stack(ids, 1)
        rows = F.pad(rows, (0, steps - rows.shape[1]), value=self.config.pad)
        over = self._over_tokens(weights, encoded, input_ids) if show else None
        return Written(rows, over, carried)


class Loop:
    """The decoder's steps on one encoded source."""

    def __init__(self, model: RecurrentModel, encoded: Encoded, steps: int):
        self.attender = model.attender
        cell = model.body.cell
        self.gru = GruSteps(encoded.gates, cell.weight_hh, cell.bias_hh)
        self.further = [CellSteps(*cell.parameters()) for cell in model.body.further]
        self.prepared = self.attender.prepare(encoded.memory, steps)
        self.carry = self.attender.begin(encoded.memory)
        self.states, self.query = list(encoded.states), encoded.query
        self.weights = encoded.gates.new_zeros(())

    def step(self, read: Tensor, t: int) -> Tensor:
        """The top layer's state ``(b, d)`` after step ``t``, in which ``read (b, 3d)`` was read."""
        self.weights, self.carry = self.attender.step(self.query, self.prepared, self.carry, t)
        self.states[0] = self.gru(self.weights, read, self.states[0])
        for i, steps in enumerate(self.further, start=1):
            self.states[i] = steps(self.states[i - 1], self.states[i])
        self.query = self.states[-1]
        return self.query


AutoConfig.register("abc_recurrent", RecurrentConfig)
AutoModelForSeq2SeqLM.register(RecurrentConfig, RecurrentModel)
