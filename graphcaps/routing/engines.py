"""The routings, a record each, and which engine runs them. docs/architecture.md says how to add one."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._dgl import DGLGraph, has_cuda
from ..errors import check_name, expect
from ..graph import links
from . import fused, naive
from .attention import attention
from .dynamic import dynamic
from .edge_ops import DenseEdges, Observer, Parents, edges_of
from .em import EMParameters, em
from .gradient import lean_dynamic, lean_uniform, seen_into
from .inverted import InvertedParameters, inverted
from .nobody import lean_nobody, nobody
from .once import once_differentiable
from .proof import proven
from .spherical import SphericalParameters, spherical
from .uniform import uniform
from .votes import LinearVotes, MatrixVotes

log = logging.getLogger("graphcaps")

Votes = Tensor | LinearVotes | MatrixVotes
Parameters = SphericalParameters | InvertedParameters | EMParameters
# function(graph, votes (E, *, D), activation (I, *) or None, b (E, *), iterations, on_iteration, squash_output,
# parameters) -> v (J, *, D), or the pose unsquashed, and activation (J, *)
Engine = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Routing:
    """One routing algorithm: what engines, layers and messages know of it.

    Args:
        algorithm: as the paper has it, over ``edge_ops``; runs on the engines ``dgl`` and ``torch``.
        naive: the oracle, in loops.
        lean: the algorithm with a gradient of its own that moves less memory, for the engine ``torch``, or None.
        fused: the engine of few passes, or None.
        fused_votes: the kinds of votes that ``fused`` takes as they are, of half precision too.
        fused_devices: where ``fused`` runs.
        not_fused: why there is no ``fused``, in a sentence that begins with the routing's name.
        parameters: the type of what may be given as ``parameters``, or None.
        one_pass: whether it couples once, whatever the number of iterations.
        uses_activation: whether it weighs children by their activations.
    """

    algorithm: Callable[..., Parents]
    naive: Engine
    lean: Callable[..., Parents] | None = None
    fused: Engine | None = None
    fused_votes: tuple[type, ...] = (Tensor, LinearVotes)
    fused_devices: tuple[str, ...] = ("cpu", "cuda")
    not_fused: str = ""
    parameters: type[Parameters] | None = None
    one_pass: bool = False
    uses_activation: bool = False


ROUTINGS = {
    "dynamic": Routing(dynamic, naive.dynamic, lean_dynamic, fused.dynamic),
    "uniform": Routing(uniform, naive.uniform, lean_uniform, fused.uniform, one_pass=True),
    "nobody": Routing(nobody, naive.nobody, lean_nobody, fused.nobody, fused_devices=("cpu",)),
    "attention": Routing(attention, naive.attention, fused=fused.attention, fused_devices=("cpu",), one_pass=True),
    "spherical": Routing(
        spherical,
        naive.spherical,
        fused=fused.spherical,
        fused_devices=("cpu",),
        parameters=SphericalParameters,
    ),
    "inverted": Routing(
        inverted,
        naive.inverted,
        not_fused="normalises the parents between them, and doesn't add up its logits",
        parameters=InvertedParameters,
    ),
    "em": Routing(
        em,
        naive.em,
        fused=fused.matrix_em,
        fused_votes=(MatrixVotes,),
        fused_devices=("cpu",),
        not_fused="also needs, for each number of the votes, the sum of squares around a parent's mean",
        parameters=EMParameters,
        uses_activation=True,
    ),
}


def routing_names() -> list[str]:
    """Names of the routing algorithms."""
    return list(ROUTINGS)


def engine_names(routing: str = "dynamic", votes: type = Tensor) -> list[str]:
    """Names of the engines that run ``routing`` on such votes, whatever the device."""
    record = ROUTINGS[routing]
    fused_too = record.fused is not None and votes in record.fused_votes
    return ["naive", "dgl", "torch", *(["fused"] if fused_too else [])]


def choose_engine(graph: DGLGraph, votes: Votes, routing: str = "dynamic") -> str:
    """The engine ``"auto"`` stands for: ``fused``, if ``routing`` has it there; else ``torch`` if the graph is complete
    or elsewhere than the votes; else ``dgl``.

    Where torch traces, in ``torch.export`` and ``torch.compile``, and within ``torch.func``'s transforms, it is
    ``torch``, which it can look into.

    On CUDA ``fused`` is tried first, once for each kind of votes, device, torch and Triton, and taken only if its
    numbers are right (``graphcaps.routing.proof``). The verdict is kept in the user's cache folder.

    >>> from graphcaps import complete_graph
    >>> choose_engine(complete_graph(3, 2), torch.zeros(6, 4))
    'fused'
    """
    if seen_into():
        return "torch"
    device = _device(votes)
    if "fused" in engine_names(routing, type(votes)) and not why_not_fused(routing, votes):
        if device.type == "cpu" or isinstance(votes, MatrixVotes):
            return "fused"
        if proven(routing, votes, graph.num_dst_nodes(), links(graph, graph.device).complete):
            return "fused"
    return "dgl" if device == graph.device and not links(graph, device).complete else "torch"


def why_not_fused(routing: str, votes: Votes) -> str:
    """What the fused engine would need to run ``routing`` on these votes, or "" where it can; it has the routing."""
    return fused.why_not(votes, routing, ROUTINGS[routing].fused_devices)


def resolve(routing: str, engine: str, graph: DGLGraph, votes: Votes) -> str:
    """The name of the engine that runs; raise ``InputError`` where there is none such or it can't run here."""
    check_names(routing, engine, type(votes))
    device = _device(votes)
    if torch.compiler.is_compiling():
        expect(engine in ("auto", "torch"), "engine", "auto or torch where torch traces", repr(engine))
        return "torch"
    if engine == "auto":
        engine = choose_engine(graph, votes, routing)
        _say(routing, engine, device.type)
    elif engine == "fused":
        needs = why_not_fused(routing, votes)
        shape = tuple((votes if isinstance(votes, Tensor) else votes.weight).shape)
        expect(not needs, "engine", f"{needs} for 'fused'", f"{shape} on {device}", "Use 'torch'")
    if engine == "dgl" and device != graph.device:
        then = "Use engine='torch'" if device.type != "cuda" or not has_cuda() else f"Use graph.to('{device}')"
        expect(False, "engine", f"votes on the graph's device {graph.device} for 'dgl'", device, then)
    return engine


def run(
    routing: str,
    engine: str,
    graph: DGLGraph,
    votes: Votes,
    activation: Tensor | None,
    b: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    squash_output: bool,
    parameters: Parameters | None,
) -> tuple[Tensor, Tensor]:
    """Route on an engine that ``resolve`` has named: v (J, *, D), or the pose unsquashed, and activation (J, *).

    ``fused`` takes votes as they are. For the others they are built, and widened to the logits' dtype.
    """
    record = ROUTINGS[routing]
    options = activation, b, iterations, on_iteration, squash_output, parameters
    if engine == "fused" and record.fused is not None and not _empty(votes, b):
        return record.fused(graph, votes, *options)
    if engine == "naive":
        return record.naive(graph, _built(votes, graph).to(b.dtype), *options)
    edges = edges_of(engine, graph, (*b.shape, _dim(votes)), b.device)
    if isinstance(edges, DenseEdges) and isinstance(votes, LinearVotes):
        u_hat = edges.vectors_of(votes.grid(edges.ends).to(b.dtype), by_image=True)
    else:
        u_hat = edges.vectors_in(_built(votes, graph).to(b.dtype))
    if engine == "dgl":
        u_hat, activation, b = map(_once, (u_hat, activation, b))
        parameters = parameters and type(parameters)(*map(_once, parameters))
    observer = None
    if on_iteration is not None:

        def observer(r: int, b: Tensor, c: Tensor, v: Tensor, agreement: Tensor) -> None:
            on_iteration(r, edges.numbers_out(b), edges.numbers_out(c), v, edges.numbers_out(agreement))

    algorithm = record.lean if engine == "torch" and record.lean is not None else record.algorithm
    found = algorithm(edges, u_hat, activation, edges.numbers_in(b), iterations, observer, parameters)
    return (found.v if squash_output else found.pose), found.activation


class _Once(torch.autograd.Function):
    """The same numbers. DGL's gradients have no gradients of their own: torch would take them for constants."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, slope: Tensor) -> Tensor:
        return slope


def _once(x: Any) -> Any:
    return _Once.apply(x) if isinstance(x, Tensor) and x.requires_grad else x


def check_names(routing: str, engine: str, votes: type = Tensor) -> None:
    """Raise ``InputError`` unless there is such a routing, and such an engine for it and for such votes, or "auto"."""
    check_name("routing", routing, routing_names())
    known = ["auto", *engine_names(routing, votes)]
    if engine == "fused" and engine not in known:
        why = f"Its passes are those of dynamic routing; {routing} {ROUTINGS[routing].not_fused or 'has others'}"
        why = "Only em makes votes that are products of matrices as it goes" if votes is MatrixVotes else why
        expect(False, "engine", f"one of {', '.join(known)} for {routing} routing", "'fused'", why)
    check_name("engine", engine, known)


def _dim(votes: Votes) -> int:
    """D, numbers in a vote."""
    if isinstance(votes, LinearVotes):
        return votes.weight.shape[-1]
    return votes.shape[-1] if isinstance(votes, Tensor) else votes.u.shape[-1]


def _built(votes: Votes, graph: DGLGraph) -> Tensor:
    return votes if isinstance(votes, Tensor) else votes.build(graph)


def _empty(votes: Votes, b: Tensor) -> bool:
    return b.numel() == 0 or (votes if isinstance(votes, Tensor) else votes.weight).numel() == 0


def _device(votes: Votes) -> torch.device:
    return votes.device if isinstance(votes, Tensor) else votes.u.device


@functools.cache
def _say(routing: str, engine: str, device: str) -> None:
    log.info("engine auto: %s routing runs on '%s' (%s)", routing, engine, device)
