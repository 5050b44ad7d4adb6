"""A graph with kinds of edges, and a task on its nodes or on pairs of them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphcaps import dgl
from graphcaps.errors import expect


@dataclass(frozen=True, eq=False)
class Related:
    """A graph with kinds of edges, and items to classify: its nodes, or pairs of them.

    Edge e < E / 2 joins a pair of nodes, and edge e + E / 2 is its reverse. There are no self-loops.
    """

    graph: dgl.DGLGraph  # N nodes, E edges
    features: Tensor  # float32 (N, F)
    kinds: Tensor  # bool (E, R): an edge has any number of kinds, the same as its reverse
    items: Tensor  # int64 (M,) nodes, or (M, 2) pairs of nodes
    labels: Tensor  # int64 (M, L), class numbers from 0; L labels for each item
    train: Tensor  # int64 item numbers; train, val and test are disjoint
    val: Tensor
    test: Tensor
    own: bool = False  # True if L = R, and label k depends only on edges of kind k
    p: float = 0.0  # for graphs drawn here: probability of an edge within a class of one factor
    q: float = 0.0  # and between classes of one factor
    words: sparse.csr_matrix | None = None  # (N, words) from which features were computed

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1


def of_nodes(
    graph: dgl.DGLGraph, features: Tensor, labels: Tensor, *split: Tensor, kinds: Tensor | None = None, **about
) -> Related:
    """A graph whose first M nodes have labels (M,) or (M, L). By default, its edges have no kinds."""
    kinds = torch.zeros(graph.num_edges(), 0, dtype=torch.bool) if kinds is None else kinds
    return Related(graph, features, kinds, torch.arange(len(labels)), labels.view(len(labels), -1), *split, **about)


def joined(ends: np.ndarray, nodes: int, kinds: np.ndarray | None = None) -> tuple[dgl.DGLGraph, Tensor]:
    """A graph that joins each pair of different nodes in ``ends`` (2, M) in both directions, and its edges' kinds.

    ``kinds`` (M, R) are the pairs' kinds. An edge has all kinds of its pair in either direction, bool (E, R).
    """
    kinds = np.zeros((ends.shape[1], 0), bool) if kinds is None else kinds
    apart = ends[0] != ends[1]
    pairs, number = np.unique(np.sort(ends[:, apart], axis=0), axis=1, return_inverse=True)
    of_pair = np.zeros((pairs.shape[1], kinds.shape[1]), bool)
    np.logical_or.at(of_pair, number.ravel(), kinds[apart])
    src, dst = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    return dgl.graph((src, dst), num_nodes=nodes), torch.from_numpy(np.concatenate([of_pair, of_pair]))


def split(nodes: int, random: np.random.RandomState) -> tuple[Tensor, ...]:
    """60 % of the node numbers for training, 20 % for validation, 20 % for the test."""
    parts = np.split(random.permutation(nodes), [round(0.6 * nodes), round(0.8 * nodes)])
    return tuple(torch.from_numpy(np.sort(part)) for part in parts)


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a NumPy archive, integers as int64."""
    with np.load(checked(path), allow_pickle=False) as archive:
        return {name: x.astype(np.int64) if x.dtype.kind in "iu" else x for name, x in archive.items()}


def checked(path: Path) -> Path:
    """Return the path of a file or folder; raise ``InputError`` if there is none."""
    expect(path.exists(), "graphs", str(path), "none there", "experiments/README.md says what it holds")
    return path
