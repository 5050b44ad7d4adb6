"""Couplings of a routed graph: their entropy, and the conversion of the graph to networkx."""

import networkx
import torch

from .._dgl import DGLGraph
from ..errors import check_tensor, check_unit, expect
from ..typed import typed
from .checks import check_graph
from .links import Links, links_of_graph


def coupling_entropy(graph: DGLGraph, c: torch.Tensor | None = None) -> torch.Tensor:
    """Entropy of each child's couplings, H_i = -sum over its out-edges of c ln c, in nats.

    Uniform couplings have an entropy of ln(number of out-edges). The entropy is 0 for one chosen parent or no edges.

    Args:
        graph: bipartite graph with E edges.
        c: (E, *) couplings in [0, 1]; default: ``graph.edata["c"]``.

    Returns:
        (I, *) in [0, ln J].

    Raises:
        InputError: couplings are missing, aren't one per edge or, on the CPU, are outside [0, 1].

    >>> from graphcaps import complete_graph
    >>> coupling_entropy(complete_graph(1, 4), torch.full((4,), 0.25))
    tensor([1.3863])
    """
    check_graph(graph)
    if c is None:
        expect("c" in graph.edata, "graph", 'edata "c"', sorted(graph.edata), "Pass c, or route with return_graph=True")
        c = graph.edata["c"]
    check_tensor("c", c)
    links = links_of_graph(graph, c.device)
    expect(c.dim() >= 1 and len(c) == links.num_edges, "c", f"(E={links.num_edges}, *)", tuple(c.shape))
    check_unit("c", c, "They are couplings, not logits")
    return entropy_of(links, c)


def entropy_of(links: Links, c: torch.Tensor) -> torch.Tensor:
    """Compute ``coupling_entropy`` without checks, for couplings on the links' device."""
    entropy = c.new_zeros(links.num_children, *c.shape[1:])
    return entropy.index_add(0, links.src, torch.special.entr(c))  # (I, *)


@typed
def to_networkx(routed: DGLGraph, index: tuple[int, ...] = ()) -> networkx.MultiDiGraph:
    """Copy a routed graph to networkx, ready to draw or to write as GraphML.

    Nodes are ``("child", i)`` and ``("parent", j)`` with the attributes ``layer`` (0 or 1), ``index`` and the position
    ``x``, ``y``. An edge's key is its edge id. Its attributes are ``c`` and ``b`` as floats, if the graph has them.

    Args:
        routed: graph with edata ``c`` and ``b`` (E, *), as ``dynamic_routing(..., return_graph=True)`` returns it.
        index: index into the trailing dims: ``(image,)`` if a batch was routed, () if there are no such dims.

    Raises:
        InputError: ``index`` doesn't fit the trailing dims.

    >>> from graphcaps import complete_graph, dynamic_routing
    >>> v, routed = dynamic_routing(complete_graph(3, 2), torch.zeros(6, 4), return_graph=True)
    >>> to_networkx(routed).edges[("child", 0), ("parent", 1), 1]["c"]
    0.5
    """
    check_graph(routed)
    links = links_of_graph(routed)
    features = {}
    for name in ("c", "b"):
        if name in routed.edata:
            trailing = tuple(routed.edata[name].shape[1:])
            fits = len(index) == len(trailing) and all(0 <= k < size for k, size in zip(index, trailing, strict=True))
            expect(fits, "index", f"one index into each trailing dim {trailing} of {name}", index)
            features[name] = routed.edata[name][(slice(None), *index)].tolist()
    drawn = networkx.MultiDiGraph()
    for layer, (kind, count) in enumerate((("child", links.num_children), ("parent", links.num_parents))):
        for k in range(count):
            drawn.add_node((kind, k), layer=layer, index=k, x=float(layer), y=1 - (k + 0.5) / count)
    for e, (i, j) in enumerate(zip(links.src.tolist(), links.dst.tolist(), strict=True)):
        drawn.add_edge(("child", i), ("parent", j), key=e, **{name: values[e] for name, values in features.items()})
    return drawn
