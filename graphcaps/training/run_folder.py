"""A run on disk: everything about one training, written so that a crash at any instant leaves a folder that resumes.

runs/<name>/  config.json  metrics.csv  result.json  answers.npz  trace.npz
              checkpoints/{best,last,previous,epoch-K}.safetensors  figures/
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import itertools
import json
import logging
import math
import os
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import numpy as np

from ..atomic import UNFINISHED, made, permitted, remove_unfinished, replacing, write_text
from ..config import PRESETS, TrainConfig
from ..errors import GraphcapsError, check_json, expect, read_json
from ..trace import RoutingTrace

if TYPE_CHECKING:
    import torch

    from ..models import ImageNetwork


log = logging.getLogger(__name__)


class Busy(GraphcapsError):
    """Another process is training in the run folder."""


class Run:
    """One run folder; ``Run.create`` makes it, ``Run.open`` finds it."""

    def __init__(self, path: Path, config: TrainConfig):
        self.path, self.config = path, config

    def __str__(self) -> str:
        """The folder as a shell reads it."""
        return shlex.quote(str(self.path))

    @classmethod
    def create(cls, config: TrainConfig, names: Iterable[str] = (), **about) -> Run:
        """Make the folder ``config.out / config.name`` with its config.json in it, in one step.

        It is made beside its place, under a hidden name, and then renamed.

        Args:
            config: the settings.
            names: the first of these that is free is taken instead of ``config.name``.
            about: what else goes into config.json.

        Raises:
            InputError: a setting can't work.
            GraphcapsError: the name is taken, or the folder can't be written.
        """
        config.check()
        cls.check_place(config)
        numbered = (f"{config.dataset_name}-{config.model}-{k}" for k in itertools.count(1))
        try:
            with made(config.out):
                hidden = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=config.out))
                try:
                    write_text(hidden / "config.json", config.to_json(**about))
                    hidden.chmod(permitted(0o777))  # mkdtemp's are for their owner alone
                    for name in names or ([config.name] if config.name else numbered):
                        with contextlib.suppress(FileExistsError, NotADirectoryError):
                            return cls(_renamed(hidden, config.out / name), config)
                    raise cls(config.out / config.name, config)._taken()
                finally:
                    shutil.rmtree(hidden, ignore_errors=True)
        except OSError as error:
            raise GraphcapsError(f"out: expected a folder to write to, got {config.out}: {error.strerror}") from None

    @classmethod
    def check_place(cls, config: TrainConfig) -> None:
        """Raise ``GraphcapsError`` where the name is taken or the folder can't be written; nothing is made."""
        run = cls(config.out / config.name, config)
        if config.name and os.path.lexists(run.path) and not _is_empty(run.path):
            raise run._taken()
        above = next(path for path in (config.out, *config.out.absolute().parents) if os.path.lexists(path))
        if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
            why = os.strerror(errno.EACCES if above.is_dir() else errno.ENOTDIR)
            raise GraphcapsError(f"out: expected a folder to write to, got {config.out}: {why}")

    def _taken(self) -> GraphcapsError:
        resume = f", or go on with: graphcaps train --resume {self}" * (self.path / "config.json").exists()
        return GraphcapsError(f"name: expected a new run folder, {self} exists. Choose another --name{resume}")

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Read a run folder; raise ``GraphcapsError`` where it isn't one."""
        path = Path(path)
        try:
            text = (path / "config.json").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise GraphcapsError(
                f"run: expected a run folder with a config.json, got {path}. List them with: graphcaps runs"
            ) from None
        return cls(path, TrainConfig.from_json(text, str(path / "config.json")))

    def lock(self) -> contextlib.AbstractContextManager:
        """Hold the folder for writing, rid of what killed writers left; raise ``Busy`` while another does."""
        try:
            held = filelock.FileLock(self.path / ".lock").acquire(timeout=0)
            self.held = os.stat(self.path)
        except filelock.Timeout:
            raise Busy(f"run: expected {self} to be free, but a training is running in it") from None
        except OSError as error:
            raise GraphcapsError(f"run: expected to be able to write in {self}, got: {error.strerror}") from None
        for folder in (self.path, self.path / "checkpoints"):
            remove_unfinished(folder)
        return held

    def is_there(self) -> bool:
        """Whether the folder is still the one that was locked, with its settings in it."""
        try:
            return os.path.samestat(os.stat(self.path), self.held) and (self.path / "config.json").exists()
        except OSError:
            return False

    def checkpoint(self, which: str) -> Path:
        """Path of the ``"best"`` (on validation images), ``"last"``, ``"previous"`` or early ``"epoch-1"``."""
        return self.path / "checkpoints" / f"{which}.safetensors"

    def newest_checkpoint(self) -> tuple[Path | None, str]:
        """The newest of the last two checkpoints that is sound, None before there is one; what is wrong with others.

        Raises:
            GraphcapsError: none of them is sound, or config.json isn't what the weights were trained in.
        """
        from . import checkpoint

        damage = ""
        for path in filter(Path.exists, map(self.checkpoint, ("last", "previous"))):
            try:
                head = checkpoint.read(path)[1]
            except GraphcapsError as error:
                damage += f"{error}. "
            else:
                self.check_trained(head)
                return path, damage
        if damage:
            raise GraphcapsError(f"{damage}No other is left: train another run")
        return None, ""

    def check_trained(self, head: dict) -> None:
        """Raise ``GraphcapsError`` where config.json isn't what the weights with this head were trained in."""
        self.config.check_trained(head.get("settings", {}), str(self.path / "config.json"))

    def write_metrics(self, history: list[dict]) -> None:
        """Write metrics.csv: one row per epoch done."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(history[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()} for row in history)
        write_text(self.path / "metrics.csv", text.getvalue())

    def write_result(self, result: dict) -> None:
        """Write result.json: what the finished run reached."""
        write_text(self.path / "result.json", json.dumps(result, indent=2) + "\n")

    def result(self) -> dict | None:
        """What the run reached, or None while it isn't finished."""
        path = self.path / "result.json"
        try:
            return read_json(path.read_text(encoding="utf-8"), test_accuracy=(0, 1))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            then = f"Delete it and make it again with: graphcaps train --resume {self}"
            raise GraphcapsError(f"{path}: expected the result of a run as JSON, got: {error}. {then}") from None

    def write_answers(self, predicted: torch.Tensor, labels: torch.Tensor) -> None:
        """Write answers.npz: the best network's answers to all test images, in their order, beside the labels."""
        with replacing(self.path / "answers.npz") as temporary:
            np.savez_compressed(temporary, predicted=predicted.numpy(), labels=labels.numpy())

    def answers(self) -> tuple[np.ndarray, np.ndarray]:
        """predicted and labels, as ``Evaluation`` has them; raise ``GraphcapsError`` where they can't be read."""
        path = self.path / "answers.npz"
        try:
            with np.load(path, allow_pickle=False) as stored:
                predicted, labels = stored["predicted"], stored["labels"]
            same = (predicted.shape, predicted.dtype) == (labels.shape, labels.dtype)
            if not same or predicted.dtype not in (np.int64, bool):
                raise ValueError(f"{predicted.dtype} {predicted.shape} beside {labels.dtype} {labels.shape}")
            return predicted, labels
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            wanted = "a finished run's answers to the test images"
            then = f"Delete result.json there and make both again with: graphcaps train --resume {self}"
            raise GraphcapsError(f"{path}: expected {wanted}, got: {error}. {then}") from None

    def metrics(self) -> list[dict[str, float]]:
        """Rows of metrics.csv; none before the first epoch ends."""
        path = self.path / "metrics.csv"
        try:
            with open(path, encoding="utf-8", newline="") as file:
                rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
            for row in rows:
                check_json(row, epoch=(1, math.inf), val_accuracy=(0, 1), seconds=(0, math.inf))
            return rows
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, csv.Error) as error:
            raise GraphcapsError(f"{path}: expected numbers under their names, got: {error}. Delete it") from None

    def network(self, which: str = "best") -> ImageNetwork:
        """The network with these weights, on the CPU; raise ``GraphcapsError`` where there is no sound checkpoint."""
        from .checkpoint import read, read_model

        self.check_trained(read(self.checkpoint(which))[1])
        return read_model(self.checkpoint(which))

    def trace(self) -> RoutingTrace:
        """The recorded routing; raise ``GraphcapsError`` where there is none."""
        model = self.config.model
        if not PRESETS[model].routings:
            raise GraphcapsError(f"{self}: expected a network that routes, got {model}, which has no capsules")
        return RoutingTrace.load(self.path / "trace.npz")


def _renamed(hidden: Path, path: Path) -> Path:
    """Give a folder another name; raise ``FileExistsError`` where that is taken, but by an empty folder."""
    try:
        return hidden.rename(path)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError from None
        raise


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())


def find_runs(folder: str | Path = "runs") -> list[Run]:
    """All run folders in ``folder``, newest first (by what they wrote last); says which it can't read."""
    found = []
    for path in Path(folder).glob("*/config.json"):
        if path.parent.name.startswith(UNFINISHED):  # a process that was killed was making it
            continue
        try:
            found.append(Run.open(path.parent))
        except GraphcapsError as error:
            log.warning("left out: %s", error)

    def touched(run: Run) -> float:
        files = [run.path / "config.json", run.checkpoint("last"), run.path / "result.json"]
        return max(file.stat().st_mtime for file in files if file.exists())

    return sorted(found, key=touched, reverse=True)


def newest_run(folder: str | Path = "runs") -> Run:
    """The run last written to; raise ``GraphcapsError`` where there is none."""
    runs = find_runs(folder)
    if not runs:
        then = "Train one: graphcaps train --dataset digits"
        raise GraphcapsError(f"run: expected a run folder in {folder}, got none. {then}")
    return runs[0]


def named_or_newest(run: Path | None, folder: Path) -> Run:
    """The run in the folder ``run``, else the one in ``folder`` that was last written to; as commands are asked."""
    return Run.open(run) if run is not None else newest_run(folder)


def load(run: str | Path | Run, which: str = "best", device: str = "cpu") -> Any:
    """Load the network of a run in eval mode; ``CapsNet.from_pretrained`` has those that come with graphcaps.

    Args:
        run: path of the run folder, or the run.
        which: ``"best"`` (on validation images) or ``"last"``.

    Returns:
        ``CapsNet``, ``MatrixCapsNet`` or ``CNN`` on ``device``, with ``class_names``, one per class, and ``limits``.

    Raises:
        GraphcapsError: not a run folder, or no sound checkpoint in it.
    """
    import torch

    expect(isinstance(run, (str, Path, Run)), "run", "the path of a run folder, or a Run", repr(run)[:40])
    run = run if isinstance(run, Run) else Run.open(run)
    return run.network(which).to(device).to(memory_format=torch.channels_last).eval()  # as it was trained


def load_routing(run: Run, device: str = "cpu") -> Any:
    """The best network of a run, as ``load`` gives it, where it routes.

    Raises:
        GraphcapsError: as ``load``, and for a run of a CNN.
    """
    from ..models import routing_network

    return routing_network(load(run, device=device), str(run))
