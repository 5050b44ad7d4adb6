"""MUTAG and PROTEINS with ten folds: whole graphs to be classified.

The text files are those of the GIN paper's repository (Xu et al. 2019, https://github.com/weihua916/powerful-gnns), of
data from https://chrsmrrs.github.io/datasets. The first line is the number of graphs; each graph is a line ``n label``
and then n lines ``tag degree neighbour...``, the neighbours counted from 0 within the graph and named at both ends.
What stands after the neighbours are a node's attributes, which are not used here. ``test_idx-1.txt`` to
``test_idx-10.txt`` hold the numbers of the graphs of each test fold.

8 of MUTAG's 188 graphs and 3 of PROTEINS' 1113 are in no test fold, so that all folds are equally large.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..._dgl import DGLGraph, dgl
from ...errors import GraphcapsError, InputError, expect
from ..download import fetch_members

FOLDS = 10
URL = "https://github.com/weihua916/powerful-gnns/raw/master/dataset.zip"


@dataclass(frozen=True)
class GraphSetSpec:
    """What a set of graphs must hold; ``edges`` counts each pair of neighbours once.

    ``tag_names`` and ``class_names`` are in the order of the file's numbers, ascending; empty where they aren't known.
    """

    graphs: int
    nodes: int
    edges: int
    tags: int
    classes: int
    tag_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()


# The files do not say which tag of MUTAG is which element. Bonds and frequencies do: 2395 C, 593 O and 345 N (in nitro
# groups); of those with one bond, to a C, 23 Cl, 12 F, 2 Br and 1 I. It is also the symbols' order, but for C and Cl.
SETS = {
    "MUTAG": GraphSetSpec(
        *(188, 3371, 3721, 7, 2), ("Br", "Cl", "C", "F", "I", "N", "O"), ("not mutagenic", "mutagenic")
    ),
    "PROTEINS": GraphSetSpec(1113, 43471, 81044, 3, 2),
}


@dataclass(frozen=True, eq=False)
class GraphSet:
    """G graphs with N nodes in all, one after the other.

    Args:
        tags: int64 (N,), kinds of nodes, 0 to T - 1.
        labels: int64 (G,), class numbers from 0.
        node_start: int64 (G + 1,), where each graph's nodes start.
        edges: int64 (E, 2), ends by their number within the set, both directions, sorted by the first.
        folds: of each test fold the numbers of its graphs, ascending.
        tag_names, class_names: or empty where they aren't known.

    >>> one = GraphSet(np.array([1, 0, 0]), np.array([0, 1]), np.array([0, 2, 3]), np.array([[0, 1], [1, 0]]), ())
    >>> one.batch([1, 0]).batch_num_nodes(), one.batch([1, 0]).ndata["feat"]
    (tensor([1, 2]), tensor([[1., 0.],
            [0., 1.],
            [1., 0.]]))
    """

    tags: np.ndarray
    labels: np.ndarray
    node_start: np.ndarray
    edges: np.ndarray
    folds: tuple[np.ndarray, ...]
    tag_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_tags(self) -> int:
        return int(self.tags.max()) + 1

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

    def batch(self, which: np.ndarray | list[int]) -> DGLGraph:
        """The graphs ``which``, in this order, as one batched graph.

        Returns:
            as ``dgl.batch`` gives it; ``ndata["tag"]`` int64 (n,) and ``ndata["feat"]`` float32 (n, T), one-hot.
        """
        which = np.asarray(which, np.int64)
        sizes = np.diff(self.node_start)[which]
        edge_start = np.searchsorted(self.edges[:, 0], self.node_start)
        bonds = np.diff(edge_start)[which]
        nodes = _ranges(self.node_start[which], sizes)
        edges = self.edges[_ranges(edge_start[which], bonds)]
        shift = np.repeat(np.cumsum(sizes) - sizes - self.node_start[which], bonds)
        ends = torch.from_numpy(edges + shift[:, None])
        graph = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=len(nodes))
        graph.set_batch_num_nodes(torch.from_numpy(sizes))
        graph.set_batch_num_edges(torch.from_numpy(bonds))
        graph.ndata["tag"] = torch.from_numpy(self.tags[nodes])
        graph.ndata["feat"] = torch.nn.functional.one_hot(graph.ndata["tag"], self.num_tags).float()
        return graph


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of each, ``size`` numbers long, one after the other."""
    return np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)


def load_graphs(name: str, root: Path | str = Path("data"), download: bool = True) -> GraphSet:
    """Read a data set of ``SETS`` from ``root/tu/NAME`` or ``root/dataset/NAME``; downloaded into the first if missing.

    The folds stand beside ``NAME.txt``, or in ``10fold_idx`` as in the repository.

    Raises:
        InputError: an unknown name, or a file that isn't what it should be; the text names the file and its line.
        GraphcapsError: no files, and none could be downloaded.
    """
    expect(name in SETS, "data set", f"one of {', '.join(SETS)}", repr(name))
    root = Path(root).expanduser()
    for folder in (root / "tu" / name, root / "dataset" / name):
        if (folder / f"{name}.txt").is_file():
            inside = folder / "10fold_idx"
            return read_graphs(folder / f"{name}.txt", inside if inside.is_dir() else folder, SETS[name])
    folder = root / "tu" / name
    if not download:
        raise GraphcapsError(f"{name}: expected {folder.absolute() / name}.txt, got no such file, and download=False")
    members = {f"{name}.txt": f"dataset/{name}/{name}.txt"}
    members |= {f"test_idx-{k}.txt": f"dataset/{name}/10fold_idx/test_idx-{k}.txt" for k in range(1, FOLDS + 1)}
    fetch_members(name, URL, members, folder)
    return read_graphs(folder / f"{name}.txt", folder, SETS[name])


def read_graphs(path: Path, folds: Path, spec: GraphSetSpec) -> GraphSet:
    """Read the graphs in ``path``, and ``test_idx-k.txt`` in ``folds``.

    Raises:
        InputError: a line that isn't what it should be, a neighbour that is named at one end only, other counts than
            ``spec`` has, or a graph in two folds.
    """
    lines = _Lines(path)
    (count,) = lines.integers("the number of graphs", 1)
    tags, labels, starts, ends, attributes = [], [], [0], [], None
    for _ in range(count):
        size, label = lines.integers("'n label' of a graph", 2)
        lines.expect(size >= 1, "a graph of 1 node or more", size)
        labels.append(label)
        for node in range(size):
            tag, neighbours, extra = lines.node(size, node)
            attributes = extra if attributes is None else attributes
            lines.expect(extra == attributes, f"{attributes} numbers after the neighbours, as above", extra)
            tags.append(tag)
            ends += [(starts[-1] + node, starts[-1] + other) for other in neighbours]
        starts.append(len(tags))
    lines.end()
    edges = np.array(sorted(ends), np.int64).reshape(-1, 2)
    back = edges[:, ::-1]
    one_sided = (edges != back[np.lexsort((back[:, 1], back[:, 0]))]).any()
    expect(not one_sided, str(path), "neighbours named at both ends", "some named at one end only")
    tag_numbers, tag_of = np.unique(tags, return_inverse=True)
    label_numbers, label_of = np.unique(labels, return_inverse=True)
    counts = {
        "graphs": (spec.graphs, count),
        "nodes": (spec.nodes, len(tags)),
        "pairs of neighbours": (spec.edges, len(edges) // 2),
        "tags": (spec.tags, len(tag_numbers)),
        "classes": (spec.classes, len(label_numbers)),
    }
    for said, (wanted, got) in counts.items():
        expect(wanted == got, str(path), f"{wanted} {said}", got)
    parts = tuple(_fold(folds / f"test_idx-{k}.txt", count) for k in range(1, FOLDS + 1))
    apart = len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    expect(apart, str(folds / "test_idx-*.txt"), "no graph in two folds", "one that is")
    return GraphSet(tag_of, label_of, np.array(starts), edges, parts, spec.tag_names, spec.class_names)


def _fold(path: Path, count: int) -> np.ndarray:
    lines, numbers = _Lines(path), []
    while lines.left():
        (number,) = lines.integers("the number of a graph", 1)
        lines.expect(0 <= number < count and number not in numbers, f"0 to {count - 1}, each once", number)
        numbers.append(number)
    expect(0 < len(numbers) < count, str(path), f"1 to {count - 1} graphs", len(numbers))
    return np.sort(np.array(numbers, np.int64))


class _Lines:
    """A text file read line by line; its errors name file and line."""

    def __init__(self, path: Path):
        self.path, self.at = path, 0
        try:
            self.lines = path.read_text(encoding="ascii").rstrip().split("\n")
        except OSError as error:
            raise InputError(f"{path}: expected a readable file, got: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: expected a text file, got: {error}") from error

    def expect(self, holds: bool, wanted: str, got: object) -> None:
        if not holds:
            raise InputError(f"{self.path}, line {self.at}: expected {wanted}, got {got}")

    def left(self) -> bool:
        return self.at < len(self.lines)

    def words(self, wanted: str) -> list[str]:
        self.at += 1
        self.expect(self.at <= len(self.lines), wanted, "the end of the file")
        return self.lines[self.at - 1].split()

    def integers(self, wanted: str, count: int) -> list[int]:
        """``count`` integers, all that the next line has."""
        words = self.words(wanted)
        self.expect(len(words) == count and all(map(_is_integer, words)), wanted, repr(" ".join(words)[:60]))
        return [int(word) for word in words]

    def node(self, size: int, node: int) -> tuple[int, list[int], int]:
        """A node's tag, its neighbours, and how many attributes follow."""
        words = self.words("'tag degree neighbour...'")
        said = repr(" ".join(words)[:60])
        head = len(words) >= 2 and all(map(_is_integer, words[:2])) and int(words[1]) >= 0
        self.expect(head, "'tag degree neighbour...'", said)
        last = 2 + int(words[1])
        named = words[2:last]
        self.expect(len(named) == last - 2 and all(map(_is_integer, named)), f"{last - 2} neighbours", said)
        neighbours = [int(word) for word in named]
        within = all(0 <= other < size and other != node for other in neighbours)
        self.expect(within and len(set(neighbours)) == len(named), f"neighbours 0 to {size - 1}, others, once", said)
        self.expect(all(map(_is_number, words[last:])), "numbers after the neighbours", said)
        return int(words[0]), neighbours, len(words) - last

    def end(self) -> None:
        if self.left():
            self.at += 1
            self.expect(False, "the end of the file", repr(self.lines[self.at - 1][:60]))


def _is_integer(word: str) -> bool:
    return len(word) < 10 and word.removeprefix("-").isdigit()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
