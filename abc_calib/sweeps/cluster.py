"""Jobs on the workers of a Dask scheduler, wherever they are.

Each job is one task, which starts the same process as on this machine. Dask does it again, on
another worker, where one dies. Workers that do not see the folder of jobs work in one of their
own, and send back what they made.
"""

from __future__ import annotations

import io
import itertools
import logging
import shutil
import time
import uuid
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from abc_calib.errors import AbcError, UsageError
from abc_calib.files import make_folder
from abc_calib.sweeps.attempt import Ended, attempt
from abc_calib.sweeps.jobs import Errand, Job
from abc_calib.version import __version__

CONNECT_SECONDS = 10
RETRIES = 2
"""How often a job is done again after its worker died."""
BEAT_SECONDS, SILENCE_SECONDS = 5.0, 60.0
"""How often a sweep says that it lives, and after which silence its jobs stop."""
STOP = -1


class Cluster:
    """The workers of the scheduler at ``address``; ``workers``: at most so many jobs at once.

    ``own``: the folder of the workers, where they do not see ``root``. Raises ``AbcError`` where
    nobody answers, nobody works, or a worker lacks what it needs.
    """

    def __init__(
        self, address: str, workers: int | None, root: Path, own: Path | None, device: str
    ):
        if find_spec("distributed") is None:
            raise UsageError("--scheduler needs Dask: pip install 'abc-calib[cluster]'")
        from distributed import Client, Variable

        for name in ("distributed", "distributed.client"):  # what goes wrong is said by us
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.address, self.most, self.root, self.own = address, workers, root, own
        self.device, self.name = device, f"abc-{uuid.uuid4()}"
        try:
            self.client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise AbcError(
                f"--scheduler {address[:100]}: no Dask scheduler answers within {CONNECT_SECONDS} "
                f"seconds ({reason}): start one with `dask scheduler`, or name its address"
            ) from None
        self.beat, self.last_beat = Variable(self.name, client=self.client), 0.0
        self.counts = itertools.count()
        self.alone_since: float | None = None
        try:
            self._check()
            self.tick()
        except BaseException:
            self.client.close()
            raise
        self.pool = self.client.get_executor(pure=False, retries=RETRIES)

    def _check(self) -> None:
        """Does every worker have this program, and see what it needs to?"""
        if not self.client.nthreads():
            raise AbcError(
                f"the scheduler at {self.address} has no workers: start some with "
                f"`dask worker {self.address}`"
            )
        mark = self.root / f".{self.name}"
        make_folder(self.root)
        mark.touch()
        try:
            found = self.client.run(look, str(mark), on_error="return")
        finally:
            mark.unlink(missing_ok=True)
        for worker, said in found.items():
            if wrong := self._wrong(said):
                raise AbcError(f"the worker at {worker} {wrong}")

    def _wrong(self, said: Any) -> str:
        """What is wrong with a worker that says so."""
        if not isinstance(said, tuple):
            return (
                f"cannot run this program ({type(said).__name__}: {str(said)[:200]}): install "
                f"abc-calib {__version__} in its environment"
            )
        version, sees = said
        if version != __version__:
            return f"has version {version} of this program, not {__version__}: install the same"
        if not sees and self.own is None:
            return (
                f"does not see {self.root}: name a folder with --jobs that every worker sees, or "
                "with --worker-folder one of its own, from which results are sent back"
            )
        return ""

    @property
    def size(self) -> int:
        """Jobs that are done at once: a thread of a worker watches one."""
        return min(self.threads, self.most or self.threads)

    def submit(self, job: Job) -> Future[Ended]:
        where, packed = self.root, b""
        if self.own is not None:
            where = self.own
            if job.parent is not None:
                packed = pack(self.root / job.parent.key)
        parent = job.parent.key if job.parent else ""
        errand = Errand.of(job).model_dump_json()
        inner = self.pool.submit(
            work_there, errand, str(where), job.key, self.device, self.name,
            self.own is not None, (parent, packed), __version__,
        )  # fmt: skip
        return inner if self.own is None else self._fetched(inner, self.root / job.key)

    def _fetched(self, inner: Future[Ended], folder: Path) -> Future[Ended]:
        """The same, ended once what was sent back lies in ``folder``."""
        outer: Future[Ended] = Future()

        def take(done: Future[Ended]) -> None:
            try:
                ended = done.result()
                if ended.folder:
                    unpack(ended.folder, folder)
                outer.set_result(ended._replace(folder=b""))
            except BaseException as error:  # it is raised again where the result is asked for
                outer.set_exception(error)

        inner.add_done_callback(take)
        return outer

    def tick(self) -> None:
        now = time.monotonic()
        if now - self.last_beat < BEAT_SECONDS:
            return
        self.last_beat = now
        try:
            self.beat.set(next(self.counts))
            self.threads = sum(self.client.nthreads().values())
        except (OSError, RuntimeError, TimeoutError):  # closed meanwhile, or closing
            raise AbcError(
                f"the scheduler at {self.address} does not answer any more: start it again; the "
                "same command goes on"
            ) from None
        self.alone_since = None if self.threads else self.alone_since or now
        if self.alone_since and now - self.alone_since > SILENCE_SECONDS:
            raise AbcError(
                f"the scheduler at {self.address} has had no workers for {SILENCE_SECONDS:.0f} "
                "seconds: start some; the same command goes on"
            )

    def close(self) -> None:
        try:
            self.beat.set(STOP)
            self.pool.shutdown(wait=True)
        except (
            OSError,
            RuntimeError,
            TimeoutError,
        ):  # nobody there: jobs stop by themselves
            pass
        finally:
            self.client.close()


def look(mark: str) -> tuple[str, bool]:
    """On a worker: its version of this program, and whether it sees a file of ours."""
    return __version__, Path(mark).is_file()


def work_there(
    job: str,
    root: str,
    key: str,
    device: str,
    beat: str,
    sends: bool,
    parent: tuple[str, bytes],
    version: str,
) -> Ended:
    """On a worker: do a job in ``root``; if it ``sends``, give back what was made."""
    if version != __version__:
        raise AbcError(f"this worker has version {__version__} of abc-calib, not {version}")
    folder = Path(root) / key
    name, packed = parent
    if packed:
        unpack(packed, Path(root) / name)
    ended = attempt(job, folder, device, silence(beat))
    return ended._replace(folder=pack(folder)) if sends else ended


def silence(beat: str) -> Callable[[], bool]:
    """Has the sweep asked its jobs to stop, or said nothing for long?"""
    from distributed import Variable, get_client

    variable = Variable(beat, client=get_client())
    seen, changed, asked = None, time.monotonic(), 0.0

    def stopped() -> bool:
        nonlocal seen, changed, asked
        if time.monotonic() - asked >= BEAT_SECONDS / 2:
            try:
                now = variable.get(timeout=BEAT_SECONDS)
            except Exception:  # no scheduler, which has many ways to be away: silence
                now = seen
            asked = time.monotonic()
            if now != seen:
                seen, changed = now, asked
        return seen == STOP or time.monotonic() - changed > SILENCE_SECONDS

    return stopped


def pack(folder: Path) -> bytes:
    """A folder of a job, as a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != "lock":
                archive.write(path, path.relative_to(folder))
    return made.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Put such a folder in its place, whole."""
    made = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    make_folder(made)
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            archive.extractall(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.replace(folder)
    except OSError as error:
        raise AbcError(f"cannot write {folder} ({error.strerror})") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
