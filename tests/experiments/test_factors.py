"""Graphs with latent factors are what they say, and the example on them is fair, resumable and scored rightly."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import shutil
from functools import partial
from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from graphcaps._dgl import dgl
from graphcaps.cli import main
from graphcaps.data.graphs.beliefs import beliefs
from graphcaps.data.graphs.factors import FactorGraph, factor_graph, within
from graphcaps.data.graphs.motifs import MOTIFS, motif_graphs
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.examples import factors, run, table, trials
from graphcaps.examples.trials import Fit
from graphcaps.viz import recovered
from graphcaps.viz.results.factors import matched

pytestmark = pytest.mark.usefixtures("one_thread")


def by_enumeration(data, known):
    """Beliefs of all labels that are possible, one after the other, pairs without an edge included."""
    nodes, size, classes = len(data.labels), data.num_factors, data.num_classes
    joined = set(zip(*(end.tolist() for end in data.graph.edges()), strict=True))
    weights, sums, causes = 0.0, torch.zeros(nodes, size, classes).double(), torch.zeros(len(joined), size).double()
    for labels in product(range(classes), repeat=nodes * size):
        each = torch.tensor(labels).view(nodes, size)
        if not torch.equal(each[known], data.labels[known]):
            continue
        chance = 1.0
        for i, j in combinations(range(nodes), 2):
            none = float(torch.where(each[i] == each[j], 1 - data.p, 1 - data.q).prod())
            chance *= 1 - none if (i, j) in joined else none
        ways = torch.where(each[data.graph.edges()[0]] == each[data.graph.edges()[1]], data.p, data.q).double()
        weights, sums = weights + chance, sums + chance * F.one_hot(each, classes)
        causes += chance * ways / ways.sum(1, keepdim=True)
    return sums / weights, causes / weights


@pytest.mark.parametrize("size, pairs", [(1, [(0, 1), (1, 2), (1, 3), (3, 4)]), (2, [(0, 1)])], ids=["tree", "pair"])
def test_beliefs_are_those_of_all_labels_enumerated(size, pairs):
    """Up to p, the share of edges that both factors explain and of pairs that are joined."""
    low, high = (torch.tensor(end) for end in zip(*pairs, strict=True))
    nodes = int(high.max()) + 1
    graph = dgl.graph((torch.cat([low, high]), torch.cat([high, low])), num_nodes=nodes)
    labels = (torch.arange(nodes * size) % 2).view(nodes, size)
    none = torch.arange(0)
    data = FactorGraph(graph, torch.eye(nodes), labels, torch.ones(0, size) > 0, none, none, none, 1e-3, 1e-4)
    known = torch.tensor([0])
    for got, wanted in zip(beliefs(data, known), by_enumeration(data, known), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=2e-3)


@pytest.mark.long
def test_much_is_to_be_found_in_the_papers_graphs():
    found = factors.told_how_it_was_drawn(data := factor_graph(0, 4))
    assert found["accuracy"] > 0.99 and 0.7 < found["score"] < 0.8
    classes, causes = beliefs(data)
    assert torch.equal(classes[data.train].argmax(2), data.labels[data.train])
    torch.testing.assert_close(causes.sum(1), torch.ones(len(causes)).double())


def silent(share: float) -> None:
    pass


@pytest.fixture
def small(monkeypatch):
    """The example's graphs with 96 nodes of 4 classes, and few settings."""
    shrunk = partial(factor_graph, nodes=96, classes=4, degree=10.0)
    monkeypatch.setattr(factors, "factor_graph", shrunk)
    few = [{"layers": 2, "heads": heads, "lr": 0.01} for heads in ("all", "own")]
    own = [{**settings, "concentration": 2.0} for settings in few]
    monkeypatch.setattr(factors, "SETTINGS", {name: own if name in factors.ROUTED else few for name in factors.LAYERS})
    monkeypatch.setattr(factors, "TRIAL_SEEDS", range(7, 10))
    return shrunk


def digest(*arrays) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array, np.int64).tobytes() for array in arrays)).hexdigest()[
        :16
    ]


@pytest.mark.parametrize("count", [4, 8])
def test_a_graph_has_the_papers_sizes_and_mean_degree(count):
    data = factor_graph(1, count)
    assert data.labels.shape == (1000, count) and data.num_classes == 16
    assert [len(part) for part in (data.train, data.val, data.test)] == [600, 200, 200]
    assert sorted(torch.cat([data.train, data.val, data.test]).tolist()) == list(range(1000))
    assert 39.5 <= data.graph.num_edges() / 1000 <= 40.5
    for labels in data.labels.T:
        assert set(torch.bincount(labels).tolist()) == {62, 63}


def test_edges_go_both_ways_once_and_the_features_are_rows_of_their_matrix():
    data = factor_graph(2, 4)
    src, dst = data.graph.edges()
    pairs = set(zip(src.tolist(), dst.tolist(), strict=True))
    assert len(pairs) == data.graph.num_edges() and all((b, a) in pairs and a != b for a, b in pairs)
    assert torch.equal(data.features, matrix(data.graph) + torch.eye(1000))
    assert torch.equal(factor_graph(2, 4, "identity").features, torch.eye(1000))


def test_an_edge_joins_one_class_of_each_of_its_factors_but_for_the_few_between():
    data = factor_graph(3, 4)
    src, dst = data.graph.edges()
    assert data.factors.any(dim=1).all() and data.factors.any(dim=0).all()
    same = data.labels[src] == data.labels[dst]
    astray = (data.factors & ~same).sum().item() / 2
    assert abs(astray - 4 * 3e-5 * 999 * 500 * 15 / 16) < 4 * 60**0.5  # 56 expected, and four standard deviations
    both = dict(zip(zip(src.tolist(), dst.tolist(), strict=True), data.factors.tolist(), strict=True))
    assert all(both[b, a] == cause for (a, b), cause in both.items())
    rates = [(data.factors[:, k].sum() / (n := same_pairs(data.labels[:, k]))).item() for k in range(4)]
    assert rates == pytest.approx([within(4, 40, 1000, 16, 3e-5)] * 4, rel=0.05) and n > 0


def matrix(graph):
    found = torch.zeros(graph.num_nodes(), graph.num_nodes())
    found[graph.edges()] = 1
    return found


def same_pairs(labels):
    sizes = torch.bincount(labels)
    return (sizes * (sizes - 1)).sum()


def test_the_same_seed_is_the_same_graph_for_ever():
    data = factor_graph(0, 4)
    found = digest(*data.graph.edges(), data.labels, data.factors, data.train, data.test)
    assert found == "fb96a6c4ddcb6846"
    assert digest(*factor_graph(1, 4).graph.edges()) != digest(*data.graph.edges())
    motifs = motif_graphs(0, graphs=50)
    assert digest(motifs.adjacency, motifs.labels) == "3db67e0c7216259d"


def test_single_names_the_edges_of_one_factor_alone():
    data = factor_graph(4, 6)
    which, factor = data.single()
    kept = set(which.tolist())
    for edge, causes in enumerate(data.factors[:3000].tolist()):
        assert (edge in kept) == (sum(causes) == 1)
    assert data.factors[which, factor].all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"factors": 0}, "factors: expected an integer >= 1, got 0"),
        ({"seed": -1}, "seed: expected an integer >= 0, got -1"),
        ({"features": "words"}, "features: expected"),
        ({"degree": 999}, "degree: expected above 0 and below 999, got 999"),
        ({"degree": 400, "factors": 1}, "degree: expected one that a p above q and up to 1 gives, got p = 6.5"),
        ({"nodes": 31}, "nodes: expected at least 32, two per class, got 31"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(given, said):
    with pytest.raises(InputError) as caught:
        factor_graph(**{"seed": 0, **given})
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("count", [2, 5, 6])
def test_a_graph_of_motifs_is_the_union_of_half_of_them_each_whole(count):
    data = motif_graphs(1, count, graphs=40)
    assert data.motif_names == tuple(MOTIFS)[:count] and set(data.labels.sum(axis=1)) == {(count + 1) // 2}
    for adjacency, labels in zip(data.adjacency, data.labels, strict=True):
        for name, part, held in zip(data.motif_names, adjacency, labels, strict=True):
            drawn = nx.from_numpy_array(part)
            drawn.remove_nodes_from([*nx.isolates(drawn)])
            assert nx.is_isomorphic(drawn, MOTIFS[name]() if held else nx.Graph())
    assert len(set(map(bytes, data.adjacency))) == 40


def test_a_batch_of_motif_graphs_holds_the_graphs_and_the_motifs_of_each_edge():
    data = motif_graphs(2, 4, graphs=10)
    graph = data.batch(np.array([7, 3]))
    for number, part in zip([7, 3], dgl.unbatch(graph), strict=True):
        union = data.adjacency[number].any(axis=0)
        assert torch.equal(matrix(part).bool(), torch.from_numpy(union))
        assert torch.equal(part.ndata["feat"].bool(), torch.from_numpy(union))
        src, dst = part.edges()
        assert torch.equal(part.edata["factors"], torch.from_numpy(data.adjacency[number][:, src, dst].T))


def other_test_labels(data):
    labels = data.labels.clone()
    labels[data.test] = (labels[data.test] + 1) % data.num_classes
    return dataclasses.replace(data, labels=labels)


@pytest.mark.parametrize("name", factors.LAYERS)
def test_training_sees_no_test_label_and_learns(small, monkeypatch, name):
    settings = {"layers": 1, "heads": "own", "lr": 0.02}
    first = factors.fit(name, settings, 0, 2, 25)
    monkeypatch.setattr(factors, "factor_graph", lambda seed, count: other_test_labels(small(seed, count)))
    second = factors.fit(name, settings, 0, 2, 25)
    assert torch.equal(first.predicted, second.predicted) and first.val_loss == second.val_loss
    data = small(0, 2)
    right = trials.accuracy(first, data.labels[data.test])
    assert first.predicted.shape == (len(data.test), 2) and right > 0.4  # 0.25 by chance
    assert right == (first.predicted == data.labels[data.test]).double().mean().item()


def test_the_networks_are_as_wide_as_each_other(small):
    for heads in ("all", "own"):
        made = [factors.Layers(name, 96, 4, 6, 2, heads) for name in factors.LAYERS]
        shapes = [{tuple(weight.shape) for weight in model.heads.parameters()} for model in made]
        assert all(shape == shapes[0] for shape in shapes)
        uniform, dynamic, routed, mutual = ([weight.numel() for weight in model.parameters()] for model in made[2:])
        assert dynamic == uniform and routed == mutual
        assert sorted(routed) == sorted([*uniform, 1, 1])  # and each layer's concentration
        data = small(0, 6)
        assert made[5](dgl.add_self_loop(data.graph), data.features).shape == (96, 4, 6)


def test_a_factors_classes_are_read_from_its_own_part_alone():
    torch.manual_seed(0)
    heads = factors.OwnHeads(3, 16, 4)
    nodes = torch.randn(5, 48, requires_grad=True)
    heads(nodes).unflatten(1, (3, 4))[:, 1].sum().backward()
    assert nodes.grad.unflatten(1, (3, 16)).abs().sum((0, 2)).gt(0).tolist() == [False, True, False]


def test_the_uniform_control_never_prefers_a_capsule(small):
    data = small(0, 3)
    graph = dgl.add_self_loop(data.graph)
    for name, equal in (("uniform", True), ("dynamic", False), ("capsules", False), ("mutual", False)):
        torch.manual_seed(0)
        model = factors.Layers(name, 96, 4, 3, 2, "own").eval()
        for c in model.couplings(graph, data.features):
            assert c.shape == (graph.num_edges(), 3) and torch.allclose(c.sum(dim=1), torch.ones(len(c)), atol=1e-5)
            assert bool((c - 1 / 3).abs().max() < 1e-6) == equal


def test_couplings_that_know_the_factors_score_one_whatever_the_capsules_are_called(small):
    data = small(0, 3)
    known = data.factors.float()[:, [2, 0, 1]] + 0.1
    found = factors.held_against(known, data)
    which, factor = data.single()
    assert found["score"] == pytest.approx(1)
    assert found["table"] == [
        [0, n, 0] if k == 0 else [0, 0, n] if k == 1 else [n, 0, 0]
        for k, n in enumerate(torch.bincount(factor).tolist())
    ]
    src, dst = (ends[which] for ends in data.graph.edges())
    assert found["edges"] == [
        [u, f, [1, 2, 0][f]] for u, v, f in zip(src.tolist(), dst.tolist(), factor.tolist(), strict=True) if v == 0
    ]
    torch.manual_seed(0)
    assert abs(factors.held_against(torch.rand(len(known), 3), data)["score"]) < 0.02


def test_every_network_has_as_many_trials_and_what_was_chosen_meets_other_graphs(small, monkeypatch):
    calls = []

    def fake(name, settings, seed, factors, epochs):
        calls.append((name, settings["heads"], seed))
        size = len(small(seed, factors).test)
        layers = [{"score": 0.1 * seed, "table": [[1]], "edges": []}] * 2
        right = 0.75 if settings["heads"] == "own" else 0.5
        return Fit(right, 1.0, 1, 10, 0.5, torch.zeros(size, factors), {"layers": layers})

    monkeypatch.setattr(factors, "fit", fake)
    found = factors.run(2, 3, True, silent)
    tried, final = calls[:36], calls[36:]
    assert tried == [(name, heads, seed) for name in factors.LAYERS for heads in ("all", "own") for seed in (7, 8, 9)]
    assert final == [(name, "own", seed) for name in factors.LAYERS for seed in range(3)]
    score = found["rows"][-1]["recovered"]["layer 2"]
    assert score["each"] == pytest.approx([0, 0.1, 0.2]) and score["mean"] == pytest.approx(0.1)
    assert "0.100 +- 0.100 in layer 2" in table.information(found["rows"][-1])


def counted(*job, calls, given):
    calls.append(job)
    return Fit(0.5, 1.0, 3, 10, 0.25, torch.tensor([[job[0], given]]), {"layers": [1.5]})


def test_trainings_that_have_ended_are_not_repeated(tmp_path, monkeypatch):
    calls, shares = [], []
    monkeypatch.setattr(
        trials, "_plain", lambda function, job, about: {"given": function.keywords["given"], "job": [*job]}
    )
    first = trials.run_jobs(partial(counted, calls=calls, given=7), [(1,), (2,)], silent, 1, tmp_path / "kept")
    jobs = [(2,), (3,), (1,)]
    again = trials.run_jobs(partial(counted, calls=calls, given=7), jobs, shares.append, 1, tmp_path / "kept")
    assert calls == [(1,), (2,), (3,)] and shares == [1]
    assert [fit.predicted.tolist() for fit in again] == [[[2, 7]], [[3, 7]], [[1, 7]]]
    assert {**vars(again[2]), "predicted": 0} == {**vars(first[0]), "predicted": 0}
    trials.run_jobs(partial(counted, calls=calls, given=8), [(1,)], silent, 1, tmp_path / "kept")
    assert calls[3:] == [(1,)]
    for file in (tmp_path / "kept").iterdir():
        file.write_text("{")
    with pytest.raises(GraphcapsError, match="expected a kept training, got: .* Delete the file"):
        trials.run_jobs(partial(counted, calls=calls, given=7), [(1,)], silent, 1, tmp_path / "kept")


def test_a_training_is_known_by_its_function_settings_and_seed():
    keys = {
        trials._key(trials._plain(partial(factors.fit, factors=count, epochs=epochs), (name, {"lr": lr}, seed), None))
        for count in (4, 8)
        for epochs in (3, 400)
        for name in ("GCN", "GAT")
        for lr in (0.1, 0.2)
        for seed in (0, 1)
    }
    assert len(keys) == 32


def test_the_command_goes_on_where_it_was_stopped_and_draws(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(factors, "EPOCHS", 1)
    monkeypatch.setattr(factors, "TRIAL_SEEDS", range(7, 8))
    monkeypatch.setattr(trials, "cores", lambda: 1)
    asked = ["example", "factors", "--factors", "2", "3", "--seeds", "2", "--out", str(tmp_path)]
    ended = []

    def breaking(name, settings, seed, factors, epochs):
        if len(ended) == 5:
            raise KeyboardInterrupt
        ended.append((name, settings["heads"], seed))
        return whole(name, settings, seed, factors, epochs)

    whole = factors.fit
    breaking.__module__, breaking.__qualname__ = whole.__module__, whole.__qualname__
    monkeypatch.setattr(factors, "fit", breaking)
    assert main(asked) != 0
    kept = tmp_path / "factors" / "trainings"
    assert len([*kept.iterdir()]) == 5
    monkeypatch.setattr(factors, "fit", whole)
    capsys.readouterr()
    file = tmp_path / "result.json"
    assert main([*asked, "--json", str(file)]) == 0
    printed, result = capsys.readouterr().out, json.loads(file.read_text())
    assert printed.startswith(f"5 trainings kept in {kept}, and not repeated.")
    assert result["command"] == "graphcaps example factors --factors 2 3 --seeds 2"
    assert [part["factors"] for part in result["parts"]] == [2, 3]
    for part in result["parts"]:
        assert [row["name"] for row in part["rows"]] == list(factors.LAYERS)
        others = ["GCN", "GAT", "uniform", "dynamic"]
        over = [f"capsules over {name}" for name in others], [f"mutual over {name}" for name in (*others, "capsules")]
        assert list(part["margins"]) == [*over[0], *over[1]]
        for row in part["rows"]:
            assert f"{row['test_mean'] * 100:.2f} +- {row['test_sd'] * 100:.2f}" in printed
        assert table.information(part["rows"][-1]) in printed
        assert (tmp_path / "factors" / f"factors-{part['factors']}.png").is_file()
    assert "test micro-F1, %" in printed and printed.count("adjusted mutual information") == 4
    straight = run.example("factors", num_factors=(2,), seeds=2, out=tmp_path / "anew", say=lambda line: None)
    for row, other in zip(straight["parts"][0]["rows"], result["parts"][0]["rows"], strict=True):
        assert row["test"] == other["test"]  # with and without the break


def test_the_command_answers_mistakes_in_one_line(tmp_path, capsys):
    assert main(["example", "factors", "--factors", "1", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "graphcaps: factors: expected an integer from 2 to 32, got 1\n"


def test_the_example_runs_where_it_is_copied_to(tmp_path):
    path = shutil.copy(factors.__file__, tmp_path / "mine.py")
    spec = importlib.util.spec_from_file_location("mine", path)
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    settings = {"layers": 1, "heads": "all", "lr": 0.01, "concentration": 1.0}
    fits = [module.fit("capsules", settings, 0, 2, 1) for module in (factors, copied)]
    assert torch.equal(fits[0].predicted, fits[1].predicted) and fits[0].beside == fits[1].beside


def test_the_picture_gives_a_capsule_the_colour_of_the_factor_most_of_its_edges_have():
    counts = np.array([[1, 9, 2], [8, 2, 1], [1, 1, 7]])
    assert matched(counts) == [1, 0, 2]
    edges = [[5, 0, 1], [6, 1, 0], [7, 2, 0]]
    found = {"factors": 3, "layer": 2, "graph": 0, "node": 0, "score": 0.5, "table": counts.tolist(), "edges": edges}
    figure = recovered(found)
    matrix, around = figure.axes
    assert [label.get_text() for label in matrix.get_xticklabels()] == ["1", "0", "2"]
    assert np.allclose(
        matrix.images[0].get_array(), [[9 / 12, 1 / 12, 2 / 12], [2 / 11, 8 / 11, 1 / 11], [1 / 9, 1 / 9, 7 / 9]]
    )
    (lines,) = (artist for artist in around.collections if hasattr(artist, "get_segments"))
    ring = [patch.get_facecolor() for patch in around.patches]
    colors = [tuple(color) for color in lines.get_colors()]
    assert colors[:2] == ring[:2] and colors[2] == ring[1] != ring[2]
    assert not recovered({**found, "edges": []}).axes[1].patches
