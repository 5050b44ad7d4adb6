"""``route``: every routing and engine against the oracle on random graphs, observers, votes, choice of engine."""

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ways import Way, routings_and_engines

from graphcaps import (
    LinearVotes,
    bipartite_graph,
    choose_engine,
    complete_graph,
    coupling_entropy,
    dynamic_routing,
    engine,
    route,
)
from graphcaps.engines import REQUESTED
from graphcaps.routing import EM, Dynamic, MatrixVotes, Spherical

pytestmark = pytest.mark.usefixtures("one_thread")

D = 4


def assert_same(got, wanted):
    """Equal up to the order of float64 sums of at most 100 terms."""
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


# Against the oracle


@st.composite
def graphs_of_votes(draw):
    """Complete graphs, and others with duplicate edges, isolated nodes or no edges at all."""
    children, parents = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    if draw(st.booleans()):
        return complete_graph(children, parents)
    ends = st.tuples(st.integers(0, children - 1), st.integers(0, parents - 1))
    edges = torch.tensor(draw(st.lists(ends, max_size=14)), dtype=draw(st.sampled_from([torch.int32, torch.int64])))
    return bipartite_graph(*edges.reshape(-1, 2).T, children, parents)


PRIORS = {
    "none": lambda edges, trailing: None,
    "number": lambda edges, trailing: (),
    "(E,)": lambda edges, trailing: (edges,),
    "(E, 1)": lambda edges, trailing: (edges, *[1] * len(trailing)),
    "(E, *)": lambda edges, trailing: (edges, *trailing),
}
# float64: eps is 2e-16; four iterations and a layer norm of nearly equal numbers multiply it.
# float32: eps 1.2e-7, likewise. bfloat16 keeps 8 bits of a result that is computed in float32.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3, torch.bfloat16: 1e-2}
WAYS = [Way(*name, "cpu") for name in routings_and_engines() if name[1] != "oracle"]


@pytest.mark.fact(12)
@pytest.mark.parametrize("router", WAYS, ids=str)
@given(data=st.data())
@settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_value_and_gradient_are_the_oracles_on_any_graph(router, data):
    draw = data.draw
    graph, trailing = draw(graphs_of_votes()), draw(st.sampled_from([(), (3,), (2, 3)]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
    prior_shape = PRIORS[draw(st.sampled_from(list(PRIORS)))](graph.num_edges(), trailing)
    options = {"iterations": draw(st.integers(1, 4))}
    exact = dtype != torch.bfloat16  # bfloat16 would round computed votes before they are routed
    matrices = router.routing == "em" and draw(st.booleans()) and exact
    linear = draw(st.booleans()) and exact
    # Numba compiles for each dtype and size.
    dim = 16 if matrices else draw(st.sampled_from([1, 4])) if dtype == torch.float64 and not linear else 4
    source = torch.Generator().manual_seed(draw(st.integers(0, 999)))

    def numbers(*shape):
        return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)

    edges, children, parents = graph.num_edges(), graph.num_src_nodes(), graph.num_dst_nodes()
    if matrices:
        leaves = [numbers(children, *trailing, 16), numbers(3, 4, 4)]
    elif linear:
        leaves = [numbers(children, *trailing, 5), numbers(edges, 5, dim)]
    else:
        leaves = [numbers(edges, *trailing, dim)]
    prior = None if prior_shape is None else numbers(*prior_shape)
    present = numbers(children, *trailing).sigmoid()
    cotangents, results = (numbers(parents, *trailing, dim), numbers(parents, *trailing)), []
    for each, precision in ((router, dtype), (router._replace(engine="oracle"), torch.float64)):
        own = [x.detach().to(precision).requires_grad_() for x in leaves]
        votes = own[0]
        if len(own) > 1:
            votes = MatrixVotes(*own, torch.arange(edges) * 5 % 3) if matrices else LinearVotes(*own)
        also = [x.detach().to(precision).requires_grad_() for x in (present, prior) if x is not None]
        options |= {"activation": also[0], "prior": also[1] if len(also) > 1 else None}
        results.append(each.value_and_gradient(graph, votes, own + also, cotangents, **options))
    got, wanted = results
    pose, v, activation, coupling = got[:4]
    assert {x.dtype for x in got[:4]} == {dtype}
    assert pose.shape == v.shape == (parents, *trailing, dim) and activation.shape == (parents, *trailing)
    assert coupling.shape == (edges, *trailing)
    compared = 4 if dtype == torch.bfloat16 else len(wanted)  # gradients of half precision add up rounded numbers
    for mine, theirs in zip(got[:compared], wanted[:compared], strict=True):
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# Graphs, votes and priors


def test_empty_trailing_dims_route_to_nothing(way, graphs):
    for shape in [(0, D), (3, 0)]:  # no image, no number
        graph, votes = graphs["complete"], torch.zeros(12, *shape, requires_grad=True)
        _, v, activation, _ = way(graph, votes)
        assert v.shape == (3, *shape) and activation.shape == v.shape[:-1]
        v.sum().backward()
        assert votes.grad.shape == votes.shape


def test_a_vote_that_is_not_finite_stays_in_its_image(way, graphs, draw):
    graph, votes = graphs["complete"], draw(12, 3, D)
    clean = way(graph, votes).v
    votes[5, 1, 2] = float("nan")
    v = way(graph, votes).v
    assert_same(v[:, [0, 2]], clean[:, [0, 2]])
    assert not v[:, 1].isfinite().all()


# Observer


def test_an_observer_sees_the_oracles_iterations_and_the_last_is_the_result(way, graphs, draw):
    for graph in (graphs["complete"], graphs["sparse_7x5"]):
        votes, prior = draw(graph.num_edges(), 3, D).requires_grad_(), draw(graph.num_edges(), 3)
        seen, wanted = (each.watch(graph, votes, prior=prior) for each in (way, way._replace(engine="oracle")))
        assert [r for r, *_ in seen] == [0, 1, 2] and not any(x.requires_grad for _, *state in seen for x in state)
        torch.testing.assert_close(seen, wanted, rtol=1e-9, atol=1e-9)
        _, v, activation, coupling = way(graph, votes, prior=prior)
        assert_same(seen[-1][3], v.detach())
        assert_same(seen[-1][2], coupling)
        assert_same(v.norm(dim=-1), activation)


@pytest.mark.routings("dynamic", "em")
def test_an_observer_may_change_its_tensors_and_take_gradients(way, graphs, draw):
    graph, votes = graphs["complete"], draw(12, 3, D).requires_grad_()

    def meddle(r, *state):
        leaf = state[2].clone().requires_grad_()
        assert torch.autograd.grad(leaf.square().sum(), leaf)[0].any()
        for tensor in state:
            tensor.fill_(7)

    got = [way(graph, votes, on_iteration=observer).v for observer in (None, meddle)]
    assert_same(*got)
    assert_same(*(torch.autograd.grad(v.sum(), votes)[0] for v in got))


# Routed graph


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("name", ["dgl", "torch", "fused"])
def test_the_routed_graph_holds_the_last_iteration_detached(name, linear, graphs, draw):
    graph, votes, seen = graphs["complete"], draw(12, 2, D).requires_grad_(), []
    votes = LinearVotes(draw(4, 2, 5), draw(12, 5, D).requires_grad_()) if linear else votes
    with engine(name):
        v, routed = dynamic_routing(graph, votes, on_iteration=lambda r, *x: seen.append(x), return_graph=True)
    b, c, last_v, _ = seen[-1]
    u_hat = votes.tensor(graph) if linear else votes
    kept = routed.edata["u_hat"], routed.edata["b"], routed.edata["c"], routed.dstdata["v"]
    for got, wanted in zip(kept, (u_hat, b, c, last_v), strict=True):
        assert torch.equal(got, wanted) and not got.requires_grad
    assert torch.equal(v, last_v) and v.requires_grad
    assert not graph.edata and not graph.dstdata and routed.canonical_etypes == graph.canonical_etypes
    assert torch.equal(dynamic_routing(graph, u_hat, 4), route(graph, u_hat, Dynamic(4)).v)
    entropy = coupling_entropy(routed)
    assert torch.equal(entropy, coupling_entropy(graph, c)) and entropy.shape == (4, 2)


# Linear votes


@pytest.mark.parametrize("kind", ["per_edge", "by_index"])
def test_linear_votes_equal_a_loop_over_edges(kind, draw):
    graph = bipartite_graph([5, 0, 0, 3, 3, 3], [1, 0, 2, 1, 1, 0], 6, 3)
    edges = graph.num_edges()
    index = torch.arange(edges) * 3 % 4 if kind == "by_index" else None
    u, weight = draw(6, 2, 5).requires_grad_(), draw(edges if index is None else 4, 5, D).requires_grad_()
    taken = weight if index is None else weight[index]  # (E, 5, D)
    rows = [u[i] @ taken[e] for e, i in enumerate(graph.edges(order="eid")[0].tolist())]
    got, wanted = LinearVotes(u, weight, index).tensor(graph), torch.stack(rows)
    assert_same(got, wanted)
    cotangent = draw(*wanted.shape)
    for slopes in zip(*(torch.autograd.grad(votes, (u, weight), cotangent) for votes in (got, wanted)), strict=True):
        assert_same(*slopes)


@pytest.mark.routings("dynamic")
def test_an_index_that_changed_is_read_again(way, graphs, draw):
    graph, index = graphs["sparse_7x5"], torch.zeros(63, dtype=torch.int64)
    votes = LinearVotes(draw(7, 2, 5), draw(4, 5, D), index)
    before = way(graph, votes).v
    index += 1
    assert_same(way(graph, votes).v, way(graph, dataclasses.replace(votes, index=torch.ones(63, dtype=torch.int64))).v)
    assert not torch.equal(way(graph, votes).v, before)


# Engine


def test_auto_is_the_fastest_engine_that_a_routing_has(graphs, draw):
    complete, sparse = graphs["complete"], graphs["sparse_7x5"]
    assert choose_engine(complete, draw(12, D)) == choose_engine(sparse, draw(63, D), Spherical()) == "fused"
    assert choose_engine(complete, draw(12, D), EM()) == choose_engine(complete, draw(12, D), "inverted") == "torch"
    assert choose_engine(sparse, draw(63, D), "em") == "dgl"
    assert choose_engine(complete, torch.zeros(12, D, device="meta")) == "torch"
    assert choose_engine(complete, draw(12, 1200)) == "torch"  # wider than a kernel's vectors


def test_the_innermost_engine_block_of_a_thread_counts_until_it_ends():
    inherited = getattr(sys.flags, "thread_inherit_context", 0)  # set in Python 3.14 and later if you ask for it
    with ThreadPoolExecutor(1) as pool, engine("torch"):
        assert pool.submit(REQUESTED.get).result() == ("torch" if inherited else "auto")
        with pytest.raises(ZeroDivisionError), engine("dgl"):
            assert REQUESTED.get() == "dgl"
            raise ZeroDivisionError
        assert REQUESTED.get() == "torch"
    assert REQUESTED.get() == "auto"
