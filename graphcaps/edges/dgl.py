"""Routing by DGL's message, reduce and apply-edges functions, on any graph."""

from torch import Tensor

from .. import _dgl
from ..algorithms.base import Routing
from ..algorithms.votes import Votes
from ..graph import Links, bipartite_graph
from ..tracing import is_tracing, run_untraced
from .scatter import Edges
from .second_derivative import refuse_second_derivative


class DGLEdges(Edges):
    """DGL's operations on the bipartite DGLGraph of the links. Its edges hold votes ``u_hat`` and couplings ``c``.

    DGL can't compute second derivatives, so they raise an error. Other operations are torch's, which are as fast.
    """

    engine = "dgl"

    @classmethod
    def needs(cls, links: Links, votes: Votes, routing: Routing) -> str:
        if is_tracing() or links.traced:
            return "a call that torch doesn't trace or transform"
        if not _dgl.is_installed():
            return f"DGL: {_dgl.install_command()}"
        if votes.device.type != "cpu" and not _dgl.has_cuda():
            return f"a DGL that was built for {votes.device.type}"
        return ""

    def __init__(self, links: Links, votes: Votes):
        super().__init__(links, votes)
        sizes = links.num_children, links.num_parents
        self.graph = links.cached(
            "graph", lambda: run_untraced(lambda: bipartite_graph(links.src, links.dst, *sizes))
        ).local_var()

    def child_softmax(self, b: Tensor) -> Tensor:
        return _dgl.edge_softmax(self.graph, refuse_second_derivative(b), norm_by="src")

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        c, u_hat = refuse_second_derivative(c), refuse_second_derivative(u_hat)
        self.graph.edata["c"], self.graph.edata["u_hat"] = c.unsqueeze(-1), u_hat
        self.graph.update_all(lambda edges: {"m": edges.data["c"] * edges.data["u_hat"]}, _dgl.function.sum("m", "s"))
        return self.graph.dstdata.pop("s")

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        u_hat, v = refuse_second_derivative(u_hat), refuse_second_derivative(v)
        self.graph.edata["u_hat"], self.graph.dstdata["v"] = u_hat, v
        self.graph.apply_edges(_dgl.function.e_dot_v("u_hat", "v", "agreement"))
        return self.graph.edata.pop("agreement").squeeze(-1)
