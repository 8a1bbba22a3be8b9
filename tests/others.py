"""A tokenizer of one token a character, pairs, and a plain training on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

WORDS = ["<pad>", "<s>", "</s>", "<unk>", *"0123456789+="]
IDS = {"vocab_size": len(WORDS), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
tf: Any = transformers  # so much of it is typed by hand that nothing of it would fit
tf.utils.logging.set_verbosity_error()
tf.utils.logging.disable_progress_bar()


def tokenizer(bos: bool = False, eos: bool = False) -> Any:
    """One token a character, between special tokens if they are asked for."""
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    if bos or eos:
        made.post_processor = processors.TemplateProcessing(
            single="<s> " * bos + "$A" + " </s>" * eos,
            special_tokens=[("<s>", 1), ("</s>", 2)],
        )
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, **special)


def saved(model: Any, words: Any, folder: Path) -> Path:
    """The folder, with a model and its tokenizer in it."""
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> Path:
    lines = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    path.write_text("\n".join(lines) + "\n")
    return path


def reversals(longest: int = 4, n: int = 1500) -> list[tuple[str, str]]:
    """``312=`` with ``213``: a rule that is in no registry."""
    rng = np.random.default_rng(0)
    texts = dict.fromkeys(
        "".join(map(str, rng.integers(0, 10, rng.integers(1, longest + 1)))) for _ in range(n)
    )
    return [(f"{text}=", text[::-1]) for text in texts]


def sums(longest: int = 3, n: int = 300) -> list[tuple[str, str]]:
    """``12+34=`` with ``64``."""
    rng = np.random.default_rng(0)
    drawn = (rng.integers(0, 10 ** rng.integers(1, longest + 1), 2) for _ in range(n))
    pairs = {f"{a}+{b}=": str(a + b)[::-1] for a, b in drawn}
    return list(pairs.items())


def train(model: Any, sources: Any, targets: Any, steps: int, rate: float) -> None:
    """A plain loop, every width as likely, until the model writes all targets."""
    stream = not model.config.is_encoder_decoder
    widths = np.array([len(source) for source in sources])
    groups = [np.flatnonzero(widths == width) for width in np.unique(widths)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    rng = np.random.default_rng(0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 30) * (1 - step / steps)
        rows = [rng.choice(groups[rng.integers(len(groups))]) for _ in range(64)]
        loss = model.train()(**batch(rows, sources, targets, stream)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 24 and loss < 0.01:
            break
    model.eval()


def as_ids(words: Any, pairs: list[tuple[str, str]]) -> tuple[list[Any], list[Any]]:
    """The ids of all sources, and of all targets with their ends."""
    targets = [[*words(t, add_special_tokens=False)["input_ids"], 2] for _, t in pairs]
    return [words(source)["input_ids"] for source, _ in pairs], targets


def batch(rows: Any, sources: Any, targets: Any, stream: bool) -> dict[str, torch.Tensor]:
    """What a model of transformers takes."""
    ids = [sources[i] + targets[i] if stream else sources[i] for i in rows]
    labels = [[-100] * len(sources[i]) + targets[i] if stream else targets[i] for i in rows]
    mask = [[1] * len(one) for one in ids]
    named = ("input_ids", "labels", "attention_mask")
    full = (padded(part, value) for part, value in ((ids, 0), (labels, -100), (mask, 0)))
    return dict(zip(named, full, strict=True))


def padded(rows: list[list[int]], value: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])
