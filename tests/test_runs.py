"""Run folders: nothing half-written, and a clear word about what is missing or damaged."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from conftest import assert_same_weights, change_json, vouch
from safetensors.torch import load_file, save_file

from abc_calib import files, stages
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import write_atomically
from abc_calib.runs import Run, records, rows

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def writing(kind: str, text: str, failure: Any = None) -> Callable[[Path], None]:
    """A writer of a file, or of a folder with two files, which fails midway."""

    def write(made: Path) -> None:
        if kind == "folder":
            made.mkdir()
            (made / "one").write_text(text)
            made = made / "two"
        made.write_text(text if failure is None else text[:2])
        if failure is not None:
            raise failure

    return write


KINDS = pytest.mark.parametrize("kind", ["file", "folder"])


@KINDS
def test_what_is_written_takes_the_place_of_what_was_there(tmp_path, kind):
    for content in ("old", "", "naïve ∑\n"):
        write_atomically(tmp_path / "kept", writing(kind, content))
        assert {*contents(tmp_path).values()} == {content.encode()}
        assert os.listdir(tmp_path) == ["kept"]


@KINDS
@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("failure", [FULL, KeyboardInterrupt()])
@pytest.mark.parametrize("last", [False, True])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, kind, existing, failure, last):
    """While it is written, or in the last step: of a folder the old one has been moved by then."""
    path = tmp_path / "kept"
    if existing:
        write_atomically(path, writing(kind, "old"))
    before, replace, failures = contents(tmp_path), os.replace, []

    def fail_once(source, target, **options):
        if not failures and Path(target) == path:
            failures.append(source)
            raise failure
        replace(source, target, **options)

    if last:
        monkeypatch.setattr(files.os, "replace", fail_once)
    raised = AbcError if failure is FULL else KeyboardInterrupt
    said = r"cannot write .*kept \(No space left on device\): free " if failure is FULL else None
    with pytest.raises(raised, match=said):
        write_atomically(path, writing(kind, "new text", None if last else failure))
    assert contents(tmp_path) == before and len(failures) == last
    assert len(os.listdir(tmp_path)) == existing


def test_a_new_run_is_named_after_what_it_is_and_is_the_latest(make_config, runs_root, tmp_path):
    config = make_config("addition", seed=3)
    names = [Run.create(config).path.name for _ in range(2)]
    assert names == ["addition-seed3-vanilla-1", "addition-seed3-vanilla-2"]
    assert Run.open().path == runs_root / names[1]
    assert Run.open(names[0]).path == runs_root / names[0]
    made = Run.open(str(runs_root / names[0])).config
    assert made.threads == 1 and set(made.versions) == {"python", "torch", "numpy"}
    assert made.model_copy(update={"threads": None, "versions": {}}) == config
    outside = Run.create(config, tmp_path / "elsewhere" / "mine")
    assert Run.open().path.resolve() == outside.path.resolve()


def finished(config, path=None) -> Run:
    """A run with a model that nobody trained, and a result."""
    run = Run.create(config, path)
    run.save_model(run.fresh_model())
    run.save_result(
        {"steps": 1, "seconds": 1.0, "validation_accuracy": 0.0, "validation_samples": 1,
         "interpolated": False}
    )  # fmt: skip
    return run


def test_weights_that_are_not_finite_are_neither_written_nor_read(make_config):
    run = finished(make_config())
    model = run.fresh_model()
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(AbcError, match="is not finite"):
        run.save_model(model)
    file = run.path / "model" / "model.safetensors"
    tensors = {name: value * torch.inf for name, value in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    vouch(run.path)
    with pytest.raises(AbcError, match="is not finite"):
        Run.open(run.path).load_model()


def test_a_run_that_vouches_for_another_shape_is_refused(make_config, tmp_path):
    """Hashes alone do not do: both configurations have to say the same."""
    one = finished(make_config(), tmp_path / "one")
    other = finished(make_config(model={"feedforward": 24}), tmp_path / "other")
    shutil.rmtree(one.path / "model")
    shutil.copytree(other.path / "model", one.path / "model")
    vouch(one.path)
    with pytest.raises(AbcError, match="says another feedforward than"):
        Run.open(one.path).load_model()


def test_a_run_that_was_changed_is_refused(tiny, abc):
    change_json(tiny.calibrated / "result.json", validation_accuracy=99.5)
    line = abc("predict", "12", "--run", tiny.calibrated).error(1)
    assert line.startswith(f"{tiny.calibrated / 'result.json'} was changed (")
    (tiny.vanilla / "history.jsonl").write_text("")
    for make in (stages.calibrate, stages.certify, stages.repair):
        with pytest.raises(AbcError, match=r"history\.jsonl is not the file of this run"):
            make(Run(tiny.vanilla))


def test_a_model_without_a_result_is_not_trained_over(tiny, abc):
    (tiny.vanilla / "result.json").unlink()
    before = contents(tiny.vanilla)
    for words in (["train", "--resume", tiny.vanilla], ["calibrate", tiny.vanilla]):
        assert "model is there and no result.json that vouches for it" in abc(*words).error(1)
    assert contents(tiny.vanilla) == before


def test_two_processes_do_not_train_one_run(make_config):
    run = Run.create(make_config())
    with files.locked(run.path), pytest.raises(AbcError, match="is being trained by another proc"):
        stages.resume(run.path)


def row(length: int, n: int, correct: int = 1, seed: int = 0) -> dict:
    return {
        **{"length": length, "accuracy": 100 * correct / n, "n": n, "set": "random", "low": 0.0},
        **{"correct": correct, "high": 100.0, "test_seed": seed, "test_hash": "x", "seconds": 0.5},
    }


def test_a_row_of_fewer_samples_never_replaces_one_of_more(tmp_path):
    path = tmp_path / "eval.csv"
    rows.add_rows(path, [row(1, 10), row(2, 10)])
    rows.add_rows(path, [row(1, 4), row(2, 20, 3), row(1, 4, seed=2**63 - 1)])
    assert rows.read_rows(path) == [row(1, 10), row(2, 20, 3), row(1, 4, seed=2**63 - 1)]


def test_evaluations_at_once_lose_nothing(tmp_path):
    path = tmp_path / "eval.csv"

    def measure(start: int) -> None:
        for length in range(start, 60, 3):
            rows.add_rows(path, [row(length, 5)])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(measure, range(1, 4)))
    assert [one["length"] for one in rows.read_rows(path)] == list(range(1, 60))


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_files_have_the_mode_that_the_user_wants(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "x", lambda new: save_file({"x": torch.ones(1)}, new))
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666 & ~mask


def killed(path: Path, *, old: str = "") -> Path:
    """What a process that was killed while it wrote ``path`` left."""
    left = path.parent / f".{path.name}.abc-x1y2"
    (left / path.name).mkdir(parents=True)
    if old:
        path.rename(left / "old")
    return left


def test_what_a_killed_process_left_is_put_away_when_a_run_is_opened(make_config):
    run = finished(make_config())
    before = contents(run.path)
    left = [killed(run.path / "eval.csv"), killed(run.path / "model", old="old")]
    others = run.path / ".notes.mine"
    others.mkdir()
    Run.open(run.path).load_model()
    assert contents(run.path) == before and not any(path.exists() for path in left)
    assert others.is_dir()


def test_a_process_that_holds_its_folder_is_left_alone(tmp_path):
    left = killed(tmp_path / "model")
    with files._held(left):
        files.tidy(tmp_path)
        assert left.is_dir()
    files.tidy(tmp_path)
    assert not left.exists()


def test_a_failed_checkpoint_leaves_the_last_one(make_config, monkeypatch):
    run = Run.create(make_config())
    tensors, state = {"a": torch.arange(7), "b.c": torch.rand(2, 3)}, {"step": 1, "seconds": 0.5}
    run.save_checkpoint(tensors, state)
    with monkeypatch.context() as patch:
        patch.setattr(records, "save_file", Mock(side_effect=FULL))
        with pytest.raises(AbcError, match=r"cannot write .*checkpoint.safetensors"):
            run.save_checkpoint({"x": torch.zeros(3)}, {"step": 2})
    loaded, found = run.load_checkpoint()
    assert found == state
    assert_same_weights(loaded, tensors)
    run.drop_checkpoint()
    run.drop_checkpoint()
    assert run.load_checkpoint() is None


def test_opening_says_what_is_missing(runs_root, make_config):
    with pytest.raises(UsageError, match=r"there is no run in .*runs yet: abc train"):
        Run.open()
    with pytest.raises(UsageError, match="there is no run nothing: abc runs lists them"):
        Run.open("nothing")
    (runs_root / "half").mkdir(parents=True)
    with pytest.raises(AbcError, match=r"half is not a run folder \(no config.json\)"):
        Run.open("half")
    with pytest.raises(UsageError, match=r"there is no run halff: did you mean half\?"):
        Run.open("halff")
    run = Run.create(make_config())
    with pytest.raises(AbcError, match="has no trained model: train again"):
        run.load_model()
    run.save_checkpoint({"x": torch.ones(1)}, {})
    with pytest.raises(AbcError, match=r"has not finished training: continue with abc train --res"):
        run.load_model()
    run.path.rename(runs_root / "moved")
    with pytest.raises(UsageError, match=r"there is no run .*seed0-vanilla-1: abc runs lists them"):
        Run.open()
