"""A convolution whose weights' gradient is a matrix product, for training on a CPU.

The library that torch calls there takes twice as long for this gradient as for a matrix product of the same size, when
channels are many and the kernel is large. The 9x9 convolution of PrimaryCaps, 64 images, one thread: 315 ms against 133
in bfloat16, 396 against 294 in float32; for the small kernels of `compact` it was slower. Forward and the gradient of
the features are torch's. The gradient is made of operations that have gradients, and so has gradients itself.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.grad import conv2d_input

from . import fourier

MOST_BYTES = 2**26  # of the unfolded features that one product takes


class Conv2d(nn.Conv2d):
    """``nn.Conv2d`` without padding, dilation and groups: same parameters, same results.

    >>> Conv2d(3, 8, 5, stride=2)(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, int], stride: int = 1):
        super().__init__(in_channels, out_channels, kernel_size, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        autocast = torch.is_autocast_enabled("cpu") and x.dtype != torch.float64
        dtype = torch.get_autocast_dtype("cpu") if autocast else self.weight.dtype
        if x.device.type != "cpu" or x.dim() != 4 or not x.is_floating_point() or not (autocast or x.dtype == dtype):
            return super().forward(x)
        bias = None if self.bias is None else self.bias.to(dtype)
        learns = torch.is_grad_enabled() and self.weight.requires_grad and not torch.compiler.is_compiling()
        if learns and fourier.pays(x, self.weight, self.stride):
            return fourier.convolution(x.to(dtype), self.weight.to(dtype), bias, self.stride[0])
        return _Convolution.apply(x.to(dtype), self.weight.to(dtype), bias, self.stride)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, stride):
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return nn.functional.conv2d(x, weight, bias, stride)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        dx = dweight = dbias = None
        if ctx.needs_input_grad[0]:
            dx = conv2d_input(x.shape, weight, grad, ctx.stride)
        if ctx.needs_input_grad[1]:
            dweight = _weight_gradient(x, weight, grad, ctx.stride)
        if ctx.needs_input_grad[2]:
            dbias = grad.sum(dim=(0, 2, 3))
        return dx, dweight, dbias, None


def _weight_gradient(x, weight, grad, stride):
    outside, inside, height, width = weight.shape
    windows = x.unfold(2, height, stride[0]).unfold(3, width, stride[1])  # (B, C, h, w, height, width)
    rows_of_image = grad.shape[2] * grad.shape[3] * inside * height * width * x.element_size()
    images = max(1, MOST_BYTES // rows_of_image)
    total = grad.new_zeros((), dtype=torch.promote_types(x.dtype, torch.float32))
    for some, slopes in zip(windows.split(images), grad.split(images), strict=True):
        columns = some.permute(0, 2, 3, 4, 5, 1).reshape(-1, height * width * inside)  # channels last, as in memory
        slopes = slopes.permute(0, 2, 3, 1).reshape(-1, outside)
        total = total + (slopes.t() @ columns).to(torch.promote_types(x.dtype, torch.float32))
    return total.to(weight.dtype).view(outside, height, width, inside).permute(0, 3, 1, 2)
