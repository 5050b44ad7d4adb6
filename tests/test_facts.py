"""The twelve facts, each broken in some popular capsule repository (10 and 11 are in test_training.py)."""

import numpy as np
import pytest
import torch

from graphcaps import CapsNet, margin_loss, spread_loss, squash
from graphcaps.graph import links_of_graph
from graphcaps.nn import PrimaryCaps

pytestmark = pytest.mark.usefixtures("one_thread")

D = 4

# float64: eps is 2e-16, sums have at most 100 terms, nothing here multiplies an error by more than 1e3.
# float32: eps is 1.2e-7. A sum over at most 100 edges of votes of length about 2 is off by at most 100 * 2 * eps =
# 2.4e-5; each iteration after the first sends an error in v through <u_hat, v> and c u_hat, which makes it |u_hat|^2 =
# 4 times as large: 4e-4 for three iterations.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 4e-4}


def assert_close(got, wanted):
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got, wanted.to(got.dtype), rtol=tolerance, atol=tolerance)


def by_textbook(u_hat, iterations):
    """Procedure 1 on dense arrays, as the paper writes it: votes (B, I, J, D) -> v (B, J, D)."""
    b = np.zeros(u_hat.shape[:3])
    for _ in range(iterations):
        c = np.exp(b) / np.exp(b).sum(axis=2, keepdims=True)  # c_i = softmax(b_i), over the parents
        s = np.einsum("bij,bijd->bjd", c, u_hat)
        length = np.linalg.norm(s, axis=-1, keepdims=True)
        v = length**2 / (1 + length**2) * s / length
        b = b + np.einsum("bijd,bjd->bij", u_hat, v)
    return v


@pytest.mark.fact(1)
def test_couplings_of_a_child_sum_to_one(way, graph, trailing, dtype, draw):
    edges = links_of_graph(graph)
    has_edges = torch.bincount(edges.src, minlength=edges.num_children) > 0
    for _, _, c, _, _ in way.watch(graph, draw(graph.num_edges(), *trailing, D, dtype=dtype)):
        nothing = c.new_zeros(edges.num_children, *trailing)
        total = nothing.index_add(0, edges.src, c)
        assert_close(total[has_edges], torch.ones(int(has_edges.sum()), *trailing))
        assert (c >= 0).all()


@pytest.mark.fact(2)
def test_one_image_does_not_see_the_batch(way, graph, dtype, draw):
    votes = draw(graph.num_edges(), 3, D, dtype=dtype)
    votes[:, 1] *= 3
    together = way(graph, votes)
    for image in range(3):
        assert_close(way(graph, votes[:, image : image + 1]).v, together.v[:, image : image + 1])
        assert_close(way(graph, votes[:, image]).v, together.v[:, image])


@pytest.mark.fact(3)
@pytest.mark.routings("dynamic", "uniform", "spherical")
def test_one_iteration_is_uniform_coupling(way, graph, trailing, dtype, draw):
    votes = draw(graph.num_edges(), *trailing, D, dtype=dtype)
    edges = links_of_graph(graph)
    degree = torch.bincount(edges.src, minlength=edges.num_children)
    s = torch.zeros(edges.num_parents, *trailing, D, dtype=dtype)
    for e, (i, j) in enumerate(zip(edges.src, edges.dst, strict=True)):
        s[j] += votes[e] / degree[i]
    assert_close(way(graph, votes, iterations=1).v, squash(s))


@pytest.mark.fact(4)
def test_a_second_call_equals_the_first(way, graphs, draw):
    for graph in (graphs["complete"], graphs["sparse_7x5"]):
        votes, others = draw(graph.num_edges(), 3, D), draw(graph.num_edges(), 3, D)
        routing = way.learned(graph, votes)
        first = way(graph, votes, routing=routing)
        way(graph, others, routing=routing)
        second = way(graph, votes, routing=routing)
        assert_close(second.v, first.v)
        assert_close(second.activation, first.activation)


@pytest.mark.fact(4)
def test_a_call_leaves_the_graph_as_it_was(way, graphs, draw):
    for graph in (graphs["complete"], graphs["sparse_7x5"]):
        graph = graph.local_var()
        kind = graph.canonical_etypes[0][2]
        mine = {name: torch.full((graph.num_edges(),), 7.0) for name in ("b", "c", "u_hat", "agreement", "m", "mine")}
        graph.edata.update(mine)
        graph.dstnodes[kind].data["v"] = torch.full((graph.num_dst_nodes(),), 7.0)
        votes = draw(graph.num_edges(), 3, D)
        names, before = (set(graph.edata), set(graph.dstnodes[kind].data)), votes.clone()
        way.watch(graph, votes)
        assert (set(graph.edata), set(graph.dstnodes[kind].data)) == names
        assert all((graph.edata[name] == 7).all() for name in mine)
        assert (graph.dstnodes[kind].data["v"] == 7).all()
        assert torch.equal(votes, before)


@pytest.mark.fact(5)
@pytest.mark.parametrize("length", [0.0, 1e-4, 0.5, 1e3])
def test_squash_shrinks_the_length_and_keeps_the_direction(dtype, length):
    direction = torch.tensor([[2.0, -1.0, 2.0]], dtype=dtype) / 3
    v = squash(length * direction)
    assert v.norm() < 1
    torch.testing.assert_close(v, length**2 / (1 + length**2) * direction)


@pytest.mark.fact(5)
def test_the_gradient_of_squash_is_right_and_zero_at_zero(draw):
    assert torch.autograd.gradcheck(squash, draw(3, 2, 4).requires_grad_())
    zero = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    squash(zero).sum().backward()
    assert torch.equal(zero.grad, torch.zeros(2, 4, dtype=torch.float64))


@pytest.mark.fact(5)
def test_zero_votes_give_zero_parents_and_a_finite_gradient(way, graph, dtype):
    votes = torch.zeros(graph.num_edges(), 3, D, dtype=dtype, requires_grad=True)
    _, v, activation, _ = way(graph, votes)
    if way.routing != "inverted":  # a layer norm shifts zero
        assert not v.any()
    if way.routing not in ("inverted", "em"):  # their zero is a pose like any other
        assert not activation.any()
    (v.sum() + activation.sum()).backward()
    assert votes.grad.isfinite().all()


@pytest.mark.fact(6)
def test_margin_loss_sums_over_classes_and_averages_over_images(dtype):
    lengths = torch.tensor([[0.5, 0.3, 0.05], [0.95, 0.7, 0.1]], dtype=dtype)
    labels = torch.tensor([0, 1])
    # image 0: (0.9 - 0.5)^2 + 0.5 (0.3 - 0.1)^2 + 0        = 0.16 + 0.02 = 0.18
    # image 1: 0.5 (0.95 - 0.1)^2 + (0.9 - 0.7)^2 + 0        = 0.36125 + 0.04 = 0.40125
    wanted = torch.tensor((0.18 + 0.40125) / 2, dtype=dtype)
    torch.testing.assert_close(margin_loss(lengths, labels), wanted)
    torch.testing.assert_close(margin_loss(lengths, torch.tensor([[1, 0, 0], [0, 1, 0]])), wanted)


def test_spread_loss_sums_over_wrong_classes_and_averages_over_images():
    lengths = torch.tensor([[0.5, 0.3, 0.05], [0.95, 0.7, 0.1]])
    # image 0: (0.4 - (0.5 - 0.3))^2 + 0 = 0.04; image 1, of class 1: (0.4 - (0.7 - 0.95))^2 + 0 = 0.4225
    loss = spread_loss(lengths, torch.tensor([0, 1]), margin=0.4)
    torch.testing.assert_close(loss, torch.tensor((0.04 + 0.4225) / 2))


@pytest.mark.fact(7)
@pytest.mark.routings("dynamic")
@pytest.mark.parametrize("iterations", [1, 3])
def test_routing_on_a_complete_graph_equals_dense_routing(way, graphs, iterations, draw):
    votes = draw(12, 2, D)
    dense = votes.reshape(4, 3, 2, D).permute(2, 0, 1, 3).numpy()  # e = i * J + j
    wanted = torch.from_numpy(by_textbook(dense, iterations)).transpose(0, 1)
    assert_close(way(graphs["complete"], votes, iterations=iterations).v, wanted)


@pytest.mark.fact(8)
def test_a_primary_capsule_holds_the_channels_of_one_type_at_one_position(draw):
    layer = PrimaryCaps(5, num_types=3, dim=4, kernel_size=3, stride=2)
    features = draw(2, 5, 9, 7, dtype=torch.float32)
    maps = layer.conv(features)  # (2, 12, 4, 3)
    u = layer(features)
    assert u.shape == (3 * 4 * 3, 2, 4)
    capsules = [(t, y, x) for t in range(3) for y in range(4) for x in range(3)]
    for i, (t, y, x) in enumerate(capsules):
        torch.testing.assert_close(u[i], squash(maps[:, 4 * t : 4 * t + 4, y, x]))


@pytest.mark.fact(9)
@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_evaluation_sees_no_labels_and_decodes_the_longest_capsule_and_training_the_true_one(routing):
    torch.manual_seed(0)
    net, images = CapsNet.from_preset("compact", (1, 11, 11), 3, routing=routing), torch.rand(6, 1, 11, 11)
    without = net.eval()(images)
    longest = without.lengths.argmax(dim=1)
    assert torch.equal(without.reconstruction, net.decoder(without.capsules, longest))
    for shift in range(3):
        for got, wanted in zip(net(images, (longest + shift) % 3), without, strict=True):
            torch.testing.assert_close(got, wanted)
    output = net.train()(images, labels := (longest + 1) % 3)
    assert torch.equal(output.reconstruction, net.decoder(output.capsules, labels))


@pytest.mark.fact(12)
def test_value_and_gradient_equal_the_oracles(way, graph, trailing, dtype, draw):
    edges, parents = graph.num_edges(), graph.num_dst_nodes()
    votes, prior = draw(edges, *trailing, D, dtype=dtype), draw(edges, *trailing, dtype=dtype)
    present = draw(graph.num_src_nodes(), *trailing, dtype=dtype).sigmoid()
    cotangents, results = (draw(parents, *trailing, D), draw(parents, *trailing)), []
    for each, precision in ((way, dtype), (way._replace(engine="oracle", device="cpu"), torch.float64)):
        leaves = [x.detach().to(precision).requires_grad_() for x in (votes, prior, present)]
        options = {"prior": leaves[1], "activation": leaves[2]}
        results.append(each.value_and_gradient(graph, leaves[0], leaves, cotangents, **options))
    for got, wanted in zip(*results, strict=True):
        assert_close(got, wanted)
