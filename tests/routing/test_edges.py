"""Each edge operation gives the same on every kind of edges, alone and on what another one gave."""

from __future__ import annotations

import pytest
import torch

from graphcaps import complete_graph
from graphcaps.graph import links
from graphcaps.routing.edge_ops import DenseEdges, DGLEdges, ScatterEdges, edges_of

CHILDREN, PARENTS, D = 4, 3, 5


def kinds(graph, u_hat):
    ends, dims = links(graph), u_hat.dim()
    return DGLEdges(graph), DenseEdges(ends, dims), DenseEdges(ends, dims, copied=False), ScatterEdges(ends)


@pytest.mark.parametrize("trailing", [(), (2,), (2, 3)], ids=str)
def test_operations_agree_between_the_kinds(trailing, draw):
    graph, u_hat, b = complete_graph(CHILDREN, PARENTS), draw(12, *trailing, D), draw(12, *trailing)
    child, parent, pose = draw(CHILDREN, *trailing), draw(PARENTS, *trailing), draw(PARENTS, *trailing, D)
    found = []
    for edges in kinds(graph, u_hat):
        votes, numbers = edges.vectors_in(u_hat), edges.numbers_in(b)
        assert torch.equal(edges.numbers_out(numbers), b)
        c = edges.child_softmax(numbers)
        found.append(
            [
                edges.numbers_out(c),
                edges.weighted_sum(c, votes),
                edges.sum_to_parents(votes),
                edges.sum_to_parents(c),
                edges.numbers_out(edges.agreement(votes, pose)),
                edges.numbers_out(edges.from_children(child)),
                edges.sum_to_parents(edges.from_children(child)),
                edges.numbers_out(edges.child_softmax(edges.from_children(child))),
                edges.numbers_out(c * edges.from_parents(parent)),
                edges.sum_to_parents((votes - edges.from_parents(pose)).square()),
                edges.has_votes(),
            ]
        )
    for wanted, *others in zip(*found, strict=True):
        for got in others:
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_the_kind_is_the_engines_and_the_graphs(graphs, draw):
    for name, dense in (("complete", True), ("one_parent", True), ("sparse_7x5", False), ("no_edges", False)):
        u_hat = draw(graphs[name].num_edges(), D)
        assert isinstance(
            edges_of("torch", graphs[name], u_hat.shape, u_hat.device), DenseEdges if dense else ScatterEdges
        )
    assert isinstance(edges_of("dgl", graphs["complete"], (12, D), torch.device("cpu")), DGLEdges)
    assert isinstance(
        edges_of("dgl", graphs["complete"], (12, 0), torch.device("cpu")), ScatterEdges
    )  # DGL refuses tensors of no numbers


@pytest.mark.parametrize("trailing", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", ["rows copied", "by parent", "by image", "scatter"])
def test_what_a_gradient_needs_is_autograds(kind, trailing, draw):
    ends, u_hat = links(complete_graph(CHILDREN, PARENTS)), draw(12, *trailing, D)
    edges = ScatterEdges(ends) if kind == "scatter" else DenseEdges(ends, u_hat.dim(), copied=kind == "rows copied")
    votes = edges.vectors_in(u_hat)
    if kind == "by image":  # as a product of children and matrices leaves them: (I, *, J, D) in memory
        grid = u_hat.unflatten(0, (CHILDREN, PARENTS)).movedim(1, -2).contiguous().movedim(-2, 1)
        votes = edges.vectors_of(grid, by_image=True)
    b, c, dc = (edges.numbers_in(draw(12, *trailing)) for _ in range(3))
    logits = b.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(edges.child_softmax(logits), logits, dc)
    torch.testing.assert_close(edges.through_softmax(edges.child_softmax(b), dc), wanted, rtol=1e-12, atol=1e-12)
    parents = draw(PARENTS, *trailing, D), draw(PARENTS, *trailing, D)
    leaf = votes.detach().requires_grad_()
    sums = (edges.weighted_sum(c, leaf) * parents[0]).sum() + (edges.agreement(leaf, parents[1]) * b).sum()
    (wanted,) = torch.autograd.grad(sums, leaf)
    found = edges.outer((c, b), parents, votes)
    assert found.stride() == votes.stride()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
