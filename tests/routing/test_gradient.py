"""The engine torch's own gradient of dynamic routing: naive's, with less memory moved; autograd's where it must be.

test_facts.py holds every engine against naive; here is what is true of this one alone.
"""

from __future__ import annotations

import pytest
import torch

from graphcaps import LinearVotes, complete_graph, route
from graphcaps.bench.moved import Moved
from graphcaps.graph import links
from graphcaps.nn import CapsuleLayer
from graphcaps.nn.routed import TRACES
from graphcaps.routing.edge_ops import DenseEdges
from graphcaps.routing.gradient import lean_dynamic

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=["rows copied", "rows apart"])
def copied(request, monkeypatch):
    """Both layouts of dense votes: that of a CPU, and that of a GPU."""
    init, copied = DenseEdges.__init__, request.param == "rows copied"
    monkeypatch.setattr(DenseEdges, "__init__", lambda self, ends, dims: init(self, ends, dims, copied))
    return copied


def leaves_of(draw, kind, children, parents, batch):
    if kind == "given":
        votes = draw(children * parents, *batch, 16).requires_grad_()
        return votes, [votes]
    shape = {"per edge": (children * parents, 8, 16), "per type": (2, parents, 8, 16), "shared": (8, 16)}[kind]
    u, weight = draw(children, *batch, 8).requires_grad_(), draw(*shape).requires_grad_()
    return LinearVotes(u, weight), [u, weight]


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", ["given", "per edge", "per type", "shared"])
@pytest.mark.parametrize("prior_learns", [True, False], ids=["prior", "no_prior"])
def test_both_layouts_route_as_naive_in_value_and_gradient(copied, kind, batch, prior_learns, draw):
    graph = complete_graph(8, 3)
    votes, leaves = leaves_of(draw, kind, 8, 3, batch)
    prior = draw(24, *batch).requires_grad_() if prior_learns else None
    leaves, found = [*leaves, *([prior] if prior_learns else [])], []
    cotangent = draw(3, *batch, 16)
    for engine in ("torch", "naive"):
        v = route(graph, votes, prior=prior, engine=engine).v
        found.append([v, *torch.autograd.grad(v, leaves, cotangent)])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def test_a_prior_alone_may_learn(draw):
    graph, votes, prior = complete_graph(4, 3), draw(12, 5, 6), draw(12).requires_grad_()
    slopes = [
        torch.autograd.grad(route(graph, votes, prior=prior, engine=e).v.sum(), prior) for e in ("torch", "naive")
    ]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-10)


def moved(step) -> Moved:
    with Moved() as counter:
        step()
    return counter


@pytest.mark.parametrize("kind", ["given", "per edge"])
def test_a_step_moves_at_most_seven_tenths_of_autograds(copied, kind, draw, monkeypatch):
    graph = complete_graph(64, 10)
    votes, leaves = leaves_of(draw, kind, 64, 10, (16,))

    def step():
        torch.autograd.grad(route(graph, votes, engine="torch").v.sum(), leaves)

    lean = moved(step)
    monkeypatch.setattr(torch._C, "_are_functorch_transforms_active", lambda: True)
    plain = moved(step)
    assert lean.bytes < 0.7 * plain.bytes
    assert not {name for name in lean.names if name.startswith(("index", "scatter", "gather", "sort", "_index"))}


def test_couplings_and_sums_are_all_that_is_kept(draw):
    u_hat = draw(8 * 3, 5, 6).requires_grad_()
    edges, kept = DenseEdges(links(complete_graph(8, 3)), 3), []
    votes = edges.vectors_in(u_hat)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        lean_dynamic(edges, votes, None, torch.zeros(3, 5, 8, dtype=u_hat.dtype), 3, None)
    of_votes = [x for x in kept if x.numel() == u_hat.numel()]
    assert len({x.data_ptr() for x in of_votes}) == 1


def test_functions_of_torch_func_see_dynamic_itself(draw):
    graph, votes = complete_graph(4, 3), draw(12, 5, 6)

    def squared(votes):
        return route(graph, votes, engine="torch").v.square().sum()

    wanted = torch.autograd.functional.jacobian(squared, votes)
    torch.testing.assert_close(torch.func.grad(squared)(votes), wanted)
    alone = torch.func.vmap(torch.func.grad(squared), in_dims=1, out_dims=1)(votes)
    torch.testing.assert_close(alone, wanted)


@pytest.mark.skipif(not TRACES, reason="needs torch 2.9")
def test_a_layer_is_exported_with_a_batch_of_any_size(copied):
    layer = CapsuleLayer(36, 3, engine="torch").eval()
    layer(layer.blank())
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(layer, (torch.randn(36, 4, 8),), dynamic_shapes=({1: batch},)).module()
    for images in (1, 7, 36):
        u = torch.randn(36, images, 8)
        torch.testing.assert_close(program(u), layer(u))


@pytest.mark.parametrize("name", ["complete", "sparse_7x5"])
def test_where_torch_is_told_to_be_deterministic_it_is(graphs, name, draw):
    votes, found = draw(graphs[name].num_edges(), 5, 6).requires_grad_(), []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            v = route(graphs[name], votes, engine="torch").v
            found.append((v, *torch.autograd.grad(v.square().sum(), votes)))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.filterwarnings("ignore:Dynamo detected")
def test_a_compiled_layer_learns_as_an_eager_one():
    layer, u = CapsuleLayer(8, 3, engine="torch"), torch.randn(8, 5, 8)
    layer(u)
    slopes = []
    for forward in (layer, torch.compile(layer, backend="aot_eager")):
        slopes.append(torch.autograd.grad(forward(u).square().sum(), layer.weight))
    torch.testing.assert_close(*slopes)
