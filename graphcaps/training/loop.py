"""The training loop.

    for each epoch: for each batch: forward, loss, backward, step
                    validate, keep the routing, save

All randomness of an epoch comes from (seed, epoch), so a run stopped at any step and resumed gives, on a CPU and with
as many threads, the very weights of the run that was never stopped. The model is chosen on validation images; the test
images are read once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..analysis.accuracy import EVALUATION_BATCH, evaluate
from ..config import TrainConfig
from ..data import Batches, ImageSplits, load_images
from ..data.batches import check_balance
from ..errors import GraphcapsError, expect
from ..models import ImageNetwork, Limits, from_config, routing_network
from ..models.limits import limits_of
from ..models.objects import is_correct, longest
from ..progress import Progress, bar, tensorboard
from ..threads import leave_busy_cores, take_threads
from ..trace import RoutingTrace
from ..trace.recording import kept_epochs, record, with_history
from . import checkpoint
from .hardware import accelerator as make_accelerator
from .hardware import made_with
from .report import introduction, result
from .run_folder import Run, load
from .signals import StopSignals
from .step import one_cycle, prepare, set_rate, training_step

if TYPE_CHECKING:
    from accelerate import Accelerator


STEPS_BETWEEN = 16  # of several processes on GPUs, before they ask each other whether to stop


class Interrupted(GraphcapsError):
    """Training was stopped by the signal ``signum``; ``resume`` takes it up where it was saved."""

    def __init__(self, run: Run, signum: int, how: str = "stopped and saved"):
        super().__init__(f"{how}. Go on with: graphcaps train --resume {run}")
        self.signum = signum


class Diverged(GraphcapsError):
    """The loss or a weight is no longer a finite number."""


@dataclasses.dataclass
class State:
    """Where a training stands; lies in every checkpoint's head."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps of the current epoch done
    loss_sum: float = 0.0  # over this process's images of the current epoch so far; in a checkpoint over those of all
    correct: int = 0
    seen: int = 0
    seconds: float = 0.0  # of training, over all resumes
    epoch_seconds: float = 0.0
    best_epoch: int = 0
    best_val_accuracy: float = -1.0
    best_val_loss: float = math.inf
    history: list[dict] = dataclasses.field(default_factory=list)
    threads: int = 0  # that compute on a CPU; 0 on others


def fit(config: TrainConfig, run: Run | None, progress: bool) -> dict:
    """Train in settings that were checked, and return the run's result.json; ``train`` is the way in.

    Args:
        config: the settings.
        run: the run to go on with; None: a new one.
        progress: show a bar on a terminal; elsewhere a line per epoch, and one where 30 seconds went by without.
    """
    accelerator = make_accelerator(config.device, config.precision, config.deterministic)
    resumed, main = run is not None, accelerator.is_main_process
    if run is not None:
        run.newest_checkpoint()  # its settings are checked before they choose images and a network
    splits = load_images(config.dataset, config.data, **config.of_images).for_augment(config.augment)
    if config.of_images and run is None:  # so that the images are the same where there are others in the folder later
        channels, *sides = splits.image_shape
        config = dataclasses.replace(config, size=max(sides), channels=3 if channels == 3 else 1)
    check_balance(config.balance, splits.train)
    if config.train_images is not None:
        splits = splits.with_train(config.train_images)
    least, most = accelerator.num_processes, len(splits.train)
    wanted = f"from {least} (processes) to {most} (training images of {config.dataset_name})"
    expect(least <= config.batch_size <= most, "batch_size", wanted, config.batch_size)
    torch.manual_seed(config.seed)
    network = from_config(config, splits)
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
            return Trainer(config, run, network, splits, accelerator, progress and main).fit(resumed, stop)
    except KeyboardInterrupt as error:
        if run is None:
            raise
        how = "stopped at once; what was saved before is sound"
        raise Interrupted(run, getattr(error, "signum", signal.SIGINT), how) from None
    except RuntimeError as error:
        # What torch raises where another process's connection has closed: its own class with NCCL, none with gloo.
        lost = isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
        if accelerator.num_processes == 1 or not lost:
            raise
        ours, all_of_them = accelerator.process_index, accelerator.num_processes
        how_on = f"Go on with: graphcaps train --resume {run}" if run else "Nothing was trained"
        raise GraphcapsError(
            f"process {ours} of {all_of_them} lost its connection to another, which has ended or can't be reached; "
            f"what torchrun says says which. {how_on}"
        ) from error


class Trainer:
    """One training: the network, its data and its state; ``fit`` runs it to the end."""

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        network: ImageNetwork,
        splits: ImageSplits,
        accelerator: Accelerator,
        show: bool,
    ):
        self.config, self.run, self.splits, self.accelerator, self.show = config, run, splits, accelerator, show
        self.device = accelerator.device
        self.wide = torch.float64 if self.device.type != "mps" else torch.float32
        self.learner = prepare(network, config.peak_rate, accelerator)
        self.network, self.optimizer = self.learner.network, self.learner.optimizer
        self.batches = Batches(
            splits.train,
            config.batch_size,
            device=self.device,
            seed=config.seed,
            augment=config.augment,
            rank=accelerator.process_index,
            world=accelerator.num_processes,
            balance=config.balance,
        )
        self.state = State()
        self.limits = Limits()  # of the weights after the last epoch
        self.last_is_sound = True  # or not there
        self.trace: RoutingTrace | None = None
        self.writer = tensorboard(run.path) if config.tensorboard and accelerator.is_main_process else None

    def fit(self, resume: bool, stop: StopSignals) -> dict:
        """Train to the last epoch, saving as it goes; then test the best network once."""
        state = self.state
        with Progress(self.config.epochs, len(self.batches), self.show) as progress:
            progress.say(introduction(self.config, self.run, self.network, self.splits, self.accelerator))
            self._choose_threads(progress)
            path, damage = self.run.newest_checkpoint() if resume else (None, "")
            if path is not None:
                state = self._restore(path, damage, progress)
            elif resume:
                progress.say(f"no weights are in {self.run}: it begins anew, in its settings")
            state.threads = torch.get_num_threads() if self.device.type == "cpu" else 0
            if state.step == 0 and self.accelerator.is_main_process:
                with self._staying():
                    if path is None:
                        self._save("last")
                    self._save_rest()
            self.started = time.perf_counter() - state.seconds
            while state.epoch < self.config.epochs:
                self._train_epoch(stop, progress)
                self._end_epoch(progress)
                stopped = self._noted_anywhere(stop.signum)
                if stopped and state.epoch < self.config.epochs:
                    raise Interrupted(self.run, stopped)
        stop.end()  # from here on nothing is lost by stopping at once
        return self._finish()

    def _train_epoch(self, stop: StopSignals, progress: Progress) -> None:
        state, steps = self.state, len(self.batches)
        total = steps * self.config.epochs
        began = time.perf_counter() - state.epoch_seconds
        loss_sum = torch.full((), state.loss_sum, dtype=self.wide, device=self.device)
        correct = torch.full((), state.correct, dtype=torch.int64, device=self.device)
        self.learner.model.train()
        for images, labels in self.batches.epoch(state.epoch, start=state.step):
            done = state.epoch * steps + state.step
            rate = one_cycle(done, total, self.config.peak_rate)
            set_rate(self.optimizer, rate)
            weight = self.batches.weight(state.step)
            loss, output = training_step(self.learner, images, labels, done / total, weight)
            loss_sum += loss * len(labels)
            correct += is_correct(longest(output.scores, self.network.objects), labels).sum()
            state.step += 1
            state.seen += len(labels)
            stopped = self._noted_anywhere(stop.signum) if self._asks(state.step) else 0
            leaving = state.step == steps or bool(stopped)
            if progress.due() or leaving:
                state.loss_sum, state.correct = float(loss_sum), int(correct)
                state.epoch_seconds = time.perf_counter() - began
                self._check_finite(rate, weights=leaving)
                speed = min(state.step * self.config.batch_size, self.batches.num_images) / state.epoch_seconds
                means = state.loss_sum / state.seen, state.correct / state.seen
                progress.step(
                    state.epoch, state.step, f"loss {means[0]:.4f}  accuracy {means[1]:.2%}  {speed:,.0f} img/s"
                )
            if stopped:
                state.seconds = time.perf_counter() - self.started
                self._sum_over_processes()
                if self.accelerator.is_main_process:
                    with self._staying():
                        self._save("last")
                raise Interrupted(self.run, stopped)

    def _asks(self, step: int) -> bool:
        """Whether a signal is looked for after this step. The processes ask each other, which waits for a GPU."""
        alone = self.accelerator.num_processes == 1
        return alone or self.device.type == "cpu" or step % STEPS_BETWEEN == 0

    def _noted_anywhere(self, signum: int) -> int:
        """The signal that any of the processes has noted: all must stop at the same step."""
        if self.accelerator.num_processes == 1:
            return signum
        return int(self.accelerator.gather(torch.tensor([signum], device=self.device)).max())

    def _sum_over_processes(self) -> None:
        """Make the sums of the epoch those over all processes, as they are reported and saved."""
        state = self.state
        sums = torch.tensor([state.loss_sum, state.correct, state.seen], dtype=self.wide, device=self.device)
        state.loss_sum, correct, seen = self.accelerator.reduce(sums, "sum").tolist()
        state.correct, state.seen = int(correct), int(seen)

    def _end_epoch(self, progress: Progress) -> None:
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
        if self.accelerator.is_main_process:
            with self._staying():
                self._save("last")
                self._save_rest()
        if self.writer:
            for key, value in row.items():
                self.writer.add_scalar(key, value, state.epoch)
            self.writer.flush()
        progress.say(
            f"epoch {state.epoch}/{config.epochs}  loss {row['train_loss']:.4f}  train {row['train_accuracy']:.2%}  "
            f"validation {val.accuracy:.2%}{' (best)' if best else ''}  {row['images_per_second']:,.0f} img/s"
            f"{progress.left()}"
        )

    def _finish(self) -> dict:
        if self.writer:
            self.writer.close()
        self.accelerator.wait_for_everyone()
        with self._staying() if self.accelerator.is_main_process else contextlib.nullcontext():
            best = load(self.run, device=str(self.device))
            with bar("test images", self.show) as on_progress:
                test = evaluate(best, Batches(self.splits.test, EVALUATION_BATCH, device=self.device), on_progress)
            found = result(self.config, best, self.state, test, self.accelerator)
            if self.accelerator.is_main_process:
                self.run.write_answers(test.predicted, test.labels)
                self.run.write_result(found)
        return {"run": str(self.run.path), **found}

    def _save_rest(self) -> None:
        """Write all that follows from the last checkpoint; where a crash came between, a resume does it again."""
        state = self.state
        if state.best_epoch == state.epoch > 0:
            self._save("best")
        if state.history:
            self.run.write_metrics(state.history)
        self._keep_routing()

    @contextlib.contextmanager
    def _staying(self) -> Iterator[None]:
        """Look before and after the block, and where it fails, whether the run folder is still there."""
        self._stay()
        try:
            yield
        except GraphcapsError:
            self._stay()
            raise
        self._stay()

    def _stay(self) -> None:
        """Where the run folder is gone, save what there is into another beside it, and raise what says so."""
        if self.run.is_there():
            return
        gone, name = self.run, self.run.path.name
        config = dataclasses.replace(self.config, out=gone.path.parent, name="")
        names = (f"{name}-saved{f'-{k}' * (k > 1)}" for k in itertools.count(1))
        self.run = Run.create(config, names, made_with=made_with(self.accelerator))
        self._forget_best()
        if self.state.best_epoch:
            self._save("best")
        self._save("last")
        where = f"after epoch {self.state.epoch}" + f" and {self.state.step} steps" * (self.state.step > 0)
        then = f"The weights {where} are saved in {self.run}. Go on with: graphcaps train --resume {self.run}"
        raise GraphcapsError(f"run: expected {gone} to stay while it trains, it is gone or another. {then}")

    def _check_best(self, progress: Progress) -> None:
        """Look whether the best weights, which no checkpoint has again, are those that the training remembers."""
        state, path = self.state, self.run.checkpoint("best")
        if not state.best_epoch or (state.step == 0 and state.best_epoch == state.epoch):  # then the last are the best
            return
        try:
            found = checkpoint.read(path)[1]["state"]["epoch"]
            if found == state.best_epoch:
                return
            why = f"checkpoint: expected weights of epoch {state.best_epoch} in {path}, got epoch {found}"
        except GraphcapsError as error:
            why = str(error)
        progress.say(f"{why} (the best weights are chosen from here on)")
        self._forget_best()

    def _forget_best(self) -> None:
        """The best weights are lost: those of now stand for them where an epoch has just ended, else later ones do."""
        state = self.state
        state.best_epoch, state.best_val_accuracy, state.best_val_loss = 0, -1.0, math.inf
        if state.history and state.step == 0:
            row = state.history[-1]
            state.best_epoch, state.best_val_accuracy, state.best_val_loss = (
                row[key] for key in ("epoch", "val_accuracy", "val_loss")
            )

    def _keep_routing(self) -> None:
        """Write the trace, with this epoch's routing where that is kept; a network that doesn't route has none."""
        config, epoch = self.config, self.state.epoch
        if not self.network.routes:
            return
        if self.trace is None or epoch in kept_epochs(config.epochs):
            about = {key: getattr(config, key) for key in ("model", "routing", "epochs", "seed")}
            about = {"dataset": config.dataset_name, **about, "run": self.run.path.name}
            network: Any = routing_network(self.network, config.model)
            self.trace = record(self.trace, network, self.splits, epoch, self.device, about)
            self._keep_early_weights()
        self.trace = with_history(self.trace, self.state.history)
        self.trace.save(self.run.path / "trace.npz")

    def _keep_early_weights(self) -> None:
        """Write this epoch's weights where it is one of the first whose routing is kept, as many as fit."""
        tensors, epoch = checkpoint.early_tensors(self.network), self.state.epoch
        fit = checkpoint.EARLY_BYTES // sum(tensor.nbytes for tensor in tensors.values())
        if epoch in kept_epochs(self.config.epochs)[:-1][:fit]:
            checkpoint.write(self.run.checkpoint(f"epoch-{epoch}"), tensors, {})

    def _save(self, which: str) -> None:
        tensors, before = checkpoint.model_tensors(self.network), None
        if which == "last":
            before = self.run.checkpoint("previous") if self.last_is_sound else None
            self.last_is_sound = True
            tensors |= checkpoint.optimizer_tensors(self.optimizer) | checkpoint.generator_tensors(self.device)
        head = {
            "preset": self.network.preset,
            "class_names": self.splits.class_names,
            "dataset": self.config.dataset,
            "settings": self.config.as_dict(),
            "state": dataclasses.asdict(self.state),
            "limits": Limits() if self.state.step else self.limits,
        }
        checkpoint.write(self.run.checkpoint(which), tensors, head, before)

    def _restore(self, path: Path, damage: str, progress: Progress) -> State:
        if damage:
            progress.say(f"{damage}Taken instead: {path}")
        self.last_is_sound = not damage
        head = checkpoint.restore(path, self.network, self.optimizer, self.device)
        try:
            self.state, self.limits = State(**head["state"]), Limits(*head["limits"])
        except (KeyError, TypeError) as error:
            raise GraphcapsError(f"checkpoint: expected the state of a training in {path}, got {error}") from None
        if not self.accelerator.is_main_process:  # which has the sums over all processes
            self.state.loss_sum, self.state.correct, self.state.seen = 0.0, 0, 0
        if self.device.type == "cpu":
            take_threads(self.state.threads)
        progress.resume(self.state.epoch, self.state.step)
        progress.say(f"going on after epoch {self.state.epoch} and {self.state.step} steps")
        self._check_best(progress)
        if self.accelerator.is_main_process and self.network.routes:
            try:
                self.trace = self.run.trace()
            except GraphcapsError as error:  # pictures are not worth a training
                progress.say(f"{error} (the routing is kept from here on)")
        return self.state

    def _choose_threads(self, progress: Progress) -> None:
        on_cpu = self.device.type == "cpu"
        if on_cpu and not self.config.deterministic and (fewer := leave_busy_cores(self.config.batch_size)):
            progress.say(fewer)

    def _check_finite(self, rate: float, weights: bool) -> None:
        tensors = self.network.state_dict().values() if weights else ()
        if math.isfinite(self.state.loss_sum) and all(tensor.isfinite().all() for tensor in tensors):
            return
        what = "weights" if math.isfinite(self.state.loss_sum) else "loss"
        raise Diverged(
            f"{what}: expected finite numbers, got NaN or infinity in epoch {self.state.epoch + 1}, by step "
            f"{self.state.step}, at learning rate {rate:.2g}. Train anew with a smaller --learning-rate; "
            f"the last checkpoint in {self.run} is sound"
        )
