"""The run folder: all files of a training, written so that the run can be resumed after any crash.

runs/<name>/  config.json  metrics.csv  result.json  answers.npz  trace.npz  images.csv (of your own images)
              checkpoints/{best,last,previous}.safetensors  figures/

The networks that come with graphcaps are read-only run folders: ``models/weights/<name>/``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import logging
import math
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ... import files
from ...errors import GraphcapsError, check_json, did_you_mean, read_json, reading
from ...names import short_name
from ...typed import Device, Size, typed
from ...viz.routing_trace import THRESHOLD, RoutingTrace
from ..config import FOLDER_SETTINGS, MACHINE_SETTINGS, TrainConfig

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)
PRETRAINED = Path(__file__).parents[1] / "models" / "weights"
NAME_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)  # errors of a rename to a path that exists


class Checkpoint(NamedTuple):
    """A checkpoint that was read, and the damage of a newer one, or ""."""

    path: Path
    tensors: dict[str, torch.Tensor]
    head: dict
    damage: str


class Run:
    """A run folder. Commands write into ``results``: the same folder, except for networks that come with graphcaps."""

    def __init__(self, path: Path, config: TrainConfig, results: Path | None = None):
        self.path, self.config, self.results = path, config, results or path

    def __str__(self) -> str:
        """The path, quoted for a shell, or the name of a network that comes with graphcaps."""
        return f"{self.path.name}, inside graphcaps" if self.pretrained else shlex.quote(str(self.path))

    @property
    def pretrained(self) -> bool:
        """Whether this is a network that comes with graphcaps."""
        return self.path.parent == PRETRAINED

    @classmethod
    def create(cls, config: TrainConfig, **about) -> Run:
        """Make a run folder, hidden until its config.json contains the settings and ``about``.

        Raises ``GraphcapsError`` if the name is taken or the folder can't be written.
        """
        numbered = (files.file_name(config.dataset_name, f"-{config.model}-{k}") for k in itertools.count(1))
        try:
            with contextlib.suppress(FileExistsError):  # a file of this name fails in the next lines
                config.out.mkdir(parents=True)
            files.remove_leftovers(config.out)
            with tempfile.TemporaryDirectory(prefix=f"{files.unfinished()}-", dir=config.out) as hidden:
                path = Path(hidden, "run")  # unlike the hidden folder itself, it gets the usual permissions
                files.write_text(path / "config.json", config.to_json(**about))
                for name in [config.name] if config.name else numbered:
                    try:
                        return cls(path.rename(config.out / name), config)
                    except OSError as error:
                        if error.errno not in NAME_TAKEN:
                            raise
                raise cls(config.out / config.name, config)._taken()
        except OSError as error:
            raise GraphcapsError(f"out: expected a folder to write to, got {config.out}: {error.strerror}") from None

    @classmethod
    def check_name(cls, config: TrainConfig) -> None:
        """Raise ``GraphcapsError`` if the name is taken: before images are loaded, which may take minutes."""
        path = config.out / config.name
        if config.name and os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or any(path.iterdir())):
            raise cls(path, config)._taken()

    def _taken(self) -> GraphcapsError:
        resume = f", or go on with: graphcaps train --resume {self}" * (self.path / "config.json").exists()
        return GraphcapsError(f"name: expected a new run folder, {self} exists. Choose another --name{resume}")

    @classmethod
    def open(cls, path: str | Path, out: Path = Path("runs")) -> Run:
        """Open a run folder by its path or its name in ``out``, or a network of graphcaps by its name: ``"mnist"``.

        Results for a network of graphcaps are written into ``out``. Raises ``GraphcapsError`` if there is no such run.
        """
        path, results = Path(path), None
        if not (path / "config.json").exists():  # a folder of another kind doesn't hide a run of the same name
            if str(path) in pretrained_names():
                path, results = PRETRAINED / path, out / f"pretrained-{path}"
            elif (out / path / "config.json").exists():
                path = out / path
        try:
            text = files.check_file(path / "config.json").read_text(encoding="utf-8")
        except (OSError, ValueError):
            names = [*pretrained_names(), *(config.parent.name for config in out.glob("*/config.json"))]
            fix = f"List them with: graphcaps runs. {' and '.join(pretrained_names())} come with graphcaps"
            near = did_you_mean(path.name, names)
            raise GraphcapsError(f"run: expected a run folder with a config.json, got {path}. {near}{fix}") from None
        files.check_symlinks(results or path)
        place = {"out": path.absolute().parent, "name": path.absolute().name}  # wherever the folder was moved
        own_images = (path / "images.csv").exists()  # ``of_images`` finds this file by the place
        config = TrainConfig.from_json(text, str(path / "config.json"), **place if own_images else {})
        return cls(path, config, results)

    def write_epochs(self) -> None:
        """If the run was extended, write its epochs into config.json, and remove the result of fewer epochs."""
        path = self.path / "config.json"
        stored = read_json(path.read_text(encoding="utf-8"), settings=dict)
        if stored["settings"].get("epochs") != self.config.epochs:
            stored["settings"]["epochs"] = self.config.epochs
            (self.path / "result.json").unlink(missing_ok=True)
            files.write_text(path, json.dumps(stored, indent=2) + "\n")

    def lock(self) -> contextlib.AbstractContextManager:
        """Lock the folder, so that only one process writes to it, and remove temporary files of killed processes."""
        try:
            held = open(self.path / ".lock", "a")  # noqa: SIM115 (the caller closes it)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GraphcapsError(f"run: expected {self} to be free, but a training is running in it") from None
        except OSError as error:
            raise GraphcapsError(f"run: expected to be able to write in {self}, got: {error.strerror}") from None
        leftovers = self.path.glob(f"{files.UNFINISHED}*"), self.path.glob(f"checkpoints/{files.UNFINISHED}*")
        for leftover in itertools.chain(*leftovers):
            if leftover.is_file():
                leftover.unlink(missing_ok=True)
        return held

    def checkpoint(self, which: str) -> Path:
        """The path of the weights ``which``: ``"best"`` (on validation images), ``"last"`` or ``"previous"``."""
        return self.path / "checkpoints" / f"{which}.safetensors"

    def newest_checkpoint(self) -> Checkpoint | None:
        """Read the last checkpoint, or the previous one if the last is damaged; None if there is none yet.

        Raises ``GraphcapsError`` if all are damaged or ``check_trained`` finds that config.json was changed.
        """
        from . import checkpoint

        damage = ""
        for path in filter(Path.exists, map(self.checkpoint, ("last", "previous"))):
            try:
                tensors, head = checkpoint.read(path)
            except GraphcapsError as error:
                damage += f"{error}. "
            else:
                self.check_trained(head)
                return Checkpoint(path, tensors, head, damage)
        if damage:
            raise GraphcapsError(f"{damage}No other is left: train another run")
        return None

    def check_trained(self, head: dict) -> None:
        """Raise ``GraphcapsError`` if settings of a checkpoint, except folders and device, differ from config.json.

        config.json may have more epochs, because a run can be extended.
        """
        now, trained = self.config.as_dict(), head.get("settings", {})
        for key in trained.keys() & now.keys() - {*MACHINE_SETTINGS, *FOLDER_SETTINGS}:
            wanted, got = (short_name(v[key]) if key == "dataset" else v[key] for v in (trained, now))
            extended = key == "epochs" and trained[key] in range(1, now[key])
            if wanted != got and not extended:
                wanted = f"{key}: expected {wanted!r}, as in its checkpoint, got {got!r}"
                raise GraphcapsError(f"{self.path / 'config.json'}: {wanted}. Restore it, or train another run")

    def write_table(self, name: str, rows: Sequence) -> None:
        """Write metrics.csv, one row per finished epoch; or images.csv, one row per image of your own."""
        import pandas

        text = pandas.DataFrame(rows).to_csv(index=False, float_format="%.6g", lineterminator="\n")
        files.write_text(self.path / name, text)

    def result(self) -> dict | None:
        """Read result.json; None if the run isn't finished."""
        path = self.path / "result.json"
        fix = f"Delete it, then write it again with: graphcaps train --resume {self}"
        if not path.exists():
            return None
        with reading(path, "the result of a run as JSON", fix, GraphcapsError):
            return read_json(files.check_file(path).read_text(encoding="utf-8"), test_accuracy=(0, 1))

    def write_result(self, result: dict, predicted: torch.Tensor, labels: torch.Tensor) -> None:
        """Write answers.npz, the answers of the best weights to all test images, and then result.json."""
        with files.replacing(self.path / "answers.npz") as temporary:
            np.savez_compressed(temporary, predicted=predicted.numpy(), labels=labels.numpy())
        files.write_text(self.path / "result.json", json.dumps(result, indent=2) + "\n")

    def metrics(self) -> list[dict[str, float]]:
        """Read the rows of metrics.csv: one per finished epoch."""
        import pandas

        path = self.path / "metrics.csv"
        if not path.exists():
            return []
        with reading(path, "columns of numbers", "Delete the file", GraphcapsError):
            rows = pandas.read_csv(files.check_file(path), dtype=float).to_dict("records")
            for row in rows:
                check_json(row, epoch=(1, math.inf), val_accuracy=(0, 1), seconds=(0, math.inf))
        return rows

    @property
    def threshold(self) -> float:
        """The length above which the network names a class: that of result.json, or 0.5."""
        return float((self.result() or {}).get("threshold", THRESHOLD))

    def check_routes(self) -> None:
        """Raise ``GraphcapsError`` if the network has no capsules."""
        if not self.config.preset.routings:
            got = f"{self.config.model}, which has no capsules"
            raise GraphcapsError(f"{self}: expected a network that routes, got {got}")

    def trace(self) -> RoutingTrace:
        """Read the recorded routing. Raise ``GraphcapsError`` if there is none."""
        self.check_routes()
        return RoutingTrace.load(self.path / "trace.npz")


def find_runs(folder: str | Path = "runs") -> list[Run]:
    """All run folders in ``folder``, the most recently written first. Logs a warning for each unreadable one."""
    runs = []
    for path in Path(folder).glob("*/config.json"):
        try:
            runs.append(Run.open(path.parent))
        except GraphcapsError as error:
            log.warning("left out: %s", error)

    def written(run: Run) -> float:
        paths = [run.path / "config.json", run.checkpoint("last"), run.path / "result.json"]
        return max(path.stat().st_mtime for path in paths if path.exists())

    return sorted(runs, key=written, reverse=True)


def pretrained_names() -> list[str]:
    """Names of the networks that come with graphcaps."""
    return sorted(path.name for path in PRETRAINED.iterdir())


@typed
def load(
    run: str | Path | Run,
    which: Literal["best", "last", "previous"] = "best",
    device: Device = "cpu",
    num_classes: Size | None = None,
) -> Any:
    """Load a trained network in eval mode.

    Args:
        run: a run folder or a `Run`; a weights file, such as ``runs/NAME/checkpoints/last.safetensors``; or the name
            of a network that comes with graphcaps: ``"mnist"``, or ``"multimnist"`` for two overlapping digits in
            36 x 36 pixels. ``"mnist"`` has no decoder, so the ``reconstruction`` in its output is None.
        which: the weights to load from a run: ``"best"`` (on validation images) or ``"last"``.
        device: a torch device.
        num_classes: to train the network for other classes, their number. The last layer is then a new one.

    Returns:
        a ``CapsNet``, ``MatrixCapsNet`` or ``CNN`` on ``device``. Its ``class_names`` has one name per class, and its
        ``limits`` determine which answers are doubtful.

    Raises:
        GraphcapsError: there is no such run, or its checkpoint is missing or damaged.

    >>> import torch
    >>> net = load("mnist")
    >>> net.image_shape, net.class_names[4], net(torch.zeros(2, 1, 28, 28)).lengths.shape
    ((1, 28, 28), '4', torch.Size([2, 10]))
    """
    import torch

    from ..models import for_other_classes
    from .checkpoint import read_model
    from .hardware import usual_torch

    with usual_torch():
        if not isinstance(run, Run) and Path(run).suffix == ".safetensors":
            model, _ = read_model(Path(run))
        else:
            run = run if isinstance(run, Run) else Run.open(run)
            model, head = read_model(run.checkpoint(which))
            run.check_trained(head)
        if num_classes is not None:
            model = for_other_classes(model, num_classes)
    return model.to(device).to(memory_format=torch.channels_last).eval()  # the memory format used in training
