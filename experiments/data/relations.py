"""Graphs with several kinds of edges: proteins, medical concepts, papers, films, and nodes with latent factors.

A network gets the graph without the kinds, and a task on nodes or on pairs of nodes. After training, the kinds are
compared with what it has learned. Graphs are read from NumPy archives, or drawn from a seed.
"""

import functools
import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from torch import Tensor
from torch.nn import functional as F

from graphcaps import dgl

from .related import Related, checked, joined, of_nodes, read_archive, split

MOST_PAIRS, COMPONENTS = 5000, 64


def human_go(path: Path, seed: int) -> Related:
    """HumanGO (Zhao et al. 2023, https://github.com/Tianqi-py/MLGNC): proteins, each with several of 14 labels.

    Edges are interactions of proteins in IntAct, with their kinds. The seed splits the nodes: 60 % training, 20 %
    validation, 20 % test.
    """
    arrays = read_archive(path)
    nodes = len(arrays["labels"])
    graph, kinds = joined(arrays["edges"], nodes, arrays["confidence"] > 0)
    labels, parts = torch.from_numpy(arrays["labels"]), split(nodes, np.random.RandomState(seed))
    return of_nodes(graph, _scaled(arrays["features"]), labels, *parts, kinds=kinds)


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

    Without it, read DGL's files in ``root/cora``, which DGL downloads if needed; they are Python pickles. The split is
    that of Planetoid (Yang, Cohen & Salakhutdinov 2016). A paper's features are 1 / (number of
    its words) for each of its words, else 0. If one paper cites another, they are joined.
    """
    folder = root.expanduser() / "cora"
    if not (folder / "cora.npz").is_file():
        return from_dgl("CoraGraph", folder, 0)
    arrays = read_archive(folder / "cora.npz")
    starts, words, labels = arrays["feature_indptr"], arrays["feature_indices"], torch.from_numpy(arrays["labels"])
    features = sparse.csr_array((np.ones(len(words), np.float32), words, starts)).toarray()
    features /= features.sum(axis=1, keepdims=True).clip(1)
    parts = [torch.from_numpy(np.sort(arrays[name])) for name in ("train", "val", "test")]
    return of_nodes(joined(arrays["edges"].T, len(labels))[0], torch.from_numpy(features), labels, *parts)


def cora(root: Path, seed: int) -> Related:
    """Cora with few features. Nobody recorded why one cites another, so edges have no kinds.

    Features are the first ``COMPONENTS`` singular vectors of the words; the seed draws their start.
    """
    data = load_cora(root)
    words = sparse.csr_matrix(data.features.numpy())
    return replace(data, features=components(words, seed), words=words)


def plain(path: Path, seed: int) -> Related:
    """A graph whose nodes have classes, and perhaps words: arrays ``edges`` (2, M), ``labels`` (N,), ``words`` (N, F).

    Features are the first ``COMPONENTS`` singular vectors of the words; the seed draws their start.
    """
    arrays = read_archive(path)
    labels, none = torch.from_numpy(arrays["labels"]), torch.zeros(0, dtype=torch.int64)
    words, graph = arrays.get("words"), joined(arrays["edges"], len(labels))[0]
    if words is None:
        return of_nodes(graph, torch.zeros(len(labels), 0), labels, none, none, none)
    words = sparse.csr_matrix(words)
    return of_nodes(graph, components(words, seed), labels, none, none, none, words=words)


def heco(folder: Path, seed: int, names: tuple[str, ...], features: str = "") -> Related:
    """A graph of HeCo (Wang et al. 2021, https://github.com/liun-online/HeCo): papers, authors or films, with a class.

    Each kind is a matrix in a file, whose entries say which nodes have, for example, an author in common. A pair with
    several kinds has only the first of ``names``, which are in ascending order of frequency. The seed draws
    ``MOST_PAIRS`` pairs of each matrix, or takes all if there are fewer, and splits the nodes like those of HumanGO.
    Features are the first ``COMPONENTS`` singular vectors of the file ``features``, or of the adjacency matrix.
    """
    labels = np.load(checked(folder) / "labels.npy", allow_pickle=False).astype(np.int64)
    random = np.random.RandomState(seed)
    matrices = [sparse.load_npz(folder / f"{name}.npz").tocsr() for name in names]
    drawn = [np.stack(sparse.triu(matrix, 1).nonzero()) for matrix in matrices]
    ends = np.concatenate([pairs[:, random.permutation(pairs.shape[1])[:MOST_PAIRS]] for pairs in drawn], axis=1)
    has = np.stack([np.asarray(matrix[ends[0], ends[1]]).ravel() > 0 for matrix in matrices], axis=1)
    graph, kinds = joined(ends, len(labels), np.eye(len(names), dtype=bool)[has.argmax(axis=1)])
    rows = sparse.load_npz(folder / f"{features}.npz") if features else graph.adj_external(scipy_fmt="csr")
    parts = split(len(labels), random)
    about = {"kinds": kinds, "words": rows if features else None}
    return of_nodes(graph, components(rows, seed), torch.from_numpy(labels), *parts, **about)


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
    _, of, counts = np.unique(triples[1], return_inverse=True, return_counts=True)
    graph, kinds = joined(np.vectorize(number.get)(triples[::2]), len(number), np.eye(len(counts), dtype=bool)[of])
    rarest = (kinds * torch.from_numpy(counts.max() - counts + 1)).argmax(1)
    classes = torch.from_numpy(np.unique(groups, return_inverse=True)[1])
    numbers = torch.arange(len(people)).split([part.shape[1] for part in parts])
    features, kinds = components(graph.adj_external(scipy_fmt="csr"), seed), F.one_hot(rarest, len(counts)).bool()
    return of_nodes(graph, features, classes, *numbers, kinds=kinds)


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
        triples = arrays[name]
        low, high = np.unique(np.sort(triples[:, ::2], axis=1), axis=0).T
        new = (low != high) & ~related[low, high]
        parts.append(np.stack([low[new], high[new]], axis=1))
        related[low, high] = True
        if name == "train":
            graph, kinds = joined(triples[:, ::2].T, nodes, np.eye(size, dtype=bool)[triples[:, 1]])
    count = [len(part) for part in parts]
    others = np.random.RandomState(seed).permutation(np.argwhere(np.triu(~related, 1)))[: sum(count)]
    labels = torch.cat([torch.ones(sum(count), 1), torch.zeros(sum(count), 1)]).long()
    halves = [torch.arange(sum(count)).split(count), torch.arange(sum(count), 2 * sum(count)).split(count)]
    numbers = [torch.cat(both) for both in zip(*halves, strict=True)]
    items = torch.from_numpy(np.concatenate([*parts, others]))
    return Related(graph, torch.eye(nodes), kinds, items, labels, *numbers)


def published_factors(path: Path) -> Related:
    """A graph with latent factors published by LGD-GCN (Guo et al. 2022, https://github.com/jingweio/LGD-GCN).

    The factors that generated an edge aren't published. So an edge's kinds are the factors in which both ends have the
    same class. A node's features are its row of the adjacency matrix, as in LGD-GCN.
    """
    arrays = read_archive(path)
    nodes, size = arrays["labels"].shape
    labels, edges = arrays["labels"] - 16 * np.arange(size), arrays["edges"]
    graph, kinds = joined(edges, nodes, labels[edges[0]] == labels[edges[1]])
    features = torch.zeros(nodes, nodes).index_put(graph.edges(), torch.ones(()))
    parts = (torch.from_numpy(np.sort(arrays[name])) for name in ("train", "val", "test"))
    return of_nodes(graph, features, torch.from_numpy(labels), *parts, kinds=kinds, own=True)


def blog_catalog(path: Path, seed: int) -> Related:
    """Bloggers. Labels are their groups, and features are 128 left singular vectors of the adjacency matrix."""
    arrays = read_archive(path)
    starts, edges = arrays["groups_indptr"], arrays["edges"]
    nodes = len(starts) - 1
    labels = torch.zeros(nodes, 39, dtype=torch.int64)
    labels[np.repeat(np.arange(nodes), np.diff(starts)), arrays["groups_indices"]] = 1
    graph, _ = joined(edges, nodes)
    torch.manual_seed(seed)
    ends, ones = torch.stack(graph.edges()), torch.ones(graph.num_edges())
    matrix = torch.sparse_coo_tensor(ends, ones, (nodes, nodes), check_invariants=False)
    features = torch.svd_lowrank(matrix, 128)[0] * nodes**0.5
    return of_nodes(
        graph, features, labels, *torch.randperm(nodes).tensor_split([round(0.6 * nodes), round(0.8 * nodes)])
    )


def components(rows: sparse.csr_matrix, seed: int) -> Tensor:
    """The first singular vectors of rows (N, F), scaled."""
    decomposition = TruncatedSVD(min(COMPONENTS, rows.shape[1]), random_state=seed)
    return _scaled(decomposition.fit_transform(rows.astype(np.float64)))


def _triples(path: Path) -> np.ndarray:
    """Subjects, relations and objects (3, n) in a file of N-Triples, without triples with literals."""
    text = gzip.decompress(checked(path).read_bytes()).decode()
    return np.array(re.findall(r"^<(.*)> <(.*)> <(.*)> \.$", text, re.MULTILINE)).T


def _scaled(features: np.ndarray) -> Tensor:
    """Features (N, F) with mean 0 and standard deviation 1."""
    numbers = torch.from_numpy(features.astype(np.float32))
    return (numbers - numbers.mean(dim=0)) / numbers.std(dim=0)
