"""Train on a graph that stays in mapped files, with DGL's neighbour sampler and DistributedDataParallel.

    torchrun --nproc-per-node 2 distributed.py --nodes 100000 --edges 1000000
    torchrun --nnodes 2 --nproc-per-node 1 --node-rank 0 --master-addr ADDRESS --master-port 29500 distributed.py

The second command is for the first of two machines; on the second machine, use --node-rank 1. On each machine, one
process writes edges and features to files and ends. The training processes map these files, so they share the pages
that they read, and the system may drop these pages from memory. Each process trains on its share of the nodes.
Gradients are averaged over all processes, and compared after each epoch.
"""

import gc
import os
import time
from argparse import ArgumentParser
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional as F

from graphcaps import dgl
from graphcaps.nn import CapsuleConv

CLASSES, FEATURES = 8, 32
FILES = {"starts": torch.int64, "sources": torch.int64, "x": torch.float32, "y": torch.int64}


def write(folder, nodes, edges):
    """Users (even numbers) and items (odd ones) of eight classes, hardly visible in their features.

    Each edge joins a user and an item, and half of a node's neighbours belong to its class.
    """
    torch.manual_seed(0)
    y = torch.randint(CLASSES, (nodes,))
    kind = 2 * y + torch.arange(nodes) % 2
    of_kind, sizes = kind.argsort(stable=True), kind.bincount(minlength=2 * CLASSES)
    dst = torch.cat([torch.arange(nodes), torch.randint(nodes, (edges - nodes,))]).sort().values  # at least one each
    wanted = kind[dst] ^ 1  # the same class at the other end
    alike = of_kind[(sizes.cumsum(0) - sizes)[wanted] + (torch.rand(edges) * sizes[wanted]).long()]
    sources = torch.where(torch.rand(edges) < 0.5, alike, 2 * torch.randint(nodes // 2, (edges,)) + 1 - dst % 2)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), dst.bincount(minlength=nodes).cumsum(0)])
    x = torch.randn(nodes, FEATURES) + 0.5 * F.one_hot(y, FEATURES)
    folder.mkdir(parents=True, exist_ok=True)
    for name, numbers in zip(FILES, (starts, sources, x, y), strict=True):
        numbers.numpy().tofile(folder / name)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = CapsuleConv(FEATURES, 16, 4), CapsuleConv(64, CLASSES, 1, squash_output=False)

    def forward(self, blocks, x):
        return self.second(blocks[1], F.elu(self.first(blocks[0], x).flatten(1))).flatten(1)


def megabytes(name):
    """On Linux, resident memory of this process: now, without mapped files (RssAnon), or the peak with them (VmHWM)."""
    status = Path("/proc/self/status")
    return 1.024e-3 * int(status.read_text().partition(f"{name}:")[2].split()[0]) if status.exists() else 0.0


def main(folder, nodes, edges, epochs, batch_size):
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    if os.environ["LOCAL_RANK"] == "0":
        with get_context("spawn").Pool(1) as writer:
            writer.apply(write, (folder, nodes, edges))
    distributed.barrier()
    sizes = nodes + 1, edges, nodes * FEATURES, nodes
    files = [(str(folder / name), True, size) for name, size in zip(FILES, sizes, strict=True)]
    starts, sources, x, y = (torch.from_file(*file, dtype=FILES[name]) for name, file in zip(FILES, files, strict=True))
    graph, x = dgl.graph(("csc", (starts, sources, [])), num_nodes=nodes), x.view(nodes, FEATURES)
    torch.manual_seed(0)  # for the same weights and the same order of nodes in all processes
    train, val = torch.randperm(nodes)[: nodes // 8].tensor_split([nodes // 10])

    def batches(part):
        mine = part[torch.randperm(len(part))][rank::world][: len(part) // world]  # the same number in each process
        return dgl.dataloading.DataLoader(graph, mine, dgl.dataloading.NeighborSampler([10, 5]), batch_size=batch_size)

    net = nn.parallel.DistributedDataParallel(Net())
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in range(epochs):
        start, right, read, parts = time.perf_counter(), torch.zeros(2), 0, batches(train)
        for inputs, outputs, blocks in parts:
            adam.zero_grad()
            F.cross_entropy(net(blocks, x[inputs]), y[outputs]).backward()
            adam.step()
            read += sum(block.num_edges() for block in blocks)
        seconds = time.perf_counter() - start
        least = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
        most = least.clone()
        distributed.all_reduce(least, distributed.ReduceOp.MIN)
        distributed.all_reduce(most, distributed.ReduceOp.MAX)
        with torch.no_grad():
            for inputs, outputs, blocks in batches(val):
                right += torch.tensor([(net.module(blocks, x[inputs]).argmax(1) == y[outputs]).sum(), len(outputs)])
        distributed.all_reduce(right)
        text = f"epoch {epoch + 1}  process {rank}: {seconds:.1f} s, {1000 * seconds / len(parts):.0f} ms per batch, "
        text += f"{read / seconds:,.0f} edges/s; {megabytes('RssAnon'):,.0f} MB, {megabytes('VmHWM'):,.0f} with files; "
        text += f"gradients differ by {float((most - least).max()):g}; validation {float(right[0] / right[1]):.1%}"
        print(text, flush=True)
    # DistributedDataParallel keeps the process group alive in a reference cycle. Without the next two lines, gloo's
    # threads still run when Python ends, which sometimes aborts: "terminate called without an active exception" (torch
    # 2.14).
    del net, adam
    gc.collect()
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--folder", type=Path, default="graph", help="folder for the files, on each machine")
    for name, number in {"nodes": 1_000_000, "edges": 10_000_000, "epochs": 3, "batch-size": 1000}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    args = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start: expected torchrun, got python alone. Run: torchrun --nproc-per-node 2 distributed.py")
    if args.edges < args.nodes:
        parser.error(f"--edges: expected at least one for each of {args.nodes} nodes, got {args.edges}. Ask for more")
    main(**vars(args))
