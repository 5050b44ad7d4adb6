"""Nobody: what its docstring promises."""

from __future__ import annotations

import pytest
import torch

from graphcaps import bipartite_graph, complete_graph, dynamic_routing, route
from graphcaps.graph import links

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.routings("nobody")]

B, D = 3, 4


def assert_same(got, wanted):
    """Equal up to the order of float64 sums of few terms."""
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


def last_couplings(way, graph, votes, **options):
    return way.watch(graph, votes, **options)[-1][2]


def share_of_nobody(way, graph, votes, **options):
    """(I, B)."""
    c = last_couplings(way, graph, votes, **options)
    return 1 - c.new_zeros(graph.num_src_nodes(), B).index_add(0, links(graph).src, c)


@pytest.mark.fact(7)
def test_nobody_is_one_parent_more_that_all_votes_for_are_zero(way, graph, draw):
    children, parents, edges = graph.num_src_nodes(), graph.num_dst_nodes(), links(graph)
    votes, prior = draw(graph.num_edges(), B, D), draw(graph.num_edges(), B)
    src = torch.cat([edges.src, torch.arange(children)])
    dst = torch.cat([edges.dst, torch.full((children,), parents)])
    linked = bipartite_graph(src, dst, children, parents + 1)
    more = torch.cat([votes, votes.new_zeros(children, B, D)]), torch.cat([prior, prior.new_zeros(children, B)])
    assert_same(way(graph, votes, prior).v, dynamic_routing(linked, more[0], prior=more[1], engine="torch")[:parents])


@pytest.mark.parametrize("far", [40.0, 1000.0])
def test_without_hope_for_nobody_it_is_dynamic_routing_and_the_other_way_all_are_nobodys(way, graph, far, draw):
    votes = draw(graph.num_edges(), B, D)
    assert_same(way(graph, votes, prior=far).v, dynamic_routing(graph, votes, engine="torch"))
    assert not (way(graph, votes, prior=-far).activation > 1e-14).any()


def test_a_child_that_agrees_with_no_parent_is_nobodys(way, draw):
    """Nine children vote alike for both parents, and the tenth against each of them."""
    graph, alike = complete_graph(10, 2), draw(1, 1, D)
    votes = (2 * alike).repeat(20, B, 1)
    votes[18:] *= -1
    others, tenth = share_of_nobody(way, graph, votes).split([9, 1])
    assert (others < 0.2).all() and (tenth > 0.7).all()


def test_a_learned_prior_learns_how_much_nobody_has(way, graphs, draw):
    graph, votes = graphs["sparse_7x5"], draw(63, B, D)
    prior = torch.zeros((), dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(way(graph, votes, prior).v.square().sum(), prior)[0]
    step = 1e-6
    above, below = (route(graph, votes, routing="nobody", engine="naive", prior=h).v for h in (step, -step))
    torch.testing.assert_close(slope, (above.square().sum() - below.square().sum()) / (2 * step), rtol=1e-6, atol=1e-7)
