"""Capsules on the nodes of a graph: what the layers for DGL and for PyTorch Geometric share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from .._dgl import DGLGraph
from ..errors import check_flag, check_tensor, check_whole, expect, required
from ..graph import Links, check_competition, links
from ..routing import Dynamic, Routing, Spherical, Uniform
from ..routing.names import as_routing
from ..routing.nodes import NodeVotes, route_nodes
from ..routing.rule import squash_saving_memory

LEAST = 1e-24  # mean squares of features up to this count as zero


class Names(NamedTuple):
    """What a library calls the arguments of a graph layer, for error messages."""

    feat: str
    edge_feat: str
    in_feats: str
    out_feats: str
    edge_feats: str


DGL = Names("feat", "edge_feat", "in_feats", "out_feats", "edge_feats")
PYG = Names("x", "edge_attr", "in_channels", "out_channels", "edge_dim")


def ends_of_features(name: str, feats: int | Sequence[int | None], residual: bool) -> tuple[int, int | None]:
    """Features of sources and of targets; the latter None where they are declared unused.

    Warns:
        UserWarning: a pair whose second number has no use.
    """
    if not isinstance(feats, Sequence):
        return feats, feats
    expect(len(feats) == 2, name, "a number, or a pair of (source, target)", feats)
    source = required(feats[0], name, "a source's features", str(feats))
    if residual:
        expect(feats[1] is not None, name, "a target's features for residual=True", feats)
    elif feats[1] is not None:
        warn_unused(name, name)
        return source, None
    return source, feats[1]


def check_features(name: str, feat: object) -> None:
    """Raise ``InputError`` unless ``feat`` is a tensor, or a pair of tensors whose second may be None."""
    pair = isinstance(feat, (tuple, list)) and len(feat) == 2
    first, *second = feat if isinstance(feat, (tuple, list)) and pair else (feat,)
    for given in (first, *(target for target in second if target is not None)):
        check_tensor(name, given, floating=False, sparse=True)


def dropped(dropout: nn.Dropout, feat: Any) -> torch.Tensor:
    """``dropout(feat)``, of a sparse matrix its values: torch has none for those."""
    if feat.layout == torch.strided or not (dropout.training and dropout.p):
        return dropout(feat) if feat.layout == torch.strided else feat
    feat = feat.to_sparse_coo().coalesce()
    values = dropout(feat.values())
    return torch.sparse_coo_tensor(feat.indices(), values, feat.shape, is_coalesced=True, check_invariants=False)


def warn_unused(name: str, sizes: str) -> None:
    """Warn that the target nodes' features are ignored."""
    warnings.warn(
        f"{name}: the second of the pair, the target nodes' features, is not used: a node's capsules are what its "
        f"in-edges vote for. residual=True adds them; {sizes}=(F, None) turns this warning off",
        stacklevel=4,
    )


class NodeCapsules(nn.Module):
    """The weights, routing, bias and squash of ``graphcaps.nn.CapsuleConv``, whose docstring has the formula.

    Its arguments have the same meaning here. Any number of features may be -1: found out from the first input.

    Args:
        target_feats: F_v, features of a destination node, or of each of its capsules; None: there is no residual.
        names: what errors call the arguments: ``DGL`` or ``PYG``.
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        num_caps: int,
        routing: Routing | str,
        *,
        squash_output: bool,
        vote_drop: float,
        in_caps: int,
        bias: bool,
        normalise: bool,
        competition: str = "capsules",
        edge_feats: int | None = None,
        target_feats: int | None = None,
        names: Names = DGL,
    ):
        super().__init__()
        self.names = names
        for name, size in ((names.out_feats, out_feats), ("num_caps", num_caps), ("in_caps", in_caps)):
            check_whole(name, size)
        for name, feats in ((names.in_feats, in_feats), (names.edge_feats, edge_feats), (names.in_feats, target_feats)):
            if feats is not None and feats != -1:
                check_whole(name, feats)
        check_competition(competition)
        for name, flag in (("squash_output", squash_output), ("bias", bias), ("normalise", normalise)):
            check_flag(name, flag)
        routing = as_routing(routing)
        expect(routing.sums_votes, "routing", "one whose poses are sums of votes: Spherical, Dynamic, Uniform", routing)
        if num_caps == 1 and competition == "capsules" and type(routing) in (Spherical, Dynamic):
            # The softmax over one capsule is 1 whatever the logit: kappa would get no gradient.
            routing = Uniform(routing.iterations)
        self.competition, self.squash_output = competition, squash_output
        self.normalise = normalise and squash_output 
        self.normalise_residual = normalise and squash_output
        self.vote_drop = nn.Dropout(vote_drop)
        self.in_caps, self.num_caps, self.out_feats = in_caps, num_caps, out_feats
        self.weight = self._matrices(in_feats)
        self.weight_edge = None if edge_feats is None else self._matrices(edge_feats)
        self.weight_target = None if target_feats is None else self._matrices(target_feats)
        self.bias = nn.Parameter(torch.empty(num_caps, out_feats)) if bias else None
        self.routing = routing.for_layer(-1, num_caps, out_feats, num_caps)
        self.reset_parameters()

    def _matrices(self, feats: int) -> nn.Parameter:
        if feats == -1:
            unknown: Any = UninitializedParameter()
            return unknown
        return nn.Parameter(torch.empty(self.in_caps, feats, self.num_caps, self.out_feats))

    def reset_parameters(self) -> None:
        """Draw the weights as DGL's ``GATConv`` does (Glorot, normal, gain of ReLU); the bias is zero."""
        for weight in (self.weight, self.weight_edge, self.weight_target):
            if weight is not None and not is_lazy(weight):
                self._draw(weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self.routing.reset_parameters()

    def _draw(self, weight: torch.Tensor) -> None:
        nn.init.normal_(weight, std=2 / (self.in_caps * weight.shape[1] + self.num_caps * self.out_feats) ** 0.5)

    def _find_out(self, *known: tuple[nn.Parameter | None, torch.Tensor | None]) -> None:
        """Materialise and draw the weights whose number of features was -1."""
        for weight, feat in known:
            if feat is not None and isinstance(weight, UninitializedParameter):
                weight.materialize((self.in_caps, feat.shape[-1], self.num_caps, self.out_feats))
                self._draw(weight)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars=True)  # weights not yet made can't be detached
        for name, value in self._parameters.items():
            if value is not None and not keep_vars and not is_lazy(value):
                destination[prefix + name] = value.detach()

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name, weight in self._parameters.items():
            given = state_dict.get(prefix + name)
            if given is not None and isinstance(weight, UninitializedParameter) and not is_lazy(given):
                weight.materialize(given.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # Sizes are asked of shapes here: len(tensor) is a constant where torch traces.
    def forward(
        self,
        graph: DGLGraph | Links,
        feat: torch.Tensor,
        edge_weight: torch.Tensor | None,
        get_coupling: bool,
        edge_feat: torch.Tensor | None = None,
        target: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Route along the edges of any graph with one canonical edge type.

        Args:
            graph: E edges from N_src to N_dst nodes; ``Links`` of edges that torch traces, where capsules compete.
            feat: (N_src, *, F), or (N_src, *, K_in, F) for K_in > 1.
            edge_weight: (E,) or (E, 1), how long each edge's votes are made, or None.
            get_coupling: also give the couplings of the last iteration.
            edge_feat: (E, F_e), or (E, *, F_e) with feat's ``*``, where edges have features.
            target: (N_dst, *, F_v), or (N_dst, *, K_in, F_v) for K_in > 1, for a residual.

        Returns:
            (N_dst, *, K_out, D), squash(bias) for nodes without in-edges; with ``get_coupling`` a pair, the second
            c (E, *, K_in, K_out), detached.
        """
        check_tensor(self.names.feat, feat, floating=False, sparse=True)
        edges = graph if isinstance(graph, Links) else links(graph, feat.device)
        if edge_feat is not None and edge_feat.dim() == 1:
            edge_feat = edge_feat[:, None]
        self._find_out((self.weight, feat), (self.weight_edge, edge_feat), (self.weight_target, target))
        z = self._votes(feat, edge_feat, edges)  # (N_src or E, *, K_in, K_out, D)
        z = z.to(torch.promote_types(z.dtype, torch.float32))  # sums of many votes overflow float16
        scale = self._scale(z, edge_weight, edges)
        own = edge_feat is not None
        s, c = route_nodes(graph, NodeVotes(z, scale, own), self.routing, False, get_coupling)
        # s is (N_dst, *, K_out, D); share is the factor that makes it a mean.
        share = s.new_tensor(self.num_caps)
        if self.competition == "capsules":
            share = share / edges.in_degrees.clamp_min(1).to(s.dtype).view(-1, *[1] * (s.dim() - 1))
        if self.normalise:
            share = share * self._per_feature(feat, edge_feat, edges)
        s = s * share.to(s.dtype)
        if self.weight_target is not None:
            s = s + self._residual(target, edges.num_parents).to(s.dtype)
        if self.bias is not None:
            s = s + self.bias
        out = (squash_saving_memory(s) if self.squash_output else s).to(self.weight.dtype)
        return out if c is None else (out, c)

    def _scale(self, z: torch.Tensor, edge_weight: torch.Tensor | None, edges: Links) -> torch.Tensor | None:
        """Edge weights times the dropout mask, broadcastable with (E, *, K_in, K_out), or None."""
        scale = None
        if edge_weight is not None:
            check_tensor("edge_weight", edge_weight, floating=False)
            shape, num_edges = edge_weight.shape, edges.src.shape[0]
            fits = edge_weight.dim() > 0 and shape[0] == edge_weight.numel() == num_edges
            expect(fits, "edge_weight", f"(E={num_edges},)", tuple(shape))
            scale = edge_weight.to(z.dtype).reshape(-1, *[1] * (z.dim() - 2))
        if self.training and self.vote_drop.p > 0:
            mask = self.vote_drop(z.new_ones(len(edges.src), *z.shape[1:-1]))
            scale = mask if scale is None else mask * scale
        return scale

    def _votes(self, feat: torch.Tensor, edge_feat: torch.Tensor | None, edges: Links) -> torch.Tensor:
        """Votes before edge weights: per node (N_src, *, K_in, K_out, D), or with edge features per edge (E, ...)."""
        self._check(self.names.feat, feat, edges.num_children, self.weight)
        z = _transform(feat, self.weight)  # (N_src, *, K_in, K_out, D)
        if self.weight_edge is None:
            return z
        wanted = f"(E={edges.src.shape[0]}, {self.weight_edge.shape[1]})"
        edge_feat = required(edge_feat, self.names.edge_feat, wanted, then="The layer was made for edges with features")
        shape = tuple(edge_feat.shape)
        fits = (edges.src.shape[0], self.weight_edge.shape[1]) == (shape[0], shape[-1])
        expect(fits and len(shape) in (2, z.dim() - 2), self.names.edge_feat, wanted, shape)
        self._check_dtype(self.names.edge_feat, edge_feat)
        along = (edge_feat @ self.weight_edge.movedim(1, 0).flatten(1)).unflatten(-1, z.shape[-3:])
        along = along.reshape(*shape[:1], *[1] * (z.dim() - along.dim()), *along.shape[1:])
        z = z.index_select(0, edges.src) + along
        return z

    def _per_feature(self, feat: torch.Tensor, edge_feat: torch.Tensor | None, edges: Links) -> torch.Tensor:
        """(N_dst, *, 1, 1): 1 / the root mean square of the features of a node's in-edges; 0 where they are zero."""
        power = self._power(feat).index_select(0, edges.src)  # (E, *)
        if edge_feat is not None:
            own, more = feat.shape[-1], _squares(edge_feat).sum(-1)
            more = more.reshape(*more.shape, *[1] * (power.dim() - more.dim()))
            power = (own * power + more) / (own + edge_feat.shape[-1])
        total = power.new_zeros(edges.num_parents, *power.shape[1:]).index_add(0, edges.dst, power)
        return _per_root(total / edges.in_degrees.clamp_min(1).to(total.dtype).view(-1, *[1] * (total.dim() - 1)))

    def _residual(self, target: torch.Tensor | None, num_parents: int) -> torch.Tensor:
        """(N_dst, *, K_out, D): the residual."""
        wanted = "a pair, with the destination's features for the residual"
        target = required(target, self.names.feat, wanted, "no second")
        assert self.weight_target is not None
        self._check(f"{self.names.feat}[1]", target, num_parents, self.weight_target)
        own = _transform(target, self.weight_target).sum(-3)
        return own * _per_root(self._power(target)) if self.normalise_residual else own

    def _power(self, feat: torch.Tensor) -> torch.Tensor:
        """(N, *): the mean square of each node's numbers."""
        if feat.layout != torch.strided:
            feat = feat.to_sparse_coo().coalesce()
            squares = _squares(feat.values())
            return squares.new_zeros(feat.shape[0]).index_add(0, feat.indices()[0], squares) / feat.shape[1]
        return _squares(feat).mean((-2, -1) if self.in_caps > 1 else -1)

    def _check(self, name: str, feat: torch.Tensor, num_nodes: int, weight: torch.Tensor) -> None:
        capsules = (self.in_caps, weight.shape[1]) if self.in_caps > 1 else (weight.shape[1],)
        fits = feat.dim() > len(capsules) and feat.shape[0] == num_nodes and feat.shape[-len(capsules) :] == capsules
        wanted = f"(N={num_nodes}, *, {', '.join(map(str, capsules))})"
        joined = self.in_caps == 1 and feat.dim() > 2 and feat.shape[-2:].numel() == weight.shape[1]
        if joined:
            then = f"Capsules of a layer before? .flatten(-2) joins them; in_caps={feat.shape[-2]} reads each by itself"
        expect(fits, name, wanted, tuple(feat.shape), then if joined else "")
        self._check_dtype(name, feat)

    def _check_dtype(self, name: str, feat: torch.Tensor) -> None:
        autocast = torch.is_autocast_enabled(feat.device.type)
        fits = feat.dtype == self.weight.dtype or (autocast and feat.is_floating_point())
        expect(fits, name, f"{self.weight.dtype}, as the layer's weights", feat.dtype, "Convert it, or the layer")

    def extra_repr(self) -> str:
        in_feats = -1 if is_lazy(self.weight) else self.weight.shape[1]
        before = f"{self.in_caps} x " if self.in_caps > 1 else ""
        edges = "" if self.weight_edge is None else "edge features, "
        own = "" if self.weight_target is None else "residual, "
        return (
            f"{before}{in_feats} -> {self.num_caps} x {self.out_feats}, {edges}{own}competition={self.competition!r}, "
            f"squash_output={self.squash_output}, normalise={self.normalise}"
        )


def _transform(feat: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(N, *, K_in, K_out, D) of feat (N, *, F), or (N, *, K_in, F) for K_in > 1."""
    if len(weight) == 1:
        return (feat @ weight[0].flatten(1)).unflatten(-1, (1, *weight.shape[2:]))
    return torch.einsum("...kf,kfld->...kld", feat, weight)


def _squares(feat: torch.Tensor) -> torch.Tensor:
    """In float32 at least: squares, and sums of them, overflow half precision."""
    feat = feat.to(torch.promote_types(feat.dtype, torch.float32))
    return feat.square()


def _per_root(mean: torch.Tensor) -> torch.Tensor:
    """(N, *, 1, 1): 1 / the root of mean (N, *); 0 where it is zero."""
    some = mean > LEAST
    return torch.where(some, torch.where(some, mean, 1).rsqrt(), 0)[..., None, None]
