"""Inverted dot-product attention routing: Tsai, Srivastava, Goh & Salakhutdinov 2020 (arXiv 2002.04764), Procedure 1.

The parents' poses are the queries of an attention, and each child's softmax is over the parents:

    a_ij = <p_j, v_ij>                                (p = 0 before the first iteration)
    r_ij = softmax of a_ij over the parents j of child i
    p_j  = LayerNorm(sum over i of r_ij v_ij)

v_ij are the votes ``u_hat``, r_ij the couplings ``c``. Unlike in dynamic routing, logits don't add up over iterations.
Layers are routed one after the other, as in the paper's "sequential" routing.

Differs:
    a_ij is divided by sqrt(D), as in the authors' code. Procedure 1 doesn't divide it.
    Normalised poses are all about sqrt(D) long, so their lengths carry no information. The paper applies one linear
    classifier to all poses and a softmax over the classes. Here a logistic unit gives each parent's activation, so each
    parent is present or absent by itself, as margin loss assumes. v is the pose scaled to the length of the activation.
    A parent without votes has pose and activation 0; LayerNorm alone would give it the learned bias as its pose.
    A prior is added to the logits of every iteration.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ..errors import expect
from ..functional import with_length
from ..typed import Count, Size, typed
from .base import Edges, Parents, Routing, per_parent

EPSILON = 1e-5  # added to the variance in LayerNorm, as torch.nn.LayerNorm does


class Inverted(Routing):
    """Inverted dot-product attention (Tsai et al. 2020) with layer-normalised parent poses.

    Args:
        iterations: R >= 1.
        dim: D, the size of a vote; layers set it. All parents share one learned layer norm and one learned logistic
            unit of this size. With None, nothing is learned and all activations are 1/2.
    """

    sums_votes = False

    @typed
    def __init__(self, iterations: Size = 3, dim: Count | None = None):
        super().__init__()
        self.iterations = iterations
        self._learn(dim)

    def _learn(self, dim: int | None) -> None:
        self.dim = dim
        self.norm = None if dim is None else nn.LayerNorm(dim, eps=EPSILON)
        self.head = None if dim is None else nn.Linear(dim, 1)

    def for_layer(self, num_children: int, num_parents: int, parent_dim: int, parent_types: int) -> Inverted:
        made = copy.deepcopy(self)
        made._learn(parent_dim)
        return made

    def reset_parameters(self) -> None:
        """Reset the layer norm and the logistic unit to their initial values."""
        for module in (self.norm, self.head):
            if module is not None:
                module.reset_parameters()

    def forward(self, edges: Edges, votes: Tensor, prior: Tensor, activation: Tensor | None = None) -> Parents:
        dim = votes.shape[-1]
        expect(self.dim in (None, dim), "votes", f"D={self.dim}, the dim of Inverted", f"D={dim}", "Layers set it")
        has_votes = edges.has_votes().to(votes.dtype)
        b = prior
        for r in range(self.iterations):
            c = edges.child_softmax(b)
            p = self._normalised(edges.weighted_sum(c, votes))  # (J, *, D)
            p = p * per_parent(has_votes, p)
            a = self._activation(p)  # (J, *)
            a = a * per_parent(has_votes, a)
            v = with_length(p, a)
            edges.observe(r, b, c, v, votes)
            if r < self.iterations - 1:
                b = prior + edges.agreement(votes, p) * max(1, dim) ** -0.5
        return Parents(p, v, a, c)

    def _normalised(self, s: Tensor) -> Tensor:
        if not s.numel():
            return s
        norm, dtype = self.norm, s.dtype
        weight, bias = (None, None) if norm is None else (norm.weight.to(dtype), norm.bias.to(dtype))
        return nn.functional.layer_norm(s, s.shape[-1:], weight, bias, EPSILON)

    def _activation(self, p: Tensor) -> Tensor:
        if self.head is None:
            return p.new_full(p.shape[:-1], 0.5)
        return torch.sigmoid(p @ self.head.weight[0].to(p.dtype) + self.head.bias[0].to(p.dtype))
