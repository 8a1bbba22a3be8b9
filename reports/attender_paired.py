"""A training step of every attender of Ray Chowdhury & Caragea beside their public code.

    python reports/attender_paired.py FOLDER [--steps 30]

FOLDER is a copy of https://github.com/JRC1995/MonotonicLocationAttention. Both models take the
same batches of copy, 32 problems each, by turns in one process on one thread: the pass, the loss,
the gradients, their clipping and the optimiser, and nothing else that the public training does.
Milliseconds are of the process (CPU), medians over the steps. Writes attender_paired.csv and .md.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from abc_calib.config import RecurrentOptions, TrainOptions
from abc_calib.data import Batch, TokenData
from abc_calib.nn.build import build_model
from abc_calib.text import Markup, as_markdown
from abc_calib.training.step import optimise
from tasks import get_task

TABLE = Path(__file__).with_suffix(".csv")
BATCH, WARM_UP = 32, 3
THEIRS = {
    "content": "BiGRU",
    "relative": "BiGRUrel",
    "loc": "BiGRU_locattn",
    "loc_s": "BiGRU_locattn_simple",
    "bi_relative": "BiGRUrel_mixdir",
    "bi_rope": "BiGRUrope_mixdir",
    "one_step": "BiGRU_OneStep",
    "mono_released": "BiGRU_MonoAttn",
    "r_mono": "BiGRU_RMonoAttn",
    "no_step2": "BiGRU_AblationStep",
    "no_step3": "BiGRU_SoftStairStep",
    "no_sigmoid": "BiGRU_FreeStep",
    "mix_loc": "BiGRU_mixattn",
    "mix_loc_s": "BiGRU_mixattn_simple",
    "mix_loc_s_pr": "BiGRU_mixattn_simplePR",
    "mix_one_step": "BiGRU_MixOneStep",
    "mix_one_step_pr": "BiGRU_MixOneStepPR",
    "mix_mono": "BiGRU_MixMonoAttn",
    "mix_mono_pr": "BiGRU_MixMonoAttnPR",
    "mix_r_mono": "BiGRU_MixRMonoAttn",
    "mix_r_mono_pr": "BiGRU_MixRMonoAttnPR",
}
"""The name in the public code of each attender that it has."""


def public_step(name: str, vocabulary: int) -> Callable[[dict[str, Any]], None]:
    """One training step of the public model on a batch as it takes them."""
    kind = getattr(importlib.import_module("configs.copy_configs"), f"{THEIRS[name]}_config")()
    config = {key: getattr(kind, key) for key in dir(kind) if not key.startswith("__")}
    config |= {"vocab_len": vocabulary, "UNK_id": 1, "SOS_id": 2, "EOS_id": 3, "PAD_id": 0}
    config |= {"vocab2idx": {"<sos>": 2}, "generate": False}
    framework = importlib.import_module("models.seq2seq_framework")
    model = framework.seq2seq_framework(None, config).train()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=config["lr"], weight_decay=config["weight_decay"])

    def step(batch: dict[str, Any]) -> None:
        shares, mask = model(batch)["logits"], batch["trg_mask"]
        wanted = F.one_hot(batch["labels"], num_classes=vocabulary)
        loss = ((-torch.log(shares + 1e-9) * wanted).sum(-1) * mask).sum() / mask.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, config["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()

    return step


def for_public(batch: Batch, pad: int) -> dict[str, Any]:
    """The same problems; START and END are put around the source by the public model itself."""
    places = torch.arange(batch.source.shape[1] - 2)
    inside = places < (batch.source.ne(pad).sum(1) - 2)[:, None]
    source = batch.source[:, 1:-1].masked_fill(~inside, 0)
    target = batch.target.masked_fill(batch.target.eq(pad), 0)
    return {
        "src_vec": source,
        "ptr_src_vec": source,
        "src_mask": inside.float(),
        "trg_vec": target,
        "labels": target,
        "trg_mask": batch.target.ne(pad).float(),
        "max_oov_num": 0,
    }


def seconds(step: Callable[[], object]) -> float:
    started = time.process_time()
    step()
    return time.process_time() - started


def measure(name: str, steps: int) -> dict[str, Any]:
    """The row of one attender."""
    task: Any = get_task("copy")
    data = TokenData(task, TrainOptions(length=task.train_length, sampling=task.sampling))
    model: Any = build_model("gru", RecurrentOptions(attender=name), data, 0)
    theirs, optimizer = public_step(name, len(data.vocabulary)), model.optimizer()
    model.train()
    times: dict[str, list[float]] = {"ours": [], "public": []}
    for step in range(WARM_UP + steps):
        batch = data.training(step, BATCH)
        given = for_public(batch, data.vocabulary.pad)
        turns: dict[str, Callable[[], object]] = {
            "ours": lambda b=batch: optimise(model, optimizer, b, rate=1e-3, max_grad_norm=5.0),  # type: ignore[misc]
            "public": lambda g=given: theirs(g),  # type: ignore[misc]
        }
        for who in sorted(turns, reverse=bool(step % 2)):
            times[who].append(seconds(turns[who]))
    ms = {who: 1000 * statistics.median(taken[WARM_UP:]) for who, taken in times.items()}
    ratio = round(ms["public"] / ms["ours"], 2)
    return {"attender": name, **{k: round(v, 2) for k, v in ms.items()}, "ratio": ratio}


def report(rows: pd.DataFrame) -> str:
    worst = rows.sort_values("ratio").iloc[0]
    shown = [
        [Markup(r.attender), f"{r.ours:.1f}", f"{r.public:.1f}", f"{r.ratio:.2f}"]
        for r in rows.itertuples()
    ]
    return (
        "# A training step beside the public code\n\n"
        "Made by `python reports/attender_paired.py FOLDER` with a copy of the [public code]"
        "(https://github.com/JRC1995/MonotonicLocationAttention) of Ray Chowdhury & Caragea "
        f"(2023): copy, batches of {BATCH}, one thread, both by turns in one process; CPU "
        "milliseconds, medians. On a busy machine both are slower; what counts is the ratio: "
        f"median {rows['ratio'].median():.2f}, least {worst['ratio']:.2f} "
        f"({worst['attender']}).\n\n"
        + as_markdown(["attender", "this code, ms", "public code, ms", "ratio"], shown, "lrrr")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    sys.path.append(given.folder)
    torch.set_num_threads(1)
    rows = pd.DataFrame([measure(name, given.steps) for name in THEIRS])
    rows.to_csv(TABLE, index=False)
    TABLE.with_suffix(".md").write_text(report(rows))
    print(rows["ratio"].describe())


if __name__ == "__main__":
    main()
