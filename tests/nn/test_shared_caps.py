"""Capsules whose matrices all positions share: their votes by hand, and their start."""

from __future__ import annotations

import torch

from graphcaps import route
from graphcaps.nn import SharedCaps
from graphcaps.routing import Uniform, choose_engine

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
