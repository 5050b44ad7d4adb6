"""Counts what a routed step reads and writes, operation by operation: what bounds its time on a GPU.

    python -m graphcaps.bench.moved

A step of the paper's routing layer, 1152 children, 10 parents, P 8, D 16, 3 iterations, 128 images, float32, forward
and backward. What an operation keeps for itself is not seen, nor is what a cache saves.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..graph import complete_graph, links
from ..routing import LinearVotes
from ..routing.dynamic import dynamic
from ..routing.edge_ops import DenseEdges, ScatterEdges
from ..routing.gradient import lean_dynamic
from .baselines import EINSUM

VIEWS = {"view", "_unsafe_view", "expand", "permute", "transpose", "t", "unsqueeze", "squeeze", "detach", "alias"}
MOVES_NOTHING = VIEWS | {"as_strided", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}


class Moved(TorchDispatchMode):
    """While entered, counts ``operations``, the ``bytes`` they read and write, and keeps their ``names``."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.bytes = 0, 0
        self.names: set[str] = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        name = operation._schema.name.split("::")[1]
        if name not in MOVES_NOTHING:
            tensors = [x for x in tree_leaves((args, kwargs, found)) if isinstance(x, Tensor)]
            self.operations += 1
            self.bytes += sum(_bytes(x) for x in tensors)
            self.names.add(name)
        return found


def _bytes(x: Tensor) -> int:
    """Of the numbers that are there: along a dim of stride 0 they are one, from the cache after the first time."""
    return torch.Size(n for n, s in zip(x.shape, x.stride(), strict=True) if s).numel() * x.element_size()


def main() -> None:
    """Print a line for each way to route."""
    torch.manual_seed(0)
    graph, batch = complete_graph(1152, 10), 128
    u, weight = torch.randn(1152, batch, 8).requires_grad_(), torch.randn(11520, 8, 16).mul(0.1).requires_grad_()
    votes, ends = LinearVotes(u, weight), links(graph)
    prior = torch.zeros(()).expand(11520, batch)

    def dense(algorithm, copied):
        edges = DenseEdges(ends, 3, copied)
        u_hat = edges.vectors_of(votes.grid(ends), by_image=True)
        return algorithm(edges, u_hat, None, edges.numbers_in(prior), 3, None).v

    ways = {
        "scatter, autograd's gradient": lambda: dynamic(ScatterEdges(ends), votes.build(graph), None, prior, 3, None).v,
        "scatter": lambda: lean_dynamic(ScatterEdges(ends), votes.build(graph), None, prior, 3, None).v,
        "einsum, autograd's gradient": lambda: EINSUM.route(
            graph, EINSUM.votes(graph, EINSUM.children(graph, u), EINSUM.weights(graph, weight)), 3
        ),
        "dense, autograd's gradient": lambda: dense(dynamic, True),
        "dense, as on a CPU": lambda: dense(lean_dynamic, True),
        "dense, as elsewhere": lambda: dense(lean_dynamic, False),
    }
    for name, way in ways.items():
        with Moved() as moved:
            torch.autograd.grad(way().square().sum(), (u, weight))
        print(f"{name:30} {moved.bytes / 1e9:.2f} GB in {moved.operations} operations")


if __name__ == "__main__":
    main()
