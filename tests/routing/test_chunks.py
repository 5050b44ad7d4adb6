"""Votes that engine torch makes for a chunk of edges at a time, as it does for the graph layers on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphcaps import dgl, engine
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Dynamic, Spherical, Uniform, chunks
from graphcaps.routing.chunks import products_along, sum_along

N, E, K, D = 20, 200, 3, 4
SRC, DST = torch.randint(N, (2, E), generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 7 * K * D)


def test_sums_and_products_along_edges_and_their_first_and_second_derivatives(draw):
    z, v, numbers = (x.requires_grad_() for x in (draw(N, 2, D), draw(N, 2, D), draw(E, 2)))
    along = numbers.unsqueeze(-1) * z[SRC]
    torch.testing.assert_close(sum_along(z, numbers, SRC, DST, N), torch.zeros_like(v).index_add(0, DST, along))
    torch.testing.assert_close(products_along(z, v, SRC, DST), (z[SRC] * v[DST]).sum(-1))
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda *given: sum_along(*given, SRC[:9], DST[:9], N), (z, numbers[:9]), fast_mode=True)
        assert check(lambda *given: products_along(*given, SRC[:9], DST[:9]), (z, v), fast_mode=True)


class Largest(TorchDispatchMode):
    numbers = 0

    def __torch_dispatch__(self, function, kinds, arguments=(), named=None):
        found = function(*arguments, **(named or {}))
        if isinstance(found, torch.Tensor):
            self.numbers = max(self.numbers, found.numel())
        return found


@pytest.mark.parametrize("routing", [Spherical(), Dynamic(), Uniform(), Spherical(mutual=True)], ids=str)
def test_a_layer_gives_what_engine_fused_does_and_no_tensor_has_a_third_of_all_votes(routing, draw):
    graph = dgl.graph((torch.cat([SRC, DST]), torch.cat([DST, SRC])), num_nodes=N)
    layer, x = CapsuleConv(6, D, K, routing, allow_zero_in_degree=True).double(), draw(N, 6)
    weight, slope, found = draw(2 * E).abs(), draw(N, K, D), []
    for name in ("fused", "torch"):
        with engine(name), Largest() as largest:
            given = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
            out, c = layer(graph, *given, get_coupling=True)
            learned = [*given, *(p for name, p in layer.named_parameters() if "bias" not in name)]
            found.append((out, c, *torch.autograd.grad(out, learned, slope, materialize_grads=True)))
    torch.testing.assert_close(*found)
    assert largest.numbers <= 2 * E * K * D / 3
