"""A GRU encoder and decoder with an attender between them.

A decoder's step depends on the one before, so writing is a loop; all that does not depend on it
(projections of keys and values, distances, logits) is outside of it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.config import RecurrentOptions
from abc_calib.data.base import Data
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.nn.base import AttentionWeights, Decoded, Model, greedy
from abc_calib.nn.recurrent.attenders import AttenderShape, attender_type
from abc_calib.nn.recurrent.backbones import BACKBONES, Dubois, Encoded, RayChowdhury


class Recurrent(Model):
    """The model."""

    options_type = RecurrentOptions
    hub_names = ("abc_recurrent", "AbcRecurrent")
    hub_options: ClassVar[dict[str, str]] = {
        **{name: name for name in ("backbone", "attender", "d_head", "layers", "dropout")},
        **{"d_embedding": "embedding", "d_model": "width", "d_value": "value"},
        "legacy_normalisation": "legacy_normalisation",
    }
    no_lines = "it is recurrent: its state may hold all that it has read"
    has_attender = True
    tokens_at_once = 65_536  # steps cost little more for more rows
    options: RecurrentOptions

    def __init__(self, options: RecurrentOptions, tokens: TokenIds):
        super().__init__(options, tokens)
        attender = AttenderShape(options.width, options.d_head, options.legacy_normalisation)
        assert options.backbone is not None, "resolved options name a backbone"
        self.body = BACKBONES[options.backbone](options, tokens.size)
        self.attender = attender_type(options.attender)(attender)

    @classmethod
    def resolve_defaults(cls, options: Any, data: Data | None = None) -> Any:
        attender = attender_type(options.attender)
        backbone = options.backbone or attender.backbone
        if backbone not in BACKBONES:
            choices = ", ".join(BACKBONES)
            raise UsageError(f"unknown backbone {backbone!r}: choose one of {choices}")
        if options.width % 2 or options.d_head % 2:
            raise UsageError(
                f"width {options.width} and d_head {options.d_head}: choose even numbers, since "
                "the encoder has two directions and positions turn pairs"
            )
        return options.model_copy(update={"backbone": backbone})

    @property
    def backbone(self) -> RayChowdhury | Dubois:
        """What is around the attender; weights know it by an older name, ``body``."""
        return self.body

    # The pass

    def encode(self, source: Tensor) -> Encoded:
        """``source (b, s)``: ``$ ... &`` and padding."""
        lengths = source.ne(self.pad).long().sum(1)
        return self.backbone.encode(source, lengths, self.attender)

    def forward(self, source: Tensor, target: Tensor, teacher_forcing: bool = True) -> Tensor:
        """Logits ``(b, t, v)``; each step reads the right token or what the model itself wrote."""
        inputs = self.shifted(target)
        steps = inputs.shape[1]
        loop = Loop(self, self.encode(source), steps)
        tokens, states = inputs[:, 0], []
        for t in range(steps):
            states.append(loop.step(inputs[:, t] if teacher_forcing else tokens, t))
            if not teacher_forcing:
                tokens = self.backbone.logits(states[-1].detach()).argmax(-1)
        return self.backbone.logits(torch.stack(states)).transpose(0, 1)

    def loss(self, source: Tensor, target: Tensor, teacher_forcing: bool = True) -> Tensor:
        return self.cross_entropy(self(source, target, teacher_forcing), target)

    @torch.inference_mode()
    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        encoded = self.encode(source)
        loop = Loop(self, encoded, steps)
        weights, carried = list[Tensor](), list[dict[str, Tensor]]()

        def write(tokens: Tensor, t: int) -> Tensor:
            logits = self.backbone.logits(loop.step(tokens, t))
            if attention:
                weights.append(loop.weights)
                carried.append(loop.carry)
            return logits

        ids = greedy(self, source, steps, write)
        return Decoded(ids, self._over_tokens(weights, encoded, source), carried)

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        encoded, inputs = self.encode(source), self.shifted(target)
        loop = Loop(self, encoded, inputs.shape[1])
        weights = []
        for t, tokens in enumerate(inputs.T):
            loop.step(tokens, t)
            weights.append(loop.weights)
        over = self._over_tokens(weights, encoded, source)
        assert over is not None
        return AttentionWeights({"cross": (over[:, None],)}, {}, {"cross": target != self.pad})

    def _over_tokens(
        self, weights: list[Tensor], encoded: Encoded, source: Tensor
    ) -> Tensor | None:
        """Weights ``(b, t, s)`` of tokens as they were given, those that are cut off too."""
        if not weights:
            return None
        over = self.attender.over_source(torch.stack(weights, 1), encoded.memory)
        before = 1 - self.backbone.offset
        return F.pad(over, (before, source.shape[1] - before - over.shape[2]))

    # What it takes

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), weight_decay=0.0, fused=True)

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        token = 12 * (self.options.width + self.options.embedding)
        return 4 * batch * ((keys + steps) * token + 2 * keys * steps)


class Loop:
    """The decoder's steps on one encoded source."""

    def __init__(self, model: Recurrent, encoded: Encoded, steps: int):
        self.attender, self.backbone = model.attender, model.backbone
        self.values = encoded.values
        self.prepared = self.attender.prepare(encoded.memory, steps)
        self.carry = self.attender.begin(encoded.memory)
        self.states, self.query = list(encoded.states), encoded.query
        self.weights = encoded.values.new_zeros(())

    def step(self, tokens: Tensor, t: int) -> Tensor:
        """The top layer's state ``(b, d)`` after step ``t``, in which ``tokens (b,)`` were read."""
        self.weights, self.carry = self.attender.step(self.query, self.prepared, self.carry, t)
        mixed = torch.bmm(self.weights[:, None], self.values)[:, 0]
        self.backbone.step(self.backbone.read(self.backbone.token(tokens), mixed), self.states)
        self.query = self.states[-1]
        return self.query
