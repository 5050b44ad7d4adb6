"""The training loop.

    for each epoch: for each batch: forward, loss, backward, step
                    validate, record the routing, save

All random numbers of an epoch depend only on (seed, epoch). So a run that is stopped at any step and resumed ends with
bit-identical weights; on a CPU, this needs the same number of threads, on a GPU ``--deterministic``. The best epoch is
chosen on validation images. The test images are used once, at the end.
"""

import contextlib
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from ...errors import GraphcapsError
from ...progress import REFRESH, bar, say
from ..analysis.accuracy import EVALUATION_BATCH, evaluate
from ..config import TrainConfig
from ..data import Batches, ImageSplits
from ..models import from_config, take_layers
from ..models.answers import is_correct, longest
from ..models.evidence import limits_of
from .capture import CapturedStep, Step
from .hardware import Hardware, made_with
from .report import engine_of, introduction, result
from .run_folder import Run, load
from .saving import Saving
from .step import one_cycle, prepare, risen, set_rate, training_step

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
SCALE_POWER = 0.6
"""Votes are scaled by this power of the ratio of iterations. Measured on pairs of digits, for 1 to 12 iterations."""

log = logging.getLogger(__name__)


class Interrupted(GraphcapsError):
    """The signal ``signum`` stopped the training; ``resume`` continues from the last checkpoint."""

    def __init__(self, run: Run, signum: int, state: str = "stopped and saved"):
        super().__init__(f"{state}. Go on with: graphcaps train --resume {run}")
        self.signum = signum


def fit(config: TrainConfig, splits: ImageSplits, hardware: Hardware, run: Run | None, progress: bool) -> dict:
    """Train with settings that are already checked, and return the content of the run's result.json.

    Users call ``train`` instead. If ``run`` is None, a new run folder is made.
    """
    resumed = run is not None
    batches = Batches(splits.train, config.batch_size, device=hardware.device, seed=config.seed, augment=config.augment)
    len(batches)  # check the batch size before the run folder is made
    torch.manual_seed(config.seed)
    network = from_config(config, splits)
    if config.from_run is not None and not resumed:
        take_layers(network, load(Run.open(config.from_run, config.out)))
        log.info("all layers but the last start from %s", config.from_run)
    engine_of(network, torch.device("cpu"))  # check the engine before the run folder is made
    try:
        if run is None:
            run = Run.create(config, made_with=made_with(hardware))
        with run.lock():
            saving = Saving(run, splits, prepare(network, config.peak_rate, hardware))
            trainer = Trainer(saving, batches, progress)
            with stop_signals() as stopped:
                trainer.train(resumed, stopped)
            return trainer.test()  # everything is saved: Ctrl-C may stop the process at once
    except KeyboardInterrupt:
        if run is None:
            raise
        raise Interrupted(run, signal.SIGINT, "stopped at once; the last checkpoint is intact") from None


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Let Ctrl-C, SIGTERM and SIGUSR1, which Slurm sends, stop nothing while the block runs.

    A second Ctrl-C raises ``KeyboardInterrupt``.

    Yield a function that returns the signal that was received, or 0.
    """
    received: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if received and signum == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signum)

    handlers = {}
    if threading.current_thread() is threading.main_thread():  # Python sets handlers in no other thread
        handlers = {signum: signal.signal(signum, note) for signum in STOPPING}
    try:
        yield lambda: received[-1] if received else 0
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


class Trainer:
    """A training of the learner in ``saving``; ``show``: whether to print lines and progress."""

    def __init__(self, saving: Saving, batches: Batches, show: bool):
        self.saving, self.batches, self.show = saving, batches, show
        self.run, self.config, self.splits, self.learner = saving.run, saving.run.config, saving.splits, saving.learner
        self.total_steps = self.config.epochs * len(batches)
        self.say = say if show else lambda text: None
        self.shown = 0.0  # the time of the last update of the bar
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.learner.device)
        self.hits = torch.zeros((), dtype=torch.int64, device=self.learner.device)
        self.step = self._new_step()

    def _new_step(self) -> Step:
        """The training step, on CUDA as a graph, in which the number of iterations is fixed."""
        if self.config.capture and self.learner.device.type == "cuda":
            return CapturedStep(self.learner, self._step, self.config.batch_size, self.say)
        return self._step

    def _set_iterations(self, progress: float, train: bool = True) -> None:
        """Set the routing iterations for this share of the training, if they rise.

        To ``train`` with another number, the votes are scaled, so that the parents keep about the lengths they had.
        Otherwise, they would be so long that the squash has no gradient, even for images without an object.
        """
        if not self.config.rising:
            return
        network: Any = self.learner.network
        iterations, state = risen(progress, self.config.num_iterations), self.saving.state
        for layer in (*network.between, network.capsules):
            layer.routing.iterations = iterations
            if train and iterations != state.iterations:
                with torch.no_grad():
                    layer.weight *= (state.iterations / iterations) ** SCALE_POWER
        if train and iterations != state.iterations:
            state.iterations, self.step = iterations, self._new_step()

    def train(self, resume: bool, stopped: Callable[[], int]) -> None:
        """Train up to the last epoch, and save a checkpoint after each. ``stopped`` returns a received signal, or 0."""
        saving = self.saving
        self.say(introduction(self.run, self.splits, self.learner))
        restored = resume and saving.restore(self.say)
        state = saving.state
        state.threads = torch.get_num_threads() if self.learner.device.type == "cpu" else 0
        if state.step == 0:
            if not restored:
                saving.save("last")
            saving.save_rest()
        self.started = time.perf_counter() - state.seconds
        with bar("training", self.show, self._share()) as self.on_progress:
            while state.epoch < self.config.epochs:
                self._train_epoch(stopped)
                self._end_epoch()
                if (signum := stopped()) and state.epoch < self.config.epochs:
                    raise Interrupted(self.run, signum)
        del self.step  # the step refers to this object, and the cycle would keep a captured graph's memory

    def _share(self) -> float:
        """The share of the training that is done."""
        return (self.saving.state.epoch * len(self.batches) + self.saving.state.step) / self.total_steps

    def _train_epoch(self, stopped: Callable[[], int]) -> None:
        state, learner, steps, signum = self.saving.state, self.learner, len(self.batches), 0
        began = time.perf_counter() - state.epoch_seconds
        self.loss_sum.fill_(state.loss_sum)
        self.hits.fill_(state.correct)
        learner.network.train()
        for images, labels in self.batches.epoch(state.epoch, start=state.step):
            rate = one_cycle(state.epoch * steps + state.step, self.total_steps, self.config.peak_rate)
            set_rate(learner, rate)
            self._set_iterations(self._share())
            self.step(images, labels, self._share())
            state.step += 1
            state.seen += len(labels)
            signum = stopped()
            leaving = state.step == steps or bool(signum)
            if leaving or time.monotonic() >= self.shown + REFRESH:  # reading the sums waits for a GPU
                state.loss_sum, state.correct = float(self.loss_sum), int(self.hits)
                state.epoch_seconds = max(time.perf_counter() - began, 1e-9)  # a clock can stand still
                self._check_finite(rate, weights=leaving)
                self._show_step()
            if signum:
                break
        state.seconds = time.perf_counter() - self.started
        if signum:
            self.saving.save("last")
            raise Interrupted(self.run, signum)

    def _step(self, images: torch.Tensor, labels: torch.Tensor, progress: float | torch.Tensor) -> torch.Tensor:
        """Make a training step, and add the batch's losses and hits to their sums, on the device."""
        loss, output = training_step(self.learner, images, labels, progress)
        self.loss_sum += loss * len(labels)
        self.hits += is_correct(longest(output.scores, self.learner.network.objects), labels).sum()
        return loss

    def _show_step(self) -> None:
        state, steps = self.saving.state, len(self.batches)
        self.shown = time.monotonic()
        self.on_progress(
            self._share(),
            f"epoch {state.epoch + 1}/{self.config.epochs}, step {state.step}/{steps}  loss "
            f"{state.loss_sum / state.seen:.4f}  accuracy {state.correct / state.seen:.2%}  "
            f"{state.seen / state.epoch_seconds:,.0f} img/s",
        )

    def _end_epoch(self) -> None:
        state = self.saving.state
        self._set_iterations(1.0, train=False)
        batches = Batches(self.splits.val, EVALUATION_BATCH, device=self.learner.device)
        beside = self.step.beside if isinstance(self.step, CapturedStep) else lambda call: call()
        val = beside(lambda: evaluate(self.learner.network, batches))
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
        state.step, state.loss_sum, state.correct, state.seen, state.epoch_seconds = 0, 0.0, 0, 0, 0.0
        self.saving.limits = limits_of(val.evidence, val.right)
        self.saving.save("last")
        self.saving.save_rest()
        self.say(
            f"epoch {state.epoch}/{self.config.epochs}  loss {row['train_loss']:.4f}  "
            f"train {row['train_accuracy']:.2%}  validation {val.accuracy:.2%}"
            f"{' (best)' if state.best is row else ''}  {row['images_per_second']:,.0f} img/s"
        )

    def test(self) -> dict:
        """Test the weights of the best epoch once, and write the result."""
        device = self.learner.device
        best = load(self.run, device=str(device))
        with bar("test images", self.show) as on_progress:
            test = evaluate(best, Batches(self.splits.test, EVALUATION_BATCH, device=device), on_progress)
        results = result(self.config, best, self.saving.state, test, self.learner.hardware)
        self.run.write_result(results, test.predicted, test.labels)
        return {"run": str(self.run.path), **results}

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
