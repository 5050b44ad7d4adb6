"""Beliefs about nodes of which a classifier has an opinion."""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import check_tensor, expect, min_max
from ..graph import read_graph
from ..graph.labels import read_classes
from ..graph.links import members_of_sizes
from ..typed import Size, typed
from .node_beliefs import NodeBeliefs
from .rates import warn_if_all_known


class Smoothed(NamedTuple):
    """The result of ``smooth``."""

    p: Tensor
    """Probabilities in the shape of ``log_p``; 1 for known classes."""
    unexplained: Tensor
    """(E,): the share of each edge that no class explains. It is large for edges that are wrong."""


@torch.no_grad()
@typed
def smooth(graph: Any, log_p: Any, labels: Any, iterations: Size = 16) -> Smoothed:
    """Improve a classifier's answers by the edges of a graph, some of which may be wrong.

    ``BeliefConv`` counts on the known nodes which classes edges join, and how often they join any. Nothing is trained.

    Args:
        graph: any graph that ``read_graph`` reads. Each edge needs its reverse. Weights are ignored.
        log_p: the classifier's log-probabilities for each node, (N, C), or (N, K, C) if a node has K classes. Rows and
            labels are in the order of ``read_graph(graph).names``, dicts by name, or tables of pandas by their index.
        labels: the known classes, (N,) or (N, K), as numbers of log_p's columns; -1 or NaN if unknown.

    >>> edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> log_p = torch.tensor([[0.5, 0.5], [0.6, 0.4], [0.5, 0.5], [0.5, 0.5]]).log()
    >>> smooth(edges, log_p, [0, -1, -1, 1]).p.argmax(1)
    tensor([0, 0, 1, 1])
    """
    named = read_graph(graph, weight=None)
    log_p = check_tensor("log_p", named.features(log_p, "log_p"))
    count, dims = len(named.names), log_p.dim()
    classes, class_names = read_classes("labels", named.rows("labels", labels, complete=False), count)
    advice = "Pass the number of the column in log_p that belongs to each class"
    texts = [*map(repr, itertools.chain(*class_names))]
    expect(not texts, "labels", "numbers of columns", ", ".join(texts[:3]), advice)
    classes = classes.to(log_p.device)
    num_caps = classes.shape[1]
    wanted = (count, "C") if num_caps == 1 and dims < 3 else (count, num_caps, "C")
    fits = tuple(log_p.shape[:-1]) == wanted[:-1] and log_p.shape[-1] > 1
    expect(fits, "log_p", f"log-probabilities {wanted}", tuple(log_p.shape))
    least, highest = min_max(log_p.amax(-1)) or (0.0, 0.0)
    fits, got = float("-inf") < least and highest < 1e-3, f"{least:g} to {highest:g} as a node's largest"
    is_p = bool(((log_p >= 0).all(-1) & ((log_p.sum(-1) - 1).abs() < 1e-3)).all())
    advice = "Of probabilities, pass log_p.log()" if is_p else "Of scores, pass log_p.log_softmax(-1)"
    expect(fits, "log_p", "logarithms of probabilities, so none above 0", got, advice)
    z = log_p.view(*classes.shape, log_p.shape[-1])
    last, largest = z.shape[2] - 1, int(classes.max()) if count else -1
    expect(largest <= last, "labels", f"columns of log_p, from 0 to {last}", largest)
    warn_if_all_known(classes)
    beliefs = NodeBeliefs(None, z.shape[2], z.shape[1], iterations).to(z.device, z.dtype)
    links, known = named.links(z.device), beliefs.logits_of_labels(classes)
    beliefs.count(links, classes)
    own = torch.where(classes.unsqueeze(2) >= 0, known, z - beliefs.bias)  # the layer adds the bias again
    h, _ = beliefs(links, own, None, members_of_sizes((count,), z.device))
    return Smoothed(h.view_as(log_p), beliefs.unexplained)
