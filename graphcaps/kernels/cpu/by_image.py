"""Dynamic and spherical routing on the CPU for given votes that are stored image by image, and its gradient.

Votes made as (B, I, J, D) are stored this way: ``votes.flatten(1, 2).transpose(0, 1)`` is (E, B, D) without a copy. The
images are divided among torch's threads, which share no sums, so results don't depend on how many they are.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._dgl import DGLGraph
from ...algorithms.rule import Rule
from ...algorithms.votes import GivenVotes, Votes
from ...edges.second_derivative import once_differentiable
from ...graph import links
from .kernels_by_image import images_backward, images_forward
from .passes import empty, equal_ranges, run_on_threads
from .tiles import LANES


def votes_by_image(graph: DGLGraph, votes: Votes, rule: Rule, prior: Tensor) -> Tensor | None:
    """Return the votes (E, B, D) if they are stored image by image and these kernels support the call, else None."""
    if not isinstance(votes, GivenVotes) or rule.kind == "sums" or prior.requires_grad or any(prior.stride()):
        return None
    u = votes.u
    fits = u.dim() == 3 and u.shape[1] > 1 and u.transpose(0, 1).is_contiguous()
    fits = fits and graph.num_src_nodes() >= LANES and links(graph, u.device).complete
    return u if fits and prior[0, 0].isfinite() else None


def sums_by_image(
    graph: DGLGraph, votes: Tensor, iterations: int, ratio: Tensor | None, per_square: Tensor | None, coupling: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the last s (J, B, D) for votes (E, B, D) and, with ``coupling``, the last couplings (E, B), detached.

    For spherical routing, ``ratio`` (J, B) is kappa / rho, and ``per_square`` is ratio / sum of a parent's |u_hat|^2.
    """
    learning = torch.is_grad_enabled() and (votes.requires_grad or (ratio is not None and ratio.requires_grad))
    u = votes.transpose(0, 1).unflatten(1, (graph.num_src_nodes(), graph.num_dst_nodes()))
    s, c = _SumsByImage.apply(u, ratio, per_square, iterations, learning or coupling)
    s = s.transpose(0, 1).contiguous()
    if not coupling:
        return s, None
    if iterations == 1:
        return s, u.new_full(votes.shape[:2], 1 / len(s))
    return s, c[:, -1].permute(2, 1, 0).flatten(0, 1)  # (B, J, I) -> (E, B)


class _SumsByImage(torch.autograd.Function):
    """The autograd function from votes (B, I, J, D) to the last s (B, J, D), and c (B, R - 1, J, I) if it is kept."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, ratio: Tensor | None, per_square: Tensor | None, iterations: int, keeps_couplings: bool
    ) -> tuple[Tensor, Tensor]:
        images, children, parents, dim = u.shape
        ratio, per_square = (u.new_empty(0) if x is None else x.t().contiguous() for x in (ratio, per_square))
        c = empty((images if keeps_couplings else 0, iterations - 1, parents, children), u)
        s = u.new_zeros(images, iterations, parents, dim)
        ctx.sizes = {"D": (None,) * dim, "children": children, "parents": parents, "iterations": iterations}
        run_on_threads(images_forward, _ranges(u), u=u, **ctx.sizes, ratio=ratio, c=c, s=s)
        ctx.save_for_backward(u, ratio, per_square, c, s)
        ctx.mark_non_differentiable(c)
        ctx.set_materialize_grads(False)
        return s[:, -1].clone(), c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        u, ratio, per_square, c, s = ctx.saved_tensors
        du, dratio = empty(u.shape, u), torch.zeros_like(ratio)
        state = {"u": u, "ratio": ratio, "per_square": per_square, "c": c, "s": s, "ds": grad.contiguous(), "du": du}
        run_on_threads(images_backward, _ranges(u), **ctx.sizes, **state, dratio=dratio)
        return du, dratio.t() if len(ratio) else None, None, None, None


def _ranges(u: Tensor) -> list[tuple[int, int]]:
    """Return the images of each thread."""
    return equal_ranges(np.arange(len(u) + 1), min(len(u), torch.get_num_threads()))
