"""Cora with its public split: papers, the words in them, and who cites whom.

The split is that of Planetoid (Yang, Cohen & Salakhutdinov 2016). DGL downloads and reads its files, which are Python
pickles. ``cora.npz`` holds the same arrays without pickles, and is checked before it is used.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.data.archive import read_arrays
from graphcaps import dgl
from graphcaps.errors import expect

WORDS = 1433
ARRAYS = ("feature_indptr", "feature_indices", "labels", "edges", "train", "val", "test")


@dataclass(frozen=True, eq=False)
class Citation:
    """A citation graph whose papers are to be classified.

    Args:
        graph: N papers, an edge in both directions for each pair of which one cites the other, no self-loops.
        features: float32 (N, F): 1 / (number of words) for each word in the paper, else 0.
        labels: int64 (N,), class numbers from 0.
        train, val, test: int64 node numbers, disjoint, each ascending.
    """

    graph: dgl.DGLGraph
    features: Tensor
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1


@functools.cache
def load_cora(root: Path | str = Path("data")) -> Citation:
    """Read Cora: ``root/cora/cora.npz``, else what DGL has in ``root/cora`` or downloads there.

    Raises:
        InputError: an archive that isn't what it should be (the text says what was wanted).
    """
    folder = Path(root).expanduser() / "cora"
    if (folder / "cora.npz").is_file():
        return read_npz(folder / "cora.npz")
    graph = dgl.data.CoraGraphDataset(raw_dir=str(folder), verbose=False)[0]
    split = {name: graph.ndata[f"{name}_mask"].nonzero().flatten() for name in ("train", "val", "test")}
    bare = dgl.graph(graph.edges(), num_nodes=graph.num_nodes())
    return Citation(bare, graph.ndata["feat"], graph.ndata["label"], **split)


def read_npz(path: Path) -> Citation:
    """Read CSR of 0/1 words, labels, pairs (M, 2), and the split.

    Raises:
        InputError: not such an archive, or its pairs or parts overlap.
    """
    arrays = {name: array.astype(np.int64) for name, array in read_arrays(path, ARRAYS).items()}
    starts, words, labels, edges = (arrays[name] for name in ARRAYS[:4])
    parts = {name: np.sort(arrays[name]) for name in ("train", "val", "test")}
    disjoint = len(np.unique(np.concatenate([*parts.values()]))) == sum(map(len, parts.values()))
    expect(disjoint, f"{path}: train, val, test", "no node twice", "one that is in two places")
    pairs = np.unique(np.sort(edges, axis=1), axis=0)
    proper = len(pairs) == len(edges) and (edges[:, 0] != edges[:, 1]).all()
    expect(proper, f"{path}: edges", "each pair once and no self-loops", f"{len(edges)} edges of {len(pairs)} pairs")

    nodes, row = len(labels), np.repeat(np.arange(len(labels)), np.diff(starts))
    features = np.zeros((nodes, WORDS), np.float32)
    features[row, words] = 1
    features /= features.sum(axis=1, keepdims=True).clip(1)
    ends = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]))
    graph = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=nodes)
    split = {name: torch.from_numpy(numbers) for name, numbers in parts.items()}
    return Citation(graph, torch.from_numpy(features), torch.from_numpy(labels), **split)
