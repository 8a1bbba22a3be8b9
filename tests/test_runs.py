"""Run folders: nothing half-written, and a clear word about what is missing or damaged."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from abc_calib import files
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import write_atomically, write_text
from abc_calib.geometry import Line, LineBias
from abc_calib.runs import Run, checkpoint, list_runs, weights


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def folder_of(text: str):
    """A writer of a folder with two files."""

    def write(made: Path) -> None:
        made.mkdir()
        (made / "one").write_text(text)
        (made / "two").write_text(text)

    return write


# Atomic writing


@pytest.mark.parametrize("text", ["", "new\n", "naïve ∑\n"])
def test_a_file_is_written_and_replaced(tmp_path, text):
    path = tmp_path / "file"
    for content in ("old", text):
        write_text(path, content)
        assert path.read_text() == content
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_is_written_and_replaced(tmp_path):
    for text in ("old", "new"):
        write_atomically(tmp_path / "folder", folder_of(text))
        assert contents(tmp_path) == {"folder/one": text.encode(), "folder/two": text.encode()}


@pytest.mark.parametrize("existing", [True, False])
def test_a_writer_that_fails_midway_leaves_the_old_file(tmp_path, existing):
    path = tmp_path / "file"
    if existing:
        path.write_text("old")
    before = contents(tmp_path)

    def fail(made: Path) -> None:
        made.write_text("half of what")
        no_space()

    with pytest.raises(AbcError, match=r"cannot write .*file \(No space left on device\): free "):
        write_atomically(path, fail)
    assert contents(tmp_path) == before
    assert len(os.listdir(tmp_path)) == existing


@pytest.mark.parametrize("existing", [True, False])
def test_a_writer_that_fails_midway_leaves_the_old_folder(tmp_path, existing):
    path = tmp_path / "folder"
    if existing:
        write_atomically(path, folder_of("old"))
    before = contents(tmp_path)

    def fail(made: Path) -> None:
        made.mkdir()
        (made / "one").write_text("half")
        no_space()

    with pytest.raises(AbcError, match=r"No space left on device.* is untouched"):
        write_atomically(path, fail)
    assert contents(tmp_path) == before
    assert len(os.listdir(tmp_path)) == existing


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_rename_that_fails_leaves_what_was_there(tmp_path, monkeypatch, kind):
    """The last step can fail too: for a folder, the old one has been moved aside by then."""
    path = tmp_path / "kept"
    write = folder_of if kind == "folder" else (lambda text: lambda made: made.write_text(text))
    write_atomically(path, write("old"))
    before = contents(tmp_path)
    replace, failures = os.replace, []

    def fail_once(source, target, **options):
        if not failures and Path(target) == path:
            failures.append(source)
            no_space()
        replace(source, target, **options)

    monkeypatch.setattr(files.os, "replace", fail_once)
    with pytest.raises(AbcError, match="cannot write"):
        write_atomically(path, write("new"))
    assert failures
    assert contents(tmp_path) == before


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_any_other_failure_leaves_the_old_file_and_is_not_hidden(tmp_path, failure):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(made: Path) -> None:
        made.write_text("half")
        raise failure

    with pytest.raises(failure):
        write_atomically(path, fail)
    assert contents(tmp_path) == {"file": b"old"}
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_that_takes_no_temporary_folder_is_named_too(tmp_path, monkeypatch):
    monkeypatch.setattr(files.tempfile, "mkdtemp", no_space)
    with pytest.raises(AbcError, match=r"cannot write .*No space left on device"):
        write_text(tmp_path / "file", "text")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AbcError, match="cannot write"):
        write_text(tmp_path / "missing" / "file", "text")


def test_a_failed_checkpoint_leaves_the_last_one(make_config, monkeypatch):
    run = Run.create(make_config())
    run.save_checkpoint({"x": torch.ones(3)}, {"step": 1})
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", no_space)
        with pytest.raises(AbcError, match=r"cannot write .*checkpoint.safetensors"):
            run.save_checkpoint({"x": torch.zeros(3)}, {"step": 2})
    tensors, state = run.load_checkpoint()
    assert (tensors["x"].tolist(), state) == ([1.0] * 3, {"step": 1})


def test_a_failed_model_leaves_the_last_one(make_config, monkeypatch):
    run = Run.create(make_config())
    run.save_model(run.fresh_model())
    before = contents(run.path)
    model = run.fresh_model()
    monkeypatch.setattr(weights, "save_file", no_space)
    with pytest.raises(AbcError, match=r"cannot write .*model"):
        run.save_model(model)
    assert contents(run.path) == before


# Making and finding runs


def test_a_new_run_is_named_after_what_it_is_and_is_the_latest(make_config, runs_root):
    config = make_config("addition", seed=3)
    names = [Run.create(config).path.name for _ in range(2)]
    assert names == ["addition-vanilla-seed3-1", "addition-vanilla-seed3-2"]
    assert Run.open().path == runs_root / names[1]
    assert Run.open(names[0]).path == runs_root / names[0]
    made = Run.open(runs_root / names[0]).config
    assert Run.open(str(runs_root / names[0])).config == made
    assert made.threads == 1 and set(made.versions) == {"python", "torch", "numpy"}
    assert made.model_copy(update={"threads": None, "versions": {}}) == config


def test_a_run_can_be_made_the_latest_again(make_config):
    first, _ = Run.create(make_config()), Run.create(make_config())
    first.make_latest()
    assert Run.open().path == first.path


def test_a_run_outside_the_root_is_the_latest_too(make_config, tmp_path):
    run = Run.create(make_config(), tmp_path / "elsewhere" / "mine")
    assert Run.open().path.resolve() == run.path.resolve()


def test_runs_are_listed_by_age(make_config, runs_root):
    made = [Run.create(make_config(seed=seed)).path for seed in (2, 1, 3)]
    for age, path in enumerate(made):
        os.utime(path / "config.json", (10**9 + age, 10**9 + age))
    (runs_root / "other").mkdir()
    assert [run.path for run in list_runs()] == made


def test_a_folder_that_is_not_empty_is_not_taken(make_config, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(UsageError, match="full is not empty: name a new folder, or --resume it"):
        Run.create(make_config(), tmp_path / "full")
    assert contents(tmp_path / "full") == {"file": b"mine"}


def test_an_empty_folder_is_taken(make_config, tmp_path):
    (tmp_path / "empty").mkdir()
    assert Run.create(make_config(), tmp_path / "empty").path == tmp_path / "empty"


def test_a_folder_that_cannot_be_made_is_named(make_config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AbcError, match=r"cannot make the folder .*file/run"):
        Run.create(make_config(), tmp_path / "file" / "run")


def test_opening_says_what_is_missing(runs_root, make_config):
    with pytest.raises(UsageError, match=r"there is no run in .*runs yet: abc train"):
        Run.open()
    with pytest.raises(UsageError, match="there is no run nothing: abc runs lists them"):
        Run.open("nothing")
    (runs_root / "half").mkdir(parents=True)
    with pytest.raises(AbcError, match=r"half is not a run folder \(it has no config.json\)"):
        Run.open("half")
    run = Run.create(make_config())
    run.path.rename(runs_root / "moved")
    with pytest.raises(UsageError, match=r"there is no run .*vanilla-seed0-1: abc runs lists them"):
        Run.open()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "config.json cannot be read"),
        ('{"format_version": 1, "task": "addi', "config.json cannot be read .*: train again"),
        ("[]", "is a run folder of version None, and this program reads versions 1 and 2"),
        ('{"format_version": 3}', "of version 3, and this program reads versions 1 and 2: train"),
        ('{"format_version": 1}', r"config.json is not valid \(.*\): train again"),
    ],
)
def test_a_damaged_configuration_is_named(make_config, text, message):
    run = Run.create(make_config())
    (run.path / "config.json").write_text(text)
    with pytest.raises(AbcError, match=message):
        Run.open()


def test_an_unknown_option_in_a_configuration_is_named(make_config):
    run = Run.create(make_config())
    data = json.loads((run.path / "config.json").read_text())
    data["model"]["depth"] = 3
    (run.path / "config.json").write_text(json.dumps(data))
    with pytest.raises(AbcError, match=r"config.json is not valid \(.*depth.*\): train again"):
        Run.open()


# What is in a run


def test_a_run_knows_its_task_and_its_data(make_config):
    run = Run.open(Run.create(make_config("multiplication", seed=5, length=4)).path)
    assert run.task.name == "multiplication"
    batch = run.data.training(0, 7)
    assert max(batch.problems.operands[0].lengths) <= 4
    assert run.data.seed == 5
    assert (run.result, run.history(), run.load_checkpoint()) == (None, [], None)


def test_a_model_comes_back_from_its_run(make_config):
    run = Run.create(make_config(format="aligned", task="addition", model={"attention_window": 1}))
    model = run.fresh_model()
    run.save_model(model)
    loaded = run.load_model()
    assert not loaded.training
    assert loaded.lines == model.lines is not None
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_a_run_without_a_model_says_how_to_get_one(make_config):
    run = Run.create(make_config())
    with pytest.raises(AbcError, match="has no trained model: train again"):
        run.load_model()
    run.save_checkpoint({"x": torch.ones(1)}, {})
    with pytest.raises(AbcError, match=r"has not finished training: continue with abc train --res"):
        run.load_model()


@pytest.mark.parametrize(
    "how",
    ["truncated", "header", "empty", "no config", "broken config", "fewer weights",
     "other shapes", "lines that do not fit"],
)  # fmt: skip
def test_a_damaged_model_is_named(make_config, how):
    run = Run.create(make_config())
    run.save_model(run.fresh_model())
    file, config = run.path / "model" / "model.safetensors", run.path / "model" / "config.json"
    options = json.loads(config.read_text())
    if how == "truncated":
        file.write_bytes(file.read_bytes()[:-1000])
    elif how == "header":
        file.write_bytes(b"\xff" * 100)
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "no config":
        config.unlink()
    elif how == "broken config":
        config.write_text(config.read_text()[:50])
    elif how == "fewer weights":
        tensors = load_file(file)
        del tensors["head.weight"]
        save_file(tensors, file, metadata={"format": "pt"})
    elif how == "other shapes":
        config.write_text(json.dumps({**options, "feedforward": 29}))
    else:
        bias = LineBias({"cross": (((Line("diag", 0, 0),),) * 7,)})
        config.write_text(json.dumps({**options, "line_bias": bias.to_dict()}))
    said = {
        "other shapes": r"config.json says another feedforward than .*: one of them was changed",
        "lines that do not fit": r"config.json says another line_bias than .*: one of them was ch",
    }.get(how, r"model is damaged \(.*\): train again")
    with pytest.raises(AbcError, match=said):
        run.load_model()


def test_a_checkpoint_comes_back(make_config):
    run = Run.create(make_config())
    tensors = {"a": torch.arange(7), "b.c": torch.rand(2, 3)}
    run.save_checkpoint(tensors, {"step": 3, "seconds": 0.5})
    loaded, state = run.load_checkpoint()
    assert state == {"step": 3, "seconds": 0.5}
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    run.drop_checkpoint()
    run.drop_checkpoint()
    assert run.load_checkpoint() is None


def test_the_bias_of_a_run_that_was_not_calibrated_is_missing(make_config):
    run = Run.create(make_config())
    with pytest.raises(AbcError, match=r"no bias at .*: run abc calibrate first"):
        run.bias()


def test_a_half_written_result_is_refused(make_config):
    run = Run.create(make_config())
    (run.path / "result.json").write_text('{"steps": 3')
    with pytest.raises(AbcError, match=r"result.json cannot be read \(.*\): put it back, or train"):
        _ = run.result
    with pytest.raises(AbcError, match=r"result\.json cannot be read"):
        Run.open(run.path)
    assert Run.open(run.path, force=True).result is None
