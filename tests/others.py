"""Tiny models of transformers, a tokenizer of one token a character, and pairs."""

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
FAMILIES = ("llama", "gpt2", "gpt_neox", "qwen2", "t5", "bart")
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


def tiny(family: str, width: int = 16, layers: int = 2, heads: int = 4) -> Any:
    """A model with random weights."""
    flat = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    wide = {"intermediate_size": 2 * width}
    if family == "llama":
        config = tf.LlamaConfig(**IDS, **flat, **wide, num_key_value_heads=heads // 2)
        return tf.LlamaForCausalLM(config)
    if family == "qwen2":
        config = tf.Qwen2Config(**IDS, **flat, **wide, num_key_value_heads=heads // 2)
        return tf.Qwen2ForCausalLM(config)
    if family == "gpt_neox":
        return tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**IDS, **flat, **wide))
    if family == "gpt2":
        shape = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 24}
        return tf.GPT2LMHeadModel(tf.GPT2Config(**IDS, **shape))
    if family == "t5":
        shape = {"d_model": width, "d_kv": width // heads, "d_ff": 2 * width, "num_heads": heads}
        depth = {"num_layers": layers, "dropout_rate": 0.0}  # as many in its encoder
        config = tf.T5Config(**IDS, **shape, **depth, decoder_start_token_id=0)
        return tf.T5ForConditionalGeneration(config)
    config = tf.BartConfig(
        **IDS,
        **{"d_model": width, "encoder_layers": 1, "decoder_layers": layers},
        **{"encoder_attention_heads": heads, "decoder_attention_heads": heads},
        **{"encoder_ffn_dim": 2 * width, "decoder_ffn_dim": 2 * width, "dropout": 0.0},
        **{"decoder_start_token_id": 2, "forced_eos_token_id": None, "init_std": 0.3},
        max_position_embeddings=24,
    )
    return tf.BartForConditionalGeneration(config)


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


def train(model: Any, words: Any, pairs: list[tuple[str, str]], steps: int, rate: float) -> None:
    """A plain loop, every width as likely, until the model writes all pairs."""
    stream = not model.config.is_encoder_decoder
    sources = [words(source)["input_ids"] for source, _ in pairs]
    targets = [[*words(t, add_special_tokens=False)["input_ids"], 2] for _, t in pairs]
    widths = np.array([len(source) for source, _ in pairs])
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
