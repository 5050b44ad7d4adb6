"""What ``torch.compile`` meets where a layer is routed: the edges as a constant, or a call that it doesn't look into.

torch can't look into DGL or Numba. The engine ``torch`` needs neither, once the edges are there as tensors, and is
traced whole. The others are called apart, each call one break in the compiled graph.

Imported while torch traces, and only then: the decorators load its compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._dgl import DGLGraph
from ..graph import Links, links


@torch.compiler.disable
def apart(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """``function(*arguments, **named)``, as if nothing were compiled."""
    return function(*arguments, **named)


def structure(make: Callable[..., DGLGraph], sizes: tuple, device: torch.device) -> Links:
    """The edges on ``device`` of the graph ``make(*sizes)``."""
    src, dst = _ends(make, sizes, device)
    return Links(src, dst, *_about(make, sizes))


# Worked out while torch traces. Of whole Links it would not take the methods, and older ones take no tuple of tensors.
@torch.compiler.assume_constant_result
def _ends(make: Callable[..., DGLGraph], sizes: tuple, device: torch.device) -> torch.Tensor:
    """(2, E): child and parent of each edge."""
    found = links(make(*sizes), device)
    return torch.stack([found.src, found.dst])


@torch.compiler.assume_constant_result
def _about(make: Callable[..., DGLGraph], sizes: tuple) -> tuple[int, int, bool]:
    """I, J, and whether the graph is complete."""
    found = links(make(*sizes))
    return found.num_children, found.num_parents, found.complete
