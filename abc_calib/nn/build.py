"""From options to a model with fresh weights."""

from __future__ import annotations

import torch

from abc_calib.config import ModelOptions, RecurrentOptions
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import UsageError
from abc_calib.nn.positions import own_schemes
from abc_calib.nn.recurrent.model import RecurrentModel
from abc_calib.nn.transformer.model import AbcConfig, AbcTransformer
from abc_calib.training.recipes import build_recurrent

Model = AbcTransformer | RecurrentModel


def check_heads(options: ModelOptions) -> None:
    """Raise ``UsageError`` unless the heads can share the width."""
    if options.width % options.heads:
        raise UsageError(
            f"width {options.width} is not divisible by {options.heads} heads: "
            "choose a width that is a multiple of the heads"
        )


def build_model(
    options: ModelOptions | RecurrentOptions, vocabulary: Vocabulary, seed: int
) -> Model:
    """A model with fresh weights drawn from ``seed``."""
    if isinstance(options, RecurrentOptions):
        return build_recurrent(options, vocabulary, seed)
    check_heads(options)
    config = AbcConfig(
        vocab_size=len(vocabulary),
        d_model=options.width,
        encoder_layers=options.encoder_layers,
        decoder_layers=options.decoder_layers,
        heads=options.heads,
        feedforward=options.feedforward,
        dropout=options.dropout,
        scheme=options.scheme,
        own_schemes=own_schemes(options) or None,
        cyclic=options.cyclic,
        delimiter_ids=list(vocabulary.delimiters),
        pad_token_id=vocabulary.pad,
        bos_token_id=vocabulary.sos,
        eos_token_id=vocabulary.eos,
        decoder_start_token_id=vocabulary.sos,
    )
    torch.manual_seed(seed)
    return AbcTransformer(config)
