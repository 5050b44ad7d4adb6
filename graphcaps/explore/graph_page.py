"""An HTML page with a graph and a layer: a ``CapsuleConv``, which routes again when you change an edge, or a
``BeliefConv``, for which ``belief_page`` has further keys.

Keys of the page's data, which ``viz/explorer/page/node_conv.js`` reads::

    title      description of the layer       source   description of the graph: ["34 nodes", "190 edges"]
    names      N names of nodes               at       N positions [x, y], y upwards
    labels     null, or N class indices       classes  names of the classes
    src, dst   ends of the E edges            weight   null, or E edge weights
    whole      null, or N bools: whether the page has all in-edges of the node, so that its capsules equal the layer's
    sample     null, or {"edges", "around"} if only a part of the graph is shown: the number of edges of the whole
               graph, and the name of the node in the centre of the part, or null
    two_way    whether each edge has its reverse edge; if so, the page adds and removes them together
    chance     the fields of ``chance.Chance``: numbers of the graph, then of random graphs; and "beyond": whether the
               graph is beyond chance
    agrees     null, or E bools: whether another training prefers the same capsule for the edge
    causes     K texts: what the nodes of a capsule's edges have in common, or ""
    warnings   texts that the command printed
    z          (N, K, D) votes, x W, which have length 1 with ``unit_votes``; power  (N,) mean squares of features x
    bias       (K, D), or null
    routing, iterations, concentration, unit_votes, mutual, squash, normalise: settings of the layer
    colors     K colours, "#rrggbb"

Arrays are packed by ``viz.explorer.data.packed``, in float32.
"""

import copy
import os
import warnings
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from .._dgl import DGLGraph, dgl
from ..algorithms.by_name import name_of
from ..errors import check_tensor, expect, reading, required
from ..files import write_text
from ..functional import mean_square
from ..graph import NamedGraph, links_of_graph, read_graph, read_labels
from ..nn import BeliefConv, CapsuleConv
from ..nn.node_caps import multiply
from ..progress import bar
from ..typed import typed
from ..viz import style
from ..viz.explorer.html import graph_page
from ..viz.routing.layout import laid_out
from .belief_page import explain_beside_chance
from .chance import choose, route_beside_chance, train_beside_chance
from .network import packed

GRAPH_PAGE_ROUTINGS = ("spherical", "dynamic", "uniform")
"""The routings that the page can compute."""
MOST_EDGES, SHAPES = 2000, 6
SHARED, ELSEWHERE, EXAMPLES = 0.8, 0.5, 2  # least share of a capsule's edges with a cause, most of others; values named
FEW = 0.1  # share of edges that choose a capsule, below which other settings are suggested
NONE = "edges choose capsules hardly more than in random graphs with these degrees"
NONE_REPEATED = "trainings agree on edges hardly more than on random graphs with these degrees"
ORDER = "Are the labels in the order of read_graph(graph).names?"
NONE_EXPLAINED = "causes explain hardly more edges than in random graphs with these degrees"
TRY = "Try unit_votes=True, Spherical(concentration=4.0) and a task of several causes; or explore_graph(2, graph)"


@typed
def explore_graph(
    conv: CapsuleConv | BeliefConv | int,
    graph: Any,
    feat: Any = None,
    path: str | os.PathLike = "graph.html",
    edge_weight: torch.Tensor | None = None,
    node_names: Mapping | Any | None = None,
    labels: Mapping | Any | None = None,
    positions: Mapping | Any | None = None,
    center: str | Hashable | None = None,
) -> Path:
    """Write an HTML page with a layer and a graph. The page routes again when you change the graph.

    Beside the graph's numbers stand those of random graphs with the same degrees: see ``graphcaps.explore.chance``.
    A page has at most 2,000 edges. From a larger graph, it shows only some nodes with all their in-edges: the nodes
    around ``center``, or else the nodes with the largest in-degrees. The capsules of these nodes equal the layer's,
    except with ``mutual``, where they also depend on nodes further away.

    Args:
        conv: a layer with ``Spherical``, ``Dynamic`` or ``Uniform`` routing and ``num_caps`` >= 2, without
            ``edge_feats``, ``residual`` or ``activation``. The page computes the results of ``conv.eval()``. Or K >= 2:
            a layer of K capsules is trained to predict hidden edges, from the graph alone, whose edges go both ways.
            Or a ``BeliefConv``: the page shows which cause explains each edge, and which edges none explains.
        graph: a graph with N nodes and E edges that ``read_graph`` reads, or its result. Weights of edges are used.
        feat: (N, in_feats), the layer's input, or labels (N, K) for a ``BeliefConv``, in which the columns of a pandas
            table name the causes; None if a layer is trained. This and the next arguments of N values are in the order
            of ``read_graph(graph).names``, dicts by name, or names of attributes of nodes.
        edge_weight: (E,), the layer's edge weights, in place of the graph's.
        node_names: N names to show; default: the graph's.
        labels: N classes; up to six have their own shape.
        positions: N pairs of numbers, y upwards; default: a networkx layout.
        center: for a larger graph, the name of the node around which it is shown.

    Raises:
        InputError: the page can't compute the layer, or the arguments don't fit each other.

    >>> import tempfile
    >>> layer, ring = CapsuleConv(5, 4, num_caps=3), dgl.graph(([0, 1, 2], [1, 2, 0]))
    >>> explore_graph(layer, ring, torch.randn(3, 5), f"{tempfile.mkdtemp()}/ring.html").name
    'ring.html'
    """
    named, notes = read_graph(graph), []
    graph, count, edges = named.dgl, len(named.names), len(named.src)
    expect(edges > 0, "graph", "edges", "none")
    names = [str(name) for name in (named.texts if node_names is None else named.rows("node_names", node_names))]
    if center is not None:
        center = names.index(center) if center in names else named.place(center)
    class_names = [] if labels is None else _class_names(named, labels)
    positions = None if positions is None else named.rows("positions", positions)
    agrees, none, advice = None, NONE, TRY
    if isinstance(conv, (int, np.integer)):
        expect(feat is None and edge_weight is None, "feat", "none with a number of capsules", "some")
        fix = "If direction doesn't matter, pass graph.to_undirected() of networkx, or dgl.to_bidirected(graph)"
        expect(not named.one_way, "graph", "edges that go both ways, to train a layer", "some that go one way", fix)
        edge_weight = None if named.weight is None else named.weight / named.weight.mean()
        with bar("training on hidden edges") as on_progress:
            trained, chance = train_beside_chance(graph, conv, edge_weight, on_progress)
        conv, feat, agrees, none = trained.conv, trained.feat, trained.agrees, NONE_REPEATED
        advice = "Edges may have more causes, or one: try another number of capsules"
    else:
        edge_weight = named.weight if edge_weight is None else check_tensor("edge_weight", edge_weight)
        if not isinstance(conv, BeliefConv):
            _check_layer(conv)
            conv = copy.deepcopy(conv).eval()
            wanted, fix = "the layer's input (N, in_feats)", "Pass it, or a number of capsules: explore_graph(2, graph)"
            feat = check_tensor("feat", named.features(required(feat, "feat", wanted, advice=fix)))
            expect(feat.dim() == 2, "feat", "(N, in_feats)", tuple(feat.shape), "A page shows one set of features")
            edge_weight = None if edge_weight is None else edge_weight.to(feat.device)
            chance = route_beside_chance(conv, graph, feat, edge_weight)
    mutual = isinstance(conv, BeliefConv) or conv.capsules.mutual
    shown, whole = _around(graph, center, mutual) if edges > MOST_EDGES else (torch.arange(edges), None)
    src, dst = named.src[shown], named.dst[shown]
    nodes = torch.arange(count) if whole is None else torch.unique(torch.cat([src, dst]))
    src, dst = torch.searchsorted(nodes, src), torch.searchsorted(nodes, dst)
    if isinstance(conv, BeliefConv):
        layer_data, chance = explain_beside_chance(conv, named, feat, edge_weight, shown, nodes)
        causes, none, advice = [""] * len(layer_data["capsules"]), NONE_EXPLAINED, ORDER
    else:
        with torch.no_grad():
            c = conv.capsules(links_of_graph(graph, feat.device), feat, edge_weight, True)[1].flatten(1).cpu()
        causes = _causes(named, class_names, c, choose(c) if agrees is None else choose(c) & agrees)
        layer_data = _layer_data(conv, feat.cpu()[nodes])
    if not chance.beyond:
        causes = [""] * len(causes)
        notes.append(f"{none}. {advice}" if agrees is not None or chance.chosen[0] < FEW * edges else none)
    classes, class_of = np.unique(class_names, return_inverse=True)
    if len(classes) > SHAPES:
        notes.append(f"labels: {len(classes)} classes aren't shown, because there are {SHAPES} shapes")
    for note in notes:
        warnings.warn(note, stacklevel=3)
    weight = None if edge_weight is None else packed(edge_weight.cpu().flatten()[shown], "float32", "edge_weight")
    data = {
        **layer_data,
        "source": [f"{count} nodes", f"{edges} edges"],
        "names": [names[n] for n in nodes.tolist()],
        "at": _positions(positions, nodes, src, dst),
        "labels": class_of[nodes.numpy()].tolist() if class_names else None,
        "classes": classes.tolist(),
        "src": src.tolist(),
        "dst": dst.tolist(),
        "weight": weight,
        "whole": None if whole is None else whole[nodes].tolist(),
        "sample": None if whole is None else {"edges": edges, "around": None if center is None else names[center]},
        "two_way": not named.one_way,
        "chance": {**chance._asdict(), "beyond": chance.beyond},
        "agrees": None if agrees is None else agrees[shown].tolist(),
        "causes": causes,
        "colors": [style.hex_color(k) for k in range(len(causes))],
        "warnings": notes,
    }
    write_text(path, graph_page(data))
    return Path(path)


def _class_names(named: NamedGraph, labels: Any) -> list[str]:
    """The name of each node's class."""
    classes, names = read_labels("labels", named.rows("labels", labels, complete=False), len(named.names))
    expect(classes.shape[1] == 1, "labels", "one for each node", tuple(classes.shape), "Pass a column")
    return ["unknown" if k < 0 else names[0][k] if names[0] else str(k) for k in classes[:, 0].tolist()]


def _causes(named: NamedGraph, class_names: list[str], c: torch.Tensor, decided: torch.Tensor) -> list[str]:
    """For each capsule, what the nodes at its edges have in common far more often than those at all others, or ""."""
    columns: dict[str, Any] = {f"same {key}": _listed(values) for key, values in named.attributes.items()}
    columns["same label"] = class_names
    if all(isinstance(name, tuple) and len(name) == len(named.names[0]) for name in named.names):
        columns |= {f"part {k}": part for k, part in enumerate(zip(*named.names, strict=True))}
    columns = {
        text: np.array(["" if value is None else str(value) for value in values])
        for text, values in columns.items()
        if len(values) and all(isinstance(value, (str, int, type(None))) for value in values)
    }
    src, dst, causes = named.src.numpy(), named.dst.numpy(), []
    for capsule in range(c.shape[1]):
        own = (decided & (c.argmax(1) == capsule)).numpy()
        causes.append("")
        largest = 0.0  # difference between the shares of the capsule's edges and of all others
        for text, values in columns.items() if 0 < own.sum() < len(own) else ():
            same = (values[src] == values[dst]) & (values[src] != "")
            share, elsewhere = same[own].mean(), same[~own].mean()
            if share >= SHARED and elsewhere <= ELSEWHERE and share - elsewhere > largest:
                largest = share - elsewhere
                found, times = np.unique(values[src[own & same]], return_counts=True)
                examples = ", ".join(found[np.argsort(-times, kind="stable")[:EXAMPLES]])
                causes[-1] = text if text.startswith("same") else f"same {examples}, ..."
    return causes


def _layer_data(conv: CapsuleConv, x: torch.Tensor) -> dict:
    capsules, routing = conv.capsules, conv.capsules.routing
    z = multiply(x, capsules.weight.detach().cpu())
    z = F.normalize(z, dim=-1) if capsules.unit_votes else z
    return {
        "title": f"CapsuleConv, {capsules.weight.shape[1]} → {capsules.num_caps} × {capsules.out_feats}",
        "z": packed(z, "float32", "the layer's votes"),
        "power": packed(mean_square(x), "float32", "feat"),
        "bias": None if capsules.bias is None else packed(capsules.bias, "float32", "the layer's bias"),
        "routing": name_of(routing),
        "iterations": routing.iterations,
        "concentration": None if (kappa := getattr(routing, "kappa", None)) is None else float(kappa.detach()),
        "unit_votes": capsules.unit_votes,
        "mutual": capsules.mutual,
        "squash": capsules.squash_output,
        "normalise": capsules.normalise,
    }


def _check_layer(conv: CapsuleConv) -> None:
    advice, got = "The page doesn't compute it", f"{type(conv).__module__}.{type(conv).__name__}"
    if got.endswith((".CapsuleConv", ".BeliefConv")):
        advice = "Make a layer of graphcaps.nn, and copy the weights with load_state_dict"
    wanted = "graphcaps.nn.CapsuleConv or BeliefConv, or a number of capsules"
    expect(isinstance(conv, CapsuleConv), "conv", wanted, got, advice)
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
        expect(bool(degrees[center] <= room), "center", f"a node with at most {room} in-edges", int(degrees[center]))
        order = [int(n) for step in dgl.bfs_nodes_generator(graph.cpu(), center, reverse=True) for n in step]
    last = int((degrees[order].cumsum(0) <= room).sum())
    whole = torch.zeros(count, dtype=torch.bool).index_fill(0, torch.tensor(order[:last], dtype=torch.int64), True)
    src, dst = (end.long().cpu() for end in graph.edges(order="eid"))
    shown = (whole[dst] | whole[src]) if mutual else whole[dst]
    expect(bool(shown.any()), "graph", f"a node with 1 to {room} in-edges", "none", "Pass a part of the graph")
    return shown.nonzero()[:, 0], whole


def _positions(positions: Any, nodes: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> list[list[float]]:
    """The position [x, y] of each shown node, as given, or else from a layout of the graph."""
    if positions is None:
        return laid_out(len(nodes), torch.stack([src, dst], 1).numpy()).tolist()
    with reading("positions", "two finite numbers for each node"):
        at = np.array([_listed(positions[n]) for n in nodes.tolist()], dtype=float)
    fits = at.shape == (len(nodes), 2) and bool(np.isfinite(at).all())
    expect(fits, "positions", "two finite numbers for each node", at.shape)
    return at.tolist()


def _listed(values: Any) -> list:
    return values.tolist() if hasattr(values, "tolist") else list(values)
