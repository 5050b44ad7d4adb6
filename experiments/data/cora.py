"""Cora with its public split: papers, the words in them, and who cites whom.

Two forms are read. The official files ``ind.cora.*`` of Planetoid (Yang, Cohen & Salakhutdinov 2016,
https://github.com/kimiyoung/planetoid) are Python pickles; ``planetoid.py`` reads them without running what they say.
``cora.npz`` holds the same arrays in the open. Whatever the form, everything is checked before it is used.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..._dgl import DGLGraph, dgl
from ...errors import GraphcapsError, InputError, expect
from ..download import fetch
from .planetoid import FILES, read_planetoid


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
URL = "https://github.com/kimiyoung/planetoid/raw/master/data/"
NPZ = {  # array -> its dims
    "feature_indptr": 1,
    "feature_indices": 1,
    "labels": 1,
    "edges": 2,
    "train": 1,
    "val": 1,
    "test": 1,
}


@dataclass(frozen=True, eq=False)
class Citation:
    """A citation graph whose papers are to be classified.

    Args:
        graph: N papers, an edge in both directions for each pair of which one cites the other, no self-loops.
        features: float32 (N, F): 1 / (number of words) for each word in the paper, else 0.
        labels: int64 (N,), class numbers from 0.
        train, val, test: int64 node numbers, disjoint, each ascending.
    """

    graph: DGLGraph
    features: Tensor
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1


def load_cora(root: Path | str = Path("data"), download: bool = True) -> Citation:
    """Read Cora: ``root/cora/cora.npz``, else ``root/cora/ind.cora.*``, which are downloaded where they are missing.

    Raises:
        InputError: a file that isn't what it should be (the text says which, and what was wanted).
        GraphcapsError: no files, and none could be downloaded.
    """
    folder = Path(root).expanduser() / "cora"
    if (folder / "cora.npz").is_file():
        return read_npz(folder / "cora.npz", CORA)
    names = [f"ind.cora.{part}" for part in FILES]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing and not download:
        wanted = f"cora.npz, or {', '.join(missing)}"
        raise GraphcapsError(f"cora: expected {wanted} in {folder.absolute()}, got nothing there, and download=False")
    if missing:
        fetch("cora", {name: URL + name for name in missing}, folder)
    return checked(read_planetoid(folder, "cora", CORA.val, CORA.test), CORA, str(folder / "ind.cora.*"))


def read_npz(path: Path, spec: CitationSpec) -> Citation:
    """Read ``feature_indptr``, ``feature_indices`` (CSR of 0/1 words), ``labels``, ``edges`` (M, 2) and the split.

    Raises:
        InputError: not such an archive, or its arrays aren't what ``spec`` wants.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            expect(NPZ.keys() <= set(archive), str(path), f"arrays {', '.join(NPZ)}", ", ".join(archive) or "none")
            arrays = {name: archive[name] for name in NPZ}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: expected a NumPy archive without objects, got: {error}") from error
    return checked(arrays, spec, str(path))


def checked(arrays: dict[str, np.ndarray], spec: CitationSpec, path: str) -> Citation:
    """The arrays of ``NPZ`` as a ``Citation``; raise ``InputError`` where they don't fit ``spec``."""
    for name, dims in NPZ.items():
        array = arrays[name]
        whole = array.dtype.kind in "iu" and array.ndim == dims
        expect(whole, f"{path}: {name}", f"integers with {dims} dims", f"{array.dtype} {array.shape}")
    arrays = {name: arrays[name].astype(np.int64) for name in NPZ}
    starts, words, labels, edges = (arrays[name] for name in ("feature_indptr", "feature_indices", "labels", "edges"))
    _shaped(path, "feature_indptr", starts, (spec.nodes + 1,))
    steady = bool(starts[0] == 0 and (np.diff(starts) >= 0).all() and starts[-1] == len(words))
    expect(steady, f"{path}: feature_indptr", f"to rise from 0 to {len(words)}, the number of words", starts)
    _shaped(path, "labels", labels, (spec.nodes,))
    _shaped(path, "edges", edges, (spec.edges, 2))
    _within(path, "feature_indices", words, spec.words)
    _within(path, "labels", labels, spec.classes)
    _within(path, "edges", edges, spec.nodes)
    expect(len(np.unique(labels)) == spec.classes, f"{path}: labels", f"{spec.classes} classes", len(np.unique(labels)))
    pairs = np.unique(np.sort(edges, axis=1), axis=0)
    proper = len(pairs) == len(edges) and (edges[:, 0] != edges[:, 1]).all()
    expect(proper, f"{path}: edges", "each pair once and no self-loops", f"{len(edges)} edges of {len(pairs)} pairs")
    parts = {name: np.sort(arrays[name]) for name in ("train", "val", "test")}
    for name, nodes in parts.items():
        _shaped(path, name, nodes, (getattr(spec, name),))
        _within(path, name, nodes, spec.nodes)
    apart = len(np.unique(np.concatenate(list(parts.values())))) == sum(map(len, parts.values()))
    expect(apart, f"{path}: train, val, test", "no node twice", "one that is in two places")

    features = np.zeros((spec.nodes, spec.words), np.float32)
    features[np.repeat(np.arange(spec.nodes), np.diff(starts)), words] = 1
    features /= features.sum(axis=1, keepdims=True).clip(1)
    ends = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]))
    graph = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=spec.nodes)
    split = {name: torch.from_numpy(nodes) for name, nodes in parts.items()}
    return Citation(graph, torch.from_numpy(features), torch.from_numpy(labels), **split)


def _shaped(path: str, name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    expect(array.shape == shape, f"{path}: {name}", f"shape {shape}", f"{array.shape}")


def _within(path: str, name: str, array: np.ndarray, limit: int) -> None:
    low, high = (array.min(), array.max()) if array.size else (0, 0)
    expect(low >= 0 and high < limit, f"{path}: {name}", f"0 to {limit - 1}", f"{low} to {high}")
