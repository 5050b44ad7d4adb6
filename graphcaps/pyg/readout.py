"""Readout: the nodes of each graph are routed to the graph's capsules, as an ``Aggregation`` of PyG."""

from typing import Any

import torch
from torch_geometric.nn import Aggregation
from torch_geometric.typing import OptTensor

from ..errors import check_tensor, expect, min_max, required
from ..graph import Links
from ..layer_common import PYG
from ..nn.node_caps import NodeCapsules, NodeOptions
from ..routing import Routing
from ..tracing import is_tracing
from ..typed import Count, Share, Size, typed


class CapsuleReadout(Aggregation):
    """Graph-level capsules: every node divides its vote among the C class capsules of its graph.

    The docstring of ``graphcaps.nn.CapsuleReadout`` gives the details and the other arguments. Its ``in_feats``,
    ``out_feats`` and ``vote_drop`` are ``in_channels``, ``out_channels`` and ``dropout`` here. Call it like any
    ``Aggregation``: ``readout(x, batch)``.

    Args:
        concat: whether a graph's capsules are joined, for ``MultiAggregation`` or for a convolution that aggregates
            its messages by routing: ``SAGEConv(16, 32, aggr=CapsuleReadout(16, 4, num_caps=4, concat=True))``.

    Shapes:
        x (*, N, in_channels), index (N,) -> (*, B, num_caps, out_channels), or with ``concat``
        (*, B, num_caps * out_channels). The result of a graph without nodes is squash(bias)

    >>> readout = CapsuleReadout(10, 16, num_caps=2)
    >>> readout, readout(torch.ones(5, 10), torch.tensor([0, 0, 1, 1, 1])).shape
    (CapsuleReadout(10, 16, num_caps=2), torch.Size([2, 2, 16]))
    """

    @typed
    def __init__(
        self,
        in_channels: int,
        out_channels: Size,
        num_caps: Size,
        routing: Routing | str = "spherical",
        squash_output: bool = True,
        dropout: Share = 0.0,
        bias: bool = True,
        normalise: bool = True,
        concat: bool = False,
        unit_votes: bool = False,
        shared: bool = False,
    ):
        super().__init__()
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.concat = concat
        options = NodeOptions(routing, squash_output, dropout, bias, normalise, unit_votes, shared=shared)
        self.capsules = NodeCapsules(in_channels, out_channels, num_caps, options, PYG)

    def reset_parameters(self) -> None:
        """Draw the weights like ``CapsuleConv``, and set the bias to zero."""
        self.capsules.reset_parameters()

    @typed
    def __call__(
        self,
        x: torch.Tensor,
        index: OptTensor = None,
        ptr: OptTensor = None,
        dim_size: Count | None = None,
        dim: int | None = None,
        **options: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        check_tensor("x", x, floating=False)
        for name, given in (("index", index), ("ptr", ptr)):
            if given is not None:
                whole = check_tensor(name, given, floating=False).dtype in (torch.int64, torch.int32)
                expect(whole and given.dim() == 1, name, "integers of one dim", f"{given.dtype} {tuple(given.shape)}")
        dim = -2 if dim is None else int(dim)
        expect(-x.dim() <= dim < x.dim(), "dim", f"a dim of x, which has {x.dim()}", dim)
        if index is not None:
            expect(index.shape == (x.size(dim),), "index", f"(N={x.size(dim)},)", tuple(index.shape))
            expect(dim_size is not None or not is_tracing(), "dim_size", "the number of graphs, for a trace", "none")
        return super().__call__(x, index, ptr, dim_size, dim, **options)

    def forward(
        self,
        x: torch.Tensor,
        index: OptTensor = None,
        ptr: OptTensor = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
        return_coupling: bool = False,
        prior: OptTensor = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Route nodes to their graphs.

        Args:
            index: (N,), the graph of each node, in any order; default: all nodes are in one graph.
            ptr: (B + 1,), the index of each graph's first node, and N at the end; an alternative to ``index``.
            dim_size: B; default: one more than the largest index.
            dim: the dim that has size N in x and size B in the result; default: the one before a node's features.
            max_num_elements: ignored; other aggregations use it.
            return_coupling: also return c (*, N, 1, num_caps), detached: the classes that each node supports.
            prior: (N, num_caps) or the shape of c, with N first, logits that are added to b; default 0.
        """
        num_groups = required(dim_size, "dim_size", "the number of graphs")
        if index is None:
            ptr = required(ptr, "index", "the graph of each node")
            counts = ptr.diff()
            low, _ = min_max(counts) or (0, 0)
            if ptr.shape[0] == 0 or low < 0 or (min_max(ptr) or (0, x.shape[dim])) != (0, x.shape[dim]):
                expect(False, "ptr", f"the indices of nodes in order, from 0 to {x.shape[dim]}", ptr.tolist())
            index = torch.arange(num_groups, device=ptr.device).repeat_interleave(counts, output_size=x.shape[dim])
        dim = dim % x.dim()
        num_nodes = index.shape[0]
        nodes = torch.arange(num_nodes, device=index.device)
        links = Links.of(nodes, index, num_nodes, num_groups, names=("nodes", "index"))
        out, c = self.capsules(links, x.movedim(dim, 0), None, return_coupling, prior=prior)
        out = (out.flatten(-2) if self.concat else out).movedim(0, dim).contiguous()
        return (out, c.movedim(0, dim)) if return_coupling else out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, num_caps={self.num_caps})"
