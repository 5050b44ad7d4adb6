"""Cora with its public split: papers, the words in them, and the citations between them.

The split into training, validation and test papers is that of Planetoid (Yang, Cohen & Salakhutdinov 2016). DGL
downloads Planetoid's files, which are Python pickles. ``cora.npz`` has the same arrays without pickles.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from graphcaps import dgl


@dataclass(frozen=True, eq=False)
class Citation:
    """A graph of papers with classes."""

    graph: dgl.DGLGraph  # N papers; if one cites another, they have edges in both directions; no self-loops
    features: Tensor  # float32 (N, F): 1 / (number of words) for each word in the paper, else 0
    labels: Tensor  # int64 (N,), class numbers from 0
    train: Tensor  # int64 node numbers, ascending; train, val and test are disjoint
    val: Tensor
    test: Tensor

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1


@functools.cache
def load_cora(root: Path | str = Path("data")) -> Citation:
    """Read ``root/cora/cora.npz``. Without it, read DGL's files in ``root/cora``, which DGL downloads if needed."""
    folder = Path(root).expanduser() / "cora"
    if (folder / "cora.npz").is_file():
        return _read_npz(folder / "cora.npz")
    graph = dgl.data.CoraGraphDataset(raw_dir=str(folder), verbose=False)[0]
    split = {name: graph.ndata[f"{name}_mask"].nonzero().flatten() for name in ("train", "val", "test")}
    bare = dgl.graph(graph.edges(), num_nodes=graph.num_nodes())
    return Citation(bare, graph.ndata["feat"], graph.ndata["label"], **split)


def _read_npz(path: Path) -> Citation:
    """Read an archive of words (0 or 1, in CSR format), labels, cited pairs (M, 2) and the split."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name].astype(np.int64) for name in archive}
    starts, words, nodes = arrays["feature_indptr"], arrays["feature_indices"], len(arrays["labels"])
    features = csr_array((np.ones(len(words), np.float32), words, starts)).toarray()
    features /= features.sum(axis=1, keepdims=True).clip(1)
    pairs = np.unique(np.sort(arrays["edges"], axis=1), axis=0)
    ends = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]))
    split = {name: torch.from_numpy(np.sort(arrays[name])) for name in ("train", "val", "test")}
    graph, labels = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=nodes), torch.from_numpy(arrays["labels"])
    return Citation(graph, torch.from_numpy(features), labels, **split)
