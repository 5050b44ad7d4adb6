"""What routing did, for a few images and epochs: logits, couplings and agreement of every iteration.

`graphcaps.viz` draws it. A trace holds everything a picture needs, so drawing needs no model, no data set and no
torch: arrays in one npz file, written without pickle.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import replacing
from ..errors import GraphcapsError, expect

if TYPE_CHECKING:
    import torch

    from .._dgl import DGLGraph
    from ..routing import LinearVotes, MatrixVotes, Routing
    from ..routing.edges import Observer

FORMAT_VERSION = 1

# Dims of each array, for the check on loading; K epochs kept, R iterations, N images, S perturbation steps.
_DIMS = {
    "images": "N C H W",
    "labels": "N",
    "src": "E",
    "dst": "E",
    "epochs": "K",
    "b": "K R N E",
    "c": "K R N E",
    "agreement": "K R N E",
    "lengths": "K R N J",
    "fields": "I 4",
    "saliency": "N I H W",
    "reconstructions": "N C H W",
    "perturbed": "N D S C H W",
    "steps": "S",
}
_OPTIONAL = ("images", "labels", "fields", "saliency", "reconstructions", "perturbed", "steps")


@dataclass(frozen=True)
class RoutingTrace:
    """Routing of N images at K epochs over R iterations on a graph of E edges from I children to J parents."""

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
    class_names: tuple[str, ...] = ()
    """J names of the parents; empty where parents are not classes."""
    images: np.ndarray | None = None
    """(N, C, H, W) uint8."""
    labels: np.ndarray | None = None
    """(N,) int64."""
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

    def up_to_training(self) -> RoutingTrace:
        """The same without iterations beyond those of training: the last one made the network's answers."""
        kept = slice(self.trained_iterations)
        return dataclasses.replace(
            self,
            b=self.b[:, kept],
            c=self.c[:, kept],
            agreement=self.agreement[:, kept],
            lengths=self.lengths[:, kept],
        )

    @classmethod
    def of(
        cls,
        graph: DGLGraph,
        votes: torch.Tensor | LinearVotes | MatrixVotes,
        routing: Routing | str = "dynamic",
        iterations: int = 10,
        *,
        prior: torch.Tensor | float | None = None,
        **about: Any,
    ) -> RoutingTrace:
        """Route ``votes`` and keep every iteration: a trace without a model.

        Args:
            graph: bipartite DGLGraph.
            votes: (E, N, D) or (E, D), or ``LinearVotes``; N is the number of images.
            routing: as in ``graphcaps.route``.
            iterations: R >= 1, in place of the routing's own.
            about: fields of the trace to fill in (``images``, ``class_names``, ...).

        >>> import torch
        >>> from graphcaps import complete_graph
        >>> RoutingTrace.of(complete_graph(20, 10), torch.randn(200, 16), iterations=10).c.shape
        (1, 10, 1, 200)
        """
        from ..graph import links
        from ..routing import route
        from ..routing.names import as_routing

        edges, asked = links(graph), as_routing(routing).with_iterations(iterations)
        states = observe(lambda observer: route(graph, votes, asked, prior=prior, on_iteration=observer))
        about.setdefault("trained_iterations", iterations)
        return cls(
            src=edges.src.numpy().astype(np.int32),
            dst=edges.dst.numpy().astype(np.int32),
            num_children=edges.num_children,
            num_parents=edges.num_parents,
            epochs=np.zeros(1, np.int32),
            b=states["b"][None],
            c=states["c"][None],
            agreement=states["agreement"][None],
            lengths=states["lengths"][None],
            **about,
        )

    @classmethod
    def random(cls, num_children: int, num_parents: int, iterations: int = 10, seed: int = 0) -> RoutingTrace:
        """Route standard normal 16-D votes on a complete graph; 20 x 10 is the DGL tutorial's example."""
        import torch

        from ..graph import complete_graph

        votes = torch.randn(num_children * num_parents, 16, generator=torch.Generator().manual_seed(seed))
        about = {"dataset": "random votes", "seed": seed}
        return cls.of(complete_graph(num_children, num_parents), votes, iterations=iterations, about=about)

    def with_epoch(self, epoch: int, states: dict[str, np.ndarray], **replace: Any) -> RoutingTrace:
        """The trace with the routing of one more epoch (what ``observe`` returns); later epochs are dropped."""
        keep = self.epochs < epoch

        def grown(name: str) -> np.ndarray:
            return np.concatenate([getattr(self, name)[keep], states[name][None]])

        return dataclasses.replace(
            self,
            epochs=np.append(self.epochs[keep], np.int32(epoch)),
            b=grown("b"),
            c=grown("c"),
            agreement=grown("agreement"),
            lengths=grown("lengths"),
            **replace,
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write one npz file, atomically and without pickle."""
        head = {
            "format_version": FORMAT_VERSION,
            "num_children": self.num_children,
            "num_parents": self.num_parents,
            "trained_iterations": self.trained_iterations,
            "class_names": list(self.class_names),
            "history": self.history,
            "about": self.about,
        }
        arrays = {name: getattr(self, name) for name in _DIMS if getattr(self, name) is not None}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, head=np.array(json.dumps(head)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> RoutingTrace:
        """Read what ``save`` wrote; nothing in the file is run.

        Raises:
            GraphcapsError: missing, not a trace, truncated, of a newer format, or of shapes that don't fit together.
        """
        then = "Make one with: graphcaps train"
        try:
            with np.load(path, allow_pickle=False) as stored:
                head = json.loads(str(stored["head"]))
                arrays = {name: stored[name] for name in _DIMS if name in stored}
        except FileNotFoundError:
            raise GraphcapsError(f"trace: expected a file at {path}, got none. {then}") from None
        except Exception as error:  # a broken file makes numpy, zipfile and json raise nearly anything
            raise GraphcapsError(f"trace: expected a routing trace at {path}, got: {error}. {then}") from None
        version = head.pop("format_version", None) if isinstance(head, dict) else None
        if version != FORMAT_VERSION:
            raise GraphcapsError(f"trace: expected format {FORMAT_VERSION} in {path}, got {version}. {then}")
        try:
            head["class_names"] = tuple(head["class_names"])
            trace = cls(**head, **arrays)
            trace.check()
        except (KeyError, TypeError) as error:
            raise GraphcapsError(f"trace: expected a routing trace at {path}, got one with {error}. {then}") from None
        return trace

    def check(self) -> None:
        """Raise ``InputError`` where the arrays don't fit together."""
        sizes = {"I": self.num_children, "J": self.num_parents, "4": 4}
        for name, dims in _DIMS.items():
            array = getattr(self, name)
            if array is None:
                expect(name in _OPTIONAL, f"trace: {name}", f"({', '.join(dims.split())})", "none")
                continue
            shape = dict(zip(dims.split(), array.shape, strict=False))
            known = sizes.keys() - {"4"}
            wanted = "(" + ", ".join(f"{dim}={sizes[dim]}" if dim in known else dim for dim in dims.split()) + ")"
            fits = len(array.shape) == len(dims.split()) and all(sizes.get(d, n) == n for d, n in shape.items())
            expect(fits, f"trace: {name}", wanted, array.shape)
            sizes.update(shape)
        for name, ends, count in (("src", self.src, self.num_children), ("dst", self.dst, self.num_parents)):
            inside = not len(ends) or (ends.min() >= 0 and ends.max() < count)
            expect(bool(inside), f"trace: {name}", f"indices in [0, {count})", "others")
        named = len(self.class_names) in (0, self.num_parents)
        expect(named, "trace: class_names", f"none or {self.num_parents}", len(self.class_names))


def observe(run: Callable[[Observer], Any]) -> dict[str, np.ndarray]:
    """What an observer sees of one routing: b, c, agreement (R, N, E) float16 and lengths (R, N, J) float32.

    Args:
        run: routes votes (E, N, D) or (E, D), where N is 1, and hands each iteration to the observer that it is given.

    A finite number beyond float16, as logits of EM routing may be, is kept as float16's largest.
    """
    import torch

    seen: dict[str, list[np.ndarray]] = {"b": [], "c": [], "agreement": [], "lengths": []}

    def keep(r: int, b: torch.Tensor, c: torch.Tensor, v: torch.Tensor, agreement: torch.Tensor) -> None:
        lengths = torch.linalg.vector_norm(v, dim=-1)
        for name, values in (("b", b), ("c", c), ("agreement", agreement), ("lengths", lengths)):
            expect(values.dim() <= 2, "votes", "(E, N, D) or (E, D)", f"{values.dim()} dims before D")
            by_image = values.reshape(len(values), *(values.shape[1:] or (1,))).T  # (N, E), or (N, J)
            seen[name].append(_kept(by_image.cpu().numpy(), np.float32 if name == "lengths" else np.float16))

    with torch.no_grad():
        run(keep)
    return {name: np.stack(values) for name, values in seen.items()}


def _kept(values: np.ndarray, dtype: type) -> np.ndarray:
    most = np.finfo(dtype).max
    return np.where(np.isfinite(values), values.clip(-most, most), values).astype(dtype)
