"""Record what routed layers do while a network of the user's own runs."""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx
import numpy as np
import torch
from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import check_whole, expect
from ..graph import bipartite_graph, complete_graph, links, to_networkx
from ..nn.beliefs import NodeBeliefs
from ..nn.node_caps import NodeCapsules
from ..routing import Dynamic, route
from ..routing.engines.edges import Observer
from ..routing.observers import recording
from ..routing_trace import RoutingTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BARE = "route"  # the name of a routing in no module


def watch(module: nn.Module | None = None, *, images: int | None = 8, edges: int | None = 20_000) -> Watched:
    """Record every routing inside a ``with`` block: of a network's layers, and of bare calls of ``graphcaps.route``.

    The network's outputs and gradients stay as they are, up to rounding: layers for graphs, whose fastest pass makes no
    couplings of single iterations, take another with the same numbers. Not recorded are other threads, and code that
    ``torch.compile`` has traced: watch the network before it is compiled.

    Args:
        module: whose submodules give their names to the routings in them, and whose class to those in none of them.
            None: all are called ``"route"``, as are bare calls outside the module.
        images: of each routing, how many items (images, or all trailing dims together) are recorded; None: all.
        edges: how many edges are recorded, of the first children, each with all of its edges; None: all. Parents beyond
            this number are recorded where they have one of these edges, and ``v`` where it has no more numbers than
            this per item. What is left out is said in the record's ``about``.

    Returns:
        ``Watched``, for one ``with`` block or several: by a layer's name the ``RoutingTrace`` of its last call.

    >>> import graphcaps
    >>> net = nn.Sequential(graphcaps.nn.CapsuleLayer(20, 10))
    >>> with watch(net) as seen:
    ...     v = net(torch.zeros(20, 2, 8))
    >>> seen, seen["0"].c.shape
    (Watched(0: 200 edges, 3 iterations, 2 images), (1, 3, 2, 200))
    """
    for name, limit in (("images", images), ("edges", edges)):
        if limit is not None:
            check_whole(name, limit)
    return Watched(module, images, edges)


def random_trace(num_children: int, num_parents: int, iterations: int = 10, seed: int = 0) -> RoutingTrace:
    """Dynamic routing of standard normal 16-D votes on a complete graph; 20 x 10 is the DGL tutorial's example."""
    votes = torch.randn(num_children * num_parents, 16, generator=torch.Generator().manual_seed(seed))
    with watch(edges=None) as seen:
        route(complete_graph(num_children, num_parents), votes, Dynamic(iterations))
    return dataclasses.replace(seen["route"], about={"dataset": "random votes", "seed": seed})


class Watched:
    """The last routing of each layer, by name: of the innermost submodule, or ``"route"`` outside of the module.

    From the first ``snapshot`` on, the routings of all snapshots, as the epochs of one trace.
    """

    def __init__(self, module: nn.Module | None, images: int | None, edges: int | None):
        self._module, self._limits = module, (images, edges)
        self._blocks: list[ExitStack] = []
        self._running: list[tuple[str, bool]] = []
        self._nodes: _Nodes | None = None
        self._records: dict[str, _Record] = {}
        self._snapshots: dict[str, RoutingTrace] = {}

    def __enter__(self) -> Watched:
        self._blocks.append(stack := ExitStack())
        for name, part in () if self._module is None else self._module.named_modules():
            if isinstance(part, (NodeCapsules, NodeBeliefs)):  # inside layers, which have names
                stack.callback(part.register_forward_pre_hook(self._enter_nodes).remove)
                stack.callback(part.register_forward_hook(self._leave_nodes, always_call=True).remove)
            else:
                enter = partial(self._enter, name or type(part).__name__)
                stack.callback(part.register_forward_pre_hook(enter, with_kwargs=True).remove)
                stack.callback(part.register_forward_hook(self._leave, always_call=True).remove)
        stack.enter_context(recording(self._record))
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.pop().close()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the layers that have routed, in the order of their first call."""
        return tuple({**self._snapshots, **self._records})

    def __getitem__(self, name: str) -> RoutingTrace:
        expect(name in self.names, "name", f"one of {self.names}, which have routed", repr(name))
        return self._snapshots[name] if name in self._snapshots else self._records[name].trace()

    def traces(self) -> dict[str, RoutingTrace]:
        """All of them, by name."""
        return {name: self[name] for name in self.names}

    def snapshot(self, epoch: int) -> None:
        """Add each layer's last call since the snapshot before as an epoch of its trace; later epochs are dropped.

        Raises:
            InputError: no layer has routed since, or one on other edges or another number of images.
        """
        check_whole("epoch", epoch, 0)
        expect(len(self._records) > 0, "names", "a layer that has routed", "none", "Call the network in watch's block")
        for name, record in self._records.items():
            trace = record.trace()
            before = self._snapshots.get(name, dataclasses.replace(trace, epochs=np.array([epoch], np.int32)))
            self._snapshots[name] = before.with_epoch(epoch, trace)
        self._records = {}

    def save(self, path: str | os.PathLike) -> list[Path]:
        """Write a file for ``graphcaps viz``, or one for each of several layers, and return their paths.

        For ``routing.npz`` those of several layers are called ``routing-<name>.npz``.
        """
        expect(len(self.names) > 0, "names", "a layer that has routed", "none", "Call the network in watch's block")
        path = Path(path)
        paths = [path.with_stem(f"{path.stem}-{name}") for name in self.names] if len(self.names) > 1 else [path]
        for trace, file in zip(self.traces().values(), paths, strict=True):
            trace.save(file)
        return paths

    def graph(self, path: str | os.PathLike | None = None, layer: str | None = None, **options: Any) -> Figure | Path:
        """Draw how a layer's couplings settle: on the user's graph for ``CapsuleConv``, else on the graph of votes.

        Args:
            path: a file to write, that ends in .gif, .mp4, .png, .svg or .pdf; None: the figure is returned.
            layer: its name; None: the last that has routed.
            options: ``over``, ``image`` and others, as in ``graphcaps.viz.picture``.

        Returns:
            The path, or a matplotlib figure of the answer.
        """
        return self._draw("auto", path, layer, options)

    def entropy(self, path: str | os.PathLike | None = None, layer: str | None = None, **options: Any) -> Figure | Path:
        """Draw how undecided a layer's children are; arguments and result as in ``graph``."""
        return self._draw("entropy", path, layer, options)

    def histogram(
        self, path: str | os.PathLike | None = None, layer: str | None = None, **options: Any
    ) -> Figure | Path:
        """Draw a histogram of a layer's couplings; arguments and result as in ``graph``."""
        return self._draw("histogram", path, layer, options)

    def _draw(self, what: str, path: Any, layer: str | None, options: dict[str, Any]) -> Figure | Path:
        from ..viz import picture

        return picture(self[self._layer(layer)], what, path, **options)

    def _layer(self, name: str | None) -> str:
        expect(len(self.names) > 0, "names", "a layer that has routed", "none", "Call the network in watch's block")
        return self.names[-1] if name is None else name

    def to_networkx(self, layer: str | None = None, image: int = 0) -> networkx.Graph:
        """A layer's last couplings as a networkx graph.

        For ``CapsuleConv`` it is the user's graph: edges have the ``capsule`` that they are coupled with most, and this
        coupling ``c``. Else the graph of votes, as ``graphcaps.to_networkx`` gives it.
        """
        trace = self[self._layer(layer)]
        trace.check(image)
        b, c = (torch.from_numpy(values[-1, -1, image].astype(np.float32)) for values in (trace.b, trace.c))
        if trace.nodes is None:
            routed = bipartite_graph(trace.src, trace.dst, trace.num_children, trace.num_parents)
            routed.edata["b"], routed.edata["c"] = b, c
            return to_networkx(routed)
        ends, shares = trace.shares_of_edges(c.numpy()[None])
        drawn = networkx.DiGraph()
        drawn.add_nodes_from(range(int(trace.nodes.max()) + 1))
        for (u, v), share in zip(ends.tolist(), shares[0], strict=True):
            drawn.add_edge(u, v, capsule=int(share.argmax()), c=float(share.max()))
        return drawn

    def scalars(self) -> dict[str, float]:
        """Of each layer's last iteration, means over images: plain numbers for TensorBoard, W&B or a log.

        ``NAME/entropy`` in nats; ``NAME/undecided``, that over the entropy of equal couplings; ``NAME/agreement`` of
        votes with their parents, weighted by couplings; ``NAME/length`` of the longest parent.
        """
        found = {}
        for name, trace in self.traces().items():
            degrees = np.bincount(trace.src)
            even = np.log(degrees[degrees > 0]).mean()
            entropy = float(trace.entropy()[-1, -1].mean())
            c, agreement = (values[-1, -1].astype(np.float64) for values in (trace.c, trace.agreement))
            found[f"{name}/entropy"] = entropy
            found[f"{name}/undecided"] = entropy / float(even) if even > 0 else 1.0
            found[f"{name}/agreement"] = float((c * agreement).sum() / c.sum())
            found[f"{name}/length"] = float(trace.lengths[-1, -1].max(axis=-1).mean())
        return found

    def __repr__(self) -> str:
        from ..viz.routing.timeline import size_in_words

        parts = (f"{name}: {size_in_words(trace)}" for name, trace in self.traces().items())
        return f"Watched({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        from ..viz import animations

        return animations(self.traces())

    def _enter(self, name: str, module: nn.Module, inputs: Any, named: Any) -> None:
        feat = named["x"] if "x" in named else inputs[0] if inputs else None
        self._running.append((name, isinstance(feat, (tuple, list))))  # a pair: two kinds of nodes, in PyG

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._running.pop()

    def _enter_nodes(self, capsules: NodeCapsules | NodeBeliefs, inputs: Any) -> None:
        graph = inputs[0]
        ends = graph.num_src_nodes(), graph.num_dst_nodes()
        paired = bool(self._running) and self._running[-1][1]
        one_kind = len(graph.ntypes) == 1 or graph.is_block or (ends[0] == ends[1] and not paired)
        self._nodes = _Nodes(graph, capsules.in_caps, capsules.num_caps) if one_kind else None

    def _leave_nodes(self, capsules: NodeCapsules | NodeBeliefs, inputs: Any, outputs: Any) -> None:
        self._nodes = None

    def _record(self, graph: DGLGraph) -> Observer:
        name = self._running[-1][0] if self._running else BARE
        record = _Record(name, graph, self._nodes, *self._limits)

        def add(r: int, b: Tensor, c: Tensor, v: Tensor, agreement: Tensor) -> None:
            self._records[name] = record
            record.add(b=b, c=c, agreement=agreement, v=v)

        return add


class _Nodes(NamedTuple):
    """The user's graph that a routing is along, and the capsules of its nodes."""

    graph: DGLGraph
    caps_in: int
    caps_out: int


class _Record:
    """One routing, iteration by iteration."""

    def __init__(self, name: str, graph: DGLGraph, nodes: _Nodes | None, images: int | None, edges: int | None):
        ends = links(graph)
        src, dst = (end.cpu() for end in (ends.src, ends.dst))
        self.num_children, self.num_parents, self.images, self.limit = (
            ends.num_children,
            ends.num_parents,
            images,
            edges,
        )
        self.about: dict[str, str] = {} if name == BARE else {"layer": name}
        self.selected: Tensor | None = None
        self.parents: Tensor | None = None
        self.nodes: Tensor | None = None
        places = torch.arange(len(src))
        if edges is not None and len(src) > edges:
            ends_of_children = torch.bincount(src, minlength=self.num_children).cumsum(0)
            self.num_children = max(1, int((ends_of_children <= edges).sum()))
            self.selected = places = (src < self.num_children).nonzero().squeeze(1)
            self.about["edges"] = f"{len(places)} of {len(src)}"
            self.about["children"] = f"{self.num_children} of {ends.num_children}"
            src, dst = src[places], dst[places]
        if edges is not None and self.num_parents > edges:
            self.parents, dst = dst.unique(return_inverse=True)
            self.about["parents"] = f"{len(self.parents)} of {self.num_parents}"
            self.num_parents = len(self.parents)
        self.src, self.dst, self.num_caps = src, dst, 1
        if nodes is not None:
            own = links(nodes.graph)
            along = places // (nodes.caps_in * nodes.caps_out)
            self.nodes, self.num_caps = torch.stack([own.src.cpu()[along], own.dst.cpu()[along]], 1), nodes.caps_out
        self.arrays: dict[str, list[np.ndarray]] = {"b": [], "c": [], "agreement": [], "lengths": [], "v": []}

    def add(self, v: Tensor, **numbers: Tensor) -> None:
        """Parents (J, *, D), and numbers per edge (E, *)."""
        v = v.detach().flatten(1, -2) if v.dim() > 2 else v.detach().unsqueeze(1)  # (J, N, D)
        v = self._first_images(v if self.parents is None else v[self.parents.to(v.device)])
        if self.limit is None or v.shape[0] * v.shape[2] <= self.limit:
            self.arrays["v"].append(_finite(v.transpose(0, 1).cpu().numpy(), np.float16))
        else:
            self.about["v"] = f"none of {v.shape[0]} x {v.shape[2]} numbers"
        lengths = torch.linalg.vector_norm(v, dim=-1)
        self.arrays["lengths"].append(_finite(lengths.T.cpu().numpy(), np.float32))
        for name, values in numbers.items():
            values = values.detach()
            values = self._first_images(values.flatten(1) if values.dim() > 1 else values.unsqueeze(1))  # (E, N)
            values = values if self.selected is None else values[self.selected.to(values.device)]
            self.arrays[name].append(_finite(values.T.cpu().numpy(), np.float16))

    def _first_images(self, values: Tensor) -> Tensor:
        if self.images is None or values.shape[1] <= self.images:
            return values
        self.about["images"] = f"{self.images} of {values.shape[1]}"
        return values[:, : self.images]

    def trace(self) -> RoutingTrace:
        arrays: dict[str, Any] = {name: np.stack(values)[None] for name, values in self.arrays.items() if values}
        numbers = {"src": self.src, "dst": self.dst, "parents": self.parents, "nodes": self.nodes}
        arrays |= {name: None if value is None else value.numpy().astype(np.int32) for name, value in numbers.items()}
        return RoutingTrace(
            num_children=self.num_children,
            num_parents=self.num_parents,
            epochs=np.zeros(1, np.int32),
            trained_iterations=arrays["c"].shape[1],
            num_caps=self.num_caps,
            about=dict(self.about),
            **arrays,
        )


def _finite(values: np.ndarray, dtype: type) -> np.ndarray:
    """``values`` as ``dtype``, where finite ones beyond it, as logits of EM routing may be, become its largest."""
    most = np.finfo(dtype).max
    return np.where(np.isfinite(values), values.clip(-most, most), values).astype(dtype)
