"""Several processes train the network that one does, and on parts of a graph."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphcaps
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import Run

ROOT = Path(graphcaps.__file__).parents[1]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
FLAGS = "train --dataset digits --epochs 1 --batch-size 21 --device cpu --precision float32"
# The model paper has no batch normalisation. Two processes have 10 and 11 of each batch.
IMAGES = 63


def started(command: list, **variables: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables
    return subprocess.Popen(
        [*map(str, command)], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(*processes: subprocess.Popen) -> list[str]:
    said = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(said), "\n".join(err for _, err in said)
    return [out for out, _ in said]


def flags(folder: Path, name: str) -> list[str]:
    return [*FLAGS.split(), "--train-images", str(IMAGES), "--model", "paper", "--out", str(folder), "--name", name]


# A training in which a process gets a signal at one of its steps.
SIGNALLED = """
import os, sys
from graphcaps.cli import main
from graphcaps.images.training import loop

number, at, rank = map(int, os.environ["SIGNAL"].split())
whole, steps = loop.training_step, iter(range(9))

def signalled(*arguments):
    if next(steps) == at and rank in (-1, int(os.environ["RANK"])):
        os.kill(os.getpid(), number)
    return whole(*arguments)

loop.training_step = signalled
sys.exit(0 if main(sys.argv[1:]) == 128 + number else 1)
"""


def signalled(folder: Path, number: int, step: int, rank: int, *more) -> subprocess.Popen:
    """Two processes; the one of this rank, or each if it is -1, gets a signal at a step."""
    (folder / "signalled.py").write_text(SIGNALLED)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", 2, folder / "signalled.py", *flags(folder, "two"), *more]
    return started(command, SIGNAL=f"{int(number)} {step} {rank}")


@pytest.mark.long
def test_two_processes_that_were_stopped_in_mid_epoch_train_the_network_that_one_does(tmp_path):
    ended(signalled(tmp_path, signal.SIGTERM, 1, -1))
    run = Run.open(tmp_path / "two")
    state = checkpoint.read(run.checkpoint("last"))[1]["state"]
    assert (state["step"], state["seen"]) == (2, 42)  # 3 steps and 63 images are an epoch
    together = [*TORCHRUN, "--standalone", "--nproc-per-node", 2]
    ended(started([*together, "-m", "graphcaps", "train", "--resume", run.path]))
    assert run.result()["processes"] == 2
    ended(started([sys.executable, "-m", "graphcaps", *flags(tmp_path, "one")]))
    one = Run.open(tmp_path / "one")
    # The loss, gradients and weights are the same up to the order of sums.
    (row,), (wanted,) = run.metrics(), one.metrics()
    assert row["train_loss"] == pytest.approx(wanted["train_loss"], rel=1e-5)
    assert row["train_accuracy"] == wanted["train_accuracy"]
    got, right = (checkpoint.read(each.checkpoint("last"))[0] for each in (run, one))
    assert got.keys() == right.keys()
    for part in ("exp_avg", "model."):
        names = [name for name in right if part in name]
        ours, theirs = (torch.cat([x[name].double().flatten() for name in names]) for x in (got, right))
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm(), part


@pytest.mark.long
def test_a_process_that_dies_ends_the_others_and_the_run_goes_on_with_one(tmp_path):
    process = signalled(tmp_path, signal.SIGKILL, 4, 1, "--epochs", 2)
    _, said = process.communicate(timeout=600)
    run = Run.open(tmp_path / "two")
    (ours,) = [line for line in said.splitlines() if line.startswith("graphcaps: ")]  # the other lines are torchrun's
    assert "process 0 of 2 lost its connection" in ours and f"--resume {run.path}" in ours and "[rank0]" not in said
    (before,) = run.metrics()
    assert process.returncode != 0 and run.result() is None
    ended(started([sys.executable, "-m", "graphcaps", "train", "--resume", run.path]))
    assert run.metrics()[0] == before and len(run.metrics()) == 2 and run.result()["processes"] == 1
    assert checkpoint.read(run.checkpoint("last"))[1]["state"]["epoch"] == 2


@pytest.mark.long
def test_two_processes_train_on_a_graph_in_files_and_have_the_same_gradients(tmp_path):
    script = tmp_path / "copied.py"
    shutil.copy(ROOT / "examples" / "distributed.py", script)
    sizes = ["--nodes", 2000, "--edges", 20000, "--epochs", 2, "--batch-size", 50, "--folder", tmp_path / "graph"]
    (said,) = ended(started([*TORCHRUN, "--standalone", "--nproc-per-node", 2, script, *sizes]))
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
import gc, torch
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
del together, net
gc.collect()
distributed.destroy_process_group()
"""


@pytest.mark.long
def test_two_processes_with_halves_have_the_gradients_and_results_of_one(tmp_path):
    (tmp_path / "halves.py").write_text(HALVES)
    (said,) = ended(started([*TORCHRUN, "--standalone", "--nproc-per-node", 2, tmp_path / "halves.py"]))
    assert sorted(re.findall(r"finished (\d)", said)) == ["0", "1"]
