"""Each edge operation gives the same on every kind of edges, and what gradients are written in is autograd's."""

from __future__ import annotations

import pytest
import torch

from graphcaps import complete_graph
from graphcaps.graph import links
from graphcaps.routing.edges import DenseEdges, DGLEdges, ScatterEdges, edges_of

CHILDREN, PARENTS, D = 4, 3, 5


@pytest.mark.parametrize("trailing", [(), (2, 3)], ids=str)
def test_operations_agree_between_the_kinds(trailing, draw):
    graph, u_hat, b = complete_graph(CHILDREN, PARENTS), draw(12, *trailing, D), draw(12, *trailing)
    child, parent, pose = draw(CHILDREN, *trailing), draw(PARENTS, *trailing), draw(PARENTS, *trailing, D)
    ends, dims, found = links(graph), u_hat.dim(), []
    kinds = DGLEdges(graph), DenseEdges(ends, dims), DenseEdges(ends, dims, copied=False), ScatterEdges(ends)
    for edges in kinds:
        votes, numbers = edges.vectors_in(u_hat), edges.numbers_in(b)
        assert torch.equal(edges.numbers_out(numbers), b)
        c = edges.child_softmax(numbers)
        found.append(
            [
                edges.numbers_out(c),
                edges.numbers_out(edges.child_sum(numbers)),
                edges.weighted_sum(c, votes),
                edges.sum_to_parents(votes),
                edges.sum_to_parents(c),
                edges.numbers_out(edges.agreement(votes, pose)),
                edges.numbers_out(edges.from_children(child)),
                edges.sum_to_parents(edges.from_children(child)),
                edges.numbers_out(c * edges.from_parents(parent)),
                edges.sum_to_parents((votes - edges.from_parents(pose)).square()),
                edges.has_votes(),
            ]
        )
    for wanted, *others in zip(*found, strict=True):
        for got in others:
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_the_kind_is_the_engines_and_the_graphs(graphs):
    for name, dense in (("complete", True), ("one_parent", True), ("sparse_7x5", False), ("no_edges", False)):
        kind = type(edges_of("torch", graphs[name], (graphs[name].num_edges(), D), torch.device("cpu")))
        assert kind is (DenseEdges if dense else ScatterEdges)
    for dim, kind in ((D, DGLEdges), (0, ScatterEdges)):  # DGL refuses tensors of no numbers
        assert type(edges_of("dgl", graphs["complete"], (12, dim), torch.device("cpu"))) is kind


@pytest.mark.parametrize("trailing", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", ["rows copied", "by parent", "by image", "scatter"])
def test_outer_is_the_gradient_of_weighted_sum_and_agreement(kind, trailing, draw):
    ends, u_hat = links(complete_graph(CHILDREN, PARENTS)), draw(12, *trailing, D)
    edges = ScatterEdges(ends) if kind == "scatter" else DenseEdges(ends, u_hat.dim(), copied=kind == "rows copied")
    votes = edges.vectors_in(u_hat)
    if kind == "by image":  # as a product of children and matrices leaves them: (I, *, J, D) in memory
        grid = u_hat.unflatten(0, (CHILDREN, PARENTS)).movedim(1, -2).contiguous().movedim(-2, 1)
        votes = edges.vectors_of(grid, by_image=True)
    b, c = (edges.numbers_in(draw(12, *trailing)) for _ in range(2))
    parents = draw(PARENTS, *trailing, D), draw(PARENTS, *trailing, D)
    leaf = votes.detach().requires_grad_()
    sums = (edges.weighted_sum(c, leaf) * parents[0]).sum() + (edges.agreement(leaf, parents[1]) * b).sum()
    (wanted,) = torch.autograd.grad(sums, leaf)
    found = edges.outer((c, b), parents, votes)
    assert found.stride() == votes.stride()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
