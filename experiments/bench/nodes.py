"""Benchmark ``nodes``: a full-graph training step of ``CapsuleConv``, compared with the layers of GAT and GCN.

All layers have equally many outputs. The graph is random, with ten edges per node, in both directions. The loss is a
squared error, the optimizer is Adam. Memory is measured in a new process per layer, during the first step on the graph,
which also builds index arrays. Kernels are compiled before that, on a small graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from graphcaps import dgl, engine, nn
from graphcaps.routing import Dynamic, Spherical

from .clock import interleaved
from .inputs import SEED, Setup
from .memory import MB, in_process, peak
from .tables import Row, Table

FEATS, CAPS, DEGREE = 64, 8, 10
CAPSULES, MUTUAL, GAT = "CapsuleConv", "CapsuleConv, mutual", "GATConv of DGL"
LAYERS = [
    *(CAPSULES, MUTUAL, "CapsuleConv, dynamic", "CapsuleConv on engine torch", GAT, "GraphConv of DGL"),
    *("CapsuleConv in PyG", "GATConv of PyG", "GCNConv of PyG"),
]


def nodes(setup: Setup) -> Iterator[Table]:
    """Make a table for each number of edges."""
    dim, iterations = setup.sizes.dim, setup.sizes.iterations
    for edges in setup.sizes.node_edges:
        about = (
            f"{edges // DEGREE:,} nodes, {FEATS} features, {CAPS} capsules or heads of {dim}, R {iterations}, float32; "
            f"the votes of all edges would be {4 * dim * CAPS * edges / MB:,.0f} MB; memory excludes the graph and "
            "its features"
        )
        rows = [*map(Row, LAYERS)]
        for row in rows:
            row.numbers, row.note = in_process(measure, row.name, edges, dim, iterations, device=setup.device)
        table = Table(f"full-graph training step, {edges:,} edges", about, "ms, memory in MB", rows, GAT)
        steps = {row.name: step_of(row.name, edges, dim, iterations, setup.device) for row in rows if not row.note}
        yield table.fill(interleaved(steps, setup.device, setup.sizes.seconds, setup.sizes.rounds))


def measure(name: str, edges: int, dim: int, iterations: int, device: str) -> dict[str, float]:
    """Measure the peak memory of a first step."""
    step_of(name, 20 * DEGREE, dim, iterations, device)()
    return {"total": peak(step_of(name, edges, dim, iterations, device), device) / MB}


def step_of(name: str, edges: int, dim: int, iterations: int, device: str) -> Callable[[], None]:
    """A training step of the layer on a graph with ``edges`` edges."""
    generator = torch.Generator().manual_seed(SEED)
    num_nodes = edges // DEGREE
    there, back = torch.randint(num_nodes, (2, edges // 2), generator=generator)
    graph = dgl.graph((torch.cat([there, back]), torch.cat([back, there])), num_nodes=num_nodes)
    feat = torch.randn(num_nodes, FEATS, generator=generator).to(device)
    wanted = torch.randn(num_nodes, CAPS * dim, generator=generator).to(device)
    torch.manual_seed(SEED)
    layer = layer_of(name, dim, iterations).to(device)
    optimizer = torch.optim.Adam(layer.parameters())
    inputs = (feat, torch.stack(graph.edges()).to(device)) if "PyG" in name else (graph, feat)

    def step() -> None:
        optimizer.zero_grad()
        with engine("torch" if "torch" in name else "auto"):
            outputs = layer(*inputs).flatten(1)
        torch.nn.functional.mse_loss(outputs, wanted).backward()
        optimizer.step()

    return step


def layer_of(name: str, dim: int, iterations: int) -> torch.nn.Module:
    if "PyG" in name:
        from torch_geometric.nn import GATConv, GCNConv

        from graphcaps import pyg

        if name == "GCNConv of PyG":
            return GCNConv(FEATS, CAPS * dim, add_self_loops=False)
        if name == "GATConv of PyG":
            return GATConv(FEATS, dim, CAPS, add_self_loops=False)
        return pyg.CapsuleConv(FEATS, dim, CAPS, Spherical(iterations), add_self_loops=False)
    alone = {"allow_zero_in_degree": True}
    if name == GAT:
        return dgl.nn.GATConv(FEATS, dim, CAPS, **alone)
    if name == "GraphConv of DGL":
        return dgl.nn.GraphConv(FEATS, CAPS * dim, **alone)
    routing = Dynamic(iterations) if "dynamic" in name else Spherical(iterations)
    return nn.CapsuleConv(FEATS, dim, CAPS, routing, mutual="mutual" in name, **alone)
