"""Record what routed layers do while a network of the user's own runs."""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx
import numpy as np
import torch
from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import check_whole, expect
from ..graph import bipartite_graph, complete_graph, to_networkx
from ..nn.beliefs import NodeBeliefs
from ..nn.node_caps import NodeCapsules
from ..routing import Dynamic, route
from ..routing.engines.edges import Observer
from ..routing.observers import recording
from ..viz.routing_trace import RoutingTrace
from .layer_record import LayerRecord, NodeGraph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_LAYER = "route"  # name of a routing outside all modules


def watch(module: nn.Module | None = None, *, images: int | None = 8, edges: int | None = 20_000) -> Watched:
    """Record every routing inside a ``with`` block: of a network's layers, and of bare calls of ``graphcaps.route``.

    The network's outputs and gradients stay as they are, up to rounding: layers for graphs route on a slower path,
    because the fastest one makes no couplings of single iterations. Other threads are not recorded, nor is code that
    ``torch.compile`` has traced: watch the network before it is compiled.

    Args:
        module: its submodules give their names to the routings in them, and its class the name to the others inside
            it. None: all are called ``"route"``, as are bare calls outside the module.
        images: how many images (all trailing dims together) of each routing are recorded; None: all.
        edges: how many edges are recorded: those of the first children, each with all of its edges; None: all. If a
            layer has more parents than this, those with one of these edges are recorded; ``v`` is recorded if it has no
            more numbers than this per image. The record's ``about`` says what is left out.

    Returns:
        ``Watched``, for one ``with`` block or several: a layer's name gives the ``RoutingTrace`` of its last call.

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
    return dataclasses.replace(seen[NO_LAYER], about={"dataset": "random votes", "seed": seed})


class Watched:
    """The last routing of each layer, by the name of the innermost submodule, or ``"route"`` outside the module.

    After the first ``snapshot``: the routings of all snapshots, as the epochs of one trace.
    """

    def __init__(self, module: nn.Module | None, images: int | None, edges: int | None):
        self._module, self._limits = module, (images, edges)
        self._blocks: list[ExitStack] = []
        self._running: list[tuple[str, bool]] = []  # layers whose forward runs now, and whether each got a pair
        self._nodes: NodeGraph | None = None
        self._records: dict[str, LayerRecord] = {}
        self._snapshots: dict[str, RoutingTrace] = {}

    def __enter__(self) -> Watched:
        self._blocks.append(stack := ExitStack())
        for name, part in () if self._module is None else self._module.named_modules():
            if isinstance(part, (NodeCapsules, NodeBeliefs)):  # parts inside a layer, which has the name
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
        """Names of the layers that have routed, in the order of their first call."""
        return tuple({**self._snapshots, **self._records})

    def __getitem__(self, name: str) -> RoutingTrace:
        expect(name in self.names, "name", f"one of {self.names}, which have routed", repr(name))
        return self._snapshots[name] if name in self._snapshots else self._records[name].trace()

    def traces(self) -> dict[str, RoutingTrace]:
        return {name: self[name] for name in self.names}

    def snapshot(self, epoch: int) -> None:
        """Add each layer's last call since the previous snapshot as an epoch of its trace; later epochs are dropped.

        Raises:
            InputError: no layer has routed since, or one has routed on other edges or another number of images.
        """
        check_whole("epoch", epoch, 0)
        self._check_routed(self._records)
        for name, record in self._records.items():
            trace = record.trace()
            before = self._snapshots.get(name, dataclasses.replace(trace, epochs=np.array([epoch], np.int32)))
            self._snapshots[name] = before.with_epoch(epoch, trace)
        self._records = {}

    def save(self, path: str | os.PathLike) -> list[Path]:
        """Write a file for ``graphcaps viz``; several layers get one each, as ``routing-<name>.npz``."""
        self._check_routed(self.names)
        path = Path(path)
        paths = [path.with_stem(f"{path.stem}-{name}") for name in self.names] if len(self.names) > 1 else [path]
        for trace, file in zip(self.traces().values(), paths, strict=True):
            trace.save(file)
        return paths

    def graph(self, path: str | os.PathLike | None = None, layer: str | None = None, **options: Any) -> Figure | Path:
        """Draw how a layer's couplings settle: on the user's graph for ``CapsuleConv``, else on the graph of votes.

        Args:
            path: a file to write that ends in .gif, .mp4, .png, .svg or .pdf, and is returned; None: a matplotlib
                figure of the answer is returned.
            layer: its name; None: the last that has routed.
            options: ``over``, ``image`` and others, as in ``graphcaps.viz.picture``.
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

        return picture(self._trace(layer), what, path, **options)

    def _trace(self, layer: str | None) -> RoutingTrace:
        self._check_routed(self.names)
        return self[self.names[-1] if layer is None else layer]

    def _check_routed(self, layers: Any) -> None:
        expect(len(layers) > 0, "names", "a layer that has routed", "none", "Call the network in watch's block")

    def to_networkx(self, layer: str | None = None, image: int = 0) -> networkx.Graph:
        """A layer's last couplings as a networkx graph.

        For ``CapsuleConv`` it is the user's graph; an edge's ``capsule`` is the one with its largest coupling, ``c``.
        Else it is the graph of votes, as ``graphcaps.to_networkx`` gives it.
        """
        trace = self._trace(layer)
        trace.check(image)
        b, c = (torch.from_numpy(values[-1, -1, image].astype(np.float32)) for values in (trace.b, trace.c))
        if trace.nodes is None:
            routed = bipartite_graph(trace.src, trace.dst, trace.num_children, trace.num_parents)
            routed.edata["b"], routed.edata["c"] = b, c
            return to_networkx(routed)
        pairs, couplings = trace.couplings_of_links(c.numpy()[None])
        drawn = networkx.DiGraph()
        drawn.add_nodes_from(range(int(trace.nodes.max()) + 1))
        for (u, v), by_capsule in zip(pairs.tolist(), couplings[0], strict=True):
            drawn.add_edge(u, v, capsule=int(by_capsule.argmax()), c=float(by_capsule.max()))
        return drawn

    def scalars(self) -> dict[str, float]:
        """Means over images after each layer's last iteration: plain numbers for TensorBoard, W&B or a log.

        ``NAME/entropy`` in nats; ``NAME/undecided``, that over the entropy of equal couplings; ``NAME/agreement`` of
        votes with their parents, weighted by couplings; ``NAME/length`` of the longest parent.
        """
        numbers = {}
        for name, trace in self.traces().items():
            degrees = np.bincount(trace.src)
            uniform = np.log(degrees[degrees > 0]).mean()
            entropy = float(trace.entropy()[-1, -1].mean())
            c, agreement = (values[-1, -1].astype(np.float64) for values in (trace.c, trace.agreement))
            numbers[f"{name}/entropy"] = entropy
            numbers[f"{name}/undecided"] = entropy / float(uniform) if uniform > 0 else 1.0
            numbers[f"{name}/agreement"] = float((c * agreement).sum() / c.sum())
            numbers[f"{name}/length"] = float(trace.lengths[-1, -1].max(axis=-1).mean())
        return numbers

    def __repr__(self) -> str:
        from ..viz.routing.timeline import size_in_words

        parts = (f"{name}: {size_in_words(trace)}" for name, trace in self.traces().items())
        return f"Watched({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        from ..viz import animations

        return animations(self.traces())

    def _enter(self, name: str, module: nn.Module, inputs: Any, named: Any) -> None:
        feat = named["x"] if "x" in named else inputs[0] if inputs else None
        self._running.append((name, isinstance(feat, (tuple, list))))  # a pair means two kinds of nodes in PyG

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._running.pop()

    def _enter_nodes(self, capsules: NodeCapsules | NodeBeliefs, inputs: Any) -> None:
        graph = inputs[0]
        paired = bool(self._running) and self._running[-1][1]
        as_many = graph.num_src_nodes() == graph.num_dst_nodes()
        one_kind = len(graph.ntypes) == 1 or graph.is_block or (as_many and not paired)
        self._nodes = NodeGraph(graph, capsules.in_caps, capsules.num_caps) if one_kind else None

    def _leave_nodes(self, capsules: NodeCapsules | NodeBeliefs, inputs: Any, outputs: Any) -> None:
        self._nodes = None

    def _record(self, graph: DGLGraph) -> Observer:
        layer = self._running[-1][0] if self._running else ""
        record = LayerRecord(layer, graph, self._nodes, *self._limits)

        def add(r: int, b: Tensor, c: Tensor, v: Tensor, agreement: Tensor) -> None:
            self._records[layer or NO_LAYER] = record
            record.add(b=b, c=c, agreement=agreement, v=v)

        return add
