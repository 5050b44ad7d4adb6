"""Spherical routing: what its docstring promises."""

from __future__ import annotations

import pytest
import torch

from graphcaps.nn import CapsuleLayer
from graphcaps.routing import Spherical

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.routings("spherical")]

B, D = 3, 4


def assert_same(got, wanted):
    """Equal up to the order of float64 sums of few terms."""
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


def couplings(way, graph, votes, **options):
    return torch.stack([c for _, _, c, _, _ in way.watch(graph, votes, **options)])


@pytest.mark.parametrize("scale", [1e6, 1e-8])
def test_longer_votes_are_coupled_alike(way, graphs, scale, draw):
    graph, votes = graphs["sparse_7x5"], draw(63, B, D)
    assert_same(couplings(way, graph, scale * votes), couplings(way, graph, votes))


@pytest.mark.parametrize("routing", [Spherical(concentration=3.0), Spherical(concentration=3.0, rate=10.0)], ids=str)
def test_a_step_of_adam_changes_log_kappa_by_so_many_learning_rates(routing, draw):
    layer = CapsuleLayer(6, 3, routing=routing).double()
    before, adam = layer.routing.kappa.detach(), torch.optim.Adam(layer.parameters(), lr=0.001)
    layer(draw(6, 2, 8)).square().sum().backward()
    adam.step()
    assert before.item() == pytest.approx(3.0)
    change = (layer.routing.kappa / before).log().abs().item()
    assert change == pytest.approx(0.001 * routing.rate, rel=1e-3)
    assert routing.kappa.item() == pytest.approx(3.0)  # the layer's is a copy
