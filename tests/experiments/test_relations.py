"""Graphs with kinds of edges are what their archives say; trainings see no kind; what is found of them is counted."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from experiments.__main__ import main
from experiments.data.relations import drawn_factors, human_go, joined, published_factors, umls
from experiments.run import Place
from experiments.tasks import relations
from graphcaps import dgl
from graphcaps.errors import InputError

from . import related

pytestmark = pytest.mark.usefixtures("one_thread")

# Readers


def test_pairs_are_joined_both_ways_and_have_the_kinds_of_either_direction():
    ends = np.array([[2, 0, 1, 2, 0], [0, 2, 1, 1, 2]])
    graph, kinds = joined(ends, np.eye(5, dtype=bool), 4)
    assert [each.tolist() for each in graph.edges()] == [[0, 1, 2, 2], [2, 2, 0, 1]] and graph.num_nodes() == 4
    wanted = [[True, True, False, False, True], [False, False, False, True, False]]
    assert kinds.tolist() == wanted * 2


def test_every_graph_has_edges_and_kinds_both_ways_and_disjoint_parts(data):
    folder = data / "graphs"
    found = [human_go(folder / "humango.npz", 0), umls(folder / "umls.npz", 0)]
    found += [published_factors(folder / "factors-4.npz"), drawn_factors(0, 4)]
    for each in found:
        src, dst = (ends.view(2, -1) for ends in each.graph.edges())
        assert torch.equal(src[0], dst[1]) and torch.equal(src[1], dst[0]) and (src != dst).all()
        assert torch.equal(*each.kinds.chunk(2)) and each.kinds.shape[1] == len(each.names)
        parts = torch.cat([each.train, each.val, each.test])
        assert len(parts.unique()) == len(parts) == len(each.items) == len(each.labels)
        assert not each.own or each.labels.shape[1] == len(each.names)


def test_proteins_are_split_by_the_seed_and_their_features_are_of_one_scale(data):
    one, other = (human_go(data / "graphs" / "humango.npz", seed) for seed in (0, 1))
    assert [len(part) for part in (one.train, one.val, one.test)] == [36, 12, 12]
    assert one.names == related.KINDS and one.train.tolist() != other.train.tolist()
    torch.testing.assert_close(one.features.std(dim=0), torch.ones(5))


def test_concepts_are_joined_by_training_triples_alone_and_no_pair_is_in_two_parts(data):
    found, arrays = umls(data / "graphs" / "umls.npz", 3), related.umls()
    pairs = [{tuple(sorted(row)) for row in arrays[name][:, ::2].tolist()} for name in ("train", "valid", "test")]
    train, valid, test = ({pair for pair in part if pair[0] != pair[1]} for part in pairs)
    for numbers, wanted in ((found.train, train), (found.val, valid - train), (found.test, test - train - valid)):
        there = found.labels[numbers, 0] == 1
        assert set(map(tuple, found.items[numbers[there]].tolist())) == wanted and 2 * len(wanted) == len(numbers)
        apart = set(map(tuple, found.items[numbers[~there]].tolist()))
        assert not apart & (train | valid | test) and len(apart) == len(wanted)
    edges = torch.stack(found.graph.edges(), dim=1)
    assert torch.equal(edges[: len(train)], found.items[: len(train)])


def test_the_kinds_of_a_published_graph_are_the_factors_of_one_class(data):
    found, arrays = published_factors(data / "graphs" / "factors-8.npz"), related.factors(8)
    src, dst = found.graph.edges()
    assert torch.equal(found.kinds, found.labels[src] == found.labels[dst]) and found.labels.max() == 15
    assert torch.equal(found.features.nonzero().T, torch.stack(found.graph.edges()).T.unique(dim=0).T)
    assert found.graph.num_edges() == 2 * arrays["edges"].shape[1]


@pytest.mark.parametrize(
    ("name", "array", "value", "wanted"),
    [
        ("humango", "confidence", np.ones((3, 3)), r"confidence: expected \(M, R\) with .*'R': 3.*, got \(3, 3\)"),
        ("humango", "labels", np.full((60, 3), 2), "labels: expected integers from 0 to 1, got 2 to 2, int64"),
        ("humango", "features", np.ones((60, 5)), "features: expected finite numbers, no column constant"),
        ("umls", "valid", np.array([[0, 1, 40]]), "valid, heads and tails: expected integers from 0 to 39"),
        ("umls", "test", np.zeros((0, 3), int), "test, heads and tails: .* got none"),
        ("factors-4", "edges", np.array([[0.0], [1.0]]), "edges: expected integers from 0 to 95, got .* float64"),
        ("factors-4", "val", np.arange(96), "expected no node in two parts"),
        ("factors-4", "val", None, "expected arrays labels, edges, .*, got .*edges"),
    ],
)
def test_a_wrong_archive_is_named_with_its_array(data, name, array, value, wanted):
    path = data / "graphs" / f"{name}.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays.pop(array)
    np.savez(path, **arrays, **({} if value is None else {array: value}))
    read = {"humango": lambda: human_go(path, 0), "umls": lambda: umls(path, 0)}.get(name)
    with pytest.raises(InputError, match=f"{name}.npz.*{wanted}"):
        (read or (lambda: published_factors(path)))()


def test_a_missing_archive_is_said(tmp_path):
    with pytest.raises(InputError, match="humango.npz: expected a NumPy archive without objects, got: .*No such file"):
        human_go(tmp_path / "humango.npz", 0)


# What is trained and counted


@pytest.mark.parametrize("name", ["HumanGO", "UMLS", "4 factors, published"])
def test_training_sees_no_kind_and_no_test_label(data, tmp_path, monkeypatch, name):
    place, settings = Place(data, tmp_path), relations.SETTINGS["mutual"][0]
    first, found = relations.fit(place, "mutual", settings, 0, name, 3), relations.DATA[name](data, 0)
    labels, classes = found.labels.clone(), int(found.labels.max()) + 1
    labels[found.test] = (labels[found.test] + 1) % classes
    other = dataclasses.replace(found, labels=labels, kinds=found.kinds[torch.randperm(len(found.kinds))])
    monkeypatch.setitem(relations.DATA, name, lambda root, seed: other)
    second = relations.fit(place, "mutual", settings, 0, name, 3)
    same = ("val_accuracy", "val_loss", "epoch", "parameters")
    assert [second[key] for key in same] == [first[key] for key in same] and second["test"] != first["test"]


def test_couplings_that_are_the_kinds_score_one_and_equal_ones_what_chance_does(data):
    found = relations.DATA["HumanGO"](data, 0)
    known = relations.recovery(found.kinds.float()[:, [2, 0, 1]], found, 0)
    assert known["information"] == known["unseen"] == pytest.approx(1) and known["precision"] == pytest.approx(1)
    assert tuple(known["precisions"]) == related.KINDS
    equal = relations.recovery(torch.ones(len(found.kinds), 3), found, 0)
    assert equal["information"] == 0 and equal["precision"] == pytest.approx(1 / 3, abs=0.05)


def test_precisions_are_scikit_learns_with_equal_scores_too():
    torch.manual_seed(0)
    scores, kinds = torch.randint(0, 20, (500,)).float(), torch.rand(500, 3) < 0.2
    wanted = [average_precision_score(kind, scores) for kind in kinds.T]
    assert relations.precisions(scores, kinds).tolist() == pytest.approx(wanted, abs=1e-6)


def test_a_kind_is_a_part_of_its_own_where_it_is_told():
    torch.manual_seed(0)
    graph, kinds = joined(np.array([[0, 1], [1, 2]]), np.array([[True, False], [True, True]]), 3)
    graph = dgl.add_self_loop(graph)
    graph.edata["shares"] = relations.shares(graph, kinds)
    layer, feat = relations.Told(4, 2, 2), torch.randn(3, 4)
    parts = layer.linear(feat).view(3, 2, 2)
    wanted = [[parts[:, 0].mean(0), parts[1:, 1].mean(0)], [parts[1:, 0].mean(0), parts[1:, 1].mean(0)]]
    found = layer(graph, feat)
    torch.testing.assert_close(found[1:], torch.stack([torch.stack(row) for row in wanted]))
    torch.testing.assert_close(found[0], torch.stack([parts[:2, 0].mean(0), parts[0, 1]]))


@pytest.mark.long
def test_a_quick_look_has_a_row_for_each_graph_and_network(data, tmp_path, capsys):
    words = ["relations", "--quick", "--data", str(data), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--only", "UMLS", "4 factors, published"]) == 0
    (found,) = (json.loads(path.read_text())["relations"] for path in (tmp_path / "cache").glob("relations.json"))
    names = [*relations.NETWORKS, *relations.FLOORS]
    near = [name for name in names if name not in relations.FURTHER]
    assert [(row["data"], row["name"]) for row in found] == [
        (each, name) for each, some in (("UMLS", names), ("4 factors, published", near)) for name in some
    ]
    assert all(("test_mean" in row) == (row["name"] in relations.NETWORKS) for row in found)
    assert all((row["trained"] is None) == (row["name"] in relations.WITHOUT) for row in found)
    printed = capsys.readouterr().out
    assert "| 4 factors, published | GCN | " in printed and "k-means, products | - | " in printed
    assert main([*words, "--only", "WordNet"]) == 2
