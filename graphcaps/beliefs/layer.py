"""A graph layer whose capsules are beliefs about a node's state, exchanged between the two ends of each edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import check_tensor, expect
from ..graph import Links, check_graph, links_of_graph, read_graph
from ..graph.checks import check_edges, check_one_kind
from ..graph.links import members_of
from ..layer_common import dropped
from ..tracing import uncompiled
from ..typed import Share, Size, typed
from .node_beliefs import NodeBeliefs
from .rates import layer_of_labels


class BeliefConv(nn.Module):
    """Graph layer with K beliefs per node as its capsules; nodes update them from their neighbours' beliefs.

    Capsule k of node v is a distribution h_vk over D states. An edge has a cause in one capsule, or none, and how often
    a capsule causes an edge depends on the states of its two ends: two friends may share a school or a club. It isn't
    known which capsule it is. z_v = x_v W + b are the logits from v's own features. Of labels, z_vk is b_k + pi_k times
    log(p_vk + 0.01 softmax(b_k)), and 30 more at a known label. p_v are the shares of labels that T steps of label
    propagation find (Zhou et al. 2004, NIPS; alpha 0.9); if they find none, the logarithm is left out. pi_k is the
    share of edges that capsule k causes, rho_k s_k / (epsilon + sum over l of rho_l s_l), and s_k is the sum of the
    squares of softmax(b_k).

    On edge e = (u, v), u tells v the belief m_e, which leaves out what v told u on the reverse edge e'. The layer
    starts with h = softmax(z), m_e = h_u and f = n, and each iteration computes

        a_ek = max(0, <m_ek A_k, m_e'k>)                       1 if the ends are in the same state, unless A was learned
        w_ek = g log(1 + rho_k / (epsilon + sum over l != k of rho_l a_el))
        f_k  = (n_k + f_k) / 2                                 so that all nodes don't change sides at once
        t_vk = z_vk + sum over in-edges e of w_ek m_ek S_k - nu rho_k d_v D / K f_k A_k
        h_vk = softmax(t_vk)
        m_ek = 0.7 softmax(t_uk - w_e'k m_e'k S_k) + 0.3 m_ek  0.3: so that the messages of hubs don't oscillate

    So an edge moves capsule k of v towards the states that are often joined to that of u, strongly if no other capsule
    explains the edge. S_k (D, D) is symmetric; in a new layer, it is the identity, and edges join equal states.
    1 + A_k rho_k / epsilon is the power S_k of 1 + rho_k / epsilon. The coupling is c_ek = rho_k a_ek / sum over l of
    rho_l a_el, from the messages before the last iteration, and ``beliefs.unexplained`` (E,), the share of an edge that
    no capsule explains, is epsilon / (epsilon + sum over l of rho_l a_el). n_k accounts for the pairs of nodes without
    an edge: it is the mean of d_u h_uk / d over the graph's nodes u, where d_u is u's in-degree and d the mean
    in-degree. epsilon, g, nu, rho (K,) and S are learned: ``beliefs.learned``, ``beliefs.rates``, ``beliefs.table``.

    This is belief propagation for overlapping groups. Decelle et al. 2011 (Physical Review E 84, 066106) describe it
    for one grouping. Differs: a function linear in m replaces the logarithm. The two are equal if m is 0 or 1. rho_k is
    the rate of edges within a state of capsule k, and epsilon the rate of edges without a cause, both divided by the
    mean of the K rates. ``from_labels`` counts them, S, and how frequent states are, for b. Nodes of high degree are
    expected to have more edges to all states (Karrer & Newman 2011, Physical Review E 83, 016107), so edges don't say
    that a node of high degree is in a state of many edges. ``from_labels`` counts this too, if there are no features:
    ``beliefs.by_degree`` is added to z.

    Args:
        in_feats: F, number of features of a node; None: the layer gets labels or logits instead of features, no W.
        out_feats: D, number of states of a capsule, or K numbers if capsules differ.
        num_caps: K, number of capsules of each node.
        iterations: T >= 1. Information travels along paths of T edges.
        feat_drop: dropout probability of features.
        allow_zero_in_degree: if False, a node without in-edges is an error, as in DGL's layers.

    Shapes:
        graph, feat (N, in_feats), or for in_feats=None labels (N, num_caps), -1 or NaN if unknown, or logits
        (N, num_caps, out_feats) -> (N, num_caps, out_feats), where each capsule's numbers sum to 1; states beyond a
        capsule's own number are 0; feat (N, in_feats) may be sparse, in torch's COO or CSR

    >>> from graphcaps import dgl
    >>> graph = dgl.graph(([0, 1, 1, 2], [1, 0, 2, 1]))
    >>> BeliefConv(10, 2, num_caps=3)(graph, torch.ones(3, 10)).shape
    torch.Size([3, 3, 2])
    """

    @typed
    def __init__(
        self,
        in_feats: Size | None,
        out_feats: Size | Sequence[int],
        num_caps: Size,
        iterations: Size = 8,
        feat_drop: Share = 0.0,
        allow_zero_in_degree: bool = False,
    ):
        super().__init__()
        expect(in_feats is not None or not feat_drop, "feat_drop", "0 for labels or logits", feat_drop)
        self.allow_zero_in_degree, self.feat_drop = allow_zero_in_degree, nn.Dropout(feat_drop)
        self.beliefs = NodeBeliefs(in_feats, out_feats, num_caps, iterations)

    @classmethod
    @typed
    def from_labels(cls, graph: Any, labels: Any, iterations: Size = 16) -> BeliefConv:
        """Make a layer for labels (N, K), -1 or NaN if unknown, and count its rates on the edges between known nodes.

        ``read_graph`` reads the graph. Labels may also be a dict by name, or the name of an attribute of nodes.

        Give the labels to the layer, ``layer(graph, labels)``, and it finds the unknown ones, without any training.
        Capsule k has as many states as the largest label in column k says. Where few edges join known nodes, half of
        all edges are assumed to join equal labels.

        Raises:
            InputError: the graph has weights.

        >>> from graphcaps import dgl
        >>> graph = dgl.graph(([0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]))
        >>> labels = torch.tensor([[0], [0], [-1], [1]])
        >>> BeliefConv.from_labels(graph, labels)(graph, labels).shape
        torch.Size([4, 1, 2])
        """
        named = read_graph(graph)
        advice = "Count without them, read_graph(graph, weight=None); weights can be edge_weight of the layer's calls"
        expect(named.weight is None, "graph", "edges without weights, as each is counted once", "weights", advice)
        labels = named.labels(labels)
        layer = layer_of_labels(cls, named.links(labels.device), labels, iterations)
        layer.allow_zero_in_degree = True  # without edges, the labels' frequencies decide
        return layer

    def reset_parameters(self) -> None:
        """Draw the weights like ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        self.beliefs.reset_parameters()

    @typed
    def forward(
        self, graph: DGLGraph, feat: Tensor, edge_weight: Tensor | None = None, get_coupling: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Exchange beliefs along the graph's edges.

        Args:
            graph: N nodes of one type and E edges of one type. Blocks are refused, because a block gives its source
                nodes no in-edges. Add self-loops before ``dgl.batch``: ``dgl.add_self_loop`` makes a batch one graph.
            feat: (N, in_feats), or for in_feats=None labels (N, num_caps) or logits (N, num_caps, out_feats).
            edge_weight: (E,), a factor >= 0 for each edge's w_ek; default 1. An in-degree is the sum of these weights.
            get_coupling: also return c (E, 1, num_caps), detached.

        Raises:
            DGLError: a node has no in-edges, and ``allow_zero_in_degree`` is False.
            InputError: shapes don't fit, the graph's sources aren't its destinations, or an edge has no reverse.
        """
        check_tensor("feat", feat, floating=False, sparse=True)
        links, members = _checked_links(graph, self, feat.device)
        h, c = self.beliefs(links, dropped(self.feat_drop, feat), edge_weight, members)
        return (h, c) if get_coupling else h


@uncompiled
def _checked_links(graph: DGLGraph, layer: BeliefConv, device: torch.device) -> tuple[Links, Links]:
    """Check a graph, and return its links, and those from its nodes to graphs, outside the trace of a compiler."""
    check_graph(graph)
    check_one_kind(graph, "nodes of one kind", "BeliefConv updates both ends of an edge: use CapsuleConv")
    links = links_of_graph(graph, device)
    _ = links.reverse  # before a node's missing in-edges are an error, which self-loops would only hide
    check_edges(graph, layer.allow_zero_in_degree)
    return links, members_of(graph, device)
