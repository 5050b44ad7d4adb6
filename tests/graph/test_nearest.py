"""Nearest parents against a sort of all distances, ties, and what doesn't fit."""

from __future__ import annotations

import pytest
import torch

from graphcaps import InputError, dgl
from graphcaps.graph import EDGE_TYPE, links, nearest, nearest_graph


def by_sorting(children, parents, k):
    """(I, k): each child's nearest parents by distance, then index, from all distances."""
    found = []
    for child in children.double().tolist():
        far = [(sum((a - b) ** 2 for a, b in zip(child, parent, strict=True)), j) for j, parent in enumerate(parents)]
        found.append([j for _, j in sorted(far)[:k]])
    return torch.tensor(found)


def chosen(graph, k):
    assert graph.canonical_etypes == [EDGE_TYPE]
    assert links(graph).src.tolist() == [i for i in range(graph.num_src_nodes()) for _ in range(k)]
    return links(graph).dst.view(-1, k)


@pytest.mark.parametrize(("dims", "k"), [(1, 1), (3, 7), (2, 12)])
def test_each_child_votes_for_its_k_nearest_parents_the_nearest_first(draw, dims, k):
    children, parents = draw(20, dims, dtype=torch.float32), draw(12, dims, dtype=torch.float32)
    graph = nearest_graph(children, parents, k)
    assert (graph.num_src_nodes(), graph.num_dst_nodes(), graph.num_edges()) == (20, 12, 20 * k)
    assert torch.equal(chosen(graph, k), by_sorting(children, parents.double().tolist(), k))


@pytest.mark.parametrize("most_found", [1, 2**22])
@pytest.mark.parametrize("k", [3])
def test_equally_near_parents_are_taken_in_order_of_index(k, most_found, monkeypatch):
    monkeypatch.setattr(nearest, "MOST_FOUND", most_found)
    grid = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0))
    grid = grid[torch.randperm(25, generator=torch.Generator().manual_seed(0))]
    children = torch.cat([grid, grid + 0.5])
    assert torch.equal(chosen(nearest_graph(children, grid, k), k), by_sorting(children, grid.tolist(), k))


def test_a_batch_of_point_sets_equals_them_one_by_one(draw):
    sets = [(draw(5, 2), draw(4, 2)), (draw(1, 2), draw(2, 2)), (draw(3, 2), draw(7, 2))]
    one_by_one = [nearest_graph(*points, 2) for points in sets]
    batch = dgl.batch(one_by_one)
    assert batch.batch_num_edges().tolist() == [10, 2, 6]
    shift = torch.tensor([[0, 0], [5, 4], [6, 6]]).repeat_interleave(batch.batch_num_edges(), dim=0)
    for end, name in enumerate(("src", "dst")):
        alone = torch.cat([getattr(links(graph), name) for graph in one_by_one])
        assert torch.equal(getattr(links(batch), name), alone + shift[:, end])


POINTS = torch.zeros(3, 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((POINTS, POINTS, 0), "k: expected an integer from 1 to J=3, the parents, got 0"),
        ((POINTS, torch.zeros(3, 3), 1), "parents: expected d=2 numbers each as children, got 3"),
        ((POINTS.long(), POINTS, 1), "children: expected (I, d), floating point, got (3, 2) torch.int64"),

        ((POINTS / 0, POINTS, 1), "children: expected finite positions, got NaN or infinity"),
    ],
)  # fmt: skip
def test_points_that_do_not_fit_are_named(arguments, text):
    with pytest.raises(InputError) as caught:
        nearest_graph(*arguments)
    assert str(caught.value) == text
