"""Cora with its public split: papers, the words in them, and who cites whom.

The split is that of Planetoid (Yang, Cohen & Salakhutdinov 2016). DGL downloads and reads its files, which are Python
pickles. ``cora.npz`` holds the same arrays without pickles, and is checked before it is used.
"""

from __future__ import annotations

import functools
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphcaps import dgl
from graphcaps.errors import InputError, expect

ARRAYS = ("feature_indptr", "feature_indices", "labels", "edges", "train", "val", "test")


@dataclass(frozen=True)
class CitationSpec:
    """What a citation data set must hold; ``edges`` counts pairs of papers, whichever cites the other."""

    nodes: int
    words: int
    classes: int
    edges: int
    train: int
    val: int
    test: int


CORA = CitationSpec(nodes=2708, words=1433, classes=7, edges=5278, train=140, val=500, test=1000)


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
        return read_npz(folder / "cora.npz", CORA)
    graph = dgl.data.CoraGraphDataset(raw_dir=str(folder), verbose=False)[0]
    split = {name: graph.ndata[f"{name}_mask"].nonzero().flatten() for name in ("train", "val", "test")}
    bare = dgl.graph(graph.edges(), num_nodes=graph.num_nodes())
    return Citation(bare, graph.ndata["feat"], graph.ndata["label"], **split)


def read_npz(path: Path, spec: CitationSpec) -> Citation:
    """Read CSR of 0/1 words, labels, pairs (M, 2), and the split.

    Raises:
        InputError: not such an archive, or its arrays don't fit ``spec``.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            expect(set(ARRAYS) <= set(archive), str(path), f"arrays {', '.join(ARRAYS)}", ", ".join(archive) or "none")
            arrays = {name: archive[name] for name in ARRAYS}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected a NumPy archive without objects, got: {error}") from error

    wanted = {name: (getattr(spec, name),) for name in ("train", "val", "test")}
    wanted |= {"feature_indptr": (spec.nodes + 1,), "labels": (spec.nodes,), "edges": (spec.edges, 2)}
    for name, shape in wanted.items():
        got = f"{arrays[name].dtype} {arrays[name].shape}"
        fits = arrays[name].shape == shape and arrays[name].dtype.kind in "iu"
        expect(fits, f"{path}: {name}", f"integers {shape}", got)
    starts, words, labels, edges = (arrays[name].astype(np.int64) for name in ARRAYS[:4])
    pairs = np.unique(np.sort(edges, axis=1), axis=0)
    proper = len(pairs) == len(edges) and (edges[:, 0] != edges[:, 1]).all()
    expect(proper, f"{path}: edges", "each pair once and no self-loops", f"{len(edges)} edges of {len(pairs)} pairs")
    parts = {name: np.sort(arrays[name]).astype(np.int64) for name in ("train", "val", "test")}
    disjoint = len(np.unique(np.concatenate([*parts.values()]))) == sum(map(len, parts.values()))
    expect(disjoint, f"{path}: train, val, test", "no node twice", "one that is in two places")

    features = np.zeros((spec.nodes, spec.words), np.float32)
    features[np.repeat(np.arange(spec.nodes), np.diff(starts)), words] = 1
    features /= features.sum(axis=1, keepdims=True).clip(1)
    ends = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]))
    graph = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=spec.nodes)
    split = {name: torch.from_numpy(nodes) for name, nodes in parts.items()}
    return Citation(graph, torch.from_numpy(features), torch.from_numpy(labels), **split)
