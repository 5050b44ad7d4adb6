"""graphcaps.pyg by ``torch.compile``: eager's numbers and gradients."""

from __future__ import annotations

import pytest
import torch
from packaging.version import Version

torch_geometric = pytest.importorskip("torch_geometric", reason='needs pip install -e ".[pyg]"')

from torch._dynamo.utils import counters  # noqa: E402

from graphcaps import pyg  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K, N, E = 6, 4, 3, 9, 24
# float64: sums of at most 30 terms of size 10, three iterations; see test_facts.py.
EXACT = dict(rtol=1e-10, atol=1e-10)


class Net(torch.nn.Module):
    """Both layers, with code to compile before, between and after them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.into = torch.nn.Linear(F, F)
        self.conv = pyg.CapsuleConv(F, D, K, concat=True, residual=True, edge_dim=2)
        self.readout = pyg.CapsuleReadout(K * D, D, 2)

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.conv(self.into(x).relu(), edge_index, edge_attr=edge_attr)
        return self.readout(h.sin(), batch).norm(dim=-1)


@pytest.fixture
def anew():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def test_a_compiled_network_breaks_at_each_layer_and_gives_the_same_value_and_gradient(anew, draw):
    net = Net().double()
    compiled = torch.compile(net, backend="aot_eager")
    x, attr, batch = draw(N, F).requires_grad_(), draw(E, 2), torch.tensor([0] * 4 + [1] * 5)
    edges = torch.randint(N, (2, E), generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        got, wanted = (called(x, edges, attr, batch) for called in (compiled, net))
        torch.testing.assert_close(got, wanted, **EXACT)
        cotangent = draw(2, 2)
        gradients = (torch.autograd.grad(each, (x, *net.parameters()), cotangent) for each in (got, wanted))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, **EXACT)
        edges[0] = edges[0].roll(1)  # compiled code looks at the edges too
        assert counters["stats"]["unique_graphs"] == 3  # before, between and behind
    breaks = counters["graph_break"]
    new = Version(torch.__version__).release >= (2, 9)  # older ones break at errors of PyG's readouts too
    assert breaks and (not new or all("disable" in reason for reason in breaks)), breaks
    out, (routed, c) = compiled.conv(x, edges, edge_attr=attr, return_coupling=True)
    assert out.shape == (N, K * D) and c.shape == (routed.size(1), 1, K)
