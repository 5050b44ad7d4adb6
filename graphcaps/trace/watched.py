"""Recording of the routed layers of any network while it runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx
import numpy as np
import torch
from torch import Tensor, nn

from ..algorithms.observers import Observer, recording
from ..beliefs.node_beliefs import NodeBeliefs
from ..errors import check_name, check_whole, expect, warn
from ..files import file_name
from ..graph import Links, bipartite_graph, to_networkx
from ..nn.node_caps import NodeCapsules
from ..nn.routed import RoutedLayer
from ..typed import Size, typed
from ..viz.routing_trace import BLOCKED, RoutingTrace
from .layer_record import LayerRecord
from .softmax import Choices, SoftmaxReader

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_LAYER = "route"  # name of a routing outside all layers


@typed
def watch(
    module: nn.Module | None = None,
    *,
    softmax: Mapping[str, str | tuple[str, Callable]] | None = None,
    names: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    images: Size | None = 8,
    edges: Size | None = 20_000,
) -> Watched:
    """Record every routing inside a ``with`` block, in a network's layers and in direct calls of ``graphcaps.route``.

    Layers for graphs use a slower path, so the network's outputs and gradients change by rounding, but no more. Other
    threads aren't recorded. Code that ``torch.compile`` has traced isn't recorded either.

    Args:
        module: the network. A routing is named after the submodule in which it runs, or after the network's class if
            it runs in no submodule. Without a network, and outside the network, its name is ``"route"``.
        softmax: for modules that compute a softmax over a set, by their names, words for a child and a parent, such as
            "token -> expert", or for a trailing dim too: "head: node -> node". The softmax is the attention of a layer
            that can return it, such as GATConv of PyG or DGL, or else the module's output. ``("pixel -> slot", lambda
            module, args, output: output[1])`` reads another: a tensor (*, I, J), or a pair of edges (a graph, or
            sources and targets (2, E)) and numbers (E, *). If torch's softmax computed it, its dim is known, and logits
            of -inf are no choices. Otherwise it runs over the dim over which it sums to 1; in a pair, dim 1 is a
            target's in-edges, and 0 a source's out-edges. If both fit, name it last: ``("a -> b", None, 1)``. For
            several trailing dims, write a word for each: "image, head: query -> key". Calls in one call of the network
            are iterations.
        names: for layers, by their names, names of all parents or children, by words as ``{"expert": [...]}``;
            capsules are "parent" and "child". A wrong number of names is an error.
        images: number of images (all trailing dims together) to record of each routing; None: all.
        edges: number of edges to record; None: all. The first children are recorded, each with all of its edges. If a
            layer has more parents than this number, only the parents of recorded edges are recorded. ``v`` is recorded
            only if it has at most this many numbers per image. The trace's ``about`` lists what was left out.

    Returns:
        ``Watched``, for one or more ``with`` blocks. Index it by a layer's name for the trace of its last call.

    >>> import graphcaps
    >>> net = nn.Sequential(graphcaps.nn.CapsuleLayer(20, 10))
    >>> with watch(net) as seen:
    ...     v = net(torch.zeros(20, 2, 8))
    >>> seen, seen["0"].c.shape
    (Watched(0: 200 edges, 3 iterations, 2 images), (1, 3, 2, 200))
    """
    return Watched(module, (images, edges), softmax or {}, names or {})


class Watched:
    """The last routing of each layer. A layer is named after the innermost submodule; outside the module: ``"route"``.

    After the first ``snapshot``, a layer's trace has one epoch for each snapshot.
    """

    def __init__(self, module: nn.Module | None, limits: Any, softmax: Any, names: Any):
        self._module, self._limits, self._softmax, self._names = module, limits, softmax, names
        self._ends: dict[str, Tensor] = {}  # edges of each softmax in the current call of the network
        self._blocks: list[ExitStack] = []
        self._running: list[str] = []  # layers that are running
        self._records: dict[str, LayerRecord] = {}
        self._snapshots: dict[str, RoutingTrace] = {}

    def __enter__(self) -> Watched:
        modules = () if self._module is None else self._module.named_modules()
        parts = {name or type(part).__name__: part for name, part in modules}
        with ExitStack() as stack:  # an error removes the hooks made so far
            for name, part in parts.items():
                if not isinstance(part, (NodeCapsules, NodeBeliefs)):  # parts of a layer, whose name is used
                    stack.callback(part.register_forward_pre_hook(partial(self._enter, name)).remove)
                    stack.callback(part.register_forward_hook(self._leave, always_call=True).remove)
            words = dict.fromkeys((*parts, NO_LAYER), {"parent": "parent", "child": "child"})
            for name, description in self._softmax.items():
                check_name("softmax", name, tuple(parts))
                reader = SoftmaxReader(name, parts[name], description, partial(self._record_softmax, name))
                words[name] = reader.kinds
                for hook in reader.hooks(parts[name]):
                    stack.callback(hook.remove)
            for name, by_word in self._names.items():
                check_name("names", name, tuple(words))
                for word in by_word:
                    check_name(f"names of {name}", word, [words[name][kind] for kind in ("parent", "child")])
                layer = parts.get(name)
                if isinstance(layer, RoutedLayer):
                    self._check_names(name, layer.num_children, layer.num_parents)
            stack.enter_context(recording(self._record))
            self._blocks.append(stack.pop_all())
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.pop().close()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layers that have routed, in order of their first call."""
        return tuple({**self._snapshots, **self._records})

    def __getitem__(self, name: str) -> RoutingTrace:
        expect(name in self.names, "name", f"one of {self.names}, which have routed", repr(name))
        trace = self._snapshots[name] if name in self._snapshots else self._records[name].trace()
        by_word, words = self._names.get(name, {}), [str(trace.about.get(kind, kind)) for kind in ("parent", "child")]
        parents, children = (tuple(map(str, by_word.get(word, ()))) for word in words)
        if parents and trace.parents is not None:
            parents = tuple(parents[j] for j in trace.parents)
        return dataclasses.replace(trace, class_names=parents, child_names=children[: trace.num_children])

    def traces(self) -> dict[str, RoutingTrace]:
        return {name: self[name] for name in self.names}

    def snapshot(self, epoch: int) -> None:
        """Add each layer's last call since the previous snapshot to its trace, as ``epoch``; drop later epochs.

        Raises:
            InputError: no layer has routed since then, or its edges or its number of images changed.
        """
        check_whole("epoch", epoch, 0)
        self._check_routed(self._records)
        for name, record in self._records.items():
            trace = record.trace()
            before = self._snapshots.get(name, dataclasses.replace(trace, epochs=np.array([epoch], np.int32)))
            self._snapshots[name] = before.with_epoch(epoch, trace)
        self._records = {}

    def save(self, path: str | os.PathLike) -> list[Path]:
        """Write a file for ``graphcaps viz``, or one per layer if there are several, such as ``routing-<name>.npz``."""
        self._check_routed(self.names)
        path = Path(path)
        several = len(self.names) > 1
        stems = [f"{path.stem}-{name}" for name in self.names] if several else [path.stem]
        paths = [path.with_name(file_name(stem, path.suffix)) for stem in stems]
        expect(len({*paths}) == len(paths), "names", "a file name of its own for each layer", self.names)
        for trace, file in zip(self.traces().values(), paths, strict=True):
            trace.save(file)
        return paths

    def graph(self, path: str | os.PathLike | None = None, layer: str | None = None, **options: Any) -> Figure | Path:
        """Draw how a layer's couplings settle: on the user's graph for ``CapsuleConv``, else on the graph of votes.

        Args:
            path: the file to write (.gif, .mp4, .png, .svg or .pdf); its path is returned. None: return a matplotlib
                figure of the last iteration instead.
            layer: name of a layer; None: the last layer in ``names``.
            options: options of ``graphcaps.viz.picture``: ``over``, ``image``, ``what="entropy"`` to draw that, ...
        """
        from ..viz import picture

        return picture(self._trace(layer), path=path, **options)

    def _trace(self, layer: str | None) -> RoutingTrace:
        self._check_routed(self.names)
        return self[self.names[-1] if layer is None else layer]

    def _check_routed(self, layers: Any) -> None:
        advice = "Call the network in watch's block, and name a softmax to watch: softmax={'gate': 'token -> expert'}"
        expect(len(layers) > 0, "names", "a layer that has routed", "none", advice)

    def to_networkx(self, layer: str | None = None, image: int = 0) -> networkx.Graph:
        """Convert a layer's last couplings to a networkx graph.

        For ``CapsuleConv``, this is the user's graph; on each edge, ``c`` is the largest coupling, and ``capsule`` the
        capsule that has it. For other layers, it is the graph of votes, as ``graphcaps.to_networkx`` returns it. A
        warning reports edges beyond the limit of ``watch``, which are missing.
        """
        trace = self._trace(layer)
        trace.check(image)
        b, c = (torch.from_numpy(values[-1, -1, image].astype(np.float32)) for values in (trace.b, trace.c))
        if "edges" in trace.about:
            warn(f"the graph has {trace.about['edges']} votes. Record all: watch(net, edges=None)")
        if trace.nodes is None:
            routed = bipartite_graph(trace.src, trace.dst, trace.num_children, trace.num_parents)
            routed.edata["b"], routed.edata["c"] = b, c
            return to_networkx(routed)
        pairs, couplings = trace.couplings_of_links(c.numpy()[None])
        drawn = networkx.DiGraph()
        parents = str(trace.about.get("parents", trace.num_parents)).split()[-1]  # "10 of 12" if some aren't recorded
        drawn.add_nodes_from(range(int(parents) // trace.num_caps))
        for (u, v), by_capsule in zip(pairs.tolist(), couplings[0], strict=True):
            drawn.add_edge(u, v, capsule=int(by_capsule.argmax()), c=float(by_capsule.max()))
        return drawn

    def scalars(self) -> dict[str, float]:
        """Numbers for TensorBoard, W&B or a log: means over images after each layer's last iteration.

        ``NAME/entropy`` is the coupling entropy in nats. ``NAME/undecided`` is its ratio to the entropy of equal
        couplings. ``NAME/agreement`` is the agreement of votes with their parents, weighted by couplings.
        ``NAME/length`` is the length of the longest parent. Instead of these two, a softmax without votes has
        ``NAME/mass``, the largest share of all couplings that a parent has; ``NAME/dispatch``, the largest share of
        children whose first choice is the same parent; and ``NAME/dead``, the number of dead parents.
        """
        numbers = {}
        for name, trace in self.traces().items():
            equal, children = trace.equal_couplings()[-1], max(1, np.count_nonzero(trace.degrees))
            uniform = -(equal * np.log(np.where(equal > 0, equal, 1))).sum(axis=-1).mean() / children
            entropy = trace.entropy()[-1, -1].mean()
            numbers[f"{name}/entropy"] = float(entropy)
            numbers[f"{name}/undecided"] = float(entropy / uniform) if uniform > 0 else 1.0
            longest = float(trace.lengths[-1, -1].max(axis=-1).mean())
            if trace.agreement is None:
                dispatch, dead = trace.dispatch()[-1].max(axis=-1).mean(), trace.dead()[-1].sum()
                numbers |= {f"{name}/mass": longest, f"{name}/dispatch": float(dispatch), f"{name}/dead": float(dead)}
            else:
                c, agreement = (values[-1, -1].astype(np.float64) for values in (trace.c, trace.agreement))
                numbers |= {f"{name}/agreement": float(np.average(agreement, weights=c)), f"{name}/length": longest}
        return numbers

    def __repr__(self) -> str:
        from ..viz.routing.timeline import size_in_words

        parts = (f"{name}: {size_in_words(trace)}" for name, trace in self.traces().items())
        return f"Watched({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        from ..viz import animations

        return animations(self.traces())

    def _enter(self, name: str, module: nn.Module, inputs: Any) -> None:
        if not self._running:
            self._ends = {}
        self._running.append(name)

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._running.pop()

    def _record(self, links: Links, nodes: Links | None) -> Observer:
        layer = self._running[-1] if self._running else ""
        record = LayerRecord(layer, links, nodes, *self._limits)
        self._check_names(layer or NO_LAYER, links.num_children, links.num_parents)

        def add(r: int, b: Tensor, c: Tensor, v: Tensor, agreement: Tensor) -> None:
            self._records[layer or NO_LAYER] = record
            record.add(b=b, c=c, agreement=agreement, v=v)

        return add

    def _record_softmax(self, layer: str, kinds: dict[str, str], choices: Choices) -> None:
        ends = torch.stack((choices.src, choices.dst))
        children, parents = (ends.amax(dim=1) + 1).tolist()
        if not torch.equal(ends, self._ends.get(layer, ends[:0])):
            self._ends[layer] = ends
            record = LayerRecord(layer, Links(choices.src, choices.dst, children, parents), None, *self._limits)
            record.about |= kinds
            if len(choices.trailing) > 1:
                record.about["dims"] = " x ".join(map(str, choices.trailing))
            self._check_names(layer, children, parents, kinds)
            self._records[layer] = record
        c = choices.c
        load = c.new_zeros(parents, c.shape[1]).index_add(0, choices.dst, c) / len(choices.src.unique())
        b = torch.where(choices.allowed, c.clamp_min(2**-24).log(), BLOCKED)  # float16 begins at 2**-24
        self._records[layer].add(load.unsqueeze(-1), b=b, c=c)
        self._records[layer].arrays["v"].clear()

    def _check_names(self, layer: str, children: int, parents: int, kinds: Mapping[str, str] = {}) -> None:
        for kind, count in (("child", children), ("parent", parents)):
            word = kinds.get(kind, kind)
            if (names := self._names.get(layer, {}).get(word)) is not None:
                expect(len(names) == count, f"names of {layer}", f"{count} of {word}", len(names))
