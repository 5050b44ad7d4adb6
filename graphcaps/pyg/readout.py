"""Routing of nodes to their graphs, as an ``Aggregation``."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch_geometric.nn import Aggregation
from torch_geometric.typing import OptTensor

from ..errors import required
from ..nn.node_caps import NodeCapsules, check_iterations
from ..nn.words import pointing
from .channels import check_channels
from .edges import members
from .kept import once


class CapsuleReadout(Aggregation):
    """Graph-level capsules: every node divides its vote among the C class capsules of its graph.

    ``graphcaps.nn.CapsuleReadout`` has the formula. Called as any ``Aggregation`` is, ``readout(x, batch)``, but with
    a dim for capsules in what it gives. ``concat`` takes it away, for ``MultiAggregation`` and for convolutions that
    aggregate their messages so: ``SAGEConv(16, 32, aggr=CapsuleReadout(16, 4, num_caps=4, concat=True))``. The lengths
    are class scores for ``graphcaps.margin_loss``.

    Args:
        in_channels: features of a node, or of each of its capsules where ``in_caps`` > 1. -1: found out from the first
            input.
        out_channels: D, numbers per capsule.
        num_caps: C, capsules of each graph, one per class.
        iterations: R >= 1.
        squash_output: whether capsules are squashed to length < 1.
        dropout: dropout probability of votes: each node supports some classes with nothing.
        in_caps: capsules of each node.
        bias: whether a bias is learned.
        routing: ``"spherical"``, ``"dynamic"`` or ``"uniform"``.
        concentration: kappa before training, > 0: how much is routed at first. Start it larger, at 4 or so, where
            votes are expected to be of several kinds.
        normalise: whether capsules to be squashed are first divided by the root mean square of the features.
        unit_votes: whether a vote is a direction alone, divided by its length. Worth a try where votes are of several
            kinds, with a concentration of 4 or so.
        engine: as in ``graphcaps.route``.
        concat: True: a graph's capsules one after another, (B, *, num_caps * out_channels).

    Shapes:
        x (N, *, in_channels), or (N, *, in_caps, in_channels) for in_caps > 1; index (N,)
        -> (B, *, num_caps, out_channels), or with ``concat`` (B, *, num_caps * out_channels); a graph without nodes
        gives squash(bias)

    >>> readout = CapsuleReadout(10, 16, num_caps=2)
    >>> readout, readout(torch.ones(5, 10), torch.tensor([0, 0, 1, 1, 1])).shape
    (CapsuleReadout(10, 16, num_caps=2), torch.Size([2, 2, 16]))
    """

    @pointing
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_caps: int,
        iterations: int = 3,
        squash_output: bool = True,
        dropout: float = 0.0,
        in_caps: int = 1,
        bias: bool = True,
        routing: str = "spherical",
        concentration: float = 0.5,
        normalise: bool = True,
        unit_votes: bool = False,
        engine: str = "auto",
        concat: bool = False,
    ):
        super().__init__()
        check_iterations(iterations)
        check_channels(in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels, self.num_caps = in_channels, out_channels, num_caps
        self.concat = concat
        self.capsules = NodeCapsules(
            in_channels,
            out_channels,
            num_caps,
            in_caps,
            iterations,
            "capsules",
            squash_output,
            dropout,
            bias,
            routing,
            concentration,
            normalise,
            unit_votes,
            engine,
            called="x",
        )

    def reset_parameters(self) -> None:
        """Draw the weights as ``CapsuleConv`` does; the bias is zero."""
        self.capsules.reset_parameters()

    def __call__(
        self,
        x: torch.Tensor,
        index: OptTensor = None,
        ptr: OptTensor = None,
        dim_size: int | None = None,
        dim: int = 0,
        **options: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        if torch.compiler.is_dynamo_compiling():
            from ..routing.compiled import apart

            return apart(self, x, index, ptr, dim_size, dim, **options)
        # Other aggregations count from the back, where a node's features may here be two dims.
        if index is None and ptr is None and -x.dim() <= dim < x.dim():
            index, dim_size = _zeros(x.size(dim), x.device), min(1, x.size(dim)) if dim_size is None else dim_size
        elif ptr is None and index is not None and dim_size is None:
            dim_size = once(index, "groups", lambda: index, _num_groups)
        return super().__call__(x, index, ptr, dim_size, dim, **options)

    @pointing
    def forward(
        self,
        x: torch.Tensor,
        index: OptTensor = None,
        ptr: OptTensor = None,
        dim_size: int | None = None,
        dim: int = 0,
        max_num_elements: int | None = None,
        return_coupling: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Route nodes to their graphs.

        Args:
            x: (N, *, in_channels).
            index: (N,), the graph of each node, in any order; default: all are of one graph.
            ptr: (B + 1,), where each graph's nodes begin, in the place of index.
            dim_size: B; default: one more than the largest index.
            dim: which of x's dims is N.
            max_num_elements: as other aggregations take it; not used.
            return_coupling: also give c (N, *, in_caps, num_caps), detached: which class each node supports.

        Returns:
            (B, *, num_caps, out_channels), B in the place of N; with ``return_coupling`` a pair.
        """
        num_groups = required(dim_size, "dim_size", "the number of graphs")
        name, held = ("ptr", ptr) if index is None else ("index", index)
        graph = once(held, (name, num_groups), lambda: held, lambda own: members(name, own, num_groups))
        dim = dim % x.dim()
        found = self.capsules(graph, x.movedim(dim, 0), None, return_coupling)
        out = found[0] if return_coupling else found
        out = (out.flatten(-2) if self.concat else out).movedim(0, dim)
        return (out, found[1].movedim(0, dim)) if return_coupling else out

    def __repr__(self) -> str:
        said = f"{self.in_channels}, {self.out_channels}, num_caps={self.num_caps}"
        return f"{type(self).__name__}({said}{', concat=True' * self.concat})"


CapsuleAggregation = CapsuleReadout  # as PyG names those that it has


def _num_groups(index: torch.Tensor) -> int:
    return int(index.max()) + 1 if len(index) else 0


@functools.lru_cache(maxsize=32)
def _zeros(count: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device=device)
