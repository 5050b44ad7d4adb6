"""What routing did on a few graphs: the coupling of every node to every class capsule, iteration by iteration.

`graphcaps.viz` draws it. As with ``RoutingTrace``, drawing needs no model, no data set and no torch: arrays in one npz
file, written without pickle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ..atomic import replacing
from ..errors import GraphcapsError, expect

FORMAT_VERSION = 1
FILE_NAME = "graphs.npz"
"""What the file is called in a folder that ``graphcaps viz`` draws."""


@dataclass(frozen=True)
class TracedGraph:
    """One graph of N nodes and M bonds, and its routing over R iterations to C class capsules."""

    tags: np.ndarray
    """(N,) int32 >= 0: what kind each node is."""
    bonds: np.ndarray
    """(M, 2) int32: the nodes that each bond joins, the lower one first; each bond once, ascending."""
    c: np.ndarray
    """(R, N, C) float32 in [0, 1]: couplings of each node."""
    lengths: np.ndarray | None = None
    """(R, C) float32 >= 0: lengths of the class capsules."""
    label: int | None = None
    """The true class, where known."""

    @classmethod
    def of(
        cls, tags: ArrayLike, bonds: ArrayLike, c: ArrayLike, lengths: ArrayLike | None = None, label: int | None = None
    ) -> TracedGraph:
        """Make one of arrays, tensors or lists.

        Args:
            tags: (N,) integers >= 0.
            bonds: (M, 2) nodes; one given in both directions, or several times, is one bond; loops are left out.
            c: (R, N, C) in [0, 1].
            lengths: (R, C) >= 0, or None.
            label: class in [0, C), or None.

        Raises:
            InputError: what doesn't fit.
        """
        ends = np.asarray(bonds)
        ends = np.empty((0, 2), np.int32) if ends.size == 0 else ends
        whole = ends.ndim == 2 and ends.shape[1] == 2 and np.issubdtype(ends.dtype, np.integer)
        expect(whole, "bonds", "(M, 2) integers", f"{ends.shape} {ends.dtype}")
        ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
        kinds = np.asarray(tags)
        whole = np.issubdtype(kinds.dtype, np.integer)
        expect(whole, "tags", "(N,) integers", f"{kinds.shape} {kinds.dtype}")
        graph = cls(
            tags=kinds.astype(np.int32),
            bonds=ends.astype(np.int32),
            c=np.asarray(c, np.float32),
            lengths=None if lengths is None else np.asarray(lengths, np.float32),
            label=None if label is None else int(label),
        )
        graph.check()
        return graph

    def check(self) -> None:
        """Raise ``InputError`` where the arrays don't fit together."""
        expect(self.tags.ndim == 1 and len(self.tags) >= 1, "tags", "(N,), N >= 1", self.tags.shape)
        expect(self.tags.min() >= 0, "tags", "integers >= 0", int(self.tags.min()))
        nodes = len(self.tags)
        expect(self.bonds.ndim == 2 and self.bonds.shape[1] == 2, "bonds", "(M, 2)", self.bonds.shape)
        inside = not self.bonds.size or (self.bonds.min() >= 0 and self.bonds.max() < nodes)
        expect(bool(inside), "bonds", f"nodes in [0, N={nodes})", "others")
        fits = self.c.ndim == 3 and self.c.shape[1] == nodes and min(self.c.shape) >= 1
        expect(fits, "c", f"(R, N={nodes}, C), R and C >= 1", self.c.shape)
        iterations, _, classes = self.c.shape
        good = bool(((self.c >= 0) & (self.c <= 1 + 1e-5)).all())  # a softmax in float32 may end above 1
        expect(good, "c", "couplings in [0, 1]", "others")
        if self.lengths is not None:
            wanted = (iterations, classes)
            expect(self.lengths.shape == wanted, "lengths", f"(R={iterations}, C={classes})", self.lengths.shape)
            good = bool((np.isfinite(self.lengths) & (self.lengths >= 0)).all())
            expect(good, "lengths", "finite numbers >= 0", "others")
        known = self.label is None or 0 <= self.label < classes
        expect(known, "label", f"a class in [0, C={classes}), or None", self.label)


@dataclass(frozen=True)
class GraphTrace:
    """Graphs that were routed to the same C classes over the same R iterations.

    >>> ring = {"tags": [0, 0, 1], "bonds": [[0, 1], [1, 2], [2, 0]], "c": np.full((3, 3, 2), 0.5), "label": 1}
    >>> trace = GraphTrace.of([ring], class_names=("safe", "mutagenic"), tag_names=("C", "N"))
    >>> len(trace.graphs), trace.num_iterations, trace.num_classes
    (1, 3, 2)
    """

    graphs: tuple[TracedGraph, ...]
    class_names: tuple[str, ...]
    """C names."""
    trained_iterations: int
    """Iterations the network is trained with; the trace may run on beyond them."""
    tag_names: tuple[str, ...] = ()
    """What each tag stands for, such as C, N, O; empty where nobody knows."""
    about: dict[str, str | int | float] = field(default_factory=dict)
    """Where it comes from: dataset, model, ..."""

    @property
    def num_iterations(self) -> int:
        return self.graphs[0].c.shape[0]

    @property
    def num_classes(self) -> int:
        return self.graphs[0].c.shape[2]

    def answer(self, graph: int) -> int | None:
        """The class of a graph's longest capsule after the trained iterations; None where no lengths are known."""
        lengths = self.graphs[graph].lengths
        return None if lengths is None else int(lengths[min(self.trained_iterations, len(lengths)) - 1].argmax())

    @classmethod
    def of(
        cls,
        graphs: Sequence[Mapping] | Mapping,
        class_names: Sequence[str],
        *,
        tag_names: Sequence[str] = (),
        trained_iterations: int | None = None,
        about: Mapping[str, str | int | float] | None = None,
    ) -> GraphTrace:
        """Make one of plain arrays or lists.

        Args:
            graphs: the arguments of ``TracedGraph.of`` by name, of one graph or of each of several.
            class_names: C names.
            tag_names: one name for each tag, or none.
            trained_iterations: those of training; default: all R.
            about: where it comes from.

        Raises:
            InputError: what doesn't fit, or no graph.
        """
        given = [graphs] if isinstance(graphs, Mapping) else list(graphs)
        expect(len(given) >= 1, "graphs", "at least one", "none")
        made = tuple(TracedGraph.of(**graph) for graph in given)
        trained = len(made[0].c) if trained_iterations is None else trained_iterations
        trace = cls(made, tuple(class_names), trained, tuple(tag_names), dict(about or {}))
        trace.check()
        return trace

    def check(self) -> None:
        """Raise ``InputError`` where the graphs don't fit together, or to the names."""
        expect(len(self.graphs) >= 1, "graphs", "at least one", "none")
        for k, graph in enumerate(self.graphs):
            graph.check()
            same = graph.c.shape[::2] == self.graphs[0].c.shape[::2]
            expect(same, f"c of graph {k}", f"(R={self.num_iterations}, N, C={self.num_classes})", graph.c.shape)
            named = not self.tag_names or graph.tags.max() < len(self.tag_names)
            expect(bool(named), "tag_names", f"a name for tag {graph.tags.max()}", len(self.tag_names))
        named = len(self.class_names) == self.num_classes
        expect(named, "class_names", f"C={self.num_classes} names", len(self.class_names))
        whole = isinstance(self.trained_iterations, int) and self.trained_iterations >= 1
        expect(whole, "trained_iterations", "an integer >= 1", self.trained_iterations)

    def save(self, path: str | os.PathLike) -> None:
        """Write one npz file, atomically and without pickle."""
        self.check()
        head = {
            "format_version": FORMAT_VERSION,
            "labels": [graph.label for graph in self.graphs],
            "class_names": list(self.class_names),
            "tag_names": list(self.tag_names),
            "trained_iterations": self.trained_iterations,
            "about": self.about,
        }
        arrays = {
            f"{name}_{k}": values
            for k, graph in enumerate(self.graphs)
            for name in ("tags", "bonds", "c", "lengths")
            if (values := getattr(graph, name)) is not None
        }
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, head=np.array(json.dumps(head)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> GraphTrace:
        """Read what ``save`` wrote; nothing in the file is run.

        Raises:
            GraphcapsError: missing, not a trace of graphs, truncated, of a newer format, or of shapes that don't fit.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            head = json.loads(str(arrays.pop("head")))
        except FileNotFoundError:
            raise GraphcapsError(f"trace: expected a file at {path}, got none") from None
        except Exception as error:  # a broken file makes numpy, zipfile and json raise nearly anything
            raise GraphcapsError(f"trace: expected the routing of graphs at {path}, got: {error}") from None
        version = head.get("format_version") if isinstance(head, dict) else None
        if version != FORMAT_VERSION:
            raise GraphcapsError(f"trace: expected format {FORMAT_VERSION} in {path}, got {version}. Update graphcaps")
        try:
            graphs = [
                {name: arrays.get(f"{name}_{k}") for name in ("tags", "bonds", "c", "lengths")} | {"label": label}
                for k, label in enumerate(head["labels"])
            ]
            about = {name: head[name] for name in ("tag_names", "trained_iterations", "about")}
            return cls.of(graphs, head["class_names"], **about)
        except (KeyError, TypeError, ValueError) as error:  # InputError is a ValueError
            raise GraphcapsError(f"trace: expected the routing of graphs at {path}, got one with {error}") from None
