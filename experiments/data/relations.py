"""Graphs whose edges are of several kinds: proteins, medical concepts, and nodes with latent factors.

Networks are given the graph without the kinds, and a task of its nodes or of pairs of them. The kinds show afterwards
what a network has learned. They are read from NumPy archives, or drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.data.factors import factor_graph
from graphcaps import dgl
from graphcaps.errors import expect


@dataclass(frozen=True, eq=False)
class Related:
    """A graph with kinds of edges, and items to be classified: its nodes, or pairs of them.

    For each pair of nodes that is joined there is an edge and, E / 2 further on, its reverse; there are no self-loops.
    """

    graph: dgl.DGLGraph  # N nodes, E edges
    features: Tensor  # float32 (N, F)
    kinds: Tensor  # bool (E, R): each edge is of none, one or several, the same in both directions
    names: tuple[str, ...]  # of the R kinds
    items: Tensor  # int64 (M,) nodes, or (M, 2) pairs of nodes
    labels: Tensor  # int64 (M, L), class numbers from 0; L labels for each item
    train: Tensor  # int64 numbers of items, as val and test; the three are disjoint
    val: Tensor
    test: Tensor
    own: bool = False  # whether label k depends on the edges of kind k alone; then L = R


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a NumPy archive; ``InputError`` if there is no such file."""
    expect(path.is_file(), "graphs", str(path), "no such file", "docs/datasets.md says what it holds")
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def human_go(path: Path, seed: int) -> Related:
    """HumanGO (Zhao et al. 2023, https://github.com/Tianqi-py/MLGNC): proteins, several of 14 labels each.

    Kinds are those of the interactions of two proteins in IntAct. The seed splits the nodes: 60 % to train on, 20 % to
    choose by, 20 % to test.
    """
    arrays = read_archive(path)
    nodes = len(arrays["labels"])
    graph, kinds = joined(arrays["edges"].astype(np.int64), arrays["confidence"] > 0, nodes)
    features = torch.from_numpy(arrays["features"].astype(np.float32))
    features = (features - features.mean(dim=0)) / features.std(dim=0)
    split = np.split(np.random.RandomState(seed).permutation(nodes), [round(0.6 * nodes), round(0.8 * nodes)])
    names, labels = tuple(map(str, arrays["kinds"])), torch.from_numpy(arrays["labels"].astype(np.int64))
    return Related(graph, features, kinds, names, torch.arange(nodes), labels, *map(_ascending, split))


def umls(path: Path, seed: int) -> Related:
    """UMLS (McCray 2003): medical concepts and what relates them. Which further pairs are related at all?

    Two concepts are joined if a training triple relates them, in either direction. Items are the pairs that are related
    in the training, validation or test triples, each in the first of them, and as many unrelated pairs in each part,
    which the seed draws. The first E / 2 items are the pairs of the edges, in their order. Features are one-hot: the
    number of the node.
    """
    arrays = read_archive(path)
    nodes, size = len(arrays["entities"]), len(arrays["relations"])
    related, parts = np.zeros((nodes, nodes), bool), []
    for name in ("train", "valid", "test"):
        triples = arrays[name].astype(np.int64)
        low, high = np.unique(np.sort(triples[:, ::2], axis=1), axis=0).T
        new = (low != high) & ~related[low, high]
        parts.append(np.stack([low[new], high[new]], axis=1))
        related[low, high] = True
        if name == "train":
            graph, kinds = joined(triples[:, ::2].T, np.eye(size, dtype=bool)[triples[:, 1]], nodes)
    count = [len(part) for part in parts]
    others = np.random.RandomState(seed).permutation(np.argwhere(np.triu(~related, 1)))[: sum(count)]
    labels = torch.cat([torch.ones(sum(count), 1), torch.zeros(sum(count), 1)]).long()
    halves = [torch.arange(sum(count)).split(count), torch.arange(sum(count), 2 * sum(count)).split(count)]
    split = [torch.cat(both) for both in zip(*halves, strict=True)]
    items = torch.from_numpy(np.concatenate([*parts, others]))
    return Related(graph, torch.eye(nodes), kinds, tuple(map(str, arrays["relations"])), items, labels, *split)


def published_factors(path: Path) -> Related:
    """A graph with latent factors as LGD-GCN (Guo et al. 2022, https://github.com/jingweio/LGD-GCN) keeps it.

    Which factor generated an edge isn't published: its kinds are the factors in which both ends have the same class.
    Features are a node's row of the adjacency matrix, as there.
    """
    arrays = read_archive(path)
    nodes, size = arrays["labels"].shape
    labels, edges = arrays["labels"].astype(np.int64) - 16 * np.arange(size), arrays["edges"].astype(np.int64)
    graph, kinds = joined(edges, labels[edges[0]] == labels[edges[1]], nodes)
    features = torch.zeros(nodes, nodes).index_put(graph.edges(), torch.ones(()))
    split = (_ascending(arrays[name].astype(np.int64)) for name in ("train", "val", "test"))
    items, names = torch.arange(nodes), _names(size)
    return Related(graph, features, kinds, names, items, torch.from_numpy(labels), *split, own=True)


def drawn_factors(seed: int, factors: int) -> Related:
    """The seed's ``factor_graph``, with the factors that did generate an edge as its kinds."""
    data = factor_graph(seed, factors)
    items, split = torch.arange(len(data.labels)), (data.train, data.val, data.test)
    return Related(data.graph, data.features, data.factors, _names(factors), items, data.labels, *split, own=True)


def joined(ends: np.ndarray, kinds: np.ndarray, nodes: int) -> tuple[dgl.DGLGraph, Tensor]:
    """The graph (E edges) that joins each pair of different nodes in ``ends`` (2, M), and bool (E, R), all kinds of a
    pair in either direction, from bool (M, R)."""
    apart = ends[0] != ends[1]
    pairs, number = np.unique(np.sort(ends[:, apart], axis=0), axis=1, return_inverse=True)
    of_pair = np.zeros((pairs.shape[1], kinds.shape[1]), bool)
    np.logical_or.at(of_pair, number.ravel(), kinds[apart])
    src, dst = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    return dgl.graph((src, dst), num_nodes=nodes), torch.from_numpy(np.concatenate([of_pair, of_pair]))


def _names(factors: int) -> tuple[str, ...]:
    return tuple(f"factor {k}" for k in range(factors))


def _ascending(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(np.sort(numbers))
