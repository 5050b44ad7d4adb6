"""Graphs that are drawn have the properties in their papers; readers are tested on small files."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from experiments.data.beliefs import beliefs
from experiments.data.cora import load_cora
from experiments.data.factors import FactorGraph, factor_graph, within
from experiments.data.relations import drawn_factors, human_go, joined, published_factors, umls
from experiments.data.tu import load_graphs
from graphcaps import dgl

from . import small_data


def test_beliefs_on_a_tree_are_those_of_all_labels_enumerated():
    low, high = torch.tensor([[0, 1], [1, 2], [1, 3], [3, 4]]).T
    src, dst = torch.cat([low, high]), torch.cat([high, low])
    labels, none, p, q = (torch.arange(5) % 2)[:, None], torch.arange(0), 1e-3, 1e-4
    data = FactorGraph(dgl.graph((src, dst)), torch.eye(5), labels, torch.ones(0, 1) > 0, none, none, none, p, q)
    weights, sums = 0.0, torch.zeros(5, 1, 2).double()
    for drawn in itertools.product(range(2), repeat=4):
        each = torch.tensor([0, *drawn])  # the class of node 0 is given
        chance = float(torch.where(each[low] == each[high], p, q).double().prod())
        weights, sums = weights + chance, sums + chance * F.one_hot(each[:, None], 2)
    classes = beliefs(data, torch.tensor([0])).classes
    # Pairs without an edge are approximated, with errors of about p.
    torch.testing.assert_close(classes, sums / weights, rtol=0, atol=2e-3)


def test_an_edge_joins_one_class_of_each_of_its_factors_but_for_the_few_between():
    data = factor_graph(3, 4)
    src, dst = data.graph.edges()
    assert data.factors.any(dim=1).all() and torch.equal(*data.factors.chunk(2)) and (src != dst).all()
    between = (data.factors & ~(data.labels[src] == data.labels[dst])).sum().item() / 2
    assert abs(between - 4 * 3e-5 * 999 * 500 * 15 / 16) < 4 * 60**0.5  # 56 are expected; four standard deviations
    for k in range(4):
        sizes = torch.bincount(data.labels[:, k])
        rate = (data.factors[:, k].sum() / (sizes * (sizes - 1)).sum()).item()
        assert rate == pytest.approx(within(4, 40, 1000, 16, 3e-5), rel=0.05)


def test_cora_is_what_its_archive_holds(data):
    papers, wanted = load_cora(data), small_data.cora()
    src, dst = (ends.tolist() for ends in papers.graph.edges())
    pairs = set(map(tuple, wanted["edges"].tolist()))
    assert set(zip(src, dst, strict=True)) == pairs | {(j, i) for i, j in pairs} and len(src) == 180
    words = torch.from_numpy(wanted["feature_indices"].reshape(60, 3))
    assert torch.allclose(papers.features.gather(1, words), torch.full((60, 3), 1 / 3))
    assert torch.allclose(papers.features.sum(dim=1), torch.ones(60))


def test_the_graphs_are_those_of_the_file(data):
    graphs = load_graphs("MUTAG", data)
    for number, graph in enumerate(graphs.graphs):
        label, nodes = small_data.ring(number)
        edges = sorted((i, j) for i, (_, others) in enumerate(nodes) for j in others)
        assert graph.ndata["tag"].tolist() == [{1: 0, 3: 1, 5: 2}[tag] for tag, _ in nodes]
        assert sorted(zip(*(ends.tolist() for ends in graph.edges()), strict=True)) == edges
        assert graphs.labels[number] == label // 2
    assert len(graphs) == 64 and len(np.unique(np.concatenate(graphs.folds))) == 60


def test_pairs_are_joined_both_ways_and_have_the_kinds_of_either_direction():
    ends = np.array([[2, 0, 1, 2, 0], [0, 2, 1, 1, 2]])
    graph, kinds = joined(ends, np.eye(5, dtype=bool), 4)
    assert [each.tolist() for each in graph.edges()] == [[0, 1, 2, 2], [2, 2, 0, 1]] and graph.num_nodes() == 4
    assert kinds.tolist() == [[True, True, False, False, True], [False, False, False, True, False]] * 2


def test_published_kinds_are_shared_classes_and_the_parts_of_every_graph_are_disjoint(data):
    folder = data / "graphs"
    published = published_factors(folder / "factors-4.npz")
    src, dst = published.graph.edges()
    assert torch.equal(published.kinds, published.labels[src] == published.labels[dst])
    for each in (published, drawn_factors(0, 4), human_go(folder / "humango.npz", 0), umls(folder / "umls.npz", 0)):
        parts = torch.cat([each.train, each.val, each.test])
        assert len(parts.unique()) == len(parts) == len(each.items) == len(each.labels)


def test_concepts_are_joined_by_training_triples_alone_and_no_pair_is_in_two_parts(data):
    found, arrays = umls(data / "graphs" / "umls.npz", 3), small_data.umls()
    pairs = [{tuple(sorted(row)) for row in arrays[name][:, ::2].tolist()} for name in ("train", "valid", "test")]
    train, valid, test = ({pair for pair in part if pair[0] != pair[1]} for part in pairs)
    for numbers, wanted in ((found.train, train), (found.val, valid - train), (found.test, test - train - valid)):
        related = found.labels[numbers, 0] == 1
        assert set(map(tuple, found.items[numbers[related]].tolist())) == wanted and 2 * len(wanted) == len(numbers)
        others = set(map(tuple, found.items[numbers[~related]].tolist()))
        assert not others & (train | valid | test) and len(others) == len(wanted)
    assert torch.equal(torch.stack(found.graph.edges(), dim=1)[: len(train)], found.items[: len(train)])
