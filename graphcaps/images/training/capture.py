"""A training step as a CUDA graph: hundreds of kernels that are captured once, and launched together in each step.

A replay repeats the captured kernels with the same memory and the same Python numbers. So everything that changes from
step to step must be in a tensor: images, labels, learning rate and progress.
"""

import random
import re
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules import module
from torch.optim import optimizer

from .step import Learner

T = TypeVar("T")
WARM_UPS = 3  # steps before the capture, in which libraries choose their kernels and Adam makes its state

Step = Callable[[Tensor, Tensor, Any], Tensor]
"""A function of images, labels and progress (a number or a tensor) that makes a training step and returns its loss."""


class Graph:
    """The CUDA graph of a function, and the stream on which the function is captured."""

    def __init__(self) -> None:
        self.stream, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self.replay = self.graph.replay

    def warm_up(self, function: Callable[[], Tensor]) -> tuple[Tensor, bool]:
        """Call the function on the stream. Return its result, and whether it waited for the device."""
        mode = torch.cuda.get_sync_debug_mode()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = function()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        torch.cuda.current_stream().wait_stream(self.stream)
        for warning in caught:
            if "synchronizing" not in str(warning.message):  # torch also says that this mode is a prototype
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return result, any("called a synchronizing CUDA operation" in str(warning.message) for warning in caught)

    def capture(self, function: Callable[[], Tensor]) -> Tensor:
        """Record the function's kernels without running them. Return its result, which ``replay`` computes."""
        # The outer block restores the current stream even if the capture ends with an error.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(self.graph, stream=self.stream):
            return function()


class CapturedStep:
    """A training step on CUDA: eager for the first ``WARM_UPS`` batches, then a replay of one CUDA graph.

    Batches of another size run eagerly; so do all batches if the step can't be captured, or if the GPU's memory isn't
    enough for the graph and a smaller batch or validation. The weights are the same.

    Args:
        learner: its optimizer has the learning rate in a tensor, as ``prepare`` makes it on CUDA.
        step: makes one step of this learner.
        batch_size: B, the size of the batches that are captured.
        say: receives a line with the reason if the step can't be captured.
    """

    def __init__(self, learner: Learner, step: Step, batch_size: int, say: Callable[[str], object] = print):
        self.learner, self.step, self.batch_size, self.say = learner, step, batch_size, say
        self.graph: Graph | None = Graph()
        self.steps = 0  # with batches of this size
        if _has_hooks(learner):
            self._stay_eager("it would not call the hooks of modules, weights or the optimizer")

    def __call__(self, images: Tensor, labels: Tensor, progress: float = 0.0) -> Tensor:
        """Make one step. Return the loss (), which the next step may overwrite."""
        if self.graph is None or len(images) != self.batch_size:
            return self.beside(lambda: self.step(images, labels, progress))
        graph = self.graph
        self.steps += 1
        if self.steps <= WARM_UPS:
            before = _python_numbers(self.learner.network)
            loss, waits = graph.warm_up(lambda: self.step(images, labels, progress))
            if self.steps == WARM_UPS and waits:
                self._stay_eager("it waits for the device")
            elif self.steps == WARM_UPS and before != _python_numbers(self.learner.network):
                self._stay_eager("it changes numbers of Python, which a graph would repeat")
            elif self.steps == WARM_UPS:
                self._capture(graph, images, labels)
            return loss
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.progress.fill_(progress)
        graph.replay()
        return self.loss

    def beside(self, call: Callable[[], T]) -> T:
        """Return ``call()``. If the GPU's memory isn't enough for that and the graph, free the graph and try again."""
        if self.graph is None or self.steps < WARM_UPS:
            return call()
        device, buffers = self.images.device, [(x, x.clone()) for x in self.learner.network.buffers()]
        random_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        try:
            return call()
        except torch.cuda.OutOfMemoryError:
            self._stay_eager("the GPU's memory isn't enough for the graph and all else")
        del self.images, self.labels, self.progress, self.loss
        self.learner.optimizer.zero_grad(set_to_none=True)
        for buffer, before in buffers:
            buffer.copy_(before)
        if random_state is not None:
            torch.cuda.set_rng_state(random_state, device)
        torch.cuda.empty_cache()
        return call()

    def _capture(self, graph: Graph, images: Tensor, labels: Tensor) -> None:
        adam = self.learner.optimizer
        generators = [torch.cuda.default_generators[images.device.index]] if images.is_cuda else []
        random_states = [generator.clone_state() for generator in generators]
        self.images, self.labels = images.clone(), labels.clone()
        self.progress = torch.zeros((), dtype=torch.float64, device=images.device)
        for group in adam.param_groups:  # torch wants it set during a capture, and only then
            group["capturable"] = True
        try:
            self.loss = graph.capture(lambda: self.step(self.images, self.labels, self.progress))
        except Exception as error:  # a user's own routing may raise anything
            self._stay_eager(str(error).partition("\n")[0])
            for generator, state in zip(generators, random_states, strict=True):
                generator.graphsafe_set_state(state)  # torch leaves the generator in the state of a capture
            adam.zero_grad(set_to_none=True)  # these gradients were never computed
        for group in adam.param_groups:
            group["capturable"] = False

    def _stay_eager(self, why: str) -> None:
        self.graph = None
        self.say(f"the training step isn't captured as a CUDA graph: {why}")


def _has_hooks(learner: Learner) -> bool:
    """Whether modules, weights or the optimizer have hooks, which a replay would not call."""
    owners = [*learner.network.modules(), learner.optimizer, module, optimizer]
    attributes = [item for owner in owners for item in vars(owner).items()]
    names = re.compile("(forward|backward|step|global_optimizer).*hooks$")
    of_steps = [hooks for name, hooks in attributes if names.search(name)]
    of_weights = [x for p in learner.network.parameters() for x in (p._backward_hooks, p._post_accumulate_grad_hooks)]
    return any(of_steps) or any(of_weights)


def _python_numbers(network: torch.nn.Module) -> tuple:
    """Return the numbers among the modules' attributes, and the states of the random generators outside torch."""
    attributes = [value for m in network.modules() for value in vars(m).values() if isinstance(value, (int, float))]
    _, keys, *rest = np.random.get_state()
    return attributes, random.getstate(), keys.tobytes(), rest
