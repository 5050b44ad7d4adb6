"""Routing with one pass over the votes per iteration, by kernels that Numba compiles for a CPU and Triton for a GPU.

``cpu/README.md`` contains the derivation, the notation and a reading order for the kernels. They are imported on first
use, because Numba takes half a second to import, and not every machine has Triton.
"""

import functools
import importlib.util

import torch
from torch import Tensor

from .._dgl import DGLGraph
from ..algorithms.base import Parents, Routing, rule_of, squashed
from ..algorithms.observers import watched
from ..algorithms.rule import Rule
from ..algorithms.votes import GivenVotes, LinearVotes, NodeVotes, Votes
from ..edges.dense import DenseEdges
from ..edges.scatter import Edges
from ..graph import Links, links
from ..tracing import is_tracing

MAX_WIDTH = 256  # numbers in a capsule: it is one SIMD vector, and the time to compile grows with its width
NODE_DTYPES = {"cpu": (torch.float32, torch.float64), "cuda": (torch.float32, torch.bfloat16, torch.float16)}
MAX_NODE_NUMBERS = 1024  # limit of K_out * D, because the time to compile a kernel grows with it


class FusedEdges(Edges):
    """Runs a routing by its rule instead of its ``forward``."""

    engine = "fused"

    @classmethod
    def supports(cls, graph: DGLGraph, votes: Votes, routing: Routing) -> str:
        if is_tracing() and not isinstance(graph, Links):
            return "a call that torch doesn't trace or transform"
        if not isinstance(votes, (GivenVotes, LinearVotes)):
            return "a tensor of votes, or LinearVotes"
        rule = rule_of(routing)
        if rule is None:
            return "a routing with a rule, as Dynamic, Uniform, Spherical and Attention have one"
        if on_gpu(votes):
            return _lacks_on_gpu(graph, votes, rule)
        if votes.device.type != "cpu":
            return "votes on the CPU or on CUDA"
        return "" if max(votes.u.shape[-1], votes.dim) <= MAX_WIDTH else f"capsules of at most {MAX_WIDTH} numbers"

    def route(self, routing: Routing, prior: Tensor, activation: Tensor | None, coupling: bool) -> Parents:
        rule = rule_of(routing)
        assert rule is not None
        if on_gpu(self.votes):
            if self.observer is not None:  # the kernels keep nothing that an observer could see
                edges = DenseEdges(self.graph, self.votes)
                edges.observer = self.observer
                return edges.route(routing, prior, activation, coupling)
            from .gpu.dense import route_dense

            return route_dense(self.graph, self.votes, rule, prior, coupling, self.half)
        from .cpu.by_child import sums

        s, c = sums(self.graph, self.votes.to(prior.dtype), rule, prior, self.observer, coupling)
        return squashed(s, c)


def on_gpu(votes: Votes) -> bool:
    """Whether Triton's kernels route these votes, not Numba's."""
    return votes.device.type == "cuda"


def _lacks_on_gpu(graph: DGLGraph, votes: GivenVotes | LinearVotes, rule: Rule) -> str:
    """Return what Triton's kernels lack for these votes, or ""."""
    if not links(graph).complete:
        return "a complete graph on CUDA"
    if rule.kind == "sums" or votes.dtype == torch.float64:
        return "Dynamic, Uniform or Spherical on CUDA, in float32, bfloat16 or float16"
    if votes.dim > 64 or (isinstance(votes, LinearVotes) and votes.u.shape[-1] > 32):
        return "votes of at most 64 numbers on CUDA, and children of at most 32 in LinearVotes"
    return "" if has_triton() else "Triton on CUDA, with torch 2.8 or later"


def lacks_for_nodes(votes: NodeVotes, routing: Routing) -> str:
    """Return what the kernels by node lack for these votes, or "" if ``fused_sums`` can route them."""
    rule = rule_of(routing)
    if rule is None or rule.kind == "sums":
        return "passes for such a routing"
    if votes.prior is not None and on_gpu(votes):
        return "a prior on CUDA"
    if watched():
        return "couplings of single iterations, which an observer is to see"
    wanted = f"votes (N, K_in, K_out, D) with K_out * D <= {MAX_NODE_NUMBERS}, float32, float64 on the CPU"
    return "" if fits_node_kernels(votes.z) else f"{wanted}, half precision on CUDA, where Triton is needed"


def fused_sums(
    graph: DGLGraph | Links, votes: NodeVotes, rule: Rule, mutual: bool = False, get_coupling: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Run the kernels by node for the votes' device; return what ``route_nodes`` returns."""
    if on_gpu(votes):
        from .gpu.nodes import sums_of_nodes
    else:
        from .cpu.by_node import sums_of_nodes
    return sums_of_nodes(graph, votes, rule, mutual, get_coupling)


def fits_node_kernels(z: Tensor) -> bool:
    """Whether the kernels by node support z (N, K_in, K_out, D)."""
    return (
        z.dim() == 4
        and z.dtype in NODE_DTYPES.get(z.device.type, ())
        and z.shape[-2] * z.shape[-1] <= MAX_NODE_NUMBERS
        and (z.device.type == "cpu" or has_triton())
        and (not is_tracing() or (torch.compiler.is_dynamo_compiling() and not z.is_cuda))
    )


@functools.cache
def has_triton() -> bool:
    """Whether Triton can compile all kernels. Releases before 3.4, which came with torch 2.8, can't."""
    return torch.__version__ >= "2.8" and importlib.util.find_spec("triton") is not None
