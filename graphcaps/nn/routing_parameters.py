"""What a layer learns for its routing beside the votes' matrices; most routings learn nothing."""

from __future__ import annotations

import math
import numbers

import torch
from torch import nn

from ..errors import expect
from ..routing import EMParameters, InvertedParameters, SphericalParameters
from ..routing.em import OFF

START = -1.6  # of beta_u, so that half of the parents of an untrained layer are on
CHILDREN_PER_PARENT = 100  # for which EM routing's final lambda of 0.01 was made, about


class EMCosts(nn.Module):
    """beta_u and bias of EM routing, one of each per type of parent.

    A cost is a sum over children, so that one temperature can't suit layers of different sizes. As in Gritzman 2019
    (arXiv 1907.00652), section 3.2, it is as if each parent had 100 children: final lambda is 0.01 * 100 J / I.

    Args:
        parent_types: types of parents, outermost in their order.
        num_parents, num_children: J, I.
    """

    def __init__(self, parent_types: int, num_parents: int, num_children: int):
        super().__init__()
        self.beta_u = nn.Parameter(torch.full((parent_types,), START))
        self.bias = nn.Parameter(torch.full((parent_types,), OFF))
        self.positions = num_parents // parent_types
        self.final_lambda = EMParameters().final_lambda * CHILDREN_PER_PARENT * num_parents / num_children

    def reset_parameters(self) -> None:
        """Both as at the start."""
        nn.init.constant_(self.beta_u, START)
        nn.init.constant_(self.bias, OFF)

    def forward(self) -> EMParameters:
        beta_u, bias = (each.repeat_interleave(self.positions) for each in (self.beta_u, self.bias))  # (J,)
        return EMParameters(beta_u, bias, self.final_lambda)


class InvertedHead(nn.Module):
    """The layer norm and the logistic unit of inverted attention routing, shared by all parents.

    Args:
        parent_dim: D.
    """

    def __init__(self, parent_dim: int):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(parent_dim), nn.Linear(parent_dim, 1)

    def reset_parameters(self) -> None:
        """Both as new."""
        self.norm.reset_parameters()
        self.head.reset_parameters()

    def forward(self) -> InvertedParameters:
        return InvertedParameters(self.norm.weight, self.norm.bias, self.head.weight[0], self.head.bias[0])


class Concentration(nn.Module):
    """kappa of spherical routing, one number for a layer: e^(pace ``exponent``), of which ``exponent`` is learned.

    Args:
        start: kappa before training. Small: at first the layer couples nearly uniformly.
        pace: by how much a step of Adam changes log kappa, in learning rates.
    """

    def __init__(self, start: float, pace: float = 1.0):
        super().__init__()
        fits = isinstance(start, numbers.Real) and 0 < start < math.inf
        expect(fits, "concentration", "a finite number > 0", repr(start)[:40])
        self.start, self.pace = start, pace
        self.exponent = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """kappa as at the start."""
        nn.init.constant_(self.exponent, math.log(self.start) / self.pace)

    def forward(self) -> SphericalParameters:
        return SphericalParameters((self.pace * self.exponent).exp())


def concentrations(network: nn.Module) -> list[float]:
    """kappa of each layer that routes spherically."""
    return [float(each().concentration.detach()) for each in network.modules() if isinstance(each, Concentration)]


def learned_for(
    routing: str, parent_types: int, num_parents: int, num_children: int, parent_dim: int
) -> EMCosts | InvertedHead | Concentration | None:
    """The module whose call gives ``routing`` its parameters, or None where it has none."""
    if routing == "em":
        return EMCosts(parent_types, num_parents, num_children)
    if routing == "inverted":
        return InvertedHead(parent_dim)
    # A few hundred steps of 0.001 must be enough for kappa to leave its start; from 1 on networks are slow to learn.
    return Concentration(0.01, pace=10) if routing == "spherical" else None
