"""Graphs with several kinds of edges: proteins, medical concepts, papers, films, and nodes with latent factors.

A network gets the graph without the kinds, and a task on nodes or on pairs of nodes. After training, the kinds are
compared with what it has learned. Graphs are read from NumPy archives, or drawn from a seed.
"""

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from torch import Tensor
from torch.nn import functional as F

from experiments.data.cora import load_cora
from experiments.data.factors import factor_graph
from graphcaps import dgl
from graphcaps.errors import expect

MOST_PAIRS, COMPONENTS = 5000, 64


@dataclass(frozen=True, eq=False)
class Related:
    """A graph with kinds of edges, and items to classify: its nodes, or pairs of them.

    Edge e < E / 2 joins a pair of nodes, and edge e + E / 2 is its reverse. There are no self-loops.
    """

    graph: dgl.DGLGraph  # N nodes, E edges
    features: Tensor  # float32 (N, F)
    kinds: Tensor  # bool (E, R): an edge has any number of kinds, the same as its reverse
    names: tuple[str, ...]  # names of the R kinds
    items: Tensor  # int64 (M,) nodes, or (M, 2) pairs of nodes
    labels: Tensor  # int64 (M, L), class numbers from 0; L labels for each item
    train: Tensor  # int64 item numbers; train, val and test are disjoint
    val: Tensor
    test: Tensor
    own: bool = False  # True if L = R, and label k depends only on edges of kind k


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a NumPy archive; raise ``InputError`` if there is no such file."""
    expect(path.is_file(), "graphs", str(path), "no such file", "experiments/README.md says what it holds")
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def human_go(path: Path, seed: int) -> Related:
    """HumanGO (Zhao et al. 2023, https://github.com/Tianqi-py/MLGNC): proteins, each with several of 14 labels.

    Edges are interactions of proteins in IntAct, with their kinds. The seed splits the nodes: 60 % training, 20 %
    validation, 20 % test.
    """
    arrays = read_archive(path)
    nodes = len(arrays["labels"])
    graph, kinds = joined(arrays["edges"].astype(np.int64), arrays["confidence"] > 0, nodes)
    names, labels = tuple(map(str, arrays["kinds"])), torch.from_numpy(arrays["labels"].astype(np.int64))
    split = _split(nodes, np.random.RandomState(seed))
    return Related(graph, _scaled(arrays["features"]), kinds, names, torch.arange(nodes), labels, *split)


def cora(root: Path, seed: int) -> Related:
    """Cora: papers and their classes. Nobody recorded why one cites another, so edges have no kinds.

    Features are the first ``COMPONENTS`` singular vectors of the words; the seed draws their start.
    """
    data = load_cora(root)
    features = _components(sparse.csr_matrix(data.features.numpy()), seed)
    items, kinds = torch.arange(len(data.labels)), torch.zeros(data.graph.num_edges(), 0, dtype=torch.bool)
    return Related(data.graph, features, kinds, (), items, data.labels[:, None], data.train, data.val, data.test)


def heco(folder: Path, seed: int, names: tuple[str, ...], features: str = "") -> Related:
    """A graph of HeCo (Wang et al. 2021, https://github.com/liun-online/HeCo): papers, authors or films, with a class.

    Each kind is a matrix in a file, whose entries say which nodes have, for example, an author in common. A pair with
    several kinds has only the first of ``names``, which are in ascending order of frequency. The seed draws
    ``MOST_PAIRS`` pairs of each matrix, or takes all if there are fewer, and splits the nodes like those of HumanGO.
    Features are the first ``COMPONENTS`` singular vectors of the file ``features``, or of the adjacency matrix.
    """
    expect(folder.is_dir(), "graphs", str(folder), "no such folder", "experiments/README.md says what it holds")
    random, labels = np.random.RandomState(seed), np.load(folder / "labels.npy", allow_pickle=False).astype(np.int64)
    matrices = [sparse.load_npz(folder / f"{name}.npz").tocsr() for name in names]
    drawn = [np.stack(sparse.triu(matrix, 1).nonzero()) for matrix in matrices]
    ends = np.concatenate([pairs[:, random.permutation(pairs.shape[1])[:MOST_PAIRS]] for pairs in drawn], axis=1)
    has = np.stack([np.asarray(matrix[ends[0], ends[1]]).ravel() > 0 for matrix in matrices], axis=1)
    graph, kinds = joined(ends, np.eye(len(names), dtype=bool)[has.argmax(axis=1)], len(labels))
    rows = sparse.load_npz(folder / f"{features}.npz") if features else graph.adj_external(scipy_fmt="csr")
    items, classes = torch.arange(len(labels)), torch.from_numpy(labels).unsqueeze(1)
    return Related(graph, _components(rows, seed), kinds, names, items, classes, *_split(len(labels), random))


def aifb(folder: Path, seed: int) -> Related:
    """AIFB (Bloehdorn & Sure 2007): people, publications, topics and projects of an institute; some have a group.

    Files and split are those of AIFB+ (Wilcke et al. 2020, https://github.com/wxwilcke/mrgcn). Literals are left out.
    Nodes with a group come first. A pair with several relations, as a publication and its author, has only the rarest
    one. Features are the first ``COMPONENTS`` singular vectors of the adjacency matrix; the seed draws their start.
    """
    files = (folder / f"aifb+{part}.nt.gz" for part in ("", "_train_set", "_valid_set", "_test_set"))
    triples, *parts = map(_triples, files)
    people, _, groups = np.concatenate(parts, axis=1)
    number = {name: n for n, name in enumerate(dict.fromkeys([*people, *triples[0], *triples[2]]))}
    names, of, counts = np.unique(triples[1], return_inverse=True, return_counts=True)
    graph, kinds = joined(np.vectorize(number.get)(triples[::2]), np.eye(len(names), dtype=bool)[of], len(number))
    rarest = (kinds * torch.from_numpy(counts.max() - counts + 1)).argmax(1)
    classes = torch.from_numpy(np.unique(groups, return_inverse=True)[1]).unsqueeze(1)
    items, split = torch.arange(len(people)), torch.arange(len(people)).split([part.shape[1] for part in parts])
    features, kinds = _components(graph.adj_external(scipy_fmt="csr"), seed), F.one_hot(rarest, len(names)).bool()
    return Related(graph, features, kinds, tuple(map(str, names)), items, classes, *split)


def umls(path: Path, seed: int) -> Related:
    """UMLS (McCray 2003): medical concepts and their relations. The task is to find further related pairs.

    Two concepts are joined if a training triple relates them in either direction. Items are the related pairs, and as
    many unrelated pairs, drawn by the seed. A pair that is in the triples of several parts counts for the first of
    training, validation and test. The first E / 2 items are the joined pairs, in the order of the edges. Features are
    one-hot numbers of the nodes.
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
    """A graph with latent factors published by LGD-GCN (Guo et al. 2022, https://github.com/jingweio/LGD-GCN).

    The factors that generated an edge aren't published. So an edge's kinds are the factors in which both ends have the
    same class. A node's features are its row of the adjacency matrix, as in LGD-GCN.
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
    """The ``factor_graph`` of a seed. The kinds of an edge are the factors that generated it."""
    data = factor_graph(seed, factors)
    items, split = torch.arange(len(data.labels)), (data.train, data.val, data.test)
    return Related(data.graph, data.features, data.factors, _names(factors), items, data.labels, *split, own=True)


def joined(ends: np.ndarray, kinds: np.ndarray, nodes: int) -> tuple[dgl.DGLGraph, Tensor]:
    """A graph that joins each pair of different nodes in ``ends`` (2, M) in both directions, and its edges' kinds.

    ``kinds`` (M, R) are the pairs' kinds. An edge has all kinds of its pair in either direction, bool (E, R).
    """
    apart = ends[0] != ends[1]
    pairs, number = np.unique(np.sort(ends[:, apart], axis=0), axis=1, return_inverse=True)
    of_pair = np.zeros((pairs.shape[1], kinds.shape[1]), bool)
    np.logical_or.at(of_pair, number.ravel(), kinds[apart])
    src, dst = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    return dgl.graph((src, dst), num_nodes=nodes), torch.from_numpy(np.concatenate([of_pair, of_pair]))


def _components(rows: sparse.csr_matrix, seed: int) -> Tensor:
    """The first singular vectors of rows (N, F), scaled."""
    found = TruncatedSVD(min(COMPONENTS, rows.shape[1]), random_state=seed)
    return _scaled(found.fit_transform(rows.astype(np.float64)))


def _triples(path: Path) -> np.ndarray:
    """Subjects, relations and objects (3, n) in a file of N-Triples, without triples with literals."""
    expect(path.is_file(), "graphs", str(path), "no such file", "experiments/README.md says what it holds")
    text = gzip.decompress(path.read_bytes()).decode()
    return np.array(re.findall(r"^<(.*)> <(.*)> <(.*)> \.$", text, re.MULTILINE)).T


def _scaled(features: np.ndarray) -> Tensor:
    """Features (N, F) with mean 0 and standard deviation 1."""
    numbers = torch.from_numpy(features.astype(np.float32))
    return (numbers - numbers.mean(dim=0)) / numbers.std(dim=0)


def _split(nodes: int, random: np.random.RandomState) -> tuple[Tensor, ...]:
    """60 % of the node numbers for training, 20 % for validation, 20 % for the test."""
    parts = np.split(random.permutation(nodes), [round(0.6 * nodes), round(0.8 * nodes)])
    return tuple(map(_ascending, parts))


def _names(factors: int) -> tuple[str, ...]:
    return tuple(f"factor {k}" for k in range(factors))


def _ascending(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(np.sort(numbers))
