"""Convert edges in any of PyG's forms, with optional self-loops, to a graph for routing."""

import weakref
from typing import NamedTuple

import torch
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.typing import Adj, OptTensor
from torch_geometric.utils import is_sparse, is_torch_sparse_tensor, scatter, to_edge_index, to_torch_sparse_tensor

from .._dgl import DGLGraph, has_cuda
from ..errors import InputError, check_tensor, expect
from ..graph import Links, bipartite_graph
from ..tracing import is_fake, run_untraced


class RoutedEdges(NamedTuple):
    """The edges of a call after self-loops were replaced, and the graph made from these edges."""

    edges: torch.Tensor  # (2, E')
    stayed: OptTensor  # indices of the kept edges, which come first; None: all are kept, and no self-loops added
    num_given: int  # E
    graph: DGLGraph | Links  # Links if torch traces the edges as inputs

    def values(self, name: str, given: OptTensor) -> OptTensor:
        """The kept edges' weights or features, followed by those of the self-loops: weight 1, mean features."""
        if given is None:
            return None
        expect(given.shape[0] == self.num_given, name, f"(E={self.num_given}, ...)", tuple(given.shape))
        if self.stayed is None:
            return given
        kept, num_nodes = given[self.stayed], self.edges.size(1) - self.stayed.size(0)
        if name == "edge_weight":
            return torch.cat((kept, kept.new_ones(num_nodes, *kept.shape[1:])))
        heads = self.edges[1, : kept.shape[0]].long()
        return torch.cat((kept, scatter(kept, heads, 0, num_nodes, reduce="mean")))


_of_tensors: dict[tuple, tuple[int, RoutedEdges]] = {}
"""``routed_edges`` of the tensors of edges that exist on a GPU, each with the tensor's version."""


def is_exported() -> bool:
    """Whether ``torch.export``, ``torch.onnx`` or ``torch.jit.trace`` is recording the call as a program."""
    exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # torch 2.4 lacks the first
    return exporting() or torch.jit.is_tracing()


def routed_edges(
    edges: torch.Tensor, num_nodes: tuple[int, int], loops: bool = False, as_links: bool = False
) -> RoutedEdges:
    """Convert edges (2, E) to ``RoutedEdges``. With ``loops``, they end with a single self-loop for each node.

    On a GPU, this waits for the device. So there the result is kept as long as the tensor exists and torch doesn't
    change it.
    """
    if not edges.is_cuda or edges.is_inference() or as_links:
        return _routed_edges(edges, num_nodes, loops, as_links)
    key = id(edges), num_nodes, loops
    version, routed = _of_tensors.get(key, (-1, None))
    if routed is None or version != edges._version:
        if routed is None:
            weakref.finalize(edges, _of_tensors.pop, key, None)
        routed = _routed_edges(edges, num_nodes, loops, as_links)
        _of_tensors[key] = edges._version, routed if loops else routed._replace(edges=edges.new_empty(0))
    return routed if loops else routed._replace(edges=edges)


def _routed_edges(edges: torch.Tensor, num_nodes: tuple[int, int], loops: bool, as_links: bool) -> RoutedEdges:
    num_given, stayed = edges.size(1), None
    if loops:
        stayed = (edges[0] != edges[1]).nonzero()[:, 0]
        nodes = torch.arange(num_nodes[1], dtype=edges.dtype, device=edges.device)
        edges = torch.cat((edges[:, stayed], nodes.expand(2, -1)), dim=1)
    if as_links:
        src, dst = edges.long()
        return RoutedEdges(edges, stayed, num_given, Links(src, dst, *num_nodes, complete=False))
    return RoutedEdges(edges, stayed, num_given, _graph("edge_index", edges, *num_nodes))


def members(index: torch.Tensor, num_groups: int) -> DGLGraph | Links:
    """Make the graph that links node n to group ``index[n]``."""
    nodes = torch.arange(index.shape[0], dtype=index.dtype, device=index.device)
    if is_exported() or is_fake():
        return Links(nodes.long(), index.long(), index.shape[0], num_groups, complete=False)
    return run_untraced(lambda: _graph("index", torch.stack((nodes, index)), len(index), num_groups))


def _graph(name: str, edges: torch.Tensor, num_sources: int, num_targets: int) -> DGLGraph:
    ends = edges if edges.is_cuda and has_cuda() else edges.cpu()
    try:
        return bipartite_graph(ends[0], ends[1], num_sources, num_targets)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def coalesced(edge_index: Adj) -> Adj:
    """Check the edges, and coalesce a copy of a sparse tensor, because PyG would coalesce the caller's in place."""
    if not is_sparse(edge_index):
        shape = check_tensor("edge_index", edge_index, floating=False).shape
        fits = shape[:1] == (2,) and len(shape) == 2 and not edge_index.is_floating_point()
        expect(fits, "edge_index", "integers (2, E)", f"{edge_index.dtype} {tuple(shape)}")
    if isinstance(edge_index, torch.Tensor) and edge_index.layout == torch.sparse_coo:
        return edge_index.coalesce()
    return edge_index


def pairs(edge_index: Adj) -> torch.Tensor:
    """Convert coalesced edges from any form to (2, E)."""
    if is_sparse(edge_index):
        transposed, _ = to_edge_index(edge_index)
        return transposed.flip(0)
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index


def values_of(matrix: Adj) -> OptTensor:
    """The values of a coalesced sparse matrix, in the order of its edges."""
    return matrix.values() if isinstance(matrix, torch.Tensor) else to_edge_index(matrix)[1]


def in_form_of(
    edge_index: Adj, routed: RoutedEdges, c: torch.Tensor, sizes: tuple[int, int]
) -> tuple[Adj, torch.Tensor]:
    """Return the routed edges in the form of ``edge_index``, and their couplings."""
    if is_torch_sparse_tensor(edge_index):
        layout = edge_index.layout
        matrix = to_torch_sparse_tensor(routed.edges.long().flip(0), c, size=sizes[::-1], layout=layout)
        return matrix, matrix.values()
    if isinstance(edge_index, EdgeIndex):
        return (edge_index if routed.stayed is None else EdgeIndex(routed.edges.clone(), sparse_size=sizes)), c
    return (edge_index if routed.stayed is None and not is_sparse(edge_index) else routed.edges.clone()), c
