"""Convert edges in any of PyG's forms, with optional self-loops, to a graph for routing."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.typing import Adj, OptTensor
from torch_geometric.utils import is_sparse, is_torch_sparse_tensor, scatter, to_edge_index, to_torch_sparse_tensor

from .._dgl import DGLGraph, has_cuda
from ..errors import InputError, expect
from ..graph import Links, bipartite_graph


class RoutedEdges(NamedTuple):
    """The edges of a call after self-loops were replaced, and the graph made of them."""

    edges: torch.Tensor  # (2, E')
    stayed: OptTensor  # indices of the kept edges, which come first; None: all are kept, and no self-loops added
    num_given: int  # E
    graph: DGLGraph | Links  # Links if torch traces the edges as inputs


def is_exported() -> bool:
    """Whether ``torch.export``, ``torch.onnx`` or ``torch.jit.trace`` is recording the call as a program."""
    exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # torch 2.4 lacks the first
    return exporting() or torch.jit.is_tracing()


def routed_edges(
    name: str, edges: torch.Tensor, num_nodes: tuple[int, int], loops: bool = False, as_links: bool = False
) -> RoutedEdges:
    """Convert edges (2, E) to ``RoutedEdges``. With ``loops``, they end with each node's one and only self-loop."""
    expect(edges.dim() == 2 and edges.size(0) == 2, name, "(2, E)", tuple(edges.shape))
    num_given, stayed = edges.size(1), None
    if loops:
        stayed = (edges[0] != edges[1]).nonzero()[:, 0]
        nodes = torch.arange(num_nodes[1], dtype=edges.dtype, device=edges.device)
        edges = torch.cat((edges[:, stayed], nodes.expand(2, -1)), dim=1)
    if as_links:
        src, dst = edges.long()
        return RoutedEdges(edges, stayed, num_given, Links(src, dst, *num_nodes, complete=False))
    return RoutedEdges(edges, stayed, num_given, _graph(name, edges, *num_nodes))


def with_loops(
    routed: RoutedEdges, num_nodes: int, edge_weight: OptTensor, edge_attr: OptTensor
) -> tuple[OptTensor, OptTensor]:
    """Return weights and features of the kept edges, followed by those of the self-loops: weight 1, mean features."""
    for name, values in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
        if values is not None:
            fits = values.shape[0] == routed.num_given
            expect(fits, name, f"(E={routed.num_given}, ...)", tuple(values.shape))
    if routed.stayed is None:
        return edge_weight, edge_attr
    if edge_weight is not None:
        edge_weight = edge_weight.flatten()[routed.stayed]
        edge_weight = torch.cat((edge_weight, edge_weight.new_ones(num_nodes)))
    if edge_attr is not None:
        edge_attr = edge_attr[routed.stayed]
        heads = routed.edges[1, : edge_attr.shape[0]].long()
        edge_attr = torch.cat((edge_attr, scatter(edge_attr, heads, 0, num_nodes, reduce="mean")))
    return edge_weight, edge_attr


def members(name: str, numbers: torch.Tensor, num_groups: int) -> DGLGraph:
    """Make the graph that links nodes to their groups, from ``index`` (N,) or ``ptr`` (B + 1,)."""
    groups = numbers
    if name == "ptr":
        rising = not numbers.is_floating_point() and bool((numbers.diff() >= 0).all())
        expect(rising, "ptr", "integers in rising order", numbers.dtype if numbers.is_floating_point() else "others")
        expect(numbers[:1].tolist() == [0], "ptr", "0 first, where the first graph's nodes start", numbers[:1].tolist())
        groups = torch.arange(num_groups, device=numbers.device).repeat_interleave(numbers.diff())
    nodes = torch.arange(len(groups), dtype=groups.dtype, device=groups.device)
    return _graph(name, torch.stack((nodes, groups)), len(groups), num_groups)


def _graph(name: str, edges: torch.Tensor, num_sources: int, num_targets: int) -> DGLGraph:
    ends = edges if edges.is_cuda and has_cuda() else edges.cpu()
    try:
        return bipartite_graph(ends[0], ends[1], num_sources, num_targets)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def coalesced(edge_index: Adj) -> Adj:
    """Coalesce edges in a sparse tensor, as a copy: PyG would coalesce the caller's tensor in place."""
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
