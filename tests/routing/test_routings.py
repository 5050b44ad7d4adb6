"""Attention, inverted and EM routing against their papers' formulas on dense arrays, what spherical routing's
docstring promises, and known errors."""

import numpy as np
import pytest
import torch

from graphcaps import complete_graph
from graphcaps.nn import CapsuleLayer
from graphcaps.routing import EM, Spherical

pytestmark = pytest.mark.usefixtures("one_thread")

N, J, B, D = 4, 3, 2, 4  # N children: the docstrings' I
GRAPH = complete_graph(N, J)


def assert_same(got, wanted):
    """Equal up to the order of float64 sums of few terms, some multiplied by up to 1e4."""
    torch.testing.assert_close(got, torch.as_tensor(wanted), rtol=1e-10, atol=1e-10)


def assert_near(got, wanted):
    """Equal up to the 1e-9 that EM adds to its sums of R."""
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-8)


def dense(votes):
    """(E, B, D) of a complete graph -> numpy (B, I, J, D)."""
    return votes.reshape(N, J, B, D).permute(2, 0, 1, 3).numpy()


def softmax_over_parents(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)  # (B, I, J)


def squashed(s):
    length = np.linalg.norm(s, axis=-1, keepdims=True)
    return length**2 / (1 + length**2) * s / length


def by_edge(numbers):
    """(B, I, J) -> (E, B)."""
    return torch.from_numpy(numbers.transpose(1, 2, 0).reshape(N * J, B).copy())


def by_parent(numbers):
    """(B, J, ...) -> (J, B, ...)."""
    return torch.from_numpy(np.swapaxes(numbers, 0, 1).copy())


# Attention


@pytest.mark.fact(7)
@pytest.mark.routings("attention")
def test_attention_is_the_papers_self_attention(way, draw):
    votes = draw(N * J, B, D)
    u = dense(votes)
    pairs = np.einsum("bijd,bkjd->bjik", u, u) / np.sqrt(D)  # A of each parent, over pairs of its children
    c = softmax_over_parents(pairs.sum(axis=3).transpose(0, 2, 1))
    v = squashed(np.einsum("bij,bijd->bjd", c, u))
    assert_same(way(GRAPH, votes).v, by_parent(v))
    for _, _, coupling, _, _ in way.watch(GRAPH, votes, iterations=2):
        assert_same(coupling, by_edge(c))


# Spherical


@pytest.mark.routings("spherical")
@pytest.mark.parametrize("scale", [1e6, 1e-8])
def test_longer_votes_are_coupled_alike(way, graphs, scale, draw):
    votes = draw(63, B, D)
    longer, usual = (way.watch(graphs["sparse_7x5"], x) for x in (scale * votes, votes))
    for (_, _, c, _, _), (_, _, wanted, _, _) in zip(longer, usual, strict=True):
        torch.testing.assert_close(c, wanted, rtol=1e-9, atol=1e-10)  # sums of few terms in another order


@pytest.mark.parametrize("rate", [1.0, 10.0])
def test_a_step_of_adam_changes_log_kappa_by_rate_learning_rates(rate, draw):
    routing = Spherical(concentration=3.0, rate=rate)
    layer = CapsuleLayer(6, 3, routing=routing).double()
    before, adam = layer.routing.kappa.detach(), torch.optim.Adam(layer.parameters(), lr=0.001)
    layer(draw(6, 2, 8)).square().sum().backward()
    adam.step()
    assert before.item() == pytest.approx(3.0)
    assert (layer.routing.kappa / before).log().abs().item() == pytest.approx(0.001 * rate, rel=1e-3)
    assert routing.kappa.item() == pytest.approx(3.0)  # the layer's is a copy


# Inverted


def inverted_densely(u, iterations, routing):
    weight, bias, head, head_bias = (x.detach().numpy() for x in routing.parameters())
    head = head[0]
    pose = np.zeros((B, J, D))
    for _ in range(iterations):
        r = softmax_over_parents(np.einsum("bijd,bjd->bij", u, pose) / np.sqrt(D))
        pose = np.einsum("bij,bijd->bjd", r, u)
        pose = (pose - pose.mean(-1, keepdims=True)) / np.sqrt(pose.var(-1, keepdims=True) + 1e-5) * weight + bias
    return r, pose, 1 / (1 + np.exp(-(pose @ head + head_bias)))


@pytest.mark.fact(7)
@pytest.mark.routings("inverted")
@pytest.mark.parametrize("iterations", [1, 4])
def test_inverted_attention_is_the_papers_procedure(way, iterations, draw):
    votes = draw(N * J, B, D)
    r, pose, activation = inverted_densely(dense(votes), iterations, way.learned(GRAPH, votes))
    assert_same(way.watch(GRAPH, votes, iterations=iterations)[-1][2], by_edge(r))
    routed = way(GRAPH, votes, iterations=iterations)
    assert_same(routed.pose, by_parent(pose))
    direction = pose / np.linalg.norm(pose, axis=-1, keepdims=True)
    assert_same(routed.v, by_parent(direction * activation[..., None]))
    assert_same(routed.activation, by_parent(activation))


# EM


def em(**settings):
    """EM routing with these settings in double precision, not rounded to float32."""
    routing = EM(**settings).double()
    routing.reset_parameters()
    return routing


@pytest.mark.routings("em")
def test_parents_that_explain_a_vote_equally_share_the_child_by_their_activations(way, draw):
    """Many implementations drop a_j in the E-step: R_ij is a_j p_ij over its sum, not p_ij over its sum."""
    votes = draw(N, D).repeat_interleave(2, dim=0)  # each child votes the same for both parents
    routing = em(iterations=2, final_lambda=N / 200).for_layer(N, 2, D, 2).double()
    with torch.no_grad():
        routing.biases.copy_(torch.tensor([0.0, 0.5]))
    first, second = way.watch(complete_graph(N, 2), votes, routing=routing)
    a = first[3].norm(dim=-1)
    assert a[1] - a[0] > 0.05
    assert_same(second[2].view(N, 2), (a / a.sum()).expand(N, 2))


@pytest.mark.routings("em")
def test_the_cost_has_ln_sigma_and_no_half_of_it(way):
    """ln sigma is half of ln sigma^2; the half is applied once."""
    votes = torch.tensor([[2.0, 30.0], [-2.0, -30.0]], dtype=torch.float64)  # sigma 2 and 30 around 0
    routing = em(iterations=1, beta_u=0.7, bias=0.3, final_lambda=0.1, variance_floor=1e-6)
    activation = way(complete_graph(2, 1), votes, routing=routing).activation
    cost = 2 * (0.7 + np.log(2.0)) + 2 * (0.7 + np.log(30.0))  # two children, two numbers each
    wanted = 1 / (1 + np.exp(0.1 * (1 - 0.95) * cost - 0.3))
    torch.testing.assert_close(activation, torch.tensor([wanted]), rtol=1e-6, atol=0)  # the variance floor is 1e-6


@pytest.mark.routings("em")
def test_children_count_by_their_activation(way):
    """Some implementations normalise R_ij a_i over the parents again, which divides a_i away."""
    votes = torch.tensor([[4.0, 1.0], [4.0, 1.0], [-2.0, 1.0], [-2.0, 1.0]], dtype=torch.float64)
    options = {"routing": em(iterations=1, beta_u=0.0, bias=0.0, final_lambda=1.0)}
    both, faint = (torch.tensor(a, dtype=torch.float64) for a in ([1.0, 1.0], [1.0, 0.5]))
    assert_near(way(complete_graph(2, 2), votes, activation=both, **options).pose[0, 0], torch.tensor(1.0).double())
    assert_near(way(complete_graph(2, 2), votes, activation=faint, **options).pose[0, 0], torch.tensor(2.0).double())
    whole, half = (way(complete_graph(2, 2), votes, activation=both * part, **options) for part in (1, 0.5))
    logits = [torch.logit(routed.activation) for routed in (whole, half)]
    assert_near(half.pose, whole.pose)
    assert_near(logits[1], logits[0] / 2)  # half the data, half the cost


COLLAPSES = {
    "equal_votes": lambda votes, present: (votes[:1].expand_as(votes), present),
    "huge_votes": lambda votes, present: (1e9 * votes, present),
    "nobody_there": lambda votes, present: (votes, 0 * present),
    "hardly_there": lambda votes, present: (votes, 1e-30 * present),
}


@pytest.mark.routings("em")
@pytest.mark.parametrize("collapse", COLLAPSES)
def test_em_gives_no_nan(way, graphs, collapse, draw):
    """In one of these graphs a parent has a single in-edge, and another none."""
    for graph in (graphs["complete"], graphs["other_names"]):
        votes, present = draw(graph.num_edges(), 2, D).float(), draw(graph.num_src_nodes(), 2).float().sigmoid()
        votes, present = (x.clone().requires_grad_() for x in COLLAPSES[collapse](votes, present))
        routed = way(graph, votes, activation=present, iterations=5)
        assert all(x.isfinite().all() for x in routed)
        for gradient in torch.autograd.grad([x.sum() for x in routed[:3]], (votes, present), materialize_grads=True):
            assert gradient.isfinite().all()
