"""A training that is stopped at any of its file operations: by a kill, by a full disk.

Python tells an audit hook of every file that is opened, made, renamed or removed. From one of them on nothing is
written any more, not even by what cleans up. Then the training goes on, and must give what a whole one gives, bit by
bit.
"""

import os
import sys
from pathlib import Path

import pytest

from graphcaps import GraphcapsError, TrainConfig, train
from graphcaps.images.training import loop
from graphcaps.images.training.run_folder import Run, find_runs

from .. import small

WRITES = os.O_WRONLY | os.O_RDWR
EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod")


class Crash(BaseException):
    """A kill: nothing catches it."""


class Disk:
    """Calls ``fail`` before each operation in ``folder`` that changes it, from number ``first`` on."""

    folder, first, fail = None, sys.maxsize, None

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.folder is None or event not in EVENTS or (event == "open" and not (arguments[2] or 0) & WRITES):
            return
        paths = [str(each) for each in arguments if str(each).startswith(str(self.folder))]
        if paths and not isinstance(arguments[0], int):
            self.done.append(f"{event} {os.path.relpath(paths[-1], self.folder)}")
            if len(self.done) > self.first:
                self.fail(event)


DISK = Disk()
sys.addaudithook(DISK)  # The hook stays until Python ends; without a folder it does nothing.


@pytest.fixture(autouse=True)
def disk(monkeypatch):
    small.use(monkeypatch)
    yield DISK
    DISK.folder = None


def trained(folder: Path, first: int, fail) -> str:
    """Train until the disk fails, and return how the training ended."""
    DISK.folder, DISK.first, DISK.fail, DISK.done = folder, first, fail, []
    try:
        train(small.config(folder), progress=False)
        return "done"
    except (Crash, GraphcapsError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        DISK.folder = None


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[dict, list[str]]:
    """The content of an undisturbed run, and the file operations of its training."""
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        folder = tmp_path_factory.mktemp("whole")
        assert trained(folder, sys.maxsize, None) == "done"
        return small.content(folder / "run"), list(DISK.done)


def points(operations: list[str], every: bool) -> list[int]:
    """The operations on the first file and the renaming of each other file; if not ``every``, one of six of these."""
    chosen = [n for n, each in enumerate(operations) if n < 14 or each.startswith("os.rename")]
    return chosen[:: 1 if every else 6]


def goes_on(folder: Path, run: Path, whole: dict) -> None:
    """Train to the end, and compare with the whole run."""
    DISK.folder = None
    if not run.exists():
        run = Path(train(small.config(folder), progress=False)["run"])
    elif Run.open(run).result() is None:
        train(TrainConfig(), resume=run, progress=False)
    differences = small.differences(small.content(run), whole)
    weights = ("best", "last.model", "last.optimizer", "metrics")  # the trace was lost
    assert not [name for name in differences if run.name == "run" or name.startswith(weights)]
    assert [each.path for each in find_runs(folder)] == [run] and not list(run.rglob(".unfinished*"))


every = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])


@every
def test_a_kill_before_any_file_operation_leaves_a_run_that_goes_on(tmp_path, whole, every):
    def kill(event):
        raise Crash

    for n in points(whole[1], every):
        folder = tmp_path / str(n)
        folder.mkdir()
        assert trained(folder, n, kill).startswith("Crash")
        goes_on(folder, folder / "run", whole[0])


@every
def test_a_disk_that_is_full_from_any_moment_on_is_said_and_loses_no_epoch(tmp_path, monkeypatch, whole, every):
    evaluate, epochs = loop.evaluate, []
    monkeypatch.setattr(loop, "evaluate", lambda *args: (epochs.append(1), evaluate(*args))[1])

    def full(event):
        if event in ("open", "os.mkdir"):
            raise OSError(28, "No space left on device")

    for n in points(whole[1], every):
        folder = tmp_path / str(n)
        folder.mkdir()
        epochs.clear()
        answer = trained(folder, n, full)
        run = folder / "run"
        assert answer == "done" or "No space left on device" in answer, answer
        failed = DISK.done[-1]
        if not any(name in failed for name in ("last", "config", "lock")) and (run / "checkpoints").exists():
            assert Run.open(run).newest_checkpoint()[0][2]["state"]["epoch"] == min(len(epochs), 2)
        goes_on(folder, run, whole[0])
