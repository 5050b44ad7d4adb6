"""A run on disk: everything about one training, written so that a crash at any instant leaves a folder that resumes.

runs/<name>/  config.json  metrics.csv  result.json  trace.npz  checkpoints/{best,last}.safetensors  figures/
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import filelock

from .config import TrainConfig
from .errors import GraphcapsError
from .files import write_text
from .trace import RoutingTrace


class Run:
    """One run folder; ``Run.create`` makes it, ``Run.open`` finds it."""

    def __init__(self, path: Path, config: TrainConfig):
        self.path, self.config = path, config

    @classmethod
    def create(cls, config: TrainConfig, **about) -> Run:
        """Make the folder ``config.out / config.name`` and its config.json; raise ``GraphcapsError`` if it is there."""
        config.check()
        try:
            path = _make_folder(config)
        except FileExistsError:
            then = f"Choose another --name, or go on with: graphcaps train --resume {config.out / config.name}"
            raise GraphcapsError(
                f"name: expected a new run folder, {config.out / config.name} exists. {then}"
            ) from None
        except OSError as error:
            raise GraphcapsError(f"out: expected a folder to write to, got {config.out}: {error.strerror}") from None
        write_text(path / "config.json", config.to_json(**about))
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

    def lock(self) -> filelock.BaseFileLock:
        """Hold the folder for writing; raise ``GraphcapsError`` while another process does."""
        lock = filelock.FileLock(self.path / ".lock")
        try:
            return lock.acquire(timeout=0).lock
        except filelock.Timeout:
            raise GraphcapsError(f"run: expected {self.path} to be free, but a training is running in it") from None

    def checkpoint(self, which: str) -> Path:
        """Path of the ``"best"`` (on validation images) or ``"last"`` weights."""
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
        try:
            return json.loads((self.path / "result.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise GraphcapsError(f"{self.path / 'result.json'}: expected JSON, got: {error}") from None

    def metrics(self) -> list[dict[str, str]]:
        """Rows of metrics.csv; none before the first epoch ends."""
        try:
            with open(self.path / "metrics.csv", encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        except FileNotFoundError:
            return []

    def trace(self) -> RoutingTrace:
        """The recorded routing; raise ``GraphcapsError`` where there is none."""
        return RoutingTrace.load(self.path / "trace.npz")


def _make_folder(config: TrainConfig) -> Path:
    names = [config.name] if config.name else (f"{config.dataset}-{config.model}-{k}" for k in range(1, 10**6))
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
    """All run folders in ``folder``, newest first (by their last written checkpoint or config)."""
    found = [Run.open(path.parent) for path in Path(folder).glob("*/config.json")]

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


def load(run: str | Path, which: str = "best", device: str = "cpu"):
    """Load the network of a run in eval mode.

    Args:
        run: path of the run folder.
        which: ``"best"`` (on validation images) or ``"last"``.

    Returns:
        ``CapsNet`` on ``device``, with ``class_names``, one per parent capsule.

    Raises:
        GraphcapsError: not a run folder, or no sound checkpoint in it.
    """
    from .checkpoint import read_model

    return read_model(Run.open(run).checkpoint(which)).to(device).eval()
