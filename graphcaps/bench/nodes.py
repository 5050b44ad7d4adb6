"""The work ``nodes``: a full-graph training step of `graphcaps.nn.CapsuleConv` beside GAT's and GCN's layers.

All have as many outputs, on a random graph with ten edges a node. The loss is a squared error, the optimizer Adam.
Times are of rounds that run every layer once. Memory is measured in a process for each layer: that of the first step on
the graph, in which index arrays are made; kernels were compiled on a small graph before.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import torch

from .._dgl import DGLGraph, dgl
from ..nn import CapsuleConv
from ..progress import bar
from .clock import interleaved
from .inputs import SEED
from .memory import MB, alone, peak
from .tables import Row, Table, with_ratios
from .works import Setup

NAME = "full-graph training step"
FEATS, CAPS, DEGREE = 64, 8, 10
CAPSULES, GAT, GCN = "CapsuleConv", "GATConv of DGL", "GraphConv of DGL"
PYG_CAPSULES, PYG_GAT, PYG_GCN = "CapsuleConv in PyG", "GATConv of PyG", "GCNConv of PyG"
LAYERS = {
    CAPSULES: "spherical routing",
    f"{CAPSULES}, dynamic": "dynamic routing",
    f"{CAPSULES} on engine torch": "spherical routing, the votes of all edges made",
    GAT: "attention, K heads",
    GCN: "no attention",
    PYG_CAPSULES: "spherical routing",
    PYG_GAT: "attention, K heads",
    PYG_GCN: "no attention",
}


def nodes(setup: Setup) -> Iterator[Table]:
    """A table for each size."""
    dim, iterations = setup.sizes.dim, setup.sizes.iterations
    there = [name for name in LAYERS if "PyG" not in name or importlib.util.find_spec("torch_geometric")]
    for edges in sorted(setup.sizes.node_edges):
        title, rows, steps = f"{NAME}, {edges:,} edges", [], {}
        with bar(f"peak memory, {edges:,} edges") as show:
            for k, name in enumerate(LAYERS):
                row = Row(name, LAYERS[name], note="" if name in there else "not measured: needs torch_geometric")
                if name in there:
                    found = alone(measure, name, edges, dim, iterations, device=setup.device)
                    row.numbers, row.note = (found, "") if isinstance(found, dict) else ({}, found)
                rows.append(row)
                show((k + 1) / len(LAYERS))
        for row in rows:
            if not row.note:
                steps[row.name] = step_of(row.name, edges, dim, iterations, setup.device)
        for name, timing in interleaved(steps, setup.device, setup.sizes.seconds, setup.sizes.rounds, title).items():
            numbers = {key: 1e3 * getattr(timing, key) for key in ("median", "low", "high")}
            next(row for row in rows if row.name == name).numbers |= numbers
        about = (
            f"{edges // DEGREE:,} nodes, {FEATS} features, {CAPS} capsules or heads of {dim}, R {iterations}, float32; "
            f"the votes of all edges would be {4 * dim * CAPS * edges / MB:,.0f} MB; memory is all that a step needs "
            "beyond the graph and its features"
        )
        yield with_ratios(Table(title, about, "median", "ms", rows, GAT, rounds=timing.rounds))


def measure(name: str, edges: int, dim: int, iterations: int, device: str) -> dict[str, float]:
    """The most bytes that a first step had."""
    step_of(name, 20 * DEGREE, dim, iterations, device)()
    return {"total": peak(step_of(name, edges, dim, iterations, device), device) / MB}


def step_of(name: str, edges: int, dim: int, iterations: int, device: str) -> Callable[[], None]:
    """A training step of the layer on a graph with so many edges."""
    generator = torch.Generator().manual_seed(SEED)
    num_nodes = edges // DEGREE
    graph = dgl.graph(tuple(torch.randint(num_nodes, (2, edges), generator=generator)), num_nodes=num_nodes)
    feat = torch.randn(num_nodes, FEATS, generator=generator).to(device)
    wanted = torch.randn(num_nodes, CAPS * dim, generator=generator).to(device)
    torch.manual_seed(SEED)
    layer, call = layer_on(name, graph, dim, iterations, device)
    optimizer = torch.optim.Adam(layer.parameters())

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(call(feat).flatten(1), wanted).backward()
        optimizer.step()

    return step


def layer_on(
    name: str, graph: DGLGraph, dim: int, iterations: int, device: str
) -> tuple[torch.nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    """The layer, and it as a function of the features alone."""
    size = CAPS * dim
    if "PyG" in name:
        from torch_geometric.nn import GATConv, GCNConv

        from .. import pyg

        edge_index = torch.stack(graph.edges()).to(device)
        layer = {
            PYG_CAPSULES: lambda: pyg.CapsuleConv(FEATS, dim, CAPS, iterations, add_self_loops=False),
            PYG_GAT: lambda: GATConv(FEATS, dim, CAPS, add_self_loops=False),
            PYG_GCN: lambda: GCNConv(FEATS, size, add_self_loops=False),
        }[name]().to(device)
        return layer, lambda feat: layer(feat, edge_index)
    if name == GAT:
        layer = dgl.nn.GATConv(FEATS, dim, CAPS, allow_zero_in_degree=True)
    elif name == GCN:
        layer = dgl.nn.GraphConv(FEATS, size, allow_zero_in_degree=True)
    else:
        routing = "dynamic" if "dynamic" in name else "spherical"
        engine = "torch" if "torch" in name else "auto"
        layer = CapsuleConv(FEATS, dim, CAPS, iterations, routing=routing, engine=engine, allow_zero_in_degree=True)
    layer = layer.to(device)
    return layer, lambda feat: layer(graph, feat)
