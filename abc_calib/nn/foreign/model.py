"""A model of ``transformers`` behind our contract, encoder-decoder or decoder-only.

It reads and writes ids of its own tokenizer. A decoder-only model has source and output in one
sequence; to whoever asks, its attention has the sites of an encoder-decoder: ``cross`` is what the
output reads of the source, ``self`` what it reads of itself, by the same heads.
"""

from __future__ import annotations

import copy
import inspect
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.config import ForeignOptions
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import LineBias, Site
from abc_calib.geometry.coords import AttentionView
from abc_calib.nn.base import AttentionWeights, Decoded, Model
from abc_calib.nn.foreign.attention import Marks
from abc_calib.nn.foreign.capture import of_batch, views_of
from abc_calib.nn.foreign.inject import detach, put, record_of
from abc_calib.nn.foreign.sites import find_sites

TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt")
"""The files of a tokenizer in a model's folder."""
SPECIAL = ("bos_token_id", "pad_token_id", "decoder_start_token_id")
WRONG_KEYS = ("missing_keys", "unexpected_keys", "mismatched_keys")
ENDLESS = 2**18
"""Tokens after which ``generate()`` stops without an end token."""


class Foreign(Model):
    """The model: see the module."""

    options_type = ForeignOptions
    hub_names = ("foreign", "Foreign")
    in_whole_sources = True
    options: ForeignOptions

    def __init__(self, options: ForeignOptions, tokens: TokenIds):
        super().__init__(options, tokens)
        self.network = build_network(options, tokens)
        self.sites = find_sites(self.network)
        self.stream = self.sites.stream
        self.marks = Marks(tokens.delimiters[1:], len(options.prefix))
        self.vocabulary = tokens.size - 2  # what the tokenizer knows
        self.keeps = "logits_to_keep" in inspect.signature(self.network.forward).parameters
        self._lines: LineBias | None = None
        self.set_lines(None)

    # Lines

    @property
    def attention_layers(self) -> dict[Site, int]:
        """How many layers of attention each site has; tokens of a stream's source look nowhere."""
        return {"encoder": 0, **self.sites.layers}

    @property
    def lines(self) -> LineBias | None:
        return self._lines

    def set_lines(self, lines: LineBias | None) -> None:
        neutral = self.options.scheme == "none"
        if lines is None and not neutral:
            detach(self.network)
        else:
            put(self.network, lines or LineBias({}), self.marks, self.sites, neutral)
        self._lines = lines

    # The pass

    def inputs(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Ids ``(b, n)`` of sources as the tokenizer writes them, and which are no padding."""
        return tokenized(source, self.options, self.pad, self.stream)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        (ids, mask), steps = self.inputs(source), target.shape[1]
        how: dict[str, Any] = {"use_cache": False}
        if self.stream:
            ids = torch.cat([ids, target[:, :-1]], 1)
            mask = F.pad(mask, (0, steps - 1), value=True)
            how["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)  # without padding
            how |= {"logits_to_keep": steps} if self.keeps else {}
        else:
            how["decoder_input_ids"] = self._plain(self.shifted(target))
        inputs = {"input_ids": self._plain(ids), "attention_mask": mask.long()}
        with self._room(ids.shape[1]):
            return self.network(**inputs, **how).logits[:, -steps:]

    @contextmanager
    def _room(self, tokens: int) -> Iterator[None]:
        """``UsageError`` where a table of positions ends before the tokens do."""
        try:
            yield
        except IndexError:
            if "learned" not in self.sites.positions:
                raise
            count = getattr(self.network.config, "max_position_embeddings", "some")
            raise UsageError(
                f"{type(self.network).__name__} has {count} learned positions, too few for "
                f"{tokens} tokens: give shorter lengths, or calibrate it, which takes its "
                "positions out"
            ) from None

    def shifted(self, target: Tensor) -> Tensor:
        """What the decoder reads: its own start, then the target but its last token."""
        read = target.roll(1, dims=1)
        read[:, 0] = self.network.config.decoder_start_token_id
        return read

    def _plain(self, ids: Tensor) -> Tensor:
        """Ids that the network has: padding, which is never read, as its first."""
        return ids.masked_fill(ids >= self.vocabulary, 0)

    @torch.inference_mode()
    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        """As ``generate()`` writes, up to a token that the tokenizer does not have."""
        ids, mask = self.inputs(source)
        how = {"attention_mask": mask.long(), "max_new_tokens": steps}
        with self._room(ids.shape[1] + steps):
            written = self.network.generate(self._plain(ids), **how)
        written = written[:, ids.shape[1] if self.stream else 1 :]
        ends, unknown = written.eq(self.eos).int(), written.ge(self.vocabulary).cumsum(1) > 0
        written = written.masked_fill((ends.cumsum(1) > ends) | unknown, self.pad)
        return Decoded(F.pad(written, (0, steps - written.shape[1]), value=self.pad))

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        ids, mask = self.inputs(source)
        labels, batch = target.masked_fill(target == self.pad, -100), dict[str, Tensor]()
        if self.stream:
            labels = torch.cat([torch.full_like(ids, -100), labels], 1)
            ids, mask = torch.cat([ids, target], 1), F.pad(mask, (0, target.shape[1]), value=True)
        else:
            batch["decoder_input_ids"] = self._plain(self.shifted(target))
        batch |= {"input_ids": self._plain(ids), "attention_mask": mask.long(), "labels": labels}
        with self._room(ids.shape[1]):
            return of_batch(self.network, batch, self.marks)

    def views(self, source: Tensor, target: Tensor) -> dict[Site, AttentionView]:
        """Where the queries and keys of each site stand while ``target`` is written."""
        at = Marks(self.marks.delimiters, 1).of(source, source != self.pad)
        return views_of(at, target, self.stream)

    # What it takes

    def optimizer(self) -> torch.optim.Optimizer:
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        return torch.optim.AdamW(trained, betas=(0.9, 0.98), fused=True)

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        tokens, width = batch * (keys + steps), self.network.config.hidden_size
        needed = 40 * tokens * 5 * width * 4 + tokens * self.vocabulary * 8
        if (record_of(self.network) or {}).get("restricted"):
            return needed
        return needed + 6 * self.sites.heads * batch * (keys + steps) ** 2 * 4

    # Beside the weights

    def write_folder(self, folder: Path) -> bool:
        self.network.save_pretrained(folder)
        for pattern in TOKENIZER:
            for file in Path(self.options.folder).glob(pattern):
                shutil.copyfile(file, folder / file.name)
        return True

    def read_weights(self, weights: dict[str, Tensor]) -> bool:
        """As ``from_pretrained`` does: files may name weights otherwise, and leave some out."""
        how: dict[str, Any] = {"config": copy.deepcopy(self.network.config)}
        how |= {"state_dict": weights, "output_loading_info": True}
        network, info = type(self.network).from_pretrained(None, **how)
        if wrong := [name for kind in WRONG_KEYS for name in info[kind]]:
            raise AbcError(f"its weights are another model's ({wrong[0]})")
        self.network.load_state_dict(network.state_dict())
        return True


def tokenized(
    source: Tensor, options: ForeignOptions, pad: int, stream: bool
) -> tuple[Tensor, Tensor]:
    """Put sources ``(b, s)`` between the tokenizer's prefix and suffix; also say what is padding.

    Returns ids ``(b, n)`` and a mask, false on padding. In a ``stream`` the output follows: padding
    is on the left, and no suffix stands between.
    """
    behind = () if stream else options.suffix[int(options.closed) :]
    before, after = (
        source.new_tensor(ids).long().expand(len(source), -1) for ids in (options.prefix, behind)
    )
    ids = torch.cat([before, source[:, 1:], after], 1)
    valid = ids != pad
    order = valid.int().argsort(dim=1, descending=not stream, stable=True)
    ids, mask = ids.gather(1, order), valid.gather(1, order)
    kept = mask.any(0) | (len(mask) == 0)
    return ids[:, kept], mask[:, kept]


def build_network(options: ForeignOptions, tokens: TokenIds) -> Any:
    """A fresh model of a class of ``transformers``, which generates greedily up to its end."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    kind: Any = getattr(transformers, options.architecture, None)
    if kind is None:
        raise UsageError(f"transformers has no class {options.architecture}: install its version")
    # experts by a plain loop: the others compute in no double precision
    how = {"attn_implementation": None, "experts_implementation": "eager"}
    network = kind(kind.config_class.from_dict({**options.config, **how})).float()
    ids = {name: getattr(network.config, name, None) for name in SPECIAL}
    ids |= {"eos_token_id": tokens.eos, "max_new_tokens": ENDLESS}
    if ids["pad_token_id"] is None:
        ids["pad_token_id"] = tokens.eos
    network.generation_config = transformers.GenerationConfig(**ids)
    return network
