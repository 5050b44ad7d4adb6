"""The parse tree of an answer: the strongest links from children to parents, as a networkx graph.

The credit of an edge is the child's contribution to the parent's length: c <u_hat, v>, after as many iterations as in
training. The credits of a parent sum to <s, v> = |s| |v|, because s is the sum of c u_hat, and v = squash(s) has the
same direction; for routings in ``NOTES``, they don't. A vote against the parent has a negative credit. Short parents
have little credit, so most credit belongs to the long parents, one or several.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import networkx
import numpy as np

from ..atomic import write_text
from ..errors import GraphcapsError, expect
from ..viz.routing.timeline import count
from ..viz.routing_trace import RoutingTrace

FIELD = ("top", "left", "height", "width")
KEEP = 0.9  # share of the positive credit that the links of a tree make up
NOTES = {
    "inverted": "inverted attention normalises the sum of c u_hat: credits are parts of <s, v>, not of a length",
    "em": "EM routing also weighs children by their activations: credits use only the couplings c",
}
"""For each of these routings, the reason why credits don't add up to lengths."""


def credits_of(trace: RoutingTrace, image: int) -> np.ndarray:
    """Credits c <u_hat, v> (E,) float64 for one image, in the last epoch, after as many iterations as in training.

    Raises:
        InputError: the trace doesn't have this image, or its arrays don't match.
        GraphcapsError: couplings or agreement aren't finite.
    """
    trace.check(image)
    at = (-1, trace.answer_at, image)
    credit = trace.c[at].astype(np.float64) * trace.agreement[at]
    if not np.isfinite(credit).all():
        then = "Its votes were not finite: take another image, or train with a lower rate"
        raise GraphcapsError(f"trace: expected finite couplings and agreement of image {image}, got NaN or inf. {then}")
    return credit


def strongest(credit: np.ndarray, keep: float = KEEP) -> np.ndarray:
    """The fewest edges (K,) that make up the share ``keep`` of the positive credit (E,), largest credit first.

    Equal credits are ordered by edge number. If no credit is positive, there are no edges.

    Raises:
        InputError: ``keep`` is outside (0, 1].

    >>> strongest(np.array([0.1, 0.6, -0.5, 0.3]), keep=0.9)
    array([1, 3])
    """
    expect(0 < keep <= 1, "keep", "a share of the credit, above 0 and up to 1", keep)
    order = np.argsort(-credit, kind="stable")[: np.count_nonzero(credit > 0)]
    reached = np.cumsum(credit[order])
    # The tolerance is for rounding: 0.6 + 0.3 must count as 0.9.
    return order[: np.count_nonzero(reached < keep * (1 - 1e-12) * reached[-1:].sum()) + 1]


def parse_tree(trace: RoutingTrace, image: int = 0, keep: float = KEEP) -> networkx.MultiDiGraph:
    """The links that explain the answer for an image. All attributes are plain numbers and strings.

    Args:
        image: index of the image in the trace.
        keep: the share of the positive credit that the links make up, in (0, 1].

    Returns:
        a graph with edges from children to parents, strongest first. Edges have ``key`` (the edge id), ``c``,
        ``agreement`` and ``credit``. Nodes ``child i`` and ``parent j`` have ``layer`` (0 or 1) and ``index``; children
        also ``top``, ``left``, ``height``, ``width`` of the receptive field in pixels, if the trace has fields; parents
        also ``name`` and ``length``. The graph has ``image``, ``epoch``, ``iteration`` (from 1), ``keep``,
        ``kept_edges``, ``of_edges``, ``credit`` (the sum of positive credits), ``label`` if known, ``note`` if
        ``NOTES`` has one, and the trace's ``about``.

    Raises:
        InputError, GraphcapsError: see ``credits_of`` and ``strongest``.
    """
    credit, at = credits_of(trace, image), (-1, trace.answer_at, image)
    kept = strongest(credit, keep)
    tree = networkx.MultiDiGraph(**trace.about)
    tree.graph.update(image=int(image), epoch=int(trace.epochs[-1]), iteration=trace.answer_at + 1, keep=float(keep))
    tree.graph.update(kept_edges=len(kept), of_edges=trace.num_edges, credit=float(credit[credit > 0].sum()))
    if (routing := str(trace.about.get("routing"))) in NOTES:
        tree.graph["note"] = NOTES[routing]
    if trace.labels is not None:
        tree.graph["label"] = trace.parent_names[trace.labels[image]]
    for e in kept.tolist():
        i, j = int(trace.src[e]), int(trace.dst[e])
        box = [] if trace.fields is None else zip(FIELD, trace.fields[i].tolist(), strict=True)
        tree.add_node(f"child {i}", layer=0, index=i, **dict(box))
        tree.add_node(f"parent {j}", layer=1, index=j, name=trace.parent_names[j], length=float(trace.lengths[at][j]))
        c, agreement = float(trace.c[at][e]), float(trace.agreement[at][e])
        tree.add_edge(f"child {i}", f"parent {j}", key=e, c=c, agreement=agreement, credit=float(credit[e]))
    return tree


def in_words(trace: RoutingTrace, tree: networkx.MultiDiGraph) -> str:
    """Up to three lines: the answer for a tree's image, the number of links in the tree, and the strongest link."""
    about, lengths = tree.graph, trace.lengths[-1, trace.answer_at, tree.graph["image"]]
    label = f", label {about['label']}" if "label" in about else ""
    objects = 1 if label else 2  # a trace has no labels for images of two objects
    named = np.argsort(-lengths, kind="stable")[:objects]
    longest = ", then ".join(f"{trace.parent_names[j]} ({lengths[j]:.2f})" for j in named)
    lines = [f"image {about['image']}: longest is {longest}{label}"]
    if tree.number_of_edges():
        children = [data for _, data in tree.nodes(data=True) if data["layer"] == 0]
        words = count(len(children), "child", "children")
        if trace.saliency is None and trace.fields is not None:  # then the picture groups children by position
            words += f" at {count(len({tuple(data[side] for side in FIELD) for data in children}), 'place')}"
        links = f"{about['kept_edges']:,} of {about['of_edges']:,} links"
        lines.append(f"{links}, from {words}, make up {100 * about['keep']:g}% of all credit")
        child, parent, link = next(iter(tree.edges(data=True)))
        name, share = tree.nodes[parent]["name"], link["credit"] / about["credit"]
        lines.append(f"the strongest link: {child} to {name}, {share:.1%} of all credit, coupling {link['c']:.2f}")
    return "\n".join(lines)


def write_parts(trace: RoutingTrace, tree: networkx.MultiDiGraph, folder: Path) -> Iterator[Path]:
    """Write the tree of image K to image-K.graphml, image-K.json and, as a picture, image-K.png; yield each path.

    Gephi, yEd, Cytoscape and networkx read GraphML; ``networkx.node_link_graph(json.load(file), edges="edges")`` reads
    the JSON.
    """
    from ..viz import parts, save

    node_link = networkx.node_link_data(tree, edges="edges")
    texts = {"graphml": "\n".join(networkx.generate_graphml(tree)), "json": json.dumps(node_link, indent=1)}
    path = folder / f"image-{tree.graph['image']}.png"
    for kind, text in texts.items():
        write_text(path.with_suffix(f".{kind}"), text + "\n")
        yield path.with_suffix(f".{kind}")
    save(parts(trace, tree), path)
    yield path
