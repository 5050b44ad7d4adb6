"""On a GPU: networks and layers have the values and gradients of their copies on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from graphcaps import CapsNet, dgl, nn, pyg

DRAWN = torch.randint(60, (2, 300), generator=torch.Generator().manual_seed(0))
ENDS = torch.cat([DRAWN, DRAWN.flip(0)], dim=1)
GRAPH = dgl.graph(tuple(ENDS), num_nodes=60)
CASES = {
    "CapsuleConv": lambda: (nn.CapsuleConv(8, 6, 4, allow_zero_in_degree=True), GRAPH),
    "CapsuleConv, dynamic": lambda: (nn.CapsuleConv(8, 6, 4, "dynamic", allow_zero_in_degree=True), GRAPH),
    "CapsuleConv, mutual": lambda: (nn.CapsuleConv(8, 6, 4, mutual=True, allow_zero_in_degree=True), GRAPH),
    "CapsuleReadout": lambda: (nn.CapsuleReadout(8, 6, 4), GRAPH),
    "BeliefConv": lambda: (nn.BeliefConv(8, 6, 4), GRAPH),
    "CapsuleConv of PyG": lambda: (pyg.CapsuleConv(8, 6, 4), ENDS),
} | {name: lambda name=name: (CapsNet.from_preset(name), None) for name in ("compact", "parts", "paper", "deep")}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_cpu(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    (module, graph), results = CASES[name](), []
    feat = torch.rand(8, 1, 28, 28) if graph is None else torch.randn(60, 8)
    for device in ("cpu", "cuda"):
        own, x = copy.deepcopy(module).to(device), feat.to(device).requires_grad_()
        if graph is None:
            value = own.loss(own(x, labels := torch.arange(8).to(device)), x, labels)
        else:
            value = own(x, graph.to(device)) if graph is ENDS else own(graph, x)
        slopes = torch.autograd.grad(value.square().sum(), [x, *own.parameters()])
        results.append([each.detach().cpu() for each in (value, *slopes)])
    for got, wanted in zip(*results, strict=True):
        # float32 has 24 bits: thousands of terms in another order, four iterations and a ReLU near 0 cost ten of them.
        assert (got - wanted).norm() <= 1e-3 * wanted.norm() + 1e-6
