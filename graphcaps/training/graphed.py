"""A training step as one CUDA graph: its kernels are started at once, where a program starts a few hundred one by one.

A graph does again what was done while it was captured, on the same memory and with the same Python numbers. So images,
labels, learning rate and progress are tensors here, which are written before each replay. Capturing follows PyTorch's
notes on CUDA graphs: some steps on a stream of their own, then one that is recorded.

Nobody has run this on every GPU. ``graphed`` makes some steps both ways from the same weights, and gives the graph only
where both end at the same ones. The weights are then what they were before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import expect
from .step import Learner, set_rate, training_step

WARM_UPS, TRIALS = 3, 3
# Share of the way that the weights went. Some sums are added in another order each time, and Adam makes a whole step of
# a gradient that is nothing but their rounding; a rate, a batch or a gradient of another step is off by about 1.
TOLERANCE = 0.05
Result = tuple[Tensor, Any]  # loss and output
Capture = Callable[[Callable[[], Result]], tuple[Result, Callable[[], object]]]


def check_step(step: str, device: str) -> None:
    """Raise ``InputError`` where a graph is asked for on a device that has none."""
    then = "Leave --step out, or train on a GPU: --device cuda"
    expect(step != "graph" or device == "cuda", "step", f"auto or eager on {device}", step, then)


def wants_graph(step: str, device: str, processes: int, deterministic: bool) -> bool:
    """Whether a training with these settings tries a graph; where there can be none, that is said.

    On no CUDA device only a resumed training comes here with "graph": it may have moved, and keeps its settings.
    """
    lacks = "a CUDA device" if device != "cuda" else "one process" if processes > 1 else ""
    if step == "graph" and lacks:
        warnings.warn(f"step: a graph needs {lacks}; single kernels are started", RuntimeWarning, stacklevel=3)
    return not lacks and (step == "graph" or (step == "auto" and not deterministic))


def capture_on_cuda(step: Callable[[], Result]) -> tuple[Result, Callable[[], object]]:
    """Record ``step`` as a CUDA graph: where its results will be, and what makes it again."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    return found, graph.replay


class GraphedStep:
    """``training_step`` of a learner for batches of one shape, at the rate that the optimizer's groups hold."""

    def __init__(self, learner: Learner, images: Tensor, labels: Tensor, capture: Capture):
        self.images, self.labels, self.progress = images.clone(), labels.clone(), images.new_zeros(())
        groups = learner.optimizer.param_groups
        for group in groups:
            group.update(lr=images.new_full((), group["lr"]), capturable=True)
        self.found, self.replay = capture(lambda: training_step(learner, self.images, self.labels, self.progress))
        for group in groups:
            group["capturable"] = False  # of steps that are not captured, for batches of another shape

    def fits(self, images: Tensor) -> bool:
        """Whether the graph is for such a batch."""
        return images.shape == self.images.shape

    def __call__(self, images: Tensor, labels: Tensor, progress: float) -> Result:
        """Loss and output, which the next call overwrites."""
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.progress.fill_(progress)
        self.replay()
        return self.found


def graphed(
    learner: Learner, images: Tensor, labels: Tensor, capture: Capture = capture_on_cuda
) -> tuple[GraphedStep | None, str]:
    """The learner's step as a graph for such batches, or None and why not; weights and optimizer stay as they are."""
    rate = float(learner.optimizer.param_groups[0]["lr"])
    before = _State(learner, images, labels)
    steps, why = None, ""
    try:
        wanted = _tried(learner, images, labels, rate, lambda *batch: training_step(learner, *batch)[0])
        start, way = before.weights(), _weights(learner)
        before.put_back()
        steps = GraphedStep(learner, images, labels, capture)
        before.put_back()
        replayed = steps
        losses = _tried(learner, images, labels, rate, lambda *batch: replayed(*batch)[0])
        off = float((_weights(learner) - way).norm() / (way - start).norm())
        apart = float(((losses - wanted) / wanted).abs().max())
        if not (off <= TOLERANCE and apart <= TOLERANCE):  # as NaN isn't
            why = f"after {TRIALS} steps its weights are off by {off:.2g} of the way, its losses by {apart:.2g}"
    except Exception as error:  # of a capture: whatever it is, there is no graph
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    before.put_back()
    if why:
        for group in learner.optimizer.param_groups:
            group.update(lr=rate, capturable=False)
    set_rate(learner.optimizer, rate)
    return (None if why else steps), why


def _tried(learner: Learner, images: Tensor, labels: Tensor, rate: float, step: Callable[..., Tensor]) -> Tensor:
    """Losses of some steps, each with a batch, a rate and a progress of its own."""
    losses = []
    for k in range(TRIALS):
        set_rate(learner.optimizer, rate * 2**k)
        losses.append(step(images * (1 - k / 4), labels.roll(k, 0), k / TRIALS).clone())
    return torch.stack(losses)


def _weights(learner: Learner) -> Tensor:
    return torch.cat([x.detach().double().flatten() for x in learner.network.parameters()])


class _State:
    """All that a step changes: weights, buffers, the optimizer's moments and random numbers."""

    def __init__(self, learner: Learner, images: Tensor, labels: Tensor):
        self.random = torch.cuda if images.device.type == "cuda" else torch
        self.numbers = self.random.get_rng_state()
        network, optimizer = learner.network, learner.optimizer
        self.tensors = [*network.parameters(), *network.buffers()]
        self.kept = [x.detach().clone() for x in self.tensors]
        self.parameters = len(list(network.parameters()))
        new = not optimizer.state
        if new:  # which Adam makes in its first step, of zeros
            training_step(learner, images, labels)
        moments = [x for each in optimizer.state.values() for x in each.values() if isinstance(x, Tensor)]
        self.kept += [torch.zeros_like(x) if new else x.clone() for x in moments]
        self.tensors += moments
        self.put_back()

    def weights(self) -> Tensor:
        return torch.cat([x.double().flatten() for x in self.kept[: self.parameters]])

    @torch.no_grad()
    def put_back(self) -> None:
        for tensor, kept in zip(self.tensors, self.kept, strict=True):
            tensor.copy_(kept)
        self.random.set_rng_state(self.numbers)
