"""The training step as a CUDA graph: its weights are the eager ones', and nothing in a step waits for the device.

Without a GPU, ``Again`` stands in for a CUDA graph, and the device "meta" for a GPU.
"""

import contextlib
import dataclasses
import gc
import itertools
import weakref
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphcaps import CapsNet, TrainConfig, train
from graphcaps.images.data import Batches, Images, Pairs
from graphcaps.images.data.splits import PARTS
from graphcaps.images.models import from_config
from graphcaps.images.training import capture
from graphcaps.images.training import loop as training
from graphcaps.images.training.hardware import Hardware
from graphcaps.images.training.step import Learner, prepare
from graphcaps.names import NETWORKS, ROUTINGS

from . import small
from .test_training import interrupted

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Again:
    """A CUDA graph without CUDA: a replay calls the captured function again."""

    def warm_up(self, function):
        return function(), False

    def capture(self, function):
        self.replay = Mock(side_effect=function)
        return torch.zeros(())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
def test_captured_steps_make_the_weights_of_eager_steps(tmp_path, monkeypatch, device):
    """There are 4 batches of 25 and one of 20 in an epoch: 3 warm-ups, a replay, an eager step, 4 replays, ..."""
    small.use(monkeypatch)
    rate, begin, loss, captured = training.one_cycle, training.Trainer.__init__, CapsNet.loss, []

    def begin_captured(self, *args):
        begin(self, *args)
        if device == "cpu" and self.config.capture:
            self.learner.optimizer.param_groups[0]["lr"] = torch.tensor(self.config.peak_rate)
            self.step = capture.CapturedStep(self.learner, self._step, self.config.batch_size)
        captured.append(self.step)

    # Of all networks, only the slow matrix capsules have a loss that depends on the progress.
    monkeypatch.setattr(CapsNet, "loss", lambda self, *batch: loss(self, *batch) * (1 + (batch[3:] or [0])[0]))
    monkeypatch.setattr(training, "one_cycle", lambda *args: float(np.float32(rate(*args))))  # as a tensor has it
    monkeypatch.setattr(training.Trainer, "__init__", begin_captured)
    if device == "cpu":
        monkeypatch.setattr(capture, "Graph", Again)
    settings = {"batch_size": 25, "device": device, "deterministic": True}
    train(small.config(tmp_path, name="eager", capture=False, **settings), progress=False)
    train(small.config(tmp_path, **settings), progress=False)
    interrupted(small.config(tmp_path, name="resumed", **settings), 2)
    train(TrainConfig(), resume=tmp_path / "resumed", progress=False)
    assert [getattr(step, "steps", None) for step in captured] == [None, 8, 2, 6]
    assert [bool(getattr(step, "graph", None)) for step in captured] == [False, True, True, True]
    if device == "cpu":
        assert [captured[k].graph.replay.call_count for k in (1, 3)] == [5, 3]
    for name in ("run", "resumed"):
        found = small.differences(small.content(tmp_path / name), small.content(tmp_path / "eager"))
        assert found == ["about", "best head", "last head"]  # the run's name, and the setting capture


@pytest.mark.parametrize("where", ["batch", "validation"])
def test_a_graph_makes_room_for_a_smaller_batch_and_for_validation(tmp_path, monkeypatch, where):
    small.use(monkeypatch)
    begin, loss, trainers, errors = training.Trainer.__init__, CapsNet.loss, [], []

    def begin_captured(self, *args):
        begin(self, *args)
        trainers.append(weakref.proxy(self))
        if self.config.capture:
            self.learner.optimizer.param_groups[0]["lr"] = torch.tensor(self.config.peak_rate)
            self.step = capture.CapturedStep(self.learner, self._step, self.config.batch_size, errors.append)
            self.graph = weakref.ref(self.step.graph)

    def loss_in_little_memory(self, output, images, *rest):
        graph = getattr(trainers[-1], "graph", lambda: None)
        if graph() and hasattr(graph(), "replay") and (len(images) == 20 if where == "batch" else not self.training):
            loss(self, output, images, *rest).requires_grad_().backward()
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return loss(self, output, images, *rest)

    monkeypatch.setattr(training, "one_cycle", lambda *args: 2.0**-10)
    monkeypatch.setattr(training.Trainer, "__init__", begin_captured)
    monkeypatch.setattr(CapsNet, "loss", loss_in_little_memory)
    monkeypatch.setattr(capture, "Graph", Again)
    for name in ("eager", "run"):
        settings = {"name": name, "capture": name == "run", "batch_size": 25, "device": "cpu", "deterministic": True}
        train(small.config(tmp_path, **settings), progress=False)
    assert len(errors) == 1 and "memory" in errors[0]
    found = small.differences(small.content(tmp_path / "run"), small.content(tmp_path / "eager"))
    assert found == ["about"]  # the run's name


REASONS = "it waits for", "not permitted", "hooks of modules", "weights", "optimizer", "numbers of Python"


@pytest.mark.parametrize("why", REASONS)
def test_a_step_that_cannot_be_captured_stays_eager_and_says_why(monkeypatch, why):
    refusing = Mock(warm_up=lambda function: (function(), "waits" in why))
    refusing.capture.side_effect = ValueError("operation not permitted when stream is capturing\nmore")
    monkeypatch.setattr(capture, "Graph", lambda: refusing)
    network, steps, said = torch.nn.Linear(1, 1), [], []
    if "hooks" in why:
        network.register_full_backward_pre_hook(print)
    if "weights" in why:
        network.weight.register_hook(print)
    if "optimizer" in why:
        monkeypatch.setattr(capture.optimizer, "_global_optimizer_pre_hooks", {0: print})
    learner = Learner(network, torch.optim.Adam(network.parameters()), Hardware(torch.device("cpu")))
    step = capture.CapturedStep(learner, lambda *batch: steps.append(batch[2]) or batch[0].sum(), 4, said.append)
    if "Python" in why:
        make = step.step
        step.step = lambda *batch: setattr(network, "temperature", batch[2]) or make(*batch)
    for k in range(6):
        step(torch.ones(4), torch.ones(4), k)
    assert steps == [0, 1, 2, 3, 4, 5] and len(said) == 1 and why in said[0] and "more" not in said[0]
    assert not learner.optimizer.param_groups[0]["capturable"]


class Waits(TorchDispatchMode):
    """While ``strict``, an operation that would wait for a GPU is an error. The device "meta" stands in for the GPU."""

    strict = False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, str(operation)
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and (x.dim() or x.is_meta)]
        here, there = (any(x.is_meta == meta for x in given) for meta in (False, True))
        number = there and "_local_scalar_dense" in name
        to_cpu = there and torch.device(kwargs.get("device") or "meta").type == "cpu"
        copies = here and (there or torch.device(kwargs.get("device") or "cpu").type == "meta")
        assert not self.strict or not (copies or to_cpu or number), name
        if number:
            return torch.ones((), dtype=given[0].dtype).item()
        return torch.zeros_like(given[0], device="cpu") if to_cpu else operation(*args, **kwargs)


@pytest.fixture
def guard(monkeypatch, device):
    """Has an attribute ``strict``; if it is set, a wait for the device is an error."""
    if device == "cuda":
        yield SimpleNamespace()
        torch.cuda.set_sync_debug_mode("default")
        return
    for name in ("tensor", "as_tensor"):  # torch hides their copies to the device from a mode
        make = getattr(torch, name)
        copied = lambda *args, make=make, device="cpu", **how: make(*args, **how).to(device)  # noqa: E731
        monkeypatch.setattr(torch, name, copied)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)  # "meta" has no autocast
    monkeypatch.setattr(torch, "autocast", lambda *device, enabled: contextlib.nullcontext())
    monkeypatch.setattr(Pairs, "__post_init__", lambda self: None)
    with Waits() as waits:
        yield waits


CASES = [{"model": model} for model in NETWORKS if model != "small"]  # its images are larger
CASES += [{"routing": routing} for routing in ROUTINGS if routing not in ("dynamic", "em")]
CASES += [{"augment": "anywhere"}, {"prior": "learned"}]
CASES += [{"objects": None}, {"objects": 2}]


@pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_no_step_waits_for_the_device(guard, device, case):
    drawing = {key: case[key] for key in ("augment",) if key in case}
    settings = {key: value for key, value in case.items() if key not in (*drawing, "objects")}
    splits, objects = small.digits(size=28), case.get("objects", 1)
    images = splits.train if objects else Images(splits.train.pixels, one_hot(splits.train.labels, 10).bool())
    splits = dataclasses.replace(
        splits, **dict.fromkeys(PARTS, Pairs(images.pixels, images.labels) if objects == 2 else images)
    )
    learner = prepare(from_config(TrainConfig(**settings), splits), 0.1, Hardware(torch.device(device)))
    batches = Batches(splits.train, 8, device=device, **drawing)
    sums = {name: torch.zeros((), device=device) for name in ("loss_sum", "hits")}
    saving = SimpleNamespace(state=SimpleNamespace(step=0))
    trainer = SimpleNamespace(learner=learner, batches=batches, saving=saving, **sums)
    for images, labels in itertools.islice(batches.epoch(0), 2):
        training.Trainer._step(trainer, images, labels, torch.zeros((), device=device))
        guard.strict = True  # only the first step may wait
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")


def test_nothing_keeps_the_network_of_a_finished_training(tmp_path, monkeypatch):
    small.use(monkeypatch)
    begin, alive = training.Trainer.__init__, []
    begun = lambda self, *args: begin(self, *args) or alive.append(weakref.ref(self))  # noqa: E731
    monkeypatch.setattr(training.Trainer, "__init__", begun)
    CapsNet.from_preset("compact")  # torch's first call on "meta" keeps the frames of its callers
    gc.collect()
    gc.disable()
    try:
        train(small.config(tmp_path, epochs=1, precision="float32"), progress=False)
        assert alive[0]() is None
    finally:
        gc.enable()
