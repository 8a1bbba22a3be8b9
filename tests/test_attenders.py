"""Attenders against slow transcriptions of the papers, and on padded batches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from abc_calib.nn.recurrent.attenders import ATTENDERS, AttenderShape, Memory
from abc_calib.nn.recurrent.attenders.base import draw_closed
from abc_calib.nn.recurrent.backbones import run_gru

D, HEAD = 6, 10
LENGTHS = (7, 3, 5)


def attender(name: str, seed: int = 0, legacy: bool = False):
    torch.manual_seed(seed)
    made = ATTENDERS[name](AttenderShape(D, HEAD, legacy)).double()
    with torch.no_grad():  # parameters that start at zero are to count
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def memory(seed: int = 1, lengths: tuple[int, ...] = LENGTHS) -> Memory:
    torch.manual_seed(seed)
    states = torch.randn(len(lengths), max(lengths), D, dtype=torch.double)
    summary = torch.randn(len(lengths), D, dtype=torch.double)
    return Memory(states, torch.tensor(lengths), summary)


def run(made, source: Memory, queries: Tensor) -> Tensor:
    """Weights ``(b, t, s)`` of the queries ``(b, t, d)``, the source turned as asked."""
    source = source.with_states(made.turned(source.states, source))
    prepared, carry, rows = made.prepare(source, queries.shape[1]), made.begin(source), []
    for t in range(queries.shape[1]):
        weights, carry = made.step(queries[:, t], prepared, carry, t)
        rows.append(weights)
    return torch.stack(rows, 1)


@pytest.mark.parametrize("name", ATTENDERS)
def test_a_padded_row_gives_what_it_gives_alone_and_every_parameter_learns(name):
    """Weights over the source read what weights over the turned one read."""
    made, source = attender(name), memory()
    torch.manual_seed(2)
    queries = (3 * torch.randn(3, 5, D, dtype=torch.double)).requires_grad_()
    weights, one = run(made, source, queries), torch.ones(3, 5, dtype=torch.double)
    assert torch.allclose(weights.sum(2), one)
    for row, length in enumerate(LENGTHS):
        at = slice(row, row + 1)
        alone = Memory(source.states[at, :length], source.lengths[at], source.summary[at])
        assert (weights[row, :, length:] == 0).all()
        found = run(made, alone, queries[at])
        assert torch.allclose(weights[at, :, :length], found, atol=1e-12)
    read = weights @ made.turned(source.states, source)
    given = made.over_source(weights, source)
    assert torch.allclose(given.sum(2), one)
    assert (given[~source.mask[:, None].expand_as(given)] == 0).all()
    assert torch.allclose(given @ source.states, read, atol=1e-12)
    (read * torch.randn(3, 5, D)).sum().backward()
    grads = {n: p.grad for n, p in made.named_parameters()}
    silent = [n for n, grad in grads.items() if grad is None or grad.abs().max() < 1e-12]
    # a constant that is added to all scores cancels in softmax
    constants = {"additive": ["energy.bias"], "transformer": ["key.bias"]}
    assert silent == constants.get(name, [])
    assert queries.grad is not None and queries.grad.isfinite().all()


def turned(made, e: Tensor, summary: Tensor) -> Tensor:
    gate = torch.sigmoid(5 * (made.direction.weight[0] @ summary + made.direction.bias[0]))
    return gate * e + (1 - gate) * e.flip(0)


def sinusoid(position: int, width: int) -> Tensor:
    out = []
    for pair in range(width // 2):
        angle = position / 10000 ** (2 * pair / width)
        out += [math.sin(angle), math.cos(angle)]
    return torch.tensor(out[:width], dtype=torch.double)


def content_scores(name: str, made, e: Tensor, h: Tensor, t: int) -> Tensor:
    """One score a place, literally as the specification has it."""
    if name == "additive":
        w = torch.cat([made.state.weight, made.query.weight], 1)
        hidden = [torch.tanh(w @ torch.cat([x, h]) + made.state.bias) for x in e]
        return torch.stack([made.energy.weight[0] @ x + made.energy.bias[0] for x in hidden])
    if name == "bahdanau":  # TB: v tanh(W1 h + W2 e), without biases
        inner = [made.query.weight @ h + made.state.weight @ x for x in e]
        return torch.stack([made.energy.weight[0] @ torch.tanh(x) for x in inner])
    if name == "general":
        return torch.stack([h @ made.query.weight.T @ x for x in e])
    if name == "dot":
        return torch.stack([x @ h for x in e])
    if name == "multiplicative":
        return torch.stack([x @ (made.query.weight @ h + made.query.bias) for x in e])
    if name == "scaled_dot":
        return torch.stack([x @ h / math.sqrt(D) for x in e])
    if name == "transformer":
        q = made.query(h + sinusoid(t, D))
        keys = [made.key(x + sinusoid(i, D)) for i, x in enumerate(e)]
        return torch.stack([k @ q / math.sqrt(D // 2) for k in keys])
    q = made.query.weight @ h
    keys = [made.key.weight @ x for x in e]
    if name == "content":
        return torch.stack([q @ k for k in keys]) / math.sqrt(HEAD)
    if name == "bi_rope":
        turn = [torch.polar(torch.ones(HEAD // 2).double(), angles(i)) for i in range(len(e) + t)]
        rot = torch.view_as_complex(q.view(-1, 2)) * turn[t]
        found = [torch.view_as_complex(k.view(-1, 2)) * turn[i] for i, k in enumerate(keys)]
        return torch.stack([(rot.conj() * k).sum().real for k in found]) / math.sqrt(HEAD)
    first = made.content_bias
    second = first if name == "transformer_xl" else made.distance_bias
    places = [made.distance.weight @ sinusoid(i - t, D) for i in range(len(e))]
    both = [(q + first) @ k + (q + second) @ p for k, p in zip(keys, places, strict=True)]
    return torch.stack(both) / math.sqrt(HEAD)


def angles(position: int) -> Tensor:
    return position / 10000 ** (torch.arange(0, HEAD, 2, dtype=torch.double) / HEAD)


SCORED = (
    *("additive", "bahdanau", "multiplicative", "general", "dot", "scaled_dot", "transformer"),
    *("transformer_xl", "content", "relative", "bi_relative", "bi_rope"),
)


@pytest.mark.parametrize("name", SCORED)
def test_scores_as_the_specification_writes_them(name):
    made, source = attender(name), memory()
    queries = torch.randn(3, 4, D, dtype=torch.double)
    weights = run(made, source, queries)
    for row, length in enumerate(LENGTHS):
        e = source.states[row, :length]
        if made.directed:
            e = turned(made, e, source.summary[row])
        for t in range(4):
            wanted = content_scores(name, made, e, queries[row, t], t).softmax(0)
            # sinusoids are single precision
            assert torch.allclose(weights[row, t, :length], wanted, atol=1e-5), (row, t)


def stair(x: float) -> float:
    floor = math.floor(x)
    return floor + 1 / (1 + math.exp(-20 * (x - floor - 0.5)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


STEPS = {
    "loc": stair,
    "loc_s": stair,
    "one_step": lambda x: sigmoid(5 * x),
    "r_mono": lambda x: max(x, 0.0),
    "no_step2": lambda x: sigmoid(5 * x),
    "no_step3": stair,
    "no_sigmoid": lambda x: x,
}


def gaussian(centre: float, width: float, places: list[float]) -> Tensor:
    """Weights of places, the width given before it is made positive and of a source."""
    width = (max(width, 0.0) + 0.27) / len(places)
    scores = [-((r - centre) ** 2) / (2 * width**2) for r in places]
    return torch.tensor(scores, dtype=torch.double).softmax(0)


def clamped(centre: float) -> float:
    return max(0.01 * centre, min(1 + 0.01 * centre, centre))


@pytest.mark.parametrize("name", [*STEPS, "mono"])
def test_locations_as_the_specification_writes_them(name):
    made, source = attender(name), memory()
    queries = torch.randn(3, 5, D, dtype=torch.double)
    weights = run(made, source, queries)
    maps = made.numbers_of.weight
    for row, length in enumerate(LENGTHS):
        delta, places, reference = 1 / (length - 1), [i / (length - 1) for i in range(length)], 0.0
        for t in range(5):
            shared = made.shared.weight @ queries[row, t] + made.shared.bias
            width, x, *rest = (maps @ shared).tolist()
            if name == "mono":
                g = sigmoid(float(made.gate.detach()[0]))
                step = (1 - g) * max(x, 0.0) + g * sigmoid(5 * x)
            else:
                step = STEPS[name](x)
            centre = reference + delta * step
            if name in ("loc", "no_step2"):
                centre = sigmoid(rest[0]) * reference + delta * step + sigmoid(rest[1])
            if name == "loc_s" and t == 0:
                centre += sigmoid(rest[0])
            if name in ("loc", "no_step2", "loc_s"):
                centre = clamped(centre)
            wanted = gaussian(centre, width, places)
            assert torch.allclose(weights[row, t, :length], wanted, atol=1e-9), (row, t)
            reference = sum(w * r for w, r in zip(wanted.tolist(), places, strict=True))


@pytest.mark.parametrize("name", ["location", "mix"])
def test_dubois_attenders_as_the_specification_writes_them(name):
    """A GRU of its own, gates, softstair steps and a clamp; the mix with scaled dot products."""
    made, source = attender(name), memory()
    part = made.location if name == "mix" else made
    queries = torch.randn(3, 5, D, dtype=torch.double)
    weights = run(made, source, queries)
    for row, length in enumerate(LENGTHS):
        e, omega, reference = source.states[row, :length], part.first[0], 0.0
        places = [i / (length - 1) for i in range(length)]
        for t in range(5):
            h = queries[row, t]
            read = torch.relu(part.resize.weight @ h + part.resize.bias)
            omega = part.cell(read[None], omega[None])[0]
            width, x, kept, added = (part.numbers_of(omega)).tolist()
            centre = sigmoid(kept) * reference + stair(x) / (length - 1) + sigmoid(added)
            wanted = gaussian(clamped(centre), width, places)
            if name == "mix":
                m = torch.sigmoid(made.mix.weight[0] @ h + made.mix.bias[0])
                wanted = m * wanted + (1 - m) * (e @ h / math.sqrt(D)).softmax(0)
            assert torch.allclose(weights[row, t, :length], wanted, atol=1e-9), (row, t)
            reference = sum(w * r for w, r in zip(wanted.tolist(), places, strict=True))


@pytest.mark.parametrize(("name", "numbers"), [("one_step", 1), ("loc_s", 2), ("loc", 3)])
def test_numbers_of_a_location_are_drawn_in_the_papers_bounds(name, numbers):
    """Xavier's of a tensor ``(1, d, numbers)``, and of ``(1, d, 1)`` for the width."""
    torch.manual_seed(0)
    made = ATTENDERS[name](AttenderShape(128, 128))
    width, others = made.numbers_of.weight[0], made.numbers_of.weight[1:]
    assert 0.9 * math.sqrt(6 / 129) < width.abs().max() <= math.sqrt(6 / 129)
    wide = math.sqrt(6 / (129 * numbers))
    assert 0.9 * wide < others.abs().max() <= wide
    assert made.shared.bias.abs().max() > 0


@pytest.mark.parametrize("name", ["mix_one_step", "mix_one_step_pr"])
def test_a_mixture_is_both_parts_by_its_gate(name):
    made, source = attender(name), memory()
    queries = torch.randn(3, 2, D, dtype=torch.double)
    turned_source = source.with_states(made.turned(source.states, source))
    prepared, carry = made.prepare(turned_source, 2), made.begin(source)
    for t in range(2):
        query = queries[:, t]
        located, _ = made.location.located(query, prepared[0], carry, t)
        content = made.content.scores(query, prepared[1], t).softmax(1)
        gate = torch.sigmoid(made.mix(query))
        weights, carry = made.step(query, prepared, carry, t)
        assert torch.allclose(weights, gate * located + (1 - gate) * content)
        followed = located if name.endswith("pr") else weights
        assert torch.allclose(carry["reference"], (followed * source.places).sum(1, keepdim=True))


@pytest.mark.parametrize("legacy", [False, True])
def test_far_beyond_the_end_only_the_released_code_wraps_around(legacy):
    made = attender("r_mono", legacy=legacy).float()
    with torch.no_grad():
        made.shared.weight.zero_()
        made.shared.bias.fill_(1.0)
        made.numbers_of.weight.zero_()
        made.numbers_of.weight[1] = 12 / D  # twelve places a step, and none wider than 0.27
    source = Memory(torch.zeros(1, 7, D), torch.tensor([7]), torch.zeros(1, D))
    weights = run(made, source, torch.zeros(1, 1, D))
    assert weights[0, 0].sum().item() == pytest.approx(0.0 if legacy else 1.0)
    assert legacy or weights[0, 0].argmax() == 6


def test_the_location_attender_starts_as_a_memory_of_its_place():
    """Its reference open and its bias off: the centre is about where the attention was before."""
    torch.manual_seed(0)
    made, source = ATTENDERS["location"](AttenderShape(D, HEAD)).double(), memory()
    prepared, carry = made.prepare(source, 1), made.begin(source)
    _, found = made.located(torch.randn(3, D, dtype=torch.double), prepared, carry, 0)
    assert ((found["gate"] > 0.8) & (found["bias"] < 0.2)).all()


# GRUs


@pytest.mark.parametrize(("both_ways", "layers"), [(True, 1), (False, 1), (True, 2)])
def test_the_gru_is_pytorchs_on_packed_rows(both_ways, layers):
    torch.manual_seed(0)
    gru = nn.GRU(5, 7, layers, bidirectional=both_ways, batch_first=True).double()
    x, lengths = torch.randn(4, 6, 5, dtype=torch.double), [6, 3, 1, 5]
    first = torch.randn((1 + both_ways) * layers, 4, 7, dtype=torch.double)
    states, final = run_gru(gru, x, torch.tensor(lengths), first)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone, last = gru(x[one, :length], first[:, one].contiguous())
        assert torch.allclose(states[one, :length], alone) and torch.allclose(final[:, one], last)
        assert not states[row, length:].any()


def test_a_closed_gru_is_drawn_gate_by_gate():
    torch.manual_seed(0)
    gru = nn.GRU(40, 30, 2)
    draw_closed(gru)
    for layer in range(2):
        for gate in getattr(gru, f"weight_hh_l{layer}").chunk(3):
            assert torch.allclose(gate @ gate.T, torch.eye(30), atol=1e-5)
        wide = math.sqrt(6 / (30 + (30 if layer else 40)))
        for gate in getattr(gru, f"weight_ih_l{layer}").chunk(3):
            assert 0.95 * wide < gate.abs().max() <= wide
        for half in ("ih", "hh"):
            bias = getattr(gru, f"bias_{half}_l{layer}")
            assert (bias[:30] == -1).all() and bias[30:].abs().max() < 1 / math.sqrt(30)
