"""Graphs whose edges are of several kinds: proteins, medical concepts, and nodes with latent factors.

Networks are given the graph without the kinds, and a task of its nodes or of pairs of them. The kinds say afterwards
what a network has found. They are read from NumPy archives, which are checked, or drawn. What is wrong with an archive
is an ``InputError`` that names the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.data.archive import check_numbers, read_shaped
from experiments.data.factors import factor_graph
from graphcaps import dgl
from graphcaps.errors import expect


@dataclass(frozen=True, eq=False)
class Related:
    """A graph with kinds of edges, and items to be classified: its nodes, or pairs of them.

    Args:
        graph: N nodes; for each pair that is joined an edge and, E / 2 further on, its reverse; no self-loops.
        features: float32 (N, F).
        kinds: bool (E, R), those of each edge: none, one or several, the same in both directions.
        names: of the kinds.
        items: int64 (M,) nodes, or (M, 2) pairs of nodes.
        labels: int64 (M, L), class numbers from 0; L labels for each item.
        train, val, test: int64 numbers of items, disjoint.
        own: whether label k depends on the edges of kind k alone; then L = R.
    """

    graph: dgl.DGLGraph
    features: Tensor
    kinds: Tensor
    names: tuple[str, ...]
    items: Tensor
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    own: bool = False


def human_go(path: Path, seed: int) -> Related:
    """HumanGO (Zhao et al. 2023, https://github.com/Tianqi-py/MLGNC): proteins, several of 14 labels each.

    Kinds are those of the interactions of two proteins in IntAct. The seed splits the nodes: 60 % to train on, 20 % to
    choose by, 20 % to test.
    """
    axes = {"edges": "2 M", "kinds": "R", "confidence": "M R", "labels": "N L", "features": "N F"}
    arrays = read_shaped(path, **axes)
    labels = check_numbers(path, "labels", arrays["labels"], 2)
    edges = check_numbers(path, "edges", arrays["edges"], len(labels))
    graph, kinds = joined(edges, arrays["confidence"] > 0, len(labels))
    features = torch.from_numpy(arrays["features"].astype(np.float32))
    features = (features - features.mean(dim=0)) / features.std(dim=0)
    expect(bool(features.isfinite().all()), f"{path}: features", "finite numbers, no column constant", "others")
    drawn = np.random.RandomState(seed).permutation(len(labels))
    split = np.split(drawn, [round(0.6 * len(labels)), round(0.8 * len(labels))])
    names, items = tuple(map(str, arrays["kinds"])), torch.arange(len(labels))
    return Related(graph, features, kinds, names, items, torch.from_numpy(labels), *map(_ascending, split))


def umls(path: Path, seed: int) -> Related:
    """UMLS (McCray 2003): medical concepts and what relates them. Which further pairs are related at all?

    Two concepts are joined where a training triple relates them, in either direction. Items are the pairs that are
    related in the training, validation or test triples, each in the first of them, and as many unrelated pairs in each
    part, which the seed draws. The first E / 2 items are the pairs of the edges, in their order. Features say which
    node it is.
    """
    arrays = read_shaped(path, entities="N", relations="R", train="A 3", valid="B 3", test="C 3")
    nodes, size = len(arrays["entities"]), len(arrays["relations"])
    related, parts = np.zeros((nodes, nodes), bool), []
    for name in ("train", "valid", "test"):
        ends = check_numbers(path, f"{name}, heads and tails", arrays[name][:, ::2], nodes)
        relation = check_numbers(path, f"{name}, relations", arrays[name][:, 1], size)
        low, high = np.unique(np.sort(ends, axis=1), axis=0).T
        new = (low != high) & ~related[low, high]
        parts.append(np.stack([low[new], high[new]], axis=1))
        related[low, high] = True
        if name == "train":
            graph, kinds = joined(ends.T, np.eye(size, dtype=bool)[relation], nodes)
    others = np.argwhere(np.triu(~related, 1))
    count = [len(part) for part in parts]
    expect(len(others) >= sum(count), str(path), f"at least {sum(count)} unrelated pairs", len(others))
    others = np.random.RandomState(seed).permutation(others)[: sum(count)]
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
    arrays = read_shaped(path, labels="N K", edges="2 M", train="A", val="B", test="C")
    nodes, size = arrays["labels"].shape
    labels = check_numbers(path, "labels", arrays["labels"] - 16 * np.arange(size), 16)
    edges = check_numbers(path, "edges", arrays["edges"], nodes)
    parts = [check_numbers(path, name, arrays[name], nodes) for name in ("train", "val", "test")]
    expect(len(np.unique(np.concatenate(parts))) == sum(map(len, parts)), str(path), "no node in two parts", "some")
    graph, kinds = joined(edges, labels[edges[0]] == labels[edges[1]], nodes)
    features = torch.zeros(nodes, nodes).index_put(graph.edges(), torch.ones(()))
    names, items, split = tuple(f"factor {k}" for k in range(size)), torch.arange(nodes), map(_ascending, parts)
    return Related(graph, features, kinds, names, items, torch.from_numpy(labels), *split, own=True)


def drawn_factors(seed: int, factors: int) -> Related:
    """The seed's ``factor_graph``, where kinds are the factors that did generate the edge."""
    data, names = factor_graph(seed, factors), tuple(f"factor {k}" for k in range(factors))
    items, split = torch.arange(len(data.labels)), (data.train, data.val, data.test)
    return Related(data.graph, data.features, data.factors, names, items, data.labels, *split, own=True)


def joined(ends: np.ndarray, kinds: np.ndarray, nodes: int) -> tuple[dgl.DGLGraph, Tensor]:
    """The graph (E edges) that joins each pair of different nodes in ``ends`` (2, M), and bool (E, R), all kinds of a
    pair in either direction, from bool (M, R)."""
    apart = ends[0] != ends[1]
    pairs, number = np.unique(np.sort(ends[:, apart], axis=0), axis=1, return_inverse=True)
    found = np.zeros((pairs.shape[1], kinds.shape[1]), bool)
    np.logical_or.at(found, number.ravel(), kinds[apart])
    src, dst = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    return dgl.graph((src, dst), num_nodes=nodes), torch.from_numpy(np.concatenate([found, found]))


def _ascending(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(np.sort(numbers))
