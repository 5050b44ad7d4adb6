"""A small set of graphs in the GIN paper's text format: rings, some with a tail; the class is the tail's tag."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.data.tu import FOLDS

GRAPHS, NAMES = 64, (("C", "N", "O"), ("no", "yes"))


def graph(number: int) -> tuple[int, list[tuple[int, list[int]]]]:
    """Label, and of each node its tag and neighbours."""
    size, label = 4 + number % 3, 2 * (number % 3 == 0)
    nodes = [(1, [(k - 1) % size, (k + 1) % size]) for k in range(size)]
    nodes[0][1].append(size)
    return label, [*nodes, (5 if label else 3, [0])]


def write(folder: Path, name: str = "MUTAG") -> Path:
    """NAME.txt and its folds of 6 graphs; 4 graphs are in none. Returns the file."""
    lines = [str(GRAPHS)]
    for number in range(GRAPHS):
        label, nodes = graph(number)
        lines.append(f"{len(nodes)} {label}")
        lines += [" ".join(map(str, (tag, len(neighbours), *neighbours))) for tag, neighbours in nodes]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    order = np.random.RandomState(0).permutation(GRAPHS)
    for k in range(FOLDS):
        (folder / f"test_idx-{k + 1}.txt").write_text("".join(f"{i}\n" for i in order[6 * k : 6 * k + 6]))
    return folder / f"{name}.txt"
