"""The tasks on graphs choose fairly and without test labels, count what they say, and their command goes on."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from experiments import run, table
from experiments.__main__ import main
from experiments.data.cora import load_cora
from experiments.data.factors import factor_graph
from experiments.data.motifs import motif_graphs
from experiments.data.tu import load_graphs
from experiments.figures.degrees import entropy_by_degree
from experiments.figures.factors import matched, recovered
from experiments.run import Place
from experiments.tasks import cora, factors, molecules, motifs
from graphcaps import dgl
from graphcaps.trace import RoutingTrace

from . import rings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def place(data, tmp_path) -> Place:
    return Place(data, tmp_path / "cache", processes=1)


@pytest.fixture
def few(monkeypatch):
    """Sixty graphs of motifs, graphs of factors with 96 nodes of 4 classes, and few epochs."""
    shrunk = partial(factor_graph, nodes=96, classes=4, degree=10.0)
    monkeypatch.setattr(factors, "factor_graph", shrunk)
    monkeypatch.setattr(motifs, "GRAPHS", 60)
    monkeypatch.setattr(motifs, "BATCH", 21)
    return shrunk


def timeless(result: dict) -> dict:
    return {**result, "seconds": 0}


# No training sees a test label


def flipped(data, labels):
    """The data with other labels in the test part, which must not change what is trained and chosen."""
    return dataclasses.replace(data, labels=labels)


@pytest.mark.parametrize("network", cora.LAYERS)
def test_training_on_cora_sees_no_test_label(place, monkeypatch, network):
    first = cora.fit(place, network, cora.SETTINGS[network][0], 0, 8)
    papers = load_cora(place.data)
    labels = papers.labels.clone()
    labels[papers.test] = (labels[papers.test] + 1) % papers.num_classes
    monkeypatch.setattr(cora, "load_cora", lambda root: flipped(papers, labels))
    assert timeless(cora.fit(place, network, cora.SETTINGS[network][0], 0, 8)) == timeless(first)


@pytest.mark.parametrize("readout", molecules.READOUTS)
def test_training_on_a_fold_sees_no_test_label(place, monkeypatch, readout):
    job = ("mutag", readout, molecules.SETTINGS[0], 3, 0, 4)
    first, graphs = molecules.fit(place, *job), load_graphs("MUTAG", place.data)
    labels = graphs.labels.copy()
    labels[graphs.folds[3]] = 1 - labels[graphs.folds[3]]
    monkeypatch.setattr(molecules, "load_graphs", lambda name, root: flipped(graphs, labels))
    assert timeless(molecules.fit(place, *job)) == timeless(first)


@pytest.mark.parametrize("network", factors.LAYERS)
def test_training_on_factors_sees_no_test_label_and_learns(place, few, monkeypatch, network):
    settings, data = {"layers": 1, "heads": "own", "lr": 0.02}, few(0, 2)
    first = factors.fit(place, network, settings, 0, 2, 25)
    assert run.accuracy(first, data.labels[data.test]) > 0.4  # 0.25 by chance
    labels = data.labels.clone()
    labels[data.test] = (labels[data.test] + 1) % data.num_classes
    monkeypatch.setattr(factors, "factor_graph", lambda seed, count: flipped(data, labels))
    assert timeless(factors.fit(place, network, settings, 0, 2, 25)) == timeless(first)


@pytest.mark.parametrize("network", motifs.SETTINGS)
def test_training_on_motifs_sees_no_test_label(place, few, monkeypatch, network):
    job = (network, motifs.SETTINGS[network][0], 0, 4, 3)
    first, data = motifs.fit(place, *job), motif_graphs(0, 4, 60)
    labels = data.labels.copy()
    labels[data.test] = 1 - labels[data.test]
    monkeypatch.setattr(motifs, "motif_graphs", lambda *given: flipped(data, labels))
    assert timeless(motifs.fit(place, *job)) == timeless(first)


# What is trained


def test_every_network_has_as_many_settings():
    for settings in (cora.SETTINGS, factors.SETTINGS, motifs.SETTINGS):
        assert {len(tried) for tried in settings.values()} == {4}
    assert set(motifs.SETTINGS) == set(factors.LAYERS) - {"mutual"} and len(molecules.SETTINGS) == 4


def test_every_readout_has_as_many_trials_on_each_fold_and_the_best_is_tested(place, monkeypatch):
    calls = []

    def fit(place, data, network, settings, fold, seed, epochs):
        calls.append((network, fold))
        size = len(load_graphs("MUTAG", place.data).folds[fold])
        fitted = {"val_accuracy": settings["dropout"], "val_loss": 1.0, "predicted": [0] * size}
        return fitted | {"parameters": 10, "epoch": 1, "seconds": 0.5}

    monkeypatch.setattr(molecules, "fit", fit)
    rows = molecules.rows(place, "mutag", seeds=2)
    keys = [(network, fold) for network in molecules.READOUTS for fold in range(10)]
    assert Counter(calls) == dict.fromkeys(keys, 2 * 4)
    assert all(row["chosen"] == {"width 16, dropout 0.5, lr 0.01": 10} for row in rows.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_parts_of_each_fold_are_disjoint_complete_and_stratified(place, seed):
    graphs = load_graphs("MUTAG", place.data)
    for fold in range(10):
        train, val, test = molecules.split(graphs, fold, seed)
        assert sorted([*train, *val, *test]) == list(range(len(graphs)))
        assert test.tolist() == graphs.folds[fold].tolist() and len(val) == round((64 - 6) / 10)
        shares = [graphs.labels[part].mean() for part in (np.concatenate([train, val]), val)]
        assert abs(shares[0] - shares[1]) * len(val) < 1


def test_the_uniform_control_never_prefers_a_capsule_and_all_networks_are_as_wide(few):
    data = few(0, 3)
    graph = dgl.add_self_loop(data.graph)
    for network, equal in (("uniform", True), ("dynamic", False), ("capsules", False), ("mutual", False)):
        torch.manual_seed(0)
        model = factors.Layers(network, 96, 4, 3, 2, "own").eval()
        for c in model.couplings(graph, data.features):
            assert c.shape == (graph.num_edges(), 3) and torch.allclose(c.sum(dim=1), torch.ones(len(c)), atol=1e-5)
            assert bool((c - 1 / 3).abs().max() < 1e-6) == equal
    made = [factors.Layers(network, 96, 4, 3, 2, "all") for network in factors.LAYERS]
    assert len({model.heads.weight.shape for model in made}) == 1
    counts = [sum(weight.numel() for weight in model.parameters()) for model in made[2:]]
    assert counts[0] == counts[1] == counts[2] - 2 == counts[3] - 2  # each layer's concentration


def test_a_factors_classes_are_read_from_its_own_part_alone():
    torch.manual_seed(0)
    heads, nodes = factors.OwnHeads(3, 16, 4), torch.randn(5, 48, requires_grad=True)
    heads(nodes).unflatten(1, (3, 4))[:, 1].sum().backward()
    assert nodes.grad.unflatten(1, (3, 16)).abs().sum((0, 2)).gt(0).tolist() == [False, True, False]


def test_a_graph_in_a_batch_is_answered_as_alone_and_loops_stand_behind_its_edges():
    data, which = motif_graphs(3, 4, 60), np.array([7, 2, 31])
    together, single = motifs.batch(data, which), [motifs.batch(data, which[k : k + 1]) for k in range(3)]
    for network in motifs.SETTINGS:
        torch.manual_seed(0)
        model = motifs.PooledLayers(network, 15, 4, 2).eval()
        separate = torch.cat([model(one.graph, one.feat) for one in single])
        torch.testing.assert_close(model(together.graph, together.feat), separate, rtol=1e-4, atol=1e-5)
    src, dst = together.graph.edges()
    edges = len(together.motifs)
    assert torch.equal(src[edges:], torch.arange(45)) and torch.equal(dst[edges:], src[edges:])
    assert (src[:edges] != dst[:edges]).all() and together.motifs.any(dim=1).all()


def test_word_dropout_drops_words_and_nothing_else():
    words = torch.eye(3).repeat(200, 100)
    dropout = cora.WordDropout(words, 0.5)
    dropped = dropout().to_dense()
    assert set(dropped[words == 0].tolist()) == {0.0} and set(dropped[words == 1].tolist()) == {0.0, 2.0}
    assert abs(dropped[words == 1].mean() - 1) < 0.05 and torch.equal(dropout.eval()().to_dense(), words)


# What is counted


def test_couplings_that_know_the_factors_score_one_whatever_the_capsules_are_called(few):
    data = few(0, 3)
    known = data.factors.float()[:, [2, 0, 1]] + 0.1
    found = factors.recovery(known, data)
    which, factor = data.single()
    first, second, third = torch.bincount(factor).tolist()
    assert found["score"] == pytest.approx(1)
    assert found["table"] == [[0, first, 0], [0, 0, second], [third, 0, 0]]
    src, dst = (ends[which].tolist() for ends in data.graph.edges())
    wanted = [[u, f, [1, 2, 0][f]] for u, v, f in zip(src, dst, factor.tolist(), strict=True) if v == 0]
    assert found["edges"] == wanted
    torch.manual_seed(0)
    assert abs(factors.recovery(torch.rand(len(known), 3), data)["score"]) < 0.02


def test_couplings_are_compared_with_the_motifs_of_edges_that_belong_to_one(place, few, monkeypatch):
    test = motifs.batch(data := motif_graphs(0, 4, 60), data.test)

    def couplings(self, graph, feat):
        loops = torch.zeros(graph.num_edges() - len(test.motifs), 4)
        drawn = torch.rand(graph.num_edges(), 4, generator=torch.Generator().manual_seed(0))
        return [torch.cat([test.motifs[:, [2, 0, 3, 1]].float(), loops]), drawn]

    monkeypatch.setattr(motifs.PooledLayers, "couplings", couplings)
    found = motifs.fit(place, "capsules", motifs.SETTINGS["capsules"][0], 0, 4, 1)["information"]
    assert found[0] == pytest.approx(1) and abs(found[1]) < 0.05


def test_the_entropy_of_a_nodes_couplings_is_the_mean_over_its_in_edges():
    graph = dgl.graph(([0, 1, 2, 2], [1, 1, 2, 0]))
    c = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.5, 0.5]])[:, None]
    found = cora.undecided(graph, c)
    mixed = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert found["degree"] == [1, 2, 1] and found["capsules"] == 2
    assert found["entropy"] == pytest.approx([np.log(2), np.log(2) / 2, mixed])


def test_the_routing_of_graphs_is_that_of_the_network_at_its_trained_iterations(place):
    torch.manual_seed(0)
    graphs = load_graphs("MUTAG", place.data)
    model = molecules.GraphNet("capsules", 3, 2, 8, 0.5).eval()
    for number, one in zip([5, 0], molecules.routings(model, graphs, [5, 0], 4), strict=True):
        nodes, edges = len(rings.graph(number)[1]), sum(len(ends) for _, ends in rings.graph(number)[1])
        c = one.c[0, :, 0].reshape(4, nodes, 2).astype(float)  # float16
        assert len(one.bonds) == edges // 2 and one.lengths.shape == (1, 4, 1, 2)
        assert np.allclose(c.sum(axis=2), 1, atol=1e-3) and np.allclose(c[0], 0.5)
        assert one.labels[0] == graphs.labels[number]
        with torch.no_grad():
            assert torch.allclose(model(graphs.batch([number]))[0], torch.from_numpy(one.lengths[0, 2, 0]))


# The command


def words(place: Place, *more: str) -> list[str]:
    return [*more, "--data", str(place.data), "--cache", str(place.cache), "--to", str(place.cache / "to")]


@pytest.mark.parametrize("name", ["mutag", *(pytest.param(n, marks=pytest.mark.long) for n in ("cora", "proteins"))])
def test_a_quick_look_leaves_the_results_and_writes_a_row_per_network(place, capsys, name):
    assert main(words(place, name, "--quick", "--seeds", "2")) == 0
    result, printed = json.loads((place.cache / f"{name}.json").read_text()), capsys.readouterr().out
    assert not (place.cache / "to").exists() and (place.cache / f"{name}.md").read_text() in printed
    (part,) = result["parts"]
    assert [row["name"] for row in part["rows"]] == list(cora.LAYERS if name == "cora" else molecules.READOUTS)
    for row in part["rows"]:
        assert row["test_sd"] == pytest.approx(np.std(row["test"], ddof=1)) and len(row["test"]) == 2
        assert f"| **{row['test_mean'] * 100:.2f}** +- {row['test_sd'] * 100:.2f} |" in printed
    if name == "mutag":
        traces = [RoutingTrace.load(path) for path in (place.cache / "mutag").glob("graph-*.npz")]
        assert {(trace.num_iterations, trace.trained_iterations) for trace in traces} == {(10, 3)}
        assert {int(trace.labels[0]) for trace in traces} == {0, 1}


def test_a_stopped_command_goes_on_and_gives_the_same(place, few, monkeypatch, capsys):
    settings = {network: [factors.SETTINGS[network][1]] for network in factors.LAYERS}
    small = {"SETTINGS": settings, "EPOCHS": 1, "SEEDS": 2, "NUMBERS": (2, 3), "TRIAL_SEEDS": (7,)}
    for name, value in small.items():
        monkeypatch.setattr(factors, name, value)
    monkeypatch.setattr(run, "cores", lambda: 1)
    fit, ended = run.fit, []

    def stopping(*given, **options):
        if len(ended) == 5:
            raise KeyboardInterrupt
        ended.append(fit(*given, **options))
        return ended[-1]

    monkeypatch.setattr(run, "fit", stopping)
    assert main(words(place, "factors")) == 130 and len([*place.cache.glob("*.json")]) == 5
    monkeypatch.setattr(run, "fit", fit)
    assert main(words(place, "factors")) == 0
    found = [json.loads((place.cache / "to" / "factors.json").read_text())]
    assert (
        place.cache / "to" / "factors-2.png"
    ).is_file() and "Told how the graphs were drawn" in capsys.readouterr().out
    other = dataclasses.replace(place, cache=place.cache / "other")
    assert main(words(other, "factors")) == 0
    found.append(json.loads((other.cache / "to" / "factors.json").read_text()))
    rows, again = ([row["test"] for part in each["parts"] for row in part["rows"]] for each in found)
    assert rows == again and len(rows) == 12


def test_mistakes_are_answered_in_one_line(capsys):
    assert main(["routing"]) == 2
    assert capsys.readouterr().err.startswith("experiments: plan: expected a YAML file, got routing: ")
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(
        f"  {name} " in listed for name in ("routings", "cora", "factors", "overview", "pruning RUN", "bench NAME")
    )


def test_a_table_is_the_one_of_its_results(tmp_path):
    found = table.read("motifs")
    assert (
        table.write("motifs", found, tmp_path) == table.graphs(found) == (tmp_path / "motifs.md").read_text().rstrip()
    )
    assert json.loads((tmp_path / "motifs.json").read_text()) == found


# Pictures


def test_the_picture_gives_a_capsule_the_colour_of_the_factor_most_of_its_edges_have():
    counts = np.array([[1, 9, 2], [8, 2, 1], [1, 1, 7]])
    assert matched(counts) == [1, 0, 2]
    edges = [[5, 0, 1], [6, 1, 0], [7, 2, 0]]
    found = {"factors": 3, "layer": 2, "graph": 0, "node": 0, "score": 0.5, "table": counts.tolist(), "edges": edges}
    matrix, around = recovered(found).axes
    assert [label.get_text() for label in matrix.get_xticklabels()] == ["1", "0", "2"]
    shares = np.array([[9, 1, 2], [2, 8, 1], [1, 1, 7]]) / [[12], [11], [9]]
    assert np.allclose(matrix.images[0].get_array(), shares)
    (lines,) = (artist for artist in around.collections if hasattr(artist, "get_segments"))
    ring = [patch.get_facecolor() for patch in around.patches]
    colors = [tuple(color) for color in lines.get_colors()]
    assert colors[:2] == ring[:2] and colors[2] == ring[1] != ring[2]


def test_the_picture_of_entropy_by_degree_shows_nodes_means_and_where_all_is_undecided():
    degree = np.repeat([1, 4, 16], [6, 6, 2])
    entropy = np.concatenate([np.linspace(0.8, 1.3, 6), np.linspace(0.4, 0.9, 6), [0.2, 0.3]])
    figure = entropy_by_degree({"degree": degree, "entropy": entropy, "capsules": 4, "layer": 1, "seed": 0})
    (axes,) = figure.axes
    uniform, means = axes.lines
    assert uniform.get_ydata()[0] == pytest.approx(np.log(4))
    assert means.get_xydata() == pytest.approx(np.array([[1, 1.05], [4, 0.65]]))  # of two nodes there is no mean
    nodes = np.asarray(axes.collections[0].get_offsets())
    assert nodes[:, 1] == pytest.approx(entropy) and abs(nodes[:, 0] - degree).max() < 0.5
    eta2 = 1 - (6 * np.linspace(0.8, 1.3, 6).var() * 2 + 0.005) / (14 * entropy.var())
    assert f"eta² {eta2:.2f}" in " ".join(text.get_text() for text in figure.texts)
