"""Every model, training, decoding, calibration and certificate on a device other than the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import Runs, digit_data
from elsewhere import elsewhere, on_cuda
from families import tiny as a_tiny
from others import saved, tokenizer, write_pairs
from random_models import drawn

import abc_calib as abc
from abc_calib.calibration.capture import same_shape
from abc_calib.calibration.fits import Evidence, fit_type
from abc_calib.calibration.plan import resolve_defaults
from abc_calib.config import MODEL_OPTIONS, CalibrationOptions, TrainOptions
from abc_calib.data import make_data
from abc_calib.evaluation import exact_matches
from abc_calib.evaluation.exact import greedy_matches
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.nn.foreign.checks import try_out
from abc_calib.nn.foreign.model import Foreign
from abc_calib.nn.positions import SCHEMES
from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.proof import until
from abc_calib.proof.prove import check, prepare
from abc_calib.runs import Run
from abc_calib.stages import calibrating, judging, making
from abc_calib.training import trainer as training
from abc_calib.training.step import optimise, optimizer_of


def test_the_device_refuses_what_cuda_refuses():
    with elsewhere():
        here, there = torch.ones(2), torch.ones(2, device="cuda")
        assert there.device.type == (there + there).device.type == "cuda"
        assert (2 * there).is_cuda and not there.cpu().is_cuda and not here.to(here).is_cuda
        assert (there + torch.tensor(1.0)).is_cuda and there[torch.tensor([0])].is_cuda
        for wrong in (
            lambda: here + there,
            lambda: there[None] @ here,
            lambda: here[torch.tensor([0], device="cuda")],
            lambda: torch.cat([here, there]),
            lambda: there.index_select(0, torch.tensor([0])),
        ):
            with pytest.raises(RuntimeError, match="same device"):
                wrong()
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        with pytest.raises(TypeError, match="numpy"):
            np.asarray(there)


SMALL = {"width": 16, "heads": 2, "feedforward": 16, "decoder_layers": 2}
DRAWN = ("abacus", "coupled", "randomized")
"""Schemes that draw positions while they train."""
GRU = {"width": 16, "d_head": 8, "dropout": 0.0}
CASES = [
    *[("transformer", {**SMALL, "encoder_layers": 1, "scheme": name}) for name in SCHEMES],
    *[("decoder", {**SMALL, "scheme": name}) for name in ("rope", "sinusoidal")],
    *[("gru", {**GRU, "attender": name}) for name in ("transformer", "bi_rope", "mix_loc_s_pr")],
    *[
        pytest.param("gru", {**GRU, "attender": name}, marks=pytest.mark.slow)
        for name in sorted({*ATTENDERS} - {"transformer", "bi_rope", "mix_loc_s_pr"})
    ],
]


@pytest.mark.parametrize("kind, options", CASES, ids=lambda one: str(one).split("'")[-2:][0])
def test_trains_decodes_and_shows_its_attention(kind: str, options: dict[str, Any]) -> None:
    """As on the processor, with the same numbers."""
    data = make_data(digit_data().task, TrainOptions(length=3))
    model = build_model(kind, MODEL_OPTIONS[kind](**options), data, 0)
    found = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        with elsewhere():
            one = build_model(kind, MODEL_OPTIONS[kind](**options), data, 0).to(device)
            optimizer = optimizer_of(one, model.optimizers[-1])
            losses = [float(optimise(one, optimizer, data.training(s, 5), 0.01)) for s in (0, 1)]
            batch = data.training(2, 3)
            right = exact_matches(one, batch), greedy_matches(one, batch)
            maps = one.attention(batch.source.to(device), batch.target.to(device))
            assert all(on_cuda(x) == (device == "cuda") for x in maps.weights["cross"])
        found[device] = losses, [x.tolist() for x in right]
    if torch.cuda.is_available() and options.get("scheme") in DRAWN:
        return  # other numbers are drawn there
    assert found["cpu"][0] == pytest.approx(found["cuda"][0], rel=1e-3)
    assert found["cpu"][1] == found["cuda"][1]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device that the verbs find."""
    with elsewhere() as mode:
        if not torch.cuda.is_available():
            for module in (judging, calibrating, making, training):
                monkeypatch.setattr(
                    module, "resolve_device", lambda name, **_: torch.device("cuda")
                )
            monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
        yield mode
        assert mode.calls > 1000


@pytest.mark.slow
def test_every_verb_of_a_run(tiny: Runs, cuda: Any) -> None:
    """Training, calibration, evaluation, answers and certificates."""
    vanilla, calibrated = Run.open(tiny.vanilla), Run.open(tiny.calibrated)
    made = calibrating.calibrate(vanilla, steps=20)
    assert made.config.stage == "calibrated"
    rows = judging.evaluate(calibrated, [5, 70], samples=20, greedy=True)
    assert rows["accuracy"].tolist() == [100, 100]
    assert judging.predict(calibrated, "9" * 70, show=True).answer == "1" + "0" * 70
    assert judging.certify(calibrated).outcome == "certified"


@pytest.mark.parametrize("fit", ["nnls", "mean", "rows"])
def test_every_fit_reads_its_attention(fit: str) -> None:
    data = digit_data("sum" if fit == "rows" else "addition", length=2)
    options = MODEL_OPTIONS["transformer"](**{**SMALL, "heads": 4, "encoder_layers": 1})
    model = build_model("transformer", options, data, 0)
    own = resolve_defaults(CalibrationOptions(fit=fit))
    batch = data.training(0, 20, exact=True)

    def bias() -> LineBias:
        evidence = Evidence.of_run(model, data, batch, same_shape(batch, data.vocabulary.pad))
        return fit_type(fit)(evidence, own).bias(0.05)

    here = bias()
    with elsewhere():
        model.to("cuda")
        there = bias()
    assert list(there.every())
    assert there == here or torch.cuda.is_available()  # which rounds otherwise


@pytest.mark.parametrize("seed", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (9, 10))])
def test_windows_have_the_same_margins(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models with random lines; and what ends a training looks at its model where it is."""
    model, data = drawn(seed)
    here, batch = check(prepare(model, data)), data.training(0, 5)
    matches = greedy_matches, exact_matches
    right = [match(model, batch) for match in matches]
    with elsewhere() as mode:
        there = check(prepare(model.to("cuda"), data))
        found = until.certain(model, data, 0)
        assert found is not None and not found.look(model, 7)
        assert mode.calls > 100
        for path in ("dense", "lines"):
            model.set_path(path)
            for match, wanted in zip(matches, right, strict=True):
                assert torch.equal(match(model, batch), wanted)
    for one, other in zip(here, there, strict=True):
        assert one.windows == other.windows and one.wrong == other.wrong
        assert one.margin == pytest.approx(other.margin, abs=1e-9)


ANTI, OWN = (((Line("anti", 1, 0),),) * 4, ((Line("diag", 0, 0),),) * 4)


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_a_model_of_transformers(family: str, tmp_path: Any) -> None:
    """What is tried out before a calibration, training on lines, its windows in whole sources."""
    folder = saved(a_tiny(family), tokenizer(eos=family == "t5"), tmp_path / "model")
    pairs = [(f"{a}=", str(a + 1)[::-1]) for a in range(1, 200)]
    run = abc.adopt(folder, write_pairs(tmp_path / "p.jsonl", pairs), "=")
    batch, here = run.data.training(0, 8), run.load_model()
    with elsewhere():
        model: Any = here.to("cuda")
        assert try_out(model, batch.source.to("cuda"), batch.target.to("cuda")) < 1e-5
        lined = Foreign(model.options.model_copy(update={"scheme": "none"}), model.tokens)
        heads = {"cross": ANTI, "self": OWN, "encoder": OWN}
        layers = lined.attention_layers.items()
        lined.set_lines(LineBias({site: (heads[site],) * n for site, n in layers if n}))
        optimizer = optimizer_of(lined.to("cuda"), "adam")
        assert float(optimise(lined, optimizer, batch, 0.01)) > 0
        assert not greedy_matches(lined, batch).all()
        proof = prepare(lined, run.data)
        assert sum(one.windows for one in check(proof)) > 100
