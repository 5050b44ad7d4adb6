"""The training step as a CUDA graph: its weights are the eager ones', and nothing in a step waits for the device.

There may be no GPU. ``Recorded`` then stands in for a CUDA graph, and the device "meta" for a GPU.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphcaps import CapsNet, TrainConfig, train
from graphcaps.training import capture, checkpoint
from graphcaps.training import loop as training
from graphcaps.training.run_folder import Run

from . import small
from .test_training import interrupted

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Recorded(TorchDispatchMode):
    """A CUDA graph without CUDA: it does its operations again, on the same memory and with the same Python numbers."""

    def __init__(self):
        super().__init__()
        self.operations, self.before, self.replays = [], {}, 0

    def warm_up(self, function):
        return function(), False

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor):  # what the step finds is restored after the capture
                self.before.setdefault(x.untyped_storage().data_ptr(), (x.detach(), x.clone()))
        found = operation(*args, **(kwargs or {}))
        for x in tree_leaves(found):
            if isinstance(x, torch.Tensor):
                self.before.setdefault(x.untyped_storage().data_ptr(), None)
        self.operations.append((operation, args, kwargs or {}, found))
        return found

    def capture(self, function):
        random = torch.get_rng_state()
        with self:
            result = function()
        torch.set_rng_state(random)
        for pair in filter(None, self.before.values()):
            pair[0].copy_(pair[1])
        return result

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for operation, args, kwargs, before in self.operations:
            found = operation(*args, **kwargs)
            if not any(x.alias_info for x in operation._schema.returns):  # neither a view nor in place
                for old, new in zip(tree_leaves(before), tree_leaves(found), strict=True):
                    if isinstance(old, torch.Tensor):
                        old.copy_(new)


def results(path) -> dict:
    """Weights, Adam's state and states of random number generators after the last epoch, and the metrics."""
    run = Run.open(path)
    tensors = {name: tensor.numpy() for name, tensor in checkpoint.read(run.checkpoint("last"))[0].items()}
    return tensors | {"metrics": [small.timeless(row) for row in run.metrics()]}


@pytest.fixture
def graphs(monkeypatch, device):
    """The graphs of all trainings that the test captures; on the CPU, they are ``Recorded``."""
    made, new = [], capture.Graph if device == "cuda" else Recorded
    monkeypatch.setattr(capture, "Graph", lambda: made.append(new()) or made[-1])
    rate, begin = training.one_cycle, training.Trainer.__init__
    monkeypatch.setattr(training, "one_cycle", lambda *args: float(np.float32(rate(*args))))  # as a tensor has it

    def begin_on_cpu(self, *args):
        begin(self, *args)
        if self.config.capture:
            self.learner.optimizer.param_groups[0]["lr"] = torch.tensor(self.config.peak_rate)
            self.step = capture.CapturedStep(self.learner, self._step, self.config.batch_size, self.progress.say)

    if device == "cpu":
        monkeypatch.setattr(training.Trainer, "__init__", begin_on_cpu)
    return made


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize(
    ("model", "size"),
    [("compact", 12), *(pytest.param(*each, marks=pytest.mark.long) for each in (("matrix-small", 17), ("cnn", 9)))],
)
def test_captured_steps_make_the_weights_of_eager_steps(tmp_path, monkeypatch, graphs, device, model, size):
    """There are 4 batches of 25 and one of 20 in an epoch: 3 warm-ups, a replay, an eager step, 4 replays, ..."""
    small.use(monkeypatch, small.digits(size=size))
    loss = CapsNet.loss  # of all networks, only the slow matrix capsules have a loss that depends on the progress
    monkeypatch.setattr(CapsNet, "loss", lambda self, *batch: loss(self, *batch) * (1 + (batch[3:] or [0])[0]))
    settings = {"model": model, "engine": "torch", "batch_size": 25, "device": device, "deterministic": True}
    train(small.config(tmp_path, name="eager", capture=False, **settings), progress=False)
    assert graphs == []
    train(small.config(tmp_path, **settings), progress=False)
    interrupted(small.config(tmp_path, name="resumed", **settings), 2)
    train(TrainConfig(), resume=tmp_path / "resumed", progress=False)
    if device == "cpu":
        assert [graph.replays for graph in graphs] == [5, 0, 3]
    for name in ("run", "resumed"):
        assert small.differences(results(tmp_path / name), results(tmp_path / "eager")) == []
