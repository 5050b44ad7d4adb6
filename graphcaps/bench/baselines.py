"""Routing as other code writes it, to time graphcaps against; each is as fast as its style allows.

Written anew from published descriptions: Sabour, Frosst & Hinton 2017 (Procedure 1), the capsule tutorial and example
of DGL's documentation, the layout that PyTorch capsule networks commonly copy from one another, and that of
arogozhnikov's readable_capsnet, whose README names 15 seconds for an epoch on a V100. Where that code has
an error (a softmax over the children, a needless copy) the error is not kept. Only the tutorial is another algorithm.

A formulation says how it lays out votes, children and weights, how it makes votes, and how it routes them. The layouts
are made before the clock starts.

Tried and slower, forward+backward from given votes at 1152 -> 10, D 16, B 32, R 3, one thread of a shared machine:
einsum with votes (B, I, J, D) 110 ms, (I, J, B, D) 127 ms and (I, B, J, D) 154 ms against (B, J, I, D) 64 ms; the same
compiled 28, 32 and 32 ms against 16 ms; the tutorial with ``apply_edges`` for the agreement 96 ms against 82 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from .._dgl import DGLGraph, edge_softmax
from ..functional import squash
from ..graph import links
from ..routing import LinearVotes, dynamic_routing
from ..routing.engines import engine_names


class Formulation(NamedTuple):
    """One way to write dynamic routing.

    ``given(graph, u_hat (E, *, D))``, ``children(graph, u (I, *, P))`` and ``weights(graph, weight (E, P, D))`` lay
    tensors out; ``votes(graph, children, weights)`` makes votes, ``route(graph, votes, iterations)`` parents (J, *, D).
    """

    name: str
    says: str
    given: Callable
    children: Callable
    weights: Callable
    votes: Callable
    route: Callable
    same: bool = True  # the paper's algorithm; else it isn't held against naive
    any_graph: bool = True  # else complete graphs only
    compiled: bool = False
    engine: bool = False  # of graphcaps


def formulations() -> list[Formulation]:
    """All that are timed: the baselines, then graphcaps' own engines."""
    return [BROADCAST, TUTORIAL, EINSUM, COMPILED, PYG, *(engine(name) for name in engine_names() if name != "naive")]


def grid(graph: DGLGraph, x: torch.Tensor) -> torch.Tensor:
    """(E, ...) of a complete graph as (I, J, ...)."""
    return x.unflatten(0, (graph.num_src_nodes(), graph.num_dst_nodes()))


def as_it_is(graph, x):
    return x


def votes_per_edge(graph, u, weight):
    """Votes (E, *, D) in edge order, built."""
    return LinearVotes(u, weight).tensor(graph)


# The most copied PyTorch code: votes (J, B, I, 1, D), logits as wide as the votes, every product a broadcast.


def _broadcast(graph, votes, iterations):
    logits = torch.zeros_like(votes)  # (J, B, I, 1, D)
    for r in range(iterations):
        v = squash((logits.softmax(dim=0) * votes).sum(dim=2, keepdim=True))  # (J, B, 1, 1, D)
        if r < iterations - 1:
            logits = logits + (votes * v).sum(dim=-1, keepdim=True)
    return v[:, :, 0, 0]


BROADCAST = Formulation(
    "broadcast",
    "the most copied PyTorch code: (J, B, I, 1, D) with logits as wide as the votes",
    given=lambda graph, u_hat: grid(graph, u_hat).permute(1, 2, 0, 3).unsqueeze(3).contiguous(),
    children=lambda graph, u: u.transpose(0, 1).contiguous(),  # (B, I, P)
    weights=lambda graph, weight: grid(graph, weight).transpose(0, 1).contiguous(),  # (J, I, P, D)
    votes=lambda graph, u, weight: u[None, :, :, None, :] @ weight[:, None],
    route=_broadcast,
    any_graph=False,
)


# DGL's tutorial and example: message and reduce as Python functions, logits (E, 1) that all images share.


def _tutorial(graph, u_hat, iterations):
    edges = links(graph, u_hat.device)
    shared = u_hat.dim() > 2
    b = u_hat.new_zeros(len(u_hat), 1)
    with graph.local_scope():
        graph.edata["u_hat"] = u_hat
        for r in range(iterations):
            c = grid(graph, b).softmax(dim=1).flatten(0, 1) if edges.complete else edge_softmax(graph, b, norm_by="src")
            graph.edata["c"] = c.view(-1, *[1] * (u_hat.dim() - 1))
            graph.update_all(_message, _reduce)
            v = squash(graph.dstdata["s"])
            if r < iterations - 1:
                agree = grid(graph, u_hat) * v if edges.complete else u_hat * v[edges.dst]
                agree = agree.sum(dim=-1)
                b = b + (agree.mean(dim=-1) if shared else agree).reshape(-1, 1)
    return v


def _message(edges):
    return {"m": edges.data["c"] * edges.data["u_hat"]}


def _reduce(nodes):
    return {"s": nodes.mailbox["m"].sum(dim=1)}


TUTORIAL = Formulation(
    "tutorial",
    "DGL's example: Python functions per message; logits averaged over the batch, another algorithm",
    as_it_is,
    as_it_is,
    as_it_is,
    votes_per_edge,
    _tutorial,
    same=False,
)


# Einsum: votes (B, J, I, D) and logits per image, so that each sum is one batched matrix product without a copy.


def _einsum(graph, votes, iterations):
    b = votes.new_zeros(votes.shape[:-1])  # (B, J, I)
    for r in range(iterations):
        v = squash(torch.einsum("bji,bjid->bjd", b.softmax(dim=1), votes))
        if r < iterations - 1:
            b = b + torch.einsum("bjid,bjd->bji", votes, v)
    return v.transpose(0, 1)


EINSUM = Formulation(
    "einsum",
    "batched matrix products on votes (B, J, I, D)",
    given=lambda graph, u_hat: grid(graph, u_hat).permute(2, 1, 0, 3).contiguous(),
    children=lambda graph, u: u.transpose(0, 1).contiguous(),  # (B, I, P)
    weights=lambda graph, weight: grid(graph, weight).contiguous(),  # (I, J, P, D)
    votes=lambda graph, u, weight: torch.einsum("bip,ijpd->bjid", u, weight).contiguous(),
    route=_einsum,
    any_graph=False,
)
COMPILED = EINSUM._replace(name="einsum, compiled", says="the same under torch.compile", compiled=True)


# Einsum as one writes it to be read, in the manner of arogozhnikov's readable_capsnet: the batch first, (B, I, J, D).


def _readable(graph, votes, iterations):
    b = votes.new_zeros(votes.shape[:-1])  # (B, I, J)
    for r in range(iterations):
        v = squash(torch.einsum("bij,bijd->bjd", b.softmax(dim=-1), votes))
        if r < iterations - 1:
            b = b + torch.einsum("bijd,bjd->bij", votes, v)
    return v.transpose(0, 1)


READABLE = Formulation(
    "readable",
    "einsum in the manner of readable_capsnet: votes (B, I, J, D)",
    given=lambda graph, u_hat: grid(graph, u_hat).permute(2, 0, 1, 3).contiguous(),
    children=lambda graph, u: u.transpose(0, 1).contiguous(),  # (B, I, P)
    weights=lambda graph, weight: grid(graph, weight).transpose(1, 2).contiguous(),  # (I, P, J, D)
    votes=lambda graph, u, weight: torch.einsum("bip,ipjd->bijd", u, weight),
    route=_readable,
    any_graph=False,
)


# PyTorch Geometric's softmax and scatter.


def _pyg(graph, u_hat, iterations):
    from torch_geometric.utils import scatter, softmax

    edges = links(graph, u_hat.device)
    b = u_hat.new_zeros(u_hat.shape[:-1])  # (E, *)
    for r in range(iterations):
        c = softmax(b, edges.src, num_nodes=edges.num_children)
        v = squash(scatter(c.unsqueeze(-1) * u_hat, edges.dst, dim_size=edges.num_parents))
        if r < iterations - 1:
            b = b + (u_hat * v[edges.dst]).sum(dim=-1)
    return v


PYG = Formulation("pyg", "PyG's softmax and scatter", as_it_is, as_it_is, as_it_is, votes_per_edge, _pyg)


_ENGINES = {
    "dgl": "graphcaps on DGL's built-in kernels",
    "torch": "graphcaps on torch: batched products on complete graphs, else scatter",
    "fused": "graphcaps, few passes over the votes; linear votes are not built",
}


def engine(name: str) -> Formulation:
    """One of graphcaps' engines; what it does with linear votes is its own affair."""
    return Formulation(
        name,
        _ENGINES.get(name, "graphcaps"),
        as_it_is,
        as_it_is,
        as_it_is,
        votes=lambda graph, u, weight: LinearVotes(u, weight),
        route=lambda graph, votes, iterations: dynamic_routing(graph, votes, iterations, engine=name),
        engine=True,
    )
