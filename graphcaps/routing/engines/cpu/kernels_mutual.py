"""Routing of nodes whose couplings depend on each other, for Numba.

    b_e = <u_hat_e, w_v> + <u_hat_e', w_u>        of e = (u, v) and its reverse e' = (v, u), where logits are mutual
    c   = softmax of <u_hat, w> over all edges and capsules of a source, where neighbours compete: given from outside

An iteration needs the products of the one before along all edges. So these kernels go from iteration to iteration, and
in each from node to node: what an iteration sums over a node's rows and the next iteration's products of the same rows
are made together, while the votes are in cache.

s, w and ds are (N, R, K, D). c, db and the products are (rows, K) of an iteration, in the rows' order, and
``reverse`` (rows,) has the row of each row's reverse edge, or is empty where neighbours compete. `mutual` calls these.
"""

from __future__ import annotations

from .kernel_cache import compiled
from .kernels_nodes import (
    AHEAD,
    add_parents,
    add_votes,
    agree_with,
    agree_with_backward,
    clear,
    gradient_of_length,
    gradient_of_votes,
    look_ahead,
    per_length,
    products,
    softmax,
    softmax_backward,
    sum_equally,
)
from .parts import inlined
from .simd import fma, get, load, prefetch, splat, store, zeros


@inlined
def look_ahead_twice(rows, k, last, x, start, reverse):
    """Prefetch a later row's votes, and the numbers of x (rows, K) of its reverse edge."""
    look_ahead(rows, k, last)
    if len(reverse) > 0:
        prefetch(x, start + get(reverse, min(k + AHEAD, last)) * len(rows.K))


@inlined
def with_reverse(x, start, k, reverse, K):
    """Of x (rows, K), from ``start`` on, row k, plus its reverse edge's if there are reverse edges."""
    found = load(x, start + k * len(K), K)
    if len(reverse) > 0:
        found = fma(x.dtype.type(1), load(x, start + get(reverse, k) * len(K), K), found)
    return found


@compiled
def iterate(begin, end, rows, reverse, kappa, r, iterations, adds, s, w, squares, length, shared, c, after):
    """Iteration r: its s and, unless it is the last, w and the products ``after`` (rows, K) of the next.

    ``shared`` (rows, K) are the products of this iteration, and c (rows, K) its couplings, or empty; where neighbours
    compete c is given. At r = 0, which couples equally, ``squares`` and ``length`` (N, K) are made: the sums of squared
    lengths and kappa / rho.
    """
    K, D, like = rows.K, rows.D, rows.u_hat
    size, caps = len(K) * len(D), len(K)
    sums, square = zeros(size, like), zeros(caps, like)
    per, room = zeros(caps, like), zeros(caps, like)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        at = (node * iterations + r) * size
        if first == last:
            clear(s, at, at + size)
            continue
        clear(sums, 0, size)
        if r == 0:
            clear(w, at, at + size)
            sum_equally(sums, square, rows, first, last, room)
            per_length(square, last - first, node, kappa, K, per)
            store(squares, node * caps, load(square, 0, K))
            store(length, node * caps, load(per, 0, K))
        else:
            store(per, 0, load(length, node * caps, K))
        if len(reverse) == 0:
            clear(sums, 0, size)
            for k in range(first, last):
                look_ahead(rows, k, last - 1)
                add_votes(sums, 0, load(c, k * caps, K), rows, k, room)
        elif r > 0:
            for k in range(first, last):
                look_ahead_twice(rows, k, last - 1, shared, 0, reverse)
                coupling = softmax(with_reverse(shared, 0, k, reverse, K), K)
                if len(c) > 0:
                    store(c, k * caps, coupling)
                add_votes(sums, 0, coupling, rows, k, room)
        for x in range(0, size, len(D)):
            store(s, at + x, load(sums, x, D))
        if r < iterations - 1:
            agree_with(w, at, s, at + size, per, adds, K, D)
            for k in range(first, last):
                store(after, k * caps, products(rows, k, w, at + size))


@inlined
def sum_backward(node, rows, reverse, r, iterations, adds, s, above, start, ds, dw, slopes, per, of_per, room):
    """ds of a node's iteration r, of the next one's db (rows, K), which lie in ``above`` from ``start`` on.

    ``of_per`` (K,) += dlength. Where w ``adds`` up from iteration to iteration, dw (N, K, D) does too.
    """
    K, D = rows.K, rows.D
    size, first, last = len(K) * len(D), get(rows.indptr, node), get(rows.indptr, node + 1)
    clear(slopes, 0, size)
    if adds:
        for x in range(0, size, len(D)):
            store(slopes, x, load(dw, node * size + x, D))
    for k in range(first, last):
        look_ahead_twice(rows, k, last - 1, above, start, reverse)
        add_votes(slopes, 0, with_reverse(above, start, k, reverse, K), rows, k, room)
    agree_with_backward(ds, s, (node * iterations + r) * size, slopes, per, of_per, adds, K, D)
    if adds:
        for x in range(0, size, len(D)):
            store(dw, node * size + x, load(slopes, x, D))


@compiled
def iterate_backward(begin, end, rows, reverse, r, iterations, adds, s, length, c, db, db_above, ds, dw, dlength):
    """db (rows, K) of iteration r > 0, or dc where neighbours compete; and its ds, which is given where r is the last.

    ``db_above`` is that of iteration r + 1. dw (N, K, D) and dlength (N, K) add up from iteration to iteration.
    """
    K, D, like = rows.K, rows.D, rows.u_hat
    size, caps = len(K) * len(D), len(K)
    slopes, per = zeros(size, like), zeros(caps, like)
    of_per, room = zeros(caps, like), zeros(caps, like)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        if first == last:
            continue
        if r < iterations - 1:
            store(per, 0, load(length, node * caps, K))
            store(of_per, 0, load(dlength, node * caps, K))
            sum_backward(node, rows, reverse, r, iterations, adds, s, db_above, 0, ds, dw, slopes, per, of_per, room)
            store(dlength, node * caps, load(of_per, 0, K))
        at = (node * iterations + r) * size
        for k in range(first, last):
            if r == iterations - 1:
                look_ahead(rows, k, last - 1)
            slope = products(rows, k, ds, at)
            if len(reverse) > 0:
                slope = softmax_backward(load(c, k * caps, K), slope, K)
            store(db, k * caps, slope)


@compiled
def gradient(
    begin, end, rows, reverse, iterations, adds, s, w, ds, squares, length, c, db, dw, dlength, du, dkappa, dscale
):
    """ds of iteration 0; du (sources, K, D) += the gradient of the votes, dkappa (N, K) and, unless empty, dscale.

    c and db are those of all iterations (R, rows, K). The first db isn't read, and the first c only where neighbours
    compete.
    """
    K, D, like = rows.K, rows.D, rows.u_hat
    size, caps, num_rows = len(K) * len(D), len(K), len(rows.source)
    change, room, bend = zeros(size, like), zeros(caps, like), zeros(caps, like)
    square, per, of_per = zeros(caps, like), zeros(caps, like), zeros(caps, like)
    equal = splat(like.dtype.type(1) / like.dtype.type(caps), K)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        if first == last:
            continue
        store(square, 0, load(squares, node * caps, K))
        store(per, 0, load(length, node * caps, K))
        store(of_per, 0, load(dlength, node * caps, K))
        if iterations > 1:
            above = num_rows * caps
            sum_backward(node, rows, reverse, 0, iterations, adds, s, db, above, ds, dw, change, per, of_per, room)
        gradient_of_length(square, last - first, of_per, per, node, dkappa, bend, K)
        at = node * iterations * size
        for k in range(first, last):
            clear(change, 0, size)
            start = equal
            if len(reverse) == 0:
                start = load(c, k * caps, K)
            add_parents(change, start, ds, at, K, D, room)
            for r in range(1, iterations):
                tile = r * num_rows * caps
                add_parents(change, load(c, tile + k * caps, K), ds, at + r * size, K, D, room)
                add_parents(change, with_reverse(db, tile, k, reverse, K), w, at + r * size, K, D, room)
            gradient_of_votes(change, bend, rows, k, du, dscale, room)
