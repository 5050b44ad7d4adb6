"""Generators draw what their papers say; readers take small files in the official formats, and refuse others."""

from __future__ import annotations

import hashlib
import itertools
import zipfile

import networkx as nx
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from experiments.data import tu
from experiments.data.beliefs import beliefs
from experiments.data.cora import load_cora
from experiments.data.factors import FactorGraph, factor_graph, within
from experiments.data.motifs import MOTIFS, motif_graphs
from experiments.data.tu import load_graphs, read_graphs
from graphcaps import dgl
from graphcaps.errors import InputError

from . import planetoid, rings


def digest(*arrays) -> str:
    parts = b"".join(np.ascontiguousarray(array, np.int64).tobytes() for array in arrays)
    return hashlib.sha256(parts).hexdigest()[:16]


def matrix(graph) -> torch.Tensor:
    found = torch.zeros(graph.num_nodes(), graph.num_nodes())
    found[graph.edges()] = 1
    return found


# Latent factors


def by_enumeration(data, given):
    """Probabilities from all labels of all other nodes, weighed by how likely each draws the graph."""
    nodes, size = data.labels.shape
    classes = data.num_classes
    joined = set(zip(*(ends.tolist() for ends in data.graph.edges()), strict=True))
    free = [node for node in range(nodes) if node not in given.tolist()]
    weights, sums, causes = 0.0, torch.zeros(nodes, size, classes).double(), 0.0
    for drawn in itertools.product(range(classes), repeat=len(free) * size):
        each = data.labels.clone()
        each[free] = torch.tensor(drawn).view(len(free), size)
        chance = 1.0
        for i, j in itertools.combinations(range(nodes), 2):
            none = float(torch.where(each[i] == each[j], 1 - data.p, 1 - data.q).prod())
            chance *= 1 - none if (i, j) in joined else none
        src, dst = data.graph.edges()
        ways = torch.where(each[src] == each[dst], data.p, data.q).double()
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
    given = torch.tensor([0])
    for got, wanted in zip(beliefs(data, given), by_enumeration(data, given), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=2e-3)


def test_an_edge_joins_one_class_of_each_of_its_factors_but_for_the_few_between():
    data = factor_graph(3, 4)
    src, dst = data.graph.edges()
    assert torch.equal(data.features, matrix(data.graph) + torch.eye(1000))
    assert data.factors.any(dim=1).all() and data.factors.any(dim=0).all()
    same = data.labels[src] == data.labels[dst]
    between = (data.factors & ~same).sum().item() / 2
    assert abs(between - 4 * 3e-5 * 999 * 500 * 15 / 16) < 4 * 60**0.5  # 56 expected, and four standard deviations
    causes = dict(zip(zip(src.tolist(), dst.tolist(), strict=True), data.factors.tolist(), strict=True))
    assert all(a != b and causes[b, a] == cause for (a, b), cause in causes.items())
    for k in range(4):
        sizes = torch.bincount(data.labels[:, k])
        rate = (data.factors[:, k].sum() / (sizes * (sizes - 1)).sum()).item()
        assert rate == pytest.approx(within(4, 40, 1000, 16, 3e-5), rel=0.05)
    which, factor = data.single()
    assert torch.equal(data.factors.sum(1) == 1, torch.zeros(len(src), dtype=torch.bool).index_fill(0, which, True))
    assert data.factors[which, factor].all()


def test_the_same_seed_is_the_same_graph_for_ever():
    data = factor_graph(0, 4)
    assert digest(*data.graph.edges(), data.labels, data.factors, data.train, data.test) == "fb96a6c4ddcb6846"
    assert digest(*factor_graph(1, 4).graph.edges()) != digest(*data.graph.edges())
    motifs = motif_graphs(0, graphs=50)
    assert digest(motifs.adjacency, motifs.labels) == "3db67e0c7216259d"


# Motifs


@pytest.mark.parametrize("count", [2, 5])
def test_a_graph_of_motifs_is_the_union_of_half_of_them_each_whole(count):
    data = motif_graphs(1, count, graphs=40)
    assert data.motif_names == tuple(MOTIFS)[:count] and set(data.labels.sum(axis=1)) == {(count + 1) // 2}
    for adjacency, labels in zip(data.adjacency, data.labels, strict=True):
        for name, part, held in zip(data.motif_names, adjacency, labels, strict=True):
            drawn = nx.from_numpy_array(part)
            drawn.remove_nodes_from([*nx.isolates(drawn)])
            assert nx.is_isomorphic(drawn, MOTIFS[name]() if held else nx.Graph())
    assert len(set(map(bytes, data.adjacency))) == 40


# Cora


def test_cora_is_what_its_archive_says(data):
    found, wanted = load_cora(data), planetoid.arrays()
    assert [len(part) for part in (found.train, found.val, found.test)] == [9, 12, 15]
    assert len({*found.train.tolist(), *found.val.tolist(), *found.test.tolist()}) == 36
    src, dst = (ends.tolist() for ends in found.graph.edges())
    pairs = set(map(tuple, wanted["edges"].tolist()))
    assert set(zip(src, dst, strict=True)) == pairs | {(j, i) for i, j in pairs} and len(src) == 180
    words = wanted["feature_indices"].reshape(60, 3)
    assert torch.allclose(found.features.gather(1, torch.from_numpy(words).long()), torch.full((60, 3), 1 / 3))
    assert torch.allclose(found.features.sum(dim=1), torch.ones(60))
    assert found.labels.tolist() == wanted["labels"].tolist()


# MUTAG and PROTEINS


def plain(graph) -> tuple:
    """Tags and edges of a DGLGraph as lists."""
    return graph.ndata["tag"].tolist(), sorted(zip(*(ends.tolist() for ends in graph.edges()), strict=True))


def test_the_graphs_are_those_of_the_file_whatever_stands_behind_the_neighbours(data):
    path = data / "tu" / "MUTAG" / "MUTAG.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line + " 0.5 -1e3 7" * (len(line.split()) > 2) for line in lines))
    found, names = load_graphs("MUTAG", data), {1: 0, 3: 1, 5: 2}
    for number, graph in enumerate(found.graphs):
        label, nodes = rings.graph(number)
        edges = sorted((i, j) for i, (_, neighbours) in enumerate(nodes) for j in neighbours)
        assert plain(graph) == ([names[tag] for tag, _ in nodes], edges)
        assert torch.equal(graph.ndata["feat"].argmax(dim=1), graph.ndata["tag"])
        assert found.labels[number] == label // 2
    assert len(found) == 64 and len(np.unique(np.concatenate(found.folds))) == 60
    batch = found.batch(np.array([7, 0, 63]))
    assert [plain(graph) for graph in dgl.unbatch(batch)] == [plain(found.graphs[k]) for k in (7, 0, 63)]


# The file starts: "64", "5 2", "1 3 3 1 4", "1 2 0 2", "1 2 1 3", "1 2 2 0", "5 1 0", "6 0"
@pytest.mark.parametrize(
    ("line", "text", "wanted"),
    [
        (1, "63", "expected the end of the file, got more lines"),
        (1, "65", r"line \d+: expected 'n label' of a graph"),
        (3, "1 3 3 1 5", "line 3: expected 3 neighbours, 0 to 4 but 0, each once"),
        (6, "1 1 2", "line 7: expected the last line of a graph whose neighbours are named at both ends"),
    ],
)
def test_a_wrong_line_is_named_by_file_and_number(data, line, text, wanted):
    path = data / "tu" / "MUTAG" / "MUTAG.txt"
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=f"MUTAG.txt.*{wanted}"):
        read_graphs(path)


def test_the_needed_files_of_the_repositorys_archive_are_downloaded(data, tmp_path, monkeypatch):
    folder = data / "tu" / "MUTAG"
    with zipfile.ZipFile(tmp_path / "dataset.zip", "w") as archive:
        archive.write(folder / "MUTAG.txt", "dataset/MUTAG/MUTAG.txt")
        for k in range(1, 11):
            archive.write(folder / f"test_idx-{k}.txt", f"dataset/MUTAG/10fold_idx/test_idx-{k}.txt")
    monkeypatch.setattr(tu, "URL", (tmp_path / "dataset.zip").as_uri())
    found = load_graphs("MUTAG", tmp_path / "new")
    assert list(map(plain, found.graphs)) == list(map(plain, load_graphs("MUTAG", data).graphs))
