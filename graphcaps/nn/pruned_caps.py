"""A fully connected layer with some of its edges: their matrices, and routing on the graph of these edges alone."""

from __future__ import annotations

import copy

import torch
from torch import nn

from .._dgl import DGLGraph
from ..errors import expect
from ..graph import bipartite_graph
from .dense_caps import CapsuleLayer
from .routed import graph_device


class PrunedCaps(CapsuleLayer):
    """A copy of a ``CapsuleLayer`` with some of its edges.

    Its ``state_dict`` includes the edges; a layer pruned to the same number of edges can load it.

    Args:
        layer: the layer, or one that is pruned already.
        kept: (E',) int64, ascending: which of the layer's edges, as ``graphcaps.graph.strongest_edges`` gives them.

    Shapes:
        u (I, B, P) -> v (J, B, D)

    Raises:
        InputError: not ascending indices of the layer's edges.

    >>> PrunedCaps(CapsuleLayer(4, 3), torch.tensor([0, 5, 7]))(torch.zeros(4, 2, 8)).shape
    torch.Size([3, 2, 16])
    """

    edges: torch.Tensor

    def __init__(self, layer: CapsuleLayer, kept: torch.Tensor):
        nn.Module.__init__(self)  # CapsuleLayer's would draw weights for all edges
        fits = isinstance(kept, torch.Tensor) and kept.dtype == torch.int64 and kept.dim() == 1
        expect(fits, "kept", "(E',) int64", f"{tuple(kept.shape)} {kept.dtype}" if torch.is_tensor(kept) else kept)
        kept = kept.to(layer.weight.device)
        inside = not len(kept) or bool(kept[0] >= 0 and kept[-1] < len(layer.weight) and (kept.diff() > 0).all())
        expect(inside, "kept", f"ascending edges of the layer, 0 to {len(layer.weight) - 1}", kept.tolist())
        self.num_children, self.num_parents = layer.num_children, layer.num_parents
        self.routing = copy.deepcopy(layer.routing)
        self.weight = nn.Parameter(layer.weight.detach()[kept], requires_grad=layer.weight.requires_grad)
        prior = layer.prior
        self.prior = None if prior is None else nn.Parameter(prior.detach()[kept], prior.requires_grad)
        # (E',): which edges i * J + j of the complete graph
        self.register_buffer("edges", layer.edges[kept] if isinstance(layer, PrunedCaps) else kept.clone())
        self._graph: DGLGraph | None = None

    def graph(self, device: torch.device | str = "cpu") -> DGLGraph:
        """The graph the layer routes on: on ``device`` where the installed DGL can be there, else on the CPU."""
        device = torch.device(graph_device(device))
        if self._graph is None or self._graph.device != device:
            ends = self.edges.cpu() // self.num_parents, self.edges.cpu() % self.num_parents
            self._graph = bipartite_graph(*ends, self.num_children, self.num_parents).to(device)
        return self._graph.local_var()

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._graph = None  # built from the previous edges
