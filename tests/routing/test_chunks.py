"""Sums and products along edges, whose votes are made for a chunk of edges at a time."""

from __future__ import annotations

import torch

from graphcaps.graph import Links
from graphcaps.routing.engines import chunks
from graphcaps.routing.engines.chunks import products_along, sum_along

N, E, D = 20, 200, 4
SRC, DST = torch.randint(N, (2, E), generator=torch.Generator().manual_seed(0))


def test_sums_and_products_along_edges_and_their_first_and_second_derivatives(draw, monkeypatch):
    monkeypatch.setattr(chunks, "MAX_NUMBERS", 7 * 2 * D)
    z, v, weight = (x.requires_grad_() for x in (draw(N, 2, D), draw(N, 2, D), draw(E, 2)))
    ends, few = Links(SRC, DST, N, N, complete=False), Links(SRC[:9], DST[:9], N, N, complete=False)
    along = weight.unsqueeze(-1) * z[SRC]
    torch.testing.assert_close(sum_along(z, weight, ends), torch.zeros_like(v).index_add(0, DST, along))
    torch.testing.assert_close(products_along(z, v, ends), (z[SRC] * v[DST]).sum(-1))
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda *given: sum_along(*given, few), (z, weight[:9]), fast_mode=True)
        assert check(lambda *given: products_along(*given, few), (z, v), fast_mode=True)
