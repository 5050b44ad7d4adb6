"""kappa / rho of spherical routing, which kernels need before their first pass over the votes."""

import torch
from torch import Tensor

from ..algorithms.spherical import kappa_over_rho
from ..algorithms.votes import LinearVotes
from ..graph import Links


def ratio_of(links: Links, votes: Tensor | LinearVotes, kappa: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return ratio = kappa / rho (J, B) and, for votes (E, B, D), per_square = ratio / sum of |u_hat|^2 (0 for 0 / 0).

    Both are None without kappa. For given votes, autograd sees ratio as a function of kappa alone, because the squares
    would take it four tensors of the votes' size. The kernels add the votes' gradient through ratio, which is -dratio
    per_square u_hat.
    """
    if kappa is None:
        return None, None
    if isinstance(votes, LinearVotes):
        squares = _squared_lengths(votes, links)
    else:
        dtype = torch.promote_types(votes.dtype, torch.float32)
        squares = _sum_to_parents(torch.linalg.vector_norm(votes.detach(), dim=-1, dtype=dtype).square_(), links)
    ratio = kappa_over_rho(squares, links.in_degrees.to(squares.dtype).unsqueeze(-1), kappa)
    value = ratio.detach()
    return ratio, None if isinstance(votes, LinearVotes) else torch.where(value > 0, value / squares, 0)


def _squared_lengths(votes: LinearVotes, links: Links) -> Tensor:
    """(J, B): for each parent, the sum of |u_hat|^2 over its in-edges. The children in ``votes`` are (I, B, P).

    As |u W|^2 = <u u^T, W W^T>, no votes are built on a complete graph with a matrix for each edge.
    """
    if not links.complete or votes.index is not None:
        return _sum_to_parents(votes.build(links).square().sum(-1), links)
    weight = votes.weight.unflatten(0, (links.num_children, links.num_parents))  # (I, J, P, D)
    # einsum adds in the order of letters: the children t come last.
    products = torch.einsum("tbp,tbq->tbpq", votes.u, votes.u)
    return torch.einsum("tbpq,tjpq->jb", products, torch.einsum("tjpd,tjqd->tjpq", weight, weight))


def _sum_to_parents(numbers: Tensor, links: Links) -> Tensor:
    if numbers.is_cuda and links.complete:
        # There, index_add isn't deterministic, and its additions to one parent run one after another.
        return numbers.unflatten(0, (links.num_children, -1)).sum(0)
    return numbers.new_zeros(links.num_parents, numbers.shape[1]).index_add(0, links.dst, numbers)
