"""Capsules on the nodes of a graph: the code that the layers for DGL and PyTorch Geometric share."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from .._dgl import DGLGraph
from ..algorithms.base import rule_of
from ..algorithms.names import as_routing
from ..algorithms.rule import squash_saving_memory, with_length
from ..algorithms.votes import NodeVotes
from ..errors import check_tensor, check_whole, expect, required, warn_of_nan
from ..functional import at_least_float32
from ..graph import Links, links
from ..layers import DGL, Names, check_dtype, check_edge_weight
from ..routing import Routing, Uniform, route_nodes, use_node_kernels

MIN_MEAN_SQUARE = 1e-24  # features up to this mean square count as zero


class NodeCapsules(nn.Module):
    """The weights, routing, bias and squash of ``CapsuleConv``, whose docstring gives the formula and the arguments.

    Error messages use the argument names in ``names``, which is ``DGL`` or ``PYG``.
    """

    def __init__(
        self,
        in_feats: int | Sequence[int | None],
        out_feats: int,
        num_caps: int,
        routing: Routing | str,
        squash_output: bool,
        vote_drop: float,
        in_caps: int,
        bias: bool,
        normalise: bool,
        unit_votes: bool,
        mutual: bool = False,
        edge_feats: int | None = None,
        residual: bool = False,
        names: Names = DGL,
        shared: bool = False,
    ):
        super().__init__()
        expect(in_caps == 1 or not mutual, "in_caps", "1 with mutual=True", in_caps)
        self.names, self.unit_votes, self.mutual, self.squash_output = names, unit_votes, mutual, squash_output
        pair = in_feats if isinstance(in_feats, Sequence) else (in_feats, in_feats)
        expect(len(pair) == 2, names.in_feats, "a number, or a pair of (source, target)", in_feats)
        source, target = required(pair[0], names.in_feats, "a source's features", str(in_feats)), pair[1]
        expect(target is not None or not residual, names.in_feats, "a target's features for residual=True", in_feats)
        self.warns_of_target = target is not None and not residual  # in_feats=(F, None) declares them unused
        for name, feats in ((names.in_feats, source), (names.in_feats, target), (names.edge_feats, edge_feats)):
            if feats is not None and feats != -1:
                check_whole(name, feats)
        routing = as_routing(routing)
        expect(routing.sums_votes, "routing", "one whose poses are sums of votes: Spherical, Dynamic, Uniform", routing)
        if num_caps == 1 and rule_of(routing) is not None:
            # The softmax over one capsule is 1 for any logit, so a parameter such as kappa would get no gradient.
            routing = Uniform(routing.iterations)
        self.normalise_residual = normalise and squash_output
        self.normalise = self.normalise_residual and not unit_votes
        self.vote_drop = nn.Dropout(vote_drop)
        self.in_caps, self.num_caps, self.out_feats, self.edge_feats = in_caps, num_caps, out_feats, edge_feats
        self.matrices = 1 if shared else num_caps  # for each capsule of a source
        self.weight = self._matrices(source)
        self.weight_edge = None if edge_feats is None else self._matrices(edge_feats)
        self.weight_target = self._matrices(required(target, names.in_feats, "targets")) if residual else None
        self.bias = nn.Parameter(torch.empty(num_caps, out_feats)) if bias else None
        self.routing = routing.for_layer(-1, num_caps, out_feats, num_caps)
        self.reset_parameters()

    def source_and_target(self, feat: Any, warn: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return the features of sources and targets (or None); warn once if target features are given but unused."""
        pair = isinstance(feat, (tuple, list)) and len(feat) == 2
        source, target = feat if pair else (feat, None)
        check_tensor(self.names.feat, source, floating=False, sparse=True)
        if target is not None:
            check_tensor(self.names.feat, target, floating=False, sparse=True)
            if warn and self.warns_of_target:
                self.warns_of_target = False
                text = f"{self.names.feat}: target nodes' features are not used: in-edges alone vote for a node's"
                then = f"capsules. residual=True adds them; {self.names.in_feats}=(F, None) turns this warning off"
                warnings.warn(f"{text} {then}", stacklevel=4)
        return source, target

    def _matrices(self, feats: int) -> nn.Parameter:
        if feats == -1:
            unknown: Any = UninitializedParameter()
            return unknown
        return nn.Parameter(torch.empty(self.in_caps, feats, self.matrices, self.out_feats))

    def reset_parameters(self) -> None:
        """Draw the weights like DGL's ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        for weight in (self.weight, self.weight_edge, self.weight_target):
            if weight is not None and not is_lazy(weight):
                self._draw(weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self.routing.reset_parameters()

    def _draw(self, weight: Tensor) -> None:
        nn.init.normal_(weight, std=2 / (self.in_caps * weight.shape[1] + self.matrices * self.out_feats) ** 0.5)

    def _materialize(self, weight: Tensor, feat: Tensor) -> None:
        """Create a weight whose number of features was -1."""
        if isinstance(weight, UninitializedParameter):
            weight.materialize((self.in_caps, feat.shape[-1], self.matrices, self.out_feats))
            self._draw(weight)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name, weight in self._parameters.items():
            given = state_dict.get(prefix + name)
            if given is not None and isinstance(weight, UninitializedParameter) and not is_lazy(given):
                weight.materialize(given.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # Use .shape, not len(), from here on: torch.export would bake len() in as a constant.
    def forward(
        self,
        graph: DGLGraph | Links,
        feat: Tensor,
        edge_weight: Tensor | None,
        get_coupling: bool,
        edge_feat: Tensor | None = None,
        target: Tensor | None = None,
        prior: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Route along the edges of any graph with one canonical edge type, or of ``Links`` if torch traces the edges.

        Arguments and result are those of ``CapsuleConv.forward``, but couplings are None if they weren't asked for.
        ``edge_feat`` may also be (E, *, edge_feats), with the same ``*`` as ``feat``. ``target`` holds the destination
        nodes' features, for a residual. ``prior`` is that of ``CapsuleReadout``, for edges in the place of nodes.
        """
        edges = links(graph, feat.device)
        edge_feat = edge_feat[:, None] if edge_feat is not None and edge_feat.dim() == 1 else edge_feat
        self._check(edges, feat, edge_weight, edge_feat, target)
        z = multiply(feat, self.weight)  # (N_src, *, K_in, K_out, D)
        if self.weight_edge is not None and edge_feat is not None:
            along = (edge_feat @ self.weight_edge.movedim(1, 0).flatten(1)).unflatten(-1, z.shape[-3:])
            z = z.index_select(0, edges.src) + spread(along, z.dim())  # (E, *, K_in, K_out, D)
        number = torch.promote_types(z.dtype, torch.float32)  # sums of many votes overflow float16, and so do squares
        z = with_length(z.to(number), torch.ones_like(z[..., 0])).to(z.dtype) if self.unit_votes else z
        z = z if use_node_kernels(z) else z.to(number)
        scale = None if edge_weight is None else spread(edge_weight.to(number).flatten(), z.dim() - 1)
        if self.training and self.vote_drop.p > 0:
            mask = self.vote_drop(z.new_ones(edges.src.shape[0], *z.shape[1:-1], dtype=number))  # (E, *, K_in, K_out)
            scale = mask if scale is None else mask * scale
        if prior is not None or self.weight.shape[2] < self.num_caps:
            prior = self._logits(prior, edges, z)
        votes = NodeVotes(z, scale, self.weight_edge is not None, prior)
        s, c = route_nodes(graph, votes, self.routing, self.mutual, get_coupling)  # s (N_dst, *, K_out, D)
        factor = s.new_full((), self.num_caps) / spread(edges.in_degrees.clamp_min(1).to(s.dtype), s.dim())
        if self.normalise:
            factor = factor * self._per_rms(feat, edge_feat, edges)
        s = s * factor.to(s.dtype)
        if self.weight_target is not None and target is not None:
            own = multiply(target, self.weight_target).sum(-3)  # (N_dst, *, K_out, D)
            own = own * per_root(self._mean_square(target)) if self.normalise_residual else own
            s = s + own.to(s.dtype)
        if self.bias is not None:
            s = s + self.bias
        warn_of_nan(s, **{self.names.feat: feat, "edge_weight": edge_weight, self.names.edge_feat: edge_feat})
        return (squash_saving_memory(s) if self.squash_output else s).to(self.weight.dtype), c

    def _per_rms(self, feat: Tensor, edge_feat: Tensor | None, edges: Links) -> Tensor:
        """1 / the root mean square of the features of a node's in-edges, (N_dst, *, 1, 1); 0 if all are zero."""
        power = self._mean_square(feat).index_select(0, edges.src)  # (E, *)
        if edge_feat is not None:
            own, more = feat.shape[-1], squares(edge_feat).sum(-1)
            power = (own * power + spread(more, power.dim())) / (own + edge_feat.shape[-1])
        total = power.new_zeros(edges.num_parents, *power.shape[1:]).index_add(0, edges.dst, power)
        return per_root(total / spread(edges.in_degrees.clamp_min(1).to(total.dtype), total.dim()))

    def _mean_square(self, feat: Tensor) -> Tensor:
        """The mean square of each node's features, (N, *)."""
        if feat.layout != torch.strided:
            feat = feat.to_sparse_coo().coalesce()
            values = squares(feat.values())
            return values.new_zeros(feat.shape[0]).index_add(0, feat.indices()[0], values) / feat.shape[1]
        return squares(feat).mean((-2, -1) if self.in_caps > 1 else -1)

    def _check(
        self, edges: Links, feat: Tensor, edge_weight: Tensor | None, edge_feat: Tensor | None, target: Tensor | None
    ) -> None:
        num_edges, names = edges.src.shape[0], self.names
        self._check_nodes(names.feat, feat, edges.num_children, self.weight)
        if edge_weight is not None:
            check_edge_weight(edge_weight, num_edges)
        if self.weight_edge is not None:
            if edge_feat is None:
                wanted, then = f"(E={num_edges}, {self.edge_feats})", "The layer was made for edges with features"
                edge_feat = required(edge_feat, names.edge_feat, wanted, then=then)
            self._materialize(self.weight_edge, edge_feat)
            sizes, shape = (num_edges, self.weight_edge.shape[1]), tuple(edge_feat.shape)
            if sizes != (*shape[:1], *shape[-1:]) or len(shape) not in (2, feat.dim() - (self.in_caps > 1)):
                expect(False, names.edge_feat, "(E={}, {})".format(*sizes), shape)
            check_dtype(names.edge_feat, edge_feat, self.weight)
        elif edge_feat is not None:
            then = f"Give it {names.edge_feats}={edge_feat.shape[-1]}"
            expect(False, names.edge_feat, f"none, because the layer has no {names.edge_feats}", "some", then)
        if self.weight_target is not None:
            wanted = "a pair, with the destination's features for the residual"
            target = required(target, names.feat, wanted, "no second")
            self._check_nodes(f"{names.feat}[1]", target, edges.num_parents, self.weight_target)

    def _logits(self, prior: Tensor | None, edges: Links, z: Tensor) -> Tensor:
        """Return the prior as (E, *, K_in, K_out)."""
        prior = z.new_zeros(edges.src.shape[0], self.num_caps) if prior is None else check_tensor("prior", prior)
        shape = (edges.src.shape[0], *z.shape[1:-2], self.num_caps)
        short = shape[0], shape[-1]
        expect(prior.shape in (short, shape), "prior", f"(N, num_caps)={short} or {shape}", tuple(prior.shape))
        return spread(prior, len(shape)).expand(shape)

    def _check_nodes(self, name: str, feat: Tensor, num_nodes: int, weight: Tensor) -> None:
        self._materialize(weight, feat)
        capsules = (self.in_caps, weight.shape[1]) if self.in_caps > 1 else (weight.shape[1],)
        fits = feat.dim() > len(capsules) and feat.shape[0] == num_nodes and feat.shape[-len(capsules) :] == capsules
        if not fits:  # format sizes only on failure: torch.compile would take them for constants
            wanted = f"(N={num_nodes}, *, {', '.join(map(str, capsules))})"
            joined = self.in_caps == 1 and feat.dim() > 2 and feat.shape[-2:].numel() == weight.shape[1]
            then = "If these are a layer's capsules, join them with .flatten(-2), or keep them with in_caps={}"
            expect(False, name, wanted, tuple(feat.shape), then.format(feat.shape[-2]) if joined else "")
        check_dtype(name, feat, self.weight)

    def extra_repr(self) -> str:
        in_feats = -1 if is_lazy(self.weight) else self.weight.shape[1]
        options = [f"{name}={getattr(self, name)}" for name in ("unit_votes", "squash_output", "normalise", "mutual")]
        return f"{self.in_caps} x {in_feats} -> {self.num_caps} x {self.out_feats}, {', '.join(options)}"


def multiply(feat: Tensor, weight: Tensor) -> Tensor:
    """Votes (N, *, K_in, K_out, D) of feat (N, *, F), or (N, *, K_in, F) for K_in > 1."""
    if weight.shape[0] == 1:
        return (feat @ weight[0].flatten(1)).unflatten(-1, (1, *weight.shape[2:]))
    return torch.einsum("...kf,kfld->...kld", feat, weight)


def spread(x: Tensor, dims: int) -> Tensor:
    """Insert dims of size 1 after the first dim of x (N, ...), so that x has ``dims`` dims."""
    return x.reshape(x.shape[0], *[1] * (dims - x.dim()), *x.shape[1:])


def squares(feat: Tensor) -> Tensor:
    """Squares in at least float32, because squares and their sums overflow half precision."""
    return at_least_float32(feat).square()


def per_root(mean: Tensor) -> Tensor:
    """1 / sqrt(mean) as (N, *, 1, 1), for mean (N, *); 0 where the mean counts as zero."""
    some = mean > MIN_MEAN_SQUARE
    return torch.where(some, torch.where(some, mean, 1).rsqrt(), 0)[..., None, None]
