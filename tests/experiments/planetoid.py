"""A small citation data set, and its files as Planetoid's authors wrote them with Python 2."""

from __future__ import annotations

import pickle
import struct
from collections import defaultdict
from pathlib import Path

import numpy as np

from graphcaps.data.graphs.cora import CitationSpec

SPEC = CitationSpec(nodes=60, words=100, classes=3, edges=90, train=9, val=12, test=15)


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays of cora.npz for ``SPEC``; papers of a class share words and cite each other."""
    draw = np.random.RandomState(seed)
    labels = np.arange(SPEC.nodes) % SPEC.classes
    words = [np.sort([4 * k, *draw.choice(np.setdiff1d(range(SPEC.words), [4 * k]), 2, replace=False)]) for k in labels]
    pairs = [(i, j) for i in range(SPEC.nodes) for j in range(i) if labels[i] == labels[j]]
    edges = np.sort([pairs[k] for k in draw.choice(len(pairs), SPEC.edges, replace=False)], axis=1)
    return {
        "feature_indptr": np.arange(0, 3 * SPEC.nodes + 1, 3).astype(np.int32),
        "feature_indices": np.concatenate(words).astype(np.int32),
        "num_features": np.array(SPEC.words),
        "labels": labels,
        "edges": edges,
        "train": np.arange(SPEC.train),
        "val": np.arange(SPEC.train, SPEC.train + SPEC.val),
        "test": np.arange(SPEC.nodes - SPEC.test, SPEC.nodes),
    }


class Csr:
    """What pickles as SciPy's CSR matrix."""

    def __init__(self, words: list[np.ndarray]):
        self._shape = (len(words), SPEC.words)
        self.maxprint = 50
        self.indptr = np.cumsum([0, *map(len, words)]).astype(np.int32)
        self.indices = np.concatenate(words).astype(np.int32)
        self.data = np.ones(len(self.indices), np.float32)


RECONSTRUCT = np.empty(0).__reduce__()[0]
PYTHON2 = {
    RECONSTRUCT: "numpy.core.multiarray _reconstruct",
    Csr: "scipy.sparse.csr csr_matrix",
    list: "__builtin__ list",
}


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2's strings, and names as they were then."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    def save_global(self, value, name=None) -> None:
        said = PYTHON2.get(value) or f"{value.__module__} {value.__qualname__}"
        self.write(pickle.GLOBAL + said.replace(" ", "\n").encode() + b"\n")
        self.memoize(value)

    dispatch[bytes] = save_bytes
    dispatch[type] = save_global


def python2(value, path: Path) -> None:
    with path.open("wb") as file:
        Python2Pickler(file, 2).dump(value)


def python3(value, path: Path) -> None:
    """The same by today's Python, NumPy and SciPy, for an old one to read."""
    if isinstance(value, Csr):
        from scipy.sparse import csr_matrix

        value = csr_matrix((value.data, value.indices, value.indptr), value._shape)
    path.write_bytes(pickle.dumps(value, 2))


def write(folder: Path, found: dict[str, np.ndarray], dump=python2) -> None:
    """ind.cora.*: test papers in an order of their own, edges at both ends, one twice, and one to itself."""
    words = np.split(found["feature_indices"], found["feature_indptr"][1:-1])
    hot = np.eye(SPEC.classes, dtype=np.int32)[found["labels"]]
    order = np.random.RandomState(1).permutation(found["test"])
    graph = defaultdict(list)
    graph |= {node: [] for node in range(SPEC.nodes)}
    for i, j in found["edges"].tolist():
        graph[i].append(j)
        graph[j].append(i)
    graph[0] += [0, *graph[0][:1]]
    rest = SPEC.nodes - SPEC.test
    parts = {
        "x": Csr(words[: SPEC.train]),
        "y": hot[: SPEC.train],
        "allx": Csr(words[:rest]),
        "ally": hot[:rest],
        "tx": Csr([words[k] for k in order]),
        "ty": hot[order],
        "graph": graph,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in parts.items():
        dump(value, folder / f"ind.cora.{part}")
    (folder / "ind.cora.test.index").write_text("".join(f"{k}\n" for k in order))
