"""Benchmark ``nodes``: a full-graph training step of ``CapsuleConv``, compared with the layers of GAT and GCN.

All layers have equally many outputs. The graph is random, with ten edges per node, in both directions. The loss is a
squared error, the optimizer is Adam. Memory is measured in a new process per layer, during the first step on the graph,
which also builds index arrays. Kernels are compiled before that, on a small graph.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product

import torch

from graphcaps import dgl, engine, nn
from graphcaps.routing import Dynamic, Spherical

from .measure import MB, SEED, Setup, captured, in_process, interleaved, peak
from .tables import Row, Table

FEATS, CAPS, DEGREE = 64, 8, 10
CAPSULES, MUTUAL, GAT = "CapsuleConv", "CapsuleConv, mutual", "GATConv of DGL"
GAT_PYG, GCN_PYG = "GATConv of PyG", "GCNConv of PyG"
LAYERS = [CAPSULES, MUTUAL, "CapsuleConv, dynamic", "CapsuleConv on engine torch", GAT, "GraphConv of DGL"]
LAYERS += ["CapsuleConv in PyG", GAT_PYG, GCN_PYG]


def nodes(setup: Setup) -> Iterator[Table]:
    """Make a table for each number of edges, and on a GPU for a power-law graph too."""
    device, sizes, on_gpu = setup.device, setup.sizes, setup.sizes.on_gpu
    dim, iterations = sizes.dim, sizes.iterations
    for edges, hub in product(sizes.node_edges, (0, sizes.hub) if on_gpu else (0,)):
        about = f"{edges // DEGREE:,} nodes, {FEATS} features, {CAPS} capsules or heads of {dim}, R {iterations}"
        rows = [Row(name) for name in LAYERS if not (on_gpu and "DGL" in name or hub and name == MUTUAL)]
        if on_gpu and edges > sizes.node_edges[0]:
            rows = [row for row in rows if "PyG" in row.name or row.name == CAPSULES]
        for row in rows:
            row.numbers, row.note = in_process(measure, row.name, edges, hub, dim, iterations, device=device)
        name = f"full-graph training step, {edges:,} edges" + f", {hub:,} into one node" * bool(hub)
        table = Table(name, about, "ms, memory in MB", rows, GAT_PYG if on_gpu else GAT)
        steps = {row.name: step_of(row.name, edges, hub, dim, iterations, device) for row in rows if not row.note}
        for name in [*steps] if on_gpu and edges == sizes.node_edges[0] else []:  # more edges hide the host's time
            table.add(f"{name}, captured", steps, partial(captured, steps[name]))
        yield table.fill(interleaved(steps, setup))


def measure(name: str, edges: int, hub: int, dim: int, iterations: int, device: str) -> dict[str, float]:
    """Measure the peak memory of a first step."""
    step_of(name, 20 * DEGREE, 0, dim, iterations, device)()
    return {"total": peak(step_of(name, edges, hub, dim, iterations, device), device) / MB}


@lru_cache(maxsize=2)
def graph_of(edges: int, hub: int) -> dgl.DGLGraph:
    """A random graph with edges in both directions, or one whose in-degrees follow a power law up to ``hub``."""
    generator, count = torch.Generator().manual_seed(SEED), edges // DEGREE
    if hub:  # node 0 gets a share of count ** -power of the edges
        power = math.log(edges / hub) / math.log(count)
        dst = count * torch.rand(edges, generator=generator, dtype=torch.float64) ** (1 / power)
        return dgl.graph((torch.randint(count, (edges,), generator=generator), dst.long()), num_nodes=count)
    there, back = torch.randint(count, (2, edges // 2), generator=generator)
    return dgl.graph((torch.cat([there, back]), torch.cat([back, there])), num_nodes=count)


def step_of(name: str, edges: int, hub: int, dim: int, iterations: int, device: str) -> Callable[[], None]:
    """A training step of the layer on a graph with ``edges`` edges."""
    graph, generator = graph_of(edges, hub), torch.Generator().manual_seed(SEED)
    num_nodes = graph.num_nodes()
    feat = torch.randn(num_nodes, FEATS, generator=generator).to(device)
    wanted = torch.randn(num_nodes, CAPS * dim, generator=generator).to(device)
    torch.manual_seed(SEED)
    layer = layer_of(name, dim, iterations).to(device)
    optimizer = torch.optim.Adam(layer.parameters(), capturable=device == "cuda")
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

        if name == GCN_PYG:
            return GCNConv(FEATS, CAPS * dim, add_self_loops=False)
        if name == GAT_PYG:
            return GATConv(FEATS, dim, CAPS, add_self_loops=False)
        return pyg.CapsuleConv(FEATS, dim, CAPS, Spherical(iterations), add_self_loops=False)
    alone = {"allow_zero_in_degree": True}
    if name == GAT:
        return dgl.nn.GATConv(FEATS, dim, CAPS, **alone)
    if name == "GraphConv of DGL":
        return dgl.nn.GraphConv(FEATS, CAPS * dim, **alone)
    routing = Dynamic(iterations) if "dynamic" in name else Spherical(iterations)
    return nn.CapsuleConv(FEATS, dim, CAPS, routing, mutual="mutual" in name, **alone)
