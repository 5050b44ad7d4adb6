"""Numba kernels for routing among a node's capsules: all iterations of a node while its neighbours' votes are in cache.

A row is a capsule of an edge's source, and has a vote of D numbers for each of the node's K capsules. s and w of each
iteration and their gradients are (K, D) per node. Nothing is kept for the backward pass: it recomputes the couplings.
The first arguments of a kernel are its range of nodes begin:end. `nodes` has the formulas and describes the other
arguments. `kernels_mutual` uses the same functions.
"""

from __future__ import annotations

import math

from .kernel_cache import compiled
from .parts import inlined
from .simd import (
    add_rows,
    divide,
    dot,
    dots,
    exp,
    fma,
    get,
    load,
    multiply,
    prefetch,
    put,
    reduce_max,
    reduce_sum,
    splat,
    store,
    subtract,
    zeros,
)

MIN_MEAN_SQUARE = 1e-24  # kappa / rho is 0 if the votes' mean squared norm is at most this
MIN_NORM = 1e-12  # a sum of at most this norm has no direction
AHEAD, LINE = 4, 16  # a row is prefetched this many rows before it is used, this many numbers at a time


@inlined
def start_of(rows, k):
    """Return the start of row k in u_hat."""
    return get(rows.source, k) * len(rows.K) * len(rows.D)


@inlined
def look_ahead(rows, k, last):
    at = start_of(rows, min(k + AHEAD, last))
    for line in range(0, len(rows.K) * len(rows.D), LINE):
        prefetch(rows.u_hat, at + line)


@inlined
def scales(rows, k):
    """Return the factors (K,) of row k's votes."""
    K = rows.K
    if len(rows.scale) > 0:
        return load(rows.scale, get(rows.eid, k) * len(K), K)
    return splat(rows.u_hat.dtype.type(1), K)


@inlined
def products(rows, k, parents, at):
    """(K,): the products of row k's votes with ``parents`` (K, D), which start at ``at``."""
    K = rows.K
    unscaled = dots(rows.u_hat, start_of(rows, k), parents, at, splat(parents.dtype.type(0), K), rows.D)
    return multiply(unscaled, scales(rows, k))


@inlined
def add_votes(sums, at, factors, rows, k):
    """sums += row k's votes, each times its factor. The sums (K, D) start at ``at``."""
    add_rows(sums, at, multiply(factors, scales(rows, k)), rows.u_hat, start_of(rows, k), rows.D)


@inlined
def with_reverse(x, start, k, rows):
    """Return row k of x, plus the row of the reverse edge if edges have one. x (rows, K) starts at ``start``."""
    K = rows.K
    row = load(x, start + k * len(K), K)
    if len(rows.reverse) > 0:
        row = fma(x.dtype.type(1), load(x, start + get(rows.reverse, k) * len(K), K), row)
    return row


@inlined
def softmax(b, K):
    """Return the couplings of one row: the softmax of b."""
    raised = exp(subtract(b, splat(reduce_max(b), K)))
    return divide(raised, splat(reduce_sum(raised), K))


@inlined
def softmax_backward(c, dc, K):
    """db = c (dc - sum of c dc)."""
    return multiply(c, subtract(dc, splat(reduce_sum(multiply(c, dc)), K)))


@inlined
def clear(x, begin, end):
    for at in range(begin, end):
        put(x, at, x.dtype.type(0))


@inlined
def copy(to, i, x, j, rows):
    """Copy (K, D) numbers, from j on in x, to i in ``to``."""
    for at in range(0, len(rows.K) * len(rows.D), len(rows.D)):
        store(to, i + at, load(x, j + at, rows.D))


@inlined
def couple_equally(s, at, squares, norm, i, kappa, j, rows, first, last):
    """Run a node's first iteration: s += votes / K, and fill ``squares`` and ``norm``.

    ``squares`` are the sums of the votes' squared norms. ``norm`` is kappa / rho, or 0 where all votes are zero.
    s (K, D) starts at ``at``, ``squares`` and ``norm`` (K,) at i, and ``kappa`` (K,) at j.
    """
    K, D, number = rows.K, rows.D, s.dtype
    equal, total = splat(number.type(1) / number.type(len(K)), K), splat(number.type(0), K)
    for k in range(first, last):
        look_ahead(rows, k, last - 1)
        row, scale = start_of(rows, k), scales(rows, k)
        square = multiply(dots(rows.u_hat, row, rows.u_hat, row, splat(number.type(0), K), D), scale)
        total = fma(square, scale, total)
        add_votes(s, at, equal, rows, k)
    store(squares, i, total)
    for capsule in range(len(K)):
        mean = get(squares, i + capsule) / number.type(last - first)
        ratio = get(kappa, j + capsule) / math.sqrt(mean)
        put(norm, i + capsule, ratio if mean > MIN_MEAN_SQUARE else number.type(0))


@inlined
def next_w(w, s, at, norm, i, adds, rows):
    """Compute w (K, D) of an iteration, at ``at``, from s and w of the iteration before, which end at ``at``.

    With ``adds``, w is the last w plus squash(s); else s / |s| times ``norm`` (K,), which starts at i.
    """
    D, one, size = rows.D, w.dtype.type(1), len(rows.K) * len(rows.D)
    for capsule in range(len(rows.K)):
        x = at + capsule * len(D)
        row = load(s, x - size, D)
        n = w.dtype.type(math.sqrt(dot(row, row)))
        if adds:
            store(w, x, fma(n / (one + n * n), row, load(w, x - size, D)))
        else:
            store(w, x, multiply(splat(get(norm, i + capsule) / (n if n > MIN_NORM else one), D), row))


@inlined
def next_w_backward(ds, s, at, dw, norm, dnorm, i, adds, rows):
    """Compute ds (K, D) of an iteration, at ``at``, from the next one's dw (K, D). Add to dnorm (K,), at i."""
    D, one = rows.D, ds.dtype.type(1)
    for capsule in range(len(rows.K)):
        x = at + capsule * len(D)
        row, slope = load(s, x, D), load(dw, capsule * len(D), D)
        n = ds.dtype.type(math.sqrt(dot(row, row)))
        along = dot(row, slope)
        if adds:
            square = one + n * n
            factor = n / square
            back = ((one - n * n) / square / square / n if n > 0 else n) * along
        else:
            long = n > MIN_NORM
            n = n if long else one
            put(dnorm, i + capsule, get(dnorm, i + capsule) + along / n)
            factor = get(norm, i + capsule) / n
            back = -factor * along / n / n if long else ds.dtype.type(0)
        store(ds, x, fma(factor, slope, multiply(splat(back, D), row)))


@inlined
def norm_backward(squares, norm, dnorm, i, dkappa, j, through_rho, count):
    """Compute a node's dkappa (K,), at j, and ``through_rho`` (K,), which times a vote is its gradient through rho."""
    number = norm.dtype
    for capsule in range(len(through_rho)):
        mean, slope = get(squares, i + capsule) / number.type(count), get(dnorm, i + capsule)
        nonzero = mean > MIN_MEAN_SQUARE
        put(dkappa, j + capsule, slope / math.sqrt(mean) if nonzero else number.type(0))
        factor = -slope * get(norm, i + capsule) / mean / number.type(count)
        put(through_rho, capsule, factor if nonzero else number.type(0))


@inlined
def votes_backward(rows, k, iterations, ds, w, at, c, db, begin, stride, through_rho, change, du, dscale):
    """Add row k's gradient to du, and fill its dscale. ds and w (R, K, D) start at ``at``.

    c and db (rows, K) of iteration r start at begin + r * stride. ``change`` (K, D) is a buffer.
    """
    K, D, row, scale = rows.K, rows.D, start_of(rows, k), scales(rows, k)
    zero, size = change.dtype.type(0), len(change)
    clear(change, 0, size)
    add_rows(change, 0, splat(change.dtype.type(1) / change.dtype.type(len(K)), K), ds, at, D)
    for r in range(1, iterations):
        start = begin + r * stride
        add_rows(change, 0, load(c, start + k * len(K), K), ds, at + r * size, D)
        add_rows(change, 0, with_reverse(db, start, k, rows), w, at + r * size, D)
    add_votes(change, 0, load(through_rho, 0, K), rows, k)
    if len(dscale) > 0:
        store(dscale, get(rows.eid, k) * len(K), dots(change, 0, rows.u_hat, row, splat(zero, K), D))
    add_rows(du, row, scale, change, 0, D)


@compiled
def route(begin, end, rows, kappa, iterations, adds, s, c):
    """Compute s (N, K, D) of the last iteration and, unless c is empty, its couplings c in the graph's order.

    With one iteration c isn't written: the caller fills it with equal couplings.
    """
    K, size, caps, like = rows.K, len(rows.K) * len(rows.D), len(rows.K), rows.u_hat
    sums, w = zeros(iterations * size, like), zeros(iterations * size, like)
    squares, norm = zeros(caps, like), zeros(caps, like)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        clear(sums, 0, iterations * size)
        couple_equally(sums, 0, squares, norm, 0, kappa, node * caps, rows, first, last)
        for r in range(1, iterations):
            next_w(w, sums, r * size, norm, 0, adds, rows)
            for k in range(first, last):
                coupling = softmax(products(rows, k, w, r * size), K)
                if len(c) > 0 and r == iterations - 1:
                    store(c, get(rows.eid, k) * caps, coupling)
                add_votes(sums, r * size, coupling, rows, k)
        copy(s, node * size, sums, (iterations - 1) * size, rows)


@compiled
def route_backward(begin, end, rows, kappa, iterations, adds, max_rows, grad, du, dkappa, dscale):
    """Compute the gradients through all iterations from ``grad`` (N, K, D), the gradient of the last s.

    The votes' gradient is added to du (sources, K, D). dkappa (N, K) is filled, and dscale (rows, K) unless empty.
    ``max_rows`` is the largest number of rows of a node.
    """
    K, like = rows.K, rows.u_hat
    size, caps, stride, end_at = len(K) * len(rows.D), len(K), max_rows * len(K), iterations - 1
    sums, w, ds = zeros(iterations * size, like), zeros(iterations * size, like), zeros(iterations * size, like)
    dw, change, through_rho = zeros(size, like), zeros(size, like), zeros(caps, like)
    squares, norm, dnorm = zeros(caps, like), zeros(caps, like), zeros(caps, like)
    c, db = zeros(iterations * stride, like), zeros(iterations * stride, like)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        start = -first * caps
        clear(sums, 0, iterations * size)
        couple_equally(sums, 0, squares, norm, 0, kappa, node * caps, rows, first, last)
        for r in range(1, iterations):
            next_w(w, sums, r * size, norm, 0, adds, rows)
            if r < end_at:
                for k in range(first, last):
                    coupling = softmax(products(rows, k, w, r * size), K)
                    store(c, start + r * stride + k * caps, coupling)
                    add_votes(sums, r * size, coupling, rows, k)
        copy(ds, end_at * size, grad, node * size, rows)
        clear(dw, 0, size)
        clear(dnorm, 0, caps)
        for r in range(end_at, 0, -1):
            at = r * size
            if not adds:
                clear(dw, 0, size)
            for k in range(first, last):
                x = start + r * stride + k * caps
                if r == end_at:
                    store(c, x, softmax(products(rows, k, w, at), K))
                slope = softmax_backward(load(c, x, K), products(rows, k, ds, at), K)
                store(db, x, slope)
                add_votes(dw, 0, slope, rows, k)
            next_w_backward(ds, sums, at - size, dw, norm, dnorm, 0, adds, rows)
        norm_backward(squares, norm, dnorm, 0, dkappa, node * caps, through_rho, last - first)
        for k in range(first, last):
            votes_backward(rows, k, iterations, ds, w, 0, c, db, start, stride, through_rho, change, du, dscale)
