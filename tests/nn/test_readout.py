"""CapsuleReadout: empty graphs, and its numbers beside those of ``route``."""

import pytest
import torch

import graphcaps
from graphcaps import dgl, squash
from graphcaps.nn import CapsuleReadout
from graphcaps.routing import Dynamic, Spherical, Uniform

pytestmark = pytest.mark.usefixtures("one_thread")

F, D, K = 6, 4, 3
EXACT = dict(rtol=1e-10, atol=1e-10)  # float64: sums of at most 13 terms


def test_graphs_without_nodes_and_of_one_node_are_read_out(draw):
    readout = CapsuleReadout(F, D, 2).double()
    torch.nn.init.normal_(readout.capsules.bias)
    empty, one = dgl.graph(([], []), num_nodes=0), dgl.graph(([], []), num_nodes=1)
    out, c = readout(dgl.batch([empty, one, empty]), draw(1, F), get_coupling=True)
    assert out.shape == (3, 2, D) and c.shape == (1, 1, 2)
    torch.testing.assert_close(out[0], squash(readout.capsules.bias))
    assert (out[1] - out[0]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("engine", "routing"),
    [("auto", Dynamic(2)), ("auto", Uniform()), *((name, Spherical(3, 4.0)) for name in ("auto", "torch", "dgl"))],
    ids=str,
)
def test_a_readout_with_one_matrix_and_a_prior_is_route_divided_by_the_number_of_nodes(routing, engine, draw):
    sizes = torch.tensor([5, 1, 7])
    batch = dgl.batch([dgl.graph(([], []), num_nodes=size) for size in sizes.tolist()])
    readout = CapsuleReadout(F, D, K, routing, normalise=False, bias=False, shared=True).double()
    x, prior, cotangent = draw(13, F).requires_grad_(), draw(13, K).requires_grad_(), draw(3, K, D)
    with graphcaps.engine(engine):
        got, c = readout(batch, x, get_coupling=True, prior=prior)
    parents = K * torch.arange(3).repeat_interleave(sizes)[:, None] + torch.arange(K)
    graph = graphcaps.bipartite_graph(torch.arange(13).repeat_interleave(K), parents.flatten(), 13, 3 * K)
    votes = (x @ readout.capsules.weight[0, :, 0]).repeat_interleave(K, 0)
    routed = graphcaps.route(graph, votes, readout.capsules.routing, prior=prior.flatten())
    wanted = squash(routed.pose.view(3, K, D) * K / sizes[:, None, None])
    torch.testing.assert_close((got, c), (wanted, routed.coupling.view(13, 1, K)), **EXACT)
    learned = [x, prior, *readout.parameters()]
    torch.testing.assert_close(*(torch.autograd.grad(out, learned, cotangent) for out in (got, wanted)), **EXACT)
