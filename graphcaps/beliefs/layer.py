"""A graph layer whose capsules are beliefs about a node's state, exchanged between the two ends of each edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .. import kernels
from .._dgl import DGLGraph
from ..algorithms.observers import observer_on_nodes
from ..engines import REQUESTED
from ..errors import check_tensor, check_whole, expect, min_max, warn, warn_of_nan
from ..functional import at_least_float32
from ..graph import Links, check_graph, links_of_graph, read_graph
from ..graph.checks import check_edges, check_one_kind, warn_of_loops, warn_of_parallel_edges
from ..graph.links import members_of
from ..layer_common import DGL, HasConstants, Names, check_dtype, check_edge_weight, dropped
from ..tracing import is_tracing, uncompiled
from ..typed import Share, Size, typed
from .exchange import Exchange, ExchangeByKernels, Rates, mean_of_graph, of_nodes
from .rates import DEGREES, LEAST, counted_rates, counted_states, degree_classes, labels_of, layer_of_labels, propagated

EPSILON_GAIN_NU = (0.1, 1.0, 1.0)  # initial values of epsilon, g and nu
KNOWN = 30.0  # logit of a known label, which no evidence changes
WORTHWHILE = 2**18  # numbers in all messages; with fewer, compiling kernels takes longer than they save
WEAK = 0.5  # a warning's limit for the log-ratio of a capsule's highest and lowest rate; 0.7 to 7 on tried graphs


class NodeBeliefs(HasConstants):
    """The weights and iterations of ``BeliefConv``. Error messages use the argument names in ``names``."""

    states: Tensor

    def __init__(
        self,
        in_feats: int | None,
        out_feats: int | Sequence[int],
        num_caps: int,
        iterations: int,
        hide: float,
        names: Names = DGL,
    ):
        super().__init__()
        sizes = [out_feats] * num_caps if isinstance(out_feats, int) else list(out_feats)
        for size in sizes:
            check_whole(names.out_feats, size)
        expect(len(sizes) == num_caps, names.out_feats, f"a number, or one for each of {num_caps} capsules", out_feats)
        self.in_feats, self.out_feats, self.num_caps, self.iterations = in_feats, max(sizes), num_caps, iterations
        self.names, self.hide = names, nn.Dropout(hide)
        self.hidden: Tensor | None = None
        self.unexplained = torch.empty(0)
        of_states = num_caps, self.out_feats
        self.weight = None if in_feats is None else nn.Parameter(torch.empty(in_feats, *of_states))
        self.bias = nn.Parameter(torch.empty(of_states))
        self.by_degree = nn.Parameter(torch.empty(DEGREES, *of_states)) if in_feats is None else None
        self.logarithms = nn.Parameter(torch.empty(3))
        self.log_rates = nn.Parameter(torch.empty(num_caps))
        self.table = nn.Parameter(torch.empty(*of_states, self.out_feats))
        self.add_constant("states", torch.tensor(sizes, device="cpu"))  # (K,)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights like ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        if self.weight is not None:
            nn.init.normal_(self.weight, std=2 / (len(self.weight) + self.weight[0].numel()) ** 0.5)
        if self.by_degree is not None:
            nn.init.zeros_(self.by_degree)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.log_rates)
        with torch.no_grad():
            self.logarithms.copy_(torch.tensor(EPSILON_GAIN_NU).log())
            self.table.copy_(torch.eye(self.out_feats).expand_as(self.table))

    @property
    def learned(self) -> Tensor:
        """The current epsilon, g and nu, (3,) > 0."""
        return self.logarithms.exp()

    @property
    def rates(self) -> Tensor:
        """The current rho, (K,) > 0."""
        return self.log_rates.exp()

    @property
    def prior(self) -> Tensor:
        """The current b (K, D), -inf for states that a capsule doesn't have."""
        missing = torch.arange(self.out_feats, device=self.bias.device) >= self.states.unsqueeze(1)
        return at_least_float32(self.bias).masked_fill(missing, -torch.inf)

    def forward(self, links: Links, feat: Tensor, edge_weight: Tensor | None, members: Links) -> tuple[Tensor, Tensor]:
        """Return beliefs (N, K, D) and detached couplings c (E, 1, K). ``members`` links each node to its graph."""
        if edge_weight is None:
            weight = self.bias.new_ones(links.num_edges, 1)
        else:
            check_edge_weight(edge_weight, links.num_edges)
            weight = edge_weight.reshape(-1, 1)
        z = self.prior + self._logits(feat, links, weight)  # (N, K, D), what a node's own features or labels say
        z = z if self.by_degree is None else z + self.by_degree[degree_classes(links)]
        warn_of_parallel_edges(links)
        warn_of_loops(links)
        exchange = self._exchange(links, z, weight.to(z.dtype), members)
        observer, h = observer_on_nodes(links, self.num_caps), z.softmax(-1)
        m, field = exchange.first(h)
        for r in range(self.iterations):
            if isinstance(exchange, ExchangeByKernels) or is_tracing():
                h, m, field, explained = exchange.step(h, m, field)
            else:  # an iteration is computed again for its gradient, so that only its messages are kept
                h, m, field, explained = checkpoint(exchange.step, h, m, field, use_reentrant=False)
            if observer is not None or r == self.iterations - 1:
                explained = exchange.in_edge_order(explained.detach())
                shares = explained.clamp_min(torch.finfo(z.dtype).tiny)  # no 0 / 0 if no capsule explains an edge
                c = shares / shares.sum(1, keepdim=True)
            if observer is not None:
                observer(r, shares.log(), c, h.detach(), explained)
        epsilon = exchange.rates.epsilon.detach()
        self.unexplained = epsilon / (epsilon + explained.sum(1))
        warn_of_nan(h, **{self.names.feat: feat, "edge_weight": edge_weight})
        return h.to(self.bias.dtype), c.unsqueeze(1)

    def _exchange(self, links: Links, z: Tensor, weight: Tensor, members: Links) -> Exchange:
        epsilon, gain, nu = self.learned.to(z.dtype)
        rates = Rates.of(epsilon, gain, self.rates.to(z.dtype), self.table.to(z.dtype))
        degree = z.new_zeros(z.shape[0], 1).index_add(0, links.dst, weight)
        mean = of_nodes(mean_of_graph(degree, members), members)
        relative = (degree / mean.clamp_min(LEAST)).unsqueeze(-1)  # (N, 1, 1)
        pairs = (nu * rates.rho * mean / (1 / self.states).sum()).unsqueeze(-1) * relative  # (N, K, 1)
        kind = ExchangeByKernels if self._by_kernels(links, z) else Exchange
        return kind(links, members, rates, z, weight, relative, pairs)

    def _by_kernels(self, links: Links, z: Tensor) -> bool:
        """Whether kernels run the iterations, and not torch."""
        requested, reason = REQUESTED.get(), kernels.needs_for_beliefs(links, z)
        least = {"auto": WORTHWHILE, "fused": 1}.get(requested)
        if least is None or links.num_edges * self.num_caps * self.out_feats < least:
            return False
        expect(not reason or requested == "auto", "engine", "'auto' or 'torch'", "'fused'", f"It needs {reason}")
        return not reason

    def _logits(self, feat: Tensor, links: Links, weight: Tensor) -> Tensor:
        check_tensor(self.names.feat, feat, floating=False, sparse=self.weight is not None)
        shape, num_nodes = tuple(feat.shape), links.num_parents
        if self.weight is None and feat.dim() < 3:
            known = at_least_float32(self.logits_of_labels(labels_of(self.names.feat, feat, num_nodes, self.num_caps)))
            frequencies = self.prior.softmax(-1)
            drawn = self.rates * frequencies.square().sum(1)  # edges of each capsule, in comparison to epsilon
            found = propagated(links, known / KNOWN, frequencies, weight.to(known.dtype), self.iterations)
            return known + (drawn / (drawn.sum() + self.learned[0])).unsqueeze(1) * found
        if self.weight is None:
            logits = num_nodes, self.num_caps, self.out_feats
            expect(shape == logits, self.names.feat, f"logits (N, K, D) = {logits}, or labels (N, K)", shape)
            return feat
        sizes = num_nodes, len(self.weight)
        expect(shape == sizes, self.names.feat, f"(N, F) = {sizes}", shape)
        check_dtype(self.names.feat, feat, self.weight)
        return (feat @ self.weight.flatten(1)).unflatten(1, self.weight.shape[1:])

    def logits_of_labels(self, labels: Tensor) -> Tensor:
        """Logits (N, K, D) of labels (N, K). In training, the labels of the share ``hide`` of nodes are hidden."""
        kept = self.hide(self.bias.new_ones(len(labels), 1)) > 0
        self.hidden = ~kept.flatten()
        if (beyond := min_max(labels - self.states)) and beyond[1] >= 0:
            expect(False, self.names.feat, f"labels below {self.states.tolist()}", labels.amax(0).tolist())
        at_label = torch.arange(self.out_feats, device=labels.device) == labels.unsqueeze(-1)
        return KNOWN * (at_label & kept.unsqueeze(-1)).to(self.bias.dtype)

    def count(self, links: Links, labels: Tensor) -> None:
        """Set epsilon, nu, rho, S and b to those of the edges between known nodes, of labels (N, K)."""
        _ = links.reverse  # raises an error if an edge has none
        frequencies, by_degree = counted_states(links, labels, self.states)
        p, q, table = counted_rates(links, labels, frequencies)
        mean, num_nodes = p.mean(), len(labels)
        strength = min_max((p / q).log1p() * (table.amax((1, 2)) - table.amin((1, 2))))
        if self.out_feats > 1 and strength and strength[1] < WEAK:
            advice = "Are they in the order of the graph's nodes, read_graph(graph).names?"
            warn(f"labels: they hardly explain which nodes have edges. {advice}")
        nu = mean * num_nodes**2 / max(links.num_edges, 1) * (1 / self.states).sum()
        with torch.no_grad():
            self.log_rates.copy_((p / mean).log())
            self.table.copy_(table)
            self.bias.copy_(frequencies.clamp_min(LEAST).log())
            self.logarithms.copy_(torch.stack([q / mean, torch.ones_like(q), nu]).log())
            if self.by_degree is not None:
                self.by_degree.copy_(by_degree.log())

    def extra_repr(self) -> str:
        return f"{self.in_feats}, {self.out_feats}, num_caps={self.num_caps}, iterations={self.iterations}"


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
        hide: in training, the share of nodes whose labels are hidden in each step, so that the others predict them.
            ``beliefs.hidden`` (N,) says which were hidden in the last step.

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
        hide: Share = 0.0,
    ):
        super().__init__()
        self.allow_zero_in_degree, self.feat_drop = allow_zero_in_degree, nn.Dropout(feat_drop)
        self.beliefs = NodeBeliefs(in_feats, out_feats, num_caps, iterations, hide)

    @classmethod
    @typed
    def from_labels(cls, graph: Any, labels: Any, iterations: Size = 16, hide: Share = 0.0) -> BeliefConv:
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
        layer = layer_of_labels(cls, named.links(labels.device), labels, iterations, hide)
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
