"""Several processes train on parts of a graph."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import graphcaps

ROOT = Path(graphcaps.__file__).parents[1]


def printed(*command) -> str:
    """What two processes print that torchrun starts with a script and its arguments."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, *command]
    ended = subprocess.run([*map(str, command)], env=environment, text=True, capture_output=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.long
def test_two_processes_train_on_a_graph_in_files_and_have_the_same_gradients(tmp_path):
    script = tmp_path / "copied.py"
    shutil.copy(ROOT / "examples" / "distributed.py", script)
    sizes = ["--nodes", 2000, "--edges", 20000, "--epochs", 2, "--batch-size", 50, "--folder", tmp_path / "graph"]
    said = printed(script, *sizes)
    got = re.findall(
        r"epoch (\d)  process (\d): [\d.]+ s, \d+ ms per batch, [\d,]+ edges/s; [\d,]+ MB, [\d,]+ with files; "
        r"gradients differ by (\S+); validation ([\d.]+)%",
        said,
    )
    assert sorted(line[:2] for line in got) == [("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")]
    assert {line[2] for line in got} == {"0"}
    assert len({line[3] for line in got if line[0] == "2"}) == 1


# Two processes on halves of a graph's nodes and of a batch of graphs, against one process on the union.
HALVES = """
import gc, os, torch
from torch import distributed, nn
from graphcaps import dgl
from graphcaps.nn import CapsuleConv, CapsuleReadout

distributed.init_process_group("gloo")
rank, sampler = distributed.get_rank(), dgl.dataloading.NeighborSampler([-1, -1])
torch.manual_seed(0)
src, dst = torch.randint(40, (2, 200))
graph, x = dgl.add_self_loop(dgl.graph((src, dst), num_nodes=40)), torch.randn(40, 6).double()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.readout = CapsuleConv(6, 4, 3), CapsuleConv(12, 4, 2), CapsuleReadout(6, 4, 2)

    def forward(self, blocks, x, graphs, features):
        h = self.second(blocks[1], self.first(blocks[0], x).flatten(1))
        return h.sin().sum(), self.readout(graphs, features).sin().sum()

    def loss(self, seeds, graphs, features):
        inputs, _, blocks = sampler.sample(graph, seeds)
        return sum(self(blocks, x[inputs], graphs, features))

def gradients(net):
    return torch.cat([p.grad.flatten() for p in net.parameters()])

net = Net().double()
together = nn.parallel.DistributedDataParallel(net)
many = [dgl.rand_graph(n, 3) for n in (3, 5, 2, 4)]
features = torch.randn(14, 6).double()

def halves(parts):  # the nodes of each process; the loss is a sum, and DDP takes the mean over two processes
    inputs, _, blocks = sampler.sample(graph, parts[rank])
    graphs, some = [(many[:2], features[:8]), (many[2:], features[8:])][rank]
    net.zero_grad()
    (2 * sum(together(blocks, x[inputs], dgl.batch(graphs), some))).backward()
    got = gradients(net)
    net.zero_grad()
    net.loss(torch.cat(parts), dgl.batch(many), features).backward()
    torch.testing.assert_close(got, gradients(net), rtol=1e-10, atol=1e-10)

nodes = torch.randperm(40)
halves([nodes[:20], nodes[20:]])
halves([nodes, nodes[:0]])  # the second process has an empty batch

def layer(conv, h):  # layer-wise inference: each process computes its half of the nodes for all
    block = dgl.to_block(dgl.in_subgraph(graph, torch.arange(20 * rank, 20 * rank + 20)), torch.arange(20) + 20 * rank)
    mine = conv(block, h[block.srcdata[dgl.NID]]).flatten(1)
    parts = [torch.empty_like(mine) for _ in range(2)]
    distributed.all_gather(parts, mine)
    return torch.cat(parts)

with torch.no_grad():
    whole = net.second(graph, net.first(graph, x).flatten(1)).flatten(1)
    assert torch.equal(layer(net.second, layer(net.first, x)), whole)

print(f"finished {rank}\\n", end="", flush=True)  # one write, so that two processes' lines do not mix
distributed.barrier()  # neither closes its connections while the other still reads from them
del together, net
gc.collect()
distributed.destroy_process_group()
os._exit(0)  # the interpreter's own end has aborted once, in a thread of some library
"""


@pytest.mark.long
def test_two_processes_with_halves_have_the_gradients_and_results_of_one(tmp_path):
    (tmp_path / "halves.py").write_text(HALVES)
    said = printed(tmp_path / "halves.py")
    assert sorted(re.findall(r"finished (\d)", said)) == ["0", "1"]
