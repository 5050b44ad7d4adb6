"""The training loop.

    for each epoch: for each batch: forward, loss, backward, step
                    validate, record the routing, save

All random numbers of an epoch depend only on (seed, epoch). So a run that is stopped at any step and resumed ends with
bit-identical weights; on a CPU, this needs the same number of threads. The best epoch is chosen on validation images.
The test images are used once, at the end.
"""

import contextlib
import dataclasses
import logging
import math
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ...errors import GraphcapsError
from ...progress import Progress, bar
from ..analysis.accuracy import EVALUATION_BATCH, evaluate
from ..config import TrainConfig
from ..data import Batches, load_images
from ..models import from_config, take_layers
from ..models.answers import is_correct, longest
from ..models.evidence import limits_of
from .capture import CapturedStep, Step
from .hardware import accelerator as make_accelerator
from .hardware import any_signal, made_with
from .report import engine_of, introduction, result
from .run_folder import Run, load
from .saving import Saving
from .signals import StopSignals
from .step import one_cycle, prepare, risen, set_rate, summed, training_step

SCALE_POWER = 0.6
"""Votes are scaled by this power of the ratio of iterations. Measured on pairs of digits, for 1 to 12 iterations."""

log = logging.getLogger(__name__)


class Interrupted(GraphcapsError):
    """The signal ``signum`` stopped the training; ``resume`` continues from the last checkpoint."""

    def __init__(self, run: Run, signum: int, how: str = "stopped and saved"):
        super().__init__(f"{how}. Go on with: graphcaps train --resume {run}")
        self.signum = signum


def fit(config: TrainConfig, run: Run | None, progress: bool) -> dict:
    """Train with settings that are already checked, and return the content of the run's result.json.

    Users call ``train`` instead. If ``run`` is None, a new run folder is made.
    """
    accelerator = make_accelerator(config.device, config.precision, config.deterministic)
    rank, world, main = accelerator.process_index, accelerator.num_processes, accelerator.is_main_process
    if resumed := run is not None:
        run.newest_checkpoint()  # check the run's settings before they are used to load images and build the network
    splits = load_images(config.dataset, config.data, **config.of_images).for_augment(config.augment)
    if config.of_images and run is None:  # store the size, so that resuming keeps it even if the folder has changed
        channels, *sides = splits.image_shape
        kind, path = config.dataset.split(":", 1)
        place = f"{kind}:{Path(path).absolute()}"  # folder:. would be another folder for a command that runs elsewhere
        config = dataclasses.replace(config, dataset=place, size=max(sides), channels=3 if channels == 3 else 1)
    if config.train_images is not None:
        splits = splits.with_train(config.train_images)
    if run is None and len(splits.train) < config.batch_size and "batch_size" not in config.changed():
        config = dataclasses.replace(config, batch_size=max(world, len(splits.train) // 4))
        log.info("%d images per step, a quarter of the training images: --batch-size changes it", config.batch_size)
    batches = Batches(
        splits.train,
        config.batch_size,
        device=accelerator.device,
        seed=config.seed,
        augment=config.augment,
        rank=rank,
        world=world,
        balance=config.balance,
    )
    len(batches)  # check the batch size before the run folder is made
    torch.manual_seed(config.seed)
    network = from_config(config, splits)
    if config.from_run is not None:
        take_layers(network, load(config.from_run))
        log.info("all layers but the last start from %s", config.from_run)
    engine_of(config, network, torch.device("cpu"))  # check the engine before the run folder is made
    try:
        with StopSignals() as stop, contextlib.ExitStack() as held:
            if run is None and main:
                run = Run.create(config, made_with=made_with(accelerator))
            if world > 1:
                from accelerate.utils import broadcast_object_list

                run = broadcast_object_list([run])[0]
            assert run is not None, "the main process has made it"
            if main:
                held.enter_context(run.lock())
            saving = Saving(config, run, splits, prepare(network, config.peak_rate, accelerator))
            return Trainer(saving, batches, progress and main).fit(resumed, stop)
    except KeyboardInterrupt as error:
        if run is None:
            raise
        how = "stopped at once; the last checkpoint is intact"
        raise Interrupted(run, (*error.args, signal.SIGINT)[0], how) from None
    except RuntimeError as error:
        # If the connection to another process has closed, NCCL raises DistError, but gloo a plain RuntimeError.
        if world == 1 or not (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise
        resume = f"Go on with: graphcaps train --resume {run}" if run else "Nothing was trained"
        raise GraphcapsError(
            f"process {rank} of {world} lost its connection to another process, which has ended or can't be reached; "
            f"the messages of torchrun name that process. {resume}"
        ) from error


class Trainer:
    """A training, which ``fit`` runs to its end."""

    def __init__(self, saving: Saving, batches: Batches, show: bool):
        self.saving, self.batches = saving, batches
        self.config, self.run, self.splits, self.learner = saving.config, saving.run, saving.splits, saving.learner
        self.total_steps = self.config.epochs * len(batches)
        self.progress, device = Progress("", show, sys.stdout), self.learner.device
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.hits = torch.zeros((), dtype=torch.int64, device=device)
        self.step = self._new_step()

    def _new_step(self) -> Step:
        """The training step, on CUDA as a graph, in which the number of iterations is fixed."""
        if self.config.capture and self.learner.device.type == "cuda":
            return CapturedStep(self.learner, self._step, self.config.batch_size, self.progress.say)
        return self._step

    def _set_iterations(self, progress: float, train: bool = True) -> None:
        """Set the routing iterations for this share of the training, if they rise.

        To ``train`` with another number, the votes are scaled, so that the parents keep about the lengths they had.
        Otherwise, they would be so long that the squash has no gradient, even for images without an object.
        """
        if not self.config.rising:
            return
        network: Any = self.learner.network
        iterations, state = risen(progress, self.config.iterations or self.config.preset.iterations), self.saving.state
        for layer in (*network.between, network.capsules):
            layer.routing.iterations = iterations
            if train and iterations != state.iterations:
                with torch.no_grad():
                    layer.weight *= (state.iterations / iterations) ** SCALE_POWER
        if train and iterations != state.iterations:
            state.iterations, self.step = iterations, self._new_step()

    def fit(self, resume: bool, stop: StopSignals) -> dict:
        """Train up to the last epoch, save a checkpoint after each epoch, then test the best network once."""
        saving, device = self.saving, self.learner.device
        with self.progress:
            self.progress.say(introduction(self.config, self.run, self.splits, self.learner))
            restored = resume and saving.restore(self.progress.say)
            state = saving.state
            self.progress.start_at((state.epoch * len(self.batches) + state.step) / self.total_steps)
            state.threads = torch.get_num_threads() if device.type == "cpu" else 0
            if state.step == 0:
                if not restored:
                    saving.save("last")
                saving.save_rest()
            self.started = time.perf_counter() - state.seconds
            while state.epoch < self.config.epochs:
                self._train_epoch(stop)
                self._end_epoch()
                stopped = any_signal(self.learner.accelerator, stop.signum)
                if stopped and state.epoch < self.config.epochs:
                    raise Interrupted(self.run, stopped)
        stop.end()  # everything is saved: from here on, Ctrl-C may stop the process at once
        return self._finish()

    def _train_epoch(self, stop: StopSignals) -> None:
        state, learner, steps, stopped = self.saving.state, self.learner, len(self.batches), 0
        began = time.perf_counter() - state.epoch_seconds
        self.loss_sum.fill_(state.loss_sum)
        self.hits.fill_(state.correct)
        learner.model.train()
        for images, labels in self.batches.epoch(state.epoch, start=state.step):
            done = state.epoch * steps + state.step
            rate = one_cycle(done, self.total_steps, self.config.peak_rate)
            set_rate(learner, rate)
            self._set_iterations(done / self.total_steps)
            self.step(images, labels, done / self.total_steps)
            state.step += 1
            state.seen += len(labels)
            stopped = any_signal(learner.accelerator, stop.signum, state.step)
            leaving = state.step == steps or bool(stopped)
            if self.progress.due() or leaving:
                state.loss_sum, state.correct = float(self.loss_sum), int(self.hits)
                state.epoch_seconds = max(time.perf_counter() - began, 1e-9)  # a clock can stand still
                self._check_finite(rate, weights=leaving)
                self._show_step()
            if stopped:
                break
        state.seconds = time.perf_counter() - self.started
        state.loss_sum, correct, seen = summed(learner, state.loss_sum, state.correct, state.seen)
        state.correct, state.seen = int(correct), int(seen)
        if stopped:
            self.saving.save("last")
            raise Interrupted(self.run, stopped)

    def _step(self, images: torch.Tensor, labels: torch.Tensor, progress: float | torch.Tensor) -> torch.Tensor:
        """Make a training step, and add the batch's losses and hits to their sums, on the device."""
        learner, weight = self.learner, self.batches.weight(self.saving.state.step)
        loss, output = training_step(learner, images, labels, progress, weight)
        self.loss_sum += loss * len(labels)
        self.hits += is_correct(longest(output.scores, learner.network.objects), labels).sum()
        return loss

    def _show_step(self) -> None:
        state, steps = self.saving.state, len(self.batches)
        speed = min(state.step * self.config.batch_size, self.batches.num_images) / state.epoch_seconds
        self.progress.set(
            (state.epoch * steps + state.step) / self.total_steps,
            f"epoch {state.epoch + 1}/{self.config.epochs}, step {state.step}/{steps}",
            f"loss {state.loss_sum / state.seen:.4f}  accuracy {state.correct / state.seen:.2%}  {speed:,.0f} img/s",
        )

    def _end_epoch(self) -> None:
        """Validate, save and report."""
        state = self.saving.state
        self._set_iterations(1.0, train=False)
        val = evaluate(self.learner.network, Batches(self.splits.val, EVALUATION_BATCH, device=self.learner.device))
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
        self.saving.limits = limits_of(val.evidence, val.right)
        self.saving.save("last")
        self.saving.save_rest()
        left = self.progress.time_left()
        self.progress.say(
            f"epoch {state.epoch}/{self.config.epochs}  loss {row['train_loss']:.4f}  "
            f"train {row['train_accuracy']:.2%}  validation {val.accuracy:.2%}{' (best)' if best else ''}  "
            f"{row['images_per_second']:,.0f} img/s{f'  {left}' if left else ''}"
        )

    def _finish(self) -> dict:
        """Test the weights of the best epoch and write the result."""
        device, accelerator = self.learner.device, self.learner.accelerator
        accelerator.wait_for_everyone()
        best = load(self.run, device=str(device))
        with bar("test images", self.progress.show) as on_progress:
            test = evaluate(best, Batches(self.splits.test, EVALUATION_BATCH, device=device), on_progress)
        reached = result(self.config, best, self.saving.state, test, accelerator)
        if self.saving.main:
            self.run.write_answers(test.predicted, test.labels)
            self.run.write_result(reached)
        return {"run": str(self.run.path), **reached}

    def _check_finite(self, rate: float, weights: bool) -> None:
        state, finite = self.saving.state, math.isfinite(self.saving.state.loss_sum)
        tensors = self.learner.network.state_dict().values() if weights else ()
        if finite and all(tensor.isfinite().all() for tensor in tensors):
            return
        raise GraphcapsError(
            f"{'weights' if finite else 'loss'}: expected finite numbers, got NaN or infinity in epoch "
            f"{state.epoch + 1}, by step {state.step}, at learning rate {rate:.2g}. Train again with a smaller "
            f"--learning-rate; the last checkpoint in {self.run} is intact"
        )
