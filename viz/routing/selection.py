"""What children do with their couplings, in words, and which parents a picture shows.

Every title, caption and command uses these words. For a child's largest coupling c and n edges, chance is 1 / n, and
d = (c - chance) / (1 - chance) is the part of the way that c has gone from chance to 1::

    chooses     d > 1/2: of ten parents c > 0.55, of two c > 0.75
    undecided   d < 1/10: of ten parents c < 0.19, of two c < 0.55
    leans       neither chooses nor undecided
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphcaps.viz.routing_trace import RoutingTrace

CHOOSES, UNDECIDED = 0.5, 0.1
MOST_COLOURS = 8  # parents that have colours of their own


class Decisions(NamedTuple):
    """What the n children with two edges or more do, in ascending order of the children."""

    child: np.ndarray  # (n,)
    parent: np.ndarray  # (n,) the parent of the largest coupling
    word: np.ndarray  # (n,) "chooses", "leans" or "undecided"


def decisions(trace: RoutingTrace, c: np.ndarray) -> Decisions:
    """The word for each child under couplings ``c`` (E,)."""
    degree = trace.degrees
    order = np.lexsort((c, trace.src))  # the last edge of each child is its strongest
    strongest = order[np.append(np.diff(trace.src[order]) > 0, True)] if len(order) else order
    strongest = strongest[degree[trace.src[strongest]] > 1]
    child, largest = trace.src[strongest], c[strongest].astype(np.float64)
    chance = 1 / degree[child]
    d = (largest - chance) / (1 - chance)
    word = np.where(d > CHOOSES, "chooses", np.where(d < UNDECIDED, "undecided", "leans"))
    return Decisions(child, trace.dst[strongest], word)


def choice_by_name(
    trace: RoutingTrace, c: np.ndarray, names: Sequence[str], one: str, many: str, named: np.ndarray
) -> str:
    """How many children choose which parents under couplings (E,): ``5 parts choose 2, 4 choose 7, 1 none``.

    ``one`` and ``many`` are the word for a child and for several. Of classes, only those of ``named`` are named.
    """
    decided = decisions(trace, c)
    if not len(decided.child):
        return f"One parent for each {one}: nothing to choose"
    chosen = decided.parent[decided.word == "chooses"]
    shown = chosen[np.isin(chosen, named)] if trace.has_classes else chosen
    counts = [(names[j], number) for j, number in Counter(shown.tolist()).most_common()]
    if not len(chosen):
        leaning = int((decided.word == "leans").sum())
        return f"No {one} chooses, {leaning:,} lean{'s' * (leaning == 1)}" if leaning else f"All {many} are undecided"
    texts = [f"{number:,} {'choose' if number > 1 else 'chooses'} {name}" for name, number in counts[:2]]
    if not texts:
        return f"No {one} chooses a {trace.parent_word[0]} above {trace.threshold:.2f}"
    texts[0] = texts[0].replace(" ", f" {many if counts[0][1] > 1 else one} ", 1)
    lines, none = [], len(decided.child) - len(chosen)
    for told in (2, 1):
        others = len(chosen) - sum(number for _, number in counts[:told])
        lines.append(", ".join([*texts[:told], *[f"{others:,} other{'s' * (others > 1)}"] * (others > 0)]))
    lines = [f"{line}, {none:,} none" for line in lines] * (none > 0) + lines
    return next((line for line in lines if len(line) <= 54), lines[-1])  # 55 letters are wider than a picture


def shown_parents(trace: RoutingTrace, lengths: np.ndarray) -> np.ndarray:
    """The parents that a picture names and colours, ascending, for lengths (J,). The others share one grey bar.

    These are the eight longest that are longer than the network's threshold. If parents aren't classes and none is
    longer, or a softmax has no lengths, they are the eight longest.
    """
    longest = np.argsort(-lengths, kind="stable")
    above = longest[lengths[longest] > trace.threshold]
    has_lengths = trace.has_classes or (trace.agreement is not None and len(above) > 0)
    return np.sort((above if has_lengths else longest)[:MOST_COLOURS])


def none_named(trace: RoutingTrace) -> str:
    """``no digit is longer than 0.50``, with advice if that is so on all images of a run."""
    trained = "file" in trace.about or (trace.lengths[-1, trace.answer_at] > trace.threshold).any()
    return f"no {trace.parent_word[0]} is longer than {trace.threshold:.2f}" + ("" if trained else ": train on")


def children_in_order(trace: RoutingTrace, c: np.ndarray) -> np.ndarray:
    """Sort the children (I,) by the mean place of their parents, weighted by ``c`` (E,), so that few lines cross."""
    weight, place = trace.per_child(c), trace.per_child(c * trace.dst)
    mean = np.divide(place, weight, out=np.full_like(place, np.inf), where=weight > 0)
    return np.argsort(mean, kind="stable")
