"""Routing on the CPU with one pass over the votes per iteration, by kernels that Numba compiles.

``cpu/README.md`` contains the derivation, the notation and a reading order for the kernels. They are imported on first
use, because Numba takes half a second to import.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...torch_tracing import is_tracing
from ..base import Parents, Routing, rule_of, squashed
from ..observers import watched
from ..votes import GivenVotes, LinearVotes, NodeVotes, Votes
from .edges import Edges

MAX_WIDTH = 256  # numbers in a capsule: it is one SIMD vector, and the time to compile grows with its width
NODE_DTYPES = {"cpu": (torch.float32, torch.float64), "cuda": (torch.float32, torch.bfloat16, torch.float16)}
MAX_NODE_NUMBERS = 1024  # limit of K_out * D, because the time to compile a kernel grows with it


class FusedEdges(Edges):
    """Runs a routing by its rule instead of its ``forward``."""

    engine = "fused"

    @classmethod
    def supports(cls, graph: DGLGraph, votes: Votes, routing: Routing) -> str:
        if is_tracing():
            return "a call that torch doesn't trace or transform"
        if votes.device.type != "cpu":
            return "votes on the CPU"
        if not isinstance(votes, (GivenVotes, LinearVotes)):
            return "a tensor of votes, or LinearVotes"
        if rule_of(routing) is None:
            return "a routing with a rule, as Dynamic, Uniform, Spherical and Attention have one"
        return "" if max(votes.u.shape[-1], votes.dim) <= MAX_WIDTH else f"capsules of at most {MAX_WIDTH} numbers"

    def route(self, routing: Routing, prior: Tensor, activation: Tensor | None, coupling: bool) -> Parents:
        from .cpu.by_child import sums

        rule = rule_of(routing)
        assert rule is not None
        s, c = sums(self.graph, self.votes.to(prior.dtype), rule, prior, self.observer, coupling)
        return squashed(s, c)


class FusedNodes:
    """Routing between the capsules of nodes by kernels. The arguments are those of ``route_nodes``."""

    @classmethod
    def supports(cls, votes: NodeVotes, routing: Routing) -> str:
        """Return what the kernels lack for these votes, or "" if they can route them."""
        rule = rule_of(routing)
        if rule is None or rule.kind == "sums":
            return "passes for such a routing"
        if watched():
            return "couplings of single iterations, which an observer is to see"
        wanted = f"votes (N, K_in, K_out, D) with K_out * D <= {MAX_NODE_NUMBERS}, float32, float64 on the CPU"
        return "" if fits_node_kernels(votes.u) else f"{wanted}, half precision on CUDA, where Triton is needed"

    def __init__(self, graph: DGLGraph, votes: NodeVotes, mutual: bool):
        self.graph, self.votes, self.mutual = graph, votes, mutual

    def sums(self, routing: Routing, get_coupling: bool) -> tuple[Tensor, Tensor | None]:
        """Route; return what ``route_nodes`` returns."""
        rule, votes = rule_of(routing), self.votes
        assert rule is not None
        how = rule.kappa, rule.iterations, self.mutual, votes.per_edge, get_coupling
        return node_kernels(votes.u)(self.graph, votes.u, votes.scale, *how)


def node_kernels(z: Tensor) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return ``sums_of_nodes``, which runs the kernels by node, for the device of z."""
    if z.is_cuda:
        from .gpu.nodes import sums_of_nodes
    else:
        from .cpu.by_node import sums_of_nodes
    return sums_of_nodes


def fits_node_kernels(z: Tensor) -> bool:
    """Whether the kernels by node support z (N, K_in, K_out, D)."""
    return (
        z.dim() == 4
        and z.dtype in NODE_DTYPES.get(z.device.type, ())
        and z.shape[-2] * z.shape[-1] <= MAX_NODE_NUMBERS
        and (z.device.type == "cpu" or has_triton())
        and not is_tracing()
    )


@functools.cache
def has_triton() -> bool:
    """Whether Triton can compile the kernels by node. Releases before 3.4, which came with torch 2.8, can't."""
    return torch.__version__ >= "2.8" and importlib.util.find_spec("triton") is not None
