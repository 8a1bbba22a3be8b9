"""What ``generate`` hands from step to step: the encoded source, and our own cache."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from transformers import EncoderDecoderCache
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPast

from abc_calib.nn.foreign.kept import CACHES
from abc_calib.nn.transformer.base import Autoregressive
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.encoder import Encoded

KNOWN = {field.name for field in fields(BaseModelOutputWithPast)}
CACHE = next(name for name in CACHES if name in KNOWN)
"""What the release of ``transformers`` that is installed calls a cache."""


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


def encoded(output: EncoderOutput) -> Encoded:
    """As the network takes it."""
    memory, lengths, delimiters = output.last_hidden_state, output.lengths, output.delimiters
    known = memory is not None and lengths is not None and delimiters is not None
    assert known, "encoder_outputs have to come from this model's encoder"
    found: Any = Encoded(memory, lengths, delimiters, output.start or 0, drawn=output.drawn)  # type: ignore[arg-type]
    states = () if output.states is None else output.states.unbind(1)
    return replace(found, states=states, numbers=output.numbers)
