"""An HTML page with a ``CapsuleConv`` and a graph. It routes again when you change an edge or a feature.

Keys of the page's data, which ``viz/explorer/page/node_conv.js`` reads::

    title      description of the layer       source   description of the graph: ["34 nodes", "190 edges"]
    names      N names of nodes               at       N positions [x, y], y upwards
    labels     null, or N class indices       classes  names of the classes
    src, dst   ends of the E edges            weight   null, or E edge weights
    whole      null, or N bools: whether the page has all in-edges of the node, so that its capsules equal the layer's
    sample     null, or {"edges", "around"} if only a part of the graph is shown: the number of edges of the whole
               graph, and the name of the node in the centre of the part, or null
    two_way    whether each edge has its reverse edge; if so, the page adds and removes them together
    feat       (N, F) features                matrix   (F, K, D): W             bias   (K, D), or null
    routing, iterations, concentration, unit_votes, mutual, squash, normalise: settings of the layer
    colors     K colours, "#rrggbb"

Arrays are packed by ``viz.explorer.data.packed``, in float32.
"""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch

from .._dgl import DGLGraph, dgl
from ..algorithms.names import name_of
from ..atomic import reading, write_text
from ..errors import check_tensor, did_you_mean, expect
from ..graph import check_graph, links_of_graph
from ..nn import CapsuleConv
from ..typed import Count, typed
from ..viz import style
from ..viz.explorer.html import graph_page
from ..viz.routing.layout import laid_out
from .hidden_edges import train_on_hidden_edges
from .network import packed

GRAPH_PAGE_ROUTINGS = ("spherical", "dynamic", "uniform")
"""The routings that the page can compute."""
MOST_EDGES, SHAPES = 2000, 6
UNDECIDED = 0.95, 0.8  # shares of the largest entropy from which couplings of a given or a trained layer count as equal
TRY = "Try unit_votes=True, Spherical(concentration=4.0) and a task of several causes; or explore_graph(2, graph)"


@typed
def explore_graph(
    conv: CapsuleConv | int,
    graph: DGLGraph | networkx.Graph,
    feat: torch.Tensor | None = None,
    path: str | os.PathLike = "graph.html",
    edge_weight: torch.Tensor | None = None,
    node_names: Sequence[str] | None = None,
    labels: torch.Tensor | Sequence | None = None,
    positions: Mapping[Any, Sequence[float]] | np.ndarray | torch.Tensor | None = None,
    center: Count | str | None = None,
) -> Path:
    """Write an HTML page with a layer and a graph. The page routes again when you change the graph.

    A page has at most 2,000 edges. From a larger graph, it shows only some nodes with all their in-edges: the nodes
    around ``center``, or else the nodes with the largest in-degrees. The capsules of these nodes equal the layer's,
    except with ``mutual``, where they also depend on nodes further away.

    Args:
        conv: a layer with ``Spherical``, ``Dynamic`` or ``Uniform`` routing and ``num_caps`` >= 2, without
            ``edge_feats``, ``residual`` or ``activation``. The page computes the results of ``conv.eval()``. Or K >= 2:
            a layer of K capsules is trained to predict hidden edges, from the graph alone, whose edges go both ways.
        graph: a homogeneous graph with N nodes and E edges, or a networkx graph, whose nodes' names are kept.
        feat: (N, in_feats), the layer's input, in the order of the nodes; None if a layer is trained.
        edge_weight: (E,), the layer's edge weights.
        node_names: N names; default: the nodes' numbers.
        labels: (N,) classes; up to six have their own shape.
        positions: (N, 2) numbers, y upwards, or a dict of pairs as returned by networkx; default: a networkx layout.
        center: for a larger graph, the number or name of the node around which it is shown.

    Raises:
        InputError: the page can't compute the layer, or the arguments don't fit each other.

    >>> import tempfile
    >>> layer, ring = CapsuleConv(5, 4, num_caps=3), dgl.graph(([0, 1, 2], [1, 2, 0]))
    >>> explore_graph(layer, ring, torch.randn(3, 5), f"{tempfile.mkdtemp()}/ring.html").name
    'ring.html'
    """
    trained = isinstance(conv, int)
    if isinstance(graph, networkx.Graph):
        if node_names is None:
            node_names = [", ".join(map(str, node)) if isinstance(node, tuple) else str(node) for node in graph]
        if isinstance(positions, Mapping):
            positions = {k: positions[name] for k, name in enumerate(graph) if name in positions}
        numbered = networkx.convert_node_labels_to_integers(graph.to_undirected() if trained else graph)
        graph = dgl.from_networkx(numbered)
    check_graph(graph)
    expect(len(graph.ntypes) == 1 and not graph.is_block, "graph", "one node type, no block", graph.ntypes)
    count, edges = graph.num_nodes(), graph.num_edges()
    expect(edges > 0, "graph", "edges", "none")
    if isinstance(conv, int):
        expect(feat is None and edge_weight is None, "feat", "none with a number of capsules", "some")
        conv, feat = train_on_hidden_edges(graph, conv)
    _check_layer(conv)
    feat = check_tensor("feat", feat)
    expect(feat.dim() == 2, "feat", "(N, in_feats)", tuple(feat.shape), "A page shows one set of features")
    for name, values in {"node_names": node_names, "labels": labels, "positions": positions}.items():
        if values is not None:
            with reading(name, f"one for each of {count} nodes"):
                length = len(values)
            expect(length == count, name, f"one for each of {count} nodes", length)
    names = [str(name) for name in (range(count) if node_names is None else node_names)]
    if isinstance(center, str):
        expect(center in names, "center", "a node's number or name", repr(center), did_you_mean(center, names))
        center = names.index(center)
    expect(center is None or center < count, "center", f"a node below {count}", center)
    with torch.no_grad():
        # This raises an error if the arguments don't fit the layer.
        _, c = conv.capsules(links_of_graph(graph, feat.device), feat, edge_weight, True)
    if torch.special.entr(c).sum(-1).mean() > UNDECIDED[trained] * math.log(conv.capsules.num_caps):
        advice = "Edges may have more causes, or one: try another number of capsules" if trained else TRY
        warnings.warn(f"couplings stay nearly equal. {advice}", stacklevel=3)
    mutual = conv.capsules.mutual
    chosen, whole = _around(graph, center, mutual) if edges > MOST_EDGES else (torch.arange(edges), None)
    src, dst = (end.long().cpu()[chosen] for end in graph.edges(order="eid"))
    nodes = torch.arange(count) if whole is None else torch.unique(torch.cat([src, dst]))
    src, dst = torch.searchsorted(nodes, src), torch.searchsorted(nodes, dst)
    class_names = [str(label) for label in _listed([] if labels is None else labels)]
    classes, class_of = np.unique(class_names, return_inverse=True)
    if len(classes) > SHAPES:
        warnings.warn(f"labels: {len(classes)} classes aren't shown, because there are {SHAPES} shapes", stacklevel=3)
    weight = None if edge_weight is None else packed(edge_weight.cpu().reshape(-1)[chosen], "float32", "edge_weight")
    data = {
        **_layer_data(conv),
        "source": [f"{count} nodes", f"{edges} edges"],
        "names": [names[n] for n in nodes.tolist()],
        "at": _positions(positions, nodes, src, dst),
        "labels": None if labels is None else class_of[nodes.numpy()].tolist(),
        "classes": classes.tolist(),
        "src": src.tolist(),
        "dst": dst.tolist(),
        "weight": weight,
        "whole": None if whole is None else whole[nodes].tolist(),
        "sample": None if whole is None else {"edges": edges, "around": None if center is None else names[center]},
        "two_way": bool(graph.has_edges_between(*graph.edges()[::-1]).all()),
        "feat": packed(feat.cpu()[nodes], "float32", "feat"),
    }
    write_text(path, graph_page(data))
    return Path(path)


def _layer_data(conv: CapsuleConv) -> dict:
    capsules, routing = conv.capsules, conv.capsules.routing
    return {
        "title": f"CapsuleConv, {capsules.weight.shape[1]} → {capsules.num_caps} × {capsules.out_feats}",
        "matrix": packed(capsules.weight[0], "float32", "the layer's weights"),
        "bias": None if capsules.bias is None else packed(capsules.bias, "float32", "the layer's bias"),
        "routing": name_of(routing),
        "iterations": routing.iterations,
        "concentration": None if (kappa := getattr(routing, "kappa", None)) is None else float(kappa.detach()),
        "unit_votes": capsules.unit_votes,
        "mutual": capsules.mutual,
        "squash": capsules.squash_output,
        "normalise": capsules.normalise,
        "colors": [style.hex_color(k) for k in range(capsules.num_caps)],
    }


def _check_layer(conv: CapsuleConv) -> None:
    advice, got = "The page doesn't compute it", f"{type(conv).__module__}.{type(conv).__name__}"
    if got.endswith(f".{CapsuleConv.__name__}"):
        advice = "Make a layer of graphcaps.nn, and copy the weights with load_state_dict"
    expect(isinstance(conv, CapsuleConv), "conv", "graphcaps.nn.CapsuleConv, or a number of capsules", got, advice)
    capsules, advice = conv.capsules, "The page doesn't compute it"
    computed = name_of(capsules.routing) in GRAPH_PAGE_ROUTINGS
    expect(computed, "conv", f"a routing among {', '.join(GRAPH_PAGE_ROUTINGS)}", capsules.routing, advice)
    expect(capsules.num_caps > 1, "conv", "num_caps >= 2", capsules.num_caps, "One capsule has nothing to choose")
    parts = {"edge_feats": capsules.weight_edge, "residual": capsules.weight_target, "activation": conv.activation}
    for name, part in parts.items():
        expect(part is None, "conv", f"no {name}", "one", advice)


def _around(graph: DGLGraph, center: int | None, mutual: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """For a larger graph, the edges (E',) to show, and for each node (N,) whether these include all its in-edges."""
    degrees, count = graph.in_degrees().cpu(), graph.num_nodes()
    room = MOST_EDGES // 2 if mutual else MOST_EDGES  # with mutual, reverse edges are also shown
    if center is None:
        order = [n for n in degrees.argsort(descending=True, stable=True).tolist() if degrees[n] <= room]
    else:
        expect(bool(degrees[center] <= room), "center", f"a node with at most {room} in-edges", center)
        order = [int(n) for step in dgl.bfs_nodes_generator(graph.cpu(), center, reverse=True) for n in step]
    last = int((degrees[order].cumsum(0) <= room).sum())
    whole = torch.zeros(count, dtype=torch.bool).index_fill(0, torch.tensor(order[:last]), True)
    src, dst = (end.long().cpu() for end in graph.edges(order="eid"))
    shown = (whole[dst] | whole[src]) if mutual else whole[dst]
    return shown.nonzero()[:, 0], whole


def _positions(positions: Any, nodes: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> list[list[float]]:
    """The position [x, y] of each shown node, as given, or else from a layout of the graph."""
    if positions is None:
        return laid_out(len(nodes), torch.stack([src, dst], 1).numpy()).tolist()
    if isinstance(positions, Mapping):
        missing = next((n for n in nodes.tolist() if n not in positions), None)
        expect(missing is None, "positions", "a pair for each node number, from 0", f"none for node {missing}")
    with reading("positions", "two finite numbers for each node"):
        at = np.array([_listed(positions[n]) for n in nodes.tolist()], dtype=float)
    fits = at.shape == (len(nodes), 2) and bool(np.isfinite(at).all())
    expect(fits, "positions", "two finite numbers for each node", at.shape)
    return at.tolist()


def _listed(values: Any) -> list:
    return values.tolist() if hasattr(values, "tolist") else list(values)
