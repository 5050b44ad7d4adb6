"""Mini-batches: neighbourhoods that DGL samples go through CapsuleConv, and training on them works."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from graphcaps import dgl
from graphcaps.nn import CapsuleConv

DataLoader, NeighborSampler = dgl.dataloading.DataLoader, dgl.dataloading.NeighborSampler

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:Dataloader CPU affinity opt is not enabled"),
]

N, F, CLASSES, TRAIN = 600, 16, 4, 80


def planted():
    """Nodes of four classes: three of four edges stay in a class, and a node's own features say little of it."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(N) % CLASSES
    src, anyone = torch.randint(N, (2, 4 * N), generator=draw)
    alike = torch.randint(N // CLASSES, (4 * N,), generator=draw) * CLASSES + y[src]
    dst = torch.where(torch.rand(4 * N, generator=draw) < 0.75, alike, anyone)
    x = torch.randn(N, F, generator=draw) + 0.7 * one_hot(y, F)
    graph = dgl.to_bidirected(dgl.graph((src, dst), num_nodes=N))
    return dgl.add_self_loop(dgl.remove_self_loop(graph)), x, y


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = CapsuleConv(F, 4, 4), CapsuleConv(16, CLASSES, 1, squash_output=False)

    def forward(self, blocks, x):
        return self.second(blocks[1], self.first(blocks[0], x).flatten(1)).flatten(1)


def accuracy_on_the_rest(net, whole, x, y):
    with torch.no_grad():
        return (net([whole, whole], x).argmax(1) == y)[TRAIN:].float().mean().item()


def train(net, batches, epochs):
    """``batches()`` gives (blocks, x of their sources, the seeds' rows of the result, y of the seeds)."""
    optimizer = torch.optim.Adam(net.parameters(), 0.02, weight_decay=5e-4)
    for _ in range(epochs):
        for blocks, x, rows, y in batches():
            loss = cross_entropy(net(blocks, x)[rows], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def test_training_on_sampled_blocks_reaches_what_training_on_the_whole_graph_reaches():
    graph, x, y = planted()
    torch.manual_seed(0)
    dgl.seed(0)
    loader = DataLoader(graph, torch.arange(TRAIN), NeighborSampler([5, 5]), batch_size=20, shuffle=True)
    whole = train(Net(), lambda: [([graph, graph], x, slice(TRAIN), y[:TRAIN])], epochs=80)
    sampled = train(
        Net(), lambda: ((blocks, x[nodes], slice(None), y[seeds]) for nodes, seeds, blocks in loader), epochs=20
    )
    by_features = (x[:, :CLASSES].argmax(1) == y)[TRAIN:].float().mean()
    wanted = accuracy_on_the_rest(whole, graph, x, y)
    assert wanted > by_features + 0.2
    assert accuracy_on_the_rest(sampled, graph, x, y) > wanted - 0.05
