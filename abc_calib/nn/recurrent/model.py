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
        loop = Loop(self, self.encode(source), steps)
        ids = greedy(self, source, steps, lambda *step: self.backbone.logits(loop.step(*step)))
        return Decoded(ids, loop.over(source), loop.carried[1:]) if attention else Decoded(ids)

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        inputs = self.shifted(target)
        loop = Loop(self, self.encode(source), inputs.shape[1])
        for t, tokens in enumerate(inputs.T):
            loop.step(tokens, t)
        weights = loop.over(source)[:, None]
        return AttentionWeights({"cross": (weights,)}, {}, {"cross": target != self.pad})

    # What it takes

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), weight_decay=0.0, fused=True)

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        token = 12 * (self.options.width + self.options.embedding)
        return 4 * batch * ((keys + steps) * token + 2 * keys * steps)


class Loop:
    """The decoder's steps on one encoded source.

    ``weights (b, s)`` of each step, and ``carried``: what the first finds and each leaves.
    """

    def __init__(self, model: Recurrent, encoded: Encoded, steps: int):
        self.attender, self.backbone, self.encoded = model.attender, model.backbone, encoded
        self.prepared = self.attender.prepare(encoded.memory, steps)
        self.carried = [self.attender.begin(encoded.memory)]
        self.states, self.query = list(encoded.states), encoded.query
        self.weights = list[Tensor]()

    def step(self, tokens: Tensor, t: int) -> Tensor:
        """The top layer's state ``(b, d)`` after step ``t``, in which ``tokens (b,)`` were read."""
        weights, carry = self.attender.step(self.query, self.prepared, self.carried[-1], t)
        mixed = torch.bmm(weights[:, None], self.encoded.values)[:, 0]
        self.backbone.step(self.backbone.read(self.backbone.token(tokens), mixed), self.states)
        self.weights.append(weights)
        self.carried.append(carry)
        self.query = self.states[-1]
        return self.query

    def over(self, source: Tensor) -> Tensor:
        """Weights ``(b, t, s)`` of tokens as they were given, those that are cut off too."""
        over = self.attender.over_source(torch.stack(self.weights, 1), self.encoded.memory)
        before = 1 - self.backbone.offset
        return F.pad(over, (before, source.shape[1] - before - over.shape[2]))
