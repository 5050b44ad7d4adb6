"""Layers that route at the same time, against loops over dense arrays, and against one layer after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps import InputError
from graphcaps.nn import CapsuleLayer, ConcurrentCaps, ConvCaps

pytestmark = pytest.mark.usefixtures("one_thread")
N, J, K, B, P = 6, 4, 3, 5, 8


def layer(num_children: int, num_parents: int, iterations: int = 1, parent_dim: int = P) -> CapsuleLayer:
    """One in float64 whose learned numbers aren't where they start."""
    made = CapsuleLayer(num_children, num_parents, P, parent_dim, iterations, routing="inverted").double()
    with torch.no_grad():
        for number in made.learned.parameters():
            number += torch.randn(number.shape, generator=torch.Generator().manual_seed(len(number))) / 2
    return made


def stack() -> tuple[CapsuleLayer, CapsuleLayer]:
    torch.manual_seed(0)
    return layer(N, J), layer(J, K, parent_dim=16)


def stepped(layer: CapsuleLayer, u: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Poses and capsules (J, B, D) after one iteration from the poses ``asked``, in loops."""
    weight, bias, head, head_bias = (x.detach().numpy() for x in layer.learned())
    matrices = layer.weight.detach().numpy().reshape(layer.num_children, layer.num_parents, P, -1)
    poses, capsules = np.zeros_like(asked), np.zeros_like(asked)
    for image in range(u.shape[1]):
        votes = np.einsum("ip,ijpd->ijd", u[:, image], matrices)
        r = np.exp((votes * asked[:, image]).sum(-1) / np.sqrt(asked.shape[-1]))
        r /= r.sum(axis=1, keepdims=True)
        for j in range(layer.num_parents):
            s = sum(r[i, j] * votes[i, j] for i in range(layer.num_children))
            poses[j, image] = p = (s - s.mean()) / np.sqrt(s.var() + 1e-5) * weight + bias
            capsules[j, image] = p / np.linalg.norm(p) / (1 + np.exp(-(p @ head + head_bias)))
    return poses, capsules


@pytest.mark.fact(7)
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_each_layer_routes_once_in_every_iteration(iterations, draw):
    below, above = stack()
    u = draw(N, B, P)
    first, middle = stepped(below, u.numpy(), np.zeros((J, B, P)))
    last, out = stepped(above, middle, np.zeros((K, B, 16)))
    for _ in range(iterations - 1):
        (first, next_middle), (last, out) = stepped(below, u.numpy(), first), stepped(above, middle, last)
        middle = next_middle
    np.testing.assert_allclose(ConcurrentCaps([below, above], iterations)(u).detach().numpy(), out, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("iterations", [1, 3])
def test_one_layer_routes_as_by_itself(iterations, dtype, draw):
    torch.manual_seed(0)
    alone, u = layer(N, J, iterations).to(dtype), draw(N, B, P, dtype=dtype)
    found, wanted = ConcurrentCaps([alone])(u), alone(u)
    assert found.dtype == dtype
    torch.testing.assert_close(found, wanted, **({} if dtype == torch.float64 else {"rtol": 0, "atol": 0}))


def test_after_more_than_one_iteration_it_is_not_one_layer_after_the_other(draw):
    layers, u = stack(), draw(N, B, P)
    in_turn = torch.nn.Sequential(*layers)
    torch.testing.assert_close(ConcurrentCaps(layers, 1)(u), in_turn(u))
    for each in layers:
        each.iterations = 3
    assert not torch.allclose(ConcurrentCaps(layers)(u), in_turn(u), atol=1e-3)


def test_gradients_are_those_of_finite_differences(draw):
    module, u = ConcurrentCaps(stack(), 3), draw(N, 2, P)
    assert torch.autograd.gradcheck(module, (u.requires_grad_(),), fast_mode=True)
    module(u).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in module.parameters())


def test_windows_route_beside_a_complete_layer_outside_autocast(draw):
    conv = ConvCaps((5, 4), 2, 3, kernel=3, routing="inverted")
    module = ConcurrentCaps([conv, CapsuleLayer(conv.num_parents, K, routing="inverted")])
    u = draw(conv.num_children, B, P, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        v = module(u)
    assert v.shape == (K, B, 16) and v.dtype == torch.float32 and torch.equal(v, module(u))
    assert module.iterations == 3 and "iterations=3" in repr(module)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "layers: expected one or more, got none"),
        (([torch.nn.Identity()],), r"layers\[0\]: expected a layer with routing 'inverted', got Identity"),
        (([CapsuleLayer(4, 3)],), r"layers\[0\]: expected a layer with routing 'inverted', got dynamic"),
        (([layer(6, 4), layer(5, 3)],), r"layers\[1\]: expected 4 children of 8 numbers, got \(5, 8\)"),
        (([layer(6, 4)], 0), "iterations: expected an integer >= 1, got 0"),
    ],
)
def test_what_cannot_be_a_stack_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        ConcurrentCaps(*arguments)
