"""Routing with loops over edges: the oracle that every engine is held against.

Dynamic routing is Sabour, Frosst & Hinton 2017, Procedure 1, one line per line of the paper. The other papers are named
in the files of the same names. Only torch and Python are imported, nothing of graphcaps, so that an error elsewhere
can't hide here. Trailing dims (images of a batch, heads) stay tensors.
"""

import math

import torch


def route(graph, votes, routing, *, activation=None, prior=None, on_iteration=None):
    """Pose, v, activation and coupling as ``graphcaps.route`` gives them; votes (E, *, D)."""
    b = torch.zeros_like(votes[..., 0]) if votes.shape[-1] else votes.sum(-1)
    if prior is not None:
        prior = torch.as_tensor(prior, dtype=b.dtype)
        b = b + prior.reshape(*prior.shape, *[1] * (b.dim() - prior.dim()))
    edges = Loops(graph, votes, activation, on_iteration)
    algorithm = {
        "Dynamic": dynamic,
        "Uniform": uniform,
        "Attention": attention,
        "Inverted": inverted,
        "Spherical": spherical,
        "EM": em,
    }[type(routing).__name__]
    c, *parents = algorithm(edges, votes, b, routing)
    if len(parents) == 1:  # s alone
        (s,) = parents
        v = [squash(x) for x in s]
        parents = s, v, [x.norm(dim=-1) for x in v]
    pose, v, activation = parents
    numbers = edges.zero_vote.sum(-1)
    return (
        stacked(pose, edges.zero_vote),
        stacked(v, edges.zero_vote),
        stacked(activation, numbers),
        stacked(c, numbers).detach(),
    )


class Loops:
    """The edges of a graph in lists: those out of each child, those into each parent, and the ends of each edge."""

    def __init__(self, graph, votes, activation, on_iteration):
        self.src, self.dst = (end.tolist() for end in graph.edges(order="eid"))
        self.into = [[] for _ in range(graph.num_dst_nodes())]
        self.out = [[] for _ in range(graph.num_src_nodes())]
        for e, (i, j) in enumerate(zip(self.src, self.dst, strict=True)):
            self.out[i].append(e)
            self.into[j].append(e)
        self.votes, self.activation, self.on_iteration = votes, activation, on_iteration
        self.zero_vote = votes[:0].sum(0)

    def softmax(self, b):
        """c of each edge: a softmax over the edges of its child."""
        c = [None] * len(b)
        for edges in filter(None, self.out):
            top = torch.stack([b[e] for e in edges]).amax(0)
            total = sum(torch.exp(b[e] - top) for e in edges)
            for e in edges:
                c[e] = torch.exp(b[e] - top) / total
        return c

    def weighted_sum(self, c):
        """s of each parent: the sum of c u_hat over its edges."""
        return [sum((c[e].unsqueeze(-1) * self.votes[e] for e in edges), self.zero_vote) for edges in self.into]

    def agreement(self, v):
        return [(self.votes[e] * v[j]).sum(-1) for e, j in enumerate(self.dst)]

    def observe(self, r, b, c, v):
        if self.on_iteration is not None:
            numbers = self.zero_vote.sum(-1)
            seen = (b, numbers), (c, numbers), (v, self.zero_vote), (self.agreement(v), numbers)
            self.on_iteration(r, *(stacked(x, like).detach().clone() for x, like in seen))


def stacked(rows, like):
    return torch.stack(list(rows)) if len(rows) else like.new_zeros(0, *like.shape)


def squash(s):
    """|s|^2 / (1 + |s|^2) s / |s|, and zero for zero."""
    squared = (s * s).sum(-1, keepdim=True)
    zero = squared == 0
    length = torch.where(zero, 1.0, squared).sqrt()
    return torch.where(zero, 0.0, squared / (1 + squared) * s / length)


def direction(x):
    """x scaled to length 1, or x itself if it is almost zero."""
    squared = (x * x).sum(-1, keepdim=True)
    return x / torch.where(squared > 1e-24, squared, 1.0).sqrt()


def dynamic(edges, u_hat, b, routing):
    """Dynamic routing: u_hat (E, *, D), b (E, *) -> the couplings of each edge and s of each parent."""
    for r in range(routing.iterations):
        c = edges.softmax(b)  # line 4: for all capsules i in layer l: c_i <- softmax(b_i)
        s = edges.weighted_sum(c)  # line 5: for all capsules j in layer l + 1: s_j <- sum over i of c_ij u_hat_j|i
        v = [squash(x) for x in s]  # line 6: for all capsules j in layer l + 1: v_j <- squash(s_j)
        edges.observe(r, b, c, v)
        # line 7: for all i and j: b_ij <- b_ij + u_hat_j|i . v_j
        b = [before + change for before, change in zip(b, edges.agreement(v), strict=True)]
    return c, s


def uniform(edges, u_hat, b, routing):
    """Uniform coupling: an equal share of each child for each of its parents, or what a prior says."""
    return _in_one_pass(edges, b, routing)


def attention(edges, u_hat, b, routing):
    """Self-attention routing of Mazzia, Salvetti & Chiaberge 2021."""
    summed = [None] * len(u_hat)
    for of_parent in edges.into:
        # A = U U^T / sqrt(D), entry by entry; a vote's logit is the sum of its row
        for e in of_parent:
            summed[e] = sum((u_hat[e] * u_hat[k]).sum(-1) / max(1, u_hat.shape[-1]) ** 0.5 for k in of_parent)
    return _in_one_pass(edges, [b[e] + summed[e] for e in range(len(u_hat))], routing)


def _in_one_pass(edges, b, routing):
    """s for couplings that no iteration changes; each iteration's observer sees the same."""
    c = edges.softmax(b)
    s = edges.weighted_sum(c)
    for r in range(routing.iterations):
        edges.observe(r, b, c, [squash(x) for x in s])
    return c, s


def inverted(edges, u_hat, prior, routing):
    """Inverted dot-product attention routing of Tsai et al. 2020, Procedure 1; p are the poses of the parents."""
    b, dim = prior, max(1, u_hat.shape[-1])
    for r in range(routing.iterations):
        c = edges.softmax(b)
        p, a, v = [], [], []
        for s, of_parent in zip(edges.weighted_sum(c), edges.into, strict=True):
            centred = s - s.sum(-1, keepdim=True) / dim
            pose = centred / ((centred * centred).sum(-1, keepdim=True) / dim + 1e-5).sqrt()
            logit = 0 * s.sum(-1)
            if routing.norm:
                pose = pose * routing.norm.weight + routing.norm.bias
                logit = (pose * routing.head.weight[0]).sum(-1) + routing.head.bias[0]
            is_there = 1.0 if of_parent else 0.0
            p.append(is_there * pose)
            a.append(is_there / (1 + torch.exp(-logit)))
            v.append(a[-1].unsqueeze(-1) * direction(p[-1]))
        edges.observe(r, b, c, v)
        b = [prior[e] + change / dim**0.5 for e, change in enumerate(edges.agreement(p))]
    return c, p, v, a


def spherical(edges, u_hat, prior, routing):
    """A mixture of von Mises-Fisher distributions, Banerjee et al. 2005; kappa is the concentration of usual votes."""
    b, rho = prior, []
    for of_parent in edges.into:
        squares = sum(((u_hat[e] * u_hat[e]).sum(-1) for e in of_parent), edges.zero_vote.sum(-1))
        some = squares > 1e-24 * len(of_parent)
        mean = torch.where(some, squares, 1.0) / max(1, len(of_parent))
        rho.append(torch.where(some, mean, torch.inf).sqrt())
    for r in range(routing.iterations):
        c = edges.softmax(b)
        s = edges.weighted_sum(c)
        edges.observe(r, b, c, [squash(x) for x in s])
        along = edges.agreement([direction(x) for x in s])
        b = [prior[e] + routing.kappa * along[e] / rho[j] for e, j in enumerate(edges.dst)]
    return c, s


def em(edges, V, prior, routing):
    """EM routing: votes V (E, *, D) and activations of the children (I, *) or None -> R, mu, v and a of the parents."""
    beta_u, bias = routing.of_parents()
    a_in, dim, zero = edges.activation, V.shape[-1], edges.zero_vote.sum(-1)
    # line 2: for all i and j: R_ij <- 1 / number of the child's parents, or what the prior says
    b = prior
    for t in range(routing.iterations):
        R = edges.softmax(b)
        inverse_temperature = routing.scaled_lambda * (1 - 0.95 ** (t + 1))
        mu, sigma2, logit, a = [], [], [], []
        # line 4: for all j: M-step
        for j, of_parent in enumerate(edges.into):
            beta, offset = (x[j] if isinstance(x, torch.Tensor) and x.dim() else x for x in (beta_u, bias))
            Ra = {e: R[e] if a_in is None else R[e] * a_in[edges.src[e]] for e in of_parent}
            total = sum(Ra.values(), zero)
            nonzero = total + 1e-9
            means = [sum((Ra[e] * V[e][..., h] for e in Ra), zero) / nonzero for h in range(dim)]
            spreads = [sum((Ra[e] * (V[e][..., h] - means[h]) ** 2 for e in Ra), zero) / nonzero for h in range(dim)]
            mu.append(torch.stack(means, -1) if dim else edges.zero_vote)
            sigma2.append([spread + routing.variance_floor for spread in spreads])
            cost = sum(((beta + torch.log(torch.sqrt(x))) * total for x in sigma2[j]), zero)
            logit.append(offset - inverse_temperature * cost)
            a.append(torch.where(total > 0, torch.sigmoid(logit[j]), 0.0))
        v = [x.unsqueeze(-1) * direction(pose) for pose, x in zip(mu, a, strict=True)]
        edges.observe(t, b, R, v)
        # line 5: for all i: E-step, of which R_ij = a_j p_j / sum over k of a_k p_k is the softmax above
        b = []
        for e, j in enumerate(edges.dst):
            log_p = 0.0
            for h in range(dim):
                log_p = log_p - (V[e][..., h] - mu[j][..., h]) ** 2 / (2 * sigma2[j][h])
                log_p = log_p - 0.5 * torch.log(2 * math.pi * sigma2[j][h])
            b.append(prior[e] + torch.nn.functional.logsigmoid(logit[j]) + log_p)
    return R, mu, v, a
