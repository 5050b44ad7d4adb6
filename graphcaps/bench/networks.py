"""The paper's CapsNet as other code builds it, with the weights of one of ours: all compute the same numbers."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ..functional import squash
from ..models import CapsNet
from ..nn import CapsuleLayer, PrimaryCaps
from .baselines import Formulation


class SeparatePrimaryCaps(nn.Module):
    """Primary capsules as the most copied code has them: P convolutions of T channels, stacked.

    Shapes:
        features (B, in_channels, H, W) -> u (I, B, P), as ``PrimaryCaps``
    """

    def __init__(self, own: PrimaryCaps):
        super().__init__()
        self.num_types, self.dim = own.num_types, own.dim
        whole = own.conv
        (high, wide), (down, right) = whole.kernel_size, whole.stride
        convs = [nn.Conv2d(whole.in_channels, self.num_types, (high, wide), (down, right)) for _ in range(self.dim)]
        for p, conv in enumerate(convs):  # channel t * P + p of the one convolution is number p of type t
            conv.load_state_dict({name: numbers[p :: self.dim] for name, numbers in whole.state_dict().items()})
        self.convs = nn.ModuleList(convs)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        x = torch.stack([conv(features).flatten(1) for conv in self.convs], dim=-1)  # (B, I, P)
        return squash(x).transpose(0, 1)


class FormulatedLayer(nn.Module):
    """A ``CapsuleLayer`` whose votes and routing are those of a formulation.

    Shapes:
        u (I, B, P) -> v (J, B, D)
    """

    def __init__(self, own: CapsuleLayer, formulation: Formulation):
        super().__init__()
        self.own_graph, self.formulation = own.graph, formulation
        self.num_parents, self.iterations = own.num_parents, own.iterations
        weight = formulation.weights(own.graph(), own.weight.detach()).clone()
        self.shape = weight.shape
        # Never four dims: those would be laid out anew as if they were a convolution's, with the network's.
        self.weight = nn.Parameter(weight.flatten(0, -3))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        graph, way = self.own_graph(u.device), self.formulation
        votes = way.votes(graph, way.children(graph, u), self.weight.view(self.shape))
        return way.route(graph, votes, self.iterations)


def baseline_network(own: CapsNet, formulation: Formulation, separate: bool) -> CapsNet:
    """``own`` with another formulation's capsule layer and, if ``separate``, its primary capsules in P convolutions."""
    network = copy.deepcopy(own)
    if separate:
        assert isinstance(own.primary, PrimaryCaps), "the paper's network has primary capsules from one convolution"
        network.add_module("primary", SeparatePrimaryCaps(own.primary))
    assert isinstance(own.capsules, CapsuleLayer), "only matrices of edges are laid out in other ways"
    network.add_module("capsules", FormulatedLayer(own.capsules, formulation))
    return network
