"""One table of cost: what each verb takes, the least that it could take, and others beside it.

    python reports/cost.py VANILLA CALIBRATED [--rounds 5]

Both runs of one model of addition. One thread, milliseconds of the process, medians over rounds in
which everything is measured by turns, the peaks of the machine too. What torch does while a verb
works is counted once, operation by operation: products (FLOPs of `torch.utils.flop_counter`), bytes
that an operation must read and write, and how many operations there are. Others are models of
transformers of the same size with random weights. Writes cost.csv and cost.md.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from transformers import BartConfig, BartForConditionalGeneration

import abc_calib as abc
from abc_calib.evaluation.exact import exact_matches, greedy_matches
from abc_calib.nn.build import build_model
from abc_calib.reporting import draw_heatmaps
from abc_calib.text import Markup, as_markdown
from abc_calib.training.step import optimise

TABLE = Path(__file__).with_suffix(".csv")
BATCH, SCORED, DIGITS, LONG = 128, 100, 50, 1000
START = "`predict 1+1`: a process from its start"
PEAK = "the machine"
Work = Callable[[], Any]
STEP = f"`train`: a step, batch {BATCH}"
AGAIN = f"`calibrate`: a step of the retraining, batch {BATCH}"
FOUND = "`calibrate`: attention, lines and the trial"
SCORE = f"`eval`: {SCORED} sums of {DIGITS} digits"
GREEDY = f"`eval --greedy`: {SCORED} sums of {DIGITS} digits"
PREDICT = f"`predict`: one sum of {LONG:,} digits"
STRESS = "`stress`: 200 of each family, up to 50 digits"
CERTIFY = "`certify`: every length"
HEATMAP = "`heatmap`: every site and layer"
BETWEEN = {
    STEP: "products too narrow for the core, and hundreds of small operations",
    AGAIN: "narrow products, and copies of what lines pick",
    FOUND: "the trial is a short training; then sampling, and least squares of scipy",
    PREDICT: "passes of few rows: small operations, and Python between them",
    CERTIFY: "listing and sorting windows in numpy, and passes of float64, half as fast",
    HEATMAP: "drawing by matplotlib",
}
"""What a profile shows between a verb and its floor."""


class Count(TorchDispatchMode):
    """What operations do: products, bytes that they read and write, and how many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = self.calls = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if op._overloadpacket not in flop_registry:
            with self:
                out = op.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = op(*args, **kwargs)
        if op.is_view or op.namespace != "aten":
            return out
        self.calls += 1
        given = tree_leaves((args, kwargs, out))
        self.bytes += sum(x.nbytes for x in given if isinstance(x, torch.Tensor))
        if count := flop_registry.get(op._overloadpacket):
            self.flops += count(*args, **kwargs, out_val=out)
        return out


def spent(work: Work) -> float:
    """Milliseconds of the process."""
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def peaks() -> dict[str, float]:
    """What this core does at best: GFLOP/s, GB/s within its caches, microseconds a call."""
    one, other = torch.randn(2, 512, 512)
    some, target = torch.randn(2, 2**17)
    little = torch.ones(1)
    products = min(spent(lambda: [one @ other for _ in range(20)]) for _ in range(5))
    copies = min(spent(lambda: [target.copy_(some) for _ in range(500)]) for _ in range(5))
    calls = min(spent(lambda: [little + little for _ in range(5000)]) for _ in range(5))
    return {
        "gflops": 20 * 2 * 512**3 / products / 1e6,
        "gbytes": 500 * 2 * some.nbytes / copies / 1e6,
        "call_us": calls / 5,
    }


def bart(run: abc.Run, keys: int) -> Any:
    """A model of transformers of the same size: no layer in its encoder, random weights."""
    own: Any = run.config.model
    sizes: dict[str, Any] = {
        f"{side}_{name}": value
        for side, layers in (("encoder", own.encoder_layers), ("decoder", own.decoder_layers))
        for name, value in (
            ("layers", layers),
            ("attention_heads", own.heads),
            ("ffn_dim", own.feedforward),
        )
    }
    tokens = run.load_model().tokens
    special: dict[str, Any] = {
        "pad_token_id": tokens.pad,
        "bos_token_id": tokens.sos,
        "eos_token_id": tokens.eos,
    }
    start: dict[str, Any] = {"decoder_start_token_id": tokens.sos, "forced_eos_token_id": None}
    config = BartConfig(
        vocab_size=tokens.size,
        d_model=own.width,
        dropout=0.0,
        max_position_embeddings=keys,
        **sizes,
        **special,
        **start,
    )
    return BartForConditionalGeneration(config)


def verbs(
    vanilla: abc.Run, calibrated: abc.Run, folder: Path
) -> dict[str, tuple[Work, Work | None]]:
    """What is measured, and what others do for the same."""
    data = calibrated.data
    batch, short, long = data.training(0, BATCH), data.test(DIGITS, SCORED), data.test(LONG, 1)
    problem = data.task.plain(long.problems, 0)
    model: Any = calibrated.load_model()
    other = bart(calibrated, 4 * LONG)

    def step(run: abc.Run) -> Work:
        own: Any = build_model(run.config.kind, run.config.model, data, 0)
        if run is calibrated:
            own.set_lines(run.bias())
        optimizer = own.optimizer()
        return lambda: optimise(own.train(), optimizer, batch, 1e-3, 1.0, False)

    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3, fused=True)
    labels = batch.target.masked_fill(batch.target == model.pad, -100)
    seen = batch.source.ne(model.pad).long()

    def others_step() -> None:
        other.train()
        other(input_ids=batch.source, attention_mask=seen, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def generate(some: Any) -> Work:
        steps = some.target.shape[1]
        how = {"max_new_tokens": steps, "min_new_tokens": steps, "do_sample": False}
        mask = some.source.ne(model.pad).long()

        def write() -> None:
            with torch.inference_mode():
                other.eval().generate(some.source, attention_mask=mask, num_beams=1, **how)

        return write

    def calibrate() -> None:
        out = folder / "fit"
        shutil.rmtree(out, ignore_errors=True)
        abc.calibrate(vanilla, retrain=False, out=out, progress=False)

    own: dict[str, tuple[Work, Work | None]] = {
        STEP: (step(vanilla), others_step),
        AGAIN: (step(calibrated), others_step),
        FOUND: (calibrate, None),
        SCORE: (
            lambda: exact_matches(model, short),
            generate(short),
        ),
        GREEDY: (
            lambda: greedy_matches(model, short),
            generate(short),
        ),
        PREDICT: (
            lambda: abc.predict(calibrated, problem),
            generate(long),
        ),
        STRESS: (
            lambda: abc.stress(calibrated, samples=200, progress=False),
            None,
        ),
        CERTIFY: (lambda: abc.certify(calibrated, progress=False), None),
        HEATMAP: (
            lambda: draw_heatmaps(calibrated, folder / "maps", progress=False),
            None,
        ),
    }
    return own


def started(code: list[str]) -> float:
    """Milliseconds of a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measured(vanilla: abc.Run, calibrated: abc.Run, rounds: int) -> pd.DataFrame:
    """A row of each verb, and one of the machine's peaks: a second's, and of the smallest call."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        copied = [folder / "vanilla", folder / "calibrated"]
        for run, copy in zip((vanilla, calibrated), copied, strict=True):
            shutil.copytree(run.path, copy)
        work = verbs(abc.Run.open(copied[0]), abc.Run.open(copied[1]), folder)
        counts: dict[str, Count] = {}
        for name, (ours, _) in work.items():
            ours()
            counts[name] = Count()
            with counts[name]:
                ours()
        times: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds + 1):
            found = peaks()
            for name, (ours, theirs) in work.items():
                turns = {"ours": ours, **({"theirs": theirs} if theirs else {})}
                for who in sorted(turns, reverse=bool(number % 2)):
                    times.setdefault((name, who), []).append(spent(turns[who]))
            enter = "from abc_calib.launch import main; main()"
            asked = ["-c", enter, "predict", "1+1", "--run", str(copied[1])]
            for who, code in (("ours", asked), ("import", ["-c", "import torch"])):
                times.setdefault((START, who), []).append(started(code))
            for name, value in found.items():
                times.setdefault(("peak", name), []).append(value)
            print(f"round {number} of {rounds}", flush=True)
    middle = {key: median(values[1:]) for key, values in times.items()}
    rows: list[dict[str, Any]] = [
        {
            "verb": name,
            "ms": middle[name, "ours"],
            "gflop": counts[name].flops / 1e9,
            "gbyte": counts[name].bytes / 1e9,
            "operations": counts[name].calls,
            "others_ms": middle.get((name, "theirs")),
        }
        for name in work
    ]
    rows.append({"verb": START, "ms": middle[START, "ours"], "others_ms": middle[START, "import"]})
    best = {"gflop": middle["peak", "gflops"], "gbyte": middle["peak", "gbytes"]}
    rows.append({"verb": PEAK, "ms": middle["peak", "call_us"] / 1000, **best})
    return pd.DataFrame(rows).assign(rounds=rounds)


def between(row: Any, floor: float) -> str:
    """What stands between a verb and its floor."""
    if row.ms <= 2 * floor:
        return "within 2 times"
    return BETWEEN.get(row.verb, f"{row.operations:,.0f} operations and their calls")


def report(table: pd.DataFrame) -> str:
    start: Any
    best: Any
    start, best = (table[table.verb == name].iloc[0] for name in (START, PEAK))
    rows = []
    found: Any = table[~table.verb.isin([START, PEAK])].itertuples()
    for row in found:
        products, moved = row.gflop / best.gflop * 1e3, row.gbyte / best.gbyte * 1e3
        calls, floor = row.operations * best.ms, max(products, moved)
        times = [f"{row.ms:,.1f}", f"{products:,.2f}", f"{moved:,.2f}", f"{calls:,.2f}"]
        theirs = row.others_ms
        others = f"{theirs:,.1f} ({theirs / row.ms:.1f})" if theirs == theirs else "–"
        over = f"{row.ms / floor:.1f}" if row.gflop else "–"
        rows.append([Markup(row.verb), *times, over, between(row, floor), others])
    columns = ["verb", "ms", "products, ms", "bytes, ms", "calls, ms", "times the floor"]
    columns += ["what stands between", "transformers, ms (times ours)"]
    return f"""# What each verb costs

Made by `python reports/cost.py VANILLA CALIBRATED`: addition, three layers of width 64, one
thread; milliseconds of the process, medians of {best.rounds:.0f} rounds by turns, on a shared
machine. At best this core did {best.gflop:.0f} GFLOP/s (products of 512 by 512) and
{best.gbyte:.0f} GB/s (copies inside its caches), and needed {1000 * best.ms:.2f} µs for the
smallest operation: measured in the same rounds.

*Products*: the time of all products at that rate. *Bytes*: of what every operation has to read
and write. The floor is the larger of the two. *Calls*: of so many operations at the time of the
smallest. *transformers*: a BART of the same size with random weights at the same work: a step on
the same batch, or `generate` of as many tokens.

{as_markdown(columns, rows, "lrrrrrlr")}
`abc {START[1:]}: {start.ms:,.0f} ms, `import torch` alone {start.others_ms:,.0f} ms:
{start.ms / start.others_ms:.2f} times.

Elsewhere: a training step of each attender beside its public code
([attender_paired.md](attender_paired.md)), decoding in passes beside token by token
([decoding.md](decoding.md)), decoder-only models ([decoder_cost.md](decoder_cost.md)), position
schemes ([scheme_cost.md](scheme_cost.md)) and length ([length_cost.md](length_cost.md)). Nobody
else calibrates or certifies: those verbs have nothing beside them.
"""


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("vanilla", type=Path)
    parser.add_argument("calibrated", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    table = measured(abc.Run.open(given.vanilla), abc.Run.open(given.calibrated), given.rounds)
    table.to_csv(TABLE, index=False, float_format="%.6g")
    TABLE.with_suffix(".md").write_text(report(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
