"""A loss that asks children to choose the object whose ink they see."""

from __future__ import annotations

import pytest
import torch

import graphcaps
from graphcaps import CapsNet, engine
from graphcaps.models.losses import coupling_loss, routed_with_logits
from graphcaps.nn.routed import route_layer
from graphcaps.routing import Dynamic, Spherical


@pytest.mark.parametrize("prior", ["none", "learned"])
@pytest.mark.parametrize("routing", [Dynamic(3), Spherical(2, concentration=2.0), Spherical(3, concentration=2.0)])
def test_logits_are_those_of_the_last_iteration_and_their_gradient_is_that_with_fixed_parents(routing, prior):
    torch.manual_seed(0)
    net = CapsNet.from_preset("parts", (1, 14, 16), 4, routing=routing, prior=prior, coupling_weight=1.0).double()
    layer, u, seen = net.capsules, torch.randn(net.capsules.num_children, 5, 8).double().requires_grad_(), []
    if layer.prior is not None:
        torch.nn.init.normal_(layer.prior)
    v, logits = routed_with_logits(layer, u)
    with engine("torch"):
        exact = route_layer(layer, u, on_iteration=lambda r, b, c, v, agreement: seen.append((b, v)))
    torch.testing.assert_close(v, exact.v)
    torch.testing.assert_close(logits, seen[-1][0].unflatten(0, (-1, 4)))
    u_hat = layer.votes(u).tensor(layer.graph()).unflatten(0, (-1, 4))  # (I, J, B, D)
    if isinstance(routing, Dynamic):
        wanted = (u_hat * (seen[0][1] + seen[1][1])).sum(-1)
    else:
        rho = u_hat.detach().square().sum(-1).mean(0).sqrt()
        wanted = layer.routing.kappa * (u_hat * torch.nn.functional.normalize(seen[-2][1], dim=-1)).sum(-1) / rho
    leaves = [u, *(p for name, p in layer.named_parameters() if name != "prior")]
    slope = torch.randn_like(logits)
    got, fixed = (torch.autograd.grad(x, leaves, slope, retain_graph=True) for x in (logits, wanted))
    torch.testing.assert_close(got, fixed)


def test_the_loss_counts_the_coupling_with_the_ones_ink_by_how_much_there_is():
    logits = torch.randn(3, 4, 2)
    ink, labels = torch.tensor([[[0.5, 0, 1], [0, 0.25, 0]], [[0, 0, 0], [1, 0, 0]]]), torch.tensor([[1, 3], [0, 2]])
    c, total = logits.softmax(1), 0.0
    for image, place, child in ((0, 0, 0), (0, 0, 2), (0, 1, 1), (1, 1, 0)):
        total -= float(ink[image, place, child] * c[child, labels[image, place], image].log())
    assert float(coupling_loss(logits, ink, labels)) == pytest.approx(total / 2.75)
    assert coupling_loss(logits, 0 * ink, labels) == 0


def test_children_that_are_asked_choose_their_digit():
    torch.manual_seed(0)
    images = torch.zeros(8, 1, 13, 13)
    labels = torch.arange(8) % 2
    images[labels == 0, 0, 5:8], images[labels == 1, 0, :, 5:8] = 1, 1
    shares = {}
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        routing = Spherical(2, concentration=1.0, rate=10)
        net = CapsNet.from_preset("parts", (1, 13, 13), 2, routing=routing, coupling_weight=weight)
        adam = torch.optim.Adam(net.parameters(), lr=0.005)
        for _ in range(80):
            adam.zero_grad()
            net.loss(net(images, labels), images, labels).backward()
            adam.step()
        with torch.no_grad(), graphcaps.watch(net.eval()) as seen:
            net(images)
        c = torch.from_numpy(seen["capsules"].c[0, -1]).float().view(8, -1, 2)
        shares[weight] = float(c[torch.arange(8), :, labels].mean())
    # Seeds 0 to 5, with sums in two orders, gave at least 0.944 with the loss and at most 0.875 without it.
    assert shares[1.0] > 0.93 > 0.89 > shares[0.0], shares
