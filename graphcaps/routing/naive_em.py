"""EM routing with loops over edges: the oracle that every other engine is held against.

Hinton, Sabour & Frosst 2018, Procedure 1, one line per line of the paper, with its names. Only torch and Python,
nothing of graphcaps, so that an error elsewhere can't hide here. Trailing dims (images of a batch) stay tensors.
"""

from __future__ import annotations

import math

import torch


def em(graph, V, a_in, prior, iterations, on_iteration, squash_output=True, parameters=None):
    """EM routing; V (E, *, D), activations of the children a_in (I, *) or None -> v (J, *, D), activations (J, *)."""
    beta_u, beta_a, final_lambda = parameters or (0.0, 0.0, 0.01)
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    children, parents = range(graph.num_src_nodes()), range(graph.num_dst_nodes())
    out_edges = [[e for e in range(len(src)) if src[e] == i] for i in children]
    in_edges = [[e for e in range(len(dst)) if dst[e] == j] for j in parents]
    dim, zero = V.shape[-1], V[:0].sum(dim=(0, -1)) if V.dim() == 2 else V[:0].sum(-1).sum(0)
    # line 2: for all i and j: R_ij <- 1 / number of the child's parents, or what the prior says
    b = list(prior.unbind(0))
    mu, sigma2, logit, a = ([None] * len(parents) for _ in range(4))
    for t in range(iterations):
        R = [None] * len(src)
        for edges in out_edges:
            for e in edges:
                top = torch.stack([b[k] for k in edges]).amax(0)
                R[e] = torch.exp(b[e] - top) / sum(torch.exp(b[k] - top) for k in edges)
        inverse_temperature = final_lambda * (1 - 0.95 ** (t + 1))
        # line 4: for all j: M-step
        for j in parents:
            beta = [x[j] if isinstance(x, torch.Tensor) and x.dim() else x for x in (beta_u, beta_a)]
            Ra = {e: R[e] if a_in is None else R[e] * a_in[src[e]] for e in in_edges[j]}
            total = sum(Ra.values(), zero)
            nonzero = total + 1e-9
            means = [sum((Ra[e] * V[e][..., h] for e in Ra), zero) / nonzero for h in range(dim)]
            mu[j] = torch.stack(means, -1) if dim else V[:0].sum(0)
            sigma2[j], cost = [], zero
            for h in range(dim):
                spread = sum((Ra[e] * (V[e][..., h] - mu[j][..., h]) ** 2 for e in Ra), zero) / nonzero
                sigma2[j].append(spread + 1e-4)
                cost = cost + (beta[0] + torch.log(torch.sqrt(sigma2[j][h]))) * total
            logit[j] = inverse_temperature * (beta[1] - cost)
            a[j] = torch.where(total > 0, torch.sigmoid(logit[j]), 0.0)
        if on_iteration is not None:
            _report(on_iteration, t, b, R, mu, a, V, dst)
        # line 5: for all i: E-step, of which R_ij = a_j p_j / sum over k of a_k p_k is the softmax above
        b = []
        for e, j in enumerate(dst):
            log_p = 0.0
            for h in range(dim):
                log_p = log_p - (V[e][..., h] - mu[j][..., h]) ** 2 / (2 * sigma2[j][h])
                log_p = log_p - 0.5 * torch.log(2 * math.pi * sigma2[j][h])
            b.append(prior[e] + torch.nn.functional.logsigmoid(logit[j]) + log_p)
    return _stack(_stretched(mu, a) if squash_output else mu, V), _stack(a, V[..., 0] if dim else V.sum(-1))


def _stretched(mu, a):
    """Each mean at the length of its activation."""
    squared = [(x * x).sum(-1, keepdim=True) for x in mu]
    return [
        activation.unsqueeze(-1) * x / torch.where(n > 1e-24, n, 1.0).sqrt()
        for x, n, activation in zip(mu, squared, a, strict=True)
    ]


def _report(on_iteration, t, b, R, mu, a, V, dst):
    v = _stretched(mu, a)
    agreement = [(V[e] * v[dst[e]]).sum(-1) for e in range(len(dst))]
    on_iteration(t, *(_stack(x, V.sum(-1)) for x in (b, R)), _stack(v, V), _stack(agreement, V.sum(-1)))


def _stack(rows, like):
    return torch.stack(list(rows)) if len(rows) else like.new_zeros(0, *like.shape[1:])
