"""Saving the state of a training in its run folder, and restoring it bit for bit."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import torch

from ...errors import GraphcapsError, check_json, expect, reading
from ...trace import RoutingTrace
from ..data import ImageSplits
from ..models import Limits
from ..recording import kept_epochs, record
from . import checkpoint
from .run_folder import Run
from .step import Learner


@dataclasses.dataclass
class State:
    """Progress of a training, which is stored in the header of every checkpoint."""

    epoch: int = 0  # finished epochs
    step: int = 0  # finished steps of the current epoch
    loss_sum: float = 0.0  # sum over the images of the current epoch
    correct: int = 0
    seen: int = 0
    seconds: float = 0.0  # training time, including the time before a resume
    epoch_seconds: float = 0.0
    iterations: int = 1  # of the routing in the last step, if they rise
    history: list[dict] = dataclasses.field(default_factory=list)  # a row of numbers for each finished epoch
    threads: int = 0  # number of threads on a CPU; 0 on other devices

    @property
    def best(self) -> dict:
        """The row of the best epoch on validation images: by accuracy, then loss, then the first."""
        return max(self.history, key=lambda row: (row["val_accuracy"], -row["val_loss"]))


class Saving:
    """Writes the state, weights, metrics and routing of a training into its run folder, and restores them."""

    def __init__(self, run: Run, splits: ImageSplits, learner: Learner):
        self.run, self.splits, self.learner = run, splits, learner
        self.state = State()
        self.limits = Limits()  # limits for doubtful answers, measured after the last finished epoch
        self.trace: RoutingTrace | None = None
        run.write_epochs()
        if splits.files is not None and not (run.path / "images.csv").exists():
            run.write_table("images.csv", splits.files)

    def save(self, which: str) -> None:
        """Write the "best" or the "last" checkpoint; only the last contains the optimizer."""
        network, config = self.learner.network, self.run.config
        tensors, before = checkpoint.model_tensors(network), None
        if which == "last":
            before = self.run.checkpoint("previous")
            tensors |= checkpoint.training_tensors(self.learner.optimizer, self.learner.device)
        head = {
            "preset": network.preset,
            "class_names": self.splits.class_names,
            "dataset": config.dataset,
            "settings": config.as_dict(),
            "state": dataclasses.asdict(self.state),
            "limits": Limits() if self.state.step else self.limits,
        }
        checkpoint.write(self.run.checkpoint(which), tensors, head, before)

    def save_rest(self) -> None:
        """Write all files that depend on the last checkpoint. If this is cut short by a crash, resuming repeats it.

        The trace contains the routing after each of ``kept_epochs``.
        """
        config, epoch = self.run.config, self.state.epoch
        if self.state.history:
            if self.state.best["epoch"] == epoch:
                self.save("best")
            self.run.write_table("metrics.csv", self.state.history)
        if self.learner.network.routes and (self.trace is None or epoch in kept_epochs(config.epochs)):
            about = {key: getattr(config, key) for key in ("model", "routing", "epochs", "seed")}
            about = {"dataset": config.dataset_name, **about, "run": self.run.path.name}
            network: Any = self.learner.network
            self.trace = record(self.trace, network, self.splits, epoch, self.learner.device, about)
            self.trace.save(self.run.path / "trace.npz")

    def restore(self, say: Callable[[str], None]) -> bool:
        """Restore everything from the newest checkpoint that isn't damaged. Return False if there is none yet."""
        newest = self.run.newest_checkpoint()
        if newest is None:
            say(f"there are no weights in {self.run}: training starts from the beginning, with the settings of the run")
            return False
        path, tensors, head, damage = newest
        if damage:
            say(f"{damage}Used instead: {path}")
        wanted, got = head.get("class_names"), self.splits.class_names
        expect(wanted == [*got], str(self.run), f"the classes of its training, {wanted}", f"{[*got]}")
        network, device = self.learner.network, self.learner.device
        checkpoint.restore_model(network, tensors, path)
        with reading("checkpoint", f"the state of a training in {path}", kind=GraphcapsError):
            epochs, state = (0, self.run.config.epochs), head["state"]
            check_json(state, epoch=int, step=int, threads=int, history=list)
            check_json(state, epoch=epochs, step=(0, 2**40), threads=(0, 2**20))
            for row in state["history"]:
                check_json(row, epoch=epochs, val_accuracy=(0, 1), val_loss=float)
            names = {field.name for field in dataclasses.fields(State)}  # 0.1.0 also stored the best epoch
            self.state = State(**{name: value for name, value in state.items() if name in names})
            self.limits = Limits(*head["limits"])
            checkpoint.restore_training(self.learner.optimizer, device, tensors)
        if damage:
            self.run.checkpoint("last").unlink()  # it must not become the previous one
        if device.type == "cpu" and self.state.threads and "OMP_NUM_THREADS" not in os.environ:
            # With another number of threads, sums would round differently.
            torch.set_num_threads(min(self.state.threads, os.cpu_count() or 1))
        say(f"going on after epoch {self.state.epoch} and {self.state.step} steps")
        if network.routes:
            try:
                self.trace = self.run.trace()
            except GraphcapsError as error:  # training can go on without the trace
                say(f"{error} (a new recording of the routing starts here)")
        return True
