"""Conversion of PyTorch Geometric's edges, in any of their forms and with optional self-loops, to ``Links``."""

import weakref
from typing import NamedTuple

import torch
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.typing import Adj, OptTensor
from torch_geometric.utils import is_sparse, is_torch_sparse_tensor, to_edge_index, to_torch_sparse_tensor

from ..errors import check_tensor, expect
from ..graph import Links
from ..tracing import is_tracing


class EdgesWithLoops(NamedTuple):
    """The edges of a call, and how they follow from those given: with ``kept``, self-loops were replaced."""

    links: Links
    num_given: int
    """E, the number of edges before that."""
    kept: OptTensor = None
    """With self-loops: (E',) indices of the given edges that are kept and come first, before a loop for each node."""
    num_nodes: int = 0
    """With self-loops: N. In a trace, loops that were given lead to a node N, because all given edges must be kept."""

    @property
    def edges(self) -> torch.Tensor:
        """(2, E' + N) int64."""
        return torch.stack((self.links.src, self.links.dst))

    def values(self, name: str, given: OptTensor) -> OptTensor:
        """The kept edges' weights or features, followed by those of the self-loops: weight 1, mean features."""
        if given is None:
            return None
        expect(given.shape[0] == self.num_given, name, f"(E={self.num_given}, ...)", tuple(given.shape))
        if self.kept is None:
            return given
        kept = given[self.kept]
        if name == "edge_weight":
            return torch.cat((kept, kept.new_ones(self.num_nodes, *kept.shape[1:])))
        heads, count = self.links.dst[: kept.shape[0]], self.num_nodes + 1
        total = kept.new_zeros(count, *kept.shape[1:]).index_add(0, heads, kept)
        degree = kept.new_zeros(count).index_add(0, heads, kept.new_ones(kept.shape[0])).clamp_min(1)
        mean = total / degree.view(-1, *[1] * (kept.dim() - 1))
        return torch.cat((kept, mean[: self.num_nodes]))


_of_tensors: dict[tuple, tuple[int, EdgesWithLoops]] = {}
"""``links_of_edges`` of the tensors of edges that exist on a GPU, each with the tensor's version."""


def links_of_edges(
    edges: torch.Tensor, num_nodes: tuple[int, int], loops: bool = False, one_kind: bool = False
) -> EdgesWithLoops:
    """Convert edges (2, E) to links. With ``loops``, they end with a single self-loop for each node.

    On a GPU, this waits for the device. So there the result is kept as long as the tensor exists and torch doesn't
    change it.
    """
    if not edges.is_cuda or edges.is_inference() or is_tracing():
        return _links_of_edges(edges, num_nodes, loops, one_kind)
    key = id(edges), num_nodes, loops, one_kind
    version, routed = _of_tensors.get(key, (-1, None))
    if routed is None or version != edges._version:
        if routed is None:
            weakref.finalize(edges, _of_tensors.pop, key, None)
        routed = _links_of_edges(edges, num_nodes, loops, one_kind)
        _of_tensors[key] = edges._version, routed
    return routed


def _links_of_edges(edges: torch.Tensor, num_nodes: tuple[int, int], loops: bool, one_kind: bool) -> EdgesWithLoops:
    (num_sources, num_targets), num_given = num_nodes, edges.size(1)
    links = Links.of(edges[0], edges[1], *num_nodes, one_kind, ("edge_index[0]", "edge_index[1]"))
    if not loops:
        return EdgesWithLoops(links, num_given)
    src, dst, traced = links.src, links.dst, links.traced
    if traced:  # the number of loops isn't known: they lead to a node that no one reads
        kept, dst = torch.arange(num_given, device=edges.device), torch.where(src == dst, num_targets, dst)
    else:
        kept = (src != dst).nonzero()[:, 0]
        src, dst = src[kept], dst[kept]
    nodes = torch.arange(num_targets, device=edges.device)
    targets = num_targets + int(traced)
    links = Links(torch.cat((src, nodes)), torch.cat((dst, nodes)), num_sources, targets, one_kind, traced)
    return EdgesWithLoops(links, num_given, kept, num_targets)


def read_edges(edge_index: Adj) -> tuple[torch.Tensor, OptTensor]:
    """Check edges of any form, and return them as (2, E), with the values of a sparse matrix in the same order."""
    if is_sparse(edge_index):
        if isinstance(edge_index, torch.Tensor) and edge_index.layout == torch.sparse_coo:
            edge_index = edge_index.coalesce()  # a copy, because PyG would coalesce the caller's in place
        transposed, values = to_edge_index(edge_index)
        return transposed.flip(0), values
    advice = "Pass data.x and data.edge_index" if hasattr(edge_index, "edge_index") else ""
    advice = advice or "networkx and others: read_graph(graph).edge_index" * (not isinstance(edge_index, torch.Tensor))
    expect(not advice, "edge_index", "a tensor", type(edge_index).__name__, advice)
    shape = check_tensor("edge_index", edge_index, floating=False).shape
    fits = shape[:1] == (2,) and len(shape) == 2 and not edge_index.is_floating_point()
    expect(fits, "edge_index", "integers (2, E)", f"{edge_index.dtype} {tuple(shape)}")
    return (edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index), None


def in_form_of(
    edge_index: Adj, routed: EdgesWithLoops, c: torch.Tensor, sizes: tuple[int, int]
) -> tuple[Adj, torch.Tensor]:
    """Return the routed edges in the form of ``edge_index``, and their couplings."""
    if is_torch_sparse_tensor(edge_index):
        layout = edge_index.layout
        matrix = to_torch_sparse_tensor(routed.edges.flip(0), c, size=sizes[::-1], layout=layout)
        return matrix, matrix.values()
    if isinstance(edge_index, EdgeIndex):
        return (edge_index if routed.kept is None else EdgeIndex(routed.edges, sparse_size=sizes)), c
    if routed.kept is None and not is_sparse(edge_index):
        return edge_index, c
    expect(not routed.links.traced, "add_self_loops", "False if a trace returns couplings", "True")
    return routed.edges.to(edge_index.dtype if isinstance(edge_index, torch.Tensor) else torch.int64), c
