"""Batch normalisation over the images of all processes: what one process does with the whole batch.

torch's own ``SyncBatchNorm`` is for GPUs alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes; each one's gradient is the sum of all of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return _Sum.apply(slope.contiguous())


class WholeBatchNorm2d(nn.BatchNorm2d):
    """``BatchNorm2d`` whose mean and variance, in training, are those of the batches of all processes together.

    Shapes:
        x (B, C, H, W) -> (B, C, H, W); B may differ between processes
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None and self.affine
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        here = wide.new_full((1,), x.numel() // x.shape[1])
        count, sums = _Sum.apply(torch.cat([here, wide.sum((0, 2, 3))])).split([1, x.shape[1]])  # (1,), (C,)
        mean = sums / count  # (C,)
        apart = wide - mean.view(1, -1, 1, 1)
        variance = _Sum.apply(apart.square().sum((0, 2, 3))) / count  # (C,)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
            self.num_batches_tracked += 1
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (apart * scale.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)).to(x.dtype)


def over_all_processes(network: nn.Module) -> None:
    """Let each ``BatchNorm2d`` of a network be a ``WholeBatchNorm2d`` with the same parameters and buffers."""
    for module in network.modules():
        for name, child in module.named_children():
            if type(child) is nn.BatchNorm2d:
                whole = WholeBatchNorm2d(child.num_features, child.eps, child.momentum)
                whole._parameters, whole._buffers = child._parameters, child._buffers
                setattr(module, name, whole.train(child.training))
