"""Graphs that are drawn have the properties in their papers; readers are tested on small files."""

import gzip

import numpy as np
import pytest
import torch
from scipy import sparse

from experiments.data.cora import load_cora
from experiments.data.factors import factor_graph
from experiments.data.relations import aifb, heco, human_go, published_factors, umls
from experiments.data.tu import load_graphs

from . import small_data

pytestmark = pytest.mark.long


def test_cora_is_what_its_archive_holds(data):
    papers, arrays = load_cora(data), small_data.cora()
    src, dst = (ends.tolist() for ends in papers.graph.edges())
    pairs = set(map(tuple, arrays["edges"].tolist()))
    assert set(zip(src, dst, strict=True)) == pairs | {(j, i) for i, j in pairs} and len(src) == 180
    words = torch.from_numpy(arrays["feature_indices"].reshape(60, 3))
    assert torch.allclose(papers.features.gather(1, words), torch.full((60, 3), 1 / 3))
    assert torch.allclose(papers.features.sum(dim=1), torch.ones(60))


def test_the_molecules_are_those_of_the_file(data):
    graphs = load_graphs("MUTAG", data)
    for number, graph in enumerate(graphs.graphs):
        label, nodes = small_data.ring(number)
        edges = sorted((i, j) for i, (_, others) in enumerate(nodes) for j in others)
        assert graph.ndata["feat"].argmax(1).tolist() == [{1: 0, 3: 1, 5: 2}[tag] for tag, _ in nodes]
        assert sorted(zip(*(ends.tolist() for ends in graph.edges()), strict=True)) == edges
        assert graphs.labels[number] == label // 2
    assert len(graphs) == 64 and len(np.unique(np.concatenate(graphs.folds))) == 60


def test_published_kinds_are_shared_classes_and_the_parts_of_every_graph_are_disjoint(data):
    folder = data / "graphs"
    published = published_factors(folder / "factors-4.npz")
    src, dst = published.graph.edges()
    assert torch.equal(published.kinds, published.labels[src] == published.labels[dst])
    others = factor_graph(0), human_go(folder / "humango.npz", 0), umls(folder / "umls.npz", 0)
    for graph in (published, *others):
        parts = torch.cat([graph.train, graph.val, graph.test])
        assert len(parts.unique()) == len(parts) == len(graph.items) == len(graph.labels)


def test_concepts_are_joined_by_training_triples_alone_and_no_pair_is_in_two_parts(data):
    concepts, arrays = umls(data / "graphs" / "umls.npz", 3), small_data.umls()
    pairs = [{tuple(sorted(row)) for row in arrays[name][:, ::2].tolist()} for name in ("train", "valid", "test")]
    train, valid, test = ({pair for pair in part if pair[0] != pair[1]} for part in pairs)
    parts = (concepts.train, train), (concepts.val, valid - train), (concepts.test, test - train - valid)
    for numbers, related in parts:
        found = concepts.items[numbers[concepts.labels[numbers, 0] == 1]]
        assert set(map(tuple, found.tolist())) == related and 2 * len(related) == len(numbers)
    ends = torch.stack(concepts.graph.edges(), dim=1)[: len(train)]
    assert torch.equal(ends, concepts.items[: len(train)])


def test_a_pair_of_several_kinds_has_the_first_and_no_pair_is_drawn_that_no_matrix_joins(tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(30.0) % 3)
    matrices = [np.equal.outer(np.arange(30) // size, np.arange(30) // size) for size in (2, 10)]
    for name, matrix in zip("ab", matrices, strict=True):
        sparse.save_npz(tmp_path / f"{name}.npz", sparse.csr_matrix(matrix))
    papers = heco(tmp_path, 0, ("a", "b"))
    src, dst = papers.graph.edges()
    assert torch.equal(papers.kinds[:, 0], src // 2 == dst // 2)
    assert torch.equal(papers.kinds[:, 1], ~papers.kinds[:, 0])
    assert len(src) == 3 * 10 * 9 and bool((src // 10 == dst // 10).all())


def test_resources_have_their_rarest_relation_and_those_with_a_group_come_first(tmp_path):
    triples = '<a> <wrote> <x> .\n<x> <author> <a> .\n<b> <wrote> <x> .\n<x> <about> <t> .\n<x> <title> "<a> text" .\n'
    groups = {"_train_set": "<b> <in> <g> .", "_valid_set": "<a> <in> <f> .", "_test_set": "<t> <in> <g> ."}
    for part, text in {"": triples, **groups}.items():
        (tmp_path / f"aifb+{part}.nt.gz").write_bytes(gzip.compress(text.encode()))
    people = aifb(tmp_path, 0)
    src, dst = people.graph.edges()
    relations = {frozenset("batx"[n] for n in pair) for pair in zip(src, dst, strict=True)}
    names = {
        frozenset(("batx"[u], "batx"[v])): people.names[k]
        for u, v, k in zip(src, dst, people.kinds.int().argmax(1), strict=True)
    }
    assert relations == names.keys()
    assert names == {frozenset("ax"): "author", frozenset("bx"): "wrote", frozenset("tx"): "about"}
    assert people.labels.flatten().tolist() == [1, 0, 1]
