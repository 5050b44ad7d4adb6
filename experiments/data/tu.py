"""MUTAG and PROTEINS: sets of graphs to classify, with ten folds.

The files come from the repository of the GIN paper (Xu et al. 2019, https://github.com/weihua916/powerful-gnns); the
data come from https://chrsmrrs.github.io/datasets. The first line of a file is the number of graphs. A graph is a line
``n label`` and then n lines ``tag degree neighbour...``, one per node. Neighbours are numbers of nodes in the graph,
from 0, and each edge is listed at both ends. Further numbers in a node's line are attributes, which are not used.
``test_idx-1.txt`` to ``test_idx-10.txt`` list the graphs of each test fold.

All test folds have the same size, so 8 of MUTAG's 188 graphs and 3 of PROTEINS' 1113 are in no test fold.
"""

import functools
import io
import zipfile
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import torch

from graphcaps import dgl
from graphcaps.errors import GraphcapsError, expect

FOLDS = 10
URL = "https://github.com/weihua916/powerful-gnns/raw/master/dataset.zip"


@dataclass(frozen=True, eq=False)
class GraphSet:
    """G graphs to classify, with ten test folds."""

    graphs: list[dgl.DGLGraph]  # with ndata "feat", the one-hot kinds of nodes, float32 (n, T)
    labels: np.ndarray  # int64 (G,), class numbers from 0
    folds: tuple[np.ndarray, ...]  # for each test fold, the numbers of its graphs, ascending


@functools.cache
def load_graphs(name: str, root: Path) -> GraphSet:
    """Read MUTAG or PROTEINS from the folder ``root/tu/NAME``. Missing files are downloaded into it."""
    folder = root.expanduser() / "tu" / name
    if not (folder / f"{name}.txt").is_file():
        _download(name, folder)
    return _read(folder / f"{name}.txt")


def _download(name: str, folder: Path) -> None:
    try:
        with urlopen(URL, timeout=30) as source, zipfile.ZipFile(io.BytesIO(source.read())) as archive:
            folder.mkdir(parents=True, exist_ok=True)
            members = [f"10fold_idx/test_idx-{k}.txt" for k in range(1, FOLDS + 1)]
            for member in [*members, f"{name}.txt"]:  # the graphs come last: their file marks a complete download
                (folder / Path(member).name).write_bytes(archive.read(f"dataset/{name}/{member}"))
    except OSError as error:
        raise GraphcapsError(f"{name}: expected it in {folder}, or at {URL}, which gave: {error}") from error


def _read(path: Path) -> GraphSet:
    """Read the graphs in ``path``, and the folds in the same folder."""
    lines = iter([line.split() for line in path.read_text(encoding="ascii").splitlines()])
    labels, tags, ends = [], [], []  # one entry per graph
    for _ in range(int(next(lines)[0])):
        size, label = map(int, next(lines, (0, 0)))
        nodes = [[int(word) for word in words[: 2 + int(words[1])]] for words in islice(lines, size)]
        pairs = [(node, other) for node, (_, _, *others) in enumerate(nodes) for other in sorted(others)]
        whole = len(nodes) == size > 0 and set(pairs) == {(other, node) for node, other in pairs}
        expect(whole, str(path), "neighbours that are named at both ends", f"others, in graph {len(labels)}")
        labels.append(label)
        tags.append([tag for tag, *_ in nodes])
        ends.append(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T)
    features = torch.eye(len({*chain(*tags)}))[np.unique(np.concatenate(tags), return_inverse=True)[1]]
    graphs = []
    for pairs, feat in zip(ends, features.split([*map(len, tags)]), strict=True):
        graphs.append(dgl.graph(tuple(pairs), num_nodes=len(feat)))
        graphs[-1].ndata["feat"] = feat
    folds = (np.loadtxt(path.parent / f"test_idx-{k}.txt", np.int64, ndmin=1) for k in range(1, FOLDS + 1))
    return GraphSet(graphs, np.unique(labels, return_inverse=True)[1], tuple(map(np.sort, folds)))
