"""A run on disk: everything about one training, written so that a crash at any instant leaves a folder that resumes.

runs/<name>/  config.json  metrics.csv  result.json  answers.npz  trace.npz
              checkpoints/{best,last,epoch-K}.safetensors  figures/
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import shlex
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import numpy as np

from ..atomic import remove_unfinished, replacing, write_text
from ..config import PRESETS, TrainConfig
from ..errors import GraphcapsError, expect
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
    def create(cls, config: TrainConfig, **about) -> Run:
        """Make the folder ``config.out / config.name`` and its config.json; raise ``GraphcapsError`` if it is there.

        Raise ``InputError`` where a setting can't work.
        """
        config.check()
        try:
            path = _make_folder(config)
        except FileExistsError:
            run = cls(config.out / config.name, config)
            resume = f", or go on with: graphcaps train --resume {run}"
            then = "Choose another --name" + resume * (run.path / "config.json").exists()
            raise GraphcapsError(f"name: expected a new run folder, {run} exists. {then}") from None
        except OSError as error:
            raise GraphcapsError(f"out: expected a folder to write to, got {config.out}: {error.strerror}") from None
        try:
            write_text(path / "config.json", config.to_json(**about))
        except BaseException:
            with contextlib.suppress(OSError):
                path.rmdir()  # without its settings it isn't a run
            raise
        return cls(path, config)

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
        except filelock.Timeout:
            raise Busy(f"run: expected {self} to be free, but a training is running in it") from None
        except OSError as error:
            raise GraphcapsError(f"run: expected to be able to write in {self}, got: {error.strerror}") from None
        for folder in (self.path, self.path / "checkpoints"):
            remove_unfinished(folder)
        return held

    def checkpoint(self, which: str) -> Path:
        """Path of the ``"best"`` (on validation images) or ``"last"`` weights, or of early ones, as ``"epoch-1"``."""
        return self.path / "checkpoints" / f"{which}.safetensors"

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
            result = json.loads(path.read_text(encoding="utf-8"))
            float(result["test_accuracy"])
            return result
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            then = f"Delete it and make it again with: graphcaps train --resume {self}"
            raise GraphcapsError(f"{path}: expected the result of a run as JSON, got: {error!r}. {then}") from None

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
            if rows and not {"epoch", "val_accuracy", "seconds"} <= rows[0].keys():
                raise ValueError("other columns")
            return rows
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, csv.Error) as error:
            raise GraphcapsError(f"{path}: expected numbers under their names, got: {error}. Delete it") from None

    def network(self, which: str = "best") -> ImageNetwork:
        """The network with these weights, on the CPU; raise ``GraphcapsError`` where there is no sound checkpoint."""
        from .checkpoint import read_model

        return read_model(self.checkpoint(which))

    def trace(self) -> RoutingTrace:
        """The recorded routing; raise ``GraphcapsError`` where there is none."""
        model = self.config.model
        if not PRESETS[model].routings:
            raise GraphcapsError(f"{self}: expected a network that routes, got {model}, which has no capsules")
        return RoutingTrace.load(self.path / "trace.npz")


def _make_folder(config: TrainConfig) -> Path:
    names = [config.name] if config.name else (f"{config.dataset_name}-{config.model}-{k}" for k in range(1, 10**6))
    for name in names:
        path = config.out / name
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if config.name or not path.parent.is_dir():
                raise
        else:
            return path
    raise FileExistsError


def find_runs(folder: str | Path = "runs") -> list[Run]:
    """All run folders in ``folder``, newest first (by what they wrote last); says which it can't read."""
    found = []
    for path in Path(folder).glob("*/config.json"):
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
    expect(isinstance(run, (str, Path, Run)), "run", "the path of a run folder, or a Run", repr(run)[:40])
    run = run if isinstance(run, Run) else Run.open(run)
    return run.network(which).to(device).eval()


def load_routing(run: Run, device: str = "cpu") -> Any:
    """The best network of a run, as ``load`` gives it, where it routes.

    Raises:
        GraphcapsError: as ``load``, and for a run of a CNN.
    """
    from ..models import routing_network

    return routing_network(load(run, device=device), str(run))
