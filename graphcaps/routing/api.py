"""The door to routing: checks what comes in, picks the engine, hands out what an observer or a caller asks for."""

from __future__ import annotations

import contextlib
import functools
import numbers
from collections.abc import Callable
from typing import Literal, NamedTuple, ParamSpec, TypeVar, overload

import torch

from .._dgl import DGLGraph
from ..errors import check_callable, check_flag, check_tensor, expect, min_max
from ..graph import check_graph
from . import engines
from .dynamic import Dynamic
from .edges import Observer, with_length
from .names import as_routing
from .observers import combined
from .routing import Routing
from .votes import LinearVotes, MatrixVotes

P = ParamSpec("P")
T = TypeVar("T")


class Routed(NamedTuple):
    """Parent capsules ``v`` (J, *, D) and how sure each is that it exists, ``activation`` (J, *) in [0, 1]."""

    v: torch.Tensor
    activation: torch.Tensor


def uncompiled(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, which ``torch.compile`` leaves as it is: it can't look into DGL or Numba.

    Each call is one break in the compiled graph.
    """

    @functools.wraps(function)
    def call_or_break(*arguments: P.args, **named: P.kwargs) -> T:
        if torch.compiler.is_dynamo_compiling():
            from .eager import call

            return call(function, *arguments, **named)
        return function(*arguments, **named)

    return call_or_break


@uncompiled
def route(
    graph: DGLGraph,
    votes: torch.Tensor | LinearVotes | MatrixVotes,
    routing: Routing | str = "dynamic",
    *,
    activation: torch.Tensor | None = None,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    squash_output: bool = True,
) -> Routed:
    """Route the children's votes to the parents.

    A pure function of its arguments: no state survives the call, nothing is shared across trailing dims, ``graph`` is
    not written to. Votes in half precision are routed in float32 and the result is given in the votes' dtype. Which
    engine runs is chosen inside; ``with graphcaps.engine("torch"):`` says which.

    Args:
        graph: any DGLGraph with one canonical edge type, from children (sources) to parents (destinations); E edges.
        votes: (E, *, D), the vote on each edge in edge-id order, ``*`` being any trailing dims (images of a batch,
            heads, none); or ``LinearVotes`` or ``MatrixVotes``.
        routing: the algorithm with its settings, such as ``Dynamic(3)`` or ``Spherical(concentration=4.0)`` of
            ``graphcaps.routing``, or a subclass of ``Routing`` of your own. A name (``"dynamic"``, ``"uniform"``,
            ``"attention"``, ``"spherical"``, ``"inverted"``, ``"em"``) is its default object.
        activation: (I, *) in [0, 1], how sure each child is, for ``EM``; default 1. The others don't use it.
        prior: logits that are added to b, broadcastable from the left to (E, *): a number, (E,), (E, 1), (E, *);
            default 0.
        on_iteration: called R times as ``on_iteration(r, b, c, v, agreement)`` with detached tensors, r from 0: the
            logits b (E, *) that made the couplings c (E, *), the parents v (J, *, D) and agreement <u_hat, v> (E, *).
        squash_output: False: the parents of the last iteration are given unsquashed, of any length: s in place of v,
            for ``Inverted`` and ``EM`` their poses. The iterations before it run as ever.

    Returns:
        ``Routed(v, activation)``: parents (J, *, D) of length < 1, and their activation (J, *), the length of v
        (where a pose of ``inverted`` or ``em`` is zero, v is too). A parent without votes is zero.

    Raises:
        InputError: shapes, dtypes, devices or names that don't fit; on the CPU, activations below 0.

    Only shapes tell the edges' dim from others: votes (B, E, D) with B = E go through, as B edges of E images.

    >>> from graphcaps import complete_graph
    >>> v, activation = route(complete_graph(3, 2), torch.ones(6, 5, 4))
    >>> v.shape, activation.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 5]))
    """
    check_graph(graph)
    _check_votes(graph, votes)
    check_callable("on_iteration", on_iteration)
    check_flag("squash_output", squash_output)
    routing = as_routing(routing)
    expect(not routing.mutual, "routing", "one without mutual=True", routing, "Only CapsuleConv knows reverse edges")
    if routing.unit_votes:
        votes = unit_votes(votes if isinstance(votes, torch.Tensor) else votes.build(graph))
    return route_checked(graph, votes, routing, activation, prior, on_iteration, squash_output)


def route_checked(
    graph: DGLGraph,
    votes: torch.Tensor | LinearVotes | MatrixVotes,
    routing: Routing,
    activation: torch.Tensor | None = None,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    squash_output: bool = True,
) -> Routed:
    """``route`` of votes that fit the graph, and of unit length where the routing wants them so."""
    numbers = votes if isinstance(votes, torch.Tensor) else votes.u
    dtype, trailing, device = numbers.dtype, tuple(numbers.shape[1:-1]), numbers.device
    for name, parameter in routing.named_parameters():
        expect(parameter.device == device, f"routing.{name}", f"device {device} as the votes", parameter.device)
    name = engines.resolve(graph, votes, routing)
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    b = _checked_prior(prior, (graph.num_edges(), *trailing), device, wide)
    if activation is not None:
        wanted = (graph.num_src_nodes(), *trailing)
        check_tensor("activation", activation)
        expect(activation.shape == wanted, "activation", f"(I, *)={wanted}", tuple(activation.shape))
        expect(activation.device == device, "activation", f"device {device} as the votes", activation.device)
        ends = min_max(activation)  # lengths of capsules that were not squashed, above 1, are let through
        least = 0.0 if ends is None else ends[0]
        expect(not least < 0, "activation", "numbers in [0, 1]", f"{least:g}", "They are probabilities, not logits")
    on_iteration = combined(graph, on_iteration)
    observer = on_iteration and _detached_copies(on_iteration)
    found = engines.run(name, graph, votes, routing, b, activation, observer)
    return Routed((found.v if squash_output else found.pose).to(dtype), found.activation.to(dtype))


def unit_votes(votes: torch.Tensor) -> torch.Tensor:
    """Votes (..., D) divided by their length; a vote of zeros stays."""
    return with_length(votes, torch.ones_like(votes[..., 0]))


@overload
def dynamic_routing(
    graph: DGLGraph,
    u_hat: torch.Tensor | LinearVotes,
    iterations: int = 3,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    return_graph: Literal[False] = False,
) -> torch.Tensor: ...


@overload
def dynamic_routing(
    graph: DGLGraph,
    u_hat: torch.Tensor | LinearVotes,
    iterations: int = 3,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    *,
    return_graph: Literal[True],
) -> tuple[torch.Tensor, DGLGraph]: ...


def dynamic_routing(
    graph: DGLGraph,
    u_hat: torch.Tensor | LinearVotes,
    iterations: int = 3,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    return_graph: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, DGLGraph]:
    """Route by agreement (Sabour, Frosst & Hinton 2017, Procedure 1); arguments as in ``route``.

    Returns:
        v (J, *, D); with ``return_graph``, ``(v, routed)``: a DGLGraph that shares ``graph``'s structure, with edata
        ``u_hat`` (E, *, D) and ``b``, ``c`` (E, *) of the last iteration and the parents' ``v``, detached.

    >>> from graphcaps import complete_graph
    >>> v, routed = dynamic_routing(complete_graph(3, 2), torch.ones(6, 4), return_graph=True)
    >>> sorted(routed.edata), v.shape
    (['b', 'c', 'u_hat'], torch.Size([2, 4]))
    """
    check_flag("return_graph", return_graph)
    if not return_graph:
        return route(graph, u_hat, Dynamic(iterations), prior=prior, on_iteration=on_iteration).v
    check_graph(graph)
    _check_votes(graph, u_hat)
    if isinstance(u_hat, LinearVotes):
        u_hat = u_hat.build(graph)
    last: dict[str, torch.Tensor] = {}

    def keep(r, b, c, v, agreement):
        last.update(b=b, c=c)
        if on_iteration is not None:
            on_iteration(r, b, c, v, agreement)

    v = route(graph, u_hat, Dynamic(iterations), prior=prior, on_iteration=keep).v
    routed = graph.local_var()
    for name, feature in dict(last, u_hat=u_hat).items():
        routed.edata[name] = feature.detach().to(graph.device)
    routed.dstnodes[graph.canonical_etypes[0][2]].data["v"] = v.detach().to(graph.device)
    return v, routed


def _detached_copies(on_iteration: Observer) -> Observer:
    """Hand an observer tensors of its own, without history: what it does to them changes nothing."""
    gradients = torch.is_grad_enabled()  # also inside an autograd function, where they are off

    def hand_out(r: int, *state: torch.Tensor) -> None:
        same = torch.is_grad_enabled() == gradients  # no block of its own in an exported program
        with contextlib.nullcontext() if same else torch.set_grad_enabled(gradients):
            on_iteration(r, *(tensor.detach().clone() for tensor in state))

    return hand_out


def _check_votes(graph: DGLGraph, votes: torch.Tensor | LinearVotes | MatrixVotes) -> None:
    if isinstance(votes, (LinearVotes, MatrixVotes)):
        votes.check(graph)
        return
    num_edges = graph.num_edges()
    check_tensor("u_hat", votes)
    expect(votes.device.type != "meta", "u_hat", "a tensor with numbers", "one on device meta, which has none")
    fits = votes.dim() >= 2 and len(votes) == num_edges
    then, shape = "", tuple(votes.shape)
    if not fits and len(shape) >= 3 and shape[1] == num_edges:
        then = "Edges come first: u_hat.transpose(0, 1)"
    elif not fits and len(shape) >= 3 and shape[:2] == (graph.num_src_nodes(), graph.num_dst_nodes()):
        then = "Edges are one dim: u_hat.flatten(0, 1), if the graph is complete_graph's"
    elif not fits and len(shape) >= 4 and shape[1:3] == (graph.num_src_nodes(), graph.num_dst_nodes()):
        then = "Edges come first: u_hat.flatten(1, 2).transpose(0, 1), if the graph is complete_graph's"
    expect(fits, "u_hat", f"(E={num_edges}, *, D)", shape, then)


def _checked_prior(
    prior: torch.Tensor | float | None, wanted: tuple[int, ...], device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    if prior is None:
        return torch.zeros((), device=device, dtype=dtype).expand(wanted)
    if isinstance(prior, numbers.Real) and not isinstance(prior, bool):
        prior = torch.tensor(float(prior), device=device, dtype=dtype)
    prior = check_tensor("prior", prior)
    expect(prior.device == device, "prior", f"device {device} as the votes", prior.device)
    padded = prior.reshape(*prior.shape, *[1] * (len(wanted) - prior.dim()))
    fits = padded.dim() == len(wanted) and all(
        have in (1, want) for have, want in zip(padded.shape, wanted, strict=False)
    )
    expect(fits, "prior", f"broadcastable from the left to (E, *)={wanted}", tuple(prior.shape))
    return padded.to(dtype).expand(wanted)
