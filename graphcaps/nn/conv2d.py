"""A convolution computed in Fourier space while it trains on a CPU; it needs a third of the multiplications.

A convolution with kernel size k, stride s and C channels equals one with kernel size t = ceil(k / s), stride 1 and
s^2 C channels. For h x h outputs, the latter needs n x n inputs, n = h + t - 1. X, W and Y are the discrete Fourier
transforms of input, kernel and output on this grid:

    Y(f) = sum over channels of X(f) conj(W(f))        for the F = n (n // 2 + 1) frequencies that real numbers need

Only outputs that don't wrap around are kept. All steps are products of real matrices: one matrix maps pixels to real
and imaginary parts, a product for each frequency gives Y, and another matrix maps Y to outputs.

PrimaryCaps of the 2017 paper (128 images, one thread, forward and backward in bfloat16) takes 387 ms, against 980 ms
with oneDNN. The root mean square error of the outputs is 0.5 %, against 0.3 % with oneDNN.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..tracing import is_tracing


class Conv2d(nn.Conv2d):
    """``nn.Conv2d`` with the same parameters and, except for rounding, the same results.

    >>> Conv2d(3, 8, 5, stride=2)(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 8, 3, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        learns = torch.is_grad_enabled() and self.weight.requires_grad and not is_tracing()
        autocast = torch.is_autocast_enabled("cpu") and x.dtype != torch.float64
        dtype = torch.get_autocast_dtype("cpu") if autocast else self.weight.dtype
        fits = x.device.type == "cpu" and x.dim() == 4 and x.is_floating_point() and (autocast or x.dtype == dtype)
        plain = self.padding == (0, 0) and self.dilation == (1, 1) and self.groups == 1
        if not (learns and fits and plain and pays(x, self.weight, self.stride)):
            return super().forward(x)
        bias = None if self.bias is None else self.bias.to(dtype)
        return convolution(x.to(dtype), self.weight.to(dtype), bias, self.stride[0])


def pays(x: Tensor, weight: Tensor, stride: tuple[int, ...]) -> bool:
    """Whether Fourier space is faster for images x (B, C, H, H) and weights (O, C, k, k) of these sizes."""
    kernel, step = weight.shape[2], stride[0]
    square = weight.shape[3] == kernel and stride[1] == step and x.shape[2] == x.shape[3] >= kernel
    return square and kernel >= 5 and min(x.shape[0], *weight.shape[:2]) >= 16 and _grid(x, weight, step)[1] <= 16


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, step: int) -> Tensor:
    """Compute ``conv2d`` of images (B, C, H, H) and weights (O, C, k, k), all of one dtype, in Fourier space."""
    taps, n = _grid(x, weight, step)
    to_frequencies, of_taps, back = _transforms(n, taps, x.dtype)
    grid = (to_frequencies @ _phases(x, n, step)).unflatten(1, (len(x), -1))  # (F * 2, B, s * s * C)
    kernels = (of_taps @ _phases(weight, taps, step)).unflatten(1, (len(weight), -1))  # (F * 2, O, s * s * C)
    products = _Products.apply(
        grid.view(-1, 2 * len(x), grid.shape[2]), kernels.view(-1, 2 * len(weight), grid.shape[2])
    )
    parts = products.unflatten(2, (2, -1)).unflatten(1, (2, -1)).transpose(2, 3)  # (F, 2, 2, B, O)
    y = (back @ parts.reshape(back.shape[1], -1)).view(n - taps + 1, n - taps + 1, len(x), -1).permute(2, 3, 0, 1)
    return y if bias is None else y + bias.view(-1, 1, 1)


def _grid(x: Tensor, weight: Tensor, step: int) -> tuple[int, int]:
    """Return t and n, as in the module's docstring."""
    taps = math.ceil(weight.shape[2] / step)
    return taps, (x.shape[2] - weight.shape[2]) // step + taps


def _phases(x: Tensor, n: int, step: int) -> Tensor:
    """Cut (B, C, H, H), or pad it with zeros, to n s rows and columns; reshape it to (n * n, B * s * s * C)."""
    x = x.permute(0, 2, 3, 1)[:, : n * step, : n * step]
    missing = n * step - x.shape[1]
    x = pad(x, (0, 0, 0, missing, 0, missing)) if missing else x
    return x.unflatten(2, (n, step)).unflatten(1, (n, step)).permute(1, 3, 0, 2, 4, 5).reshape(n * n, -1)


@functools.lru_cache(maxsize=8)
def _transforms(n: int, taps: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return the matrices for images (F * 2, n * n), for kernels (F * 2, t * t) and for outputs (h * h, F * 2 * 2)."""
    place, half = torch.arange(n, dtype=torch.float64), n // 2 + 1
    wave = torch.exp(-2j * math.pi / n * place.outer(place))  # (frequencies, places)
    waves = torch.einsum("fr,gc->fgrc", wave, wave[:half])
    twice = torch.tensor([1 if g == 0 or 2 * g == n else 2 for g in range(half)]).view(1, -1, 1, 1)
    inverse = (waves.conj() * twice / n**2)[..., : n - taps + 1, : n - taps + 1].flatten(2).flatten(0, 1)  # (F, h * h)
    # Coefficients of X_r W_r, X_r W_i, X_i W_r, X_i W_i in the real part of inverse (X_r + i X_i) (W_r - i W_i).
    of_real = torch.stack([inverse.real, inverse.imag], dim=1)
    back = torch.stack([of_real, torch.stack([-inverse.imag, inverse.real], dim=1)], dim=1)  # (F, 2, 2, h * h)

    def forward(side: int) -> Tensor:
        wave = waves[..., :side, :side].flatten(2).flatten(0, 1)
        return torch.stack([wave.real, wave.imag], dim=1).flatten(0, 1).to(dtype)

    return forward(n), forward(taps), back.flatten(0, 2).t().contiguous().to(dtype)


class _Products(torch.autograd.Function):
    """a b^T for each frequency. Autograd's own gradient of b would have the layout of b^T and need a copy."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return grad @ b, grad.transpose(1, 2) @ a
