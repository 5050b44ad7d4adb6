"""Capsules on the nodes of a graph: the code that the layers for DGL and PyTorch Geometric share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from ..algorithms.by_name import ROUTINGS, as_routing
from ..algorithms.votes import Finish, NodeVotes
from ..errors import check_tensor, check_whole, expect, required, warn, warn_of_nan
from ..functional import mean_square, per_root, scaled, squares, squash_scaled, with_length
from ..graph import Links
from ..layer_common import DGL, Names, check_dtype, check_edge_weight
from ..routing import Routing, Uniform, route_nodes
from ..tracing import is_tracing


@dataclass(frozen=True)
class NodeOptions:
    """The options of a routing among nodes. ``CapsuleConv`` and ``CapsuleReadout`` describe them."""

    routing: Routing | str = "spherical"
    squash_output: bool = True
    vote_drop: float = 0.0
    bias: bool = True
    normalise: bool = True
    unit_votes: bool = False
    mutual: bool = False
    edge_feats: int | None = None
    residual: bool = False
    shared: bool = False


class NodeCapsules(nn.Module):
    """The weights, routing, bias and squash of ``CapsuleConv``, whose docstring gives the formula.

    Error messages use the argument names in ``names``, which is ``DGL`` or ``PYG``.
    """

    def __init__(
        self,
        in_feats: int | Sequence[int | None],
        out_feats: int,
        num_caps: int,
        options: NodeOptions,
        names: Names = DGL,
    ):
        super().__init__()
        self.names, self.unit_votes, self.mutual = names, options.unit_votes, options.mutual
        self.squash_output = options.squash_output
        pair = in_feats if isinstance(in_feats, Sequence) else (in_feats, in_feats)
        expect(len(pair) == 2, names.in_feats, "a number, or a pair of (source, target)", in_feats)
        source, target = required(pair[0], names.in_feats, "a source's features", str(in_feats)), pair[1]
        self.warns_of_target = target is not None and not options.residual  # in_feats=(F, None) declares them unused
        of_edges = names.edge_feats, options.edge_feats
        for name, feats in ((names.in_feats, source), (names.in_feats, target), of_edges):
            if feats is not None and feats != -1:
                check_whole(name, feats)
        routing = as_routing(options.routing)
        expect(routing.sums_votes, "routing", "one whose poses are sums of votes: Spherical, Dynamic, Uniform", routing)
        if num_caps == 1 and type(routing) in ROUTINGS.values():
            # The softmax over one capsule is 1 for any logit, so a parameter such as kappa would get no gradient.
            routing = Uniform(routing.iterations)
        self.normalise_residual = options.normalise and options.squash_output
        self.normalise = self.normalise_residual and not options.unit_votes
        self.vote_drop = nn.Dropout(options.vote_drop)
        self.num_caps, self.out_feats, self.edge_feats = num_caps, out_feats, options.edge_feats
        self.matrices = 1 if options.shared else num_caps
        self.weight = self._matrices(source)
        self.weight_edge = None if options.edge_feats is None else self._matrices(options.edge_feats)
        self.weight_target = None
        if options.residual:
            target = required(target, names.in_feats, "a target's features for residual=True", str(in_feats))
            self.weight_target = self._matrices(target)
        self.bias = nn.Parameter(torch.empty(num_caps, out_feats)) if options.bias else None
        self.routing = routing.for_layer(-1, num_caps, out_feats, num_caps)
        self._draw_all()

    def source_and_target(self, feat: Any) -> tuple[Tensor, Tensor | None]:
        """Return the features of sources and of targets (or None)."""
        pair = isinstance(feat, (tuple, list)) and len(feat) == 2
        source, target = feat if pair else (feat, None)
        check_tensor(self.names.feat, source, floating=False, sparse=True)
        if target is not None:
            check_tensor(self.names.feat, target, floating=False, sparse=True)
        return source, target

    def warn_of_target(self, target: Tensor | None, links: Links) -> None:
        """Warn once of target features that are given but not used. A block's targets are among its sources."""
        if target is not None and self.warns_of_target and not links.one_kind:
            self.warns_of_target = False
            text = f"{self.names.feat}: target nodes' features are not used: in-edges alone vote for a node's"
            advice = f"capsules. residual=True adds them; {self.names.in_feats}=(F, None) turns this warning off"
            warn(f"{text} {advice}")

    def _matrices(self, feats: int) -> nn.Parameter:
        if feats == -1:
            unknown: Any = UninitializedParameter()
            return unknown
        return nn.Parameter(torch.empty(self._shape(feats)))

    def _shape(self, feats: int) -> tuple[int, int, int, int]:
        return 1, feats, self.matrices, self.out_feats  # the first dim is kept for weights that were saved with it

    def reset_parameters(self) -> None:
        """Draw the weights like DGL's ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        self._draw_all()
        self.routing.reset_parameters()

    def _draw_all(self) -> None:
        for weight in (self.weight, self.weight_edge, self.weight_target):
            if weight is not None and not is_lazy(weight):
                self._draw(weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _draw(self, weight: Tensor) -> None:
        nn.init.normal_(weight, std=2 / (weight.shape[1] + self.matrices * self.out_feats) ** 0.5)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name, weight in self._parameters.items():
            given = state_dict.get(prefix + name)
            if given is not None and isinstance(weight, UninitializedParameter) and not is_lazy(given):
                weight.materialize(self._shape(given.shape[1]) if given.dim() == 4 else given.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # Use .shape, not len(), from here on: torch.export would bake len() in as a constant.
    def forward(
        self,
        links: Links,
        feat: Tensor,
        edge_weight: Tensor | None = None,
        coupling: bool = False,
        edge_feat: Tensor | None = None,
        target: Tensor | None = None,
        prior: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Route along the edges. The arguments are those of ``CapsuleConv.forward`` and ``CapsuleReadout.forward``.

        ``edge_feat`` may also be (E, *, edge_feats), with the same ``*`` as ``feat``. ``target`` (N_dst, *, F) are the
        destination nodes' features, for a residual.

        Returns:
            Capsules (N_dst, *, K, D), and the couplings (E, *, 1, K), or None without ``coupling``.
        """
        edge_feat = edge_feat[:, None] if edge_feat is not None and edge_feat.dim() == 1 else edge_feat
        self._check(links, feat, edge_weight, edge_feat, target)
        votes = self._votes(links, feat, edge_weight, edge_feat, prior)  # z_u = x_u W
        power = self._power(links, feat, edge_feat) if self.normalise else None
        finish = Finish(power, self.bias, *self._residual(target))
        votes = replace(votes, finish=finish if self.squash_output else None)
        s, c, capsules = route_nodes(links, votes, self.routing, self.mutual, coupling)  # s_v = sum of c_e z_u
        capsules = self._finished(links, s, finish) if capsules is None else capsules
        warn_of_nan(capsules, **{self.names.feat: feat, "edge_weight": edge_weight, self.names.edge_feat: edge_feat})
        return capsules.to(self.weight.dtype), None if c is None else c.unsqueeze(-2)

    def _votes(
        self, links: Links, feat: Tensor, edge_weight: Tensor | None, edge_feat: Tensor | None, prior: Tensor | None
    ) -> NodeVotes:
        z = multiply(feat, self.weight)  # (N_src, *, K, D)
        if self.weight_edge is not None and edge_feat is not None:
            z = z.index_select(0, links.src) + spread(multiply(edge_feat, self.weight_edge), z.dim())  # (E, *, K, D)
        number = torch.promote_types(z.dtype, torch.float32)  # squares and sums of many votes overflow float16
        if self.unit_votes:
            z = with_length(z.to(number), torch.ones_like(z[..., 0])).to(z.dtype)
        scale = None if edge_weight is None else spread(edge_weight.to(number).flatten(), z.dim() - 1)
        if self.training and self.vote_drop.p > 0:
            mask = self.vote_drop(z.new_ones(links.num_edges, *z.shape[1:-1], dtype=number))  # (E, *, K)
            scale = mask if scale is None else mask * scale
        if prior is not None or self.matrices < self.num_caps:
            prior = self._logits(prior, links, z)
        return NodeVotes(z, scale, self.weight_edge is not None, prior)

    def _residual(self, target: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return x_v R (N_dst, *, K, D) and the mean square of x_v (N_dst, *), or None for what isn't needed."""
        if self.weight_target is None or target is None:
            return None, None
        return multiply(target, self.weight_target), mean_square(target) if self.normalise_residual else None

    def _finished(self, links: Links, s: Tensor, finish: Finish) -> Tensor:
        """Do what ``Finish`` describes, but without the squash if the layer has none."""
        power, bias, residual, own_power = finish
        mean = None if power is None else self._mean(links, power)
        scale: Any = spread(of_degrees(links, s.dtype, self.num_caps), s.dim()), mean
        if residual is not None:
            own = residual if own_power is None else residual * per_root(own_power)[..., None, None]
            s, scale = scaled(s, *scale)[0] + own.to(s.dtype), (None, None)
        biased = s, *scale, bias
        return squash_scaled(*biased) if self.squash_output else scaled(*biased)[0]

    def _power(self, links: Links, feat: Tensor, edge_feat: Tensor | None) -> Tensor:
        """The mean squares of features, (N_src, *), or with features of edges (E, *)."""
        power = mean_square(feat)
        if edge_feat is not None:
            own, more = feat.shape[-1], squares(edge_feat).sum(-1)
            power = (own * power.index_select(0, links.src) + spread(more, power.dim())) / (own + edge_feat.shape[-1])
        return power

    def _mean(self, links: Links, power: Tensor) -> Tensor:
        """The mean of ``power`` over a node's in-edges, (N_dst, *)."""
        power = power if self.weight_edge is not None else power.index_select(0, links.src)  # (E, *)
        total = power.new_zeros(links.num_parents, *power.shape[1:]).index_add(0, links.dst, power)
        return total / spread(of_degrees(links, total.dtype), total.dim())

    def _check(
        self, links: Links, feat: Tensor, edge_weight: Tensor | None, edge_feat: Tensor | None, target: Tensor | None
    ) -> None:
        names = self.names
        self._check_features(names.feat, feat, "N", links.num_children, self.weight)
        if edge_weight is not None:
            check_edge_weight(edge_weight, links.num_edges)
        if self.weight_edge is not None:
            if edge_feat is None:
                wanted = f"(E={links.num_edges}, {self.edge_feats}), because the layer has {names.edge_feats}"
                edge_feat = required(edge_feat, names.edge_feat, wanted)
            self._check_features(names.edge_feat, edge_feat, "E", links.num_edges, self.weight_edge)
            fits = edge_feat.dim() in (2, feat.dim())
            expect(fits, names.edge_feat, f"2 dims, or {feat.dim()} as {names.feat}", edge_feat.dim())
        elif edge_feat is not None:
            advice = f"Give it {names.edge_feats}={edge_feat.shape[-1]}"
            expect(False, names.edge_feat, f"none, because the layer has no {names.edge_feats}", "some", advice)
        if self.weight_target is not None:
            wanted = "a pair, with the destination's features for the residual"
            target = required(target, names.feat, wanted, "no second")
            self._check_features(f"{names.feat}[1]", target, "N", links.num_parents, self.weight_target)
            if target.shape[1:-1] != feat.shape[1:-1]:
                between = f"the same dims between first and last as {names.feat}, {tuple(feat.shape)}"
                expect(False, f"{names.feat}[1]", between, tuple(target.shape))

    def _check_features(self, name: str, feat: Tensor, size: str, count: int, weight: Tensor) -> None:
        """Check features of nodes or edges. They create a weight whose number of features was -1."""
        of_all = feat.dim() > 1 and feat.shape[0] == count
        if of_all and isinstance(weight, UninitializedParameter):
            weight.materialize(self._shape(feat.shape[-1]))
            self._draw(weight)
        feats = "features" if isinstance(weight, UninitializedParameter) else weight.shape[1]
        if not of_all or feat.shape[-1] != feats:
            joined = feat.dim() > 2 and feat.shape[-2:].numel() == feats
            advice = "If these are a layer's capsules, join them with .flatten(-2)" if joined else ""
            # Format sizes only on failure: torch.compile would take them for constants.
            expect(False, name, f"({size}={count}, *, {feats})", tuple(feat.shape), advice)
        check_dtype(name, feat, self.weight)

    def _logits(self, prior: Tensor | None, links: Links, z: Tensor) -> Tensor:
        """Return the prior as (E, *, K)."""
        prior = z.new_zeros(links.num_edges, self.num_caps) if prior is None else check_tensor("prior", prior)
        shape = (links.num_edges, *z.shape[1:-2], self.num_caps)
        # c has a dim of size 1 before its last one, so its shape is allowed, too.
        if prior.dim() == len(shape) + 1 and prior.shape[-2] == 1:
            prior = prior.squeeze(-2)
        short = shape[0], shape[-1]
        expect(prior.shape in (short, shape), "prior", f"(N, num_caps)={short} or {shape}", tuple(prior.shape))
        return spread(prior, len(shape)).expand(shape)

    def extra_repr(self) -> str:
        in_feats = -1 if is_lazy(self.weight) else self.weight.shape[1]
        options = [f"{name}={getattr(self, name)}" for name in ("unit_votes", "squash_output", "normalise", "mutual")]
        return f"{in_feats} -> {self.num_caps} x {self.out_feats}, {', '.join(options)}"


def multiply(feat: Tensor, weight: Tensor) -> Tensor:
    """Votes (N, *, K, D) of feat (N, *, F), for a weight (1, F, K, D)."""
    return (feat @ weight.flatten(2).squeeze(0)).unflatten(-1, weight.shape[2:])


def of_degrees(links: Links, dtype: torch.dtype, number: int | None = None) -> Tensor:
    """Return the in-degrees (N_dst,), at least 1, or a number divided by them. They are kept with the links."""

    def compute() -> Tensor:
        degrees = links.in_degrees.clamp_min(1).to(dtype)
        return degrees if number is None else degrees.new_full((), number) / degrees

    return compute() if is_tracing() else links.cached(("degrees", dtype, number), compute)


def spread(x: Tensor, dims: int) -> Tensor:
    """Insert dims of size 1 after the first dim of x (N, ...), so that x has ``dims`` dims."""
    return x.reshape(x.shape[0], *[1] * (dims - x.dim()), *x.shape[1:])
