"""Triton kernels for an iteration of ``BeliefConv``. `..cpu.beliefs` has the formulas, and S is `nodes.Sizes`.

Blocks are those of `kernels_nodes`, and tables (1, K, D, D). A row is a message, sorted by the node that receives it.
A program reads a node's rows twice, and computes their evidence anew the second time, when they are still in the cache.
So it does for a hub: with four rows at a time, 10,000 rows take 5,000 steps, while the rest of the GPU may be idle.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .kernels_nodes import capsules_at, load, load_index, numbers_at, rows_of, softmax, store


class Messages(NamedTuple):
    m: tl.tensor  # (rows, K, D)
    weight: tl.tensor  # (rows,)
    reverse: tl.tensor  # (rows,): the row of the reverse edge
    rho: tl.tensor  # (1, K)
    epsilon: tl.tensor
    gain: tl.tensor
    share: tl.tensor  # of the previous message in the next one
    evidence: tl.tensor  # S_k of the formulas
    ratio: tl.tensor  # A_k


class Edges(NamedTuple):
    row: tl.tensor  # (rows,)
    back: tl.tensor  # the row of the reverse edge
    message: tl.tensor  # (rows, K, D)
    reverse_message: tl.tensor
    weight: tl.tensor  # (rows, 1)
    a: tl.tensor  # (rows, K), before it is limited to numbers from 0
    others: tl.tensor  # the sum of the other capsules' rho a
    logarithm: tl.tensor
    strength: tl.tensor  # w (rows, K, 1), the logarithm times g and the weight
    product: tl.tensor  # m S_k (rows, K, D)


@triton.jit
def table_at(S: tl.constexpr):
    """Return the offsets of a table, which lies in memory as (D, K, D), and a mask that leaves out padding."""
    k, d = tl.arange(0, S.PADDED_K)[None, :, None, None], tl.arange(0, S.PADDED_D)
    i, j = d[None, None, :, None], d[None, None, None, :]
    return (i * S.K + k) * S.D + j, (k < S.K) & (i < S.D) & (j < S.D)


@triton.jit
def messages_of(m, weight, rho, settings, evidence, ratio, reverse, S: tl.constexpr):
    rates, at = load(rho, numbers_at(tl.arange(0, 1), S)), table_at(S)
    epsilon, gain, share = tl.load(settings), tl.load(settings + 1), tl.load(settings + 2)
    return Messages(m, weight, reverse, rates, epsilon, gain, share, load(evidence, at), load(ratio, at))


@triton.jit
def times_table(x, table):
    return tl.sum(x[:, :, :, None] * table, 2)


@triton.jit
def outer(x, y):
    """Return the sum of the rows' outer products, a table."""
    return tl.sum(x[:, :, :, None] * y[:, :, None, :], 0)[None]


@triton.jit
def log1p(x):
    """Return log(1 + x), with a correction of what 1 + x loses in rounding."""
    y = 1 + x
    return tl.where(y == 1, x, tl.log(y) * (x / tl.where(y == 1, 1, y - 1)))


@triton.jit
def softmax_backward(h, dh):
    return h * (dh - tl.sum(h * dh, 2)[:, :, None])


@triton.jit
def edges_at(messages, at, end, S: tl.constexpr):
    """Return the rows from ``at`` on that are before ``end``."""
    row = at + tl.arange(0, S.ROWS)
    row = tl.where(row < end, row, -1)
    back, weight = load_index(messages.reverse, row), tl.load(messages.weight + row, row >= 0, 0.0)[:, None]
    message, reverse_message = load(messages.m, capsules_at(row, S)), load(messages.m, capsules_at(back, S))
    a = tl.sum(times_table(message, messages.ratio) * reverse_message, 2)
    explained = messages.rho * tl.maximum(a, 0)
    others = tl.sum(explained, 1)[:, None] - explained  # rounding can make it slightly negative
    logarithm = log1p(messages.rho / (messages.epsilon + tl.maximum(others, 0)))
    strength, product = (messages.gain * weight * logarithm)[:, :, None], times_table(message, messages.evidence)
    return Edges(row, back, message, reverse_message, weight, a, others, logarithm, strength, product)


@triton.jit
def beliefs_forward(
    base, m, weight, rho, settings, evidence, ratio, indptr, reverse, h, following, explained, t, S: tl.constexpr
):
    """Fill h = softmax(t) (N, K, D), t, the next messages ``following`` (rows, K, D), and ``explained`` (rows, K)."""
    messages, node = messages_of(m, weight, rho, settings, evidence, ratio, reverse, S), tl.program_id(0)
    here = capsules_at(node + tl.arange(0, 1), S)
    begin, end = rows_of(node, indptr, S)
    total = load(base, here)
    for at in range(begin, end, S.ROWS):
        edges = edges_at(messages, at, end, S)
        store(explained, numbers_at(edges.row, S), messages.rho * tl.maximum(edges.a, 0))
        total += tl.sum(edges.strength * edges.product, 0)[None]
    store(t, here, total)
    store(h, here, softmax(total, S.D))
    for at in range(begin, end, S.ROWS):
        edges = edges_at(messages, at, end, S)
        without = softmax(total - edges.strength * edges.product, S.D)
        store(following, capsules_at(edges.back, S), without + messages.share * (edges.reverse_message - without))


@triton.jit
def slope_of(messages, edges, total, dfollowing, S: tl.constexpr):
    """Return the gradient (rows, K, D) of the logits from which the next messages of the reverse edges follow."""
    slope = (1 - messages.share) * load(dfollowing, capsules_at(edges.back, S))
    return softmax_backward(softmax(total - edges.strength * edges.product, S.D), slope)


@triton.jit
def beliefs_backward(
    m, weight, rho, settings, evidence, ratio, indptr, reverse, h, t, dh, dfollowing,
    dbase, dm, dreverse, dweight, dnumbers, dtables, num_nodes, S: tl.constexpr,
):  # fmt: skip
    """Fill dbase (N, K, D), dweight (rows,), and the gradients of each row's message and of its reverse's.

    The gradients of m are the sum of dm and dreverse (rows, K, D). Each program has its own dnumbers (3, K), the
    gradients of rho, epsilon and g, and dtables (2, D, K, D), those of S and A.
    """
    messages, program = messages_of(m, weight, rho, settings, evidence, ratio, reverse, S), tl.program_id(0)
    devidence, dratio = tl.zeros_like(messages.evidence), tl.zeros_like(messages.ratio)
    drho, depsilon, dgain = tl.zeros_like(messages.rho), tl.zeros_like(messages.rho), tl.zeros_like(messages.rho)
    for node in range(program, num_nodes, tl.num_programs(0)):
        here = capsules_at(node + tl.arange(0, 1), S)
        begin, end = rows_of(node, indptr, S)
        total = load(t, here)
        dtotal = softmax_backward(load(h, here), load(dh, here))
        for at in range(begin, end, S.ROWS):
            dtotal += tl.sum(slope_of(messages, edges_at(messages, at, end, S), total, dfollowing, S), 0)[None]
        store(dbase, here, dtotal)
        for at in range(begin, end, S.ROWS):
            edges = edges_at(messages, at, end, S)
            dedge = dtotal - slope_of(messages, edges, total, dfollowing, S)  # the gradient of the edges' evidence
            dstrength = tl.sum(dedge * edges.product, 2)
            devidence += outer(edges.strength * edges.message, dedge)
            dgain += tl.sum(edges.weight * dstrength * edges.logarithm, 0)[None]
            tl.store(dweight + edges.row, messages.gain * tl.sum(dstrength * edges.logarithm, 1), edges.row >= 0)
            rest = messages.epsilon + tl.maximum(edges.others, 0)
            per_rest = messages.gain * edges.weight * dstrength / (rest + messages.rho)
            drest = -per_rest * messages.rho / rest
            depsilon += tl.sum(drest, 0)[None]
            drest = tl.where(edges.others < 0, 0.0, drest)
            dexplained = tl.sum(drest, 1)[:, None] - drest
            drho += tl.sum(per_rest + dexplained * tl.maximum(edges.a, 0), 0)[None]
            da = tl.where(edges.a < 0, 0.0, messages.rho * dexplained)[:, :, None]
            dratio += outer(da * edges.message, edges.reverse_message)
            by_evidence = edges.strength * times_table(dedge, messages.evidence)
            by_ratio = da * times_table(edges.reverse_message, messages.ratio)
            store(dm, capsules_at(edges.row, S), by_evidence + by_ratio)
            back, by_ratio = capsules_at(edges.back, S), da * times_table(edges.message, messages.ratio)
            store(dreverse, back, by_ratio + messages.share * load(dfollowing, back))
    rows = 3 * program + tl.arange(0, 1)
    store(dnumbers, numbers_at(rows, S), drho)
    store(dnumbers, numbers_at(rows + 1, S), depsilon)
    store(dnumbers, numbers_at(rows + 2, S), dgain)
    tables, at = dtables + 2 * program.to(tl.int64) * S.D * S.K * S.D, table_at(S)
    store(tables, at, devidence)
    store(tables + S.D * S.K * S.D, at, dratio)
