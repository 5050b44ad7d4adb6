"""Record what routed layers do while a network of the user's own runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import check_whole, expect
from ..graph import complete_graph, links
from ..nn.node_caps import NodeCapsules
from ..routing import Dynamic, route
from ..routing.edges import Observer
from ..routing.observers import recording
from .routing_trace import RoutingTrace

BARE = "route"  # the name of a routing in no submodule


@contextmanager
def watch(module: nn.Module | None = None, *, images: int | None = 8, edges: int | None = 20_000) -> Iterator[Watched]:
    """Record every routing inside the block: of a network's layers, and of bare calls of ``graphcaps.route``.

    The network's outputs and gradients stay as they are, up to rounding: layers for graphs, whose fastest pass makes no
    couplings of single iterations, take another with the same numbers. Not recorded are other threads, and code that
    ``torch.compile`` has traced: watch the network before it is compiled.

    Args:
        module: whose submodules give their names to the routings in them; None: all are called ``"route"``.
        images: of each routing, how many items (images, or all trailing dims together) are recorded; None: all.
        edges: how many edges are recorded, of the first children, each with all of its edges; None: all. What is left
            out is said in the record's ``about``.

    Yields:
        ``Watched``: by a layer's name the ``RoutingTrace`` of its last call.

    >>> import graphcaps
    >>> net = nn.Sequential(graphcaps.nn.CapsuleLayer(20, 10))
    >>> with watch(net) as seen:
    ...     v = net(torch.zeros(20, 2, 8))
    >>> seen.names, seen["0"].c.shape
    (('0',), (1, 3, 2, 200))
    """
    for name, limit in (("images", images), ("edges", edges)):
        if limit is not None:
            check_whole(name, limit)
    seen = Watched(images, edges)
    with ExitStack() as stack:
        for name, part in [] if module is None else module.named_modules():
            if name and not isinstance(part, NodeCapsules):  # inside CapsuleConv and CapsuleReadout, which have names
                stack.callback(part.register_forward_pre_hook(partial(seen._enter, name)).remove)
                stack.callback(part.register_forward_hook(seen._leave, always_call=True).remove)
        stack.enter_context(recording(seen._record))
        yield seen


def random_trace(num_children: int, num_parents: int, iterations: int = 10, seed: int = 0) -> RoutingTrace:
    """Dynamic routing of standard normal 16-D votes on a complete graph; 20 x 10 is the DGL tutorial's example."""
    votes = torch.randn(num_children * num_parents, 16, generator=torch.Generator().manual_seed(seed))
    with watch(edges=None) as seen:
        route(complete_graph(num_children, num_parents), votes, Dynamic(iterations))
    return dataclasses.replace(seen["route"], about={"dataset": "random votes", "seed": seed})


class Watched:
    """The last routing of each layer, by name: of the innermost submodule, or ``"route"`` outside all submodules."""

    def __init__(self, images: int | None, edges: int | None):
        self._limits = images, edges
        self._running: list[str] = []
        self._records: dict[str, _Record] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the layers that have routed, in the order of their first call."""
        return tuple(self._records)

    def __getitem__(self, name: str) -> RoutingTrace:
        expect(name in self._records, "name", f"one of {self.names}, which have routed", repr(name))
        return self._records[name].trace()

    def traces(self) -> dict[str, RoutingTrace]:
        """All of them, by name."""
        return {name: self[name] for name in self.names}

    def save(self, path: str | os.PathLike) -> list[Path]:
        """Write a file for ``graphcaps viz``, or one for each of several layers, and return their paths.

        For ``routing.npz`` those of several layers are called ``routing-<name>.npz``.
        """
        expect(len(self._records) > 0, "names", "a layer that has routed", "none", "Call the network in watch's block")
        path = Path(path)
        paths = [path.with_stem(f"{path.stem}-{name}") for name in self.names] if len(self._records) > 1 else [path]
        for trace, file in zip(self.traces().values(), paths, strict=True):
            trace.save(file)
        return paths

    def _enter(self, name: str, module: nn.Module, inputs: Any) -> None:
        self._running.append(name)

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._running.pop()

    def _record(self, graph: DGLGraph) -> Observer:
        name = self._running[-1] if self._running else BARE
        record = _Record(name, graph, *self._limits)

        def add(r: int, b: Tensor, c: Tensor, v: Tensor, agreement: Tensor) -> None:
            self._records[name] = record
            record.add(b=b, c=c, agreement=agreement, lengths=torch.linalg.vector_norm(v.detach(), dim=-1))

        return add


class _Record:
    """One routing, iteration by iteration."""

    def __init__(self, name: str, graph: DGLGraph, images: int | None, edges: int | None):
        ends = links(graph)
        self.src, self.dst = (end.cpu() for end in (ends.src, ends.dst))
        self.num_children, self.num_parents, self.images = ends.num_children, ends.num_parents, images
        self.about: dict[str, str] = {} if name == BARE else {"layer": name}
        self.selected: Tensor | None = None
        if edges is not None and len(self.src) > edges:
            ends_of_children = torch.bincount(self.src, minlength=self.num_children).cumsum(0)
            self.num_children = max(1, int((ends_of_children <= edges).sum()))
            self.selected = (self.src < self.num_children).nonzero().squeeze(1)
            self.about["edges"] = f"{len(self.selected)} of {len(self.src)}"
            self.about["children"] = f"{self.num_children} of {ends.num_children}"
            self.src, self.dst = self.src[self.selected], self.dst[self.selected]
        self.arrays: dict[str, list[np.ndarray]] = {"b": [], "c": [], "agreement": [], "lengths": []}

    def add(self, **state: Tensor) -> None:
        """Numbers per edge (E, *), and lengths (J, *)."""
        for name, values in state.items():
            values = values.detach()
            values = values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)  # (E or J, N)
            if self.images is not None and values.shape[1] > self.images:
                self.about["images"] = f"{self.images} of {values.shape[1]}"
                values = values[:, : self.images]
            if self.selected is not None and name != "lengths":
                values = values[self.selected.to(values.device)]
            self.arrays[name].append(_finite(values.T.cpu().numpy(), np.float32 if name == "lengths" else np.float16))

    def trace(self) -> RoutingTrace:
        arrays: dict[str, Any] = {name: np.stack(values)[None] for name, values in self.arrays.items()}
        return RoutingTrace(
            src=self.src.numpy().astype(np.int32),
            dst=self.dst.numpy().astype(np.int32),
            num_children=self.num_children,
            num_parents=self.num_parents,
            epochs=np.zeros(1, np.int32),
            trained_iterations=arrays["c"].shape[1],
            about=dict(self.about),
            **arrays,
        )


def _finite(values: np.ndarray, dtype: type) -> np.ndarray:
    """``values`` as ``dtype``, where finite ones beyond it, as logits of EM routing may be, become its largest."""
    most = np.finfo(dtype).max
    return np.where(np.isfinite(values), values.clip(-most, most), values).astype(dtype)
