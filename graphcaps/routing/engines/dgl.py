"""Routing by DGL's message, reduce and apply-edges functions, on any graph and on the graph's device."""

from torch import Tensor

from ..._dgl import DGLGraph, edge_softmax, function, has_cuda, ops
from ...graph import Links, bipartite_graph, cached_per_structure
from ...torch_tracing import is_tracing
from ..base import Routing
from ..second_derivative import refuse_second_derivative
from ..votes import Votes
from .edges import Edges


class DGLEdges(Edges):
    """DGL's operations on a view of the graph, so that the caller's graph doesn't change.

    DGL can't compute second derivatives, so they raise an error. Operations without a gradient are torch's.
    """

    engine = "dgl"

    @classmethod
    def supports(cls, graph: DGLGraph, votes: Votes, routing: Routing) -> str:
        if is_tracing() or isinstance(graph, Links):
            return "a call that torch doesn't trace or transform"
        if votes.device != graph.device:
            then = f", as graph.to('{votes.device}') has" if votes.device.type == "cuda" and has_cuda() else ""
            return f"votes and graph on one device{then}; they are on {votes.device} and {graph.device}"
        return ""

    def __init__(self, graph: DGLGraph, votes: Votes):
        super().__init__(graph, votes)
        self.graph = graph.local_var()

    def child_softmax(self, b: Tensor) -> Tensor:
        return edge_softmax(self.graph, refuse_second_derivative(b), norm_by="src")

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        c, u_hat = refuse_second_derivative(c), refuse_second_derivative(u_hat)
        self.graph.edata["c"], self.graph.edata["u_hat"] = c.unsqueeze(-1), u_hat
        self.graph.update_all(_message, function.sum("m", "s"))
        return self.graph.dstdata.pop("s")

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        u_hat, v = refuse_second_derivative(u_hat), refuse_second_derivative(v)
        self.graph.edata["u_hat"], self.graph.dstdata["v"] = u_hat, v
        self.graph.apply_edges(function.e_dot_v("u_hat", "v", "agreement"))
        return self.graph.edata.pop("agreement").squeeze(-1)

    # Below, copies and plain sums call DGL's kernels directly, because storing a feature on the graph takes 0.1 ms.
    def sum_to_parents(self, x: Tensor) -> Tensor:
        return ops.copy_e_sum(self.graph, refuse_second_derivative(x))

    def child_sum(self, x: Tensor) -> Tensor:
        return self.from_children(ops.copy_e_sum(reversed_graph(self.graph), refuse_second_derivative(x)))

    def from_children(self, x: Tensor) -> Tensor:
        return ops.copy_u(self.graph, refuse_second_derivative(x))

    def from_parents(self, x: Tensor) -> Tensor:
        return ops.copy_v(self.graph, refuse_second_derivative(x))

    def has_votes(self) -> Tensor:
        return self.graph.in_degrees() > 0


@cached_per_structure
def reversed_graph(graph: DGLGraph) -> DGLGraph:
    """Return a graph with the same edges, from parents to children."""
    src, dst = graph.edges(order="eid")
    return bipartite_graph(dst, src, graph.num_dst_nodes(), graph.num_src_nodes())


def _message(edges) -> dict[str, Tensor]:
    return {"m": edges.data["c"] * edges.data["u_hat"]}
