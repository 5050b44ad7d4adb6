"""What ``torch.compile`` can't trace: DGL, whose graphs become constants or are passed to operators.

Import this only while torch traces: it loads torch's compiler.
"""

from typing import Any

import torch
from torch import Tensor

from .._dgl import DGLGraph
from ..graph import Links, graph_of, links, membership, reverse_edges
from ..graph.nodes import check_edges
from ..tracing import TAKES_GRAPHS


@torch.compiler.assume_constant_result
def constant_ends(sizes: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    """Return ``src`` and ``dst`` of ``graph_of(sizes)`` as constants of the compiled program."""
    edges = links(graph_of(sizes), device)
    return edges.src, edges.dst


def links_of(graph: DGLGraph, layer: Any, allow_zero_in_degree: bool, members: bool = False) -> Links:
    """Return the links of a graph, or of ``membership(graph)``, that ``layer`` (NodeCapsules) routes along.

    The sizes are those of DGL's storage for features, which torch can trace. The compiled program gets the tensors from
    the graph that it is called with.
    """
    (source,), (target,) = graph._srctypes_invmap.values(), graph._dsttypes_invmap.values()
    children, parents = (graph._node_frames[index].num_rows for index in (source, target))
    edges, batch = graph._edge_frames[0].num_rows, None
    if members:
        (batch,) = (graph._batch_num_nodes or {"": torch.tensor([children])}).values()
        edges, parents = children, batch.shape[0]
    sizes, device = (edges, children, parents), layer.weight.device
    how = layer.in_caps, layer.weight_edge is not None, layer.mutual, allow_zero_in_degree, device
    src, dst, reverse, *rows = torch.ops.graphcaps.edges(graph._graph.graphcaps_handle, batch, *sizes, *how)
    return Links(src, dst, children, parents, False, rows, reverse)


if TAKES_GRAPHS:
    SIZES = "SymInt edges, SymInt children, SymInt parents"

    # It returns copies, because the program may write to the memory of the results.
    @torch.library.custom_op(
        "graphcaps::edges",
        mutates_args=(),
        tags=[torch.Tag.cudagraph_unsafe],
        schema=f"(graphcaps.tracing.Handle handle, Tensor? batch, {SIZES}, int caps_in, bool per_edge, "
        "bool mutual, bool allow_zero_in_degree, Device device) -> Tensor[]",
    )
    def _edges(handle, batch, edges, children, parents, caps_in, per_edge, mutual, allow_zero_in_degree, device):
        structure = handle.structure()
        types = structure.number_of_ntypes(), structure.number_of_etypes()
        graph = DGLGraph(structure, *([str(index) for index in range(count)] for count in types))
        check_edges(graph, allow_zero_in_degree)
        if batch is not None:
            graph.set_batch_num_nodes(batch)
            graph = membership(graph)
        ends = links(graph, device)
        assert (edges, children, parents) == (len(ends.src), ends.num_children, ends.num_parents)
        found = [ends.src, ends.dst, reverse_edges(graph).to(device) if mutual else ends.src[:0]]
        if device.type == "cpu":
            from .cpu.by_node import rows_by_node

            found += rows_by_node(graph, caps_in, per_edge, mutual)[:4]
        return [tensor.clone() for tensor in found]

    @_edges.register_fake
    def _(handle, batch, edges, children, parents, caps_in, per_edge, mutual, allow_zero_in_degree, device):
        index = torch.int32 if edges * caps_in < 2**31 else torch.int64
        both, rows = edges if mutual else 0, edges * caps_in
        tensors = [(edges, torch.int64), (edges, torch.int64), (both, torch.int64)]
        if device.type == "cpu":
            tensors += [(parents + 1, torch.int64), (rows, index), (rows, index), (both, index)]
        return [torch.empty(size, dtype=dtype, device=device) for size, dtype in tensors]
