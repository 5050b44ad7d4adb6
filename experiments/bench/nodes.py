"""Benchmark ``nodes``: a full-graph training step of ``CapsuleConv``, compared with the layers of GAT and GCN.

All layers but those of 4 numbers have equally many outputs. The graph is random, with ten edges per node, in both
directions. The loss is a squared error, the optimizer is Adam. On a GPU, the first step, which also builds index
arrays, shows the memory.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch

from graphcaps import dgl, engine, nn
from graphcaps.routing import Dynamic, Spherical

from .measure import DIM, ITERATIONS, SEED, Setup, Table, captured

EDGES, DEGREE, FEATS, CAPS = 1_000_000, 10, 64, 8
STATES = 4
"""Numbers of a capsule or head in the last rows; in the others, there are ``DIM``."""
HUB = 28_000
"""Edges into one node of the power-law graph."""
CAPSULES, MUTUAL, GAT, GAT_PYG = "CapsuleConv", "CapsuleConv, mutual", "GATConv of DGL", "GATConv of PyG"
LAYERS = [CAPSULES, MUTUAL, "CapsuleConv, dynamic", "CapsuleConv on engine torch", GAT, "GraphConv of DGL"]
BELIEFS, OTHER = f"BeliefConv, {STATES} numbers", f"{GAT}, {STATES} numbers"
BY_KERNELS, OTHER_PYG = f"{BELIEFS}, engine fused", f"{GAT_PYG}, {STATES} numbers"
ON_GPU = BY_KERNELS, OTHER_PYG  # there, engine auto is engine torch for BeliefConv, and DGL's GATConv doesn't run
LAYERS += ["CapsuleConv in PyG", GAT_PYG, "GCNConv of PyG", BELIEFS, OTHER, *ON_GPU]


def nodes(setup: Setup) -> Iterator[Table]:
    """Make a table, and on a GPU another one for a power-law graph. DGL's own layers don't run there."""
    on_gpu = setup.on_gpu
    for hub in (0, HUB) if on_gpu else (0,):
        graph = graph_of(hub)
        title = f"full-graph training step, {EDGES:,} edges" + f", {hub:,} into one node" * bool(hub)
        table = Table(title, "ms, memory in MB" if on_gpu else "ms", GAT_PYG if on_gpu else GAT)
        for name in LAYERS:
            skipped = "DGL" in name if on_gpu else name in ON_GPU
            if not (skipped or hub and name in (MUTUAL, BELIEFS, BY_KERNELS)):
                table.add(name, partial(step_of, name, graph, setup.device), memory=on_gpu)
        for name, step in [*table.calls.items()] if on_gpu else []:
            table.add(f"{name}, captured", partial(captured, step))
        yield table.time(setup)


def graph_of(hub: int) -> dgl.DGLGraph:
    """A random graph with edges in both directions, or one whose in-degrees follow a power law up to ``hub``."""
    generator, count = torch.Generator().manual_seed(SEED), EDGES // DEGREE
    if hub:  # node 0 gets a share of count ** -power of the edges
        power = math.log(EDGES / hub) / math.log(count)
        dst = count * torch.rand(EDGES, generator=generator, dtype=torch.float64) ** (1 / power)
        return dgl.graph((torch.randint(count, (EDGES,), generator=generator), dst.long()), num_nodes=count)
    there, back = torch.randint(count, (2, EDGES // 2), generator=generator)
    return dgl.graph((torch.cat([there, back]), torch.cat([back, there])), num_nodes=count)


def step_of(name: str, graph: dgl.DGLGraph, device: str) -> Callable[[], list[torch.Tensor]]:
    """A training step of the layer on a graph. It returns the outputs and the new weights."""
    generator, num_nodes = torch.Generator().manual_seed(SEED), graph.num_nodes()
    feat = torch.randn(num_nodes, FEATS, generator=generator).to(device)
    dim = STATES if name in (BELIEFS, OTHER, *ON_GPU) else DIM
    wanted = torch.randn(num_nodes, CAPS * dim, generator=generator).to(device)
    torch.manual_seed(SEED)
    layer = layer_of(name, dim).to(device)
    optimizer = torch.optim.Adam(layer.parameters(), capturable=device == "cuda")
    inputs = (feat, torch.stack(graph.edges()).to(device)) if "PyG" in name else (graph, feat)

    def step() -> list[torch.Tensor]:
        optimizer.zero_grad()
        with engine("torch" if "torch" in name else "fused" if "fused" in name else "auto"):
            outputs = layer(*inputs).flatten(1)
        torch.nn.functional.mse_loss(outputs, wanted).backward()
        optimizer.step()
        return [outputs, *layer.parameters()]

    return step


def layer_of(name: str, dim: int) -> torch.nn.Module:
    if "PyG" in name:
        from torch_geometric.nn import GATConv, GCNConv

        from graphcaps import pyg

        if name in (GAT_PYG, OTHER_PYG):
            return GATConv(FEATS, dim, CAPS, add_self_loops=False)
        if name == "GCNConv of PyG":
            return GCNConv(FEATS, CAPS * DIM, add_self_loops=False)
        return pyg.CapsuleConv(FEATS, DIM, CAPS, Spherical(ITERATIONS), add_self_loops=False)
    alone = {"allow_zero_in_degree": True}
    if name in (GAT, OTHER):
        return dgl.nn.GATConv(FEATS, dim, CAPS, **alone)
    if name in (BELIEFS, BY_KERNELS):
        return nn.BeliefConv(FEATS, dim, CAPS, **alone)
    if name == "GraphConv of DGL":
        return dgl.nn.GraphConv(FEATS, CAPS * DIM, **alone)
    routing = Dynamic(ITERATIONS) if "dynamic" in name else Spherical(ITERATIONS)
    return nn.CapsuleConv(FEATS, DIM, CAPS, routing, mutual="mutual" in name, **alone)
