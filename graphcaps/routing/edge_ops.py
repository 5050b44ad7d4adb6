"""The steps that routing algorithms are made of, by DGL's kernels and by torch's scatter operations.

An algorithm written in them reads as its paper and runs on both engines. Sizes: E edges, I children, J parents.
"""

from __future__ import annotations

import torch

from .._dgl import edge_softmax, ops
from ..graph import links


class OnDGL:
    """The steps by DGL's kernels, on the device of the graph; nothing is written to the graph."""

    def __init__(self, graph):
        self.graph = graph

    def couple(self, b):
        """(E, *) -> (E, *): softmax over each child's out-edges."""
        return edge_softmax(self.graph, b, norm_by="src")

    def gather(self, x):
        """(E, ...) -> (J, ...): the sum over each parent's in-edges."""
        return ops.copy_e_sum(self.graph, x)

    def of_children(self, x):
        """(I, ...) -> (E, ...): each edge's child."""
        return ops.copy_u(self.graph, x)

    def of_parents(self, x):
        """(J, ...) -> (E, ...): each edge's parent."""
        return ops.copy_v(self.graph, x)

    def agree(self, u_hat, v):
        """(E, *, D), (J, *, D) -> (E, *): <u_hat, v>."""
        return ops.e_dot_v(self.graph, u_hat, v).squeeze(-1)

    def fed(self):
        """(J,) bool: parents that have votes."""
        return self.graph.in_degrees() > 0


class OnTorch:
    """The same steps by torch, on the device of the votes; the graph may stay on the CPU."""

    def __init__(self, graph, device):
        self.edges = links(graph, device)

    def couple(self, b):
        return softmax_over_children(b, self.edges)

    def gather(self, x):
        return x.new_zeros(self.edges.num_parents, *x.shape[1:]).index_add(0, self.edges.dst, x)

    def of_children(self, x):
        return x[self.edges.src]

    def of_parents(self, x):
        return x[self.edges.dst]

    def agree(self, u_hat, v):
        return (u_hat * v[self.edges.dst]).sum(-1)

    def fed(self):
        dst = self.edges.dst
        return torch.zeros(self.edges.num_parents, dtype=torch.bool, device=dst.device).index_fill(0, dst, True)


def on_dgl(graph, u_hat):
    """The steps by DGL, or by torch where there are no numbers: DGL's kernels refuse such tensors."""
    return OnDGL(graph) if u_hat.numel() else OnTorch(graph, u_hat.device)


def on_torch(graph, u_hat):
    """The steps by torch."""
    return OnTorch(graph, u_hat.device)


def repeated(on_iteration, iterations):
    """For algorithms of one pass: an observer that is handed its state ``iterations`` times, as r = 0, 1, ..."""
    if on_iteration is None:
        return None

    def hand_out(_, *state):
        for r in range(iterations):
            on_iteration(r, *state)

    return hand_out


def stretched(pose, length):
    """Vectors along ``pose`` (J, *, D) that are ``length`` (J, *) long; no pose, shorter than 1e-12, has no direction.

    It is given shorter still, which is 0 for 0, so that slopes are finite.
    """
    n = torch.linalg.vector_norm(pose, dim=-1, keepdim=True)
    return pose * (length.unsqueeze(-1) / torch.where(n > 1e-12, n, 1))


def by_parent(numbers, like):
    """A number, or one per parent (J,), as a tensor of ``like``'s kind that broadcasts with (J, *)."""
    numbers = torch.as_tensor(numbers, dtype=like.dtype, device=like.device)
    return numbers.reshape(-1, *[1] * (like.dim() - 1)) if numbers.dim() else numbers


def softmax_over_children(b, edges):
    """Softmax of b (E, *) over each child's out-edges."""
    # Shifting all logits of a child changes nothing, so the shift needs no gradient.
    child = edges.src.view(-1, *[1] * (b.dim() - 1)).expand_as(b)
    top = b.detach().new_zeros(edges.num_children, *b.shape[1:])
    top = top.scatter_reduce(0, child, b.detach(), "amax", include_self=False)  # (I, *)
    exp = torch.exp(b - top[edges.src])
    total = exp.new_zeros(top.shape).index_add(0, edges.src, exp)  # (I, *)
    return exp / total[edges.src]
