"""What a decoder-only model costs beside an encoder-decoder: python reports/decoder_cost.py.

A step of training without and with lines, scoring 1,000 digits, and a decoded digit, of two models
of one size with the same lines; each measured in turns, so that a busy machine slows both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from abc_calib.config import MODEL_OPTIONS
from abc_calib.data import make_data
from abc_calib.geometry import ALONE, Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.nn.transformer.cache import Cache
from abc_calib.text import as_markdown
from abc_calib.training.plan import plan_training
from abc_calib.training.step import optimise
from tasks import get_task

HERE, ROUNDS = Path(__file__).parent, 7
KINDS = {"transformer": "encoder-decoder", "decoder": "decoder-only"}
READ = (Line("anti", 1, 0), Line("anti", 2, 0), Line("anti", 1, -1), Line("anti", 2, -1))
CLOSED = Line("vert", 2, 0)


def lines(model: Any) -> LineBias:
    """Four heads read digits of the source, and the others nothing that is new."""
    layers, rest = model.options.decoder_layers, model.options.heads - len(READ)
    crossed = (*((line,) for line in READ), *((CLOSED,),) * rest)
    own: Any = (((),) * (rest + len(READ)),) * layers if model.stream else ()
    sites: Any = {"cross": (crossed,) * layers, "self": own}
    if model.stream:
        sites["encoder"] = (((ALONE,),) * (rest + len(READ)),) * (layers - 1)
    else:
        sites["self"] = (((ALONE,),) * (rest + len(READ)),) * layers
    return LineBias(sites, stream=model.stream)


def timed(what: Callable[[], Any]) -> float:
    start = time.process_time()
    what()
    return time.process_time() - start


def jobs(kind: str) -> dict[str, Callable[[], Any]]:
    """What is measured, with what a run of it is divided by."""
    data = make_data(get_task("addition"), plan_training("addition").train)
    options = MODEL_OPTIONS[kind]()
    plain = build_model(kind, options, data, 0)
    lined = build_model(kind, options.model_copy(update={"scheme": "none"}), data, 0)
    lined.set_lines(lines(lined))
    batch, far, one = data.training(0, 128), data.test(1000, 20), data.test(1000, 1)

    def step(model: Any) -> Callable[[], Any]:
        optimizer = model.optimizer()
        return lambda: optimise(model.train(), optimizer, batch, 1e-3, 1.0, False)

    def scored() -> Any:
        with torch.inference_mode():
            return lined.eval()(far.source, far.target)

    def decoded() -> None:
        model: Any = lined
        exact = model.exact()
        with torch.inference_mode():
            cache, encoded = Cache(exact.kept_rows), exact.encode(one.source)
            for token in exact.shifted(one.target).split(1, dim=1):
                exact.run(encoded, token, cache)

    return {
        "a first training's step, batch 128 (ms)": step(plain),
        "a retraining's step, batch 128 (ms)": step(lined),
        "scoring 20 sums of 1,000 digits (ms)": scored,
        "1,000 digits token by token (ms)": decoded,
    }


def main() -> None:
    torch.set_num_threads(1)
    found = {kind: jobs(kind) for kind in KINDS}
    rows = []
    for name in found["decoder"]:
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS):
            for kind, mine in found.items():
                spent[kind].append(1000 * timed(mine[name]))
        pairs = zip(spent["decoder"], spent["transformer"], strict=True)
        ratios = sorted(one / other for one, other in pairs)
        middle = [f"{median(spent[kind]):.0f}" for kind in KINDS]
        rows.append([name, *middle, f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"])
    columns = ["what", *KINDS.values(), "ratio, median (least to most)"]
    text = f"""# What a decoder-only model costs

Made by `python reports/decoder_cost.py`: addition, three layers of width 64, one thread, processor
time, {ROUNDS} rounds in turns.

{as_markdown(columns, rows)}"""
    (HERE / "decoder_cost.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
