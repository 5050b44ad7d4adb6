"""Pruning: each child keeps its strongest edges, and every count equals that of the pruned network."""

import copy
import json

import pytest
import torch

from experiments.__main__ import main
from experiments.tasks import pruning
from experiments.tasks.pruning import DRAWS, mean_coupling, prune, strongest_edges
from graphcaps import CapsNet, bipartite_graph, dynamic_routing
from graphcaps.data import Batches, Images
from graphcaps.training.train import train

from .. import small

pytestmark = pytest.mark.usefixtures("one_thread")


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
    assert [(row["k"], row["edges"]) for row in result["rows"]] == [(1, 16), (2, 32), (None, 48)]
    ranks = torch.rand(DRAWS, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        for row in result["rows"][:-1]:
            scores = [row["strongest"], *row["random"], row["weakest"]]
            for by, score in zip((strength, *ranks, -strength), scores, strict=True):
                wanted = counted(strongest_edges(by.view(16, 3), row["k"]))
                assert [score["val_correct"], score["test_correct"]] == wanted
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_command_writes_the_table_of_a_run(tmp_path, monkeypatch, capsys):
    small.use(monkeypatch)
    monkeypatch.setattr(pruning, "load_images", lambda name, root: small.digits())
    train(small.config(tmp_path, epochs=1), progress=False)
    assert main(["pruning", str(tmp_path / "run"), "--keep", "1", "3", "--to", str(tmp_path / "to")]) == 0
    result = json.loads((tmp_path / "to" / "pruning.json").read_text())
    assert [row["k"] for row in result["rows"]] == [1, 3, None] and result["train_images"] == 120
    assert (tmp_path / "to" / "pruning.md").read_text() in capsys.readouterr().out
