"""Routing by agreement with loops over edges: the oracle that every other engine is held against.

Sabour, Frosst & Hinton 2017, Procedure 1, one line per line of the paper. Only torch and Python, nothing of graphcaps,
so that an error elsewhere can't hide here. Trailing dims (images of a batch, heads) stay tensors.
"""

from __future__ import annotations

import torch


def dynamic(graph, u_hat, activation, b, iterations, on_iteration, squash_output=True):
    """Dynamic routing; shapes as in ``graphcaps.route``: u_hat (E, *, D), b (E, *) -> v (J, *, D), lengths (J, *)."""
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    out_edges = [[e for e, child in enumerate(src) if child == i] for i in range(graph.num_src_nodes())]
    in_edges = [[e for e, parent in enumerate(dst) if parent == j] for j in range(graph.num_dst_nodes())]
    b = list(b.unbind(0))
    c = [None] * len(src)
    s = [None] * len(in_edges)
    v = [None] * len(in_edges)
    for r in range(iterations):
        # line 4: for all capsules i in layer l: c_i <- softmax(b_i)
        for edges in out_edges:
            if edges:
                top = torch.stack([b[e] for e in edges]).amax(0)
                total = sum(torch.exp(b[e] - top) for e in edges)
                for e in edges:
                    c[e] = torch.exp(b[e] - top) / total
        for j, edges in enumerate(in_edges):
            # line 5: for all capsules j in layer l + 1: s_j <- sum over i of c_ij u_hat_j|i
            s[j] = sum((c[e].unsqueeze(-1) * u_hat[e] for e in edges), u_hat[:0].sum(0))
            # line 6: for all capsules j in layer l + 1: v_j <- squash(s_j)
            squared = (s[j] * s[j]).sum(-1, keepdim=True)
            zero = squared == 0
            length = torch.where(zero, 1.0, squared).sqrt()
            v[j] = torch.where(zero, 0.0, squared / (1 + squared) * s[j] / length)
        # line 7: for all i and j: b_ij <- b_ij + u_hat_j|i . v_j
        agreement = [(u_hat[e] * v[dst[e]]).sum(-1) for e in range(len(src))]
        if on_iteration is not None:
            on_iteration(r, *(_stack(x, like) for x, like in _report(b, c, v, agreement, u_hat)))
        if r < iterations - 1:
            b = [b[e] + agreement[e] for e in range(len(src))]
    s, v = (_stack(rows, u_hat.new_zeros(0, *u_hat.shape[1:])) for rows in (s, v))
    return v if squash_output else s, v.norm(dim=-1)


def _report(b, c, v, agreement, u_hat):
    edges, parents = u_hat.new_zeros(0, *u_hat.shape[1:-1]), u_hat.new_zeros(0, *u_hat.shape[1:])
    return (b, edges), (c, edges), (v, parents), (agreement, edges)


def _stack(rows, empty):
    return torch.stack(list(rows)) if len(rows) else empty
