"""The links of a layer for images as constants of a compiled program. Import this only while torch traces.

It loads torch's compiler.
"""

from collections.abc import Hashable
from typing import Any

import torch

from ..graph import ByChild, Links, links_of_layer


def constant_links(sizes: tuple[Any, ...], device: torch.device) -> Links:
    """Return ``links_of_layer(sizes, device)`` with its orders."""
    src, dst, children, parents, in_degrees, complete, by_child = _parts(sizes, str(device))
    cache: dict[Hashable, Any] = {"in_degrees": in_degrees, "complete": complete, "by_child": ByChild(*by_child)}
    return Links(src, dst, children, parents, cache=cache)


@torch.compiler.assume_constant_result
def _parts(sizes: tuple[Any, ...], device: str) -> tuple[Any, ...]:
    links = links_of_layer(sizes, torch.device(device))
    orders = links.in_degrees, links.complete, tuple(links.by_child)
    return links.src, links.dst, links.num_children, links.num_parents, *orders
