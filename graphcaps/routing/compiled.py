"""What ``torch.compile`` meets where a layer is routed: the edges as a constant, or a call that it doesn't look into.

torch can't look into DGL or Numba. The engine ``torch`` needs neither, once the edges are there as tensors, and is
traced whole. The others are called apart, each call one break in the compiled graph.

Imported while torch traces, and only then: the decorators load its compiler.
"""

from __future__ import annotations

import functools
import itertools
import types
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
    src, dst = _ENDS[_number(make, sizes)](make, sizes, device)
    return Links(src, dst, *_about(make, sizes))


def _ends(make: Callable[..., DGLGraph], sizes: tuple, device: torch.device) -> torch.Tensor:
    return _kept_ends(make, sizes, device)


def _named(number: int) -> Callable[..., torch.Tensor]:
    """``_ends`` by a name of its own: torch up to 2.14 tells constants apart by the name of what made them.

    Called while torch traces, which would not take the methods of whole Links; older ones take no tuple of tensors.
    """
    code = _ends.__code__.replace(co_name=f"_ends_{number}")
    return torch.compiler.assume_constant_result(types.FunctionType(code, globals()))


_ENDS = tuple(_named(number) for number in range(32))  # of as many different graphs in one network
_NUMBERS = itertools.count()


@functools.cache
def _kept_ends(make: Callable[..., DGLGraph], sizes: tuple, device: torch.device) -> torch.Tensor:
    """(2, E): child and parent of each edge; the same tensor each time, so that layers on one graph share it."""
    found = links(make(*sizes), device)
    with torch.inference_mode(False):  # else it could not be used in a training later
        return torch.stack([found.src, found.dst])


@functools.cache
def _kept_number(make: Callable[..., DGLGraph], sizes: tuple) -> int:
    return next(_NUMBERS) % len(_ENDS)


@torch.compiler.assume_constant_result
def _number(make: Callable[..., DGLGraph], sizes: tuple) -> int:
    """Which of ``_ENDS`` is this graph's."""
    return _kept_number(make, sizes)


@torch.compiler.assume_constant_result
def _about(make: Callable[..., DGLGraph], sizes: tuple) -> tuple[int, int, bool]:
    """I, J, and whether the graph is complete."""
    found = links(make(*sizes))
    return found.num_children, found.num_parents, found.complete
