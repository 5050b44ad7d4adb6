"""What routing did, on any graph: logits, couplings and agreement of every iteration, for a few items and epochs.

``graphcaps.viz`` draws it. A trace holds everything a picture needs, so drawing needs no model, no data set and no
torch: arrays in one npz file, written without pickle.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .atomic import replacing
from .errors import GraphcapsError, InputError, check_json, check_whole, expect, read_json

FORMAT_VERSION = 2

# Dims of each array, for the check on loading; K epochs, R iterations, N items, M bonds, S perturbation steps, V nodes.
_DIMS = {
    "src": "E",
    "dst": "E",
    "epochs": "K",
    "b": "K R N E",
    "c": "K R N E",
    "agreement": "K R N E",
    "lengths": "K R N J",
    "v": "K R N J D",
    "parents": "J",
    "nodes": "E 2",
    "positions": "V 2",
    "labels": "N",
    "images": "N C H W",
    "fields": "I 4",
    "saliency": "N I H W",
    "reconstructions": "N C H W",
    "perturbed": "N D S C H W",
    "steps": "S",
    "node_tags": "V",
    "bonds": "M 2",
}
_OF_ROUTING = ("b", "c", "agreement", "lengths")
_REQUIRED = ("src", "dst", "epochs", *_OF_ROUTING)


@dataclass(frozen=True)
class RoutingTrace:
    """Routing of N items at K epochs over R iterations on a graph of E edges from I children to J parents.

    Items are the images of a batch, or whatever else the trailing dims of the votes are; without such dims N is 1.
    """

    src: np.ndarray
    """(E,) int32: child of each edge."""
    dst: np.ndarray
    """(E,) int32: parent of each edge."""
    num_children: int
    num_parents: int
    epochs: np.ndarray
    """(K,) int32, ascending: epochs of training done; 0 is untrained."""
    b: np.ndarray
    """(K, R, N, E) float16: the logits that made c."""
    c: np.ndarray
    """(K, R, N, E) float16 in [0, 1]: couplings; they sum to 1 over each child's edges."""
    agreement: np.ndarray
    """(K, R, N, E) float16: <u_hat, v>."""
    lengths: np.ndarray
    """(K, R, N, J) float32 in [0, 1): lengths of the parents."""
    trained_iterations: int
    """Iterations the network is trained with; the trace may run on beyond them."""
    v: np.ndarray | None = None
    """(K, R, N, J, D) float16: the parents as routing sees them."""
    parents: np.ndarray | None = None
    """(J,) int32: the parents' numbers in their layer, where the trace leaves some of them out; None: 0, 1, ..."""
    nodes: np.ndarray | None = None
    """(E, 2) int32: from which node of a user's graph to which each vote goes; parent j is capsule j % ``num_caps``."""
    num_caps: int = 1
    """Capsules of each of those nodes."""
    positions: np.ndarray | None = None
    """(V, 2) float32: where those nodes are drawn, y upwards."""
    class_names: tuple[str, ...] = ()
    """J names of the parents; empty where parents are not classes."""
    images: np.ndarray | None = None
    """(N, C, H, W) uint8."""
    labels: np.ndarray | None = None
    """(N,) int64: true classes."""
    fields: np.ndarray | None = None
    """(I, 4) int32: top, left, height, width in pixels of what each child can see (may reach over the border)."""
    saliency: np.ndarray | None = None
    """(N, I, H, W) float16 >= 0, last epoch: |d length of u_i / d pixel|, each child scaled to a maximum of 1."""
    reconstructions: np.ndarray | None = None
    """(N, C, H, W) uint8, last epoch: the decoder's picture of the longest capsule."""
    perturbed: np.ndarray | None = None
    """(N, D, S, C, H, W) uint8, last epoch: reconstructions with ``steps[s]`` added to dimension d of that capsule."""
    steps: np.ndarray | None = None
    """(S,) float32: what was added, -0.25 to 0.25."""
    node_tags: np.ndarray | None = None
    """(V,) int32 >= 0: of what kind each node of a graph is; where the trace has bonds, its children are the nodes."""
    bonds: np.ndarray | None = None
    """(M, 2) int32: the children that each link of that graph joins, the lower first; each once, ascending."""
    tag_names: tuple[str, ...] = ()
    """What each tag stands for, such as C, N, O; empty where nobody knows."""
    history: dict[str, list[float]] = field(default_factory=dict)
    """Training curves, one number per epoch: epoch, train_loss, train_accuracy, val_accuracy, ..."""
    about: dict[str, str | int | float] = field(default_factory=dict)
    """Where it comes from: run, dataset, model, routing, ..."""

    @property
    def num_edges(self) -> int:
        return len(self.src)

    @property
    def num_iterations(self) -> int:
        return self.c.shape[1]

    @property
    def num_images(self) -> int:
        return self.c.shape[2]

    @property
    def answer_at(self) -> int:
        """Where the arrays hold the iteration that gave the network's answer; a trace may run on beyond it."""
        return min(self.trained_iterations, self.num_iterations) - 1

    @property
    def parent_names(self) -> tuple[str, ...]:
        """J names: of the classes, or ``parent 0``, ``parent 1``, ..."""
        numbers = range(self.num_parents) if self.parents is None else self.parents
        return self.class_names or tuple(f"parent {j}" for j in numbers)

    def entropy(self) -> np.ndarray:
        """(K, R, N) how undecided children are: mean over those with edges of -sum c ln c over their edges, in nats."""
        c = self.c.astype(np.float64)
        of_edges = -c * np.log(c, out=np.zeros_like(c), where=c > 0)
        return of_edges.sum(axis=-1) / max(1, len(np.unique(self.src)))

    def shares_of_edges(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Couplings of the edges of a user's graph: means over parallel edges and over capsules of the source.

        Args:
            c: (S, E) couplings of a trace with ``nodes``.

        Returns:
            (P, 2) int32, the pairs of nodes that are linked, ascending; (S, P, num_caps) couplings with each capsule.
        """
        pairs, of = np.unique(np.asarray(self.nodes), axis=0, return_inverse=True)
        cells = of.ravel() * self.num_caps + self.dst % self.num_caps
        size = len(pairs) * self.num_caps
        sums = np.stack([np.bincount(cells, state, size) for state in c]) / np.maximum(
            1, np.bincount(cells, None, size)
        )
        return pairs, sums.reshape(len(c), len(pairs), self.num_caps)

    def answer(self, item: int) -> int:
        """The longest parent after the trained iterations, in the last epoch."""
        return int(self.lengths[-1, self.answer_at, item].argmax())

    def with_epoch(self, epoch: int, routed: RoutingTrace, **replace: Any) -> RoutingTrace:
        """The trace with the routing of one more epoch, that of a trace of one epoch; later epochs are dropped.

        Raises:
            InputError: a routing of other edges, or of another number of images.
        """
        for name in ("src", "dst"):
            same = np.array_equal(getattr(self, name), getattr(routed, name))
            expect(same, f"trace: {name}", "those of the epochs before", "others", "Call the network on the same input")
        shape, other = self.c.shape[1:], routed.c.shape[1:]
        expect(shape == other, "trace: c", f"(1, {', '.join(map(str, shape))}), as the epochs before", (1, *other))
        earlier = self.epochs < epoch
        names = (*_OF_ROUTING, *(["v"] if self.v is not None else []))
        pairs = {name: (getattr(self, name)[earlier], getattr(routed, name)) for name in names}
        grown: dict[str, Any] = {name: np.concatenate(pair) for name, pair in pairs.items()}
        return dataclasses.replace(self, epochs=np.append(self.epochs[earlier], np.int32(epoch)), **grown, **replace)

    def with_bonds(
        self, bonds: ArrayLike, node_tags: ArrayLike | None = None, tag_names: Sequence[str] = ()
    ) -> RoutingTrace:
        """The trace with the links among its children, which the molecule's picture draws.

        Args:
            bonds: (M, 2) children; one given in both directions, or several times, is one bond; loops are left out.
            node_tags: (I,) integers >= 0, of what kind each child is; None: all are of kind 0.
            tag_names: one name for each tag, or none.

        Raises:
            InputError: what doesn't fit.
        """
        ends = np.asarray(bonds)
        ends = np.empty((0, 2), np.int32) if ends.size == 0 else ends
        whole = ends.ndim == 2 and ends.shape[1] == 2 and np.issubdtype(ends.dtype, np.integer)
        expect(whole, "bonds", "(M, 2) integers", f"{ends.shape} {ends.dtype}")
        ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
        tags = np.zeros(self.num_children, np.int32) if node_tags is None else node_tags
        return self._tagged(tags, tag_names, "I", bonds=ends.astype(np.int32))

    def with_nodes(
        self, positions: ArrayLike | None = None, node_tags: ArrayLike | None = None, tag_names: Sequence[str] = ()
    ) -> RoutingTrace:
        """The trace of a ``CapsuleConv`` with what the picture of its V nodes shows.

        Args:
            positions: (V, 2) x and y of each node, y upwards; None: networkx lays the graph out.
            node_tags: (V,) integers >= 0, of what kind each node is, such as its class.
            tag_names: one name for each tag, or none.

        Raises:
            InputError: what doesn't fit.
        """
        expect(self.nodes is not None, "trace", "one of CapsuleConv on a graph with one kind of node", "another")
        expect(not isinstance(positions, Mapping), "positions", "[positions[n] for n in graph]", "a dict")
        places = None if positions is None else np.asarray(positions, np.float32)
        return self._tagged(node_tags, tag_names, "V", positions=places)

    def _tagged(self, tags: ArrayLike | None, names: Sequence[str], number: str, **added: Any) -> RoutingTrace:
        if tags is not None:
            tags = np.asarray(tags)
            whole = np.issubdtype(tags.dtype, np.integer)
            expect(whole, "node_tags", f"({number},) integers", f"{tags.shape} {tags.dtype}")
            tags = tags.astype(np.int32)
        made = dataclasses.replace(self, node_tags=tags, tag_names=tuple(names), **added)
        made.check()
        return made

    def save(self, path: str | os.PathLike) -> None:
        """Write one npz file, atomically and without pickle."""
        head = {
            "format_version": FORMAT_VERSION,
            "num_children": self.num_children,
            "num_parents": self.num_parents,
            "trained_iterations": self.trained_iterations,
            "num_caps": self.num_caps,
            "class_names": list(self.class_names),
            "tag_names": list(self.tag_names),
            "history": self.history,
            "about": self.about,
        }
        arrays = {name: getattr(self, name) for name in _DIMS if getattr(self, name) is not None}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, head=np.array(json.dumps(head)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> RoutingTrace:
        """Read what ``save`` wrote; nothing in the file is run. ``GraphcapsError`` says what is wrong with a file."""
        then = "Make one with: graphcaps train"
        try:
            with np.load(path, allow_pickle=False) as stored:
                head = read_json(str(stored["head"]))
                arrays = {name: stored[name] for name in _DIMS if name in stored}
        except FileNotFoundError:
            raise GraphcapsError(f"trace: expected a file at {path}, got none. {then}") from None
        except Exception as error:  # a broken file makes numpy, zipfile and json raise nearly anything
            raise GraphcapsError(f"trace: expected a routing trace at {path}, got: {error}. {then}") from None
        version = head.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise GraphcapsError(f"trace: expected format {FORMAT_VERSION} in {path}, got {version}. {then}")
        try:
            numbers = {name: int for name in ("num_children", "num_parents", "trained_iterations")}
            check_json(head, class_names=list, tag_names=list, history=dict, about=dict, **numbers)
            head |= {name: tuple(head[name]) for name in ("class_names", "tag_names")}
            trace = cls(**head, **arrays)
            trace.check()
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise GraphcapsError(f"trace: expected a routing trace at {path}, got one with {error}. {then}") from None
        return trace

    def check(self, image: int | None = None) -> None:
        """Raise ``InputError`` where the arrays don't fit together, or hold no such image."""
        known = {"I": self.num_children, "J": self.num_parents}
        known |= {} if self.bonds is None else {"V": self.num_children}
        sizes = {**known, "4": 4, "2": 2}
        for name, dims in _DIMS.items():
            array = getattr(self, name)
            if array is None:
                expect(name not in _REQUIRED, f"trace: {name}", f"({', '.join(dims.split())})", "none")
                continue
            shape = dict(zip(dims.split(), array.shape, strict=False))
            wanted = "(" + ", ".join(f"{d}={sizes[d]}" if d in known else d for d in dims.split()) + ")"
            fits = len(array.shape) == len(dims.split()) and all(sizes.get(d, n) == n for d, n in shape.items())
            expect(fits, f"trace: {name}", wanted, array.shape)
            sizes.update(shape)
            known.update((d, n) for d, n in shape.items() if not d.isdigit())
        tags = len(self.tag_names) or np.inf
        ends = {"src": self.num_children, "dst": self.num_parents, "bonds": self.num_children, "node_tags": tags}
        ends["nodes"] = sizes.get("V", np.inf)
        for name, count in ends.items():
            values = getattr(self, name)
            inside = values is None or not values.size or (values.min() >= 0 and values.max() < count)
            expect(bool(inside), f"trace: {name}", f"indices in [0, {count})", "others")
        if self.images is not None:
            expect(self.images.dtype == np.uint8, "trace: images", "uint8", self.images.dtype, "0 is black, 255 white")
        named = len(self.class_names) in (0, self.num_parents)
        expect(named, "trace: class_names", f"none or {self.num_parents}", len(self.class_names))
        if image is not None:
            last = self.num_images - 1
            check_whole("image", image, 0, last, f"an image of the trace, 0 to {last}")
