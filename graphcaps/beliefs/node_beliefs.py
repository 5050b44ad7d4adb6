"""The weights and iterations of ``BeliefConv``, for DGL and PyG."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .. import kernels
from ..algorithms.observers import observer_on_nodes
from ..engines import REQUESTED
from ..errors import check_tensor, check_whole, expect, min_max, warn, warn_of_nan
from ..functional import at_least_float32
from ..graph import Links
from ..graph.checks import warn_of_false_evidence
from ..layer_common import DGL, HasConstants, Names, check_dtype, check_edge_weight
from ..routing import go_on_without
from ..tracing import is_tracing
from .exchange import Exchange, ExchangeByKernels, Rates, mean_of_graph, of_nodes
from .rates import DEGREES, LEAST, counted_rates, counted_states, degree_classes, labels_of, propagated

EPSILON_GAIN_NU = (0.1, 1.0, 1.0)  # initial values of epsilon, g and nu
KNOWN = 30.0  # logit of a known label, which no evidence changes
WORTHWHILE = 2**18  # numbers in all messages; with fewer, compiling kernels takes longer than they save
ON_GPU = math.inf  # the same on a GPU, where no card has run the kernels yet
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
        names: Names = DGL,
    ):
        super().__init__()
        sizes = list(out_feats) if isinstance(out_feats, Sequence) else [out_feats] * num_caps
        for size in sizes:
            check_whole(names.out_feats, size)
        expect(len(sizes) == num_caps, names.out_feats, f"a number, or one for each of {num_caps} capsules", out_feats)
        self.in_feats, self.out_feats, self.num_caps, self.iterations = in_feats, max(sizes), num_caps, iterations
        self.names = names
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
        warn_of_false_evidence(links)
        try:
            h, c = self._iterate(links, z, weight.to(z.dtype), members)
        except kernels.KernelError as error:
            go_on_without(error)
            h, c = self._iterate(links, z, weight.to(z.dtype), members)  # engine torch runs them now
        warn_of_nan(h, **{self.names.feat: feat, "edge_weight": edge_weight})
        return h.to(self.bias.dtype), c.unsqueeze(1)

    def _iterate(self, links: Links, z: Tensor, weight: Tensor, members: Links) -> tuple[Tensor, Tensor]:
        """Return the last beliefs and couplings (E, K)."""
        exchange = self._exchange(links, z, weight, members)
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
        return h, c

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
        least = {"auto": ON_GPU if kernels.on_gpu(z) else WORTHWHILE, "fused": 1}.get(requested)
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
        """Logits (N, K, D) of labels (N, K)."""
        if (beyond := min_max(labels - self.states)) and beyond[1] >= 0:
            expect(False, self.names.feat, f"labels below {self.states.tolist()}", labels.amax(0).tolist())
        at_label = torch.arange(self.out_feats, device=labels.device) == labels.unsqueeze(-1)
        return KNOWN * at_label.to(self.bias.dtype)

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
