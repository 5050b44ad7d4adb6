"""Cora with its public split: papers, the words in them, and the citations between them.

The split into training, validation and test papers is that of Planetoid (Yang, Cohen & Salakhutdinov 2016). DGL
downloads Planetoid's files, which are Python pickles. ``cora.npz`` has the same arrays without pickles.
"""

import functools
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array

from graphcaps import dgl

from .related import Related, joined, of_nodes, read_archive


def from_dgl(name: str, folder: Path, seed: int) -> Related:
    """A graph of DGL in a folder. If it isn't there, DGL downloads it. The seed picks one of its splits."""
    graph = getattr(dgl.data, f"{name}Dataset")(raw_dir=str(folder), verbose=False)[0]
    masks = [graph.ndata[f"{part}_mask"].view(graph.num_nodes(), -1) for part in ("train", "val", "test")]
    parts = [mask[:, seed % mask.shape[1]].nonzero().flatten() for mask in masks]
    pairs = torch.stack(graph.edges()).numpy()
    return of_nodes(joined(pairs, graph.num_nodes())[0], graph.ndata["feat"], graph.ndata["label"], *parts)


@functools.cache
def load_cora(root: Path) -> Related:
    """Read ``root/cora/cora.npz``: words (0 or 1, in CSR format), labels, cited pairs (M, 2) and the split.

    Without it, read DGL's files in ``root/cora``, which DGL downloads if needed. A paper's features are 1 / (number of
    its words) for each of its words, else 0. If one paper cites another, they are joined.
    """
    folder = root.expanduser() / "cora"
    if not (folder / "cora.npz").is_file():
        return from_dgl("CoraGraph", folder, 0)
    arrays = {name: array.astype(np.int64) for name, array in read_archive(folder / "cora.npz").items()}
    starts, words, labels = arrays["feature_indptr"], arrays["feature_indices"], torch.from_numpy(arrays["labels"])
    features = csr_array((np.ones(len(words), np.float32), words, starts)).toarray()
    features /= features.sum(axis=1, keepdims=True).clip(1)
    parts = [torch.from_numpy(np.sort(arrays[name])) for name in ("train", "val", "test")]
    return of_nodes(joined(arrays["edges"].T, len(labels))[0], torch.from_numpy(features), labels, *parts)
