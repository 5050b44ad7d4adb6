"""Several layers of capsules that route at the same time: the other schedule of inverted dot-product attention.

Tsai, Srivastava, Goh & Salakhutdinov 2020 (arXiv 2002.04764), Procedure 2. With v^0 = u, and p^l, v^l the poses and
capsules of layer l:

    iteration 1, from below:     p^l, v^l = a step from v^(l-1), coupled uniformly               l = 1, 2, ..., L
    every later one, at once:    p^l, v^l = a step from v^(l-1), coupled as it agrees with p^l   all v, p of the last

so that no layer settles before those above it have spoken. Layers called one after the other, each with all of its
iterations, are the paper's "sequential".

Differs: a layer gives the next its capsules v, poses as long as their activation (``routing/inverted.py``), where
the paper hands on the poses; u is taken as it comes, where the paper normalises it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ..errors import check_whole, expect
from ..routing import inverted, route
from ..routing.edge_ops import edges_of, with_length
from .conv_caps import ConvCaps
from .dense_caps import CapsuleLayer
from .routed import graph_of, options_of


class ConcurrentCaps(nn.Module):
    """Layers of capsules, each routed once in every iteration.

    Args:
        layers: ``CapsuleLayer`` or ``ConvCaps`` with routing ``"inverted"``, from below; one layer routes as by itself.
        iterations: R >= 1, of all layers; None: those of the last layer. The layers' own don't count here.

    Shapes:
        u (I, B, P) of the first layer -> v (J, B, D) of the last

    Raises:
        InputError: no layers, other routings, layers that don't fit on each other.

    >>> layers = ConvCaps(5, 4, 4, kernel=3, routing="inverted"), CapsuleLayer(36, 10, routing="inverted")
    >>> ConcurrentCaps(layers, iterations=2)(torch.zeros(100, 2, 8)).shape
    torch.Size([10, 2, 16])
    """

    def __init__(self, layers: Iterable[CapsuleLayer | ConvCaps], iterations: int | None = None):
        super().__init__()
        routed: list[Any] = list(layers)
        self.layers = nn.ModuleList(routed)
        expect(len(routed) > 0, "layers", "one or more", "none")
        for k, layer in enumerate(routed):
            expect(
                getattr(layer, "routing", None) == "inverted",
                f"layers[{k}]",
                "a layer with routing 'inverted'",
                getattr(layer, "routing", type(layer).__name__),
            )
        for k, (below, above) in enumerate(zip(routed, routed[1:], strict=False)):
            given = below.num_parents, below.weight.shape[-1]
            taken = above.num_children, above.weight.shape[-2]
            expect(given == taken, f"layers[{k + 1}]", "{} children of {} numbers".format(*given), taken)
        self.iterations: int = routed[-1].iterations if iterations is None else iterations
        check_whole("iterations", self.iterations)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """Route children u (I, B, P) of the first layer to parents v (J, B, D) of the last."""
        dtype: torch.dtype = next(self.layers[-1].parameters()).dtype
        with torch.autocast(u.device.type, enabled=False):
            capsules, poses = [u], []
            for layer in self.layers:
                pose, v = _step(layer, capsules[-1])
                capsules.append(v)
                poses.append(pose)
            for _ in range(self.iterations - 1):
                now = [_step(*at) for at in zip(self.layers, capsules[:-1], poses, strict=True)]
                poses, capsules = [pose for pose, _ in now], [u, *(v for _, v in now)]
            return capsules[-1].to(dtype)

    def extra_repr(self) -> str:
        return f"iterations={self.iterations}"


def _step(layer, u: torch.Tensor, pose: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The parents' next poses and capsules (J, B, D), coupled as votes agree with ``pose``, or uniformly."""
    graph, options = graph_of(layer, u.device), options_of(layer, u)
    u_hat = layer.votes(u).tensor(graph)
    u_hat = u_hat.to(torch.promote_types(u_hat.dtype, torch.float32))  # as route does between iterations
    if pose is not None:
        edges = edges_of("torch", graph, u_hat.shape, u_hat.device)
        logits = edges.numbers_out(inverted.logits(edges, edges.vectors_in(u_hat), pose))
        options["prior"] = logits if layer.prior is None else logits + layer.prior.unsqueeze(-1)
    pose, activation = route(graph, u_hat, iterations=1, squash_output=False, **options)
    return pose, with_length(pose, activation)
