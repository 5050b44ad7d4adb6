"""Inverted dot-product attention routing: Tsai, Srivastava, Goh & Salakhutdinov 2020 (arXiv 2002.04764), Procedure 1.

Poses of the parents ask, the children answer, and the softmax is over those who ask:

    a_ij = <p_j, v_ij>                                (p = 0 before the first iteration)
    r_ij = softmax of a_ij over the parents j of child i
    p_j  = LayerNorm(sum over i of r_ij v_ij)

v_ij are the votes ``u_hat``, r_ij the couplings ``c``. Unlike in dynamic routing, logits don't add up over iterations.

The paper iterates all layers of a network at once ("concurrent") or layer by layer ("sequential"). A call routes
between two layers, so a network of such calls is sequential; between two layers alone there is no difference.
``graphcaps.nn.ConcurrentCaps`` routes several layers at once.

Differs:
    a_ij is divided by sqrt(D), as in the authors' code and not in Procedure 1.
    Normalised poses are all about sqrt(D) long, so that length says nothing. The paper gives all poses to one linear
    classifier and takes a softmax over the classes. Here it is a logistic unit, which is the parent's activation: each
    parent is there or not by itself, as the margin loss has it. v is the pose given that length; unsquashed,
    it is the pose.
    A parent without votes has pose and activation 0, instead of the normalisation's shift.
    A prior is added to the logits of every iteration.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import expect
from .edge_ops import EdgeOps, Observer, Parents, per_parent, with_length

EPSILON = 1e-5  # added to the variance in LayerNorm, as torch.nn.LayerNorm does


class InvertedParameters(NamedTuple):
    """What inverted attention learns beside the votes, shared by all parents; tensors on the votes' device, or None.

    Args:
        norm_weight: (D,) scale of LayerNorm; None: 1.
        norm_bias: (D,) its shift; None: 0.
        head_weight: (D,) of the logistic unit that turns a pose into an activation; None: 0, activation 1/2 for all.
        head_bias: () its bias; None: 0.
    """

    norm_weight: torch.Tensor | None = None
    norm_bias: torch.Tensor | None = None
    head_weight: torch.Tensor | None = None
    head_bias: torch.Tensor | None = None

    def check(self, num_parents: int, dim: int, device: torch.device) -> None:
        """Raise ``InputError`` where a shape or device doesn't fit votes of ``dim`` numbers."""
        for name, value in self._asdict().items():
            if value is not None:
                shape, wanted = ((), "()") if name == "head_bias" else ((dim,), f"(D={dim},)")
                expect(value.shape == shape, name, wanted, tuple(value.shape))
                expect(value.device == device, name, f"device {device} as the votes", value.device)


def inverted(
    edges: EdgeOps,
    u_hat: Tensor,
    activation: Tensor | None,
    prior: Tensor,
    iterations: int,
    on_iteration: Observer | None,
    parameters: InvertedParameters | None = None,
) -> Parents:
    """Inverted attention of votes and prior logits, laid out as ``edges`` has them; ``activation`` isn't used."""
    parameters = parameters or InvertedParameters()
    fed = edges.has_votes().to(u_hat.dtype)
    b = prior
    for r in range(iterations):
        c = edges.child_softmax(b)
        p = _layer_norm(edges.weighted_sum(c, u_hat), parameters)  # (J, *, D)
        p = p * per_parent(fed, p)
        last = r == iterations - 1
        if last or on_iteration:
            a = _head(p, parameters)  # (J, *)
            a = a * per_parent(fed, a)
            v = with_length(p, a)
        if on_iteration:
            on_iteration(r, b, c, v, edges.agreement(u_hat, v))
        if not last:
            b = prior + logits(edges, u_hat, p)
    return Parents(p, v, a)


def logits(edges: EdgeOps, u_hat: Tensor, p: Tensor) -> Tensor:
    """b: how votes agree with the parents' poses (J, *, D), laid out as ``edges`` has them."""
    return edges.agreement(u_hat, p) * max(1, u_hat.shape[-1]) ** -0.5


def _layer_norm(s: Tensor, parameters: InvertedParameters) -> Tensor:
    weight, bias = (x if x is None else x.to(s.dtype) for x in parameters[:2])
    return torch.nn.functional.layer_norm(s, s.shape[-1:], weight, bias, EPSILON) if s.numel() else s


def _head(p: Tensor, parameters: InvertedParameters) -> Tensor:
    weight, bias = parameters[2:]
    logit = p.new_zeros(p.shape[:-1]) if weight is None else p @ weight.to(p.dtype)
    return torch.sigmoid(logit if bias is None else logit + bias.to(p.dtype))
