"""Triton's kernels for complete graphs, on CUDA, in Triton's interpreter, and compiled for three cards."""

import itertools
import sys
from unittest.mock import MagicMock, Mock

import oracle
import pytest
import torch
from gpu_kernels import INTERPRETED, compile_for, device_of_kernels, out_of_resources, outside_only, run_in_interpreter

from graphcaps import LinearVotes, complete_graph, dgl, engine, route
from graphcaps.algorithms.votes import GivenVotes, NodeVotes
from graphcaps.beliefs import node_beliefs
from graphcaps.errors import InputError
from graphcaps.graph import links_of_graph
from graphcaps.kernels import KernelError, dispatch
from graphcaps.kernels.operators import explained
from graphcaps.nn import BeliefConv
from graphcaps.routing import Dynamic, Spherical, Uniform, route_nodes


@outside_only
@pytest.mark.long
def test_what_follows_holds_in_the_interpreter():
    run_in_interpreter(__file__, "-m", "")


CODE = """
from graphcaps import complete_graph, route
from graphcaps.images.models import CapsNet
from graphcaps.nn import CapsuleLayer
from graphcaps.kernels import dispatch
dispatch.on_gpu = lambda votes: True

def compile_layer(layer, precision="highest", dtype=None):
    torch.set_float32_matmul_precision(precision)
    u = torch.randn(layer.num_children, 128, layer.child_dim, requires_grad=True)
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        layer(u).sum().backward()

"""
MUCH_MEMORY = "compile_layer(CapsuleLayer(640, 10, 16, 64), dtype=torch.bfloat16)"
ALL = """
compile_layer(CapsuleLayer(640, 10, 32, 64, "spherical", learned_prior=True))  # the widest
paper, compact, parts = (CapsNet.from_preset(preset).capsules for preset in ("paper", "compact", "parts"))
for options in ({}, {"precision": "high"}, {"dtype": torch.bfloat16}):
    compile_layer(paper, **options)
compile_layer(compact)
compile_layer(parts, dtype=torch.bfloat16)
votes = torch.randn(128, 11520, 16, requires_grad=True)  # by image
route(complete_graph(1152, 10), votes.transpose(0, 1), "spherical").v.sum().backward()
"""
CASES = dict.fromkeys(("A100", "RTX 3090", "RTX 4090", "RTX 5090"), MUCH_MEMORY)
CASES |= {"H200": ALL, "MI300": "compile_layer(CapsuleLayer(64, 10, 8, 16))"}


@outside_only
@pytest.mark.long
@pytest.mark.parametrize("card", CASES)
def test_every_kernel_compiles_for_this_card_and_fits_its_shared_memory(card, tmp_path):
    compile_for(card, CODE + CASES[card], {"iterate", "gradient", "finish", "finish_back"}, tmp_path)


@pytest.fixture
def device(monkeypatch):
    """The device on which the engine named fused is Triton's; memory that torch allocates there starts as NaN."""
    with engine("fused"):
        yield device_of_kernels(monkeypatch)


HALF = torch.float16 if INTERPRETED else torch.bfloat16  # the interpreter can't multiply matrices of bfloat16
SPHERICAL = Spherical(3, concentration=2.5)
PRIORS = {"per edge": (18,), "by index": (18, 5), "by edge": (18, 5), "by image": None, "dims first": None}


def votes_and_leaves(kind, sizes, draw):
    """A function from leaves to votes, and the leaves."""
    children, parents, images, child_dim, dim = sizes
    if kind == "by edge":
        return GivenVotes, [draw(children * parents, images, dim)]
    if kind == "dims first":  # the numbers of a vote don't lie side by side
        return lambda u: GivenVotes(u.permute(2, 0, 1)), [draw(images, dim, children * parents)]
    if kind == "by image":
        return lambda u: GivenVotes(u.flatten(1, 2).transpose(0, 1)), [draw(images, children, parents, dim)]
    u, edges = draw(children, images, child_dim), children * parents
    if kind == "per edge":
        return LinearVotes, [u, draw(edges, child_dim, dim)]
    return lambda u, w: LinearVotes(u, w, torch.arange(edges, device=u.device) % 4), [u, draw(4, child_dim, dim)]


def assert_equals_oracle(kind, routing, device, draw, prior=None, sizes=(6, 3, 5, 3, 7), dtype=torch.float32, off=1e-4):
    """Compare poses, parents, couplings and all gradients with the oracle's in float64; ``off`` is relative."""
    graph, (make, leaves), results = complete_graph(*sizes[:2]), votes_and_leaves(kind, sizes, draw), []
    leaves, prior = [x.to(dtype) for x in leaves], [] if prior is None else [draw(*prior).float()]
    for where, to in (("cpu", torch.float64), (device, dtype)):
        wide = torch.promote_types(to, torch.float32)
        inputs = [x.detach().to(where, to).requires_grad_() for x in leaves]
        logits, routing = [x.detach().to(where, wide).requires_grad_() for x in prior], routing.to(where, wide)
        votes, options = make(*inputs), {"prior": logits[0] if logits else None}
        if to == torch.float64:
            *parents, c = oracle.route(graph, votes.tensor(graph), routing, **options)
        else:
            *parents, c = route(graph, votes, routing, **options)
        source = torch.Generator().manual_seed(1)
        cotangents = [torch.randn(x.shape, generator=source).to(x) for x in parents]
        slopes = torch.autograd.grad(parents, [*inputs, *logits, *routing.parameters()], cotangents)
        results.append([x.detach().cpu().double() for x in (*parents, c, *slopes)])
    for exact, got in zip(*results, strict=True):
        assert (got - exact).norm() <= off * (exact.norm() + 1), (kind, (got - exact).norm(), exact.norm())


@pytest.mark.parametrize(
    ("kind", "routing"),
    [("per edge", Dynamic(3)), ("by image", SPHERICAL), ("by index", Uniform()), ("by edge", SPHERICAL)]
    + [("per edge", SPHERICAL), ("dims first", Dynamic(2))],
)
def test_values_and_all_gradients_equal_the_oracles(kind, routing, device, draw):
    assert_equals_oracle(kind, routing, device, draw, prior=PRIORS[kind])


@pytest.mark.long
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_votes_matrices_and_logits_may_lie_in_any_order_in_the_interpreter(order, step, device, draw):
    def laid_out(*sizes):
        x = draw(*(sizes[dim] for dim in order[:2]), sizes[order[2]] * step)[..., ::step].float().to(device)
        return x.permute([order.index(dim) for dim in range(3)]).requires_grad_()

    graph, leaves, results = complete_graph(3, 2), [laid_out(6, 3, 5), laid_out(3, 3, 4), laid_out(6, 4, 5)], []
    prior = laid_out(6, 3, 2)[..., 0]
    for name in ("torch", "fused"):
        with engine(name):
            s = [route(graph, votes, SPHERICAL, prior=prior).pose for votes in (leaves[0], LinearVotes(*leaves[1:]))]
            results.append([*s, *torch.autograd.grad(sum(x.square().sum() for x in s), [*leaves, prior])])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["per edge", "by edge"])
def test_any_size_and_half_precision_equal_the_oracle(kind, device, draw):
    for sizes in ((1, 1, 1, 1, 1), (3, 2, 17, 32, 64), (3, 2, 66, 5, 16)):
        assert_equals_oracle(kind, Dynamic(2), device, draw, sizes=sizes)
    assert_equals_oracle(kind, Dynamic(6), device, draw, sizes=(3, 2, 2, 8, 16), off=1e-3)
    assert_equals_oracle(kind, Dynamic(3), device, draw, prior=(18,), dtype=HALF, off=4 * torch.finfo(HALF).eps)


@pytest.mark.long
def test_what_observers_see_second_derivatives_and_infinite_priors(device):
    u, graph, seen = torch.randn(12, 2, 5, device=device, requires_grad=True), complete_graph(4, 3), []
    v = route(graph, u, on_iteration=lambda r, b, c, v, agreement: seen.append(v)).v
    torch.testing.assert_close([len(seen), v, seen[2]], [3, *[route(graph, u).v] * 2])
    (gradient,) = torch.autograd.grad(route(graph, u).v.sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative: expected routing on engine torch"):
        gradient.sum().backward()
    assert route(graph, u, prior=float("inf")).v.isnan().all()
    prior = torch.tensor([-torch.inf, 0, 0], device=device).repeat(4)
    assert torch.equal(route(graph, 0 * u, prior=prior).coupling[:3, 0], u.new_tensor([0, 0.5, 0.5]))
    (got,) = torch.autograd.grad(route(graph, u, prior=prior).v.sum(), u)  # the prior needs no gradient
    with engine("torch"):
        torch.testing.assert_close(got, torch.autograd.grad(route(graph, u, prior=prior).v.sum(), u)[0])


def test_a_gradient_that_a_card_cannot_run_is_replaced_before_a_training_needs_it(device, monkeypatch):
    from graphcaps.kernels.gpu import dense

    monkeypatch.setattr(dispatch, "_failures", {})
    monkeypatch.setattr(dense.kernels, "gradient", MagicMock(__getitem__=lambda *grid: out_of_resources()))
    graph, u = complete_graph(9, 7), torch.randn(63, 3, device=device, requires_grad=True)
    with engine("torch"):
        exact = torch.autograd.grad(route(graph, u).v.sum(), u)
    with engine("auto"):
        with pytest.warns(UserWarning, match="Required: 114688.*slower engine 'torch' routes"):
            v = route(graph, u).v
        torch.testing.assert_close(torch.autograd.grad(v.sum(), u), exact)
    with pytest.raises(InputError, match="Required: 114688"):
        route(graph, u)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
def test_kernels_that_do_not_compile_are_replaced_with_a_warning_or_are_an_error_if_requested(monkeypatch):
    failing = out_of_resources()
    for name, value in {"on_gpu": lambda votes: True, "has_triton": lambda: True, "_failures": {}}.items():
        monkeypatch.setattr(dispatch, name, value)
    for module, function in {"dense": "sums_on_complete", "nodes": "sums_by_node", "beliefs": "exchange"}.items():
        monkeypatch.setitem(sys.modules, f"graphcaps.kernels.gpu.{module}", Mock(**{function: explained(failing)}))
    graph, u = complete_graph(4, 3), torch.randn(12, 2, 5)
    with engine("torch"):
        exact = route(graph, u).v
    with pytest.warns(UserWarning, match="Required: 114688.*slower engine 'torch' routes"):
        assert torch.equal(route(graph, u).v, exact)
    assert torch.equal(route(graph, u).v, exact) and failing.call_count == 1  # it isn't tried again
    for votes, error in ((u, InputError), (u[..., :4], KernelError)):  # a kind of call that has failed, and another
        with engine("fused"), pytest.raises(error, match="Required: 114688.*Use engine 'torch'"):
            route(graph, votes)
    with pytest.warns(UserWarning, match="slower engine 'torch'"):
        route_nodes(links_of_graph(graph), NodeVotes(torch.randn(4, 2, 3)), Spherical(2))
    monkeypatch.setattr("graphcaps.kernels.on_gpu", lambda z: True)
    monkeypatch.setattr(node_beliefs, "WORTHWHILE", 1)
    layer, pair, z = BeliefConv(None, 3, 2), dgl.graph(([0, 1], [1, 0])), torch.randn(2, 2, 3)
    exact = layer(pair, z)  # engine auto doesn't use kernels for beliefs on a GPU yet
    with engine("fused"), pytest.raises(KernelError, match="Required: 114688"):
        layer(pair, z)
    monkeypatch.setattr(node_beliefs, "ON_GPU", 1)
    dispatch._failures.clear()
    with pytest.warns(UserWarning, match="slower engine 'torch'"):
        assert torch.equal(layer(pair, z), exact)
    assert torch.equal(layer(pair, z), exact) and failing.call_count == 5
    failing.side_effect = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        route(graph, u.half())
