"""BeliefConv: its formula against loops, what must hold on any graph, and that it finds hidden groupings."""

from __future__ import annotations

import pytest
import torch

import graphcaps
from graphcaps import dgl, pyg
from graphcaps.nn import BeliefConv

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K, T, N = 5, 4, 3, 3, 7
SRC, DST = [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 0, 0], [1, 0, 2, 1, 4, 3, 3, 6, 6, 5, 2, 2]  # a loop, and parallel edges
GRAPH = dgl.graph((SRC, DST), num_nodes=N)


def layer_of(in_feats=F, iterations=T, kind=BeliefConv):
    torch.manual_seed(0)
    layer = kind(in_feats, D, K, iterations).double()
    torch.nn.init.normal_(layer.beliefs.bias)
    torch.nn.init.normal_(layer.beliefs.logarithms, std=0.5)
    return layer


def by_loops(layer, x, weight):
    """The docstring's formula, edge by edge: h (N, K, D) and c (E, K)."""
    beliefs, edges = layer.beliefs, list(enumerate(zip(SRC, DST, strict=True)))
    epsilon, gain, nu = beliefs.learned
    z = torch.einsum("nf,fkd->nkd", x, beliefs.weight) + beliefs.bias
    h, degree = z.softmax(-1), sum(weight) / N
    for _ in range(beliefs.iterations):
        a = torch.stack([torch.stack([(h[u, k] * h[v, k]).sum() for k in range(K)]) for _, (u, v) in edges])
        new = z - nu * degree * D / K * h.mean(0)
        for e, (u, v) in edges:
            for k in range(K):
                others = sum(a[e, other] for other in range(K) if other != k)
                says = torch.zeros_like(new)
                says[v, k] = gain * torch.log(1 + 1 / (epsilon + others)) * weight[e] * h[u, k]
                new = new + says
        h = new.softmax(-1)
    return h, a / a.sum(1, keepdim=True)


@pytest.mark.parametrize("name", ["auto", "torch"])
def test_a_layer_and_its_gradients_are_those_of_loops_over_edges(draw, name):
    layer, x, weight = layer_of(), draw(N, F).requires_grad_(), draw(len(SRC)).abs().requires_grad_()
    with graphcaps.engine(name):
        got, c = layer(GRAPH, x, weight, get_coupling=True)
    wanted, couplings = by_loops(layer, x, weight)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(c.squeeze(1), couplings)
    slope, learned = draw(N, K, D), [x, weight, *layer.parameters()]
    for ours, theirs in zip(*(torch.autograd.grad(out, learned, slope) for out in (got, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_graphs_of_a_batch_share_nothing_and_pyg_gives_the_same(draw):
    other = dgl.graph(([0, 1, 2, 2], [1, 2, 0, 1]), num_nodes=3)
    layer, x, batch = layer_of(), draw(N + 3, F), dgl.batch([GRAPH, other])
    together = layer(batch, x)
    torch.testing.assert_close(together, torch.cat([layer(GRAPH, x[:N]), layer(other, x[N:])]))
    twin, edges = layer_of(kind=pyg.BeliefConv), torch.stack(batch.edges())
    twin.load_state_dict(layer.state_dict())
    got = twin(x, edges, batch=torch.tensor([0] * N + [1] * 3), return_coupling=True)
    torch.testing.assert_close(got, layer(batch, x, get_coupling=True))


def test_logits_may_be_given_and_sparse_features_do_as_dense_ones(draw):
    layer, x = layer_of(), draw(N, F)
    z = torch.einsum("nf,fkd->nkd", x, layer.beliefs.weight)
    bare = layer_of(in_feats=None)
    bare.load_state_dict(layer.state_dict(), strict=False)
    for other, feat in ((bare, z), (layer, x.to_sparse())):
        torch.testing.assert_close(other(GRAPH, feat), layer(GRAPH, x))


def test_watching_it_records_beliefs_and_couplings_and_changes_nothing(draw):
    layer, x = layer_of(), draw(N, F)
    with graphcaps.watch(layer) as seen:
        h, c = layer(GRAPH, x, get_coupling=True)
    torch.testing.assert_close(h, layer(GRAPH, x))
    trace = seen["BeliefConv"]
    assert trace.c.shape == (1, T, 1, len(SRC) * K)
    torch.testing.assert_close(torch.from_numpy(trace.c[0, -1, 0]).double().view(-1, K), c[:, 0], atol=1e-3, rtol=0)
    assert trace.nodes[::K].tolist() == [list(ends) for ends in zip(SRC, DST, strict=True)]


def test_it_finds_two_hidden_groupings_from_half_of_the_labels():
    """Each node has one of 4 states in each of 2 capsules, and edges join nodes that share a state; half are known."""
    random, nodes = torch.Generator().manual_seed(0), 200
    states = torch.randint(4, (nodes, 2), generator=random)
    same = (states[:, None] == states[None]) & (torch.rand(nodes, nodes, 2, generator=random) < 0.15)
    src, dst = same.any(-1).triu(1).nonzero(as_tuple=True)
    graph, known = dgl.to_bidirected(dgl.graph((src, dst), num_nodes=nodes)), torch.arange(nodes) < nodes // 2
    given = torch.where(known[:, None, None], 6.0 * torch.nn.functional.one_hot(states, 4), 0.0)
    h, c = BeliefConv(None, 4, 2, allow_zero_in_degree=True)(graph, given, get_coupling=True)
    assert (h.argmax(-1) == states)[~known].float().mean() > 0.95
    src, dst = graph.edges()
    by = states[src] == states[dst]
    one = by.sum(1) == 1
    assert (c[one, 0].argmax(1) == by[one].int().argmax(1)).float().mean() > 0.95


def test_nodes_that_are_sure_of_different_states_are_coupled_equally_and_half_precision_is_as_float32(draw):
    z = torch.zeros(2, K, D)
    z[0, :, 0] = z[1, :, 1] = 300.0
    graph, layer = dgl.graph(([0, 1], [1, 0])), BeliefConv(None, D, K)
    assert torch.equal(layer(graph, z, get_coupling=True)[1], torch.full((2, 1, K), 1 / K))
    layer, x = layer_of().float(), draw(N, F).float()
    got, wanted = layer.bfloat16()(GRAPH, x.bfloat16()), layer.float()(GRAPH, x.bfloat16().float())
    torch.testing.assert_close(got.float(), wanted, atol=0.02, rtol=0.02)
