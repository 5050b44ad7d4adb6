"""Recording of one routing, iteration by iteration, as a routing trace."""

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..graph import Links
from ..viz.routing_trace import RoutingTrace

NO_LIMIT = sys.maxsize


class LayerRecord:
    """Arrays of one routing, limited to the first children and images by the limits of ``watch``.

    ``layer`` is "" outside all layers. ``nodes`` are the user's graph if votes go along its edges, else None.
    """

    def __init__(self, layer: str, ends: Links, nodes: Links | None, images: int | None, edges: int | None):
        src, dst, recorded = ends.src.cpu(), ends.dst.cpu(), torch.arange(ends.num_edges)
        self.images, self.edges = images or NO_LIMIT, edges or NO_LIMIT
        self.num_children, self.num_parents = ends.num_children, ends.num_parents
        self.about: dict[str, str] = {"layer": layer} if layer else {}
        self.recorded: Tensor | slice = slice(None)
        if len(src) > self.edges:
            up_to_child = torch.bincount(src, minlength=self.num_children).cumsum(0)  # (I,)
            self.num_children = max(1, int((up_to_child <= self.edges).sum()))
            self.recorded = recorded = (src < self.num_children).nonzero().squeeze(1)
            self.about["edges"] = f"{len(recorded)} of {len(src)}"
            self.about["children"] = f"{self.num_children} of {ends.num_children}"
            src, dst = src[recorded], dst[recorded]
        self.parents: Tensor | None = None
        if self.num_parents > self.edges:
            self.parents, dst = dst.unique(return_inverse=True)
            self.about["parents"] = f"{len(self.parents)} of {self.num_parents}"
            self.num_parents = len(self.parents)
        self.src, self.dst = src, dst
        self.nodes, self.num_caps = None, 1
        if nodes is not None and nodes.one_kind:
            self.num_caps = ends.num_edges // max(1, nodes.num_edges)
            along = recorded // max(1, self.num_caps)
            self.nodes = torch.stack([nodes.src.cpu()[along], nodes.dst.cpu()[along]], 1)
        self.arrays: dict[str, list[np.ndarray]] = {"b": [], "c": [], "agreement": [], "lengths": [], "v": []}

    def add(self, v: Tensor, **edge_numbers: Tensor) -> None:
        """Record an iteration: parents (J, *, D) and numbers for each edge (E, *)."""
        v = v.detach().flatten(1, -2) if v.dim() > 2 else v.detach().unsqueeze(1)  # (J, N, D)
        v = self._first_images(v if self.parents is None else v[self.parents])
        if v.shape[0] * v.shape[2] <= self.edges:
            self.arrays["v"].append(_finite(v.transpose(0, 1), np.float16))
        else:
            self.about["v"] = f"none of {v.shape[0]} x {v.shape[2]} numbers"
        self.arrays["lengths"].append(_finite(torch.linalg.vector_norm(v, dim=-1).T, np.float32))
        for name, values in edge_numbers.items():
            values = values.detach().flatten(1) if values.dim() > 1 else values.detach().unsqueeze(1)  # (E, N)
            self.arrays[name].append(_finite(self._first_images(values)[self.recorded].T, np.float16))

    def _first_images(self, values: Tensor) -> Tensor:
        if values.shape[1] > self.images:
            self.about["images"] = f"{self.images} of {values.shape[1]}"
        return values[:, : self.images]

    def trace(self) -> RoutingTrace:
        """Make a trace of one epoch from the iterations so far."""
        arrays: dict[str, Any] = {name: np.stack(values)[None] for name, values in self.arrays.items() if values}
        indices = {"src": self.src, "dst": self.dst, "parents": self.parents, "nodes": self.nodes}
        arrays |= {name: None if value is None else value.numpy().astype(np.int32) for name, value in indices.items()}
        return RoutingTrace(
            num_children=self.num_children,
            num_parents=self.num_parents,
            epochs=np.zeros(1, np.int32),
            trained_iterations=arrays["c"].shape[1],
            num_caps=self.num_caps,
            about=dict(self.about),
            **arrays,
        )


def _finite(values: Tensor, dtype: type) -> np.ndarray:
    """Convert to ``dtype``. Finite numbers beyond its range, such as large logits of EM, are clipped to the range."""
    numbers, most = values.cpu().numpy(), np.finfo(dtype).max
    return np.where(np.isfinite(numbers), numbers.clip(-most, most), numbers).astype(dtype)
