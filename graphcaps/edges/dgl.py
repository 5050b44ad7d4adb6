"""Routing by DGL's message, reduce and apply-edges functions, on any graph and on the graph's device."""

from torch import Tensor

from .._dgl import DGLGraph, edge_softmax, function, has_cuda
from ..algorithms.base import Routing
from ..algorithms.votes import Votes
from ..graph import Links
from ..tracing import is_tracing
from .scatter import Edges
from .second_derivative import refuse_second_derivative


class DGLEdges(Edges):
    """DGL's operations on a view of the graph, so that the caller's graph doesn't change.

    DGL can't compute second derivatives, so they raise an error. Other operations are torch's, which are as fast.
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
        self.graph.update_all(lambda edges: {"m": edges.data["c"] * edges.data["u_hat"]}, function.sum("m", "s"))
        return self.graph.dstdata.pop("s")

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        u_hat, v = refuse_second_derivative(u_hat), refuse_second_derivative(v)
        self.graph.edata["u_hat"], self.graph.dstdata["v"] = u_hat, v
        self.graph.apply_edges(function.e_dot_v("u_hat", "v", "agreement"))
        return self.graph.edata.pop("agreement").squeeze(-1)
