"""Which children and parents a picture shows, and in which order, so that the choice between parents can be seen."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphcaps.viz.routing_trace import RoutingTrace

DECIDED = 0.1
"""A child has chosen if its largest coupling has gone this share of the way from equal couplings to 1."""

_MAX_CHILDREN = 12
_MAX_PARENTS = 4
_MAX_LINES = 320  # with all children shown, a random sample of them has about this many edges


class Selection(NamedTuple):
    """What a picture shows of a routing."""

    children: np.ndarray
    """(I',) children from top to bottom."""
    parents: np.ndarray
    """(J',) parents from top to bottom."""
    folded: int
    """The number of other children that have an edge."""
    undecided: bool
    """Whether all folded children are undecided."""


def choices(trace: RoutingTrace, c: np.ndarray) -> np.ndarray:
    """(I,) the parent that each child has chosen under couplings ``c`` (E,); -1 if it is undecided or has no choice."""
    degree = np.bincount(trace.src, minlength=trace.num_children)
    order = np.lexsort((c, trace.src))  # the last edge of each child is its strongest
    strongest = order[np.append(np.diff(trace.src[order]) > 0, True)] if len(order) else order
    child = trace.src[strongest]
    equal = 1 / degree[child]
    chosen = np.full(trace.num_children, -1)
    decided = (degree[child] > 1) & (c[strongest] > equal + DECIDED * (1 - equal))
    chosen[child[decided]] = trace.dst[strongest[decided]]
    return chosen


def selected(trace: RoutingTrace, c: np.ndarray, lengths: np.ndarray, everything: bool = False) -> Selection:
    """Select the parents that children choose, and the children that choose them.

    At most four parents are shown: the two longest, then those that most children choose. At most twelve children are
    shown, the most decided first; if hardly any child has chosen, four are shown all the same.

    Args:
        c: (E,) couplings of the answer.
        lengths: (J,) lengths of the parents.
        everything: show all parents, and all children or a random sample with about 320 edges.
    """
    linked, chosen = np.unique(trace.src), choices(trace, c)
    if everything:
        most = max(1, _MAX_LINES * len(linked) // max(1, trace.num_edges))
        shown = linked if len(linked) <= most else np.random.default_rng(0).choice(linked, most, replace=False)
        parents = np.arange(trace.num_parents)
    else:
        votes = np.bincount(chosen[chosen >= 0], minlength=trace.num_parents)
        longest = np.argsort(-lengths, kind="stable")[:2]
        others = [j for j in np.argsort(-votes, kind="stable") if votes[j] and j not in longest]
        parents = np.sort(np.concatenate((longest, others[: _MAX_PARENTS - len(longest)]))).astype(int)
        largest = np.zeros(trace.num_children)
        np.maximum.at(largest, trace.src, np.where(np.isin(trace.dst, parents), c, 0))
        by_choice = linked[np.argsort(-largest[linked], kind="stable")]
        decided = by_choice[np.isin(chosen[by_choice], parents)]
        shown = (decided if len(decided) >= 4 else by_choice[:4])[:_MAX_CHILDREN]
    folded = np.setdiff1d(linked, shown)
    order = children_in_order(trace, np.where(np.isin(trace.dst, parents), c, 0))
    return Selection(order[np.isin(order, shown)], parents, len(folded), bool((chosen[folded] < 0).all()))


def ends_of(trace: RoutingTrace, edges: np.ndarray) -> Selection:
    """Select the first twelve children and the first four parents of edges (K,), of which there is at least one."""
    first = lambda ends, most: np.array(list(dict.fromkeys(ends[edges].tolist()))[:most])  # noqa: E731
    children, parents = first(trace.src, _MAX_CHILDREN), np.sort(first(trace.dst, _MAX_PARENTS))
    order = children_in_order(trace, np.isin(np.arange(trace.num_edges), edges).astype(np.float64))
    folded = np.setdiff1d(trace.src, children)
    return Selection(order[np.isin(order, children)], parents, len(folded), False)


def children_in_order(trace: RoutingTrace, c: np.ndarray) -> np.ndarray:
    """Sort the children (I,) by the mean place of their parents, weighted by ``c`` (E,), so that few lines cross."""
    weight = np.bincount(trace.src, c, trace.num_children)
    place = np.bincount(trace.src, c * trace.dst, trace.num_children)
    mean = np.divide(place, weight, out=np.full_like(place, np.inf), where=weight > 0)
    return np.argsort(mean, kind="stable")


def choice_by_name(trace: RoutingTrace, c: np.ndarray, names: Sequence[str], one: str, many: str) -> str:
    """How many children have chosen which parents: ``5 parts choose 2, 4 choose 7``.

    Args:
        c: (E,) couplings.
        names: J names of the parents.
        one, many: the word for a child and for several.
    """
    if not (np.bincount(trace.src) > 1).any():
        return f"One parent for each {one}: nothing to choose"
    chosen = Counter(names[j] for j in choices(trace, c).tolist() if j >= 0).most_common()
    if not chosen:
        return f"All {many} are undecided"
    texts = [f"{number:,} {'choose' if number > 1 else 'chooses'} {name}" for name, number in chosen[:2]]
    texts[0] = texts[0].replace(" ", f" {many if chosen[0][1] > 1 else one} ", 1)
    left = (sum(number for _, number in chosen[named:]) for named in (1, 2))
    others = (f", {number:,} other{'s' * (number > 1)}" * (number > 0) for number in left)
    one, two = (", ".join(texts[:n]) + rest for n, rest in enumerate(others, 1))
    return two if len(two) <= 52 else one  # 53 letters are wider than a picture
