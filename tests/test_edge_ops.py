"""Each edge operation gives the same on every kind of edges, alone and on what another one gave."""

from __future__ import annotations

import pytest
import torch

from graphcaps import complete_graph
from graphcaps.graph import links
from graphcaps.routing.edge_ops import DenseEdges, DGLEdges, ScatterEdges, edges_of

CHILDREN, PARENTS, D = 4, 3, 5


def kinds(graph, u_hat):
    return DGLEdges(graph), DenseEdges(links(graph), u_hat.dim()), ScatterEdges(links(graph))


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
