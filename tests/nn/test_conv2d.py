"""Convolutions in Fourier space: numbers and gradients of torch for any grid."""

import pytest
import torch
from torch.nn.functional import conv2d

from graphcaps.nn import conv2d as fourier


@pytest.mark.parametrize(("side", "kernel", "step"), [(20, 9, 2), (12, 5, 3), (9, 6, 4), (5, 1, 1)])
def test_numbers_and_gradients_are_those_of_torch(side, kernel, step, draw):
    x, weight, bias = draw(3, 2, side, side), draw(4, 2, kernel, kernel), draw(4)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    wanted, got = conv2d(x, weight, bias, step), fourier.convolution(x, weight, bias, step)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    cotangent = torch.randn_like(wanted)
    ours, theirs = (torch.autograd.grad(y, leaves, cotangent) for y in (got, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_the_gradient_has_a_gradient(draw):
    leaves = [draw(2, 1, 5, 5).requires_grad_(), draw(2, 1, 3, 3).requires_grad_()]
    assert torch.autograd.gradgradcheck(lambda x, weight: fourier.convolution(x, weight, None, 2).square(), leaves)


def test_bfloat16_is_off_by_its_rounding():
    """The transforms of images, kernels and products are each rounded to 2^-9, there and back."""
    torch.manual_seed(0)
    x, weight = torch.randn(16, 32, 20, 20).relu(), torch.randn(32, 32, 9, 9)
    wanted = conv2d(x, weight, None, 2)
    got = fourier.convolution(x.bfloat16(), weight.bfloat16(), None, 2)
    assert (got - wanted).norm() <= 4 * 2**-9 * wanted.norm()
