"""The door to routing: shapes and dtypes, prior, observer, routed graph, linear votes, choice of engine, bad input."""

from __future__ import annotations

import logging

import pytest
import torch

from graphcaps import LinearVotes, bipartite_graph, choose_engine, complete_graph, dgl, dynamic_routing, route, squash
from graphcaps.errors import InputError
from graphcaps.graph import links
from graphcaps.nn import CapsuleLayer
from graphcaps.routing import EMParameters, InvertedParameters
from graphcaps.routing.engines import _say, engine_names, routing_names

pytestmark = pytest.mark.usefixtures("one_thread")

D = 4


def assert_same(got, wanted):
    """Equal up to the order of float64 sums of at most 100 terms."""
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def softmax_by_child(graph, b, routing=""):
    edges = links(graph)
    c = torch.zeros_like(b)
    for i in edges.src.unique():
        own = b[edges.src == i]
        logits = torch.cat([own, torch.zeros_like(own[:1])]) if routing == "nobody" else own
        c[edges.src == i] = logits.softmax(dim=0)[: len(own)]
    return c


# Shapes and dtypes


def test_shapes_follow_the_graph_and_the_trailing_dims(way, graph, trailing, dtype, draw):
    v, activation = way(graph, draw(graph.num_edges(), *trailing, D, dtype=dtype))
    assert v.shape == (graph.num_dst_nodes(), *trailing, D)
    assert activation.shape == (graph.num_dst_nodes(), *trailing)
    assert v.dtype == activation.dtype == dtype


@pytest.mark.parametrize("shape", [(0, D), (3, 0)], ids=["no_images", "no_numbers"])
def test_empty_trailing_dims_route_to_nothing(way, graph, shape):
    votes = torch.zeros(graph.num_edges(), *shape, requires_grad=True)
    v, activation = way(graph, votes)
    assert v.shape == (graph.num_dst_nodes(), *shape) and activation.shape == v.shape[:-1]
    v.sum().backward()
    assert votes.grad.shape == votes.shape


def test_a_parent_without_votes_is_zero(way, graphs, draw):
    v, activation = way(graphs["sparse_7x5"], draw(63, 3, D))
    assert not v[0].any() and not activation[0].any()
    assert v[1:].any(dim=-1).all()


def test_graphs_of_32_and_64_bit_indices_route_alike(way, graphs, draw):
    short, votes = graphs["sparse_5x9_int32"], draw(100, 3, D)
    assert short.idtype == torch.int32
    assert_same(way(short, votes).v, way(short.long(), votes).v)


def test_the_names_of_the_types_do_not_matter(way, draw):
    ends, votes = ([0, 0, 2, 2], [1, 0, 1, 1]), draw(4, 3, D)
    v = way(bipartite_graph(*ends, 4, 3), votes).v
    named = dgl.heterograph({("user", "buys", "item"): ends}, {"user": 4, "item": 3})
    same_nodes = dgl.graph(ends, num_nodes=3)
    assert_same(way(named, votes).v, v)
    assert_same(way(same_nodes, votes).v, v)


def test_a_graph_routes_by_its_edges_as_they_are_now(way, draw):
    graph, votes = bipartite_graph([0, 1], [0, 1], 2, 2), draw(3, D)
    way(graph, votes[:2])
    graph.add_edges([0], [1])
    assert_same(way(graph, votes).v, way(bipartite_graph([0, 1, 0], [0, 1, 1], 2, 2), votes).v)


def test_votes_need_not_be_contiguous(way, graphs, draw):
    graph, votes = graphs["sparse_7x5"], draw(D, 3, 63).permute(2, 1, 0)
    assert not votes.is_contiguous()
    assert_same(way(graph, votes).v, way(graph, votes.contiguous()).v)
    repeated = draw(63, 1, D).expand(63, 3, D)
    assert_same(way(graph, repeated).v, way(graph, repeated.contiguous()).v)


@pytest.mark.parametrize("half", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.long)])
def test_half_precision_votes_are_routed_in_float32(way, graphs, half, draw):
    graph, votes = graphs["sparse_7x5"], draw(63, 3, D).to(half)
    seen = []
    v, activation = way(graph, votes, on_iteration=lambda r, *state: seen.append([x.dtype for x in state]))
    assert v.dtype == activation.dtype == half
    assert seen == [[torch.float32] * 4] * 3
    exact = way(graph, votes.float())
    # float32 sums may differ in order; then both are rounded to half, by at most one unit of its last place
    torch.testing.assert_close(v, exact.v.to(half), rtol=torch.finfo(half).eps, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), pytest.param(float("inf"), marks=pytest.mark.long)])
def test_a_vote_that_is_not_finite_stays_in_its_image(way, graphs, bad, draw):
    graph, votes = graphs["complete"], draw(12, 3, D)
    clean = way(graph, votes).v
    votes[5, 1, 2] = bad
    v = way(graph, votes).v
    assert_same(v[:, [0, 2]], clean[:, [0, 2]])
    assert not v[:, 1].isfinite().all()
    if way.routing == "attention":  # each logit is made of all votes for a parent
        return
    once = way(graph, votes, iterations=1).v.isfinite().all(-1)  # (J, 3)
    assert once.tolist() == [[True, True, True], [True, True, True], [True, False, True]]  # edge 5 goes to parent 2


@pytest.mark.routings("dynamic", "uniform")
def test_large_logits_do_not_overflow(way, graphs, draw):
    graph, votes = graphs["complete"], draw(12, D)
    prior = torch.zeros(12, dtype=torch.float64)
    prior[::3] = 1e4  # every child is for parent 0
    assert_same(way(graph, votes, prior=prior, iterations=1).v[0], squash(votes[::3].sum(0)))


@pytest.mark.routings("dynamic", "uniform", "attention", "inverted")
def test_activation_of_the_children_changes_nothing_but_em_routing(way, graphs, draw):
    graph, votes = graphs["complete"], draw(12, 3, D)
    activation = torch.rand(4, 3, dtype=torch.float64, device=way.device)
    assert_same(way(graph, votes, activation=activation).v, way(graph, votes).v)


# Prior


PRIORS = [(), (63, 3), (63, 1, 2)]


@pytest.mark.parametrize("shape", [(63,), (1, 3), *(pytest.param(shape, marks=pytest.mark.long) for shape in PRIORS)])
def test_a_prior_broadcasts_from_the_left_and_so_does_its_gradient(way, graphs, shape, draw):
    graph, votes = graphs["sparse_7x5"], draw(63, 3, 2, D)
    prior = draw(*shape).requires_grad_()
    spread = prior.detach().reshape(*shape, *[1] * (3 - len(shape))).expand(63, 3, 2).clone().requires_grad_()
    cotangent = draw(5, 3, 2, D)
    v, wanted = way(graph, votes, prior=prior).v, way(graph, votes, prior=spread).v
    assert_same(v, wanted)
    (gradient,) = torch.autograd.grad(v, prior, cotangent)
    (spread_gradient,) = torch.autograd.grad(wanted, spread, cotangent)
    as_broadcast = spread_gradient.sum_to_size(*shape, *[1] * (3 - len(shape))).reshape(shape)
    torch.testing.assert_close(gradient, as_broadcast, rtol=1e-10, atol=1e-10)
    assert gradient.any() or not shape  # the same number for all logits changes nothing


@pytest.mark.routings("dynamic", "uniform", "inverted", "em")
def test_a_prior_makes_the_couplings_of_the_first_iteration(way, graphs, draw):
    graph, votes, prior = graphs["sparse_7x5"], draw(63, 3, D), draw(63)
    (_, b, c, _, _), *_ = way.watch(graph, votes, prior=prior)
    assert_same(b, prior.unsqueeze(1).expand(63, 3))
    assert_same(c, softmax_by_child(graph, b))


def test_a_prior_may_be_a_number_or_a_list(way, graphs, draw):
    graph, votes = graphs["complete"], draw(12, 3, D)
    assert_same(way(graph, votes, prior=2).v, way(graph, votes, prior=torch.full((12, 3), 2.0).double()).v)
    if way.routing != "nobody":  # whose logit is 0
        assert_same(way(graph, votes, prior=2).v, way(graph, votes).v)
    logits = [0.5 * e for e in range(12)]
    assert_same(way(graph, votes, prior=logits).v, way(graph, votes, prior=torch.tensor(logits).double()).v)


# Observer


@pytest.mark.parametrize("iterations", [3, pytest.param(1, marks=pytest.mark.long)])
def test_an_observer_sees_couplings_and_parents_that_belong_together(way, graph, trailing, iterations, draw):
    votes, edges = draw(graph.num_edges(), *trailing, D), links(graph)
    seen = way.watch(graph, votes, iterations=iterations)
    assert [r for r, *_ in seen] == list(range(iterations))
    for _, b, c, v, agreement in seen:
        assert_same(c, softmax_by_child(graph, b, way.routing))
        assert_same(agreement, (votes * v[edges.dst]).sum(-1))
    v, activation = way(graph, votes, iterations=iterations)
    assert_same(seen[-1][3], v)
    assert_same(v.norm(dim=-1), activation)


@pytest.mark.routings("dynamic")
@pytest.mark.parametrize("iterations", [5, pytest.param(1, marks=pytest.mark.long)])
def test_an_observer_sees_every_iteration_of_the_procedure(way, graph, trailing, iterations, draw):
    votes = draw(graph.num_edges(), *trailing, D)
    edges = links(graph)
    seen = way.watch(graph, votes, iterations=iterations)
    assert [r for r, *_ in seen] == list(range(iterations))
    expected_b = torch.zeros_like(votes[..., 0])
    for _, b, c, v, agreement in seen:
        assert_same(b, expected_b)
        assert_same(c, softmax_by_child(graph, b))
        s = votes.new_zeros(v.shape).index_add(0, edges.dst, c.unsqueeze(-1) * votes)
        assert_same(v, squash(s))
        assert_same(agreement, (votes * v[edges.dst]).sum(-1))
        expected_b = b + agreement
    assert_same(seen[-1][3], way(graph, votes, iterations=iterations).v)


def test_an_observer_gets_tensors_without_history(way, graphs, draw):
    votes = draw(12, 3, D).requires_grad_()
    for _, *state in way.watch(graphs["complete"], votes, prior=draw(12).requires_grad_()):
        assert not any(x.requires_grad for x in state)


def test_an_observer_does_not_change_the_gradient(way, graphs, draw):
    graph, votes = graphs["sparse_7x5"], draw(63, 3, D).requires_grad_()
    (alone,) = torch.autograd.grad(way(graph, votes).v.sum(), votes)
    (watched,) = torch.autograd.grad(way(graph, votes, on_iteration=lambda *state: None).v.sum(), votes)
    assert_same(watched, alone)


# Routed graph


@pytest.mark.routings("dynamic")
def test_the_routed_graph_holds_the_last_iteration_detached(way, graph, trailing, draw):
    graph = way.graph(graph)
    votes = draw(graph.num_edges(), *trailing, D).to(way.device).requires_grad_()
    names = set(graph.edata)
    seen = []
    v, routed = dynamic_routing(
        graph, votes, engine=way.engine, return_graph=True, on_iteration=lambda r, *state: seen.append(state)
    )
    b, c, last_v, _ = seen[-1]
    assert len(seen) == 3
    parent = routed.dstnodes[graph.canonical_etypes[0][2]].data["v"]
    for got, wanted in zip((routed.edata["u_hat"], routed.edata["b"], routed.edata["c"]), (votes, b, c), strict=True):
        assert torch.equal(got, wanted.to(graph.device)) and not got.requires_grad
    assert torch.equal(parent, last_v.to(graph.device)) and not parent.requires_grad
    assert torch.equal(v, last_v) and v.requires_grad
    assert routed._graph is graph._graph  # the structure is shared, the features are not
    assert set(graph.edata) == names and "v" not in graph.dstnodes[graph.canonical_etypes[0][2]].data
    assert routed.canonical_etypes == graph.canonical_etypes


@pytest.mark.routings("dynamic")
def test_the_routed_graph_of_linear_votes_holds_the_votes(way, draw):
    graph, u, weight = way.graph(complete_graph(4, 3)), draw(4, 2, 5).to(way.device), draw(12, 5, D).to(way.device)
    _, routed = dynamic_routing(graph, LinearVotes(u, weight), engine=way.engine, return_graph=True)
    assert_same(routed.edata["u_hat"].to(way.device), LinearVotes(u, weight).tensor(graph))


def test_dynamic_routing_is_route_without_the_activation(graphs, draw):
    graph, votes, prior = graphs["sparse_7x5"], draw(63, 3, D), draw(63)
    wanted = route(graph, votes, iterations=4, prior=prior).v
    assert torch.equal(dynamic_routing(graph, votes, 4, prior), wanted)


# Linear votes


def linear_votes_by_loop(graph, u, weight, types, index=None):
    """u_hat_e = u_i W_e for one edge after the other; types is T where weight is (T, J, P, D)."""
    rows = []
    for e, (i, j) in enumerate(zip(*(end.tolist() for end in graph.edges(order="eid")), strict=True)):
        if weight.dim() == 2:
            w = weight
        elif weight.dim() == 3:
            w = weight[e if index is None else int(index[e])]
        else:
            w = weight[i // (graph.num_src_nodes() // types), j]
        rows.append(u[i] @ w)
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["per_edge", "per_type", "shared", "by_index"])
@pytest.mark.parametrize("structure", ["complete", "complete_shuffled", "sparse"])
def test_linear_votes_equal_a_loop_over_edges(kind, structure, trailing, draw):
    children, parents, types, child_dim = 6, 3, 2, 5
    pairs = torch.cartesian_prod(torch.arange(children), torch.arange(parents))
    if structure == "complete":
        graph = complete_graph(children, parents)
    elif structure == "complete_shuffled":
        graph = bipartite_graph(*pairs[torch.randperm(18, generator=torch.Generator().manual_seed(1))].T, 6, 3)
    else:
        graph = bipartite_graph([5, 0, 0, 3, 3, 3], [1, 0, 2, 1, 1, 0], children, parents)
    shape = {"per_edge": (graph.num_edges(),), "per_type": (types, parents), "shared": (), "by_index": (4,)}[kind]
    index = torch.arange(graph.num_edges()) * 3 % 4 if kind == "by_index" else None
    u, weight = draw(children, *trailing, child_dim).requires_grad_(), draw(*shape, child_dim, D).requires_grad_()
    got, wanted = LinearVotes(u, weight, index).tensor(graph), linear_votes_by_loop(graph, u, weight, types, index)
    assert_same(got, wanted)
    cotangent = draw(*wanted.shape)
    gradients = [torch.autograd.grad(votes, (u, weight), cotangent) for votes in (got, wanted)]
    for got, wanted in zip(*gradients, strict=True):
        assert_same(got, wanted)


def test_linear_votes_route_as_the_votes_they_make(way, draw):
    graph, votes = complete_graph(4, 3), LinearVotes(draw(4, 2, 5), draw(12, 5, D))
    assert_same(way(graph, votes).v, way(graph, votes.tensor(graph)).v)


@pytest.mark.fact(12)
def test_matrices_by_index_give_naives_value_and_gradients(way, graph, trailing, draw):
    """Some matrices are taken by no edge, others by edges of several children."""
    index = (torch.arange(graph.num_edges()) * 5 % 6).to(torch.int32 if trailing else torch.int64)
    u, weight = draw(graph.num_src_nodes(), *trailing, 5).requires_grad_(), draw(7, 5, D).requires_grad_()
    oracle = way._replace(engine="naive", device="cpu")
    wanted = oracle(graph, linear_votes_by_loop(graph, u, weight, 1, index)).v if len(index) else None
    got = way(graph, LinearVotes(u, weight, index)).v
    if wanted is None:
        assert got.shape == (graph.num_dst_nodes(), *trailing, D) and not got.any()
        return
    assert_same(got, wanted)
    cotangent = draw(*wanted.shape)
    for gradients in zip(*(torch.autograd.grad(v, (u, weight), cotangent) for v in (got, wanted)), strict=True):
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.long
@pytest.mark.fact(12)
def test_gradients_of_matrices_by_index_are_the_slopes(way, graphs, draw):
    graph, index = graphs["complete"], torch.arange(12) % 3

    def run(u, weight):
        return way(graph, LinearVotes(u, weight, index)).v

    inputs = draw(4, 2, 5).requires_grad_(), draw(3, 5, D).requires_grad_()
    assert torch.autograd.gradcheck(run, inputs, nondet_tol=0.0 if way.device == "cpu" else 1e-10)


def test_an_index_that_changed_is_read_anew(way, graphs, draw):
    graph, index = graphs["sparse_7x5"], torch.zeros(63, dtype=torch.int64)
    votes = LinearVotes(draw(7, 2, 5), draw(4, 5, D), index)
    before = way(graph, votes).v
    index += 1
    assert_same(way(graph, votes).v, way(graph, votes._replace(index=torch.ones(63, dtype=torch.int64))).v)
    assert not torch.equal(way(graph, votes).v, before)


def test_linear_votes_move_with_their_index():
    votes = LinearVotes(torch.ones(3, 8), torch.ones(2, 8, 4), torch.tensor([0, 1, 1, 0, 1, 1]))
    double, elsewhere = votes.to(torch.float64), votes.to("meta")
    assert (double.u.dtype, double.weight.dtype, double.index.dtype) == (torch.float64, torch.float64, torch.int64)
    assert {tensor.device.type for tensor in elsewhere} == {"meta"}
    assert LinearVotes(torch.ones(3, 8), torch.ones(8, 4)).to("meta").index is None


# Choice of engine


def test_the_table_has_naive_for_every_routing():
    assert "dynamic" in routing_names()
    for routing in routing_names():
        assert engine_names(routing)[0] == "naive"
    assert set(engine_names()) >= {"naive", "dgl", "torch"}


def test_auto_is_fused_on_the_cpu_and_torch_where_dgl_cant_be():
    graph = complete_graph(3, 2)
    elsewhere = torch.zeros(6, 4, device="meta")
    assert choose_engine(graph, torch.zeros(6, 4)) == "fused"
    assert choose_engine(graph, elsewhere) == "torch"
    assert choose_engine(graph, LinearVotes(elsewhere, elsewhere)) == "torch"


@pytest.mark.parametrize("routing", ["inverted", "em"])
def test_auto_is_an_engine_that_the_routing_has(routing, graphs, draw):
    for name, engine in (("complete", "torch"), ("sparse_7x5", "dgl")):
        graph, votes = graphs[name], draw(graphs[name].num_edges(), 5, D)
        assert choose_engine(graph, votes, routing) == engine
        assert torch.equal(
            route(graph, votes, routing=routing).v, route(graph, votes, routing=routing, engine=engine).v
        )


def test_auto_says_once_what_it_chose(caplog, draw):
    graph = complete_graph(3, 2)
    _say.cache_clear()
    with caplog.at_level(logging.INFO, logger="graphcaps"):
        for _ in range(3):
            route(graph, draw(6, 4))
    assert [record.getMessage() for record in caplog.records] == [
        "engine auto: dynamic routing runs on 'fused' (cpu)",
    ]


def test_auto_routes_as_the_engine_it_chose(graphs, draw):
    graph, votes = graphs["sparse_7x5"], draw(63, 3, D)
    assert torch.equal(route(graph, votes).v, route(graph, votes, engine="fused").v)


# Bad input

ROUTINGS = "dynamic, uniform, nobody, attention, spherical, inverted, em"
GRAPH = complete_graph(3, 2)
VOTES = torch.ones(6, 5, 4)
META = torch.zeros(6, device="meta")
TWO_TYPES = dgl.heterograph({("a", "r", "b"): ([0], [0]), ("a", "q", "b"): ([0], [0])})
MORE_NODES = dgl.heterograph({("a", "r", "a"): ([0], [1])}, {"a": 3, "c": 4})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"votes": torch.ones(2, 6, 3)},
            "u_hat: expected (E=6, *, D), got (2, 6, 3). Edges come first: u_hat.transpose(0, 1)",
        ),
        ({"votes": torch.ones(6)}, "u_hat: expected (E=6, *, D), got (6,)"),
        (
            {"votes": torch.ones(6, 4, dtype=torch.int64)},
            "u_hat: expected floating point, got torch.int64. Convert it: u_hat.float()",
        ),
        ({"votes": [[1.0] * 4] * 6}, "u_hat: expected a tensor or LinearVotes, got list"),
        ({"graph": 5}, "graph: expected a DGLGraph, got int"),
        (
            {"graph": TWO_TYPES},
            "graph: expected one canonical edge type, got [('a', 'q', 'b'), ('a', 'r', 'b')]. "
            "Pick one: graph[canonical_etype]",
        ),
        (
            {"graph": MORE_NODES},
            "graph: expected only the node types of ('a', 'r', 'a'), got ['a', 'c']. Pick one: graph[canonical_etype]",
        ),
        ({"iterations": 0}, "iterations: expected an integer >= 1, got 0"),
        ({"iterations": True}, "iterations: expected an integer >= 1, got True"),
        ({"iterations": 2.5}, "iterations: expected an integer >= 1, got 2.5"),
        ({"engine": "dlg"}, "engine: expected one of auto, naive, dgl, torch, fused, got 'dlg'. Did you mean 'dgl'?"),
        ({"routing": "dynamo"}, f"routing: expected one of {ROUTINGS}, got 'dynamo'. Did you mean 'dynamic'?"),
        (
            {"routing": "em", "engine": "fused"},
            "engine: expected one of auto, naive, dgl, torch for em routing, got 'fused'. Its passes are those of "
            "dynamic routing; em also needs, for each number of the votes, the sum of squares around a parent's mean",
        ),
        (
            {"routing": "inverted", "engine": "fused"},
            "engine: expected one of auto, naive, dgl, torch for inverted routing, got 'fused'. Its passes are those "
            "of dynamic routing; inverted normalises the parents between them, and doesn't add up its logits",
        ),
        (
            {"parameters": EMParameters()},
            "parameters: expected none for dynamic routing, got EMParameters",
        ),
        (
            {"routing": "em", "parameters": InvertedParameters()},
            "parameters: expected EMParameters for em routing, got InvertedParameters",
        ),
        (
            {"routing": "em", "parameters": EMParameters(bias=torch.zeros(3))},
            "bias: expected a number or (J=2,), got (3,)",
        ),
        (
            {"routing": "em", "parameters": EMParameters(beta_u=META[0])},
            "beta_u: expected device cpu as the votes, got meta",
        ),
        (
            {"routing": "em", "parameters": EMParameters(final_lambda=0)},
            "final_lambda: expected a number > 0, got 0",
        ),
        (
            {"routing": "em", "parameters": EMParameters(variance_floor=0.0)},
            "variance_floor: expected a number > 0, got 0.0",
        ),
        (
            {"routing": "inverted", "parameters": InvertedParameters(norm_weight=torch.ones(5))},
            "norm_weight: expected (D=4,), got (5,)",
        ),
        (
            {"routing": "inverted", "parameters": InvertedParameters(head_bias=torch.ones(4))},
            "head_bias: expected (), got (4,)",
        ),
        ({"prior": torch.zeros(5)}, "prior: expected broadcastable from the left to (E, *)=(6, 5), got (5,)"),
        (
            {"prior": torch.zeros(6, 5, 1)},
            "prior: expected broadcastable from the left to (E, *)=(6, 5), got (6, 5, 1)",
        ),
        ({"prior": META}, "prior: expected device cpu as the votes, got meta"),
        ({"activation": torch.ones(3)}, "activation: expected (I, *)=(3, 5), got (3,)"),
        ({"activation": META[:3, None].expand(3, 5)}, "activation: expected device cpu as the votes, got meta"),
        (
            {"votes": VOTES.to("meta"), "engine": "dgl"},
            "engine: expected votes on the graph's device cpu for 'dgl', got meta. Use engine='torch'",
        ),
        (
            {"votes": VOTES.to("meta"), "engine": "fused"},
            "engine: expected votes on the CPU or on CUDA for 'fused', got (6, 5, 4) on meta. Use 'torch'",
        ),
        (
            {"votes": LinearVotes(torch.ones(4, 8), torch.ones(6, 8, 4))},
            "u: expected (I=3, *, P), got (4, 8)",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8).int(), torch.ones(6, 8, 4))},
            "u: expected floating point, got torch.int32. Convert it: u.float()",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), META.expand(6, 8, 6))},
            "weight: expected device cpu as u, got meta",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(8))},
            "weight: expected (E, P, D), (T, J, P, D) or (P, D), got (8,)",
        ),
        ({"votes": LinearVotes(torch.ones(3, 8), torch.ones(6, 7, 4))}, "weight: expected P=8 as in u, got (6, 7, 4)"),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(5, 8, 4))},
            "weight: expected (E=6, P, D), got (5, 8, 4)",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(2, 2, 8, 4))},
            "weight: expected (T, J=2, P, D) with T a divisor of I=3, got (2, 2, 8, 4)",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(8, 4), torch.zeros(6).long())},
            "weight: expected (M, P, D) beside an index, got (8, 4)",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(2, 8, 4), torch.zeros(6))},
            "index: expected int32 or int64, got torch.float32",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(2, 8, 4), torch.zeros(5).long())},
            "index: expected (E=6,), got (5,)",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(2, 8, 4), META.long())},
            "index: expected device cpu as u, got meta",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(2, 8, 4), torch.arange(6))},
            "index: expected matrices in [0, M=2), got 0 to 5",
        ),
        (
            {"votes": LinearVotes(torch.ones(3, 8), torch.ones(2, 8, 4), torch.arange(6) - 4)},
            "index: expected matrices in [0, M=2), got -4 to 1",
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_bad_input_is_named_with_what_was_wanted_and_what_came(arguments, text):
    with pytest.raises(InputError) as caught:
        route(**{"graph": GRAPH, "votes": VOTES, **arguments})
    assert str(caught.value) == text


def test_a_routed_graph_of_bad_votes_names_them_too():
    with pytest.raises(InputError, match=r"^u_hat: expected \(E=6, \*, D\), got \(5, 4\)$"):
        dynamic_routing(GRAPH, torch.ones(5, 4), return_graph=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"iterations": True}, "iterations: expected an integer >= 1, got True"),
        (
            {"engine": "trch"},
            "engine: expected one of auto, naive, dgl, torch, fused, got 'trch'. Did you mean 'torch'?",
        ),
        ({"routing": "zzz"}, f"routing: expected one of {ROUTINGS}, got 'zzz'"),
    ],
)
def test_a_capsule_layer_refuses_when_it_is_made(options, text):
    with pytest.raises(InputError) as caught:
        CapsuleLayer(3, 2, **options)
    assert str(caught.value) == text
