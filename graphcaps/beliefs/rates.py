"""Rates at which known labels explain a graph's edges, and frequencies of labels, from which ``BeliefConv`` starts."""

import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import expect, min_max, warn
from ..graph import Links
from ..graph.labels import whole_numbers

L = TypeVar("L", bound=nn.Module)
LEAST = 1e-12  # replaces zero in a denominator or a logarithm
DEGREES = 24  # number of classes of degrees
ASSUMED = 10.0  # edges per capsule, assumed beside those counted; chosen among 0, 10, 20, 30 on generated graphs
CHANCE = 0.5  # a log-likelihood that is higher by less than this, and log K for K capsules, is chance
ALPHA = 0.9  # a label's weight falls by it with each edge of a path; 0.99 is as good
FLOOR = 0.01  # share of the frequencies that is added to propagated labels, so that logarithms are finite
STEPS = 50  # expectation maximisation has converged after so many, on graphs of 1,000 nodes


def labels_of(name: str, labels: Tensor, num_nodes: int, num_caps: int) -> Tensor:
    """Return labels (N, K), or (N,) if K = 1, as int64 (N, K): -1 where they are negative or NaN."""
    shape = tuple(labels.shape)
    fits = shape == (num_nodes, num_caps) or (shape == (num_nodes,) and num_caps == 1)
    advice = "A layer of features is BeliefConv(F, D, K)"
    expect(fits, name, f"labels (N={num_nodes}, K={num_caps}), or logits (N, K, D)", shape, advice)
    return whole_numbers(name, labels).clamp_min(-1).reshape(num_nodes, num_caps)


def layer_of_labels(kind: type[L], links: Links, labels: Tensor, iterations: int) -> L:
    """Make a ``BeliefConv`` of either library for labels (N, K), and count its rates."""
    most, first = max(len(labels), 1000), labels.new_zeros(1, labels.shape[1])
    sizes = (torch.cat([first, labels]).amax(0) + 1).tolist()
    expect(max(sizes) <= most, "labels", f"classes from 0 to {most - 1}", max(sizes) - 1, "Number them: torch.unique")
    warn_if_all_known(labels)
    if 1 in sizes and len(labels):
        warn("labels: one class at most is known, so all nodes are in it")
    layer: Any = kind(None, sizes, len(sizes), iterations).to(labels.device)
    layer.beliefs.count(links, labels)
    return layer


def warn_if_all_known(labels: Tensor) -> None:
    if (ends := min_max(labels)) and ends[0] == 0:
        warn("labels: all are known, so there are none to find. If 0 means unknown, pass labels - 1")


def propagated(links: Links, known: Tensor, frequencies: Tensor, weight: Tensor, rounds: int) -> Tensor:
    """Logarithms (N, K, D) of the labels that propagation finds (Zhou et al. 2004, NIPS), 0 where it reaches no node.

    ``known`` (N, K, D) has a one for each known label, and ``weight`` (E, 1) weights edges.
    """
    degree = weight.new_zeros(len(known)).index_add(0, links.dst, weight.flatten()).clamp_min(LEAST)
    scale = weight.flatten() * (degree[links.src] * degree[links.dst]).rsqrt()
    ends, size = torch.stack([links.dst, links.src]), (len(known), len(known))
    edges = torch.sparse_coo_tensor(ends, scale, size, check_invariants=False).coalesce()
    h = first = known.flatten(1)
    for _ in range(rounds):
        h = torch.lerp(first, (edges @ h).to(first.dtype), ALPHA)  # autocast makes the product bfloat16
    h = h.view_as(known)
    total = h.sum(2, keepdim=True)
    found = (h / total.clamp_min(torch.finfo(h.dtype).tiny) + FLOOR * frequencies).clamp_min(LEAST).log()
    return torch.where(total > 0, found, 0.0)


def degree_classes(links: Links) -> Tensor:
    """Classes (N,) of in-degrees: 0, 1 to 2, 3 to 6, 7 to 14 and so on."""
    bounds = 2.0 ** torch.arange(1, DEGREES, device=links.device) - 1
    return torch.bucketize(links.in_degrees.to(bounds.dtype), bounds, right=True)


def shrunk(count: Tensor, expected: Tensor) -> Tensor:
    """Estimate (K, *) how many times as frequent as expected events are, from their counts (K, *).

    The model is that these ratios vary around 1 by a gamma distribution of shape s, so that counts are distributed
    negative binomially. The s of highest likelihood is chosen for each of the K rows; the estimate is
    (count + s) / (expected + s). All are 1 if counts vary no more than chance can explain.
    """
    expected = expected.clamp_min(LEAST)
    shapes = torch.logspace(-1, 4, 41, dtype=count.dtype, device=count.device)

    def likelihood(s: Tensor) -> Tensor:
        each = torch.lgamma(count + s) - torch.lgamma(s) - s * (expected / s).log1p()
        return (each + count * (expected / (expected + s)).log()).flatten(1).sum(1)

    likelihoods = torch.stack([likelihood(s) for s in shapes])  # (41, K), one after another to save memory
    gain, best = (likelihoods - likelihoods[-1]).max(0)
    best_shape = shapes[best].view(-1, *[1] * (count.dim() - 1))
    ratio = (count + best_shape) / (expected + best_shape)
    return torch.where((gain > CHANCE + math.log(len(count))).view_as(best_shape), ratio, torch.ones_like(ratio))


def counted_states(links: Links, labels: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate from the known ones of labels (N, K) how frequent each state is, (K, D), in comparison to equal shares.

    Also return how many times as frequent it is among nodes of each class of degrees, (DEGREES, K, D).
    """
    size = int(states.max())
    equal = (torch.arange(size, device=labels.device) < states[:, None]) / states[:, None].double()
    known, degrees = labels.T >= 0, degree_classes(links)  # (K, N), (N,)
    place = torch.where(known, degrees * size + labels.T, DEGREES * size)
    count = equal.new_zeros(len(states), DEGREES * size + 1).scatter_add(1, place, known.double())[:, :-1]
    count = count.unflatten(1, (DEGREES, size))  # (K, DEGREES, D)
    total, of_degree = count.sum(1), count.sum(2, keepdim=True)
    shares = equal * shrunk(total, equal * total.sum(1, keepdim=True))
    chance = of_degree * total.unsqueeze(1) / total.sum(1).clamp_min(1).view(-1, 1, 1)
    return shares / shares.sum(1, keepdim=True), shrunk(count, chance).transpose(0, 1)


def counted_rates(links: Links, labels: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count the edges between nodes whose labels (N, K) are all known: none is -1. States have ``frequencies`` (K, D).

    At first, the model is that an edge is drawn by a capsule in which its ends have the same label, or by none. A pair
    of nodes has an edge of capsule k at rate p_k, and one of none at rate q, both times the two nodes' degrees over the
    mean degree. Before any edge is counted, half of all edges are assumed to be drawn by none, and the others by each
    capsule equally often. ``ASSUMED`` edges of each capsule and one of none are counted as drawn at these rates.

    Then the edges between each two labels of a capsule are compared with their number by this model, and the ratios are
    ``shrunk``.

    Returns:
        p (K,) and q (), float64 > 0, of the highest posterior probability, found by expectation maximisation, and the
        evidence S (K, D, D): log(1 + r / q) / log(1 + p_k / q) if capsule k draws edges between two labels at rate r.
    """
    known, num_caps = (labels >= 0).all(1), labels.shape[1]
    degree = links.in_degrees.double()
    share = (degree / degree.mean().clamp_min(LEAST))[known]
    both = known[links.src] & known[links.dst] & (links.src != links.dst)
    src, dst, of_known = labels[links.src[both]].T, labels[links.dst[both]].T, labels[known].T  # (K, M), (K, M), (K, n)
    size = frequencies.shape[1]
    states = share.new_zeros(num_caps, size).scatter_add(1, of_known, share.expand_as(of_known))
    squares = share.new_zeros(num_caps, size).scatter_add(1, of_known, share.square().expand_as(of_known))
    pairs = states.unsqueeze(1) * states.unsqueeze(2) - squares.diag_embed()  # (K, D, D), of two different nodes
    same_pairs, all_pairs = pairs.diagonal(dim1=1, dim2=2).sum(1), pairs[0].sum()
    same = (src == dst).double().T  # (M, K)
    overall = (links.num_edges / max(len(labels), 1) ** 2) or 1.0
    p = first = overall / 2 / num_caps / frequencies.square().sum(1)
    q = nothing = p.new_tensor(overall / 2)
    for _ in range(STEPS):
        drawn = same * p
        total = drawn.sum(1, keepdim=True) + q
        p = ((drawn / total).sum(0) + ASSUMED) / (same_pairs + ASSUMED / first)
        q = ((q / total).sum() + 1) / (all_pairs + 1 / nothing)
    ends = src * size + dst
    count = share.new_zeros(num_caps, size**2).scatter_add(1, ends, torch.ones_like(ends, dtype=share.dtype))
    count = count.unflatten(1, (size, size))
    by_chance = p * (same_pairs / all_pairs.clamp_min(LEAST)).clamp_max(1)
    elsewhere = (q + by_chance.sum() - by_chance).view(-1, 1, 1)  # the rate of edges that capsule k doesn't draw
    one_label = torch.eye(size, dtype=share.dtype, device=share.device)
    expected = elsewhere + p.view(-1, 1, 1) * one_label
    once = torch.ones_like(one_label).tril() - one_label / 2  # each pair of nodes once
    ratio = shrunk(count * once, expected * pairs * once).tril()
    ratio = ratio + ratio.tril(-1).transpose(1, 2)
    return p, q, (expected * ratio / elsewhere).log() / (p.view(-1, 1, 1) / elsewhere).log1p()
