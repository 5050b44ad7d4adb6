"""Capsules with shared weights: the local graph, matrices that all places share."""

import itertools

import numpy as np
import pytest
import torch

from graphcaps import local_graph, local_index, route
from graphcaps.graph import local_grid
from graphcaps.nn import SharedCaps
from graphcaps.routing import Uniform, choose_engine

pytestmark = pytest.mark.usefixtures("one_thread")

# grid, kernel, stride, child types, parent types: usual, with strides, with gaps
WINDOWS = [((4, 5), 3, 1, 2, 3), ((7, 6), (3, 2), (2, 3), 2, 2), ((7, 7), 2, 3, 1, 2)]


def by_loop(grid, kernel, stride, child_types, parent_types):
    """(child, parent, matrix) of each edge, from loops over windows."""
    (rows, columns), (down, across) = ((n, n) if isinstance(n, int) else n for n in (kernel, stride))
    tops, lefts = range(0, grid[0] - rows + 1, down), range(0, grid[1] - columns + 1, across)
    edges = []
    for (py, top), (px, left) in itertools.product(enumerate(tops), enumerate(lefts)):
        matrices = itertools.product(range(rows), range(columns), range(child_types), range(parent_types))
        for matrix, (dy, dx, of, to) in enumerate(matrices):
            child = np.ravel_multi_index((of, top + dy, left + dx), (child_types, *grid))
            parent = np.ravel_multi_index((to, py, px), (parent_types, len(tops), len(lefts)))
            edges.append((int(child), int(parent), matrix))
    return sorted(edges), len(tops), len(lefts)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_edges_and_their_matrices_are_those_of_a_loop_over_windows(window):
    edges, height, width = by_loop(*window)
    graph, index = local_graph(*window), local_index(*window)
    src, dst = graph.edges(order="eid")
    assert list(zip(src.tolist(), dst.tolist(), index.tolist(), strict=True)) == edges
    grid, kernel, stride, child_types, parent_types = window
    assert graph.num_nodes("child") == child_types * grid[0] * grid[1]
    assert local_grid(grid, kernel, stride) == (height, width)
    assert graph.num_nodes("parent") == parent_types * height * width


# Matrices that all positions share

CENTRES = torch.tensor([[0.25, 0.25], [0.25, 0.75], [0.75, 0.5]])


def layer_of(**options):
    torch.manual_seed(0)
    return SharedCaps(2, CENTRES, num_parents=4, child_dim=8, parent_dim=16, **options).double()


def test_a_vote_is_the_childs_product_with_its_types_matrix_at_its_place(draw):
    layer, u = layer_of(), draw(6, 2, 8)
    votes = layer.votes(u).tensor(layer.graph()).unflatten(0, (6, 4))  # (I, J, B, D)
    for i in range(6):
        row, column = (2 * CENTRES[i % 3] - 1).tolist()
        for j in range(4):
            plain, down, right = layer.weight[i // 3 * 4 + j].chunk(3)
            wanted = u[i] @ (plain + row * down + column * right)
            torch.testing.assert_close(votes[i, j], wanted, rtol=1e-10, atol=1e-10)
    assert choose_engine(layer.graph(), layer.votes(layer.blank())) == "fused"


def test_an_untrained_sum_is_about_as_long_as_a_child():
    torch.manual_seed(0)
    centres = torch.cartesian_prod(torch.linspace(0.2, 0.8, 8), torch.linspace(0.2, 0.8, 8))
    layer, ratios = SharedCaps(8, centres, num_parents=10), []
    for _ in range(20):
        layer.reset_parameters()
        u = torch.nn.functional.normalize(torch.randn(512, 4, 8), dim=-1)
        ratios.append(route(layer.graph(), layer.votes(u), Uniform()).pose.norm(dim=-1).mean())
    assert 0.7 < torch.stack(ratios).mean() < 1.5
