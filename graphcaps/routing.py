"""Routing between two capsule layers: these functions check the arguments, choose an engine and run it.

Each algorithm is a subclass of `Routing` in `graphcaps.algorithms`, each engine one of `Edges` in `graphcaps.engines`.
"""

import contextlib
import numbers
from typing import Literal, overload

import torch

from . import kernels
from ._dgl import DGLGraph
from .algorithms.attention import Attention
from .algorithms.base import Parents, Routing, rule_of, squashed
from .algorithms.by_name import as_routing
from .algorithms.dynamic import Dynamic
from .algorithms.em import EM
from .algorithms.inverted import Inverted
from .algorithms.observers import Observer, combined, watched
from .algorithms.rule import Rule
from .algorithms.spherical import Spherical
from .algorithms.uniform import Uniform
from .algorithms.votes import GivenVotes, LinearVotes, MatrixVotes, NodeVotes, Votes, as_votes
from .engines import REQUESTED, choose, engine
from .engines.nodes import NodeEdges
from .errors import GraphcapsError, check_tensor, expect, min_max, warn, warn_of_nan
from .functional import at_least_float32
from .graph import Links, check_graph, links_of_graph
from .graph.checks import warn_of_lone_votes
from .tracing import is_tracing, outside_autocast, uncompiled
from .typed import Logit, Size, typed

__all__ = ["choose_engine", "dynamic_routing", "engine", "route"]
__all__ += ["EM", "Attention", "Dynamic", "Inverted", "Spherical", "Uniform"]
__all__ += ["LinearVotes", "MatrixVotes", "Parents", "Routing", "Rule", "squashed"]


@uncompiled
@typed
def route(
    graph: DGLGraph,
    votes: torch.Tensor | Votes,
    routing: Routing | str = "dynamic",
    *,
    activation: torch.Tensor | None = None,
    prior: torch.Tensor | Logit | None = None,
    on_iteration: Observer | None = None,
) -> Parents:
    """Route the children's votes to the parents.

    ``route`` keeps no state, doesn't change ``graph``, and routes each item of the trailing dims on its own. Votes in
    half precision are routed in float32, but on CUDA ``LinearVotes`` are multiplied in half precision; the result has
    the votes' dtype. graphcaps chooses the engine unless you name one: ``with graphcaps.engine("torch"):``.

    Args:
        graph: any DGLGraph with E edges of one canonical edge type, from children (sources) to parents (destinations).
        votes: (E, *, D), one vote per edge in edge-id order, or ``LinearVotes`` or ``MatrixVotes``. ``*`` is any number
            of trailing dims, such as the images of a batch or heads. Only the size of the edge dim is checked: if
            B = E, votes (B, E, D) pass the check, and the images are mistaken for edges.
        routing: a ``Routing``, such as ``Dynamic(3)`` or an object of your own subclass. A name (``"dynamic"``,
            ``"uniform"``, ``"attention"``, ``"spherical"``, ``"inverted"``, ``"em"``) selects the default settings.
        activation: (I, *) in [0, 1], the probability that each child exists; default 1. Only ``EM`` uses it.
        prior: logits that are added to b; default 0. A number, or a tensor that broadcasts to (E, *) from the left,
            such as (E,), (E, 1) or (E, *).
        on_iteration: called R times as ``on_iteration(r, b, c, v, agreement)``, first with r = 0. The tensors are
            detached: the logits b (E, *), their softmax c (E, *), parents v (J, *, D), agreement <u_hat, v> (E, *).

    Returns:
        ``Parents``: ``v`` (J, *, D), shorter than 1; ``activation`` (J, *), the length of v (but with ``inverted`` and
        ``em``, a zero pose gives v = 0 at any activation); ``pose`` (J, *, D), v before the last squash; ``coupling``
        (E, *), the couplings of the last iteration, detached. The v of a parent without votes is zero.

    Raises:
        InputError: a shape, dtype, device or name doesn't fit or, on the CPU, an activation is below 0.

    >>> from graphcaps import complete_graph
    >>> parents = route(complete_graph(3, 2), torch.ones(6, 5, 4))
    >>> parents.v.shape, parents.activation.shape, parents.coupling.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 5]), torch.Size([6, 5]))
    """
    links, votes = _links_and_votes(graph, votes)
    return route_links(links, votes, as_routing(routing), activation, prior, on_iteration, coupling=True)


def _links_and_votes(graph: DGLGraph, votes: torch.Tensor | Votes) -> tuple[Links, Votes]:
    """Return the links of a user's graph on the votes' device, and the votes."""
    votes = as_votes(votes)
    check_graph(graph)
    warn_of_lone_votes(graph)
    return links_of_graph(graph, check_tensor("u_hat" if isinstance(votes, GivenVotes) else "u", votes.u).device), votes


def route_links(
    links: Links,
    votes: Votes,
    routing: Routing,
    activation: torch.Tensor | None = None,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    coupling: bool = False,
    half: torch.dtype | None = None,
) -> Parents:
    """Check the arguments and route. Layers call this, users ``route``.

    ``coupling``: whether to return couplings. ``half``: the dtype in which kernels on a GPU may multiply float32 votes.
    """
    votes.check(links)
    trailing, device = votes.trailing, votes.device
    for name, parameter in routing.named_parameters():
        expect(parameter.device == device, f"routing.{name}", f"device {device} as the votes", parameter.device)
    engine_class = choose(links, votes, routing)
    b = _checked_prior(prior, (links.num_edges, *trailing), votes)
    if activation is not None:
        _check_activation(activation, (links.num_children, *trailing), device)
    edges, observer = engine_class(links, votes), combined(links, on_iteration)
    edges.observer, edges.half = observer and _detached_copies(observer), half
    try:
        with outside_autocast(device):
            pose, v, a, c = edges.route(routing, b, activation, coupling)
    except kernels.KernelError as error:
        go_on_without(error)
        return route_links(links, votes, routing, activation, prior, on_iteration, coupling, half)  # by another engine
    dtype = votes.dtype
    given = {"u_hat" if isinstance(votes, GivenVotes) else "u": votes.u}
    warn_of_nan(v, **given, weight=getattr(votes, "weight", None), prior=b, activation=activation)
    return Parents(pose.to(dtype), v.to(dtype), a.to(dtype), None if c is None else c.to(dtype))


@overload
def dynamic_routing(
    graph: DGLGraph,
    u_hat: torch.Tensor | Votes,
    iterations: int = 3,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    return_graph: Literal[False] = False,
) -> torch.Tensor: ...


@overload
def dynamic_routing(
    graph: DGLGraph,
    u_hat: torch.Tensor | Votes,
    iterations: int = 3,
    prior: torch.Tensor | float | None = None,
    on_iteration: Observer | None = None,
    *,
    return_graph: Literal[True],
) -> tuple[torch.Tensor, DGLGraph]: ...


@uncompiled
@typed
def dynamic_routing(
    graph: DGLGraph,
    u_hat: torch.Tensor | Votes,
    iterations: Size = 3,
    prior: torch.Tensor | Logit | None = None,
    on_iteration: Observer | None = None,
    return_graph: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, DGLGraph]:
    """Route by agreement (Sabour, Frosst & Hinton 2017, Procedure 1). The arguments are those of ``route``.

    Returns:
        v (J, *, D). With ``return_graph``, ``(v, routed)``: ``routed`` is a DGLGraph with the structure of ``graph``.
        Its edges carry ``u_hat`` (E, *, D) and the last ``b`` and ``c`` (E, *), its parents carry ``v``, all detached.

    >>> from graphcaps import complete_graph
    >>> v, routed = dynamic_routing(complete_graph(3, 2), torch.ones(6, 4), return_graph=True)
    >>> sorted(routed.edata), v.shape
    (['b', 'c', 'u_hat'], torch.Size([2, 4]))
    """
    last: dict[str, torch.Tensor] = {}

    def keep_last(r, b, c, v, agreement):
        last.update(b=b, c=c)
        if on_iteration is not None:
            on_iteration(r, b, c, v, agreement)

    links, votes = _links_and_votes(graph, u_hat)
    observer = keep_last if return_graph else on_iteration
    v = route_links(links, votes, Dynamic(iterations), prior=prior, on_iteration=observer).v
    if not return_graph:
        return v
    routed = graph.local_var()
    for name, feature in dict(last, u_hat=votes.build(links)).items():
        routed.edata[name] = feature.detach().to(graph.device)
    routed.dstnodes[graph.canonical_etypes[0][2]].data["v"] = v.detach().to(graph.device)
    return v, routed


def route_nodes(
    links: Links, votes: NodeVotes, routing: Routing, mutual: bool = False, coupling: bool = False
) -> kernels.Sums:
    """Route along the edges of a graph to the K capsules of each node. Each softmax is over the K votes on one edge.

    Args:
        links: E edges from N_src to N_dst nodes. Make them by ``Links.of``, because kernels trust them.
        votes: built from z (N_src, *, K, D), or with ``per_edge`` from z (E, *, K, D).
        routing: an algorithm whose poses are sums of votes.
        mutual: whether the two directions of an edge share their logits. Each edge then needs a reverse.
        coupling: whether to return couplings.

    Raises:
        InputError: an ``engine`` block's engine can't run this call, or votes have too many or too few rows.
    """
    if not (links.traced or is_tracing()):  # kernels would read beyond the end of what has fewer rows
        rows, of = (links.num_edges, "edges") if votes.per_edge else (links.num_children, "source nodes")
        expect(len(votes.u) == rows, "votes.u", f"a row for each of {rows} {of}", len(votes.u))
        prior = links.num_edges if votes.prior is None else len(votes.prior)
        expect(prior == links.num_edges, "votes.prior", f"a row for each of {links.num_edges} edges", prior)
    rule, requested = rule_of(routing), REQUESTED.get()
    reason = "couplings of single iterations, for an observer" if watched() else kernels.needs(links, votes, rule)
    if requested in ("auto", "fused") and not reason and rule is not None:
        try:
            return kernels.sums(links, votes, rule, mutual=mutual, coupling=coupling)
        except kernels.KernelError as error:
            go_on_without(error)
    if requested in ("auto", "torch") or links.traced or is_tracing():
        result = NodeEdges(links, votes, mutual).sums(routing, coupling)
    else:
        advice = f"Engine fused needs {reason}" if requested == "fused" else ""
        expect(not mutual, "engine", "'auto' or 'torch' with mutual=True", repr(requested), advice)
        result = _route_expanded(links, votes, routing, coupling)
    if coupling and result.coupling is None:
        raise GraphcapsError(
            f"{type(routing).__name__}: expected forward to give Parents with couplings, got sums alone. "
            "Return graphcaps.routing.squashed(s, c)"
        )
    return result


def _route_expanded(links: Links, votes: NodeVotes, routing: Routing, coupling: bool) -> kernels.Sums:
    """Route as two layers of capsules: each edge is a child that votes for the K capsules of its parent."""
    u_hat = at_least_float32(votes.build(links)).movedim(-2, 1).flatten(0, 1)  # (E * K, *, D)
    prior = None if votes.prior is None else votes.prior.movedim(-1, 1).flatten(0, 1)
    parents = route_links(links.expand(votes.num_caps), as_votes(u_hat), routing, prior=prior, coupling=coupling)
    s, c = parents.pose.unflatten(0, (-1, votes.num_caps)), parents.coupling
    return kernels.Sums(s.movedim(1, -2), None if c is None else c.unflatten(0, (-1, votes.num_caps)).movedim(1, -1))


def choose_engine(graph: DGLGraph, votes: torch.Tensor | Votes, routing: Routing | str = "dynamic") -> str:
    """Return the name of the engine that would route these votes.

    Without a ``with engine(...)`` block, it is ``fused`` if that engine has kernels for the routing on the votes'
    device; on CUDA, they need a complete graph, and votes of at most 64 numbers that aren't float64. Else it is
    ``torch`` if the graph is complete or on another device than the votes, and ``dgl`` if not.
    Under ``torch.export`` and ``torch.func`` it is ``torch``, the only engine that torch can trace.

    >>> from graphcaps import complete_graph
    >>> choose_engine(complete_graph(3, 2), torch.zeros(6, 4))
    'fused'
    """
    links, votes = _links_and_votes(graph, votes)
    votes.check(links)
    return choose(links, votes, as_routing(routing)).engine


def go_on_without(error: kernels.KernelError) -> None:
    """Warn that engine torch routes in place of the kernels that failed, or raise if the caller requested them."""
    if REQUESTED.get() == "fused":
        raise error
    warn(f"{error}. The slower engine 'torch' routes such calls from now on")


def _detached_copies(on_iteration: Observer) -> Observer:
    """Give the observer detached copies, so that it can change them without changing the routing."""
    gradients = torch.is_grad_enabled()  # the caller's mode: autograd functions turn gradients off

    def hand_out(r: int, *state: torch.Tensor) -> None:
        same = torch.is_grad_enabled() == gradients
        with contextlib.nullcontext() if same else torch.set_grad_enabled(gradients):  # torch.export records a change
            on_iteration(r, *(tensor.detach().clone() for tensor in state))

    return hand_out


def _check_activation(activation: torch.Tensor, wanted: tuple[int, ...], device: torch.device) -> None:
    check_tensor("activation", activation)
    expect(activation.shape == wanted, "activation", f"(I, *)={wanted}", tuple(activation.shape))
    expect(activation.device == device, "activation", f"device {device} as the votes", activation.device)
    least, _ = min_max(activation) or (0, 0)  # values above 1 are allowed, as the lengths of capsules not squashed
    expect(not least < 0, "activation", "numbers >= 0", f"{least:g}", "They are probabilities, not logits")


def _checked_prior(prior: torch.Tensor | float | None, wanted: tuple[int, ...], votes: Votes) -> torch.Tensor:
    """Return the prior as logits (E, *) in the dtype of the computation: float32 for votes in half precision."""
    dtype = torch.float32 if votes.dtype in (torch.float16, torch.bfloat16) else votes.dtype
    if prior is None:
        return torch.zeros((), device=votes.device, dtype=dtype).expand(wanted)
    if isinstance(prior, numbers.Real) and not isinstance(prior, bool):
        prior = torch.full((), float(prior), device=votes.device, dtype=dtype)
    prior = check_tensor("prior", prior)
    expect(prior.device == votes.device, "prior", f"device {votes.device} as the votes", prior.device)
    shape = (*prior.shape, *[1] * (len(wanted) - prior.dim()))
    fits = len(shape) == len(wanted) and all(have in (1, want) for have, want in zip(shape, wanted, strict=True))
    expect(fits, "prior", f"broadcastable from the left to (E, *)={wanted}", tuple(prior.shape))
    return prior.reshape(shape).to(dtype).expand(wanted)
