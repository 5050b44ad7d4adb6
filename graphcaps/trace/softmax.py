"""A softmax over a set that any module computes, read as couplings of children with parents."""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .._dgl import DGLGraph
from ..errors import expect, required
from ..graph import read_graph

ATTENTION = ("return_attention_weights", "get_attention")  # with these, layers of PyG and DGL return it too
WORDS = re.compile(r"(?:(?P<image>\w+(?:, \w+)*): )?(?P<child>\w+) -> (?P<parent>\w+)")
ROUNDING = 0.01  # in half precision, a softmax sums to 1 within this


class Choices(NamedTuple):
    """What a softmax chose: children among parents, along E edges, in N images."""

    src: Tensor
    """(E,), the child of each edge."""
    dst: Tensor
    """(E,), the parent."""
    c: Tensor
    """(E, N), the couplings."""
    allowed: Tensor
    """(E, N) bool: False where the logit was -inf, so that the child couldn't choose this parent."""
    trailing: tuple[int, ...]
    """The sizes of the dims that make up N."""


class SoftmaxReader:
    """Reads a softmax that was named to ``watch``, in each call of its module, and records its choices.

    Args:
        name, module: the module that computes it, and its name.
        description: the words; or words and a function that reads the softmax; or words, function or None, and dim.
        record: called in each call of the module with the words and the choices.
    """

    def __init__(self, name: str, module: nn.Module, description: Any, record: Callable[[dict, Choices], None]):
        words, *rest = (description,) if isinstance(description, str) else description
        self.read, self.dim = (*rest, None, None)[:2]
        self.name, self.words, self.record = f"softmax of {name}", words, record
        match = required(WORDS.fullmatch(words), self.name, "words such as 'token -> expert'", repr(words))
        self.kinds: dict[str, str] = match.groupdict("image")
        self.signature = inspect.signature(module.forward)
        flags = (flag for flag in ATTENTION if self.read is None and flag in self.signature.parameters)
        self.flag = next(flags, None)  # the argument with which the layer returns its attention
        self.calls: list[_Call] = []  # those that are running

    def hooks(self, module: nn.Module) -> tuple:
        """Hook the module. Its output stays the same."""
        after = module.register_forward_hook(self._after, prepend=True, always_call=True)
        return module.register_forward_pre_hook(self._before, with_kwargs=True), after

    def _before(self, module: nn.Module, args: tuple, named: dict[str, Any]) -> Any:
        call = _Call()
        self.calls.append(call)
        call.__enter__()
        if self.flag is None:
            return None
        bound = self.signature.bind(*args, **named)
        call.arguments = dict(bound.arguments)
        bound.arguments[self.flag] = True
        return bound.args, bound.kwargs

    def _after(self, module: nn.Module, args: tuple, output: Any) -> Any:
        if not self.calls:
            return output
        call = self.calls.pop()
        call.__exit__(None, None, None)
        if output is None:  # the module failed
            return None
        softmax = output if self.read is None else self.read(module, args, output)
        if self.flag is not None:
            pair = isinstance(output, tuple) and len(output) == 2
            expect(pair, self.name, "a layer that returns its attention", type(output).__name__)
            graph = next(iter(call.arguments.values()))
            softmax = output[1] if isinstance(output[1], tuple) else (graph, output[1])  # of PyG, of DGL
            output = output if call.arguments.get(self.flag) else output[0]
        self.record(self.kinds, self._choices(softmax, call))
        return output

    def _choices(self, softmax: Any, call: "_Call") -> Choices:
        """Return the choices of a tensor (*, I, J), or of a pair of edges and numbers (E, *)."""
        readings = {dim: choices for dim, choices in self._readings(softmax, call).items() if is_softmax(choices)}
        advice = "Give a function that returns them, and watch in eval mode, because dropout changes attention"
        expect(len(readings) > 0, self.name, "numbers >= 0 that sum to 1 over a set", "others", advice)
        advice = f"Give the dim of the set: ({self.words!r}, {'None' if self.read is None else 'the function'}, dim)"
        expect(len(readings) == 1, self.name, "one dim over which numbers sum to 1", f"dims {[*readings]}", advice)
        (choices,) = readings.values()
        sizes, kinds = choices.trailing, self.kinds
        example = ", ".join(["image", "head", *map("dim{}".format, range(len(sizes)))][: len(sizes)])
        advice = f"Write '{example}: {kinds['child']} -> {kinds['parent']}'"
        has_words = len(sizes) < 2 or kinds["image"].count(",") + 1 == len(sizes)
        expect(has_words, self.name, f"a word for each of the dims {sizes}", f"'{kinds['image']}'", advice)
        return choices

    def _readings(self, softmax: Any, call: "_Call") -> dict[int, Choices]:
        """Return the choices for each dim over which the softmax may run."""
        if isinstance(softmax, Tensor):
            c = torch.atleast_2d(softmax)
            dim, allowed = call.softmax_of(c) or (None, torch.ones_like(c, dtype=torch.bool))
            dim = dim if self.dim is None else self.dim
            return {dim: of_tensor(c, allowed, dim) for dim in (range(c.dim()) if dim is None else [dim])}
        if not (isinstance(softmax, tuple) and len(softmax) == 2 and isinstance(softmax[1], Tensor)):
            return {}
        if self.flag is not None:
            return {1: of_edges(*softmax, 1)}  # in attention, the target of an edge chooses
        if isinstance(softmax[0], Tensor) and softmax[0].is_floating_point():
            return {}
        return {dim: of_edges(*softmax, dim) for dim in (range(2) if self.dim is None else [self.dim])}


def of_tensor(c: Tensor, allowed: Tensor, dim: int) -> Choices:
    """Return the choices among the numbers of c (*, I, J) that lie along ``dim``."""
    c, allowed = (x.movedim(dim, -1).detach().cpu() for x in (c, allowed))
    src, dst = torch.cartesian_prod(*map(torch.arange, c.shape[-2:])).T
    trailing, c, allowed = tuple(c.shape[:-2]), *(x.reshape(-1, len(src)).T for x in (c, allowed))
    return Choices(src, dst, torch.where(allowed, c.float(), 0), allowed, trailing)  # NaN if nothing is allowed


def of_edges(edges: Any, c: Tensor, dim: int) -> Choices:
    """Return the choices among the numbers c (E, *) on the edges that share their source (dim 0) or target (dim 1)."""
    if not isinstance(edges, Tensor):
        edges = edges.edges(order="eid") if isinstance(edges, DGLGraph) else read_graph(edges).edge_index
    src, dst, trailing = edges[dim].long().cpu(), edges[1 - dim].long().cpu(), c.shape[1:]
    c = c.reshape(len(c), -1).detach().cpu().float()
    return Choices(src, dst, c, torch.ones_like(c, dtype=torch.bool), tuple(size for size in trailing if size > 1))


def is_softmax(choices: Choices) -> bool:
    """Whether the numbers of each child that may choose are >= 0 and sum to 1."""
    src, c, allowed = choices.src, choices.c, choices.allowed.float()
    children = int(src.max()) + 1 if len(src) else 0
    sums, options = (x.new_zeros(children, x.shape[1]).index_add(0, src, x) for x in (c, allowed))  # (I, N)
    return children > 0 and bool((((sums - 1).abs() < ROUNDING) | (options == 0)).all() and (c >= 0).all())


class _Call(TorchDispatchMode):
    """A call of the module, and the softmaxes that torch computes in it: logits, result and dim of each."""

    def __init__(self):
        super().__init__()
        self.arguments: dict[str, Any] = {}  # of a layer that can return its attention
        self.softmaxes: list[tuple[Tensor, Tensor, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) in ("aten._softmax.default", "aten._safe_softmax.default"):  # older torch has only one of them
            self.softmaxes.append((args[0].detach(), result.detach(), args[1] % max(1, result.dim()) - result.dim()))
        return result

    def softmax_of(self, c: Tensor) -> tuple[int, Tensor] | None:
        """Return the dim of the softmax that gave c (*, I, J), from the end, and where its logits were finite.

        The result may also be the mean over heads.
        """
        size = c.shape[-2:].numel()
        for logits, result, dim in reversed(self.softmaxes):
            whole = torch.atleast_2d(result)
            if whole.shape[-2:] == c.shape[-2:] and dim >= -2 and c.numel() and whole.numel() % c.numel() == 0:
                shape = c.numel() // size, -1, *c.shape[-2:]
                if torch.allclose(whole.reshape(shape).mean(1).reshape(c.shape).to(c.dtype), c, atol=1e-3):
                    allowed = torch.atleast_2d(logits).reshape(shape) > -torch.inf
                    return dim, allowed.any(1).reshape(c.shape)
        return None
