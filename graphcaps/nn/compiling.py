"""The links of a layer for images as constants of a compiled program. Import this only while torch traces.

It loads torch's compiler.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from ..graph import ByChild, Links, links_of


def constant_links(sizes: tuple[int, ...], device: torch.device) -> Links:
    """Return ``links_of(sizes, device)`` with its orders."""
    src, dst, in_degrees, indptr, eid, parent = _tensors(sizes, str(device))
    children, parents, complete, most, in_order = _numbers(sizes, str(device))
    by_child = ByChild(indptr, eid, parent, most, in_order)
    orders: dict[Hashable, Any] = {"in_degrees": in_degrees, "complete": complete, "by_child": by_child}
    return Links(src, dst, children, parents, orders=orders)


@torch.compiler.assume_constant_result
def _tensors(sizes: tuple[int, ...], device: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    edges = links_of(sizes, torch.device(device))
    order = edges.by_child
    return edges.src, edges.dst, edges.in_degrees, order.indptr, order.eid, order.dst


@torch.compiler.assume_constant_result
def _numbers(sizes: tuple[int, ...], device: str) -> tuple[int, int, bool, int, bool]:
    edges = links_of(sizes, torch.device(device))
    return edges.num_children, edges.num_parents, edges.complete, edges.by_child.most, edges.by_child.sorted
