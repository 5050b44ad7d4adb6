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


class Softmax:
    """A softmax that was named to ``watch``, for the length of its block.

    Args:
        name, module: the module that computes it, and its name.
        given: the words; or words and a function that reads the softmax; or words, function or None, and dim.
        record: called in each call of the module with the words and the choices.
    """

    def __init__(self, name: str, module: nn.Module, given: Any, record: Callable[[dict[str, str], Choices], None]):
        words, self.read, self.dim = (given, None, None) if isinstance(given, str) else (*given, None)[:3]
        self.name, self.words = f"softmax of {name}", words
        match = required(WORDS.fullmatch(words), self.name, "words such as 'token -> expert'", repr(words))
        self.kinds: dict[str, str] = match.groupdict("image")
        self.signature, self.record = inspect.signature(module.forward), record
        self.flags = [flag for flag in ATTENTION if self.read is None and flag in self.signature.parameters]
        self.asked: Any = None
        self.graph: Any = None
        self.calls: list[_Calls] = []

    def hooks(self, module: nn.Module) -> tuple:
        """Hook the module. Its output stays the same."""
        after = module.register_forward_hook(self._after, prepend=True, always_call=True)
        return module.register_forward_pre_hook(self._before, with_kwargs=True), after

    def _before(self, module: nn.Module, args: tuple, named: dict[str, Any]) -> Any:
        self.calls.append(_Calls())
        self.calls[-1].__enter__()
        for flag in self.flags:
            call = self.signature.bind(*args, **named)
            self.asked, self.graph = call.arguments.get(flag), next(iter(call.arguments.values()))
            call.arguments[flag] = True
            return call.args, call.kwargs

    def _after(self, module: nn.Module, args: tuple, output: Any) -> Any:
        if not self.calls:
            return output
        calls = self.calls.pop()
        calls.__exit__(None, None, None)
        if output is None:  # the module failed
            return None
        softmax = output if self.read is None else self.read(module, args, output)
        if self.flags:
            pair = isinstance(output, tuple) and len(output) == 2
            expect(pair, self.name, "a layer that returns its attention", type(output).__name__)
            softmax = output[1] if isinstance(output[1], tuple) else (self.graph, output[1])  # of PyG, of DGL
            output = output if self.asked else output[0]
        self.record(self.kinds, self._choices(softmax, calls))
        return output

    def _choices(self, softmax: Any, calls: "_Calls") -> Choices:
        """Read a tensor (*, I, J) or a pair of edges and numbers (E, *)."""
        allowed: Tensor | None = None
        dims: Sequence[int] = ()  # those over which it may run
        if isinstance(softmax, Tensor):
            softmax = torch.atleast_2d(softmax)
            dims = range(softmax.dim())
            if (computed := calls.of(softmax)) is not None:
                dims, allowed = [computed[0]], computed[1]
        elif isinstance(softmax, tuple) and len(softmax) == 2 and isinstance(softmax[1], Tensor):
            is_pair = not (isinstance(softmax[0], Tensor) and softmax[0].is_floating_point())
            dims = [1] if self.flags else range(2 * is_pair)  # in attention, the target of an edge chooses
        if self.dim is not None and dims and not self.flags:
            dims = [self.dim]
        fits = {dim: choices for dim in dims if (choices := self._along(softmax, allowed, dim)) is not None}
        advice = "Give a function that returns them, and watch in eval mode, because dropout changes attention"
        expect(len(fits) > 0, self.name, "numbers >= 0 that sum to 1 over a set", "others", advice)
        advice = f"Give the dim of the set: ({self.words!r}, {'None' if self.read is None else 'the function'}, dim)"
        expect(len(fits) == 1, self.name, "one dim over which numbers sum to 1", f"dims {[*fits]}", advice)
        (choices,) = fits.values()
        sizes, kinds = choices.trailing, self.kinds
        example = ", ".join(["image", "head", *map("dim{}".format, range(len(sizes)))][: len(sizes)])
        advice = f"Write '{example}: {kinds['child']} -> {kinds['parent']}'"
        has_words = len(sizes) < 2 or kinds["image"].count(",") + 1 == len(sizes)
        expect(has_words, self.name, f"a word for each of the dims {sizes}", f"'{kinds['image']}'", advice)
        return choices

    def _along(self, softmax: Any, allowed: Tensor | None, dim: int) -> Choices | None:
        """Return the choices among what lies along ``dim``, or None if the numbers don't sum to 1 there."""
        if isinstance(softmax, Tensor):
            src, dst = torch.cartesian_prod(*map(torch.arange, softmax.movedim(dim, -1).shape[-2:])).T
            trailing = tuple(softmax.movedim(dim, -1).shape[:-2])
            free = torch.ones_like(softmax, dtype=torch.bool) if allowed is None else allowed
            c, free = (x.movedim(dim, -1).reshape(-1, len(src)).T.detach().cpu() for x in (softmax, free))
        else:
            edges, numbers = softmax
            ends = edges
            if not isinstance(edges, Tensor):
                ends = edges.edges(order="eid") if isinstance(edges, DGLGraph) else read_graph(edges).edge_index
            src, dst = ends[dim].long().cpu(), ends[1 - dim].long().cpu()
            c = numbers.reshape(len(numbers), -1).detach().cpu()
            trailing = tuple(size for size in numbers.shape[1:] if size > 1)
            free = torch.ones_like(c, dtype=torch.bool)
        c = torch.where(free, c.float(), 0)  # if nothing is allowed, torch's softmax is NaN
        sums, choosing = (_sums(x, src)[src] for x in (c, free.float()))
        fits = len(src) > 0 and bool((((sums - 1).abs() < ROUNDING) | (choosing == 0)).all() and (c >= 0).all())
        return Choices(src, dst, c, free, trailing) if fits else None


def _sums(values: Tensor, src: Tensor) -> Tensor:
    """The sum of values (E, N) over each child's edges, (I, N)."""
    children = int(src.max()) + 1 if len(src) else 0
    return values.new_zeros(children, values.shape[1]).index_add(0, src, values)


class _Calls(TorchDispatchMode):
    """The softmaxes that torch computes: logits, result and dim of each."""

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[Tensor, Tensor, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) in ("aten._softmax.default", "aten._safe_softmax.default"):  # older torch has only one of them
            self.calls.append((args[0].detach(), result.detach(), args[1] % max(1, result.dim()) - result.dim()))
        return result

    def of(self, c: Tensor) -> tuple[int, Tensor] | None:
        """Return the dim of the softmax that gave c (*, I, J), from the end, and where its logits were finite.

        The result may also be the mean over heads.
        """
        size = c.shape[-2:].numel()
        for logits, result, dim in reversed(self.calls):
            whole = torch.atleast_2d(result)
            if whole.shape[-2:] == c.shape[-2:] and dim >= -2 and c.numel() and whole.numel() % c.numel() == 0:
                shape = c.numel() // size, -1, *c.shape[-2:]
                if torch.allclose(whole.reshape(shape).mean(1).reshape(c.shape).to(c.dtype), c, atol=1e-3):
                    allowed = torch.atleast_2d(logits).reshape(shape) > -torch.inf
                    return dim, allowed.any(1).reshape(c.shape)
        return None
