"""Formulations of dynamic routing: einsum, and graphcaps' engines. Each is compared with engine ``dgl`` before timing.

Einsum uses votes (B, J, I, D), its fastest layout. Other layouts take up to twice the time.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

import graphcaps
from graphcaps import LinearVotes, dynamic_routing

from .inputs import Case
from .plain import routed
from .tables import not_measured

# Largest accepted error, relative to the largest number. Rounding errors (2^-24, 2^-11, 2^-9) grow in sums over some
# thousand edges and in three softmaxes.
TOLERANCE = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 1e-1}
Tensors = tuple[torch.Tensor, ...]


class Formulation(NamedTuple):
    """A formulation of dynamic routing."""

    name: str
    layout: Callable[[Case, Tensors], Tensors]  # converts tensors to the formulation's layout, untimed
    route: Callable[..., torch.Tensor]  # (case, *tensors) -> parents (J, *, D)
    kinds: tuple[str, ...] = ("given", "linear", "sparse")  # the kinds of votes it can route


def einsum(iterations: int, *tensors: torch.Tensor) -> torch.Tensor:
    """Route votes (B, J, I, D), or children (B, I, P) and weights (I, J, P, D), to parents (J, B, D)."""
    votes = tensors[0] if len(tensors) == 1 else torch.einsum("bip,ijpd->bjid", *tensors).contiguous()
    return routed(iterations, votes).transpose(0, 1)


@functools.cache
def compiled_einsum() -> Callable[..., torch.Tensor]:
    return torch.compile(einsum, dynamic=False)


def einsum_layout(case: Case, tensors: Tensors) -> Tensors:
    *u, of_edges = tensors
    grid = of_edges.unflatten(0, (case.graph.num_src_nodes(), case.graph.num_dst_nodes()))  # (I, J, ...)
    return (u[0].transpose(0, 1).contiguous(), grid) if u else (grid.permute(2, 1, 0, 3).contiguous(),)


def by_image(case: Case, tensors: Tensors) -> Tensors:
    """Lay out votes as (B, I, J, D), and return them as a view (E, B, D)."""
    return (tensors[0].transpose(0, 1).contiguous().transpose(0, 1),)


def on_engine(name: str, case: Case, *tensors: torch.Tensor) -> torch.Tensor:
    votes = LinearVotes(*tensors) if case.linear else tensors[0]
    with graphcaps.engine(name):
        return dynamic_routing(case.graph, votes, case.iterations)


DGL, TORCH, FUSED = (
    Formulation(name, lambda case, tensors: tensors, functools.partial(on_engine, name))
    for name in ("dgl", "torch", "fused")
)
EINSUM, COMPILED = (
    Formulation(name, einsum_layout, route, ("given", "linear"))
    for name, route in (
        ("einsum", lambda case, *tensors: einsum(case.iterations, *tensors)),
        ("einsum, compiled", lambda case, *tensors: compiled_einsum()(case.iterations, *tensors)),
    )
)
FORMULATIONS = (EINSUM, COMPILED, DGL, TORCH, FUSED, Formulation("fused, by image", by_image, FUSED.route, ("given",)))


def results(way: Formulation, case: Case) -> list[torch.Tensor]:
    """The parents, and the gradients of the case's tensors, on the CPU."""
    leaves = tuple(x.detach().requires_grad_() for x in case.tensors)
    v = way.route(case, *way.layout(case, leaves))
    return [x.detach().cpu().float() for x in (v, *torch.autograd.grad(v, leaves, case.cotangent))]


def unsupported_reason(way: Formulation, case: Case, wanted: list[torch.Tensor], precision: str) -> str:
    """The reason why the formulation isn't timed here, or "" if it is.

    It can't run, or its value or gradients differ from the wanted ones, which engine dgl computed.
    """
    try:
        got = results(way, case)
    except Exception as error:  # an engine's message names what it needs
        return not_measured(error)
    for name, x, right in zip(("value", "gradient", "second gradient"), got, wanted, strict=False):
        off = float((x - right).abs().max() / right.abs().max())
        if not off <= TOLERANCE[precision]:  # also True for NaN
            return (
                f"WRONG: expected the {name} of engine dgl, got one that is off by {off:.1e} of the largest number "
                f"(allowed: {TOLERANCE[precision]:.0e})"
            )
    return ""
