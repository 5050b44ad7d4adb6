"""A pruned layer routes on fewer edges: against masks and a sort per child; what it loses: against evaluation."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from experiments.__main__ import main
from experiments.tasks import pruning
from experiments.tasks.pruning import DRAWS, PrunedCaps, mean_coupling, prune, strongest_edges
from graphcaps import CapsNet, dynamic_routing, engine
from graphcaps.analysis.accuracy import evaluate
from graphcaps.data import Batches, Images
from graphcaps.nn import CapsuleLayer
from graphcaps.training.train import train

from .. import small

pytestmark = pytest.mark.usefixtures("one_thread")
SOME = torch.tensor([1, 2, 5, 6, 7, 11])


@pytest.mark.parametrize(("k", "few_values"), [(1, False), (2, True)])
def test_each_child_keeps_its_strongest_edges(k, few_values):
    torch.manual_seed(0)
    strength = torch.randn(5, 3).round() if few_values else torch.randn(5, 3)  # or many are equally strong
    wanted = [3 * i + j for i in range(5) for j in sorted(range(3), key=lambda j: -strength[i, j].item())[:k]]
    assert strongest_edges(strength, k).tolist() == sorted(wanted)


@pytest.mark.parametrize("prior", [False, True])
def test_a_pruned_layer_routes_as_if_the_other_edges_had_no_coupling(prior):
    torch.manual_seed(0)
    layer, u = CapsuleLayer(4, 3, child_dim=5, parent_dim=6, learned_prior=prior), torch.randn(4, 7, 5)
    if prior:
        torch.nn.init.normal_(layer.prior)
    masked = torch.full((12,), -torch.inf)
    masked[SOME] = layer.prior.detach()[SOME] if prior else 0
    with engine("torch"):
        wanted = dynamic_routing(layer.graph(), layer.votes(u).tensor(layer.graph()), prior=masked)
    torch.testing.assert_close(PrunedCaps(layer, SOME)(u), wanted)
    torch.testing.assert_close(PrunedCaps(layer, torch.arange(12))(u), layer(u))


@pytest.fixture(scope="module")
def images():
    source = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (30, 1, 12, 12), dtype=torch.uint8, generator=source)
    return Images(pixels, torch.randint(3, (30,), generator=source))


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = CapsNet.from_preset("compact", (1, 12, 12), num_classes=3)
    with torch.no_grad():
        model.capsules.weight *= 30  # decided couplings without training
    return model


def test_every_count_is_what_evaluating_the_pruned_network_gives(model, images):
    parts = [Images(images.pixels[some], images.labels[some]) for some in (slice(13), slice(13, 30))]

    def by_evaluate(edges) -> list[int]:
        cut = copy.deepcopy(model)
        cut.capsules = PrunedCaps(cut.capsules, edges)
        return [evaluate(cut, Batches(part, 30)).correct for part in parts]

    strength = mean_coupling(model, Batches(images, 30))
    found = prune(model, strength, (2, 1, 2, 3), *(Batches(part, 5) for part in parts))
    assert [(row["k"], row["edges"]) for row in found["rows"]] == [(1, 16), (2, 32), (None, 48)]
    ranks = torch.rand(DRAWS, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in found["rows"][:-1]:
        counted = [row["strongest"], *row["random"], row["weakest"]]
        for by, score in zip((strength, *ranks, -strength), counted, strict=True):
            edges = strongest_edges(by.view(16, 3), row["k"])
            assert [score["val_correct"], score["test_correct"]] == by_evaluate(edges)
            assert score["test_accuracy"] == score["test_correct"] / 17
    whole = found["rows"][-1]["strongest"]
    assert [whole["val_correct"], whole["test_correct"]] == by_evaluate(torch.arange(48))
    enough = [row["k"] for row in found["rows"] if row["strongest"]["val_correct"] >= whole["val_correct"]]
    assert found["enough"] == enough[0] and len(model.capsules.weight) == 48


def test_the_command_writes_the_table_of_a_run(tmp_path, monkeypatch, capsys):
    small.use(monkeypatch)
    monkeypatch.setattr(pruning, "load_images", lambda name, root: small.digits())
    train(small.config(tmp_path, epochs=1), progress=False)
    assert main(["pruning", str(tmp_path / "run"), "--keep", "1", "3", "--to", str(tmp_path / "to")]) == 0
    found = json.loads((tmp_path / "to" / "pruning.json").read_text())
    assert [row["k"] for row in found["rows"]] == [1, 3, None] and found["train_images"] == 120
    assert found["command"] == "python -m experiments pruning RUN --keep 1 3"
    assert (tmp_path / "to" / "pruning.md").read_text() in capsys.readouterr().out
