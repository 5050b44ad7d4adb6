"""Losses and measures by hand; squash is in test_facts.py, errors in attack/test_wrong_calls.py."""

from __future__ import annotations

import torch

from graphcaps import (
    complete_graph,
    coupling_entropy,
    dynamic_routing,
    margin_loss,
    spread_loss,
)

LENGTHS = torch.tensor([[0.5, 0.3, 0.05], [0.95, 0.7, 0.1]])


def test_margin_loss_is_zero_inside_the_margins_with_a_zero_gradient():
    lengths = torch.tensor([[0.95, 0.05]], requires_grad=True)
    loss = margin_loss(lengths, torch.tensor([0]))
    loss.backward()
    assert loss == 0 and not lengths.grad.any()


def test_spread_loss_is_the_sum_over_wrong_classes_and_the_mean_over_the_batch():
    # first: (0.4 - (0.5 - 0.3))^2 + 0 = 0.04; second, true class 1: (0.4 - (0.7 - 0.95))^2 + 0 = 0.4225
    loss = spread_loss(LENGTHS, torch.tensor([0, 1]), margin=0.4)
    torch.testing.assert_close(loss, torch.tensor((0.04 + 0.4225) / 2))


def test_entropy_takes_the_couplings_of_a_routed_graph():
    votes = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))
    _, routed = dynamic_routing(complete_graph(3, 2), votes, return_graph=True)
    assert torch.equal(coupling_entropy(routed), coupling_entropy(routed, routed.edata["c"]))
    assert coupling_entropy(routed).shape == (3, 4)
