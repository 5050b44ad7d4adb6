"""A routing on an engine and a device: one call for all of them."""

from typing import NamedTuple

import oracle
import torch

from graphcaps import engine, route
from graphcaps._dgl import has_cuda
from graphcaps.algorithms.base import rule_of
from graphcaps.algorithms.by_name import ROUTINGS, as_routing
from graphcaps.algorithms.votes import Votes
from graphcaps.graph import links_of_graph
from graphcaps.names import ENGINES
from graphcaps.routing import EM, Inverted, LinearVotes, Parents, Routing, Spherical


def routings_and_engines() -> list[tuple[str, str]]:
    """Every routing with every engine that it has for votes given as a tensor, and the oracle."""
    engines = ["oracle", *(name for name in ENGINES if name not in ("auto", "fused"))]
    return [
        (name, engine)
        for name, kind in ROUTINGS.items()
        for engine in engines + ["fused"] * (rule_of(kind()) is not None)
    ]


def learned_routing(name: str, iterations: int, dim: int, num_parents: int, dtype: torch.dtype) -> Routing:
    """A routing whose parameters, if it has any, differ from parent to parent and from number to number."""
    if name == "em":
        # 100 times the paper's temperature: the tests' parents have few children
        routing = EM(iterations, final_lambda=1.0, variance_floor=0.3)
        if num_parents:
            routing = routing.for_layer(100 * num_parents, num_parents, dim, num_parents).to(dtype)
            with torch.no_grad():
                routing.costs.copy_(torch.linspace(-0.5, 0.5, num_parents))
                routing.biases.copy_(torch.linspace(-1, 2, num_parents))
        return routing
    if name == "inverted":
        routing, ramp = Inverted(iterations, dim).to(dtype), torch.linspace(-1, 1, dim)
        with torch.no_grad():
            for parameter, value in zip(routing.parameters(), (1 + ramp / 2, ramp / 3, 1 - ramp, 0.3), strict=True):
                parameter.copy_(torch.as_tensor(value).to(dtype))
        return routing
    if name == "spherical":
        return Spherical(iterations, concentration=2.5).to(dtype)
    return as_routing(name, iterations=iterations)


def moved(x, device):
    """x on this device if it is a tensor or votes, else x itself."""
    return x.to(device) if isinstance(x, (Votes, torch.Tensor)) else x


class Way(NamedTuple):
    """One routing on one engine and device; calling it routes there, with tensors from and to the CPU."""

    routing: str
    engine: str
    device: str

    def __str__(self) -> str:
        return "-".join(self)

    def graph(self, graph):
        """The graph where the engine wants it: DGL's own kernels need it beside the votes."""
        return graph.to(self.device) if self.engine == "dgl" and self.device != "cpu" else graph

    def learned(self, graph, votes, iterations=3) -> Routing:
        """Its routing with parameters for these votes, in their precision."""
        like = votes if isinstance(votes, torch.Tensor) else votes.u
        dim = votes.weight.shape[-1] if isinstance(votes, LinearVotes) else like.shape[-1]
        dtype = torch.promote_types(like.dtype, torch.float32)
        return learned_routing(self.routing, iterations, dim, graph.num_dst_nodes(), dtype)

    def __call__(self, graph, votes, prior=None, iterations=3, routing=None, activation=None, **options):
        routing = self.learned(graph, votes, iterations) if routing is None else routing
        options |= {"prior": prior, "activation": activation}
        if self.engine == "oracle":
            votes = votes if isinstance(votes, torch.Tensor) else votes.build(links_of_graph(graph))
            return Parents(*oracle.route(graph, votes, routing, **options))
        options = {name: moved(x, self.device) for name, x in options.items()}
        votes = moved(votes, self.device)
        with engine(self.engine):
            routed = route(self.graph(graph), votes, routing.to(self.device), **options)
        return Parents(*(x.cpu() for x in routed))

    def value_and_gradient(self, graph, votes, leaves, cotangents, **options) -> list[torch.Tensor]:
        """Parents and activations, and the gradients of these leaves and of what the routing learns."""
        routing = self.learned(graph, votes, options.pop("iterations", 3))
        routed = self(graph, votes, routing=routing, **options)
        learned = [*leaves, *routing.parameters()]
        pose, v, activation, coupling = routed
        cotangents = [cotangents[0].to(v.dtype), *(x.to(v.dtype) for x in cotangents)]
        parents = pose, v, activation
        slopes = torch.autograd.grad(parents, learned, cotangents, materialize_grads=True, allow_unused=True)
        return [x.detach().cpu() for x in (*parents, coupling, *slopes)]

    def watch(self, graph, votes, **options) -> list[tuple]:
        """The arguments of each call of an observer: (r, b, c, v, agreement) for each iteration."""
        seen = []
        self(graph, votes, on_iteration=lambda r, *state: seen.append((r, *(x.cpu() for x in state))), **options)
        return seen


def unsupported_reason(way: Way) -> str:
    """The reason why this way does not run here, or "" if it does. A fact is skipped for no other reason."""
    if way.engine == "dgl" and way.device == "cuda" and not has_cuda():
        return "the installed DGL is CPU-only"
    if way.engine == "fused" and way.device == "cuda":
        return "its kernels for CUDA have tests of their own"
    return ""
