"""The strongest edges against a sort per child; batches of graphs and networkx on every kind of graph."""

from __future__ import annotations

import pytest
import torch

from graphcaps import InputError, bipartite_graph, complete_graph, dgl, route, to_networkx
from graphcaps.graph import links, nearest_graph, strongest_edges


def by_sorting(graph, strength, k):
    """Edge ids, ascending: of each child the k strongest, equally strong ones by id."""
    edges = links(graph)
    kept = []
    for i in range(edges.num_children):
        mine = [e for e in range(len(edges.src)) if edges.src[e] == i]
        kept += sorted(mine, key=lambda e: (-strength[e].item(), e))[:k]
    return sorted(kept)


@pytest.mark.parametrize("k", [1, 2, 3, 1000])
@pytest.mark.parametrize("few_values", [False, True])
@pytest.mark.parametrize(
    "name", ["complete", "one_parent", "sparse_7x5", "sparse_5x9_int32", "no_edges", "homogeneous", "other_names"]
)
def test_each_child_keeps_its_strongest_edges(graphs, name, draw, k, few_values):
    graph = graphs[name]
    strength = draw(graph.num_edges())
    strength = strength.round() if few_values else strength  # many are equally strong
    graph = graph.local_var()
    graph.edata["c"] = torch.arange(graph.num_edges())
    pruned, kept = strongest_edges(graph, strength, k)
    assert kept.tolist() == by_sorting(graph, strength, k)
    assert pruned.edata["c"].tolist() == kept.tolist() and graph.num_edges() == len(strength)
    whole, rest = links(graph), links(pruned)
    assert torch.equal(rest.src, whole.src[kept]) and torch.equal(rest.dst, whole.dst[kept])
    same = [(g.num_src_nodes(), g.num_dst_nodes(), g.canonical_etypes, g.idtype) for g in (graph, pruned)]
    assert same[0] == same[1]


def test_infinite_strength_keeps_and_drops():
    strength = torch.tensor([0.0, torch.inf, -torch.inf, 1.0])
    assert strongest_edges(complete_graph(1, 4), strength, 2)[1].tolist() == [1, 3]


def test_a_batch_is_pruned_as_its_graphs_and_stays_a_batch(draw):
    graphs = [complete_graph(4, 3), bipartite_graph([], [], 2, 1), complete_graph(2, 5)]
    strengths = [draw(graph.num_edges()) for graph in graphs]
    pruned, _ = strongest_edges(dgl.batch(graphs), torch.cat(strengths), 2)
    assert pruned.batch_num_edges().tolist() == [8, 0, 4]
    for whole, strength, part in zip(graphs, strengths, dgl.unbatch(pruned), strict=True):
        wanted = strongest_edges(whole, strength, 2)[0]
        assert (links(part).src.tolist(), links(part).dst.tolist()) == (
            links(wanted).src.tolist(),
            links(wanted).dst.tolist(),
        )


@pytest.mark.parametrize(
    ("strength", "k", "text"),
    [
        (torch.ones(5), 1, "strength: expected a real tensor (E=6,), got (5,) torch.float32"),
        (torch.ones(6, 2), 1, "strength: expected a real tensor (E=6,), got (6, 2) torch.float32"),
        (torch.ones(6).long(), 1, "strength: expected a real tensor (E=6,), got (6,) torch.int64"),
        ([1.0] * 6, 1, "strength: expected a real tensor (E=6,), got list"),
        (torch.tensor([torch.nan] * 6), 1, "strength: expected numbers, got NaN"),
        (torch.ones(6), 0, "k: expected an integer >= 1, got 0"),
        (torch.ones(6), True, "k: expected an integer >= 1, got True"),
    ],
)
def test_strength_and_k_that_do_not_fit_are_named(strength, k, text):
    with pytest.raises(InputError) as caught:
        strongest_edges(complete_graph(3, 2), strength, k)
    assert str(caught.value) == text


def test_a_block_is_not_pruned(graphs):
    text = "graph: expected no message-flow block, got one. Prune the graph it was sampled from"
    with pytest.raises(InputError) as caught:
        strongest_edges(graphs["block"], torch.ones(6), 1)
    assert str(caught.value) == text


# Batches of graphs, and every kind of graph to networkx


def kinds(draw):
    """One graph of each kind there is, of any sizes."""
    near = nearest_graph(draw(6, 2), draw(5, 2), 3)
    return {
        "complete": complete_graph(4, 3),
        "no_edges": bipartite_graph([], [], 3, 2),
        "one_edge": bipartite_graph([0], [0], 1, 1),
        "isolated": bipartite_graph([2, 0, 2], [1, 1, 1], 4, 3),
        "nearest": near,
        "pruned": strongest_edges(near, draw(18), 2)[0],
    }


@pytest.mark.routings("dynamic", "uniform", "attention", "inverted")  # the tests' EM has other costs for each parent
def test_a_batch_of_graphs_routes_as_one_by_one(way, draw, trailing):
    graphs = list(kinds(draw).values())
    votes = [draw(graph.num_edges(), *trailing, 5) for graph in graphs]
    seen = []
    batch, together = dgl.batch(graphs), torch.cat(votes)
    v, activation = way(batch, together, on_iteration=lambda r, b, c, *_: seen.append(c.cpu()))
    alone = [way(graph, u_hat) for graph, u_hat in zip(graphs, votes, strict=True)]
    torch.testing.assert_close(v, torch.cat([found.v for found in alone]), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(activation, torch.cat([found.activation for found in alone]), rtol=1e-10, atol=1e-12)
    couplings = torch.cat([way.watch(g, u_hat)[-1][2] for g, u_hat in zip(graphs, votes, strict=True)])
    torch.testing.assert_close(seen[-1], couplings, rtol=1e-10, atol=1e-12)


def check_drawn(graph):
    drawn, edges = to_networkx(graph), links(graph)
    assert drawn.number_of_nodes() == edges.num_children + edges.num_parents
    ends = enumerate(zip(edges.src.tolist(), edges.dst.tolist(), strict=True))
    assert set(drawn.edges(keys=True)) == {(("child", i), ("parent", j), e) for e, (i, j) in ends}


def test_networkx_takes_every_kind_of_graph(graph):
    check_drawn(graph)


def test_networkx_takes_nearest_pruned_and_batched_graphs(draw):
    found = kinds(draw)
    for made in [*found.values(), dgl.batch(list(found.values()))]:
        check_drawn(made)


def test_networkx_gets_the_couplings_of_a_pruned_graph(draw):
    graph, _ = strongest_edges(complete_graph(3, 4), draw(12), 2)
    graph = graph.local_var()
    route(graph, draw(6, 5), on_iteration=lambda r, b, c, *_: graph.edata.update(c=c))
    assert [c for *_, c in to_networkx(graph).edges(data="c")] == graph.edata["c"].tolist()
