"""Routing with loops over edges: the oracle that every engine is held against.

Dynamic routing is Sabour, Frosst & Hinton 2017, Procedure 1, one line per line of the paper. The other papers are named
in the files of the same names. Only torch and Python are imported, nothing of graphcaps, so that an error elsewhere
can't hide here. Trailing dims (images of a batch, heads) stay tensors.
"""

from __future__ import annotations

import math

import torch


def route(graph, votes, routing, *, activation=None, prior=None, on_iteration=None):
    """Pose, v, activation and coupling as ``graphcaps.route`` gives them; votes (E, *, D)."""
    numbers = {
        "Spherical": lambda: (routing.kappa,),
        "EM": lambda: (*routing.of_parents(), routing.scaled_lambda, routing.variance_floor),
        "Inverted": lambda: routing.norm and (*routing.norm.parameters(), routing.head.weight[0], routing.head.bias[0]),
    }.get(type(routing).__name__, lambda: None)()
    b = torch.zeros_like(votes[..., 0]) if votes.shape[-1] else votes.sum(-1)
    if prior is not None:
        prior = torch.as_tensor(prior, dtype=b.dtype)
        b = b + prior.reshape(*prior.shape, *[1] * (b.dim() - prior.dim()))
    algorithm = {
        "Dynamic": dynamic,
        "Uniform": uniform,
        "Attention": attention,
        "Inverted": inverted,
        "Spherical": spherical,
        "EM": em,
    }[type(routing).__name__]
    return algorithm(graph, votes, activation, b, routing.iterations, on_iteration, numbers)


def dynamic(graph, u_hat, activation, b, iterations, on_iteration, parameters=None):
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
    return s, v, v.norm(dim=-1), _stack(c, u_hat.new_zeros(0, *u_hat.shape[1:-1])).detach()


def uniform(graph, u_hat, activation, b, iterations, on_iteration, parameters=None):
    """Uniform coupling: an equal share of each child for each of its parents, or what a prior says."""
    out_edges, in_edges, dst = _ends(graph)
    c = _softmax(b, out_edges)
    return _squashed_sum(u_hat, b, c, in_edges, dst, iterations, on_iteration)


def attention(graph, u_hat, activation, b, iterations, on_iteration, parameters=None):
    """Self-attention routing of Mazzia, Salvetti & Chiaberge 2021."""
    out_edges, in_edges, dst = _ends(graph)
    summed = [None] * len(u_hat)
    for edges in in_edges:
        # A = U U^T / sqrt(D), entry by entry; a vote's logit is the sum of its row
        for e in edges:
            row = [(u_hat[e] * u_hat[other]).sum(-1) / max(1, u_hat.shape[-1]) ** 0.5 for other in edges]
            summed[e] = sum(row)
    b = [b[e] + summed[e] for e in range(len(u_hat))]
    c = _softmax(b, out_edges)
    return _squashed_sum(u_hat, b, c, in_edges, dst, iterations, on_iteration)


def inverted(graph, u_hat, activation, b, iterations, on_iteration, parameters=None):
    """Inverted dot-product attention routing of Tsai et al. 2020, Procedure 1; p are the poses of the parents."""
    norm_weight, norm_bias, head_weight, head_bias = parameters or (None,) * 4
    out_edges, in_edges, dst = _ends(graph)
    prior, dim = b, u_hat.shape[-1]
    p, a, v = ([None] * len(in_edges) for _ in range(3))
    for r in range(iterations):
        c = _softmax(b, out_edges)
        for j, edges in enumerate(in_edges):
            s = sum((c[e].unsqueeze(-1) * u_hat[e] for e in edges), u_hat[:0].sum(0))
            centred = s - s.sum(-1, keepdim=True) / max(1, dim)
            variance = (centred * centred).sum(-1, keepdim=True) / max(1, dim)
            p[j] = centred / (variance + 1e-5).sqrt()
            p[j] = p[j] if norm_weight is None else p[j] * norm_weight
            p[j] = p[j] if norm_bias is None else p[j] + norm_bias
            logit = 0 * s.sum(-1) if head_weight is None else (p[j] * head_weight).sum(-1)
            a[j] = 1 / (1 + torch.exp(-logit if head_bias is None else -logit - head_bias))
            if not edges:
                p[j], a[j] = 0 * p[j], 0 * a[j]
            squared = (p[j] * p[j]).sum(-1, keepdim=True)
            v[j] = a[j].unsqueeze(-1) * p[j] / torch.where(squared > 1e-24, squared, 1.0).sqrt()
        _observe(on_iteration, [r], b, c, v, u_hat, dst)
        b = [prior[e] + (u_hat[e] * p[dst[e]]).sum(-1) / max(1, dim) ** 0.5 for e in range(len(dst))]
    parents, numbers = u_hat.new_zeros(0, *u_hat.shape[1:]), u_hat.new_zeros(0, *u_hat.shape[1:-1])
    return _stack(p, parents), _stack(v, parents), _stack(a, numbers), _stack(c, numbers).detach()


def spherical(graph, u_hat, activation, b, iterations, on_iteration, parameters=None):
    """A mixture of von Mises-Fisher distributions, Banerjee et al. 2005; kappa is the concentration of usual votes."""
    (kappa,) = parameters or (1.0,)
    out_edges, in_edges, dst = _ends(graph)
    prior, (s, v, mu, rho) = b, ([None] * len(in_edges) for _ in range(4))
    for j, edges in enumerate(in_edges):
        squares = sum(((u_hat[e] * u_hat[e]).sum(-1) for e in edges), u_hat[:0].sum(0).sum(-1))
        some = squares > 1e-24 * len(edges)
        rho[j] = torch.where(some, torch.where(some, squares, 1.0) / max(1, len(edges)), torch.inf).sqrt()
    for r in range(iterations):
        c = _softmax(b, out_edges)
        for j, edges in enumerate(in_edges):
            s[j] = sum((c[e].unsqueeze(-1) * u_hat[e] for e in edges), u_hat[:0].sum(0))
            squared = (s[j] * s[j]).sum(-1, keepdim=True)
            zero, some = squared == 0, squared > 1e-24
            v[j] = torch.where(zero, 0.0, torch.where(zero, 1.0, squared).sqrt() / (1 + squared)) * s[j]
            mu[j] = s[j] / torch.where(some, squared, 1.0).sqrt()
        _observe(on_iteration, [r], b, c, v, u_hat, dst)
        b = []
        for e, j in enumerate(dst):
            of_parent = kappa[j] if isinstance(kappa, torch.Tensor) and kappa.dim() else kappa
            b.append(prior[e] + of_parent * (u_hat[e] * mu[j]).sum(-1) / rho[j])
    s, v = (_stack(rows, u_hat.new_zeros(0, *u_hat.shape[1:])) for rows in (s, v))
    return s, v, v.norm(dim=-1), _stack(c, u_hat.new_zeros(0, *u_hat.shape[1:-1])).detach()


def _ends(graph):
    """The out-edges of each child, the in-edges of each parent, the parent of each edge."""
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    out_edges, in_edges = ([[] for _ in range(n)] for n in (graph.num_src_nodes(), graph.num_dst_nodes()))
    for e, (i, j) in enumerate(zip(src, dst, strict=True)):
        out_edges[i].append(e)
        in_edges[j].append(e)
    return out_edges, in_edges, dst


def _softmax(b, out_edges):
    c = [None] * len(b)
    for edges in out_edges:
        if edges:
            top = torch.stack([b[e] for e in edges]).amax(0)
            total = sum(torch.exp(b[e] - top) for e in edges)
            for e in edges:
                c[e] = torch.exp(b[e] - top) / total
    return c


def _squashed_sum(u_hat, b, c, in_edges, dst, iterations, on_iteration):
    """s = sum of c u_hat and v = squash(s), in one pass; each iteration's observer is told the same."""
    s, v = [None] * len(in_edges), [None] * len(in_edges)
    for j, edges in enumerate(in_edges):
        s[j] = sum((c[e].unsqueeze(-1) * u_hat[e] for e in edges), u_hat[:0].sum(0))
        squared = (s[j] * s[j]).sum(-1, keepdim=True)
        zero = squared == 0
        v[j] = torch.where(zero, 0.0, torch.where(zero, 1.0, squared).sqrt() / (1 + squared)) * s[j]
    _observe(on_iteration, range(iterations), b, c, v, u_hat, dst)
    s, v = (_stack(rows, u_hat.new_zeros(0, *u_hat.shape[1:])) for rows in (s, v))
    return s, v, v.norm(dim=-1), _stack(c, u_hat.new_zeros(0, *u_hat.shape[1:-1])).detach()


def _observe(on_iteration, rounds, b, c, v, u_hat, dst):
    if on_iteration is not None:
        agreement = [(u_hat[e] * v[j]).sum(-1) for e, j in enumerate(dst)]
        for r in rounds:
            on_iteration(r, *(_stack(x, like) for x, like in _report(b, c, v, agreement, u_hat)))


def _report(b, c, v, agreement, u_hat):
    edges, parents = u_hat.new_zeros(0, *u_hat.shape[1:-1]), u_hat.new_zeros(0, *u_hat.shape[1:])
    return (b, edges), (c, edges), (v, parents), (agreement, edges)


def _stack(rows, empty):
    return torch.stack(list(rows)) if len(rows) else empty


def em(graph, V, a_in, prior, iterations, on_iteration, parameters=None):
    """EM routing; V (E, *, D), activations of the children a_in (I, *) or None -> v (J, *, D), activations (J, *)."""
    beta_u, bias, final_lambda, variance_floor = parameters or (0.0, -2.2, 0.01, 1.0)
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
            beta, offset = (x[j] if isinstance(x, torch.Tensor) and x.dim() else x for x in (beta_u, bias))
            Ra = {e: R[e] if a_in is None else R[e] * a_in[src[e]] for e in in_edges[j]}
            total = sum(Ra.values(), zero)
            nonzero = total + 1e-9
            means = [sum((Ra[e] * V[e][..., h] for e in Ra), zero) / nonzero for h in range(dim)]
            mu[j] = torch.stack(means, -1) if dim else V[:0].sum(0)
            sigma2[j], cost = [], zero
            for h in range(dim):
                spread = sum((Ra[e] * (V[e][..., h] - mu[j][..., h]) ** 2 for e in Ra), zero) / nonzero
                sigma2[j].append(spread + variance_floor)
                cost = cost + (beta + torch.log(torch.sqrt(sigma2[j][h]))) * total
            logit[j] = offset - inverse_temperature * cost
            a[j] = torch.where(total > 0, torch.sigmoid(logit[j]), 0.0)
        if on_iteration is not None:
            _report_em(on_iteration, t, b, R, mu, a, V, dst)
        # line 5: for all i: E-step, of which R_ij = a_j p_j / sum over k of a_k p_k is the softmax above
        b = []
        for e, j in enumerate(dst):
            log_p = 0.0
            for h in range(dim):
                log_p = log_p - (V[e][..., h] - mu[j][..., h]) ** 2 / (2 * sigma2[j][h])
                log_p = log_p - 0.5 * torch.log(2 * math.pi * sigma2[j][h])
            b.append(prior[e] + torch.nn.functional.logsigmoid(logit[j]) + log_p)
    numbers = V[..., 0] if dim else V.sum(-1)
    found = _stack_like(mu, V), _stack_like(_stretched(mu, a), V), _stack_like(a, numbers)
    return *found, _stack_like(R, numbers).detach()


def _stretched(mu, a):
    """Each mean at the length of its activation."""
    squared = [(x * x).sum(-1, keepdim=True) for x in mu]
    return [
        activation.unsqueeze(-1) * x / torch.where(n > 1e-24, n, 1.0).sqrt()
        for x, n, activation in zip(mu, squared, a, strict=True)
    ]


def _report_em(on_iteration, t, b, R, mu, a, V, dst):
    v = _stretched(mu, a)
    agreement = [(V[e] * v[dst[e]]).sum(-1) for e in range(len(dst))]
    on_iteration(t, *(_stack_like(x, V.sum(-1)) for x in (b, R)), _stack_like(v, V), _stack_like(agreement, V.sum(-1)))


def _stack_like(rows, like):
    return torch.stack(list(rows)) if len(rows) else like.new_zeros(0, *like.shape[1:])
