"""A graph that breaks layers: a hub with many neighbours.

tests/pyg/test_layers.py proves that the layers for PyTorch Geometric give the same.
"""

from __future__ import annotations

import pytest
import torch

from graphcaps import dgl, nn
from graphcaps.routing import Spherical

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K = 6, 4, 3
# float64: means of up to 30,000 votes of size 1, three iterations.
EXACT = dict(rtol=1e-9, atol=1e-9)


def conv(**options):
    torch.manual_seed(0)
    layer = nn.CapsuleConv(F, D, K, allow_zero_in_degree=True, **options).double()
    torch.nn.init.normal_(layer.capsules.bias)
    return layer


def convolve(layer, x, edges):
    """h and couplings for edges (2, E) of the nodes of x."""
    return layer(dgl.graph(tuple(edges), num_nodes=len(x)), x, get_coupling=True)


def test_a_hub_gets_from_ten_thousand_of_each_kind_what_it_gets_from_one(draw):
    """Routing must depend on the neighbours' votes and their proportions, not on degree alone."""
    layer, kinds = conv(routing=Spherical(concentration=4.0)), draw(3, F)
    few = torch.stack((torch.tensor([1, 2, 3]), torch.zeros(3).long()))
    wanted, c = convolve(layer, torch.cat((kinds[:1], kinds)), few)
    many = torch.stack((torch.arange(1, 30_001), torch.zeros(30_000).long()))
    out, couplings = convolve(layer, torch.cat((kinds[:1], kinds.repeat(10_000, 1))), many)
    torch.testing.assert_close(out[0], wanted[0], **EXACT)
    torch.testing.assert_close(couplings, c.repeat(10_000, 1, 1), **EXACT)
    assert c.std() > 0.03  # couplings are not uniform
