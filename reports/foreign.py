"""Stock models of transformers: trained on six-digit addition, then calibrated.

Each is trained by a plain loop that knows nothing of this program, on 50,000 pairs such as
``{"source": "123456+000789=", "target": "542421"}`` with a tokenizer of one token a character.
Then ``abc.adopt``, ``abc.calibrate`` on those pairs whose longer number begins with no zero,
``abc.evaluate`` and ``abc.certify``. Goes on where it was stopped:

    python reports/foreign.py            # all, into reports/foreign.csv and foreign.md
    python reports/foreign.py llama t5   # some of them
    python reports/foreign.py --page     # the page alone

Only the first part, for a model to try ``abc calibrate --hf`` on; the pairs are next to it:

    python reports/foreign.py --stock llama my-model
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from abc_calib.text import as_markdown

HERE = Path(__file__).parent
TABLE, PAGE = HERE / "foreign.csv", HERE / "foreign.md"
WORK = Path("runs/foreign")
PAIRS, DIGITS, BATCH, STEPS, RATE = 50_000, 6, 128, 6000, 3e-3
LENGTHS = {6: 1000, 10: 1000, 50: 1000, 200: 200, 1000: 50}
WIDTH, LAYERS, HEADS = 64, 3, 8


def pairs(path: Path) -> list[tuple[str, str]]:
    """Sums of two numbers, filled up with zeros to one width; a quarter with long carries."""
    if not path.exists():
        rng = np.random.default_rng(0)
        found: dict[str, str] = {}
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
        lines = [json.dumps({"source": s, "target": t}) for s, t in found.items()]
        path.write_text("\n".join(lines) + "\n")
    read = (json.loads(line) for line in path.read_text().splitlines())
    return [(one["source"], one["target"]) for one in read]


def proper(path: Path) -> Path:
    """The file of those pairs whose longer number begins with no zero, or is 0."""
    kept = path.with_name("proper.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    split = [json.loads(line)["source"].rstrip("=").split("+") for line in lines]
    right = [len(a) == 1 or a[0] + b[0] != "00" for a, b in split]
    kept.write_text("".join(line for line, this in zip(lines, right, strict=True) if this))
    return kept


def tokenizer(ends: bool):
    """One token a character; ``ends``: sources get an end token, as T5's do."""
    import transformers as plain

    transformers: Any = plain
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "<s>", "</s>", "<unk>", *"0123456789+="]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    if ends:
        made.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 2)]
        )
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)


SIZES = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH}
SIZES |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
BOTH = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (
    ("layers", LAYERS), ("ffn_dim", 4 * WIDTH), ("attention_heads", HEADS))}  # fmt: skip
STOCK: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", SIZES),
    "t5": (
        "T5",
        {"d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH, "num_heads": HEADS}
        | {"num_layers": LAYERS, "dropout_rate": 0.0, "decoder_start_token_id": 0}
        | {"tie_word_embeddings": False},
    ),
    "gpt2": (
        "GPT2",
        {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 2048}
        | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    ),
    "gpt_neox": ("GPTNeoX", SIZES),
    "qwen2": ("Qwen2", SIZES | {"num_key_value_heads": HEADS}),
    "bart": (
        "Bart",
        {"d_model": WIDTH, **BOTH, "dropout": 0.0, "max_position_embeddings": 2048}
        | {"decoder_start_token_id": 2, "forced_eos_token_id": None},
    ),
}
"""The family in transformers, and what shapes a small one."""
ENCODERS = ("t5", "bart")
ENDED = {"steps": "step", "seconds": "seconds"}
"""Fields of a run's result, and of a plain training's."""


def stock(name: str, words: int) -> Any:
    """A fresh model with its class's own positions."""
    import transformers

    tf: Any = transformers
    family, shape = STOCK[name]
    ids = {"vocab_size": words, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    kind = "ForConditionalGeneration" if name in ENCODERS else "ForCausalLM"
    if family == "GPT2":
        kind = "LMHeadModel"
    return getattr(tf, family + kind)(getattr(tf, f"{family}Config")(**ids, **shape))


class Sums:
    """The pairs as tensors, for a plain loop."""

    def __init__(self, texts, words, stream: bool):
        self.stream = stream
        self.sources = [words(source)["input_ids"] for source, _ in texts]
        self.targets = [[*words(t, add_special_tokens=False)["input_ids"], 2] for _, t in texts]
        self.widths = np.array([len(source.split("+")[0]) for source, _ in texts])

    def batch(self, rows):
        """What a model of transformers takes: ``labels`` are -100 where nothing counts."""
        ids, labels = [], []
        for row in rows:
            source, target = self.sources[row], self.targets[row]
            ids.append(source + target if self.stream else source)
            labels.append([-100] * len(source) + target if self.stream else target)
        mask = [[1] * len(one) for one in ids]
        pads = ((ids, 0), (labels, -100), (mask, 0))
        full = [padded(part, value) for part, value in pads]
        return dict(zip(("input_ids", "labels", "attention_mask"), full, strict=True))


def padded(rows, value):
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


@torch.no_grad()
def right(model, sums, rows) -> float:
    """Exact match of held-out pairs, the right tokens before each given."""
    model.eval()
    batch = sums.batch(rows)
    logits = model(**batch).logits
    labels = batch["labels"]
    if sums.stream:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return float(((logits.argmax(-1) == labels) | (labels < 0)).all(1).float().mean())


def train(name: str, folder: Path) -> dict[str, Any]:
    """Train a stock model until it is right on held-out pairs, or as long as it may."""
    saved = folder / "training.pt"
    words = tokenizer(ends=name in ENCODERS)
    torch.manual_seed(0)
    model = stock(name, len(words))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    state: dict[str, Any] = {"step": 0, "seconds": 0.0, "good": 0}
    if saved.exists():
        kept = torch.load(saved)
        state = kept["state"]
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    sums = Sums(pairs(WORK / "pairs.jsonl"), words, stream=name not in ENCODERS)
    order = np.random.default_rng(1).permutation(len(sums.sources))
    held = order[sums.widths[order] == DIGITS][:1000]
    known = np.setdiff1d(order, held)
    by_width = [known[sums.widths[known] == width] for width in range(1, DIGITS + 1)]
    begun = time.perf_counter() - state["seconds"]
    while state["step"] < STEPS and state["good"] < 2:
        step = state["step"]
        rate = RATE * min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rng = np.random.default_rng([2, step])
        rows = [rng.choice(by_width[width]) for width in rng.integers(0, DIGITS, BATCH)]
        optimizer.zero_grad()
        model.train()(**sums.batch(rows)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        state["step"] = step + 1
        if state["step"] % 250 == 0:
            state["accuracy"] = right(model, sums, held)
            state["good"] = state["good"] + 1 if state["accuracy"] >= 0.999 else 0
            state["seconds"] = round(time.perf_counter() - begun, 1)
            print(name, state, flush=True)
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**parts, "state": state}, saved)
    model.save_pretrained(folder / "stock")
    words.save_pretrained(folder / "stock")
    return state


def rows_of(name: str) -> list[dict[str, Any]]:
    """Train, calibrate, retrain and evaluate one model."""
    import abc_calib as abc
    from abc_calib.stages import finished

    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    state = train(name, folder)
    own, lines, data = folder / "own", folder / "calibrated", proper(WORK / "pairs.jsonl")
    there = own.exists()
    adopted = abc.Run.open(own) if there else abc.adopt(folder / "stock", data, "+,=", out=own)
    calibrated = finished(lines, lambda: abc.calibrate(adopted, out=lines, stop_early=True))
    made = abc.certify(calibrated, minutes=60.0)
    found = []
    for stage, run in (("stock", adopted), ("calibrated", calibrated)):
        result = run.result or {}
        about = {name: result.get(name) or state[short] for name, short in ENDED.items()}
        if stage == "calibrated":
            about |= {"outcome": made.outcome, "windows": made.windows, "margin": made.margin}
        for length, samples in LENGTHS.items():
            if stage == "stock" and length > 50:
                continue
            how: Any = {"samples": samples, "sets": ("random", "carry"), "progress": False}
            for row in abc.evaluate(run, [length], **how).itertuples():
                place = {"model": name, "stage": stage, "digits": length, "set": row.set}
                found.append({**place, "accuracy": row.accuracy, "n": row.n, **about})
                print(found[-1], flush=True)
    return found


def page(table: pd.DataFrame) -> str:
    """A row of each model and stage: the worse of random and hard sums at each length."""
    rows = []
    for (name, stage), some in table.groupby(["model", "stage"], sort=False):
        least = some.groupby("digits").accuracy.min()
        cells = [f"{least[n]:.1f}" if n in least else "–" for n in LENGTHS]
        one = some.iloc[0]
        said = "–" if one.outcome != one.outcome else one.outcome
        said += f", {one.windows:,.0f} windows" * bool(one.windows > 0)
        rows.append([name, stage, *cells, f"{one.steps:,}", f"{one.seconds / 60:.1f}", said])
    heads = ["model", "stage", *(f"{n:,}" for n in LENGTHS), "steps", "minutes", "every length"]
    made = as_markdown(heads, rows, "ll" + "r" * (len(heads) - 3) + "l")
    return HERE.joinpath("foreign_page.txt").read_text().format(table=made)


def stock_alone(name: str, out: Path) -> None:
    """Train a stock model, and put it and its pairs where ``out`` says."""
    if out.exists():
        raise SystemExit(f"{out} is there already: give another folder")
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{name}: at most {STEPS:,} steps, until 99.9 % of held-out sums are right", flush=True)
    train(name, folder)
    shutil.copytree(folder / "stock", out)
    shutil.copyfile(proper(WORK / "pairs.jsonl"), out.with_name("pairs.jsonl"))


def main() -> None:
    torch.set_num_threads(1)
    WORK.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:2] == ["--stock"]:
        if len(sys.argv) != 4 or sys.argv[2] not in STOCK:
            raise SystemExit(f"give a family ({', '.join(STOCK)}) and a folder to make")
        return stock_alone(sys.argv[2], Path(sys.argv[3]))
    asked = sys.argv[1:] or list(STOCK)
    for name in asked:
        done = TABLE.exists() and name in set(pd.read_csv(TABLE).model)
        if name in STOCK and not done:
            made = pd.DataFrame(rows_of(name))
            made.to_csv(TABLE, mode="a", header=not TABLE.exists(), index=False)
    PAGE.write_text(page(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
