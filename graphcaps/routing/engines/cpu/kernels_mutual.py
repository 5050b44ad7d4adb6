"""Routing of nodes, for Numba, where an edge e = (u, v) and its reverse e' = (v, u) share their logits.

    b_e = <u_hat_e, w_v> + <u_hat_e', w_u>

An iteration needs the products that the one before makes along all edges, and so each kernel call is one iteration of
all nodes. A node's s and the products of its rows for the next iteration are made together, while its votes are in
cache. s, w and ds are (N, R, K, D), c and db (R, rows, K). `nodes` calls these kernels.
"""

from __future__ import annotations

from .kernel_cache import compiled
from .kernels_nodes import (
    AHEAD,
    add_votes,
    clear,
    copy,
    couple_equally,
    look_ahead,
    next_w,
    next_w_backward,
    norm_backward,
    products,
    softmax,
    softmax_backward,
    votes_backward,
    with_reverse,
)
from .parts import inlined
from .simd import get, load, prefetch, store, zeros


@inlined
def look_ahead_twice(rows, k, last, x, start):
    """Prefetch a following row's votes, and the row of its reverse edge in x (rows, K), which starts at ``start``."""
    look_ahead(rows, k, last)
    prefetch(x, start + get(rows.reverse, min(k + AHEAD, last)) * len(rows.K))


@compiled
def iterate(begin, end, rows, kappa, r, iterations, adds, s, w, squares, norm, products_of, c):
    """Iteration r: its s, unless they are empty its couplings c, and unless it is the last, w of the next.

    ``products_of`` (2, rows, K) has the products for iteration r at r % 2; those for the next are stored beside them.
    At r = 0, which couples equally, ``squares`` and ``norm`` (N, K) are made.
    """
    K, size, caps = rows.K, len(rows.K) * len(rows.D), len(rows.K)
    sums, tile = zeros(size, rows.u_hat), len(rows.source) * caps
    current, following = r % 2 * tile, (1 - r % 2) * tile
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        at = (node * iterations + r) * size
        clear(sums, 0, size)
        if r == 0:
            couple_equally(sums, 0, squares, norm, node * caps, kappa, node * caps, rows, first, last)
            clear(w, at, at + size)
        else:
            for k in range(first, last):
                look_ahead_twice(rows, k, last - 1, products_of, current)
                coupling = softmax(with_reverse(products_of, current, k, rows), K)
                if len(c) > 0:
                    store(c, r * tile + k * caps, coupling)
                add_votes(sums, 0, coupling, rows, k)
        copy(s, at, sums, 0, rows)
        if r < iterations - 1:
            next_w(w, s, at + size, norm, node * caps, adds, rows)
            for k in range(first, last):
                store(products_of, following + k * caps, products(rows, k, w, at + size))


@compiled
def iterate_backward(
    begin, end, rows, r, iterations, adds, s, w, ds, squares, norm, c, db, dw, dnorm, du, dkappa, dscale
):
    """Iteration r: its ds, which is given where r is the last, and its db (rows, K), if r > 0.

    At r = 0, du (sources, K, D) += the gradient of the votes, dkappa (N, K) is that of kappa, and unless it is empty
    dscale (rows, K) that of the scale. dnorm (N, K) adds up from iteration to iteration, and so does dw (N, K, D) where
    w ``adds`` up.
    """
    K, like, size, caps = rows.K, rows.u_hat, len(rows.K) * len(rows.D), len(rows.K)
    node_dw, change, through_rho = zeros(size, like), zeros(size, like), zeros(caps, like)
    stride = len(rows.source) * caps
    tile, above = r * stride, (r + 1) * stride
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        at = (node * iterations + r) * size
        if r < iterations - 1:
            clear(node_dw, 0, size)
            if adds:
                copy(node_dw, 0, dw, node * size, rows)
            for k in range(first, last):
                look_ahead_twice(rows, k, last - 1, db, above)
                add_votes(node_dw, 0, with_reverse(db, above, k, rows), rows, k)
            next_w_backward(ds, s, at, node_dw, norm, dnorm, node * caps, adds, rows)
            if adds:
                copy(dw, node * size, node_dw, 0, rows)
        if r > 0:
            for k in range(first, last):
                if r == iterations - 1:
                    look_ahead(rows, k, last - 1)
                x = tile + k * caps
                store(db, x, softmax_backward(load(c, x, K), products(rows, k, ds, at), K))
            continue
        norm_backward(squares, norm, dnorm, node * caps, dkappa, node * caps, through_rho, last - first)
        for k in range(first, last):
            votes_backward(rows, k, iterations, ds, w, at, c, db, 0, stride, through_rho, change, du, dscale)
