"""What a CUDA device changes: speed, and how far its arithmetic is from the processor's.

    python reports/gpu.py RUN [--out reports/gpu.md]

RUN: a certified run of addition. Training steps, evaluation, decoding, the windows of its
certificate and all commands from nothing, on the processor (one thread; all of them where samples
are evaluated) and on the device, in one process and in well under five minutes; then float32, TF32
and bfloat16 compared with float64. Without a CUDA device it measures the processor alone.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import abc_calib as abc
from abc_calib.evaluation import exact_matches
from abc_calib.evaluation.exact import greedy_matches
from abc_calib.nn.build import build_model
from abc_calib.proof.prove import check, prepare
from abc_calib.text import as_markdown
from abc_calib.training.optimizers import optimizer_of
from abc_calib.training.plan import plan_training
from abc_calib.training.step import optimise

SECONDS = 1.0
"""How long each piece of work is repeated."""
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("addition", {}),
    "transformer, paper's": ("addition", {"preset": "paper"}),
    "decoder-only": ("addition", {"model": "decoder"}),
    "gru, location attender": ("copy", {"model": "gru", "attender": "mix_loc_s"}),
}
THREADS = torch.get_num_threads()
WHICH = {"fp32": "highest", "TF32": "high"}


def rate(work: Callable[[], Any], device: str) -> float:
    """How often a second ``work`` is done, after one that warms up."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    work()
    wait()
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        work()
        count += 1
        wait()
    return count / (time.perf_counter() - started)


def training(devices: list[str]) -> Iterator[list[str]]:
    for name, (task, how) in MODELS.items():
        config = plan_training(task, **how)
        data = abc.Run.draft(config).data
        for size in (config.train.batch, 1024):
            batch, found = data.training(0, size), []
            for device in devices:
                model = build_model(config.kind, config.model, data, 0).to(device).train()
                optimizer = optimizer_of(model, config.train.optimizer)
                found.append(rate(partial(optimise, model, optimizer, batch, 1e-4), device))
            yield [name, f"{size:,}", *(f"{one:,.1f}" for one in found)]


def judging(run: abc.Run, devices: list[str]) -> Iterator[list[str]]:
    """Evaluations and decodings, of which every answer is right, and windows."""
    works = [
        ("score", exact_matches, 50, 10_000),
        ("score", exact_matches, 1000, 500),
        ("decode", greedy_matches, 50, 100),
        ("decode", greedy_matches, 200, 1),
    ]
    for what, match, digits, samples in works:
        batch, found = run.data.test(digits, samples), []
        for device in devices:
            model: Any = run.load_model().to(device)
            torch.set_num_threads(THREADS)
            assert match(model, batch).all(), (what, digits, device)
            started = time.perf_counter()
            match(model, batch)
            found.append(time.perf_counter() - started)
        torch.set_num_threads(1)
        yield [f"{what} {samples:,} of {digits:,} digits", *(f"{one:.2f}" for one in found)]
    found, margins = [], []
    for device in devices:
        proof = prepare(run.load_model().to(device).exact(), run.data)
        check(proof.some(1000, np.random.default_rng(0)))
        started = time.perf_counter()
        margins.append(min(one.margin for one in check(proof)))
        found.append(time.perf_counter() - started)
    assert max(margins) - min(margins) < 1e-9, margins
    yield [f"certificate: {proof.size:,} windows", *(f"{one:.2f}" for one in found)]


def from_nothing(devices: list[str]) -> Iterator[list[str]]:
    """Successor: trained, calibrated and certified."""
    for device in devices:
        with TemporaryDirectory() as folder:
            os.environ["ABC_RUNS"] = folder
            started = time.perf_counter()
            how: dict[str, Any] = {"device": device, "progress": False}
            first = abc.train("successor", preset="quick", **how)
            run = abc.calibrate(first, **how)
            made = abc.certify(run)
            taken = time.perf_counter() - started
            steps = first.result["steps"] + run.result["steps"]  # type: ignore[index]
            row = [device, made.outcome, f"{steps:,}", f"{taken:.1f}", f"{made.margin:.2f}"]
            yield row


@contextmanager
def precision(name: str, device: str) -> Iterator[None]:
    """Products of float32 as they are, or by TF32; or automatic bfloat16."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(WHICH.get(name, "highest"))
    try:
        with torch.autocast(device, torch.bfloat16, enabled=name == "bf16"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@torch.inference_mode()
def arithmetic(run: abc.Run, devices: list[str]) -> Iterator[list[str]]:
    """How far logits are from float64 on the processor, and what that does to answers."""
    batch = run.data.test(50, 2000, "hard")
    gold: Any = run.load_model().exact()
    right = batch.target != gold.pad
    logits = gold(batch.source, batch.target)
    for device in devices:
        model: Any = run.load_model().to(device).eval()
        source, target = batch.source.to(device), batch.target.to(device)
        for name in ("fp64", "fp32", "TF32", "bf16"):
            one = model.exact() if name == "fp64" else model
            with precision(name, device):
                found = one(source, target).cpu().double()
            apart = float((found - logits)[right].abs().max())
            wrong = int(((found.argmax(-1) != batch.target) & right).any(1).sum())
            best = found.masked_fill(~right[..., None], 0).topk(2, -1).values
            margin = float((best[..., 0] - best[..., 1])[right].min())
            yield [device, name, f"{apart:.2g}", f"{margin:.2f}", f"{wrong:,} of {len(batch):,}"]


def trained_in(run: abc.Run, devices: list[str]) -> Iterator[list[str]]:
    """Does a model trained with TF32 or bfloat16 get a certificate? after further steps."""
    for name in ("fp32", "TF32", "bf16") if "cuda" in devices else ("fp32", "bf16"):
        device = devices[-1]
        model: Any = run.load_model().to(device).train()
        optimizer, started = optimizer_of(model, "adam"), time.perf_counter()
        with precision(name, device):
            for step in range(200):
                optimise(model, optimizer, run.data.training(step, 128), 1e-3)
        taken = time.perf_counter() - started
        checked = check(prepare(model.eval().exact(), run.data))
        wrong, margin = sum(one.wrong for one in checked), min(one.margin for one in checked)
        yield [device, name, f"{taken:.1f}", f"{wrong:,}", f"{margin:.2f}"]


def pages(run: abc.Run) -> Iterator[str]:
    """The page so far, after each table."""
    there = torch.cuda.is_available()
    devices = ["cpu", "cuda"] if there else ["cpu"]
    card = torch.cuda.get_device_name() if there else "no CUDA device"
    tables = [
        ("Training steps a second", ["model", "batch", *devices], training(devices), "lr"),
        ("Seconds of one pass", ["what", *devices], judging(run, devices), "l"),
        (
            "Logits of 50 digits, hard inputs, compared with float64 on the processor",
            ["device", "arithmetic", "largest difference", "smallest margin", "wrong"],
            arithmetic(run, devices),
            "ll",
        ),
        (
            "200 further steps at a learning rate of 0.001, then all windows in float64",
            ["device", "trained in", "seconds", "wrong windows", "smallest margin"],
            trained_in(run, devices),
            "ll",
        ),
        (
            "From nothing to a certificate (successor, preset quick)",
            ["device", "outcome", "steps", "seconds", "smallest margin"],
            from_nothing(devices),
            "ll",
        ),
    ]
    parts = [
        "# On a CUDA device\n\nMade by `python reports/gpu.py`: "
        f"{card}, torch {torch.__version__}, {THREADS} threads of the processor. "
        f"The run: {run.config.task}, {run.config.stage}, seed {run.config.train.seed}.\n"
    ]
    for title, columns, rows, left in tables:
        listed = []
        for row in rows:
            print(title, *row, sep=" | ", flush=True)
            listed.append(row)
        sides = left + "r" * (len(columns) - len(left))
        parts.append(f"## {title}\n\n{as_markdown(columns, listed, sides)}")
        yield "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for page in pages(abc.Run.open(given.run)):
        given.out.write_text(page)


if __name__ == "__main__":
    main()
