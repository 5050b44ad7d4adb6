"""The correctness gate: nothing is timed that claims the paper's algorithm and gives other numbers.

Value and gradients are held against ``naive`` in float64 on small graphs, and against engine ``dgl`` in float32 on the
benchmark's own input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..errors import GraphcapsError, InputError
from .baselines import Formulation, engine
from .inputs import Case, small_cases

EXACT = 1e-9  # float64, a few hundred operations
# Largest difference as a share of the largest number: rounding (2^-24, 2^-11, 2^-9) times what sums over some thousand
# edges and three rounds of exp make of it.
CLOSE = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 1e-1}


class Entry(NamedTuple):
    """A formulation, ready to be timed on a case; or, where it can't run here, a note that says why."""

    way: Formulation
    case: Case
    run: Callable[..., torch.Tensor] | None
    tensors: tuple[torch.Tensor, ...]
    note: str

    def forward(self) -> torch.Tensor:
        """From the formulation's own tensors to parents (J, *, D); making linear votes is part of it."""
        assert self.run is not None, self.note
        with torch.no_grad():
            return self.run(*self.tensors)

    def forward_backward(self) -> tuple[torch.Tensor, ...]:
        """Gradients of all its tensors."""
        assert self.run is not None, self.note
        return torch.autograd.grad(self.run(*self.tensors), self.tensors, self.case.cotangent)


class Gate:
    """Lets formulations through to one case's clock."""

    def __init__(self, case: Case, precision: str = "float32"):
        self.case, self.close = case, CLOSE[precision]
        exact = case.to(device="cpu", dtype=torch.float32)
        exact = exact._replace(graph=case.graph.to("cpu"))
        self.wanted = _numbers(engine("dgl"), exact, function(engine("dgl"), exact))

    def admit(self, way: Formulation) -> Entry:
        """An entry that runs, or one that says why not; raise ``GraphcapsError`` for other numbers than wanted."""
        if not (way.any_graph or self.case.complete):
            return self._refused(way, "complete graphs only")
        small_ones = [self._on_own_device(small) for small in small_cases(self.case, complete=not way.any_graph)]
        try:
            run = function(way, self.case)
            found = [_numbers(way, small, function(way, small)) for small in small_ones]
            own = _numbers(way, self.case, run)
        except InputError as error:  # an engine that says what it needs
            return self._refused(way, str(error))
        except ImportError as error:
            return self._refused(way, f"{str(error.name).partition('.')[0]} is not installed")
        except Exception as error:
            if way.engine:
                raise
            return self._refused(way, f"does not run here: {type(error).__name__}: {_first_line(error)}")
        if way.same:
            for small, numbers in zip(small_ones, found, strict=True):
                oracle = _numbers(engine("naive"), small, function(engine("naive"), small))
                _compare(way, numbers, oracle, EXACT, f"naive in float64 on {small.graph.num_edges()} edges")
            _compare(way, own, self.wanted, self.close, f"engine dgl on {self.case.graph.num_edges()} edges")
        tensors = tuple(x.detach().requires_grad_() for x in laid_out(way, self.case, self.case.tensors))
        return Entry(way, self.case, run, tensors, "")

    def _refused(self, way: Formulation, note: str) -> Entry:
        return Entry(way, self.case, None, (), note)

    def _on_own_device(self, small: Case) -> Case:
        """A small case where the gate's own is."""
        small = small.to(device=self.case.tensors[0].device)
        return small._replace(graph=small.graph.to(self.case.graph.device))


def function(way: Formulation, case: Case) -> Callable[..., torch.Tensor]:
    """``way`` on the case's graph, from its own tensors to parents."""
    graph, iterations = case.graph, case.iterations

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        votes = way.votes(graph, *tensors) if case.linear else tensors[0]
        return way.route(graph, votes, iterations)

    return torch.compile(run, dynamic=False) if way.compiled else run


def laid_out(way: Formulation, case: Case, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The case's tensors as the formulation wants them."""
    if case.linear:
        return way.children(case.graph, tensors[0]), way.weights(case.graph, tensors[1])
    return (way.given(case.graph, tensors[0]),)


def _numbers(way: Formulation, case: Case, run: Callable[..., torch.Tensor]) -> dict[str, torch.Tensor]:
    """Parents and the gradients of the case's tensors, on the CPU and in the case's own layout."""
    leaves = tuple(x.detach().requires_grad_() for x in case.tensors)
    v = run(*laid_out(way, case, leaves))
    names = ["value", *(["gradient of u", "gradient of weight"] if case.linear else ["gradient of u_hat"])]
    found = (v.detach(), *torch.autograd.grad(v, leaves, case.cotangent))
    return {name: x.cpu() for name, x in zip(names, found, strict=True)}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:120]


def _compare(way: Formulation, got: dict, wanted: dict, close: float, whose: str) -> None:
    for name, right in wanted.items():
        off = (got[name].to(right.dtype) - right).abs().max() / right.abs().max()
        if not off <= close:  # NaN too
            raise GraphcapsError(
                f"{way.name}: expected the {name} of {whose}, got one that is off by {off:.1e} of the largest number "
                f"(allowed: {close:.0e}). It is not timed"
            )
