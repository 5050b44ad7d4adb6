"""The parse tree of an answer: the strongest links from children to parents.

The credit of an edge is the child's contribution to the parent's length: c <u_hat, v>, after as many iterations as in
training. The credits of a parent sum to <s, v> = |s| |v|, because s is the sum of c u_hat, and v = squash(s) has the
same direction; for routings in ``NOTES``, they don't. A vote against the parent has a negative credit. Short parents
have little credit, so most credit belongs to the long parents, one or several.
"""

from typing import NamedTuple

import numpy as np

from ...errors import GraphcapsError, expect, required
from ...viz.routing.selection import choice_by_name, none_named
from ...viz.routing.timeline import count
from ...viz.routing_trace import RoutingTrace

KEEP = 0.9  # share of the positive credit that the links of a tree make up
NOTES = {
    "inverted": "inverted attention normalises the sum of c u_hat: credits are parts of <s, v>, not of a length",
    "em": "EM routing also weighs children by their activations: credits use only the couplings c",
}
"""For each of these routings, the reason why credits don't add up to lengths."""


class ParseTree(NamedTuple):
    """The links that explain the answer for an image of a trace."""

    image: int
    keep: float  # share of the positive credit that the links make up
    credit: np.ndarray  # (E,) of all edges
    edges: np.ndarray  # (K,) edges that are links of the tree, strongest first

    @property
    def total(self) -> float:
        """Sum of the positive credits."""
        return float(self.credit[self.credit > 0].sum())


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


def parse_tree(trace: RoutingTrace, image: int = 0, keep: float = KEEP) -> ParseTree:
    """The fewest links that make up the share ``keep``, in (0, 1], of the positive credit of an image.

    Raises:
        InputError: the trace doesn't have this image, or its arrays don't match.
        GraphcapsError: couplings or agreement aren't finite.
    """
    trace.check(image)
    at = (-1, trace.answer_at, image)
    credit = trace.c[at].astype(np.float64) * required(trace.agreement, "trace: agreement", "that of votes")[at]
    if not np.isfinite(credit).all():
        advice = "Its votes were not finite: take another image, or train with a lower rate"
        wanted = f"finite couplings and agreement of image {image}"
        raise GraphcapsError(f"trace: expected {wanted}, got NaN or inf. {advice}")
    return ParseTree(int(image), float(keep), credit, strongest(credit, keep))


def in_words(trace: RoutingTrace, tree: ParseTree, name: str = "image") -> str:
    """Up to five lines: the answer for the image ``name``, what children choose, the links, the strongest, and a note.

    The answer is the classes above the network's threshold, or the longest parent if parents aren't classes.
    """
    at = (-1, trace.answer_at, tree.image)
    lengths, names = trace.lengths[at], trace.parent_names
    label = "" if trace.labels is None else f", label {names[trace.labels[tree.image]]}"
    order = np.argsort(-lengths, kind="stable")
    named = order[lengths[order] > trace.threshold] if trace.has_classes else order[:1]
    longest = ", then ".join(f"{names[j]} ({lengths[j]:.2f})" for j in named)
    lines = [f"{name}: longest is {longest}{label}"]
    if not len(named):
        longest = f"{names[order[0]]} has {lengths[order[0]]:.2f}"
        lines = [f"{name}: {none_named(trace)}; the longest, {longest}{label}"]
    lines.append(choice_by_name(trace, trace.c[at], names, "child", "children", named))
    if len(tree.edges):
        children = np.unique(trace.src[tree.edges])
        words = count(len(children), "child", "children")
        if trace.fields is not None and len(np.unique(trace.fields, axis=0)) > 1:
            words += f" at {count(len(np.unique(trace.fields[children], axis=0)), 'place')}"
        links = f"{len(tree.edges):,} of {trace.num_edges:,} links"
        lines.append(f"{links}, from {words}, make up {100 * tree.keep:g}% of all credit")
        e = tree.edges[0]
        link, share = f"child {trace.src[e]} to {names[trace.dst[e]]}", tree.credit[e] / tree.total
        lines.append(f"the strongest link: {link}, {share:.1%} of all credit, coupling {trace.c[at][e]:.2f}")
    if (routing := str(trace.about.get("routing"))) in NOTES:
        lines.append(f"note: {NOTES[routing]}")
    return "\n".join(lines)
