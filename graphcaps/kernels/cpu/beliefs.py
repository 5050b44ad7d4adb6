"""An iteration of ``BeliefConv`` on the CPU, as one pass over the nodes, and one for its gradient.

    a_ek = max(0, <m_ek A_k, m_e'k>)                                 for edge e = (u, v) and its reverse e'
    w_ek = g weight_e log(1 + rho_k / (epsilon + sum over l != k of rho_l a_el))
    t_vk = base_vk + sum over in-edges e of w_ek m_ek S_k
    m_e'k <- (1 - share) softmax(t_vk - w_ek m_ek S_k) + share m_e'k

S_k and A_k are symmetric. Messages are in rows, sorted by the edges' destinations.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..operators import operator
from .kernels_beliefs import beliefs_backward, beliefs_forward
from .passes import empty, equal_ranges, flat, run_on_threads, sum_of, zeros


class MessageRows(NamedTuple):
    """The argument ``rows`` of the kernels."""

    K: tuple[None, ...]
    ROW: tuple[None, ...]  # K * D
    indptr: np.ndarray  # (N + 1,): the rows of node v are indptr[v]:indptr[v + 1]
    reverse: np.ndarray  # (rows,): the row of the reverse edge
    m: np.ndarray  # (rows, K, D)
    weight: np.ndarray  # (rows,)
    rho: np.ndarray  # (K,)
    settings: np.ndarray  # epsilon, g, and the share of the previous message in the next one
    evidence: np.ndarray  # (D, K, D), S with the first rows of all capsules first
    ratio: np.ndarray  # A, like S


def _rows(tensors: list[Tensor]) -> tuple[MessageRows, list[tuple[int, int]], int]:
    """Return the kernels' rows, each thread's nodes, and the most rows of a node."""
    base, *numbers, indptr, reverse = tensors
    K, ROW = ((None,) * size for size in (base.shape[1], base.shape[1] * base.shape[2]))
    starts = indptr.numpy()
    rows = MessageRows(K, ROW, starts, reverse.numpy(), *(flat(x.contiguous()) for x in numbers))
    return rows, equal_ranges(starts, torch.get_num_threads()), int(np.diff(starts).max(initial=1))


def _shapes(tensors: list[Tensor], settings: list[int]) -> list[tuple]:
    of_nodes, of_rows = (tuple(x.shape) for x in tensors[:2])
    return [of_nodes, of_rows, of_rows[:2], of_nodes]


def _forward(tensors: list[Tensor], settings: list[int]) -> list[Tensor]:
    rows, ranges, most = _rows(tensors)
    h, following, explained, t = results = [empty(shape, tensors[0]) for shape in _shapes(tensors, settings)]
    arguments = {"base": tensors[0].contiguous(), "h": h, "t": t, "following": following, "explained": explained}
    run_on_threads(beliefs_forward, ranges, rows=rows, most=most, **arguments)
    return results


def _differentiate(
    grads: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]
) -> tuple[Tensor | None, ...]:
    base, m, weight, rho, of_all, table, *_, h, t = saved
    rows, ranges, most = _rows(saved[:-2])
    dbase, dm, dreverse, dweight = (empty(tuple(x.shape), base) for x in (base, m, m, weight))
    parts = len(ranges)
    drho, dsettings = (zeros((parts, *sizes), base) for sizes in ((len(rho),), (len(of_all), len(rho))))
    devidence, dratio = zeros((parts, *table.shape), base), zeros((parts, *table.shape), base)
    of_threads = {"drho": drho, "dsettings": dsettings, "devidence": devidence, "dratio": dratio}
    arguments = {"dbase": dbase, "dm": dm, "dreverse": dreverse, "dweight": dweight}
    arguments |= {"dh": grads[0].contiguous(), "dfollowing": grads[1].contiguous(), "h": h, "t": t}
    lists = {name: list(x) for name, x in of_threads.items()}
    run_on_threads(beliefs_backward, ranges, rows=rows, most=most, **arguments, **lists)
    of_rates = sum_of(drho), sum_of(dsettings).sum(1), sum_of(devidence), sum_of(dratio)
    return dbase, dm.add_(dreverse), dweight, *of_rates, None, None


exchange = operator("beliefs", _forward, _shapes, _differentiate, differentiable=2)
"""Base (N, K, D), m (rows, K, D), weight (rows,), rho (K,), epsilon, g and the share (3,), S and A (D, K, D), where the
nodes' rows start, and the rows' reverses -> h = softmax(t) (N, K, D), the next m, and rho a (rows, K), detached."""
