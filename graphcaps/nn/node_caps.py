"""Capsules on the nodes of a graph: what the layers for DGL and for PyTorch Geometric share."""

from __future__ import annotations

import torch
from torch import nn

from .._dgl import DGLGraph
from ..errors import check_name, check_whole, expect
from ..functional import squash
from ..graph import Links, check_competition, expand, links
from ..routing import route
from ..routing.edge_ops import with_length
from .routed import check_options
from .routing_parameters import Concentration

LEAST = 1e-24  # a mean square of features up to which they say nothing
ROUTINGS = ("spherical", "dynamic", "uniform")  # whose couplings and sums are what the formulas below say


class NodeCapsules(nn.Module):
    """Weights that turn nodes' features into votes, routing along a graph's edges, bias and squash.

    z_ukl = x_uk W_kl                   what capsule k of source node u has to say to capsule l of a destination node;
                                        its direction alone, of length 1, with ``unit_votes``
    u_hat_ekl = w_e z_ukl               its vote along edge e = (u, v), w_e = 1 without edge weights
    s_vl = sum over e and k of c_ekl u_hat_ekl,    c by routing on the graph of ``graphcaps.graph.expand``
    squash(s_vl K_out / in-degree of v / f_v + bias)     competition of capsules
    squash(s_vl K_out / f_v + bias)                      competition of neighbours

    f_v is the root mean square of the numbers of x_u over v's in-edges where ``normalise`` says so, else 1. The other
    factors make undecided couplings those of a graph convolution: a mean over v's in-edges, or an equal part for each
    of u's out-edges.

    Args:
        in_feats: F, features of a node, or of each of its capsules where ``in_caps`` > 1.
        out_feats: D, numbers per capsule of the result.
        num_caps: K_out, capsules of each node in the result.
        in_caps: K_in, capsules of each node in the input; features then have a dim for them. (With 1, a dim there
            would be one of ``*``: routed each for itself.)
        iterations: R >= 1.
        competition: as in ``graphcaps.graph.expand``.
        squash_output: whether the result is squashed to length < 1.
        vote_drop: probability that a vote u_hat_ekl is dropped while training, for all iterations; the others grow by
            1 / (1 - vote_drop).
        bias: whether a bias is learned.
        routing: ``"spherical"``, which learns how much to route, ``"dynamic"`` of the 2017 paper, or ``"uniform"``.
        concentration: kappa of spherical routing before training, > 0.
        normalise: whether a result to be squashed is divided by f_v, so that no scale of features brings all lengths
            near 1. Unit votes have no scale, and aren't divided again.
        unit_votes: whether z_ukl is divided by its length.
        engine: as in ``graphcaps.route``.
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        num_caps: int,
        in_caps: int,
        iterations: int,
        competition: str,
        squash_output: bool,
        vote_drop: float,
        bias: bool,
        routing: str,
        concentration: float,
        normalise: bool,
        unit_votes: bool,
        engine: str,
    ):
        super().__init__()
        sizes = dict(in_feats=in_feats, out_feats=out_feats, num_caps=num_caps, in_caps=in_caps)
        for name, size in sizes.items():
            check_whole(name, size)
        check_competition(competition)
        check_name("routing", routing, list(ROUTINGS))
        check_options(iterations, routing, engine)
        self.iterations, self.routing, self.competition = iterations, routing, competition
        self.squash_output, self.unit_votes, self.engine = squash_output, unit_votes, engine
        self.normalise = normalise and squash_output and not unit_votes
        self.vote_drop = nn.Dropout(vote_drop)
        self.weight = nn.Parameter(torch.empty(in_caps, in_feats, num_caps, out_feats))
        self.bias = nn.Parameter(torch.empty(num_caps, out_feats)) if bias else None
        self.learned = Concentration(concentration) if routing == "spherical" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as DGL's ``GATConv`` does (Glorot, normal, gain of ReLU); the bias is zero."""
        in_caps, in_feats, num_caps, out_feats = self.weight.shape
        nn.init.normal_(self.weight, std=2 / (in_caps * in_feats + num_caps * out_feats) ** 0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.learned is not None:
            self.learned.reset_parameters()

    def forward(
        self, graph: DGLGraph, feat: torch.Tensor, edge_weight: torch.Tensor | None, get_coupling: bool
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Route along the edges of any graph with one canonical edge type.

        Args:
            graph: E edges from N_src to N_dst nodes.
            feat: (N_src, *, F), or (N_src, *, K_in, F) for K_in > 1.
            edge_weight: (E,) or (E, 1), how long each edge's votes are made, or None.
            get_coupling: also give the couplings of the last iteration.

        Returns:
            (N_dst, *, K_out, D), squash(bias) for nodes without in-edges; with ``get_coupling`` a pair, the second
            c (E, *, K_in, K_out), detached.
        """
        edges = links(graph, feat.device)
        z = self._outgoing(feat, edges.num_children)
        votes = z.index_select(0, edges.src)  # (E, *, K_in, K_out, D)
        if edge_weight is not None:
            fits = len(edge_weight) == edge_weight.numel() == len(edges.src)
            expect(fits, "edge_weight", f"(E={len(edges.src)},)", tuple(edge_weight.shape))
            votes = votes * edge_weight.to(votes.dtype).reshape(-1, *[1] * (votes.dim() - 1))
        if self.training and self.vote_drop.p > 0:
            votes = votes * self.vote_drop(torch.ones_like(votes[..., :1]))
        in_caps, _, num_caps, _ = self.weight.shape
        last: dict[str, torch.Tensor] = {}
        s, _ = route(
            expand(graph, in_caps, num_caps, self.competition),
            votes.movedim((-3, -2), (1, 2)).flatten(0, 2),  # (E * K_in * K_out, *, D)
            # A vote alone in its softmax has c = 1 whatever its logit.
            iterations=1 if self.competition == "capsules" and num_caps == 1 else self.iterations,
            routing=self.routing,
            engine=self.engine,
            on_iteration=(lambda r, b, c, v, agreement: last.update(c=c)) if get_coupling else None,
            squash_output=False,
            parameters=self.learned() if self.learned is not None else None,
        )
        s = s.unflatten(0, (edges.num_parents, num_caps)).movedim(1, -2) * num_caps  # (N_dst, *, K_out, D)
        if self.competition == "capsules":
            s = s / edges.in_degrees.clamp_min(1).to(s.dtype).view(-1, *[1] * (s.dim() - 1))
        if self.normalise:
            s = (s * self._per_feature(feat, edges)).to(s.dtype)
        if self.bias is not None:
            s = s + self.bias
        out = squash(s) if self.squash_output else s
        if not get_coupling:
            return out
        return out, last["c"].unflatten(0, (len(edges.src), in_caps, num_caps)).movedim((1, 2), (-2, -1))

    def _per_feature(self, feat: torch.Tensor, edges: Links) -> torch.Tensor:
        """(N_dst, *, 1, 1): 1 / the root mean square of the features that a node is told; 0 where they are zero.

        In float32 at least: squares are soon more than half precision holds, and sums of them sooner.
        """
        feat = feat.to(torch.promote_types(feat.dtype, torch.float32))
        power = feat.square().mean((-2, -1) if len(self.weight) > 1 else -1)  # (N_src, *)
        told = power.new_zeros(edges.num_parents, *power.shape[1:]).index_add(
            0, edges.dst, power.index_select(0, edges.src)
        )
        mean = told / edges.in_degrees.clamp_min(1).to(told.dtype).view(-1, *[1] * (told.dim() - 1))
        some = mean > LEAST
        return torch.where(some, torch.where(some, mean, 1).rsqrt(), 0)[..., None, None]

    def _outgoing(self, feat, num_nodes):
        in_caps, in_feats = self.weight.shape[:2]
        capsules = (in_caps, in_feats) if in_caps > 1 else (in_feats,)
        fits = feat.dim() > len(capsules) and len(feat) == num_nodes and feat.shape[-len(capsules) :] == capsules
        wanted = f"(N={num_nodes}, *, {', '.join(map(str, capsules))})"
        expect(fits, "feat", wanted, tuple(feat.shape))
        autocast = torch.is_autocast_enabled(feat.device.type)
        fits = feat.dtype == self.weight.dtype or (autocast and feat.is_floating_point())
        expect(fits, "feat", f"{self.weight.dtype}, as the layer's weights", feat.dtype, "Convert it, or the layer")
        if in_caps == 1:
            z = (feat @ self.weight[0].flatten(1)).unflatten(-1, (1, *self.weight.shape[2:]))
        else:
            z = torch.einsum("...kf,kfld->...kld", feat, self.weight)
        return with_length(z, torch.ones_like(z[..., 0])) if self.unit_votes else z  # (N, *, K_in, K_out, D)

    def extra_repr(self) -> str:
        in_caps, in_feats, num_caps, out_feats = self.weight.shape
        before = f"{in_caps} x " if in_caps > 1 else ""
        unit = ", unit_votes=True" * self.unit_votes
        start = "" if self.learned is None else f"concentration={self.learned.start}, "
        return (
            f"{before}{in_feats} -> {num_caps} x {out_feats}, iterations={self.iterations}, "
            f"routing={self.routing!r}, {start}competition={self.competition!r}, "
            f"squash_output={self.squash_output}, normalise={self.normalise}{unit}, engine={self.engine!r}"
        )
