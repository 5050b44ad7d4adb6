"""graphcaps.pyg with torch's and PyG's tools: ``torch.compile``, two processes, explainers that read embeddings."""

from __future__ import annotations

import runpy
import subprocess
import sys

import pytest
import torch

torch_geometric = pytest.importorskip("torch_geometric", reason='needs pip install -e ".[pyg]"')

from torch._dynamo.utils import counters  # noqa: E402
from torch_geometric.explain import Explainer, PGExplainer  # noqa: E402

from graphcaps import pyg  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K, N, E = 6, 4, 3, 9, 24
# float64: sums of at most 30 terms of size 10, three iterations; see test_facts.py.
EXACT = dict(rtol=1e-10, atol=1e-10)


def edges_of(seed=0, num_nodes=N, num_edges=E):
    return torch.randint(num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(seed))


# Compiled


class Net(torch.nn.Module):
    """Both layers, with something to compile before, between and behind them."""

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
    edges = edges_of()
    for _ in range(2):
        got, wanted = (called(x, edges, attr, batch) for called in (compiled, net))
        torch.testing.assert_close(got, wanted, **EXACT)
        cotangent = draw(2, 2)
        gradients = (torch.autograd.grad(each, (x, *net.parameters()), cotangent) for each in (got, wanted))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, **EXACT)
        edges[0] = edges[0].roll(1)  # compiled code looks at the edges too
        assert counters["stats"]["unique_graphs"] == 3  # before, between and behind
    assert counters["graph_break"] and all("disable" in reason for reason in counters["graph_break"])
    out, (routed, c) = compiled.conv(x, edges, edge_attr=attr, return_coupling=True)
    assert out.shape == (N, K * D) and c.shape == (routed.size(1), 1, K)


# Several processes

STEPS = """
import sys, torch
from torch import distributed
from torch.nn.functional import cross_entropy, elu
from torch.nn.parallel import DistributedDataParallel
from graphcaps import pyg

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = pyg.CapsuleConv(6, 4, 3, concat=True)
        self.second = pyg.CapsuleConv(12, 5, 1, concat=True, squash_output=False)

    def forward(self, x, edge_index):
        return self.second(elu(self.first(x, edge_index)), edge_index)

def steps(net, x, edges, y, per_node):
    sgd, found = torch.optim.SGD(net.parameters(), lr=0.5), []
    names = [name.removeprefix('module.') for name, _ in net.named_parameters()]
    for _ in range(3):
        sgd.zero_grad()
        (per_node * cross_entropy(net(x, edges), y, reduction="sum")).backward()
        found.append({k: p.grad.clone() for k, p in zip(names, net.parameters(), strict=True) if p.grad is not None})
        sgd.step()
    return found

if __name__ == "__main__":
    rank = int(sys.argv[1])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
    graphs = torch.load("graphs.pt")
    per_node = 2 / sum(len(y) for _, _, y in graphs)  # DistributedDataParallel gives the mean over processes
    net = DistributedDataParallel(Net().double())
    torch.save(steps(net, *graphs[rank], per_node), f"{rank}.pt")
    distributed.destroy_process_group()
"""


@pytest.mark.long
def test_two_processes_with_a_graph_each_take_the_steps_of_one_with_both(tmp_path, draw):
    graphs = []
    for seed, (nodes, num_edges) in enumerate([(9, 24), (14, 50)]):
        x = draw(nodes, F)
        graphs.append((x, edges_of(seed, nodes, num_edges), x[:, :5].argmax(1)))
    torch.save(graphs, tmp_path / "graphs.pt")
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    runs = [
        subprocess.Popen([sys.executable, script, str(rank), tmp_path / "store"], cwd=tmp_path) for rank in range(2)
    ]
    assert [run.wait(300) for run in runs] == [0, 0]

    known = runpy.run_path(str(script))
    (x, edges, y), (more, further, of_more) = graphs
    both = torch.cat((x, more)), torch.cat((edges, further + len(x)), 1), torch.cat((y, of_more))
    wanted = known["steps"](known["Net"]().double(), *both, 1 / len(both[0]))
    for rank in range(2):
        for got, step in zip(torch.load(tmp_path / f"{rank}.pt"), wanted, strict=True):
            for name, gradient in step.items():
                torch.testing.assert_close(got[name], gradient, **EXACT)
    first, *_, last = wanted
    assert len(first) == 5 and all((first[name] - last[name]).abs().max() > 1e-4 for name in first)


# Explainers that read embeddings


def test_an_explainer_trained_on_some_nodes_finds_the_edge_that_matters_to_another():
    """Nodes 0 to 4 each hear one neighbour that says something, and three that don't; node 5 wasn't trained on."""
    torch.manual_seed(0)

    class Lengths(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.CapsuleConv(F, D, 2, squash_output=False, concat=True)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).unflatten(-1, (2, D)).norm(dim=-1)

    hearing, heard = torch.arange(6).repeat_interleave(4), torch.arange(6, 30)
    x = torch.zeros(30, F)
    speaks = heard % 4 == 2
    x[heard[speaks]] = 10 * torch.rand(F).add(0.5)
    edge_index, net = torch.stack((heard, hearing)), Lengths()
    target = net(x, edge_index).argmax(1)
    explainer = Explainer(
        net,
        PGExplainer(epochs=10, lr=0.003),
        explanation_type="phenomenon",
        edge_mask_type="object",
        model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"),
    )
    for epoch in range(10):
        for index in range(5):
            explainer.algorithm.train(epoch, net, x, edge_index, target=target, index=index)
    mask = explainer(x, edge_index, target=target, index=5).edge_mask
    of_its_own = hearing == 5
    assert mask.shape == (24,) and not mask[~of_its_own].any()
    others = mask[of_its_own & ~speaks]
    assert mask[of_its_own & speaks] > 0.9 and others.max() < 0.1
    assert not net.conv.explain
