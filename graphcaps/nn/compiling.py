"""The links of a layer for images as constants of a compiled program. Import this only while torch traces.

It loads torch's compiler.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from ..graph import ByChild, Links, links_of_layer


def constant_links(sizes: tuple[Any, ...], device: torch.device) -> Links:
    """Return ``links_of_layer(sizes, device)`` with its orders."""
    src, dst, in_degrees, indptr, eid, parent = _tensors(sizes, str(device))
    children, parents, complete, most, in_order = _numbers(sizes, str(device))
    by_child = ByChild(indptr, eid, parent, most, in_order)
    cache: dict[Hashable, Any] = {"in_degrees": in_degrees, "complete": complete, "by_child": by_child}
    return Links(src, dst, children, parents, cache=cache)


@torch.compiler.assume_constant_result
def _tensors(sizes: tuple[Any, ...], device: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    links = links_of_layer(sizes, torch.device(device))
    order = links.by_child
    return links.src, links.dst, links.in_degrees, order.indptr, order.eid, order.dst


@torch.compiler.assume_constant_result
def _numbers(sizes: tuple[Any, ...], device: str) -> tuple[int, int, bool, int, bool]:
    links = links_of_layer(sizes, torch.device(device))
    return links.num_children, links.num_parents, links.complete, links.by_child.most, links.by_child.sorted
