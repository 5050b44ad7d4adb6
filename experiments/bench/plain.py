"""Networks of the presets in plain PyTorch: ``nn`` layers, and einsum for votes and routing."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from graphcaps import CapsNet
from graphcaps.nn import SharedCaps


def squash(s: torch.Tensor) -> torch.Tensor:
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    return s * (n / (1 + n * n))


def routed(iterations: int, votes: torch.Tensor) -> torch.Tensor:
    """Route votes (B, J, I, D) to v (B, J, D)."""
    b = votes.new_zeros(votes.shape[:-1])  # (B, J, I)
    for r in range(iterations):
        v = squash(torch.einsum("bji,bjid->bjd", b.softmax(dim=1), votes))
        if r < iterations - 1:
            b = b + torch.einsum("bjid,bjd->bji", votes, v)
    return v


def fast(iterations: int, u: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Route u (B, T, I/T, P) with matrices (T, J, P, D) to v (B, J, D). Votes are laid out for matrix products."""
    return routed(iterations, torch.einsum("btnp,tjpd->bjtnd", u, weight).flatten(2, 3).contiguous())


def readable(iterations: int, u: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same with votes (B, I, J, D) in memory, in the style of arogozhnikov's readable_capsnet."""
    return routed(iterations, torch.einsum("btnp,tjpd->btnjd", u, weight).flatten(1, 2).transpose(1, 2))


class Plain(nn.Module):
    """A copy of the network ``own`` with its weights. It takes images and labels and returns the loss."""

    def __init__(self, own: CapsNet, routing: Callable[..., torch.Tensor]):
        super().__init__()
        own = copy.deepcopy(own)
        self.stem, conv, self.weight, self.decoder = own.stem, own.primary.conv, own.capsules.weight, own.decoder.layers
        self.conv = nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, groups=conv.groups)
        self.conv.load_state_dict(conv.state_dict())
        self.dim, self.parents, self.routing = own.primary.dim, own.capsules.num_parents, routing
        self.iterations, self.reconstruction = own.capsules.routing.iterations, own.reconstruction_weight
        shared = isinstance(own.capsules, SharedCaps)
        self.register_buffer("places", own.capsules.places.squeeze(1) if shared else None)  # (I, 2)

    def in_order(self) -> list[nn.Parameter]:
        """The parameters in the order of ``own.parameters()``."""
        return [*self.stem.parameters(), *self.conv.parameters(), self.weight, *self.decoder.parameters()]

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.conv(self.stem(images)).to(images.dtype)  # (B, T * P, h, w)
        u = squash(x.unflatten(1, (-1, self.dim)).permute(0, 1, 3, 4, 2).flatten(1, 3))  # (B, I, P)
        if self.places is not None:
            row, column = self.places.unsqueeze(-1).unbind(1)
            u = torch.cat([u, u * row, u * column], dim=-1)
        weight = self.weight.unflatten(0, (-1, self.parents))  # (T, J, P, D)
        v = self.routing(self.iterations, u.unflatten(1, (len(weight), -1)), weight)  # (B, J, D)
        lengths = torch.linalg.vector_norm(v, dim=-1)
        true = nn.functional.one_hot(labels, self.parents).to(v.dtype)  # (B, J)
        pixels = self.decoder((v * true.unsqueeze(-1)).flatten(1)).to(images.dtype).sigmoid()
        margin = true * (0.9 - lengths).relu() ** 2 + 0.5 * (1 - true) * (lengths - 0.1).relu() ** 2
        errors = (pixels - images.flatten(1)).square().sum(dim=1)
        return margin.sum(dim=1).mean() + self.reconstruction * errors.mean()
