"""Planted faults: pairs of models of which one is wrong in a single place, as the other is not.

A pair begins with a certified model of the zoo, or one that is trained here in seconds. The place
is found by running many sources through dense attention in float64, and not by the program's own
search for windows. A unit of the last feed-forward that is added there fires for the state of one
query alone, and moves the margin of its right token to a number that is chosen: below 0 in the
faulty twin, above 0 in the right one. Other pairs differ in lines, in an entry of the rule or in
the period of positions. That the faulty twin is wrong is confirmed by running it on that source.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import change_json, vouch
from random_models import sources
from torch import Tensor

from abc_calib import stages
from abc_calib.errors import AbcError
from abc_calib.evaluation.failures import logit_margins, margins
from abc_calib.geometry import ALONE, Line, LineBias
from abc_calib.proof import check as check_py
from abc_calib.proof.second_look import export
from abc_calib.runs import Run
from tasks.automata import COLUMNS, named

UNITS = 3
"""Added to a feed-forward: each makes good what the one before lost in single precision."""
FAR, PERIOD = 120, 24
"""A fault that is far out is in no source of fewer digits; or in a late phase of positions."""
MARGIN = 0.1


# Twins, and what is said of them


def twin(
    base: Run, folder: Path, weights: dict[str, Tensor], lines: Any = None, **config: Any
) -> Run:
    """A copy of a run with other weights, lines and configuration."""
    shutil.copytree(base.path, folder, ignore=shutil.ignore_patterns("certificate.*", "lock"))
    change_json(folder / "config.json", **config)
    if lines is not None:
        lines.save(folder / "bias.safetensors")
    vouch(folder)
    run = Run(folder)
    model = run.fresh_model()
    model.load_state_dict(weights)
    run.save_model(model)
    vouch(folder)
    return Run.open(folder)


def double(run: Run) -> Any:
    """The run's model in float64, by dense attention."""
    model: Any = run.load_model().double()
    model.set_path("dense")
    return model


def verdicts(run: Run, verified: bool = True) -> dict[str, Any]:
    """What ``certify``, check.py and ``verify`` say: the last two of a certificate that is forged.

    ``windows``: what the windows say without the sources that ``certify`` runs, too.
    """
    started = time.perf_counter()
    made = stages.certify(run)
    found: dict[str, Any] = {"certify": made.outcome, "windows": "unknown"}
    found["rounding"], found["least"] = made.rounding, made.margin
    if not made.windows:
        return found | {"verify": "unknown", "check.py": "unknown", "why": made.reason}
    if made.wrong:
        found["windows"] = "refuted"
    elif made.margin is not None and made.rounding is not None and made.margin > made.rounding:
        found["windows"] = "certified"
    if made.outcome != "certified":
        made.outcome, made.wrong, made.margin, made.counterexamples = "certified", 0, 1e9, []
        made.rounding = made.rounding or 1e-6
        made.save(run)
    found["certify_seconds"] = round(time.perf_counter() - started, 2)
    started = time.perf_counter()
    found["check.py"], found["why"] = by_checker(run)
    found["check_seconds"] = round(time.perf_counter() - started, 2)
    if not verified:
        return found
    started = time.perf_counter()
    try:
        stages.verify(run, sources=1)
        found["verify"] = "certified"
    except AbcError as error:
        found["verify"] = "refuted" if "does not hold" in str(error) else "unknown"
        found["why"] = found["why"] or str(error)
    return found | {"verify_seconds": round(time.perf_counter() - started, 2)}


def by_checker(run: Run) -> tuple[str, str]:
    """What check.py says of an export, whatever margin its certificate names."""
    folder = export(run, run.path / "export")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(check_py, "isclose", lambda *_, **__: True)
            check_py.check(folder)
    except SystemExit as error:
        return ("refuted" if "wrong at" in str(error) else "unknown"), str(error)
    finally:
        shutil.rmtree(folder)
    return "certified", ""


# Places, by brute force


@dataclass
class Places:
    """Every state of a query in many sources, each different one once.

    ``state (m, d)`` before the last feed-forward, ``after (m, d)`` behind the last layer,
    ``right (m,)`` tokens; ``count (m,)`` how often; ``row`` and ``width``: of the output and of the
    source, the least where it occurs; ``at``: the source and the step of one such query.
    """

    model: Any
    state: Tensor
    after: Tensor
    right: Tensor
    count: Tensor
    row: Tensor
    width: Tensor
    at: list[tuple[Any, int]]

    @cached_property
    def least(self) -> float:
        return float(self.margin(self.after, self.right).min())

    @torch.no_grad()
    def margin(self, after: Tensor, right: Tensor) -> Tensor:
        return logit_margins(self.model.head(self.model.norm(after)), right)


@torch.no_grad()
def places(run: Run, far: int = 0) -> Places:
    """The places of a run in its short sources, and in some of ``far`` digits and more."""
    model, data = double(run), run.data
    held: dict[str, Tensor] = {}
    hooks = [
        model.layers[-1].norms[-1].register_forward_hook(lambda _, x, y: held.update(state=y)),
        model.norm.register_forward_hook(lambda _, x, y: held.update(after=x[0])),
    ]
    rule, ids = data.task.rule(), data.vocabulary.ids
    closers = torch.tensor([*rule.closers, *([ids["|"]] if "|" in ids else [])])
    parts: list[list[Tensor]] = []
    batches: list[Any] = []
    pool = [*sources(data)]
    if far:
        rng = np.random.default_rng(5)
        pool += [data.task.sample(rng, 60, far + k, exact=True) for k in (-1, 0, 1, 2, 5, 9, 14)]
    for some in pool:
        if not len(some):
            continue
        batch = data.lay_out(some)
        model(batch.source, batch.target)
        inside = batch.target != model.pad
        row = (torch.isin(batch.target, closers).cumsum(1)).roll(1, 1)
        row[:, 0] = 0
        wide = (batch.source != model.pad).sum(1, keepdim=True).expand_as(row)
        number = len(batches) * torch.ones_like(row)
        source, step = torch.meshgrid(*map(torch.arange, row.shape), indexing="ij")
        kept = [held["state"], held["after"], batch.target, row, wide, number, source, step]
        parts.append([x[inside] for x in kept])
        batches.append(batch)
    for hook in hooks:
        hook.remove()
    state, after, right, row, wide, number, source, step = map(torch.cat, zip(*parts, strict=True))
    keys = torch.cat([(state * 1e6).round(), right[:, None].double()], 1)
    _, which, count = keys.unique(dim=0, return_inverse=True, return_counts=True)
    first = torch.full((len(count),), len(which)).scatter_reduce(
        0, which, torch.arange(len(which)), "amin"
    )
    low_row, low_wide = (
        torch.full((len(count),), 10**6).scatter_reduce(0, which, x, "amin") for x in (row, wide)
    )
    at = [(batches[int(number[k])].take(np.array([int(source[k])])), int(step[k])) for k in first]
    return Places(model, state[first], after[first], right[first], count, low_row, low_wide, at)


# One window


@dataclass
class Unit:
    """Units that fire at one place alone, and in which direction its margin falls, ``down (d,)``.

    ``weight (d,)`` and ``bias``; ``fires``: what they give there.
    """

    at: int
    weight: Tensor
    bias: Tensor
    fires: float
    down: Tensor


@torch.no_grad()
def unit(found: Places, at: int, least: float = 0.05) -> Unit | None:
    """A unit that fires for the state number ``at``; None where another one is too near."""
    norm = found.model.layers[-1].norms[-1]
    plain = (found.state - norm.bias) / norm.weight
    score = plain @ plain[at]
    score[at] = -torch.inf
    same = (found.state - found.state[at]).abs().amax(1) < 1e-5
    gap = float(plain[at] @ plain[at] - score[~same].max())
    if gap < least or int(same.sum()) > 1:
        return None
    factor = 2 / gap
    weight = (factor * plain[at] / norm.weight).float()
    bias = (1 - weight.double() @ found.state[at]).float()
    fires = float((weight.double() @ found.state[at] + bias).relu())
    after = found.after[at].clone().requires_grad_()
    with torch.enable_grad():
        margin = logit_margins(
            found.model.head(found.model.norm(after[None])), found.right[at][None]
        )
        (slope,) = torch.autograd.grad(margin, after)
    return Unit(at, weight, bias, fires, -slope / slope.norm())


def moved(found: Places, one: Unit, margin: float) -> list[Tensor] | None:
    """What the units write, in single precision, for the margin to be this; None if it cannot."""
    after, right, made = found.after[one.at], found.right[one.at][None], list[Tensor]()

    def left(size: float) -> float:
        there = after + one.fires * size * one.down
        return float(found.margin(there[None], right)) - margin

    for _ in range(UNITS):
        low, high = 0.0, 1e-9
        sign = 1.0 if left(0.0) > 0 else -1.0
        while sign * left(sign * high) > 0:
            high *= 2
            if high > 1e4:
                return None
        for _ in range(200):
            half = (low + high) / 2
            low, high = (half, high) if sign * left(sign * half) > 0 else (low, half)
        made.append((sign * high * one.down).float())
        after = after + one.fires * made[-1].double()
    return made


def options_of(run: Run) -> Any:
    return run.config.model


def with_units(run: Run, one: Unit, writes: list[Tensor]) -> tuple[dict[str, Tensor], Any]:
    """The run's weights with wider feed-forwards, and its model's options."""
    weights, options = dict(run.load_model().state_dict()), options_of(run)
    for name, value in weights.items():
        if "feedforward.0" in name:
            weights[name] = torch.cat([value, value.new_zeros(UNITS, *value.shape[1:])])
        elif "feedforward.3.weight" in name:
            weights[name] = torch.cat([value, value.new_zeros(len(value), UNITS)], 1)
    last = f"layers.{options.decoder_layers - 1}.feedforward"
    weights[f"{last}.0.weight"][-UNITS:], weights[f"{last}.0.bias"][-UNITS:] = one.weight, one.bias
    weights[f"{last}.3.weight"][:, -UNITS:] = torch.stack(writes, 1)
    model = options.model_dump() | {"feedforward": options.feedforward + UNITS}
    return weights, model


def wrong(run: Run, at: tuple[Any, int]) -> float:
    """The margin of a query by dense attention."""
    batch, step = at
    return float(margins(double(run), batch)[0, step])


Pair = tuple[str, Run, Run, Any, float]
"""Of a pair the model it is made of, the faulty and the right twin, the query, and its margin."""


class Maker:
    """Makes pairs in a folder."""

    def __init__(self, folder: Path):
        self.folder, self.bases, self.found = folder, dict[str, Run](), dict[str, Places]()
        self.number = 0

    def base(self, name: str) -> Run:
        """A certified model: of the zoo, or of ``name`` followed by how it was changed."""
        if name not in self.bases:
            plain, _, change = name.partition("+")
            if plain == "cyclic":
                self.bases[name] = cyclic_parity(self.new())
            else:
                path = self.new()
                shutil.copytree(Run.open(f"zoo:{plain}").path, path)
                self.bases[name] = Run.open(path)
            if change:
                self.bases[name] = with_spare(self.bases[name], self.new(), change)
        return self.bases[name]

    def places(self, name: str) -> Places:
        if name not in self.found:
            far = FAR if "far" in name else PERIOD if name == "cyclic" else 0
            self.found[name] = places(self.base(name), far)
        return self.found[name]

    def new(self) -> Path:
        self.number += 1
        return self.folder / f"{self.number}"

    def flips(self, name: str, order: Tensor, margin: float) -> Iterator[Pair]:
        """Pairs of which one query has the margin ``-margin`` and ``margin``.

        A margin of 1e-6 is above the bound on rounding where the unit's weights are small, as it
        tells apart states that differ much.
        """
        run, found = self.base(name), self.places(name)
        for at in order.tolist():
            if (one := unit(found, at, 0.5 if margin == 1e-6 else 0.05)) is None:
                continue
            writes = [moved(found, one, m) for m in (-margin, margin)]
            if None in writes:
                continue
            made = [with_units(run, one, w) for w in writes if w]
            faulty, right = (twin(run, self.new(), w, model=options) for w, options in made)
            yield name, faulty, right, found.at[at], margin

    def windows(self, names: tuple[str, ...], margin: float, kind: str = "") -> Iterator[Pair]:
        """Pairs of models by turns; places of one kind, the rarest ones first."""
        yield from by_turns([self.windows_of(name, margin, kind) for name in names])

    def windows_of(self, name: str, margin: float, kind: str) -> Iterator[Pair]:
        found = self.places(name)
        order = torch.randperm(len(found.count), generator=torch.Generator().manual_seed(0))
        if kind:
            order = order[found.count[order].argsort(stable=True)]
        late = found.width > PERIOD - 5
        kept = {"row": found.row >= 2, "far": found.width >= FAR, "late": late}.get(kind)
        yield from self.flips(name, order if kept is None else order[kept[order]], margin)

    def at_the_bound(self, names: tuple[str, ...]) -> Iterator[Pair]:
        """The margin is 1.5 times the bound on rounding of the same model with another margin."""
        for name, faulty, right, at, _ in self.windows(names, MARGIN):
            bound = stages.certify(right).rounding
            for one in (faulty, right):
                shutil.rmtree(one.path)
            found = self.places(name)
            number = next(k for k, x in enumerate(found.at) if x is at)
            yield from self.flips(name, torch.tensor([number]), 1.5 * (bound or 0))

    def moved_lines(self, names: tuple[str, ...]) -> Iterator[Pair]:
        """A line is one further on, or there twice."""
        yield from by_turns([self.moved_lines_of(name) for name in names])

    def moved_lines_of(self, name: str) -> Iterator[Pair]:
        run = self.base(name)
        lines, weights = run.lines(), run.load_model().state_dict()
        for site, layer, head, line, by in every_line(lines):
            further = replace(line, offset=line.offset + by)
            other = twin(run, self.new(), weights, changed(lines, site, layer, head, (further,)))
            if (at := worst(other)) is None:
                continue
            twice = (line, replace(line, value=line.value - 1))
            right = twin(run, self.new(), weights, changed(lines, site, layer, head, twice))
            yield name, other, right, at, float("nan")

    def added_lines(self, names: tuple[str, ...]) -> Iterator[Pair]:
        """A line one further on is added, with a bias with which the worst margin is chosen."""
        yield from by_turns([self.added_lines_of(name) for name in names])

    def added_lines_of(self, name: str) -> Iterator[Pair]:
        run = self.base(name)
        lines, weights = run.lines(), run.load_model().state_dict()
        for site, layer, head, line, by in every_line(lines):
            further = replace(line, offset=line.offset + by)

            def made(value: float) -> LineBias:
                heads = (line, replace(further, value=line.value + value))  # noqa: B023
                return changed(lines, site, layer, head, heads)  # noqa: B023

            model, few = double(run), pool(run)

            def least(value: float) -> float:
                model.set_lines(made(value))  # noqa: B023
                model.set_path("dense")  # noqa: B023
                return min(float(margins(model, batch).min()) for batch in few)  # noqa: B023

            low, high = -20.0, 6.0
            above, below = least(low), least(high)
            if above < MARGIN or below > -MARGIN:
                continue
            while (above > MARGIN or below < -MARGIN) and high - low > 1e-5:
                half = (low + high) / 2
                if (found := least(half)) > 0:
                    low, above = half, found
                else:
                    high, below = half, found
            faulty = twin(run, self.new(), weights, made(high))
            right = twin(run, self.new(), weights, made(low))
            if (at := worst(faulty)) is not None and worst(right, 2000) is None:
                yield name, faulty, right, at, float("nan")

    def entries(self, names: tuple[str, ...]) -> Iterator[Pair]:
        """One entry of the rule's table is another one, or its states come in another order."""
        (name,) = names
        run, rng = self.base(name), np.random.default_rng(0)
        weights, (moves, start, _) = run.load_model().state_dict(), named("s3")
        for _ in range(1000):
            states = [
                start,
                *rng.permutation([s for s in dict.fromkeys(s for s, _ in moves) if s != start]),
            ]
            entry = list(moves)[rng.integers(len(moves))]
            to, out = moves[entry]
            other = str(rng.choice([s for s in states if s != to]))
            wrong_entry = (other, out) if rng.random() < 0.5 else (to, other)
            made = []
            for table in (moves | {entry: wrong_entry}, moves):
                rows = [(s, x, *table[s, x]) for s in states for (t, x) in moves if t == s]
                text = "\n".join(",".join(row) for row in [COLUMNS, *rows])
                options = {"table": text}
                made.append(twin(run, self.new(), weights, task_options=options))
            if (at := worst(made[0])) is not None:
                yield name, made[0], made[1], at, float("nan")

    def periods(self, names: tuple[str, ...]) -> Iterator[Pair]:
        """A unit that fires in a late phase of positions, and a period in which there is none."""
        (name,) = names
        run, found = self.base(name), self.places(name)
        for at in torch.nonzero(found.width > PERIOD - 5)[:, 0].flip(0).tolist():
            one = unit(found, at)
            phase = found.at[at][1]
            if one is None or (writes := moved(found, one, -MARGIN)) is None or phase < PERIOD // 2:
                continue
            weights, options = with_units(run, one, writes)
            faulty = twin(run, self.new(), weights, model=options)
            right = twin(run, self.new(), weights, model=options | {"cyclic": phase})
            yield name, faulty, right, found.at[at], MARGIN


def by_turns(each: list[Iterator[Any]]) -> Iterator[Any]:
    while each:
        for one in list(each):
            try:
                yield next(one)
            except StopIteration:
                each.remove(one)


def every_line(lines: LineBias) -> Iterator[tuple[Any, int, int, Line, int]]:
    """Lines of heads that have one, each with the offset one more and one less."""
    for site, layer, head, own in lines.each():
        if site != "encoder" and own != (ALONE,) and len(own) == 1:
            yield from ((site, layer, head, own[0], by) for by in (1, -1))


def changed(lines: LineBias, site: Any, layer: int, head: int, to: tuple[Line, ...]) -> LineBias:
    """The same, but for one head."""
    heads = [[list(h) for h in heads] for heads in lines.sites[site]]
    heads[layer][head] = list(to)
    sites = lines.sites | {site: tuple(tuple(map(tuple, one)) for one in heads)}
    return LineBias(sites, lines.off_line_bias, lines.stream)


def pool(run: Run, most: int = 60) -> list[Any]:
    """Short sources, laid out, up to ``most`` of each length."""
    return [run.data.lay_out(some) for some in sources(run.data, most) if len(some)]


def worst(run: Run, most: int = 60) -> tuple[Any, int] | None:
    """The query of short sources with the least margin, if that is below 0."""
    model, least, at = double(run), 0.0, None
    for batch in pool(run, most):
        found = margins(model, batch)
        if float(found.min()) < least:
            source, step = divmod(int(found.argmin()), found.shape[1])
            least, at = float(found.min()), (batch.take(np.array([source])), step)
    return at


SPARE: dict[str, tuple[str, Line]] = {
    "far": ("cross", Line("anti", 1, FAR)),
    "rows": ("cross", Line("vert", 1, 2, beta=-1)),
}
"""What a head that does nothing is given to read: a digit far out, or whether two rows are above.

The latter is the delimiter behind an operand from the third row on, one of its digits before.
"""


def with_spare(base: Run, folder: Path, name: str) -> Run:
    """The run, of whose last layer one head reads along another line, and says a little of it."""
    site, line = SPARE[name]
    weights, heads = base.load_model().state_dict(), options_of(base).heads
    last, size = options_of(base).decoder_layers - 1, options_of(base).width // heads
    module = f"layers.{last}.{site}_attention"
    model, held = double(base), dict[str, Tensor]()
    attention = model.get_submodule(module)
    attention.output.register_forward_pre_hook(lambda _, x: held.update(mixed=x[0]))
    batch = pool(base)[-1]
    margins(model, batch)
    mean = held["mixed"][batch.target != model.pad].mean(0).float()
    best: tuple[float, Any] = 0.0, None
    for head, scale, seed in [(h, s, 0) for h in range(heads) for s in (0.3, 1.0)]:
        part = slice(head * size, (head + 1) * size)
        made, draw = {k: v.clone() for k, v in weights.items()}, torch.Generator().manual_seed(seed)
        out = made[f"{module}.output.weight"]
        made[f"{module}.output.bias"] += out[:, part] @ mean[part]
        random = torch.randn(out[:, part].shape, generator=draw)
        out[:, part] = scale * random * out.norm() / random.norm() / heads**0.5
        lines = changed(base.lines(), site, last, head, (line,))
        plain: Any = base.load_model()
        plain.load_state_dict(made)
        plain.set_lines(lines)
        plain = plain.double()
        plain.set_path("dense")
        least = min(float(margins(plain, some).min()) for some in pool(base))
        if least * scale > best[0]:
            best = least * scale, (made, lines)
    return twin(base, folder, *best[1])


def cyclic_parity(folder: Path) -> Run:
    """Parities, with positions of a period that only long sources show."""
    zoo = Run.open("zoo:parity")
    shape: dict[str, Any] = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 32}
    shape |= {"scheme": "sinusoidal", "cyclic": PERIOD}
    shutil.copytree(zoo.path, folder, ignore=shutil.ignore_patterns("certificate.*"))
    train = zoo.config.train.model_dump() | {"length": PERIOD + 15}
    change_json(folder / "config.json", model=zoo.config.model.model_dump() | shape, train=train)
    sites: Any = {"self": (((ALONE,),) * 2,), "cross": (((Line("anti", 1, 0),),) * 2,)}
    LineBias(sites).save(folder / "bias.safetensors")
    vouch(folder)
    run = Run(folder)
    torch.manual_seed(0)
    model: Any = run.fresh_model()
    optimizer, data = torch.optim.AdamW(model.parameters(), lr=5e-3), run.data
    for step in range(600):
        batch = data.training(step, 32)
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * (1 - step / 600)
        loss = model.loss(batch.source, batch.target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run.save_model(model.eval())
    vouch(folder)
    return Run.open(folder)


SMALL = ("parity", "addition-base2", "copy", "s3")
ROWS = ("product", "rule110")
KINDS: dict[str, Callable[[Maker], Iterator[Pair]]] = {
    "the rarest window": lambda m: m.windows((*SMALL, *ROWS, "addition-decoder"), MARGIN, "rare"),
    "margin 1e-6": lambda m: m.windows((*SMALL, "addition-decoder", "sort"), 1e-6),
    "margin 1e-9": lambda m: m.windows(SMALL, 1e-9),
    "margin of 1.5 bounds": lambda m: m.at_the_bound(SMALL),
    "row 3 and later": lambda m: m.windows(("rule110+rows", "sort+rows"), MARGIN, "row"),
    f"{FAR} digits and more": lambda m: m.windows(
        ("parity+far", "addition-base2+far"), MARGIN, "far"
    ),
    "a line moved by one": lambda m: m.moved_lines(SMALL),
    "a line added": lambda m: m.added_lines(SMALL),
    "an entry of the rule": lambda m: m.entries(("s3",)),
    "a phase far out": lambda m: m.windows(("cyclic",), MARGIN, "late"),
    "a longer period": lambda m: m.periods(("cyclic",)),
}


def pairs(kind: str, maker: Maker, number: int, verified: bool = True) -> Iterator[dict[str, Any]]:
    """Judge both twins of a number of pairs of a kind: a row each."""
    for name, faulty, right, (batch, step), margin in islice(KINDS[kind](maker), number):
        digits = int((batch.source != double(right).pad).sum()) - 2
        about = {"kind": kind, "model": name, "margin": margin, "digits": digits, "step": step}
        seen = wrong(faulty, (batch, step))
        assert seen < 0, (name, seen)
        for truth, run in (("faulty", faulty), ("right", right)):
            yield about | {"twin": truth} | verdicts(run, verified)
            shutil.rmtree(run.path)


def falsely(row: Any, by: str) -> bool:
    """Is it a faulty twin that was certified?"""
    return bool(row["twin"] == "faulty" and row[by] == "certified")


def needlessly(row: Any, by: str) -> bool:
    """Is it a right twin that was not, although no margin is within the bound on rounding?"""
    within = row["margin"] <= (row["rounding"] or 0.0)
    return bool(row["twin"] == "right" and row[by] != "certified" and not within)
