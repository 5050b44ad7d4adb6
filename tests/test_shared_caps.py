"""Capsules whose matrices all positions share: their votes by hand, their engines, their start."""

from __future__ import annotations

import pytest
import torch

from graphcaps import InputError, route
from graphcaps.nn import SharedCaps
from graphcaps.routing import choose_engine

CENTRES = torch.tensor([[0.25, 0.25], [0.25, 0.75], [0.75, 0.5]])


def layer_of(**options):
    torch.manual_seed(0)
    return SharedCaps(2, CENTRES, num_parents=4, child_dim=3, parent_dim=5, **options).double()


def test_a_vote_is_the_childs_product_with_its_types_matrix_at_its_place(draw):
    layer, u = layer_of(), draw(6, 2, 3)
    votes = layer.votes(u).tensor(layer.graph()).unflatten(0, (6, 4))  # (I, J, B, D)
    for i in range(6):
        row, column = (2 * CENTRES[i % 3] - 1).tolist()
        for j in range(4):
            plain, down, right = layer.weight[i // 3 * 4 + j].chunk(3)
            torch.testing.assert_close(
                votes[i, j], u[i] @ (plain + row * down + column * right), rtol=1e-10, atol=1e-10
            )


@pytest.mark.parametrize(
    ("routing", "engine"),
    [("dynamic", "torch"), ("dynamic", "fused"), ("attention", "torch"), ("inverted", "torch")],
)
def test_every_engine_gives_what_naive_gives_in_value_and_gradient(routing, engine, draw):
    found, children = [], draw(6, 2, 3)
    for name in (engine, "naive"):
        layer, u = layer_of(routing=routing, engine=name), children.clone().requires_grad_()
        v = layer(u)
        (v * torch.arange(1.0, 6)).sum().backward()
        found.append((v.detach(), u.grad, layer.weight.grad))
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_auto_is_fused_on_a_cpu():
    layer = layer_of()
    assert choose_engine(layer.graph(), layer.votes(layer.blank()), "dynamic") == "fused"


def test_the_same_part_elsewhere_changes_the_vote_evenly():
    line = torch.tensor([[0.5, 0.1], [0.5, 0.3], [0.5, 0.5]])
    layer = SharedCaps(1, line, num_parents=2, child_dim=3, parent_dim=5).double()
    votes = layer.votes(torch.ones(3, 1, 3).double()).tensor(layer.graph()).unflatten(0, (3, 2))  # (I, J, B, D)
    torch.testing.assert_close(votes[1] - votes[0], votes[2] - votes[1], rtol=1e-6, atol=1e-6)  # places are float32
    assert (votes[1] - votes[0]).abs().max() > 1e-3


def test_an_untrained_sum_is_about_as_long_as_a_child():
    torch.manual_seed(0)
    centres = torch.cartesian_prod(torch.linspace(0.2, 0.8, 8), torch.linspace(0.2, 0.8, 8))
    layer, ratios = SharedCaps(8, centres, num_parents=10), []
    for _ in range(20):
        layer.reset_parameters()
        u = torch.nn.functional.normalize(torch.randn(512, 4, 8), dim=-1)
        s = route(layer.graph(), layer.votes(u), iterations=1, squash_output=False).v
        ratios.append(s.norm(dim=-1).mean())
    assert 0.7 < torch.stack(ratios).mean() < 1.5


def test_places_are_the_layers_own_and_no_part_of_its_weights():
    assert list(layer_of().state_dict()) == ["weight"]
    with pytest.raises(InputError, match=r"centres: expected \(positions, 2\), got \(3,\)"):
        SharedCaps(2, torch.rand(3), 4)
