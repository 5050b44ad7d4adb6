"""The work ``nodes``: one full-graph training step of `graphcaps.nn.CapsuleConv`, its time and its peak memory.

Each row is a process of its own. The graph is random, the loss a squared error, the optimizer Adam; the first step, in
which index arrays are built and kernels compiled, is not timed, but its memory counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch

from .._dgl import dgl
from ..nn import CapsuleConv
from ..progress import bar
from .clock import seconds_of
from .inputs import SEED
from .memory import MB, alone, peak
from .tables import Row, Table
from .works import Setup

NAME = "full-graph training step"
FEATS, CAPS, TIMED = 64, 8, 3
ENGINES = {"fused": "one pass over the votes per iteration", "dgl": "message passing", "torch": "scatter operations"}


def nodes(setup: Setup) -> Iterator[Table]:
    """Engine fused at all sizes, the others at the smallest: they need several times the memory."""
    sizes = sorted(setup.sizes.node_edges)
    plan = [("fused", edges) for edges in sizes] + [(engine, sizes[0]) for engine in ("dgl", "torch")]
    rows = []
    with bar(NAME) as show:
        for k, (engine, edges) in enumerate(plan):
            arguments = (engine, edges, setup.sizes.dim, setup.sizes.iterations)
            found = alone(measure, *arguments, device=setup.device)
            row = Row(f"{engine}, {edges:,} capsule edges", ENGINES[engine])
            row.numbers, row.note = (found, "") if isinstance(found, dict) else ({}, found)
            rows.append(row)
            show((k + 1) / len(plan))
    votes = ", ".join(f"{4 * setup.sizes.dim * edges / MB:,.0f} MB" for edges in sizes)
    about = (
        f"CapsuleConv({FEATS}, {setup.sizes.dim}, num_caps={CAPS}), dynamic, R {setup.sizes.iterations}, float32, "
        f"a random graph of 12.5 edges a node; the votes are {votes}; "
        "memory is all that the step needs beyond the graph and its features"
    )
    yield Table(NAME, about, "median", "ms", rows, rounds=TIMED)


def measure(engine: str, capsule_edges: int, dim: int, iterations: int, device: str) -> dict[str, float]:
    """Milliseconds of a step and the most bytes it had."""
    generator = torch.Generator().manual_seed(SEED)
    edges = capsule_edges // CAPS
    num_nodes = 2 * edges // 25
    graph = dgl.graph(tuple(torch.randint(num_nodes, (2, edges), generator=generator)), num_nodes=num_nodes)
    torch.manual_seed(SEED)
    layer = CapsuleConv(FEATS, dim, CAPS, iterations, routing="dynamic", engine=engine, allow_zero_in_degree=True).to(
        device
    )
    optimizer = torch.optim.Adam(layer.parameters())
    feat = torch.randn(num_nodes, FEATS, generator=generator).to(device)
    wanted = torch.randn(num_nodes, CAPS, dim, generator=generator).to(device)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(layer(graph, feat), wanted).backward()
        optimizer.step()

    most = peak(step, device)
    times = [1e3 * seconds_of(step, 1, device) for _ in range(TIMED)]
    return {"median": statistics.median(times), "low": min(times), "high": max(times), "total": most / MB}
