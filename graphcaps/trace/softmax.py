"""A softmax over a set that any module computes, read as couplings of children with parents."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .._dgl import DGLGraph
from ..errors import InputError, required
from ..graph import read_graph

ATTENTION = ("return_attention_weights", "get_attention")  # with these, layers of PyG and DGL return it too
ROUNDING = 0.01  # in half precision, a softmax sums to 1 within this


def read_softmax(name: str, module: nn.Module, given: Any, found: Callable[..., None]) -> tuple:
    """Hook a module, whose softmax is ``given`` to ``watch``, and return the two hooks. Its output stays the same.

    In each call, ``found`` gets the words, the child and the parent of each edge (E,), and the couplings (E, N).
    """
    words, read = (given, None) if isinstance(given, str) else given
    match = re.fullmatch(r"(?:(?P<image>\w+): )?(?P<child>\w+) -> (?P<parent>\w+)", words)
    match = required(match, f"softmax of {name}", "words such as 'token -> expert'", repr(words))
    signature = inspect.signature(module.forward)
    flags = [flag for flag in ATTENTION if read is None and flag in signature.parameters]
    asked, graph = None, None

    def before(module: nn.Module, args: tuple, named: dict[str, Any]) -> Any:
        nonlocal asked, graph
        for flag in flags:
            call = signature.bind(*args, **named)
            asked, graph = call.arguments.get(flag), next(iter(call.arguments.values()))
            call.arguments[flag] = True
            return call.args, call.kwargs

    def after(module: nn.Module, args: tuple, output: Any) -> Any:
        softmax = output if read is None else read(module, args, output)
        if flags:
            softmax = output[1] if isinstance(output[1], tuple) else (graph, output[1])  # of PyG, of DGL
            output = output if asked else output[0]
        pair = isinstance(softmax, tuple) and not (isinstance(softmax[0], Tensor) and softmax[0].is_floating_point())
        for dim in range(softmax.dim())[::-1] if isinstance(softmax, Tensor) else (1, 0) if pair else ():
            src, dst, c = _couplings(softmax, dim)
            sums = c.new_zeros(int(src.max()) + 1, c.shape[1]).index_add(0, src, c)[src]
            if ((sums - 1).abs() < ROUNDING).all() and (c >= 0).all():
                found(match.groupdict("image"), src, dst, c)
                return output
        advice = "Give a function that returns them, and watch in eval mode, because dropout changes attention"
        raise InputError(f"softmax of {name}: expected numbers >= 0 that sum to 1 over a set, got others. {advice}")

    return module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after, prepend=True)


def _couplings(softmax: Any, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Child and parent of each edge (E,), and numbers (E, N), if children choose among what lies along ``dim``."""
    if isinstance(softmax, Tensor):
        c = torch.atleast_2d(softmax).movedim(dim, -1)  # (*, I, J)
        ends = torch.cartesian_prod(*map(torch.arange, c.shape[-2:])).T
        return *ends, c.detach().float().cpu().reshape(-1, ends.shape[1]).T
    edges, c = softmax
    if not isinstance(edges, Tensor):
        edges = edges.edges(order="eid") if isinstance(edges, DGLGraph) else read_graph(edges).edge_index
    return edges[dim].long().cpu(), edges[1 - dim].long().cpu(), c.detach().float().cpu().reshape(len(c), -1)
