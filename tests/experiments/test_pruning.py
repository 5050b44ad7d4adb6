"""Pruning: every count is that of routing on the graph of the edges that are left."""

import copy

import pytest
import torch

from experiments.tasks.pruning import mean_coupling, prune, strongest_edges
from graphcaps import CapsNet, bipartite_graph, dynamic_routing
from graphcaps.images.data import Batches, Images

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.long]


def test_every_count_is_that_of_routing_on_the_graph_of_the_strongest_edges():
    torch.manual_seed(0)
    images = Images(torch.randint(256, (30, 1, 12, 12), dtype=torch.uint8), torch.randint(3, (30,)))
    model = CapsNet.from_preset("compact", (1, 12, 12), num_classes=3).eval()
    with torch.no_grad():
        model.capsules.weight *= 30  # for decided couplings without training
    before, strength = copy.deepcopy(model.state_dict()), mean_coupling(model, Batches(images, 30))
    rows = prune(model, strength, (2, 1, 3), Batches(images, 5), Batches(images, 30))
    assert [(row["k"], row["edges"]) for row in rows] == [(1, 16), (2, 32), (None, 48)]
    for row in rows[:-1]:
        for order, scores in ((strength, row["strongest"]), (-strength, row["weakest"])):
            edges = strongest_edges(order.view(16, 3), row["k"]).flatten().nonzero().flatten()
            graph, u = bipartite_graph(edges // 3, edges % 3, 16, 3), model.children_of(images.pixels / 255)
            votes = model.capsules.votes(u).tensor(model.capsules.graph())[edges]
            answers = dynamic_routing(graph, votes, model.capsules.routing.iterations).norm(dim=-1).argmax(0)
            assert scores["val_correct"] == scores["test_correct"] == int((answers == images.labels).sum())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
