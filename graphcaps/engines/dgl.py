"""Routing by DGL's message, reduce and apply-edges functions, on any graph."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _dgl
from ..algorithms.base import Routing
from ..algorithms.votes import Votes
from ..graph import Links
from ..graph.bipartite import graph_of_links
from ..second_derivative import once_differentiable
from ..tracing import is_tracing
from .edges import Edges


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
        self.graph = graph_of_links(links)

    def child_softmax(self, b: Tensor) -> Tensor:
        return _Once.apply(functools.partial(_dgl.dgl.nn.functional.edge_softmax, self.graph, norm_by="src"), b)

    def weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        return _Once.apply(self._weighted_sum, c, u_hat)

    def _weighted_sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        self.graph.edata["c"], self.graph.edata["u_hat"] = c.unsqueeze(-1), u_hat
        self.graph.update_all(
            lambda edges: {"m": edges.data["c"] * edges.data["u_hat"]}, _dgl.dgl.function.sum("m", "s")
        )
        return self.graph.dstdata.pop("s")

    def agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        return _Once.apply(self._agreement, u_hat, v)

    def _agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        self.graph.edata["u_hat"], self.graph.dstdata["v"] = u_hat, v
        self.graph.apply_edges(_dgl.dgl.function.e_dot_v("u_hat", "v", "agreement"))
        return self.graph.edata.pop("agreement").squeeze(-1)


class _Once(torch.autograd.Function):
    """A function of DGL, which torch can differentiate once."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():
            return function(*tensors)
        ctx.save_for_backward(*tensors)
        ctx.inner = [x.detach().requires_grad_(x.requires_grad) for x in tensors]
        with torch.enable_grad():
            ctx.result = function(*ctx.inner)
        return ctx.result.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needed = [x for x in ctx.inner if x.requires_grad]
        gradients = iter(torch.autograd.grad(ctx.result, needed, grad, retain_graph=True))
        return None, *(next(gradients) if x.requires_grad else None for x in ctx.inner)
