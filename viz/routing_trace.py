"""The routing trace: logits, couplings and agreement of every iteration, on any graph, for a few images and epochs.

``graphcaps.viz`` draws it. A trace contains everything that a picture needs, so drawing needs no model, no data set and
no torch. Its file is one npz, written without pickle.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import Annotated, Any, get_type_hints

import numpy as np

from graphcaps.errors import ROUNDING, GraphcapsError, check_whole, expect, read_json, reading
from graphcaps.files import check_file, replacing
from graphcaps.names import clean

FORMAT_VERSION = 2
_BY_EPOCH = ("b", "c", "agreement", "lengths", "v")
_REQUIRED = ("src", "dst", "epochs", "b", "c", "lengths")
_NAMES = {"class_names": "J", "child_names": "I", "node_names": "V"}
DIGITS = tuple("0123456789")
THRESHOLD = 0.5  # of lengths; the margin loss trains lengths >= 0.9 or <= 0.1
MOST_ALONE = 2**20  # children without edges
MOST_LETTERS = 10_000  # of a name
FAR = 2**31 - 1
BLOCKED = float(np.finfo(np.float16).min)  # what is stored for a masked logit, -inf
DEAD_BELOW = 0.1  # a parent is dead if it gets less than this share of what it would get of equal couplings


@dataclass(frozen=True)
class RoutingTrace:
    """Routing of N images at K epochs over R iterations on a graph of E edges from I children to J parents.

    The N images are those of a batch, or all trailing dims of the votes together. Votes without such dims give N = 1.
    Each array's dims are given beside its type; there are also V nodes and T iterations in training.
    """

    src: Annotated[np.ndarray, "E"]
    """int32: the child of each edge."""
    dst: Annotated[np.ndarray, "E"]
    """int32: the parent of each edge."""
    num_children: int
    num_parents: int
    epochs: Annotated[np.ndarray, "K"]
    """int32, ascending: epochs of training done; 0 means untrained."""
    b: Annotated[np.ndarray, "K R N E"]
    """float16: the logits from which c was made."""
    c: Annotated[np.ndarray, "K R N E"]
    """float16 in [0, 1]: couplings; they sum to 1 over each child's edges."""
    lengths: Annotated[np.ndarray, "K R N J"]
    """float32 in [0, 1]: lengths of the parents; without votes their loads, shares of all children's couplings."""
    trained_iterations: int
    """Number of iterations in training; the trace may have more."""
    agreement: Annotated[np.ndarray | None, "K R N E"] = None
    """float16: <u_hat, v>; None for a softmax without votes."""
    v: Annotated[np.ndarray | None, "K R N J D"] = None
    """float16: the parents during routing."""
    parents: Annotated[np.ndarray | None, "J"] = None
    """int32: the parents' numbers in their layer if the trace leaves out others; None means 0, 1, ..."""
    nodes: Annotated[np.ndarray | None, "E 2"] = None
    """int32: source and target node of each vote in a user's graph; parent j is capsule j % ``num_caps``."""
    num_caps: int = 1
    """Number of capsules of each node in ``nodes``."""
    positions: Annotated[np.ndarray | None, "V 2"] = None
    """float: x and y of the nodes in a user's graph; y points upwards. None: a picture lays the graph out."""
    node_names: tuple[str, ...] = ()
    """V names of the nodes in a user's graph, or none: pictures number them."""
    class_names: tuple[str, ...] = ()
    """J names of the parents, or none if parents are not classes."""
    child_names: tuple[str, ...] = ()
    """I names of the children, or none."""
    images: Annotated[np.ndarray | None, "N C H W"] = None
    """uint8."""
    labels: Annotated[np.ndarray | None, "N"] = None
    """int64: true classes."""
    fields: Annotated[np.ndarray | None, "I 4"] = None
    """int32: top, left, height, width in pixels of each child's receptive field, which may cross the border."""
    decoded_votes: Annotated[np.ndarray | None, "N I C H W"] = None
    """uint8, last epoch: each child's vote for the parent that it is coupled with most, decoded."""
    decoded_parents: Annotated[np.ndarray | None, "N T J C H W"] = None
    """uint8, last epoch: the parents in each iteration of training, decoded; 0 if they end up shorter than 0.5."""
    about: dict[str, str | int | float] = field(default_factory=dict)
    """Where the trace comes from: run, dataset, model, routing, ..., and the words for a child, parent and image."""

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
        """Index of the iteration that gave the network's answer; the trace may have later ones."""
        return min(self.trained_iterations, self.num_iterations) - 1

    @property
    def has_classes(self) -> bool:
        """Whether parents are classes with lengths. A class is named only if it is longer than ``threshold``."""
        return bool(self.class_names) and self.agreement is not None

    @property
    def threshold(self) -> float:
        """The network's own threshold, chosen on validation images, or 0.5."""
        return float(self.about.get("threshold", THRESHOLD))

    @property
    def parent_word(self) -> tuple[str, str]:
        """The words for a parent and for several: ``digit`` if that is what all names are, else ``class``."""
        digits = all(name in DIGITS for name in self.class_names)
        one = str(self.about.get("parent", ("digit" if digits else "class") if self.has_classes else "parent"))
        return one, one + ("es" if one.endswith("s") else "s")

    @property
    def parent_names(self) -> tuple[str, ...]:
        """J names: those of the classes, or ``parent 0``, ``parent 1``, ..."""
        numbers = range(self.num_parents) if self.parents is None else self.parents
        return self.class_names or tuple(f"{self.about.get('parent', 'parent')} {j}" for j in numbers)

    def entropy(self) -> np.ndarray:
        """(K, R, N) coupling entropy in nats: -sum c ln c over a child's edges, averaged over children with edges."""
        c = self.c.astype(np.float64)
        per_edge = -c * np.log(c, out=np.zeros_like(c), where=c > 0)
        return per_edge.sum(axis=-1) / max(1, len(np.unique(self.src)))

    @property
    def degrees(self) -> np.ndarray:
        """(I,) the number of each child's edges."""
        return np.bincount(self.src, minlength=self.num_children)

    def per_child(self, values: np.ndarray) -> np.ndarray:
        """Sum (..., E) over each child's edges, to (..., I)."""
        return np.apply_along_axis(lambda row: np.bincount(self.src, row, self.num_children), -1, values)

    def per_parent(self, values: np.ndarray) -> np.ndarray:
        """Sum (..., E) over each parent's edges, to (..., J)."""
        return np.apply_along_axis(lambda row: np.bincount(self.dst, row, self.num_parents), -1, values)

    def equal_couplings(self) -> np.ndarray:
        """(K, N, E) 1 / the number of parents that the edge's child may choose. Masked logits allow no choice."""
        allowed = self.b[:, self.answer_at] > BLOCKED
        return allowed / np.maximum(1, self.per_child(allowed))[..., self.src]

    def dispatch(self) -> np.ndarray:
        """(K, N, J) the share of children whose largest coupling is with each parent. Equal ones share the child."""
        c = self.c[:, self.answer_at].astype(np.float64)
        child: Any = (..., self.src)
        largest = np.zeros((*c.shape[:2], self.num_children))
        np.maximum.at(largest, child, c)
        first = (c == largest[child]) & (c > 0)
        shares = self.per_parent(first / np.maximum(1, self.per_child(first))[child])
        return shares / np.maximum(1, (largest > 0).sum(axis=-1, keepdims=True))

    @property
    def contended(self) -> int:
        """The image whose second-longest parent is the longest of all; 0 if images don't have one label each."""
        lengths = np.sort(self.lengths[-1, self.answer_at], axis=1)
        return 0 if self.labels is None or lengths.shape[1] < 2 else int(lengths[:, -2].argmax())

    def dead(self) -> np.ndarray:
        """(K, J) bool: parents that get less than a tenth of what they would get of equal couplings, on all images."""
        loads, at_equal = (
            self.per_parent(couplings.mean(axis=1, dtype=np.float64))
            for couplings in (self.c[:, self.answer_at], self.equal_couplings())
        )
        return loads < DEAD_BELOW * at_equal

    def couplings_of_links(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Couplings of each pair of linked nodes in a user's graph: means over parallel edges.

        Args:
            c: (S, E) couplings of a trace with ``nodes``.

        Returns:
            (P, 2) int32 pairs of linked nodes, ascending, and their (S, P, num_caps) couplings with each capsule.
        """
        pairs, pair_of = np.unique(np.asarray(self.nodes), axis=0, return_inverse=True)
        cells = pair_of.ravel() * self.num_caps + self.dst % self.num_caps
        size = len(pairs) * self.num_caps
        sums = np.stack([np.bincount(cells, state, size) for state in c])
        means = sums / np.maximum(1, np.bincount(cells, None, size))
        return pairs, means.reshape(len(c), len(pairs), self.num_caps)

    def with_epoch(self, epoch: int, routed: RoutingTrace, **replace: Any) -> RoutingTrace:
        """A copy of the trace with one more epoch, that of ``routed``. Later epochs are dropped.

        Args:
            epoch: number of epochs of training done.
            routed: a trace of one epoch.
            replace: fields of the trace to replace.

        Raises:
            InputError: ``routed`` has other edges or another number of images.
        """
        for name in ("src", "dst"):
            same = np.array_equal(getattr(self, name), getattr(routed, name))
            expect(same, f"trace: {name}", "those of the epochs before", "others", "Call the network on the same input")
        shape, other = self.c.shape[1:], routed.c.shape[1:]
        expect(shape == other, "trace: c", f"(1, {', '.join(map(str, shape))}), as the epochs before", (1, *other))
        earlier = self.epochs < epoch
        grown: dict[str, Any] = {
            name: np.concatenate([getattr(self, name)[earlier], getattr(routed, name)])
            for name in _BY_EPOCH
            if getattr(self, name) is not None
        }
        return dataclasses.replace(self, epochs=np.append(self.epochs[earlier], np.int32(epoch)), **grown, **replace)

    def save(self, path: str | os.PathLike) -> None:
        """Write one npz file, atomically and without pickle."""
        head = {"format_version": FORMAT_VERSION}
        head |= {name: value for name, value in vars(self).items() if name not in _DIMS}
        arrays = {name: getattr(self, name) for name in _DIMS if getattr(self, name) is not None}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, head=np.array(json.dumps(head)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> RoutingTrace:
        """Read a file that ``save`` wrote. Nothing in the file is executed.

        Raises:
            GraphcapsError: the file is missing, damaged, or of another format.
        """
        wanted, advice = f"a routing trace at {path}", "Make one with: graphcaps train"
        with reading("trace", wanted, advice, GraphcapsError), np.load(check_file(path), allow_pickle=False) as stored:
            head = read_json(str(stored["head"]), about=dict, num_children=int, num_parents=int, trained_iterations=int)
            if (version := head.get("format_version")) != FORMAT_VERSION:
                raise ValueError(f"format {version}, and this version reads format {FORMAT_VERSION}")
            own = {field.name: head[field.name] for field in dataclasses.fields(cls) if field.name in head}
            names = {name: tuple(map(clean, head.get(name, ()))) for name in _NAMES}  # old files lack some
            about = {clean(k): clean(v) if isinstance(v, str) else v for k, v in head["about"].items()}
            arrays = {name: stored[name] for name in _DIMS if name in stored}
            trace = cls(**own | names | {"about": about}, **arrays)
        trace.check()
        return trace

    def check(self, image: int | None = None) -> None:
        """Raise ``InputError`` if the arrays don't fit together, or lack this image."""
        sizes = {"I": self.num_children, "J": self.num_parents}
        for name, dim in _NAMES.items():
            number = len(getattr(self, name))
            expect(number in (0, sizes.get(dim, number)), f"trace: {name}", f"none or {sizes.get(dim)}", number)
            sizes |= {dim: number} if number else {}
        for name, dims in _DIMS.items():
            array = getattr(self, name)
            if array is None:
                expect(name not in _REQUIRED, f"trace: {name}", f"({', '.join(dims.split())})", "none")
                continue
            shape = dict(zip(dims.split(), array.shape, strict=False))
            wanted = "(" + ", ".join(f"{d}={sizes[d]}" if d in sizes else d for d in dims.split()) + ")"
            fits = all(n == (int(d) if d.isdigit() else sizes.get(d, n)) for d, n in shape.items())
            expect(fits and array.ndim == len(dims.split()), f"trace: {name}", wanted, array.shape)
            kinds, called = ("i", "signed integers") if name in _INTEGERS else ("iuf", "numbers")
            expect(array.dtype.kind in kinds, f"trace: {name}", called, array.dtype)
            fits = name not in _PIXELS or array.dtype == np.uint8
            expect(fits, f"trace: {name}", "uint8", array.dtype, "0 is black, 255 white")
            sizes |= {d: n for d, n in shape.items() if not d.isdigit()}
        for dim in ("K", "R", "N", "C", "H", "W"):
            expect(sizes.get(dim, 1) > 0, "trace", f"{dim} >= 1", sizes.get(dim))
        expect(sizes.get("C", 1) in (1, 3), "trace: images", "1 or 3 channels", sizes.get("C"))
        most = self.num_edges + MOST_ALONE
        for name, least in (("num_children", 0), ("num_parents", 0), ("trained_iterations", 1), ("num_caps", 1)):
            check_whole(f"trace: {name}", getattr(self, name), least, most, f"an integer from {least} to {most}")
        ranges = {
            "src": (0, self.num_children - 1),
            "dst": (0, self.num_parents - 1),
            "labels": (0, self.num_parents - 1),
            "nodes": (0, sizes.get("V", most) - 1),
            **dict.fromkeys(("epochs", "parents"), (0, FAR)),
            **dict.fromkeys(("fields", "positions"), (-FAR, FAR)),
            "c": (0, 1 + ROUNDING),
        }
        for name, (low, high) in ranges.items():
            values = getattr(self, name)
            fits = values is None or not values.size or not (values.min() < low or values.max() > high)
            expect(bool(fits), f"trace: {name}", f"numbers from {low:g} to {high:g}", "others")
        expect(bool((np.diff(self.epochs) > 0).all()), "trace: epochs", "ascending numbers", self.epochs.tolist())
        texts = [*self.about, *(text for name in _NAMES for text in getattr(self, name))]
        texts += [value for value in self.about.values() if type(value) not in (int, float, bool)]
        fits = all(isinstance(text, str) and len(text) <= MOST_LETTERS for text in texts)
        expect(fits, "trace: names and about", f"texts of at most {MOST_LETTERS:,} letters, or numbers", "others")
        if image is not None:
            last = self.num_images - 1
            check_whole("image", image, 0, last, f"an image of the trace, 0 to {last}")


_DIMS: dict[str, str] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(RoutingTrace, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""For each array of a trace, its dims."""
_PIXELS = ("images", "decoded_votes", "decoded_parents")
_INTEGERS = ("src", "dst", "nodes", "parents", "epochs", "labels", "fields")
