"""Rates at which known labels explain a graph's edges, and frequencies of labels, from which ``BeliefConv`` starts."""

import math

import torch
from torch import Tensor

from ..errors import expect, min_max, warn
from ..graph import Links

LEAST = 1e-12  # replaces zero in a denominator or a logarithm
ASSUMED = 10.0  # edges per capsule, assumed beside those counted; chosen among 0, 10, 20, 30 on generated graphs
STEPS = 50  # expectation maximisation has converged after so many, on graphs of 1,000 nodes


def labels_of(name: str, labels: Tensor, num_nodes: int, num_caps: int) -> Tensor:
    """Return labels (N, K), or (N,) if K = 1, as int64 (N, K): -1 where they are negative or NaN."""
    shape = tuple(labels.shape)
    fits = shape == (num_nodes, num_caps) or (shape == (num_nodes,) and num_caps == 1)
    expect(fits, name, f"labels (N={num_nodes}, K={num_caps}), or logits (N, K, D)", shape)
    if labels.is_floating_point():
        labels = labels.nan_to_num(-1.0, math.inf)
        _, others = min_max(labels != labels.long()) or (0, 0)
        expect(not others, name, "whole numbers, or NaN", "fractions or infinity")
    return labels.long().clamp_min(-1).reshape(num_nodes, num_caps)


def labels_and_states(labels: Tensor, hide: float) -> tuple[Tensor, list[int]]:
    """Return labels (N, K) of ``read_labels``, and the number of states of each of the K columns."""
    most, sizes = max(len(labels), 1000), (labels.amax(0) + 1).clamp_min(1).tolist()
    expect(max(sizes) <= most, "labels", f"classes from 0 to {most - 1}", max(sizes) - 1, "Number them: torch.unique")
    if not hide and (ends := min_max(labels)) and ends[0] == 0:
        warn("labels: all are known, so there are none to find. If 0 means unknown, pass labels - 1")
    return labels, sizes


def counted_rates(links: Links, labels: Tensor, degree_corrected: bool) -> tuple[Tensor, Tensor]:
    """Count the edges between nodes whose labels (N, K) are all known: none is -1.

    The model is that an edge is drawn by a capsule in which its ends have the same label, or by none. A pair of nodes
    has an edge of capsule k at rate p_k, and one of none at rate q. If ``degree_corrected``, both are multiplied by the
    two nodes' degrees over the mean degree.

    At first, each capsule draws one K-th of the edges whose ends have the same label in it. ``ASSUMED`` edges are
    counted as drawn at this rate: if few labels are known, a rate from few edges would make the layer too sure. One
    edge is counted as of no cause, because q = 0 would make every explanation certain.

    Returns:
        p (K,) and q (), float64 > 0, of the highest posterior probability, found by expectation maximisation.
    """
    known = (labels >= 0).all(1)
    degree = links.in_degrees.double()
    relative = degree / degree.mean().clamp_min(LEAST) if degree_corrected else torch.ones_like(degree)
    both = known[links.src] & known[links.dst] & (links.src != links.dst)
    same = (labels[links.src[both]] == labels[links.dst[both]]).double()  # (M, K)
    advice = "Give more labels, or make the layer without counting: BeliefConv(None, D, K)"
    expect(len(same) > 0, "labels", "edges between nodes with known labels", "none", advice)
    share, of_known = relative[known], labels[known].T  # (n,), (K, n)
    states = share.new_zeros(len(of_known), 1 + int(labels.max()))
    states = states.scatter_add(1, of_known, share.expand_as(of_known))  # (K, D)
    self_pairs = share.square().sum()
    pairs = (states.square().sum(1) - self_pairs).clamp_min(LEAST)  # (K,), of nodes with the same label
    all_pairs = (share.sum().square() - self_pairs).clamp_min(LEAST)
    p, q = (same.sum(0) / pairs / len(pairs)).clamp_min(LEAST), len(same) / all_pairs / 10
    first = p.mean()
    for _ in range(STEPS):
        drawn = same * p
        total = drawn.sum(1, keepdim=True) + q
        p = ((drawn / total).sum(0) + ASSUMED) / (pairs + ASSUMED / first)
        q = ((q / total).sum() + 1) / all_pairs
    return p, q


def counted_shares(labels: Tensor, states: Tensor) -> Tensor:
    """Estimate from the known ones of labels (N, K) how frequent each state is, (K, D).

    The counts are shrunk towards equal shares, as in James and Stein's estimator (1961). They are shrunk less if the
    chi-square statistic is larger, and become equal if it is below its mean by chance plus two standard deviations.
    """
    count = torch.zeros(len(states), 1 + int(states.max()), device=labels.device, dtype=torch.float64)
    count = count.scatter_add(1, labels.T + 1, torch.ones_like(labels.T, dtype=count.dtype))[:, 1:]
    equal = (torch.arange(count.shape[1], device=labels.device) < states[:, None]) / states[:, None].double()
    expected = equal * count.sum(1, keepdim=True)
    differ = ((count - expected).square() / expected.clamp_min(LEAST)).sum(1, keepdim=True)
    freedom = states[:, None] - 1.0
    drawn = ((freedom + (8 * freedom).sqrt()) / differ.clamp_min(LEAST)).clamp_max(1)
    return torch.lerp(count / count.sum(1, keepdim=True), equal, drawn)
