"""A graph layer whose capsules are beliefs about a node's state, exchanged between the two ends of each edge."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import check_flag, check_tensor, check_whole, expect
from ..graph import links
from ..graph.nodes import check_edges
from ..routing.api import uncompiled
from ..routing.messages import products_of_ends, sum_weighted
from ..routing.observers import observer_on_nodes
from .graph_conv import check_one_kind
from .node_caps import DGL, Names, check_dtype, check_edge_weight, dropped

EPSILON_GAIN_NU = (0.1, 1.0, 1.0)  # initial values of epsilon, g and nu


class NodeBeliefs(nn.Module):
    """The weights and iterations of ``BeliefConv``. Error messages use the argument names in ``names``."""

    in_caps = 1  # `graphcaps.watch` reads this

    def __init__(self, in_feats: int | None, out_feats: int, num_caps: int, iterations: int, names: Names = DGL):
        super().__init__()
        for name, size in ((names.out_feats, out_feats), ("num_caps", num_caps), ("iterations", iterations)):
            check_whole(name, size)
        if in_feats is not None:
            check_whole(names.in_feats, in_feats)
        self.in_feats, self.out_feats, self.num_caps, self.iterations = in_feats, out_feats, num_caps, iterations
        self.feat = names.feat
        self.weight = None if in_feats is None else nn.Parameter(torch.empty(in_feats, num_caps, out_feats))
        self.bias = nn.Parameter(torch.empty(num_caps, out_feats))
        self.logarithms = nn.Parameter(torch.empty(3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights like ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        if self.weight is not None:
            nn.init.normal_(self.weight, std=2 / (len(self.weight) + self.weight[0].numel()) ** 0.5)
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.logarithms.copy_(torch.tensor(EPSILON_GAIN_NU).log())

    @property
    def learned(self) -> Tensor:
        """The current epsilon, g and nu, (3,) > 0."""
        return self.logarithms.exp()

    def forward(
        self, graph: DGLGraph, feat: Tensor, edge_weight: Tensor | None, sizes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return beliefs (N, K, D) and detached couplings c (E, 1, K).

        Arguments are those of ``BeliefConv.forward``. ``sizes`` (B,) are the numbers of nodes in the batch's graphs.
        """
        z = self.bias + self._logits(feat, graph.num_dst_nodes())
        z = z.to(torch.promote_types(z.dtype, torch.float32))
        epsilon, gain, nu = self.learned.to(z.dtype)
        weight = z.new_ones(graph.num_edges()) if edge_weight is None else edge_weight
        check_edge_weight(weight, graph.num_edges())
        weight = weight.to(z.dtype).reshape(-1, 1)
        sizes = sizes.to(z.device)
        own = torch.arange(len(sizes), device=z.device).repeat_interleave(sizes, output_size=len(z))

        def mean(x: Tensor) -> Tensor:
            """Replace each node's row of x (N, *) by the mean over the nodes of its graph."""
            total = x.new_zeros(len(sizes), *x.shape[1:]).index_add(0, own, x)
            return (total / sizes.clamp_min(1).view(-1, *[1] * (x.dim() - 1))).index_select(0, own)

        degree = mean(z.new_zeros(len(z), 1).index_add(0, links(graph, z.device).dst, weight))
        expected = (nu * self.out_feats / self.num_caps * degree).unsqueeze(-1)  # (N, 1, 1)
        observer, h = observer_on_nodes(graph, 1, self.num_caps), z.softmax(-1)
        for r in range(self.iterations):
            a = products_of_ends(graph, h)  # (E, K)
            explained = a.sum(1, keepdim=True)
            others = (explained - a).clamp_min(0)  # rounding can make it slightly negative
            says = gain * (1 + 1 / (epsilon + others)).log() * weight
            h = (z + sum_weighted(graph, h, says) - expected * mean(h)).softmax(-1)
            shares = a.detach().clamp_min(torch.finfo(a.dtype).tiny)  # avoid 0 / 0 if two nodes agree on nothing
            c = shares / shares.sum(1, keepdim=True)
            if observer is not None:
                observer(r, shares.log().unsqueeze(1), c.unsqueeze(1), h.detach(), a.detach().unsqueeze(1))
        return h.to(self.bias.dtype), c.unsqueeze(1)

    def _logits(self, feat: Tensor, num_nodes: int) -> Tensor:
        check_tensor(self.feat, feat, floating=False, sparse=self.weight is not None)
        shape = tuple(feat.shape)
        if self.weight is None:
            logits = num_nodes, self.num_caps, self.out_feats
            expect(shape == logits, self.feat, f"logits (N, K, D) = {logits}", shape)
            return feat
        sizes = num_nodes, len(self.weight)
        expect(shape == sizes, self.feat, f"(N, F) = {sizes}", shape)
        check_dtype(self.feat, feat, self.weight)
        return (feat @ self.weight.flatten(1)).unflatten(1, self.weight.shape[1:])

    def extra_repr(self) -> str:
        return f"{self.in_feats}, {self.out_feats}, num_caps={self.num_caps}, iterations={self.iterations}"


class BeliefConv(nn.Module):
    """Graph layer with K beliefs per node as its capsules; nodes update them from their neighbours' beliefs.

    Capsule k of node v is a distribution h_vk over D states. The layer assumes that the two nodes of an edge are in the
    same state of one capsule, but doesn't know which: two friends may share a school or a club. z_v = x_v W + b are the
    logits from v's own features. The layer starts with h = softmax(z), and each iteration computes

        a_ek = <h_uk, h_vk>                                    the probability that u and v are in the same state of k
        w_ek = g log(1 + 1 / (epsilon + sum over l != k of a_el))
        h_vk = softmax(z_vk + sum over in-edges e = (u, v) of w_ek h_uk - nu m_k)

    So an edge moves capsule k of v towards the state of u, strongly if no other capsule explains the edge. The coupling
    is c_ek = a_ek / sum over l of a_el, from the beliefs before the last iteration. m_k accounts for the pairs of nodes
    without an edge: it is d D / K times the mean of h_k over the graph's nodes, where d is the mean in-degree.
    epsilon > 0, g > 0 and nu > 0 are learned: ``beliefs.learned``.

    This is belief propagation for overlapping groups. Decelle et al. 2011 (Physical Review E 84, 066106) describe it
    for one grouping. Differs: a node has one belief instead of a message for each neighbour, and a function linear in h
    replaces the logarithm. The two are equal if h is 0 or 1; epsilon is then the rate of edges between groups divided
    by the rate within groups.

    Args:
        in_feats: F, number of features of a node; None: the layer gets the logits z instead of features, and has no W.
        out_feats: D, number of states of a capsule.
        num_caps: K, number of capsules of each node.
        iterations: T >= 1. Information travels along paths of T edges.
        feat_drop: dropout probability of features.
        allow_zero_in_degree: if False, a node without in-edges is an error, as in DGL's layers.

    Shapes:
        graph, feat (N, in_feats), or (N, num_caps, out_feats) for in_feats=None -> (N, num_caps, out_feats), where
        each capsule's numbers sum to 1; feat (N, in_feats) may be sparse, in torch's COO or CSR

    >>> from graphcaps import dgl
    >>> graph = dgl.add_self_loop(dgl.graph(([0, 1, 2], [1, 2, 3])))
    >>> BeliefConv(10, 2, num_caps=3)(graph, torch.ones(4, 10)).shape
    torch.Size([4, 3, 2])
    """

    def __init__(
        self,
        in_feats: int | None,
        out_feats: int,
        num_caps: int,
        iterations: int = 8,
        feat_drop: float = 0.0,
        allow_zero_in_degree: bool = False,
    ):
        super().__init__()
        check_flag("allow_zero_in_degree", allow_zero_in_degree)
        self.allow_zero_in_degree, self.feat_drop = allow_zero_in_degree, nn.Dropout(feat_drop)
        self.beliefs = NodeBeliefs(in_feats, out_feats, num_caps, iterations)

    def reset_parameters(self) -> None:
        """Draw the weights like ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        self.beliefs.reset_parameters()

    @uncompiled
    def forward(
        self, graph: DGLGraph, feat: Tensor, edge_weight: Tensor | None = None, get_coupling: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Exchange beliefs along the graph's edges.

        Args:
            graph: N nodes of one type and E edges of one type. Blocks are refused, because a block gives its source
                nodes no in-edges. Add self-loops before ``dgl.batch``: ``dgl.add_self_loop`` makes a batch one graph.
            feat: (N, in_feats), or logits (N, num_caps, out_feats) for in_feats=None.
            edge_weight: (E,), a factor for each edge's w_ek; default 1. An in-degree is the sum of these weights.
            get_coupling: also return c (E, 1, num_caps), detached.

        Raises:
            DGLError: a node has no in-edges, and ``allow_zero_in_degree`` is False.
            InputError: shapes don't fit, or the graph's sources aren't its destinations.
        """
        check_edges(graph, self.allow_zero_in_degree)
        check_one_kind(graph, "nodes of one kind", "BeliefConv updates both ends of an edge: use CapsuleConv")
        check_tensor("feat", feat, floating=False, sparse=True)
        h, c = self.beliefs(graph, dropped(self.feat_drop, feat), edge_weight, graph.batch_num_nodes())
        return (h, c) if get_coupling else h
