"""Training: it resumes to the bit, survives a crash at any write, chooses by validation and tests once."""

import dataclasses
import math
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps import GraphcapsError, TrainConfig, train
from graphcaps.images.analysis.accuracy import Evaluation
from graphcaps.images.data import Images
from graphcaps.images.models import capsnet_loss
from graphcaps.images.training import checkpoint
from graphcaps.images.training import loop as training
from graphcaps.images.training.hardware import pick_device
from graphcaps.images.training.loop import Interrupted
from graphcaps.images.training.run_folder import Run

from . import small

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The content of an undisturbed run."""
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        result = train(small.config(tmp_path_factory.mktemp("whole")), progress=False)
    return small.content(Path(result["run"]))


def stop_at(monkeypatch, step: int, signum: int = signal.SIGTERM) -> None:
    """Send this process a signal during the given step, counted from 1 on."""
    steps, whole = iter(range(1, 1000)), training.training_step

    def stopping(*args):
        if next(steps) == step:
            signal.raise_signal(signum)
        return whole(*args)

    monkeypatch.setattr(training, "training_step", stopping)


def interrupted(config: TrainConfig, step: int, signum: int = signal.SIGTERM, resume=None) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, step, signum)
        with pytest.raises(Interrupted) as stopped:
            train(config, resume=resume, progress=False)
    assert stopped.value.signum == signum
    assert f"stopped and saved. Go on with: graphcaps train --resume {config.out / config.name}" in str(stopped.value)
    return config.out / config.name


@pytest.mark.parametrize("step", [3, 5])
def test_stopped_at_any_step_moved_and_resumed_is_as_if_never_stopped(tmp_path, whole, step):
    run = interrupted(small.config(tmp_path), step, signal.SIGUSR1 if step == 3 else signal.SIGTERM)
    state = checkpoint.read(Run.open(run).checkpoint("last"))[1]["state"]
    assert 3 * state["epoch"] + state["step"] == step
    assert Run.open(run).result() is None
    torch.manual_seed(99), random.seed(99), np.random.seed(99)
    moved = run.rename(tmp_path / "moved to: ümlaut")
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():  # the caller's settings change nothing
            train(TrainConfig(), resume=moved, progress=False)
            assert graphcaps.load(moved)(torch.zeros(2, 1, 12, 12)).scores.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert small.differences(small.content(moved), whole) == []


@pytest.mark.parametrize("number", ["", "2"])
def test_a_resumed_training_has_the_threads_it_had_unless_the_user_sets_them(tmp_path, monkeypatch, one_thread, number):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run = interrupted(small.config(tmp_path), 1)
    torch.set_num_threads(2)
    if number:
        monkeypatch.setenv("OMP_NUM_THREADS", number)
    interrupted(small.config(tmp_path), 1, resume=run)
    assert torch.get_num_threads() == int(number or 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "bfloat16", "augment": "none"},
        {"engine": "torch", "deterministic": True, "iterations": 6, "rising": True},
    ],
    ids=["bfloat16", "torch, rising"],
)
def test_other_settings_resume_to_the_bit_too(tmp_path, settings, whole):
    config = small.config(tmp_path, **settings)
    resumed = interrupted(dataclasses.replace(config, name="resumed"), 2)
    train(TrainConfig(), resume=resumed, progress=False)
    train(config, progress=False)
    differences = small.differences(small.content(resumed), small.content(tmp_path / "run"))
    assert differences == ["about"]  # it has the run's name
    assert "last head" in small.differences(small.content(resumed), whole)  # the settings change the weights
    assert Run.open(resumed).result()["precision"] == config.precision


def test_rising_iterations_begin_with_one_and_validation_uses_all(tmp_path, monkeypatch):
    used, step, evaluate = [], training.training_step, training.evaluate

    def observed_step(learner, *batch):
        used.append(learner.network.capsules.routing.iterations)
        return step(learner, *batch)

    def observed_evaluation(network, *batches):
        used.append(("evaluation", network.capsules.routing.iterations))
        return evaluate(network, *batches)

    monkeypatch.setattr(training, "training_step", observed_step)
    monkeypatch.setattr(training, "evaluate", observed_evaluation)
    train(small.config(tmp_path, iterations=6, rising=True), progress=False)
    all_six = ("evaluation", 6)
    assert used == [1, 1, 2, all_six, 4, 4, 6, all_six, all_six]  # the last one reads the test images


@pytest.mark.long
def test_dropout_goes_on_where_it_stood(tmp_path, monkeypatch):
    small.use(monkeypatch, small.digits(size=9))
    config = small.config(tmp_path, model="cnn", epochs=1)
    resumed = interrupted(dataclasses.replace(config, name="resumed"), 2)
    train(TrainConfig(), resume=resumed, progress=False)
    train(config, progress=False)
    ours, whole = (checkpoint.read(Run.open(run).checkpoint("last"))[0] for run in (resumed, tmp_path / "run"))
    assert "generator.cpu" in ours and same(ours, whole)


@pytest.mark.parametrize(
    ("signals", "text", "epochs"),
    [(1, "stopped and saved", 1), (2, "stopped at once; the last checkpoint is intact", 0)],
)
def test_ctrl_c_while_an_epoch_is_validated_stops_after_it_is_saved_and_a_second_at_once(
    tmp_path, monkeypatch, whole, signals, text, epochs
):
    evaluate = training.evaluate

    def stopping(*args):
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        return evaluate(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "evaluate", stopping)
        with pytest.raises(Interrupted, match=text) as stopped:
            train(small.config(tmp_path), progress=False)
    assert stopped.value.signum == signal.SIGINT and len(Run.open(tmp_path / "run").metrics()) == epochs
    train(TrainConfig(), resume=tmp_path / "run", progress=False)
    assert small.differences(small.content(tmp_path / "run"), whole) == []


def weights(run: Path, which: str = "best") -> dict[str, torch.Tensor]:
    return graphcaps.load(run, which).state_dict()


def same(left: dict, right: dict) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left.keys() | right.keys())


@pytest.mark.fact(11)
def test_the_test_images_change_neither_the_weights_nor_the_chosen_epoch(tmp_path, monkeypatch, whole):
    true = small.digits()
    noise = torch.randint(0, 256, true.test.pixels.shape, dtype=torch.uint8)
    wrong = Images(noise, (true.test.labels + 3) % 10)
    small.use(monkeypatch, dataclasses.replace(true, test=wrong))
    train(small.config(tmp_path), progress=False)
    differences = small.differences(small.content(tmp_path / "run"), whole)
    assert {name for name in differences if name.startswith(("best", "last", "metrics", "history"))} == set()
    assert "result" in differences


def scripted(monkeypatch, validation: list[tuple[float, float]]) -> list[tuple[str, dict]]:
    """Give validation these accuracies and losses; return the evaluated part and the weights of each evaluation."""
    seen, evaluate, script, splits = [], training.evaluate, iter(validation), small.digits()
    part_of = {len(splits.val): "val", len(splits.test): "test"}

    def evaluated(model, batches, on_progress=None):
        images = sum(len(labels) for _, labels in batches.in_order())
        seen.append((part_of[images], {name: tensor.clone() for name, tensor in model.state_dict().items()}))
        if part_of[images] == "test":
            return evaluate(model, batches)
        accuracy, loss = next(script)
        labels = torch.zeros(100, dtype=torch.int64)
        return Evaluation((torch.arange(100) >= 100 * accuracy).long(), labels, loss, torch.zeros(100, 3))

    monkeypatch.setattr(training, "evaluate", evaluated)
    return seen


@pytest.mark.fact(11)
@pytest.mark.parametrize(
    ("validation", "best"),
    [
        ([(0.3, 0.9), (0.5, 0.8), (0.4, 0.1)], 2),
        ([(0.5, 0.5), (0.5, 0.4), (0.5, 0.4)], 2),
    ],
    ids=["accuracy", "then_loss_then_first"],
)
def test_the_best_epoch_on_validation_is_chosen_and_the_test_is_read_once_at_the_end(
    tmp_path, monkeypatch, validation, best
):
    seen = scripted(monkeypatch, validation)
    result = train(small.config(tmp_path, epochs=3, batch_size=60), progress=False)
    assert [part for part, _ in seen] == ["val", "val", "val", "test"]
    assert result["best_epoch"] == best and result["val_accuracy"] == validation[best - 1][0]
    assert same(seen[3][1], seen[best - 1][1]) and same(weights(tmp_path / "run"), seen[best - 1][1])
    assert same(weights(tmp_path / "run", "last"), seen[2][1])


def test_metrics_are_of_the_training_images_seen(tmp_path, monkeypatch):
    """With a learning rate that changes nothing, the mean training loss is the untrained network's own."""
    monkeypatch.setattr(training, "one_cycle", lambda *args: 0.0)
    monkeypatch.setattr(torch.nn.BatchNorm2d, "forward", lambda self, x: x)
    train(small.config(tmp_path, epochs=1, batch_size=50, augment="none"), progress=False)
    model, data = graphcaps.load(tmp_path / "run").train(), small.digits().train
    pixels = graphcaps.images.data.to_float(data.pixels)
    with torch.no_grad():
        output = model(pixels, data.labels)
    row = Run.open(tmp_path / "run").metrics()[0]
    assert row["train_loss"] == pytest.approx(float(capsnet_loss(output, pixels, data.labels)), rel=1e-4)
    right = int((output.lengths.argmax(1) == data.labels).sum())
    assert row["train_accuracy"] == pytest.approx(right / len(data), abs=1e-6)


def test_a_loss_that_is_not_finite_stops_and_the_last_checkpoint_is_sound(tmp_path):
    wanted = r"loss: expected finite numbers, got NaN or infinity in epoch 1, by step \d, at learning rate .* smaller"
    with pytest.raises(GraphcapsError, match=wanted):
        train(small.config(tmp_path, learning_rate=1e29), progress=False)
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run", "last").values())


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    """The loss belongs to the weights before the step, so it is finite even if an epoch's last step spoils them."""
    monkeypatch.setattr(training, "one_cycle", lambda *args: math.nan)
    stop_at(monkeypatch, 1)
    with pytest.raises(GraphcapsError, match="weights: expected finite numbers, got NaN or infinity in epoch 1"):
        train(small.config(tmp_path, batch_size=60), progress=False)
    assert not Run.open(tmp_path / "run").checkpoint("best").exists()
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run", "last").values())


def test_a_lost_trace_begins_again_at_an_epoch_that_is_not_kept_else(tmp_path):
    run = interrupted(small.config(tmp_path, epochs=4, batch_size=60), 5)
    (run / "trace.npz").unlink()
    train(TrainConfig(), resume=run, progress=False)
    assert Run.open(run).trace().epochs.tolist() == [3, 4]


def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(GraphcapsError, match="device: expected a cuda device, but torch finds none. Use --device auto"):
        train(small.config(tmp_path, device="cuda"), progress=False)


def test_torchrun_with_several_processes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    wanted = "WORLD_SIZE: expected 1: a network trains in one process, got 2. Start it without torchrun"
    with pytest.raises(GraphcapsError, match=wanted):
        train(small.config(tmp_path), progress=False)


def test_a_gpu_that_is_not_offered_is_named(monkeypatch, caplog):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level("INFO"):
        assert pick_device("auto") == "cpu" and "doesn't offer this machine's GPU" in caplog.text
