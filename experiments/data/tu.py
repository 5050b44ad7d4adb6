"""MUTAG and PROTEINS with ten folds: whole graphs to be classified.

The text files are those of the GIN paper's repository (Xu et al. 2019, https://github.com/weihua916/powerful-gnns), of
data from https://chrsmrrs.github.io/datasets. The first line is the number of graphs; each graph is a line ``n label``
and then n lines ``tag degree neighbour...``, the neighbours counted from 0 within the graph and named at both ends.
What stands after the neighbours are a node's attributes, which are not used here. ``test_idx-1.txt`` to
``test_idx-10.txt`` hold the numbers of the graphs of each test fold.

8 of MUTAG's 188 graphs and 3 of PROTEINS' 1113 are in no test fold, so that all folds are equally large.
"""

from __future__ import annotations

import functools
import io
import urllib.request
import zipfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch

from graphcaps import dgl
from graphcaps.atomic import replacing
from graphcaps.errors import GraphcapsError, InputError, check_name, expect

FOLDS = 10
URL = "https://github.com/weihua916/powerful-gnns/raw/master/dataset.zip"


# The files do not say which tag of MUTAG is which element. Bonds and frequencies do: 2395 C, 593 O and 345 N (in nitro
# groups); of those with one bond, to a C, 23 Cl, 12 F, 2 Br and 1 I. It is also the symbols' order, but for C and Cl.
NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of tags and of classes, in the order of their numbers
    "MUTAG": (("Br", "Cl", "C", "F", "I", "N", "O"), ("not mutagenic", "mutagenic")),
    "PROTEINS": ((), ()),
}


@dataclass(frozen=True, eq=False)
class GraphSet:
    """G graphs to be classified, with ten test folds.

    Args:
        graphs: ``ndata["tag"]`` int64 (n,), kinds of nodes from 0, and ``ndata["feat"]`` float32 (n, T), one-hot.
        labels: int64 (G,), class numbers from 0.
        folds: of each test fold the numbers of its graphs, ascending.
        tag_names, class_names: or empty where they aren't known.
    """

    graphs: list[dgl.DGLGraph]
    labels: np.ndarray
    folds: tuple[np.ndarray, ...]
    tag_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_tags(self) -> int:
        return self.graphs[0].ndata["feat"].shape[1]

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

    def batch(self, which: np.ndarray | list[int]) -> dgl.DGLGraph:
        """The graphs ``which``, in this order, as one batched graph."""
        return dgl.batch([self.graphs[number] for number in which])


@functools.cache
def load_graphs(name: str, root: Path | str = Path("data")) -> GraphSet:
    """Read a data set of ``NAMES`` from ``root/tu/NAME``; what is missing is downloaded there.

    Raises:
        InputError: an unknown name, or a file that isn't what it should be; the text names the file and its line.
        GraphcapsError: no files, and none could be downloaded.
    """
    check_name("data set", name, list(NAMES))
    folder = Path(root).expanduser() / "tu" / name
    if not (folder / f"{name}.txt").is_file():
        members = {f"{name}.txt": f"dataset/{name}/{name}.txt"}
        members |= {f"test_idx-{k}.txt": f"dataset/{name}/10fold_idx/test_idx-{k}.txt" for k in range(1, FOLDS + 1)}
        _download(name, members, folder)
    return read_graphs(folder / f"{name}.txt", *NAMES[name])


def _download(name: str, members: dict[str, str], folder: Path) -> None:
    """Download ``URL`` and write some members of the archive, file name -> member, into the folder."""
    try:
        with urllib.request.urlopen(URL, timeout=30) as source, zipfile.ZipFile(io.BytesIO(source.read())) as archive:
            contents = {file: archive.read(member) for file, member in members.items()}
    except (OSError, HTTPException, zipfile.BadZipFile, KeyError) as error:  # KeyError: no such member
        raise GraphcapsError(
            f"{name}: expected {name}.txt in {folder.absolute()}, got nothing there, and the download failed "
            f"({' '.join(str(error).split())}). Put it there, or name another data folder with --data DIR"
        ) from error
    for file, content in contents.items():
        with replacing(folder / file) as temporary:
            temporary.write_bytes(content)


def read_graphs(path: Path, tag_names: tuple[str, ...] = (), class_names: tuple[str, ...] = ()) -> GraphSet:
    """Read the graphs in ``path``, and ``test_idx-k.txt`` beside it.

    Raises:
        InputError: a line that isn't what it should be, a neighbour that is named at one end only, or a graph in two
            folds.
    """
    lines = _integers(path)

    def check(holds: bool, wanted: str) -> None:
        expect(holds, f"{path}, line {at}", wanted, numbers)

    at, numbers = next(lines)
    count, *rest = numbers
    check(not rest, "the number of graphs")
    tags, labels, bonds = [], [], []  # of each graph
    for _ in range(count):
        at, numbers = next(lines, (at + 1, []))
        check(len(numbers) == 2 and numbers[0] >= 1, "'n label' of a graph of 1 node or more")
        size, label = numbers
        labels.append(label)
        tags.append([])
        bonds.append([])
        for node in range(size):
            at, numbers = next(lines, (at + 1, []))
            check(len(numbers) >= 2, "'tag degree neighbour...'")
            tag, degree, *others = numbers
            neighbours = others[:degree]  # integers behind them are attributes
            named = len(neighbours) == len(set(neighbours)) == degree
            inside = all(0 <= other < size and other != node for other in neighbours)
            check(named and inside, f"{degree} neighbours, 0 to {size - 1} but {node}, each once")
            tags[-1].append(tag)
            bonds[-1] += [(node, other) for other in sorted(neighbours)]
        both_ends = set(bonds[-1]) == {(other, node) for node, other in bonds[-1]}
        check(both_ends, "the last line of a graph whose neighbours are named at both ends")
    expect(next(lines, None) is None, str(path), "the end of the file", "more lines")
    tag_numbers = {tag: k for k, tag in enumerate(sorted({tag for each in tags for tag in each}))}
    label_of = np.unique(labels, return_inverse=True)[1]
    graphs = []
    for of_nodes, ends in zip(tags, bonds, strict=True):
        src, dst = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T
        graph = dgl.graph((src, dst), num_nodes=len(of_nodes))
        graph.ndata["tag"] = torch.tensor([tag_numbers[tag] for tag in of_nodes])
        graph.ndata["feat"] = torch.nn.functional.one_hot(graph.ndata["tag"], len(tag_numbers)).float()
        graphs.append(graph)
    folds = []
    for file in (path.parent / f"test_idx-{k}.txt" for k in range(1, FOLDS + 1)):
        numbers = np.sort(np.array([number for _, line in _integers(file) for number in line], np.int64))
        inside = 0 < len(numbers) < count and numbers[0] >= 0 and numbers[-1] < count
        expect(inside, str(file), f"numbers of graphs, 0 to {count - 1}", numbers)
        folds.append(numbers)
    disjoint = len(np.unique(np.concatenate(folds))) == sum(map(len, folds))
    expect(disjoint, str(path.parent / "test_idx-*.txt"), "each graph once", "one that is there twice")
    return GraphSet(graphs, label_of, tuple(folds), tag_names, class_names)


def _integers(path: Path):
    """Each line's number and the integers it begins with; attributes behind a node's neighbours are no integers."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a readable text file, got: {error}") from error
    for at, line in enumerate(text.rstrip().split("\n"), 1):
        words = line.split()
        numbers = [int(word) for word in words if word.removeprefix("-").isdigit()]
        expect(len(numbers) > 0, f"{path}, line {at}", "integers", repr(line[:60]))
        yield at, numbers
