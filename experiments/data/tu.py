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
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import torch

from graphcaps import dgl
from graphcaps.errors import GraphcapsError, check_name, expect

FOLDS = 10
URL = "https://github.com/weihua916/powerful-gnns/raw/master/dataset.zip"
NAMES = ("MUTAG", "PROTEINS")


@dataclass(frozen=True, eq=False)
class GraphSet:
    """G graphs to classify, with ten test folds."""

    graphs: list[
        dgl.DGLGraph
    ]  # with ndata "tag", int64 (n,), kinds of nodes from 0, and "feat", one-hot float32 (n, T)
    labels: np.ndarray  # int64 (G,), class numbers from 0
    folds: tuple[np.ndarray, ...]  # for each test fold, the numbers of its graphs, ascending

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_tags(self) -> int:
        return self.graphs[0].ndata["feat"].shape[1]

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

    def batch(self, which: np.ndarray | list[int]) -> dgl.DGLGraph:
        """Batch the graphs ``which``, in this order, into one graph."""
        return dgl.batch([self.graphs[number] for number in which])


@functools.cache
def load_graphs(name: str, root: Path | str = Path("data")) -> GraphSet:
    """Read a data set of ``NAMES`` from the folder ``root/tu/NAME``. Missing files are downloaded into it."""
    check_name("data set", name, list(NAMES))
    folder = Path(root).expanduser() / "tu" / name
    if not (folder / f"{name}.txt").is_file():
        _download(name, folder)
    return read_graphs(folder / f"{name}.txt")


def _download(name: str, folder: Path) -> None:
    try:
        with urlopen(URL, timeout=30) as source, zipfile.ZipFile(io.BytesIO(source.read())) as archive:
            folder.mkdir(parents=True, exist_ok=True)
            members = [f"10fold_idx/test_idx-{k}.txt" for k in range(1, FOLDS + 1)]
            for member in [*members, f"{name}.txt"]:  # the graphs come last: their file marks a complete download
                (folder / Path(member).name).write_bytes(archive.read(f"dataset/{name}/{member}"))
    except OSError as error:
        raise GraphcapsError(f"{name}: expected it in {folder}, or at {URL}, which gave: {error}") from error


def read_graphs(path: Path) -> GraphSet:
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
    known, numbers = np.unique(np.concatenate(tags), return_inverse=True)
    graphs = []
    for pairs, tag in zip(ends, torch.from_numpy(numbers).split([len(each) for each in tags]), strict=True):
        graph = dgl.graph(tuple(pairs), num_nodes=len(tag))
        graph.ndata["tag"], graph.ndata["feat"] = tag, torch.nn.functional.one_hot(tag, len(known)).float()
        graphs.append(graph)
    folds = (np.loadtxt(path.parent / f"test_idx-{k}.txt", np.int64, ndmin=1) for k in range(1, FOLDS + 1))
    return GraphSet(graphs, np.unique(labels, return_inverse=True)[1], tuple(map(np.sort, folds)))
