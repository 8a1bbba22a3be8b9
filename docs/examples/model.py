"""A kind of model without attention: explained in CONTRIBUTING.md, executed by a test."""

import torch
from torch import nn

from abc_calib.config import MODEL_OPTIONS, ModelOptions, TrainOptions
from abc_calib.config.options import option
from abc_calib.data.vocabulary import TokenIds
from abc_calib.nn.base import Decoded, Model
from abc_calib.nn.build import MODELS
from abc_calib.training.recipes import RECIPES, Recipe


class StripOptions(ModelOptions):
    """The shape of the strip."""

    width: int = option(16, "Width of the embeddings.", ge=1, le=1000)

    @property
    def label(self):
        return "strip"


class Strip(Model):
    """Writes row ``t`` from what it wrote before and the token ``t`` of its source."""

    options_type = StripOptions
    hub_names = ("strip", "Strip")
    no_lines = "it has no attention at all"

    def __init__(self, options, tokens):
        super().__init__(options, tokens)
        self.beside = nn.Embedding(tokens.size, options.width)
        self.written = nn.Embedding(tokens.size, options.width)
        self.head = nn.Linear(options.width, tokens.size)

    def forward(self, source, target):
        steps = target.shape[1]
        read = nn.functional.pad(source[:, 1 : 1 + steps], (0, steps), value=self.pad)[:, :steps]
        return self.head(torch.tanh(self.beside(read) + self.written(self.shifted(target))))

    @torch.inference_mode()
    def decode(self, source, steps, attention=False):
        ids = source.new_full((len(source), steps), self.pad)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        for t in range(steps):
            best = self(source, ids)[:, t].argmax(-1)
            ids[:, t] = best.masked_fill(ended, self.pad)
            ended |= best == self.eos
        return Decoded(ids)

    def optimizer(self):
        return torch.optim.AdamW(self.parameters(), weight_decay=0.0)

    def memory_needed(self, batch, keys, steps, training=False):
        return 8 * batch * steps * (self.options.width + self.tokens.size)

    def hub_config(self):
        return {"vocab_size": self.tokens.size, "d_model": self.options.width}

    @classmethod
    def from_hub_config(cls, config):
        ids = (config[f"{name}_token_id"] for name in ("pad", "bos", "eos"))
        return cls(StripOptions(width=config["d_model"]), TokenIds(config["vocab_size"], *ids))


def strip(task, preset, given):
    """Give the defaults of its shape and of its training."""
    training = TrainOptions(steps=300, batch=32, learning_rate=0.02, optimizer="adam", warmup=0)
    return Recipe(StripOptions(), training)


MODEL_OPTIONS["strip"] = StripOptions
MODELS["strip"] = Strip
RECIPES["strip"] = strip
