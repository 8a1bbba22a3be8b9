"""Exported lines name the keys of our own attention, and exported models compute what ours do."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import digit_data, in_stream, random_heads
from torch.nn.attention.flex_attention import flex_attention

import abc_calib as lib
from abc_calib.config import DecoderOptions, TransformerOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.exports import onnx as exported
from abc_calib.exports.lines import Target, written
from abc_calib.geometry import DIRECTIONS, Line, LineBias, Site
from abc_calib.geometry.coords import View
from abc_calib.nn.attend import MASKED, weighed
from abc_calib.nn.build import build_model

SHAPE = {"width": 12, "heads": 3, "feedforward": 16, "scheme": "none"}


def rows_line(rng: random.Random, site: str) -> Line:
    """A line that goes on from row to row of an output."""
    beta, step = (0, 0) if site == "self" else (rng.randint(-1, 2), rng.randint(0, 1))
    direction, segment, offset = rng.choice(DIRECTIONS), rng.randint(0, 2), rng.randint(-3, 3)
    return Line(direction, segment, offset, beta=beta, part_step=step)


def case(name: str, seed: int = 0, layers: int = 2, data: Any = None) -> tuple[Any, Any]:
    """A model with random lines and its data: for one row, for several rows, as one stream."""
    rng = random.Random(seed)
    stream, rows, parts = name == "stream", name == "rows", 1 if data else 2
    data = data or digit_data("long_multiplication" if rows else "addition", length=4)
    shape: dict[str, Any] = {**SHAPE, "decoder_layers": layers}
    options: Any = (
        DecoderOptions(**shape) if stream else TransformerOptions(**shape, encoder_layers=1)
    )
    model: Any = build_model("decoder" if stream else "transformer", options, data, 0).eval()
    counts: dict[Site, int] = {"encoder": 1, "self": layers, "cross": layers}
    sites = {
        site: tuple(random_heads(rng, site, 3, 0.3, segments=parts) for _ in range(n))
        for site, n in counts.items()
    }
    if rows:
        for site in ("self", "cross"):
            heads = [[(rows_line(rng, site),) * rng.randint(0, 1)] for _ in range(6)]
            made = [one[0] + (rows_line(rng, site),) for one in heads]
            sites[site] = tuple(made[:3]), tuple(made[3:])
    lines = LineBias(sites, -2.5 if name == "off the lines" else None)
    if stream:
        lines = in_stream(lines, seed)
    model.set_lines(lines)
    return model, data


CASES = ("masked", "off the lines", "rows", "stream")


def module_of(model: Any, to: Target, **other: str) -> ModuleType:
    text = written(model, to, "random")
    for old, new in other.items():
        text = text.replace(f"import {old}.numpy as", f"import {new} as")
    assert "abc_calib" not in text
    made = sys.modules["exported"] = ModuleType("exported")
    exec(compile(text, "exported", "exec"), made.__dict__)
    return made


def ours(model: Any, batch: Any) -> list[tuple[str, int, int, torch.Tensor]]:
    """Site, layer, first query and the bias ``(b, h, i, j)`` of every attention of a model."""
    views = model.views(batch.source, batch.target)
    found: list[tuple[str, int, int, torch.Tensor]] = []
    calls: dict[Site, list[View]] = {site: [view] for site, view in views.items()}
    if model.stream:
        s = batch.source.shape[1]
        calls = {"encoder": calls["encoder"]}
        calls["self"] = [views["cross"], replace(views["self"], first=s)]
    for site, seen in calls.items():
        for layer, attention in enumerate(model._attending(site)):
            x = torch.zeros(1)
            bias, nowhere = attention._bias(
                x, x, seen, model.scheme_of(site), attention.lines.get(site)
            )
            if nowhere is not None:
                bias = bias.masked_fill(nowhere, MASKED)
            first = batch.source.shape[1] if model.stream and site == "self" else 0
            found.append(("stream" if model.stream else site, layer, first, bias))
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_arrays_are_our_biases(name, seed):
    model, data = case(name, seed)
    batch = data.test(data.size, 5) if name == "rows" else data.training(seed, 5)
    read, source = model.shifted(batch.target).numpy(), batch.source.numpy()
    made = module_of(model, "numpy")
    twin = module_of(model, "jax", jax="numpy")
    for site, layer, first, wanted in ours(model, batch):
        bias = made.bias(site, layer, source, read)
        np.testing.assert_array_equal(twin.bias(site, layer, source, read), bias)
        here = bias[:, :, first : first + wanted.shape[2]]
        if site == "stream" and not first:
            assert (here[..., wanted.shape[3] :] == -np.inf).all()
            here = here[..., : wanted.shape[3]]
        shape = np.broadcast_shapes(here.shape, tuple(wanted.shape))
        np.testing.assert_array_equal(np.broadcast_to(here, shape), wanted.expand(shape).numpy())


def test_jax_makes_the_same_arrays():
    jax = pytest.importorskip("jax")
    for name in CASES:
        model, data = case(name)
        batch = data.test(data.size, 3)
        read, source = model.shifted(batch.target).numpy(), batch.source.numpy()
        made, other = module_of(model, "jax"), module_of(model, "numpy")
        for site, layer, *_ in ours(model, batch):
            found = jax.jit(made.bias, static_argnums=(0, 1))(site, layer, source, read)
            np.testing.assert_array_equal(found, other.bias(site, layer, source, read))


@pytest.mark.parametrize("name", CASES)
def test_torch_attends_as_our_attention_does(name):
    model, data = case(name)
    batch = data.test(data.size, 2)
    read, source = model.shifted(batch.target), batch.source
    flex, mask = module_of(model, "flex"), module_of(model, "mask")
    s, t = source.shape[1], read.shape[1]
    for site, layer, first, wanted in ours(model, batch):
        size = (s + t, s + t) if site == "stream" else (wanted.shape[2], wanted.shape[3])
        queries, keys, values = (torch.randn(2, 3, n, 4) for n in (size[0], size[1], size[1]))
        own, (i, j) = queries[:, :, first : first + wanted.shape[2]], wanted.shape[2:]
        weights = weighed(own, keys[:, :, :j], wanted).nan_to_num()
        expected = weights @ values[:, :, :j]
        score_mod, _ = flex.mods(site, layer, source, read)
        blocks = flex.block_mask(site, layer, source, read)
        assert blocks.shape[-2:] == size
        found = [
            flex_attention(queries, keys, values, score_mod=score_mod, block_mask=blocks),
            F.scaled_dot_product_attention(
                queries, keys, values, mask.attn_mask(site, layer, source, read)
            ),
        ]
        for one in found:
            here = one[:, :, first : first + i]
            torch.testing.assert_close(here, expected.expand(here.shape), atol=1e-5, rtol=1e-4)


# The model itself

needed = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in exported.PACKAGES),
    reason="the extra onnx is not installed",
)


@needed
@pytest.mark.parametrize("name", ["masked", pytest.param("stream", marks=pytest.mark.slow)])
def test_a_traced_model_is_the_same_at_any_length(name, tiny, abc):
    """By onnxruntime, torch.export and torch.compile; with random lines in place of the run's."""
    data = lib.Run.open(tiny.calibrated).data
    model, _ = case(name, layers=1 if name == "masked" else 2, data=data)
    traced, programs = exported.traced, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lib.Run, "load_model", lambda _: model)
        patch.setattr(exported, "traced", lambda *x: programs.append(traced(*x)) or programs[0])
        said = abc("export", "onnx", tiny.calibrated, "--json").json()
    assert said["files"] == [str(tiny.calibrated / "exports" / "model.onnx")]
    program = programs[0]
    operations = {str(node.target) for node in program.exported_program.graph.nodes}
    assert not any("item" in one or "_local_scalar" in one for one in operations)
    session = importlib.import_module("onnxruntime").InferenceSession(said["files"][0])
    for length, n in ((2, 1), (9, 3), (70, 2)):
        assert exported.difference(session, model, data.test(length, n)) < 1e-4
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for length in (9, 70):
        batch = data.test(length, 2)
        with torch.no_grad():
            wanted = model(batch.source, batch.target)
            for pass_ in (compiled, program.exported_program.module()):
                found = pass_(batch.source, batch.target)
                torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_lines_are_written_as_a_file_that_runs(tiny, abc, tmp_path):
    out = tmp_path / "lines.py"
    abc("export", "lines", tiny.calibrated, "--to", "numpy", "--out", out)
    made = ModuleType("made")
    exec(out.read_text(), made.__dict__)
    assert made.bias("cross", 0, np.array([[1, 2]]), np.array([[1]])).shape == (1, 8, 1, 2)
    for form, words in (
        (["lines", "--to", "flex", "--out", out], "is there already"),
        (["lines"], "name what for: --to"),
        (["certificate", "--to", "flex", "--out", "x"], "--to"),
        (["lines", tiny.vanilla, "--to", "jax"], "has no lines: abc calibrate"),
        (["onnx", tiny.vanilla], "has no lines: abc calibrate"),
    ):
        assert words in abc("export", *form).error(2)


def test_what_cannot_be_exported_is_said(monkeypatch, tiny):
    with pytest.raises(UsageError, match="to = 'tensorflow': give 'flex' or 'mask' or"):
        lib.export_lines(tiny.calibrated, to="tensorflow")
    run = lib.Run.open(tiny.calibrated)
    options = TransformerOptions(**{**SHAPE, "decoder_layers": 1, "scheme": "xl"})
    model = build_model("transformer", options, run.data, 0)
    with monkeypatch.context() as patch:
        patch.setattr(exported, "PACKAGES", ())
        patch.setattr(exported, "traced", lambda *_: 1 / 0)  # an operation that torch lacks
        with pytest.raises(AbcError, match=r"scheme none \(ZeroDivisionError\): try another torch"):
            lib.export_onnx(run)
        patch.setattr(run, "load_model", lambda: model)
        with pytest.raises(AbcError, match=r"with the scheme xl \(.*: calibrate one with scheme n"):
            lib.export_onnx(run)
    assert not (run.path / "exports").exists()
    monkeypatch.setattr(exported, "PACKAGES", ("no_such_package",))
    with pytest.raises(UsageError, match=r"no_such_package.*pip install .abc-calib\[onnx\]"):
        lib.export_onnx(tiny.calibrated)
