"""Spherical routing: what its docstring promises, and gradients of all that it may learn."""

from __future__ import annotations

import pytest
import torch

from graphcaps import LinearVotes, bipartite_graph, complete_graph, route
from graphcaps.errors import InputError
from graphcaps.graph import links
from graphcaps.nn import CapsuleLayer
from graphcaps.routing import SphericalParameters

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.routings("spherical")]

B, D = 3, 4


def assert_same(got, wanted):
    """Equal up to the order of float64 sums of few terms."""
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


def couplings(way, graph, votes, **options):
    return torch.stack([c for _, _, c, _, _ in way.watch(graph, votes, **options)])


def kappa(number):
    return SphericalParameters(torch.as_tensor(number, dtype=torch.float64))


@pytest.mark.parametrize("scale", [10, 1e6, 1e-8])
def test_longer_votes_are_coupled_alike(way, graph, scale, draw):
    votes = draw(graph.num_edges(), B, D)
    assert_same(couplings(way, graph, scale * votes), couplings(way, graph, votes))


def test_every_child_twice_is_coupled_as_it_was_once(way, graphs, draw):
    graph, votes = graphs["sparse_7x5"], draw(63, B, D)
    src, dst = links(graph).src, links(graph).dst
    twice = bipartite_graph(torch.cat([src, src + 7]), torch.cat([dst, dst]), 14, 5)
    assert_same(couplings(way, twice, torch.cat([votes, votes]))[:, :63], couplings(way, graph, votes))


@pytest.mark.parametrize("none", [0.0, kappa(0).concentration, kappa([0.0] * 5).concentration])
def test_without_concentration_couplings_are_what_the_prior_says(way, graphs, none, draw):
    graph, votes, prior = graphs["sparse_7x5"], draw(63, B, D), draw(63, B)
    wanted = route(graph, votes, routing="uniform", prior=prior, engine="naive").v
    assert_same(way(graph, votes, prior, parameters=SphericalParameters(none)).v, wanted)


def test_a_logit_is_at_most_kappa_times_a_votes_share_of_the_usual_length(way, graph, draw):
    """And just that for the only vote of a parent."""
    votes, prior, dst = draw(graph.num_edges(), B, D), draw(graph.num_edges()), links(graph).dst
    squares = torch.zeros(graph.num_dst_nodes(), B).double().index_add(0, dst, votes.square().sum(-1))
    rho = (squares / graph.in_degrees()[:, None].clamp_min(1)).sqrt()
    most = 2.5 * votes.norm(dim=-1) / rho[dst]
    for r, b, _, _, _ in way.watch(graph, votes, prior=prior, parameters=SphericalParameters(2.5), iterations=5):
        moved = (b - prior[:, None]).abs()
        assert (moved <= most + 1e-12).all() and moved.any() == (r > 0 and len(votes) > 0)
    (_, (_, b, _, _, _)) = way.watch(complete_graph(1, 2), draw(2, B, D), parameters=kappa([1.0, 3.0]), iterations=2)
    assert_same(b, torch.tensor([[1.0], [3.0]]).double().expand(2, B))


def test_no_votes_and_zero_votes_have_gradients(way, graph, draw):
    votes = torch.zeros(graph.num_edges(), B, D, dtype=torch.float64, requires_grad=True)
    strength = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    routed = way(graph, votes, parameters=SphericalParameters(strength))
    assert not routed.v.any()
    gradients = torch.autograd.grad(sum(x.sum() for x in routed), (votes, strength), materialize_grads=True)
    assert all(x.isfinite().all() for x in gradients)


KINDS = {
    "given": lambda draw: (draw(63, B, D),),
    "shared": lambda draw: (draw(7, B, 3), draw(3, D)),
    "per_edge": lambda draw: (draw(7, B, 3), draw(63, 3, D)),
    "per_type": lambda draw: (draw(7, B, 3), draw(7, 5, 3, D)),
    "indexed": lambda draw: (draw(7, B, 3), draw(2, 3, D), torch.arange(63) % 2),
    "per_edge_of_a_complete_graph": lambda draw: (draw(4, B, 3), draw(12, 3, D)),
    "per_type_of_a_complete_graph": lambda draw: (draw(4, B, 3), draw(2, 3, 3, D)),
}


@pytest.mark.fact(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "learned", ["all", *(pytest.param(one, marks=pytest.mark.long) for one in ("votes", "prior", "concentration"))]
)
def test_whatever_is_learned_has_naives_gradient(way, graphs, kind, learned, draw):
    graph = graphs["complete" if kind.endswith("complete_graph") else "sparse_7x5"]
    drawn = KINDS[kind](draw)
    numbers, index = list(drawn[:2]), drawn[2] if kind == "indexed" else None
    parents = graph.num_dst_nodes()
    tensors = {"votes": numbers, "prior": [draw(graph.num_edges())], "concentration": [1 + draw(parents).square()]}
    leaves = [x.requires_grad_() for name, some in tensors.items() if learned in ("all", name) for x in some]
    votes = numbers[0] if kind == "given" else LinearVotes(*numbers, index)
    options = {"parameters": SphericalParameters(*tensors["concentration"]), "prior": tensors["prior"][0]}
    cotangent, found = draw(parents, B, D), []
    for each in (way, way._replace(engine="naive", device="cpu")):
        routed = each(graph, votes, iterations=4, **options)
        found.append([routed.v, *torch.autograd.grad(routed.v, leaves, cotangent)])
    for got, wanted in zip(*found, strict=True):
        assert_same(got, wanted)


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), float("nan"), "4", None])
def test_a_concentration_is_a_finite_number_that_is_not_negative(wrong):
    with pytest.raises(InputError, match="concentration: expected a finite number >= 0, got "):
        route(complete_graph(2, 2), torch.ones(4, D), routing="spherical", parameters=SphericalParameters(wrong))


def test_kappa_of_a_layer_for_images_starts_small_and_a_step_of_adam_changes_its_logarithm_by_ten_learning_rates(draw):
    layer = CapsuleLayer(6, 3, routing="spherical").double()
    before = layer.learned().concentration.detach()
    adam = torch.optim.Adam(layer.parameters(), lr=0.001)
    layer(draw(6, 2, 8)).square().sum().backward()
    adam.step()
    assert before.item() == pytest.approx(0.01)
    assert (layer.learned().concentration / before).log().abs().item() == pytest.approx(0.01, rel=1e-3)
