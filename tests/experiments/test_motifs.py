"""The example that names the motifs of graphs is fair, and its graphs stay apart in a batch."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score

from graphcaps.cli import main
from graphcaps.data.graphs.motifs import motif_graphs
from graphcaps.examples import motifs, trials
from graphcaps.examples.trials import Fit
from graphcaps.matters.table import of_graphs
from graphcaps.matters.tasks import tasks
from graphcaps.matters.work import _trainer


@pytest.fixture
def few(monkeypatch):
    """Sixty graphs, and two settings for each network."""
    monkeypatch.setattr(motifs, "GRAPHS", 60)
    monkeypatch.setattr(motifs, "BATCH", 21)
    monkeypatch.setattr(motifs, "SETTINGS", {name: some[:2] for name, some in motifs.SETTINGS.items()})
    monkeypatch.setattr(trials, "cores", lambda: 1)


def seen(fit: Fit) -> tuple:
    return fit.val_accuracy, fit.val_loss, fit.epoch, fit.parameters, fit.predicted.tolist()


def test_a_graph_in_a_batch_is_answered_as_alone_and_loops_stand_behind_its_edges():
    data = motif_graphs(3, 4, 60)
    which = np.array([7, 2, 31])
    together, alone = motifs.batch(data, which), [motifs.batch(data, which[k : k + 1]) for k in range(3)]
    for name in motifs.SETTINGS:
        torch.manual_seed(0)
        model = motifs.Named(name, 15, 4, 2).eval()
        apart = torch.cat([model(one.graph, one.feat) for one in alone])
        torch.testing.assert_close(model(together.graph, together.feat), apart, rtol=1e-4, atol=1e-5)
    src, dst = together.graph.edges()
    edges = len(together.motifs)
    assert torch.equal(src[edges:], torch.arange(45)) and torch.equal(dst[edges:], src[edges:])
    assert (src[:edges] != dst[:edges]).all() and together.motifs.any(dim=1).all()
    assert together.labels.tolist() == data.labels[which].tolist()


@pytest.mark.parametrize("name", motifs.SETTINGS)
def test_training_sees_no_test_label(few, monkeypatch, name):
    settings = motifs.SETTINGS[name][0]
    first = motifs.fit(name, settings, 0, 4, 3)

    def others(seed, count, graphs):
        data = motif_graphs(seed, count, graphs)
        labels = data.labels.copy()
        labels[data.test] = 1 - labels[data.test]
        return dataclasses.replace(data, labels=labels)

    monkeypatch.setattr(motifs, "motif_graphs", others)
    assert seen(motifs.fit(name, settings, 0, 4, 3)) == seen(first)


def test_couplings_are_held_against_the_motifs_of_edges_that_belong_to_one(few, monkeypatch):
    """A layer that is told them has an information of 1, and one that couples at random of 0."""
    data = motif_graphs(0, 4, 60)
    test = motifs.batch(data, data.test)

    def couplings(self, graph, feat):
        loops = torch.zeros(graph.num_edges() - len(test.motifs), 4)
        drawn = torch.rand(graph.num_edges(), 4, generator=torch.Generator().manual_seed(0))
        return [torch.cat([test.motifs[:, [2, 0, 3, 1]].float(), loops]), drawn]

    monkeypatch.setattr(motifs.Named, "couplings", couplings)
    found = motifs.fit("capsules", motifs.SETTINGS["capsules"][0], 0, 4, 1).beside
    assert found["told"][0] == pytest.approx(1) and abs(found["told"][1]) < 0.05
    one = test.motifs.sum(dim=1) == 1
    known = test.motifs[one].int().argmax(dim=1)
    assert adjusted_mutual_info_score(known, known) == 1 and 0 < (~one).sum() < one.sum()


def test_every_network_has_as_many_trials():
    assert set(motifs.SETTINGS) == set(motifs.LAYERS) - {"mutual"}
    assert {len(some) for some in motifs.SETTINGS.values()} == {motifs.TRIALS}


def test_the_command_prints_a_table_for_each_number_and_goes_on(few, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(motifs, "EPOCHS", 2)
    asked = ["example", "motifs", "--factors", "2", "3", "--seeds", "2", "--out", str(tmp_path)]
    file = tmp_path / "result.json"
    assert main([*asked, "--json", str(file)]) == 0
    printed, result = capsys.readouterr().out, json.loads(file.read_text())
    assert result["command"] == "graphcaps example motifs --factors 2 3 --seeds 2" and result["measure"] == "accuracy"
    assert [part["motifs"] for part in result["parts"]] == [2, 3] and "2 motifs\n" in printed
    for part in result["parts"]:
        assert [row["name"] for row in part["rows"]] == list(motifs.SETTINGS)
        assert list(part["rows"][-1]["recovered"])[0] == "layer 1"
        for row in part["rows"]:
            assert f"{row['test_mean'] * 100:.2f} +- {row['test_sd'] * 100:.2f}" in printed
    kept = {path.name for path in (tmp_path / "motifs" / "trainings").iterdir()}
    assert main(asked) == 0 and "kept in" in capsys.readouterr().out
    assert kept == {path.name for path in (tmp_path / "motifs" / "trainings").iterdir()}
    assert main(["example", "motifs", "--factors", "7", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "graphcaps: factors: expected an integer from 2 to 6, got 7\n"


def test_the_table_of_where_routing_matters_takes_it(few, tmp_path, monkeypatch):
    monkeypatch.setattr(motifs, "rows", partial(motifs.rows, epochs=1))
    (task,) = tasks(["motifs-4"])
    train = _trainer(task, tmp_path, tmp_path)
    found = {name: train(name, 2, lambda share: None, 1) for name in ("uniform", "capsules")}
    (row,) = of_graphs(task, found, 5)
    assert (row["measure"], row["unit"], row["command"]) == ("accuracy", "sets", "graphcaps example motifs --factors 4")
    (ours,) = row["cells"]["spherical"]
    assert ours["each"] == found["capsules"]["test"] and len(ours["interval"]) == 2
