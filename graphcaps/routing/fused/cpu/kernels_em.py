"""EM routing's sums over the votes of 4 x 4 poses, made as they are needed, for Numba; `em` says what for.

Each kernel does the images lo:hi, for each parent its in-edges, and for each edge multiplies the vote V = M W out anew:
four products of 16 numbers, less than reading it from memory takes. For that, matrices are stored spread out, so that
V = sum over k of left_k right_k, number by number:

    left (B, I, 4, 16)   left[k][4 r + c] = M[r, k]
    right (M, 4, 16)     right[k][4 r + c] = W[k, c]

and slopes are summed in the same form. All arrays are flat and image-first. k counts the edges sorted by parent,
parents sorted by their first child, so that those of one window follow each other: indptr[j]:indptr[j + 1] are the
edges of parent j, src[k] the child and wid[k] the matrix. Numbers of an edge are (B, E) in the order of k, those of a
parent (B, J) or (B, J, 16).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .kernels import compiled
from .simd import dot, fma, get, load, multiply, put, spread, store, subtract

INLINED = "7bcdd61a3c696941"  # checksum of simd.py and tiles.py: a change there changes this file


@njit(inline="always")
def _vote(left, at, right, of, shift, to, width):
    vote = multiply(load(left, at, width), load(right, of, width))
    for k in range(1, 4):
        vote = fma(load(left, at + 16 * k, width), load(right, of + 16 * k, width), vote)
    if len(shift) > 0:
        vote = fma(spread(shift.dtype.type(1), width), load(shift, to, width), vote)
    return vote


@njit(inline="always")
def _spread_back(slope, left, dleft, at, right, dright, of, width):
    """Add an edge's share to the slopes of its pose and its matrix."""
    for k in range(0, 64, 16):
        store(dleft, at + k, fma(slope, load(right, of + k, width), load(dleft, at + k, width)))
        store(dright, of + k, fma(slope, load(left, at + k, width), load(dright, of + k, width)))


@compiled
def moments(lo, hi, graph, left, right, shift, width, weight, least, epsilon, mass, mu, variance):
    """mass = sum of w, mu = sum of w V / (mass + least), variance = sum of w (V - mu)^2 / (mass + least) + epsilon."""
    indptr, src, wid, children, longest = graph
    parents, edges = len(indptr) - 1, len(src)
    rows = np.empty(16 * longest, left.dtype)
    zero, one = left.dtype.type(0), left.dtype.type(1)
    for x in range(lo, hi):
        for j in range(parents):
            start, end = get(indptr, j), get(indptr, j + 1)
            total, sums, squares = zero, spread(zero, width), spread(zero, width)
            for k in range(start, end):
                i, w = get(src, k), get(weight, x * edges + k)
                vote = _vote(left, (x * children + i) * 64, right, get(wid, k) * 64, shift, i * 16, width)
                store(rows, (k - start) * 16, vote)
                total += w
                sums = fma(w, vote, sums)
            some, to = total + least, x * parents + j
            mean = multiply(sums, spread(one / some, width))
            for k in range(start, end):
                far = subtract(load(rows, (k - start) * 16, width), mean)
                squares = fma(get(weight, x * edges + k), multiply(far, far), squares)
            put(mass, to, total)
            store(mu, to * 16, mean)
            store(variance, to * 16, fma(one / some, squares, spread(epsilon, width)))


@compiled
def moments_back(lo, hi, graph, left, right, shift, width, weight, mu, ds, dq, dmass, dweight, dleft, dright):
    """From slopes of mass, of s = sum of w V and of q = sum of w (V - mu)^2: dweight, dleft and dright."""
    indptr, src, wid, children, _ = graph
    parents, edges = len(indptr) - 1, len(src)
    for x in range(lo, hi):
        for j in range(parents):
            to = x * parents + j
            mean, by_sum, by_square = load(mu, to * 16, width), load(ds, to * 16, width), load(dq, to * 16, width)
            for k in range(get(indptr, j), get(indptr, j + 1)):
                i, of, w = get(src, k), get(wid, k) * 64, get(weight, x * edges + k)
                at = (x * children + i) * 64
                vote = _vote(left, at, right, of, shift, i * 16, width)
                far = subtract(vote, mean)
                bent = multiply(by_square, far)
                put(dweight, x * edges + k, get(dmass, to) + dot(by_sum, vote) + dot(bent, far))
                slope = multiply(spread(w, width), fma(2, bent, by_sum))
                _spread_back(slope, left, dleft, at, right, dright, of, width)


@compiled
def distances(lo, hi, graph, left, right, shift, width, mu, precision, distance):
    """distance = sum over the 16 numbers of precision (V - mu)^2."""
    indptr, src, wid, children, _ = graph
    parents, edges = len(indptr) - 1, len(src)
    for x in range(lo, hi):
        for j in range(parents):
            to = (x * parents + j) * 16
            mean, exact = load(mu, to, width), load(precision, to, width)
            for k in range(get(indptr, j), get(indptr, j + 1)):
                i = get(src, k)
                vote = _vote(left, (x * children + i) * 64, right, get(wid, k) * 64, shift, i * 16, width)
                far = subtract(vote, mean)
                put(distance, x * edges + k, dot(exact, multiply(far, far)))


@compiled
def distances_back(lo, hi, graph, left, right, shift, width, mu, precision, slopes, dmu, dprecision, dleft, dright):
    """From slopes of the distances: those of mu, precision, left and right."""
    indptr, src, wid, children, _ = graph
    parents, edges = len(indptr) - 1, len(src)
    zero = left.dtype.type(0)
    for x in range(lo, hi):
        for j in range(parents):
            to = (x * parents + j) * 16
            mean, exact = load(mu, to, width), load(precision, to, width)
            by_mean, by_exact = spread(zero, width), spread(zero, width)
            for k in range(get(indptr, j), get(indptr, j + 1)):
                i, of, slope = get(src, k), get(wid, k) * 64, get(slopes, x * edges + k)
                at = (x * children + i) * 64
                far = subtract(_vote(left, at, right, of, shift, i * 16, width), mean)
                by_exact = fma(slope, multiply(far, far), by_exact)
                bent = multiply(spread(slope + slope, width), multiply(exact, far))
                by_mean = subtract(by_mean, bent)
                _spread_back(bent, left, dleft, at, right, dright, of, width)
            store(dmu, to, by_mean)
            store(dprecision, to, by_exact)
