"""Runs hostile invocations, each in a fork of this process, and says how they ended.

Each has a limit of time and of memory. ``judged`` is what the ending means.
"""

from __future__ import annotations

import os
import re
import resource
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile import SWEEP, Case

import abc_calib.evaluation.inspect
import abc_calib.proof.second_look
import abc_calib.reproduction
import abc_calib.sweeps
import cli.main

assert abc_calib and cli  # imported before the first fork
SECONDS = 30.0
BYTES = 12 * 2**30
MOST = 700
"""Characters of a refusal at most."""


@dataclass(frozen=True)
class Ended:
    """``code`` is negative for a signal, None for what ran out of time."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def word(self) -> str:
        """``done``, ``refused`` in one line, or what is wrong with the way it ended."""
        if self.code == 0:
            return "done"
        if self.code in (1, 2) and re.fullmatch(r"error: [^\n]+\n", self.err):
            return "refused"
        return f"ended with {self.code}: {self.err}"


def forked(words: list[object], root: Path, seconds: float = 2 * SECONDS) -> Ended:
    """How ``abc WORDS`` ends in a fork of this process, with ``root`` for its runs."""
    case = Case("", "", tuple(map(str, words)), env={"ABC_RUNS": str(root)})
    return _run(case, root, seconds)


def _run(case: Case, folder: Path, seconds: float = SECONDS) -> Ended:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        names = [f"{scratch}/out", f"{scratch}/err"]
        for name in names:
            Path(name).touch()
        child = os.fork()
        if child == 0:
            invoke(case, folder, *names)
        code = _waited(child, seconds)
        texts = (Path(name).read_bytes().decode(case.encoding, "replace") for name in names)
        out, err = (text[:20_000] for text in texts)
    return Ended(code, out, err, time.perf_counter() - started)


def _waited(child: int, seconds: float) -> int | None:
    """The exit code, or None after the time is over."""
    handle = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ready else None


def invoke(case: Case, folder: Path, out: str, err: str) -> None:
    """The child: the command with its terminal, and never back."""
    code = 1
    try:
        os.setsid()
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        for name in ("FORCE_COLOR", "COLUMNS"):
            os.environ.pop(name, None)
        os.environ.update({"ABC_RUNS": str(folder / "runs"), **case.env})
        os.chdir(folder)
        _wire(case, out, err)
        sys.argv = ["abc", *case.argv]
        sys.modules["cli.main"].app()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code if _flushed() else 120)  # 120 is what Python itself leaves with


def _flushed() -> bool:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        print(f"Exception ignored: {error!r}", file=sys.stderr, flush=True)
        return False
    return True


def _wire(case: Case, out: str, err: str) -> None:
    """Standard input, output and error, and the two consoles that look at them."""
    from abc_calib.progress import err as remarks
    from cli.console import out as results

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(err, os.O_CREAT | os.O_WRONLY), 2)
    target = os.open(out, os.O_CREAT | os.O_WRONLY)
    if case.stdout == "/dev/full":
        target = os.open("/dev/full", os.O_WRONLY)
    if case.stdout == "closed pipe":
        reader, target = os.pipe()
        os.close(reader)
    os.dup2(target, 1)
    how: Any = {"encoding": case.encoding, "closefd": False}
    sys.stderr = open(2, "w", errors="backslashreplace", **how)  # noqa: SIM115 (open to the end)
    sys.stdout = open(1, "w", **how)  # noqa: SIM115
    if case.stdout == "closed":
        os.close(1)
        sys.stdout = None  # as Python has it then
    remarks.__init__(stderr=True)  # type: ignore[misc]  # they read COLUMNS when they are made
    results.__init__()  # type: ignore[misc]


def tried(case: Case, folder: Path, template: Path) -> tuple[Ended, bool]:
    """How a case ended, and whether it left every file as it was; what it changed is undone."""
    if not folder.exists():
        workspace(folder, template)
    for name, text in case.files.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = seen(folder)
    ended = _run(case, folder)
    same = seen(folder) == before
    if not same:
        shutil.rmtree(folder)
    return ended, same


RUNS = {
    "vanilla": "successor-seed0-vanilla-1",
    "calibrated": "successor-seed0-calibrated-1",
    "bare": "successor-seed0-calibrated-2",
    "recurrent": "copy-seed0-vanilla-1",
}
"""What the template holds; ``hostile.BASE`` names them shortly."""


def workspace(folder: Path, template: Path) -> None:
    """Runs, and beside them files of odd kinds, under the names that ``hostile.PATHS`` has."""
    folder.mkdir(parents=True)
    shutil.copytree(template, folder / "runs")
    for name, found in RUNS.items():
        (folder / "runs" / name).symlink_to(found)
    (folder / "a-file").write_text("text")
    (folder / "a-folder").mkdir()
    (folder / "a-folder" / "b").write_text("text")
    for name in ("zero", "full", "null"):  # by links, so that nobody replaces a device
        (folder / name).symlink_to(f"/dev/{name}")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    (folder / "good.toml").write_text(SWEEP)


def seen(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file, how long it is and when it was written."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        if not stat.S_ISDIR(about.st_mode):
            found[str(path)] = (about.st_size, about.st_mtime_ns)
    return found


RIGHT = ("refused", "accepted rightly")


def judged(case: Case, ended: Ended, same: bool) -> str:
    """What the ending is: one of ``RIGHT``, or what is wrong with it."""
    if ended.code is None:
        return "hang"
    if ended.code < 0:
        return "crash"
    out, err = ended.out, ended.err
    if "FORCE_COLOR" in case.env:
        out, err = (re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text) for text in (out, err))
    if "Traceback (most" in err or ended.code not in (0, 1, 2) or "ignored" in err:
        return "traceback"
    if not all(c.isprintable() or c == "\n" for c in out + err):
        return "interpreted"
    if ended.code == 0:
        return "accepted rightly" if case.legal else "wrong acceptance"
    if case.stdout == "closed pipe" and not err:
        return "refused"  # as other programs leave when nobody reads them
    if case.legal:  # what was done before it failed may have been told
        err = "".join(err.splitlines(keepends=True)[-1:])
    if "╭" in err or not err.startswith("error: ") or err.count("\n") != 1:
        return "not one line"
    if len(err) > MOST:
        return "echo"
    if not case.legal and (out or not same):
        return "written"
    return "refused" if names(err, case) else "value not shown"


def names(line: str, case: Case) -> bool:
    """Does a refusal show what was given: the value, or the options that do not go together?"""
    value = case.shown.strip()
    flag = case.words[-1].partition("=")[0] if case.words else ""
    blamed = line.startswith(f"error: {flag}")
    if flag.startswith("--") and not blamed and flag.rpartition("-")[2] in line:
        return True
    if "--hf is missing" in line:  # what was given goes with it
        return True
    if not value:
        forms = ["".join(map(how, case.shown)) for how in ESCAPES]
        return not case.shown or any(form in line for form in ("''", "empty", *forms))
    parts = [repr(part) for part in re.split(r"[\s,]", value)[:9] if part]
    forms = ["".join(c if c.isprintable() else how(c) for c in value) for how in ESCAPES]
    plain = value.encode("ascii", "backslashreplace").decode()
    shown = [" ".join(text.split())[:12].rstrip("\\/. ") for text in (value, plain, *forms)]
    signs = [f"{sign!r} is not a digit" for sign in set(value)]
    return any(text in line for text in (*parts, *shown, *signs))


ESCAPES = (lambda c: repr(c)[1:-1], lambda c: f"\\x{ord(c):02x}")
