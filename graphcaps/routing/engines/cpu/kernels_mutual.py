"""Numba kernels for routing among nodes in which an edge e = (u, v) and its reverse e' = (v, u) share their logits.

    b_e = <u_hat_e, w_v> + <u_hat_e', w_u>

An iteration needs the products of the iteration before along all edges, so a kernel call runs one iteration of all
nodes. It computes a node's s together with its rows' products for the next iteration, while the votes are in cache.
s, w and ds are (N, R, K, D), c and db (R, rows, K). `nodes` calls these kernels.
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
    """Prefetch the votes of a later row, and its reverse's row in x. x (rows, K) starts at ``start``."""
    look_ahead(rows, k, last)
    prefetch(x, start + get(rows.reverse, min(k + AHEAD, last)) * len(rows.K))


@compiled
def iterate(begin, end, rows, kappa, r, iterations, adds, s, w, squares, norm, products_of, c):
    """Run iteration r: compute s, the couplings c unless c is empty, and the next iteration's w if there is one.

    ``products_of`` (2, rows, K) has the products for iteration r at r % 2, and gets those for r + 1 in the other half.
    At r = 0 the couplings are equal, and ``squares`` and ``norm`` (N, K) are filled.
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
    """Run the backward pass of iteration r: compute ds, which is given for the last iteration, and db if r > 0.

    At r = 0, the votes' gradient is added to du (sources, K, D), dkappa (N, K) is filled, and dscale (rows, K) unless
    empty. dnorm (N, K) adds up over iterations, and dw (N, K, D) too if ``adds``.
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
