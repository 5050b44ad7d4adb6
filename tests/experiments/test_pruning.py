"""Pruning: each child keeps its strongest edges, and every count equals that of the pruned network."""

import copy

import pytest
import torch

from experiments.tasks.pruning import DRAWS, mean_coupling, prune, strongest_edges
from graphcaps import CapsNet, bipartite_graph, dynamic_routing
from graphcaps.images.data import Batches, Images

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.long]


def test_every_count_is_that_of_routing_on_the_graph_of_the_kept_edges():
    torch.manual_seed(0)
    images = Images(torch.randint(256, (30, 1, 12, 12), dtype=torch.uint8), torch.randint(3, (30,)))
    model = CapsNet.from_preset("compact", (1, 12, 12), num_classes=3).eval()
    with torch.no_grad():
        model.capsules.weight *= 30  # for decided couplings without training
    parts = [Images(images.pixels[some], images.labels[some]) for some in (slice(13), slice(13, 30))]
    before = copy.deepcopy(model.state_dict())

    def counted(kept) -> list[int]:
        edges = kept.flatten().nonzero().flatten()
        graph, correct = bipartite_graph(edges // 3, edges % 3, 16, 3), []
        for part in parts:
            u = model.children_of(part.pixels / 255)
            votes = model.capsules.votes(u).tensor(model.capsules.graph())[edges]
            answers = dynamic_routing(graph, votes, model.capsules.routing.iterations).norm(dim=-1).argmax(0)
            correct.append(int((answers == part.labels).sum()))
        return correct

    strength = mean_coupling(model, Batches(images, 30))
    result = prune(model, strength, (2, 1, 2, 3), *(Batches(part, 5) for part in parts))
    assert [(row["k"], row["edges"]) for row in result] == [(1, 16), (2, 32), (None, 48)]
    ranks = torch.rand(DRAWS, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        for row in result[:-1]:
            scores = [row["strongest"], *row["random"], row["weakest"]]
            for by, score in zip((strength, *ranks, -strength), scores, strict=True):
                wanted = counted(strongest_edges(by.view(16, 3), row["k"]))
                assert [score["val_correct"], score["test_correct"]] == wanted
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
