"""Routing between the nodes of a DGL graph, and from the nodes of each graph to its class capsules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import check_tensor
from ..graph import Links, check_graph, links_of_graph
from ..graph.checks import check_edges, check_one_kind
from ..graph.links import members_of
from ..kernels import prepare
from ..layer_common import dropped
from ..routing import Routing
from ..tracing import uncompiled
from ..typed import Share, Size, typed
from .node_caps import NodeCapsules, NodeOptions


@uncompiled
def _checked_links(graph: DGLGraph, layer: CapsuleConv, device: torch.device) -> Links:
    """Check a graph, and return its links. ``torch.compile`` can't trace DGL, and runs this outside its trace."""
    check_edges(graph, layer.allow_zero_in_degree)
    if layer.capsules.mutual:
        check_one_kind(graph, "edges that go both ways, with mutual=True", "Give it mutual=False")
    links = links_of_graph(graph, device)
    prepare(links, layer.capsules.mutual)
    return links


@uncompiled
def _members(graph: DGLGraph, device: torch.device) -> Links:
    """Return the links from nodes to their graphs, as ``_checked_links`` does."""
    check_graph(graph)
    links = members_of(graph, device)
    prepare(links, mutual=False)
    return links


class CapsuleConv(nn.Module):
    """Graph convolution by routing: nodes vote for the capsules of their neighbours, and votes that agree count more.

    Node u votes z_ul = x_u W_l for capsule l of a neighbour. For node v with in-edges e = (u, v), an iteration computes

        c = softmax of b over the K capsules l of edge e
        s_vl = sum over e of c_el z_ul
        b_el = kappa <z_ul, s_vl> / |s_vl| / rho_vl    (Spherical)
        b_el = b_el + <z_ul, squash(s_vl)>             (Dynamic: arXiv 1710.09829)

    where kappa is learned and rho_vl is the root mean square length of the votes z_ul over the in-edges. The result is
    squash(s_vl K / in-degree of v / f_v + bias). f_v is the root mean square of the elements of x_u over the in-edges;
    without squash or ``normalise``, f_v is 1. So one iteration, or ``Uniform``, is ``GraphConv`` with norm="right",
    followed by the squash. With ``num_caps=1`` there is no competition, and all iterations have the same result.

    Features may have any scale from 1e-11 to 1e17 in float32, in training to 1e11: the logits of spherical routing
    don't depend on it, and with ``normalise`` the squash doesn't either. Dynamic routing needs votes that are short
    compared to 1. If votes are long, or a node has many neighbours, the first iteration chooses at random, and the
    layer learns little or nothing.

    The capsules compete as in the neighbourhood routing of Ma et al. 2019 (Disentangled graph convolutional networks,
    ICML). Differs: capsules start from the sum of the votes instead of the node's own features (a self-loop adds
    these), and votes keep their length unless ``unit_votes`` is set. A node's result depends on its in-edges alone, so
    a sampled block gives the same result as the whole graph.

    Args:
        in_feats: number of features of a node; -1: inferred from the first input. For bipartite graphs, a pair (source,
            destination), as in DGL's layers. Only ``residual`` uses the destination's features; None declares them
            unused.
        out_feats: D, numbers per capsule.
        num_caps: K, number of capsules of each node in the result.
        routing: a routing such as ``Spherical(concentration=4.0)`` or ``Dynamic(3)``, a name, or a ``Routing`` of your
            own that returns sums of coupled votes. The layer keeps a copy.
        squash_output: whether capsules are squashed to length < 1. Set it to False if you need logits.
        feat_drop: dropout probability of features.
        vote_drop: dropout probability of votes, like ``GATConv``'s ``attn_drop``. All iterations share one mask.
        bias: whether a bias is learned.
        allow_zero_in_degree: if False, a node without in-edges is an error, as in DGL's layers; if True, its result is
            squash(bias).
        normalise: whether capsules are divided by f_v before the squash.
        residual: whether x_v R_l / f'_v is added before the squash, with a learned matrix R_l. f'_v is the root mean
            square of the elements of x_v; without squash or ``normalise`` it is 1.
        activation: function applied to the result, or None. To replace a ``GATConv`` with ``activation=F.elu``, set
            ``squash_output=False`` too.
        edge_feats: number of features a_e of an edge, or None. They act as further features of the edge's source along
            this edge: z_ul + a_e U_l replaces z_ul, and f_v covers the elements of x_u and a_e.
        mutual: whether the two directions of an edge share their logits: the logit of (v, u) is added to b_el. This
            suits graphs in which each link has one cause and the votes of both ends are evidence for it. Each edge must
            have a reverse, so blocks are refused.
        unit_votes: whether each vote is divided by its length; f_v is then 1. Try it, with a concentration of about 4,
            if edges have several hidden causes.

    Shapes:
        graph, feat (N, *, in_feats) -> (N, *, num_caps, out_feats); feat (N, in_feats) may be sparse, in torch's COO or
        CSR. To give the capsules of another layer as features, join them: ``.flatten(-2)``

    >>> import torch
    >>> from graphcaps import dgl
    >>> graph = dgl.add_self_loop(dgl.graph(([0, 1, 2], [1, 2, 3])))
    >>> CapsuleConv(10, 2, num_caps=3)(graph, torch.ones(4, 10)).shape
    torch.Size([4, 3, 2])
    """

    @typed
    def __init__(
        self,
        in_feats: int | Sequence[int | None],
        out_feats: Size,
        num_caps: Size,
        routing: Routing | str = "spherical",
        squash_output: bool = True,
        feat_drop: Share = 0.0,
        vote_drop: Share = 0.0,
        bias: bool = True,
        allow_zero_in_degree: bool = False,
        normalise: bool = True,
        residual: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
        edge_feats: int | None = None,
        mutual: bool = False,
        unit_votes: bool = False,
    ):
        super().__init__()
        self.allow_zero_in_degree, self.activation = allow_zero_in_degree, activation
        self.feat_drop = nn.Dropout(feat_drop)
        options = NodeOptions(
            routing, squash_output, vote_drop, bias, normalise, unit_votes, mutual, edge_feats, residual
        )
        self.capsules = NodeCapsules(in_feats, out_feats, num_caps, options)

    def reset_parameters(self) -> None:
        """Draw the weights like ``GATConv`` (Glorot normal, gain of ReLU), and set the bias to zero."""
        self.capsules.reset_parameters()

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Set ``allow_zero_in_degree``; DGL's ``HeteroGraphConv`` calls this."""
        self.allow_zero_in_degree = set_value

    @typed
    def forward(
        self,
        graph: DGLGraph,
        feat: Tensor | Sequence[Tensor],
        edge_weight: Tensor | None = None,
        get_coupling: bool = False,
        edge_feat: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Route along the graph's edges.

        Args:
            graph: a homogeneous or bipartite graph or a message-flow block, with one canonical edge type and E edges.
            feat: (N, *, in_feats) of the source nodes, or a pair of the source and the destination nodes' features.
                Without a pair, a block's destination nodes are its first source nodes.
            edge_weight: (E,), a factor >= 0 for each edge's votes: w z_ul replaces z_ul; default 1.
            get_coupling: also return c (E, *, 1, num_caps), detached.
            edge_feat: (E, edge_feats), or (E,) for a single feature, if edges have features.

        Raises:
            DGLError: a node has no in-edges, and ``allow_zero_in_degree`` is False.
            InputError: shapes don't fit.
        """
        source, target = self.capsules.source_and_target(feat)
        links = _checked_links(graph, self, source.device)
        edge_feat = None if edge_feat is None else check_tensor("edge_feat", edge_feat)
        self.capsules.warn_of_target(target, links)
        source = dropped(self.feat_drop, source)
        if self.capsules.weight_target is None:
            target = None
        elif target is not None:
            target = dropped(self.feat_drop, target)
        elif links.one_kind:
            target = source if links.num_children == links.num_parents else _first(source, links.num_parents)
        out, c = self.capsules(links, source, edge_weight, get_coupling, edge_feat, target)
        out = out if self.activation is None else self.activation(out)
        return (out, c) if get_coupling else out


def _first(x: Tensor, count: int) -> Tensor:
    """Return the first rows of x, which may be sparse."""
    if x.layout == torch.strided:
        return x[:count]
    return x.to_sparse_coo().index_select(0, torch.arange(count, device=x.device))


class CapsuleReadout(nn.Module):
    """Graph-level capsules: every node divides its vote among the C class capsules of its graph.

    The docstring of ``graphcaps.nn.CapsuleConv`` gives the formula and the other arguments. Each node has one edge, to
    its graph, and the C classes compete along it. At uniform couplings the result is the mean over the nodes. The layer
    replaces ``GlobalAttentionPooling``; the lengths of the capsules are class scores for ``graphcaps.margin_loss``.

    Dynamic routing sums over all nodes. Unless the votes are very short, its first iteration chooses at random, and the
    layer learns nothing.

    Args:
        in_feats: number of features of a node.
        out_feats: D, numbers per capsule.
        num_caps: C, number of capsules of each graph, one per class.
        shared: whether all capsules of a graph share W, so that a node gives each of them the same vote. Without a
            ``prior``, the sums are then equal, and nothing is routed.

    Shapes:
        batch of B graphs with N nodes in all, feat (N, *, in_feats) -> (B, *, num_caps, out_feats); the result of a
        graph without nodes is squash(bias)

    >>> import torch
    >>> from graphcaps import dgl
    >>> batch = dgl.batch([dgl.rand_graph(3, 4), dgl.rand_graph(5, 9)])
    >>> CapsuleReadout(10, 16, num_caps=2)(batch, torch.ones(8, 10)).shape
    torch.Size([2, 2, 16])
    """

    @typed
    def __init__(
        self,
        in_feats: int,
        out_feats: Size,
        num_caps: Size,
        routing: Routing | str = "spherical",
        squash_output: bool = True,
        vote_drop: Share = 0.0,
        bias: bool = True,
        normalise: bool = True,
        unit_votes: bool = False,
        shared: bool = False,
    ):
        super().__init__()
        options = NodeOptions(routing, squash_output, vote_drop, bias, normalise, unit_votes, shared=shared)
        self.capsules = NodeCapsules(in_feats, out_feats, num_caps, options)

    def reset_parameters(self) -> None:
        """Draw the weights like ``CapsuleConv``, and set the bias to zero."""
        self.capsules.reset_parameters()

    @typed
    def forward(
        self, graph: DGLGraph, feat: Tensor, get_coupling: bool = False, prior: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Route nodes to their graphs.

        Args:
            graph: one homogeneous graph, or several from ``dgl.batch``. Its edges aren't used.
            feat: (N, *, in_feats).
            get_coupling: also return c (N, *, 1, num_caps), detached: the classes that each node supports.
            prior: (N, num_caps) or the shape of c, logits that are added to b; default 0.
        """
        check_tensor("feat", feat, floating=False, sparse=True)
        members = _members(graph, feat.device)
        out, c = self.capsules(members, feat, coupling=get_coupling, prior=prior)
        return (out, c) if get_coupling else out
