"""A training that is stopped at one of its file operations: by a kill or by a full disk.

Python reports every file that is opened, made, renamed or removed to an audit hook. From one of these operations on,
nothing is written. Then the training goes on, and must give what an undisturbed one gives, bit by bit.
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
        paths = [str(path) for path in arguments if str(path).startswith(str(self.folder))]
        if paths and not isinstance(arguments[0], int):
            self.done.append(f"{event} {os.path.relpath(paths[-1], self.folder)}")
            if len(self.done) > self.first:
                self.fail(event)


DISK = Disk()
sys.addaudithook(DISK)  # The hook stays until Python ends; without a folder it does nothing.


@pytest.fixture(autouse=True)
def disk(monkeypatch):
    small.use(monkeypatch)
    yield
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
def whole(tmp_path_factory) -> tuple[dict, list[int]]:
    """The content of an undisturbed run, and the numbers of its first file operations and of its renamings."""
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        folder = tmp_path_factory.mktemp("whole")
        assert trained(folder, sys.maxsize, None) == "done"
        points = [n for n, operation in enumerate(DISK.done) if n < 14 or operation.startswith("os.rename")]
        return small.content(folder / "run"), points


def kill(event):
    raise Crash


def full(event):
    if event in ("open", "os.mkdir"):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("fail", "answer"), [(kill, "Crash"), (full, "No space left on device")])
def test_a_run_goes_on_after_any_file_operation_and_a_full_disk_loses_no_epoch(
    tmp_path, monkeypatch, whole, fail, answer, step
):
    evaluate, epochs = loop.evaluate, []
    monkeypatch.setattr(loop, "evaluate", lambda *arguments: (epochs.append(1), evaluate(*arguments))[1])
    for n in whole[1][::step]:
        folder = tmp_path / str(n)
        folder.mkdir()
        epochs.clear()
        ended = trained(folder, n, fail)
        assert answer in ended or (fail is full and ended == "done")
        run, failed = folder / "run", DISK.done[-1] + ended
        saves = not any(name in failed for name in ("last", "config", "lock")) and (run / "checkpoints").exists()
        if fail is full and saves:
            assert Run.open(run).newest_checkpoint().head["state"]["epoch"] == min(len(epochs), 2)
        if not run.exists():
            run = Path(train(small.config(folder), progress=False)["run"])
        elif Run.open(run).result() is None:
            train(TrainConfig(), resume=run, progress=False)
        differences = small.differences(small.content(run), whole[0])
        weights = ("best", "last.model", "last.optimizer", "metrics")  # the trace may be lost
        assert not [name for name in differences if run.name == "run" or name.startswith(weights)]
        assert [found.path for found in find_runs(folder)] == [run] and not list(run.rglob(".unfinished*"))
