"""Graphs that break layers: hubs, and batches of many graphs.

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


def pool(layer, x, sizes):
    batch = dgl.graph(([], []), num_nodes=len(x))
    batch.set_batch_num_nodes(sizes)
    return layer(batch, x)


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


def test_ten_thousand_graphs_in_a_batch_are_each_as_alone(draw):
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(0, 7, (10_000,), generator=generator)
    starts = sizes.cumsum(0) - sizes
    x = draw(int(sizes.sum()), F).requires_grad_()
    owners = torch.arange(10_000).repeat_interleave(sizes)
    sources = torch.randint(len(x), (40_000,), generator=generator)
    of = owners[sources]
    edges = torch.stack((sources, starts[of] + (sources * 7 + 3) % sizes[of]))
    layer, readout = conv(), nn.CapsuleReadout(F, D, 2).double()
    torch.nn.init.normal_(readout.capsules.bias)

    def through(x, edges, sizes):
        h = convolve(layer, x, edges)[0]
        return h, pool(readout, x, sizes)

    h, pooled = through(x, edges, sizes)
    assert pooled.shape == (10_000, 2, D)
    for g in (0, 1, 17, 4_000, 9_998, 9_999, int((sizes == 0).nonzero()[0])):
        mine, ours = slice(starts[g], starts[g] + sizes[g]), edges[:, of == g] - starts[g]
        alone = through(x[mine], ours, sizes[g : g + 1])
        torch.testing.assert_close(h[mine], alone[0], **EXACT)
        torch.testing.assert_close(pooled[g], alone[1][0], **EXACT)
    (gradient,) = torch.autograd.grad(h.square().sum() + pooled.square().sum(), x)
    assert gradient.isfinite().all() and gradient.abs().max() < 1e3
