"""The training loop.

    for each epoch: for each batch: forward, loss, backward, step
                    validate, record the routing, save

All random numbers of an epoch depend only on (seed, epoch). So a run that is stopped at any step and resumed ends with
bit-identical weights, on a CPU with the same number of threads. The best epoch is chosen on validation images. The test
images are used once, at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..analysis.accuracy import EVALUATION_BATCH, evaluate
from ..config import TrainConfig
from ..data import Batches, ImageSplits, load_images
from ..errors import GraphcapsError
from ..models import ImageNetwork, Limits, from_config, routing_network
from ..models.answers import is_correct, longest
from ..models.evidence import limits_of
from ..progress import Progress, bar
from ..trace import RoutingTrace
from ..trace.recording import kept_epochs, record, with_history
from . import checkpoint
from .hardware import accelerator as make_accelerator
from .hardware import made_with
from .report import engine_of, introduction, result
from .run_folder import Checkpoint, Run, load
from .signals import StopSignals
from .step import one_cycle, prepare, training_step

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch.utils.tensorboard import SummaryWriter

STEPS_BETWEEN = 16  # steps between two checks whether any process must stop, for several processes on GPUs


class Interrupted(GraphcapsError):
    """The signal ``signum`` stopped the training; ``resume`` continues from the last checkpoint."""

    def __init__(self, run: Run, signum: int, how: str = "stopped and saved"):
        super().__init__(f"{how}. Go on with: graphcaps train --resume {run}")
        self.signum = signum


@dataclasses.dataclass
class State:
    """Progress of a training; every checkpoint's header holds it."""

    epoch: int = 0  # finished epochs
    step: int = 0  # finished steps of the current epoch
    loss_sum: float = 0.0  # sum over this process's images of the current epoch; in a checkpoint, over all processes
    correct: int = 0
    seen: int = 0
    seconds: float = 0.0  # training time, including the time before a resume
    epoch_seconds: float = 0.0
    best_epoch: int = 0
    best_val_accuracy: float = -1.0
    best_val_loss: float = math.inf
    history: list[dict] = dataclasses.field(default_factory=list)
    threads: int = 0  # number of threads on a CPU; 0 on other devices


def fit(config: TrainConfig, run: Run | None, progress: bool) -> dict:
    """Train with settings that were already checked, and return the run's result.json. Users call ``train``.

    If ``run`` is None, a new run folder is made.
    """
    accelerator = make_accelerator(config.device, config.precision, config.deterministic)
    resumed, main = run is not None, accelerator.is_main_process
    if run is not None:
        run.newest_checkpoint()  # check its settings before they are used to load images and build the network
    splits = load_images(config.dataset, config.data, **config.of_images).for_augment(config.augment)
    if config.of_images and run is None:  # store the size, so that a resume keeps it even if the folder's images change
        channels, *sides = splits.image_shape
        config = dataclasses.replace(config, size=max(sides), channels=3 if channels == 3 else 1)
    if config.train_images is not None:
        splits = splits.with_train(config.train_images)
    batches = Batches(
        splits.train,
        config.batch_size,
        device=accelerator.device,
        seed=config.seed,
        augment=config.augment,
        rank=accelerator.process_index,
        world=accelerator.num_processes,
        balance=config.balance,
    )
    len(batches)  # check the batch size before the run folder is made
    torch.manual_seed(config.seed)
    network = from_config(config, splits)
    engine_of(config, network, torch.device("cpu"))  # check the engine before the run folder is made
    try:
        with StopSignals() as stop, contextlib.ExitStack() as held:
            if run is None and main:
                run = Run.create(config, made_with=made_with(accelerator))
            if accelerator.num_processes > 1:
                from accelerate.utils import broadcast_object_list

                run = broadcast_object_list([run])[0]
            assert run is not None, "the main process has made it"
            if main:
                held.enter_context(run.lock())
            return Trainer(config, run, network, splits, batches, accelerator, progress and main).fit(resumed, stop)
    except KeyboardInterrupt as error:
        if run is None:
            raise
        how = "stopped at once; what was saved before is sound"
        raise Interrupted(run, getattr(error, "signum", signal.SIGINT), how) from None
    except RuntimeError as error:
        # If the connection to another process has closed, NCCL raises DistError, but gloo a plain RuntimeError.
        lost = isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
        if accelerator.num_processes == 1 or not lost:
            raise
        rank, world = accelerator.process_index, accelerator.num_processes
        resume = f"Go on with: graphcaps train --resume {run}" if run else "Nothing was trained"
        raise GraphcapsError(
            f"process {rank} of {world} lost its connection to another, which has ended or can't be reached; "
            f"torchrun's own messages name it. {resume}"
        ) from error


class Trainer:
    """One training: the network, its data and its state; ``fit`` runs it to the end."""

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        network: ImageNetwork,
        splits: ImageSplits,
        batches: Batches,
        accelerator: Accelerator,
        show: bool,
    ):
        self.config, self.run, self.splits, self.accelerator = config, run, splits, accelerator
        self.device, self.main = accelerator.device, accelerator.is_main_process
        self.writer = _tensorboard(run.path) if config.tensorboard and self.main else None
        self.sum_dtype = torch.float64 if self.device.type != "mps" else torch.float32
        self.learner = prepare(network, config.peak_rate, accelerator)
        self.network, self.optimizer = self.learner.network, self.learner.optimizer
        self.batches, self.total_steps = batches, config.epochs * len(batches)
        self.progress = Progress("", show, sys.stdout)
        self.state = State()
        self.limits = Limits()  # limits measured after the last epoch
        self.keep_last = True  # whether to keep the last checkpoint as the previous one: False if it is damaged
        self.trace: RoutingTrace | None = None

    def fit(self, resume: bool, stop: StopSignals) -> dict:
        """Train to the last epoch, save a checkpoint after each, then test the best network once."""
        state = self.state
        with self.progress:
            self.progress.say(introduction(self.config, self.run, self.network, self.splits, self.accelerator))
            saved, damage = self.run.newest_checkpoint() if resume else (None, "")
            if saved is not None:
                state = self._restore(saved, damage)
            elif resume:
                self.progress.say(f"no weights are in {self.run}: it starts again, in its settings")
            state.threads = torch.get_num_threads() if self.device.type == "cpu" else 0
            if state.step == 0 and self.main:
                if saved is None:
                    self._save("last")
                self._save_rest()
            self.started = time.perf_counter() - state.seconds
            while state.epoch < self.config.epochs:
                self._train_epoch(stop)
                self._end_epoch()
                stopped = self._any_signal(stop.signum)
                if stopped and state.epoch < self.config.epochs:
                    raise Interrupted(self.run, stopped)
        stop.end()  # stopping at once loses nothing from here on
        return self._finish()

    def _train_epoch(self, stop: StopSignals) -> None:
        state, steps = self.state, len(self.batches)
        began = time.perf_counter() - state.epoch_seconds
        loss_sum = torch.full((), state.loss_sum, dtype=self.sum_dtype, device=self.device)
        correct = torch.full((), state.correct, dtype=torch.int64, device=self.device)
        self.learner.model.train()
        for images, labels in self.batches.epoch(state.epoch, start=state.step):
            done = state.epoch * steps + state.step
            rate = one_cycle(done, self.total_steps, self.config.peak_rate)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            weight = self.batches.weight(state.step)
            loss, output = training_step(self.learner, images, labels, done / self.total_steps, weight)
            loss_sum += loss * len(labels)
            correct += is_correct(longest(output.scores, self.network.objects), labels).sum()
            state.step += 1
            state.seen += len(labels)
            stopped = self._any_signal(stop.signum, state.step)
            leaving = state.step == steps or bool(stopped)
            if self.progress.due() or leaving:
                state.loss_sum, state.correct = float(loss_sum), int(correct)
                state.epoch_seconds = time.perf_counter() - began
                self._check_finite(rate, weights=leaving)
                self._show_step()
            if stopped:
                state.seconds = time.perf_counter() - self.started
                self._sum_over_processes()
                if self.main:
                    self._save("last")
                raise Interrupted(self.run, stopped)

    def _show_step(self) -> None:
        state, steps = self.state, len(self.batches)
        speed = min(state.step * self.config.batch_size, self.batches.num_images) / state.epoch_seconds
        self.progress.set(
            (state.epoch * steps + state.step) / self.total_steps,
            f"epoch {state.epoch + 1}/{self.config.epochs}, step {state.step}/{steps}",
            f"loss {state.loss_sum / state.seen:.4f}  accuracy {state.correct / state.seen:.2%}  {speed:,.0f} img/s",
        )

    def _any_signal(self, signum: int, step: int = 0) -> int:
        """The signal that any of the processes has received, or 0. All processes must stop at the same step.

        On GPUs, communication waits for the device, so most steps skip the check.
        """
        if self.accelerator.num_processes == 1:
            return signum
        if self.device.type != "cpu" and step % STEPS_BETWEEN:
            return 0
        return int(self.accelerator.gather(torch.tensor([signum], device=self.device)).max())

    def _sum_over_processes(self) -> None:
        """Replace this process's sums of the epoch by the sums over all processes, for reports and checkpoints."""
        state = self.state
        sums = torch.tensor([state.loss_sum, state.correct, state.seen], dtype=self.sum_dtype, device=self.device)
        state.loss_sum, correct, seen = self.accelerator.reduce(sums, "sum").tolist()
        state.correct, state.seen = int(correct), int(seen)

    def _end_epoch(self) -> None:
        state, config = self.state, self.config
        self._sum_over_processes()
        val = evaluate(self.network, Batches(self.splits.val, EVALUATION_BATCH, device=self.device))
        state.epoch += 1
        state.seconds = time.perf_counter() - self.started
        row = {
            "epoch": state.epoch,
            "train_loss": state.loss_sum / state.seen,
            "train_accuracy": state.correct / state.seen,
            "val_loss": val.loss,
            "val_accuracy": val.accuracy,
            "images_per_second": state.seen / state.epoch_seconds,
            "seconds": state.seconds,
        }
        state.history.append(row)
        best = (val.accuracy, -val.loss) > (state.best_val_accuracy, -state.best_val_loss)
        if best:
            state.best_epoch, state.best_val_accuracy, state.best_val_loss = state.epoch, val.accuracy, val.loss
        state.step, state.loss_sum, state.correct, state.seen, state.epoch_seconds = 0, 0.0, 0, 0, 0.0
        self.limits = limits_of(val.evidence, val.right)
        if self.main:
            self._save("last")
            self._save_rest()
        if self.writer:
            for key, value in row.items():
                self.writer.add_scalar(key, value, state.epoch)
            self.writer.flush()
        left = self.progress.time_left()
        self.progress.say(
            f"epoch {state.epoch}/{config.epochs}  loss {row['train_loss']:.4f}  train {row['train_accuracy']:.2%}  "
            f"validation {val.accuracy:.2%}{' (best)' if best else ''}  {row['images_per_second']:,.0f} img/s"
            f"{f'  {left}' if left else ''}"
        )

    def _finish(self) -> dict:
        if self.writer:
            self.writer.close()
        self.accelerator.wait_for_everyone()
        best = load(self.run, device=str(self.device))
        with bar("test images", self.progress.show) as on_progress:
            test = evaluate(best, Batches(self.splits.test, EVALUATION_BATCH, device=self.device), on_progress)
        reached = result(self.config, best, self.state, test, self.accelerator)
        if self.main:
            self.run.write_answers(test.predicted, test.labels)
            self.run.write_result(reached)
        return {"run": str(self.run.path), **reached}

    def _save(self, which: str) -> None:
        tensors, before = checkpoint.model_tensors(self.network), None
        if which == "last":
            before = self.run.checkpoint("previous") if self.keep_last else None
            self.keep_last = True
            tensors |= checkpoint.training_tensors(self.optimizer, self.device)
        head = {
            "preset": self.network.preset,
            "class_names": self.splits.class_names,
            "dataset": self.config.dataset,
            "settings": self.config.as_dict(),
            "state": dataclasses.asdict(self.state),
            "limits": Limits() if self.state.step else self.limits,
        }
        checkpoint.write(self.run.checkpoint(which), tensors, head, before)

    def _save_rest(self) -> None:
        """Write all files that depend on the last checkpoint. After a crash in between, a resume writes them again."""
        state = self.state
        if state.best_epoch == state.epoch > 0:
            self._save("best")
        if state.history:
            self.run.write_metrics(state.history)
        self._save_routing()

    def _save_routing(self) -> None:
        """Write the trace, with this epoch's routing if it is among ``kept_epochs``. Does nothing for a CNN."""
        config, epoch = self.config, self.state.epoch
        if not self.network.routes:
            return
        if self.trace is None or epoch in kept_epochs(config.epochs):
            about = {key: getattr(config, key) for key in ("model", "routing", "epochs", "seed")}
            about = {"dataset": config.dataset_name, **about, "run": self.run.path.name}
            network: Any = routing_network(self.network, config.model)
            self.trace = record(self.trace, network, self.splits, epoch, self.device, about)
        self.trace = with_history(self.trace, self.state.history)
        self.trace.save(self.run.path / "trace.npz")

    def _restore(self, saved: Checkpoint, damage: str) -> State:
        if damage:
            self.progress.say(f"{damage}Taken instead: {saved.path}")
        self.keep_last = not damage
        try:
            self.state, self.limits = State(**saved.head["state"]), Limits(*saved.head["limits"])
        except (KeyError, TypeError) as error:
            raise GraphcapsError(f"checkpoint: expected the state of a training in {saved.path}, got {error}") from None
        checkpoint.restore_model(self.network, saved.tensors, saved.path)
        checkpoint.restore_training(self.optimizer, self.device, saved.tensors)
        if not self.main:  # the main process restores the sums over all processes
            self.state.loss_sum, self.state.correct, self.state.seen = 0.0, 0, 0
        if self.device.type == "cpu" and self.state.threads and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(min(self.state.threads, os.cpu_count() or 1))  # another number rounds differently
        self.progress.start_at((self.state.epoch * len(self.batches) + self.state.step) / self.total_steps)
        self.progress.say(f"going on after epoch {self.state.epoch} and {self.state.step} steps")
        if self.main and self.network.routes:
            try:
                self.trace = self.run.trace()
            except GraphcapsError as error:  # training doesn't need the trace
                self.progress.say(f"{error} (the routing is recorded from here on)")
        return self.state

    def _check_finite(self, rate: float, weights: bool) -> None:
        tensors = self.network.state_dict().values() if weights else ()
        if math.isfinite(self.state.loss_sum) and all(tensor.isfinite().all() for tensor in tensors):
            return
        what = "weights" if math.isfinite(self.state.loss_sum) else "loss"
        raise GraphcapsError(
            f"{what}: expected finite numbers, got NaN or infinity in epoch {self.state.epoch + 1}, by step "
            f"{self.state.step}, at learning rate {rate:.2g}. Train again with a smaller --learning-rate; "
            f"the last checkpoint in {self.run} is sound"
        )


def _tensorboard(folder: Path) -> SummaryWriter:
    """Make a writer of TensorBoard events. Raise ``GraphcapsError`` if TensorBoard isn't installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        then = 'Run: pip install -e ".[tensorboard]"'
        raise GraphcapsError(f"tensorboard: expected it to be installed, got none. {then}") from None
    return SummaryWriter(str(folder / "tensorboard"))
