"""Dynamic routing in R passes over the votes, child by child, for Numba.

A pass goes over a range of children. All that one iteration needs of a child, its agreement with the parents of the
iteration before, the softmax over its out-edges and its share of the next sums, is done while its votes are in cache:
one read of the votes per iteration. With linear votes (P > 0) the votes of one child and a few images are made in a
buffer that never leaves the cache.

Arrays are flat and child-major: k counts the edges sorted by child, indptr[i]:indptr[i + 1] are those of child i,
eid[k] is the edge in the graph's order (where its votes stand) and dst[k] its parent. Scalars of an edge (b, c, db)
are (E, B) in the order of k. `height` and `width` are tuples of P and D integers (`simd` says why).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .simd import add_row, dot_rows, vote_row

TILE = 16  # images of one child that are worked on together: their votes for 10 parents are 10 KB
_FAST = {"contract", "reassoc", "nsz"}  # NaN and infinity keep their meaning


@njit(nogil=True, cache=True, fastmath=_FAST, inline="always")
def _votes(rows, i, k0, k1, first, images, batch, u, weight, wid, height, width):
    """Make the linear votes of child i for ``images`` images from ``first`` on, in ``rows``."""
    size = len(height) * len(width)
    for k in range(k0, k1):
        for x in range(images):
            to, child = ((k - k0) * TILE + x) * len(width), (i * batch + first + x) * len(height)
            vote_row(rows, to, u, child, weight, wid[k] * size, height, width)


@njit(nogil=True, cache=True)
def _most_edges(lo, hi, indptr):
    most = 0
    for i in range(lo, hi):
        most = max(most, indptr[i + 1] - indptr[i])
    return most


@njit(nogil=True, cache=True, fastmath=_FAST)
def iterate(lo, hi, graph, u, weight, batch, height, width, b, v, c, s, first_iteration, uniform):
    """One iteration for children lo:hi: b += <u_hat, v> (not in the first), c = softmax(b), s += c u_hat."""
    indptr, eid, dst, wid = graph
    linear, size = len(height) > 0, len(width)
    rows = np.empty(_most_edges(lo, hi, indptr) * TILE * size, u.dtype) if linear else u
    top, total = np.empty(TILE, u.dtype), np.empty(TILE, u.dtype)
    one = u.dtype.type(1)
    for first in range(0, batch, TILE):
        images = min(TILE, batch - first)
        for i in range(lo, hi):
            k0, k1 = indptr[i], indptr[i + 1]
            if k0 == k1:
                continue
            if linear:
                _votes(rows, i, k0, k1, first, images, batch, u, weight, wid, height, width)
            if not first_iteration:
                for k in range(k0, k1):
                    row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                    parent, at = (dst[k] * batch + first) * size, k * batch + first
                    for x in range(images):
                        b[at + x] += dot_rows(rows, row + x * size, v, parent + x * size, width)
            if uniform:
                share = one / u.dtype.type(k1 - k0)
                for k in range(k0, k1):
                    for x in range(images):
                        c[k * batch + first + x] = share
                for x in range(images):
                    total[x] = one
            else:
                for x in range(images):
                    top[x] = b[k0 * batch + first + x]
                    total[x] = 0
                for k in range(k0 + 1, k1):
                    at = k * batch + first
                    for x in range(images):
                        top[x] = max(top[x], b[at + x])
                for k in range(k0, k1):
                    at = k * batch + first
                    for x in range(images):
                        c[at + x] = math.exp(b[at + x] - top[x])
                        total[x] += c[at + x]
                for x in range(images):
                    total[x] = one / total[x]
            for k in range(k0, k1):
                row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                parent, at = (dst[k] * batch + first) * size, k * batch + first
                for x in range(images):
                    share = c[at + x] * total[x]
                    c[at + x] = share
                    add_row(s, parent + x * size, share, rows, row + x * size, width)


@njit(nogil=True, cache=True, fastmath=_FAST)
def step_back(lo, hi, graph, u, weight, batch, height, width, c, ds, db_above, db, dv, more):
    """Gradient through one iteration: dc = <u_hat, ds>, db = db_above + softmax' dc; dv += db u_hat if ``more``."""
    indptr, eid, dst, wid = graph
    linear, size = len(height) > 0, len(width)
    rows = np.empty(_most_edges(lo, hi, indptr) * TILE * size, u.dtype) if linear else u
    mean = np.empty(TILE, u.dtype)
    for first in range(0, batch, TILE):
        images = min(TILE, batch - first)
        for i in range(lo, hi):
            k0, k1 = indptr[i], indptr[i + 1]
            if k0 == k1:
                continue
            if linear:
                _votes(rows, i, k0, k1, first, images, batch, u, weight, wid, height, width)
            for x in range(images):
                mean[x] = 0
            for k in range(k0, k1):
                row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                parent, at = (dst[k] * batch + first) * size, k * batch + first
                for x in range(images):
                    dc = dot_rows(rows, row + x * size, ds, parent + x * size, width)
                    db[at + x] = dc
                    mean[x] += c[at + x] * dc
            for k in range(k0, k1):
                row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                parent, at = (dst[k] * batch + first) * size, k * batch + first
                for x in range(images):
                    db[at + x] = db_above[at + x] + c[at + x] * (db[at + x] - mean[x])
                    if more:
                        add_row(dv, parent + x * size, db[at + x], rows, row + x * size, width)


@njit(nogil=True, cache=True, fastmath=_FAST)
def gradient(lo, hi, graph, u, weight, batch, height, width, c, ds, db, v, du, dweight):
    """du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1); with linear votes, on to u and weight.

    c, db are (R, E, B); ds, v are (R, J, B, D); du and dweight come zeroed.
    """
    indptr, eid, dst, wid = graph
    linear, size, rise = len(height) > 0, len(width), len(height)
    iterations, edges, parents = c.shape[0], c.shape[1], ds.shape[1]
    c, db, ds, v = c.reshape(-1), db.reshape(-1), ds.reshape(-1), v.reshape(-1)
    rows = np.empty(TILE * size, u.dtype) if linear else du
    for first in range(0, batch, TILE):
        images = min(TILE, batch - first)
        for i in range(lo, hi):
            for k in range(indptr[i], indptr[i + 1]):
                row = 0 if linear else (eid[k] * batch + first) * size
                if linear:
                    rows[:] = 0
                for r in range(iterations):
                    at, parent = r * edges + k * batch + first, r * parents + (dst[k] * batch + first) * size
                    for x in range(images):
                        add_row(rows, row + x * size, c[at + x], ds, parent + x * size, width)
                        if r > 0:
                            add_row(rows, row + x * size, db[at + x], v, parent - parents + x * size, width)
                if linear:
                    for x in range(images):
                        child = (i * batch + first + x) * rise
                        for p in range(rise):
                            at_weight = (wid[k] * rise + p) * size
                            du[child + p] += dot_rows(rows, x * size, weight, at_weight, width)
                            add_row(dweight, at_weight, u[child + p], rows, x * size, width)
