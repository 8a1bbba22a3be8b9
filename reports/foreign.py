"""A stock model of transformers, trained on six-digit addition by a plain loop.

    python reports/foreign.py llama my-model

makes the folder ``my-model``, for ``abc calibrate --hf``, and ``pairs.jsonl`` next to it. The loop
knows nothing of this program: 50,000 pairs such as ``{"source": "123456+000789=", "target":
"542421"}``, and a tokenizer of one token a character. Those pairs are written whose longer number
begins with no zero.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as plain
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from torch.nn.utils.rnn import pad_sequence

transformers: Any = plain
PAIRS, DIGITS, BATCH, STEPS, RATE = 50_000, 6, 128, 6000, 3e-3
WIDTH, LAYERS, HEADS = 64, 3, 8
SIZES = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH}
SIZES |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
BOTH = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (
    ("layers", LAYERS), ("ffn_dim", 4 * WIDTH), ("attention_heads", HEADS))}  # fmt: skip
STOCK: dict[str, dict[str, Any]] = {
    "llama": SIZES,
    "t5": (
        {"d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH, "num_heads": HEADS}
        | {"num_layers": LAYERS, "dropout_rate": 0.0, "decoder_start_token_id": 0}
        | {"tie_word_embeddings": False}
    ),
    "gpt2": (
        {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 2048}
        | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ),
    "gpt_neox": SIZES,
    "qwen2": SIZES | {"num_key_value_heads": HEADS},
    "bart": (
        {"d_model": WIDTH, **BOTH, "dropout": 0.0, "max_position_embeddings": 2048}
        | {"decoder_start_token_id": 2, "forced_eos_token_id": None}
    ),
}
"""What shapes a small model of each family."""
ENCODERS = ("t5", "bart")


def pairs() -> dict[str, str]:
    """Sums of two numbers, filled up with zeros to one width; a quarter with long carries."""
    rng, found = np.random.default_rng(0), dict[str, str]()
    while len(found) < PAIRS:
        widths = rng.integers(1, DIGITS + 1, 2)
        a, b = (rng.integers(0, 10, widths.max()) for _ in range(2))
        a[: len(a) - widths[0]] = 0
        b[: len(b) - widths[1]] = 0
        if rng.random() < 1 / 4:
            start, stop = np.sort(rng.integers(0, len(a) + 1, 2))
            b[start:stop] = 9 - a[start:stop]
        one, two = ("".join(map(str, x)) for x in (a, b))
        found[f"{one}+{two}="] = str(int(one) + int(two))[::-1]
    return found


def write_proper(texts: dict[str, str], file: Path) -> None:
    """Write those pairs whose longer number begins with no zero, or is 0."""
    with file.open("w") as out:
        for source, target in texts.items():
            a, b = source.rstrip("=").split("+")
            if len(a) == 1 or a[0] + b[0] != "00":
                out.write(json.dumps({"source": source, "target": target}) + "\n")


def tokenizer(ends: bool) -> Any:
    """One token a character; ``ends``: sources get an end token, as T5's do."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *"0123456789+="]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    if ends:
        made.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 2)]
        )
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)


def stock(name: str, words: int) -> Any:
    """A fresh model with its class's own positions."""
    ids = {"vocab_size": words, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    kind = "AutoModelForSeq2SeqLM" if name in ENCODERS else "AutoModelForCausalLM"
    config = transformers.AutoConfig.for_model(name, **ids, **STOCK[name])
    return getattr(transformers, kind).from_config(config)


def batch_of(pairs: list[tuple[list[int], list[int]]], stream: bool) -> dict[str, torch.Tensor]:
    """What a model of transformers takes: ``labels`` are -100 where nothing counts."""
    ids, labels = [], []
    for source, answer in pairs:
        target = [*answer, 2]
        ids.append(torch.tensor(source + target if stream else source))
        labels.append(torch.tensor([-100] * len(source) * stream + target))
    mask = [torch.ones_like(row) for row in ids]
    parts = {"input_ids": (ids, 0), "labels": (labels, -100), "attention_mask": (mask, 0)}
    return {name: pad_sequence(rows, True, value) for name, (rows, value) in parts.items()}


@torch.no_grad()
def right(model: Any, batch: dict[str, torch.Tensor], stream: bool) -> float:
    """Exact match of held-out pairs, the right tokens before each given."""
    logits, labels = model.eval()(**batch).logits, batch["labels"]
    if stream:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return float(((logits.argmax(-1) == labels) | (labels < 0)).all(1).float().mean())


def train(name: str, texts: dict[str, str], out: Path) -> None:
    """Train a stock model until it is right on held-out pairs, or as long as it may."""
    stream = name not in ENCODERS
    words = tokenizer(ends=not stream)
    torch.manual_seed(0)
    model = stock(name, len(words))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    sources = words([*texts])["input_ids"]
    answers = words([*texts.values()], add_special_tokens=False)["input_ids"]
    tokens = [*zip(sources, answers, strict=True)]
    widths = np.array([len(source.split("+")[0]) for source in texts])
    order = np.random.default_rng(1).permutation(len(texts))
    held = order[widths[order] == DIGITS][:1000]
    known = np.setdiff1d(order, held)
    by_width = [known[widths[known] == width] for width in range(1, DIGITS + 1)]
    test, good, begun = batch_of([tokens[k] for k in held], stream), 0, time.perf_counter()
    for step in range(STEPS):
        rate = RATE * min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rng = np.random.default_rng([2, step])
        rows = [rng.choice(by_width[width]) for width in rng.integers(0, DIGITS, BATCH)]
        optimizer.zero_grad()
        batch = batch_of([tokens[k] for k in rows], stream)
        model.train()(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 250 == 0:
            accuracy = right(model, test, stream)
            good = good + 1 if accuracy >= 0.999 else 0
            seconds = round(time.perf_counter() - begun, 1)
            print(f"{name}: step {step + 1}, {accuracy:.2%} right, {seconds} s", flush=True)
            if good == 2:
                break
    model.save_pretrained(out)
    words.save_pretrained(out)


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) != 3 or sys.argv[1] not in STOCK:
        raise SystemExit(f"give a family ({', '.join(STOCK)}) and a folder to make")
    name, out = sys.argv[1], Path(sys.argv[2])
    if out.exists():
        raise SystemExit(f"{out} is there already: give another folder")
    print(f"{name}: at most {STEPS:,} steps, until 99.9 % of held-out sums are right", flush=True)
    texts = pairs()
    train(name, texts, out)
    write_proper(texts, out.with_name("pairs.jsonl"))


if __name__ == "__main__":
    main()
