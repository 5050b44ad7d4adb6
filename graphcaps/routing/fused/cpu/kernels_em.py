"""EM routing's sums over the votes of 4 x 4 poses, made as they are needed, for Numba; `em` says what for.

Each kernel does the images begin:end, for each parent its in-edges, and for each edge multiplies the vote V = M W out
anew: four products of 16 numbers, less than reading it from memory takes. For that, matrices are stored expanded, so
that V = sum over k of left_k right_k, number by number:

    left (B, I, 4, 16)   left[k][4 r + c] = M[r, k]
    right (M, 4, 16)     right[k][4 r + c] = W[k, c]

and slopes are summed in the same form. All arrays are flat and image-first. k counts the edges sorted by parent,
parents sorted by their first child, so that those of one window follow each other. Numbers of an edge are (B, E) in the
order of k, those of a parent (B, J) or (B, J, 16).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .kernel_cache import compiled
from .parts import inlined
from .simd import dot, fma, get, load, multiply, put, splat, store, subtract, zeros

POSE = (None,) * 16


class Edges(NamedTuple):
    """A graph's edges, sorted by parent."""

    indptr: np.ndarray  # (J + 1,): the edges of parent j are indptr[j]:indptr[j + 1]
    src: np.ndarray  # (E,): child of edge k
    matrix: np.ndarray  # (E,): its weight matrix
    num_children: int
    max_degree: int  # most edges of a parent


class Votes(NamedTuple):
    """Poses and matrices."""

    left: np.ndarray  # (B, I, 4, 16)
    right: np.ndarray  # (M, 4, 16)
    shift: np.ndarray  # empty, or (I, 16), which is added to all votes of a child


@inlined
def _vote(votes, image, child, matrix, num_children):
    left, right, shift = votes.left, votes.right, votes.shift
    at, of = (image * num_children + child) * 64, matrix * 64
    vote = multiply(load(left, at, POSE), load(right, of, POSE))
    for k in range(1, 4):
        vote = fma(load(left, at + 16 * k, POSE), load(right, of + 16 * k, POSE), vote)
    if len(shift) > 0:
        vote = fma(splat(shift.dtype.type(1), POSE), load(shift, child * 16, POSE), vote)
    return vote


@inlined
def _vote_backward(slope, votes, dleft, dright, image, child, matrix, num_children):
    """Add an edge's share to the slopes of its pose and its matrix."""
    left, right = votes.left, votes.right
    at, of = (image * num_children + child) * 64, matrix * 64
    for k in range(0, 64, 16):
        store(dleft, at + k, fma(slope, load(right, of + k, POSE), load(dleft, at + k, POSE)))
        store(dright, of + k, fma(slope, load(left, at + k, POSE), load(dright, of + k, POSE)))


@compiled
def moments(begin, end, edges, votes, weight, least, mass, mu, variance):
    """mass = sum of w, mu = sum of w V / (mass + least), variance = sum of w (V - mu)^2 / (mass + least)."""
    indptr, src, matrix, num_children = edges.indptr, edges.src, edges.matrix, edges.num_children
    num_parents, num_edges = len(indptr) - 1, len(src)
    u_hat = zeros(16 * edges.max_degree, votes.left)
    zero, one = votes.left.dtype.type(0), votes.left.dtype.type(1)
    for x in range(begin, end):
        for j in range(num_parents):
            first_edge, end_edge = get(indptr, j), get(indptr, j + 1)
            total, sums, squares = zero, splat(zero, POSE), splat(zero, POSE)
            for k in range(first_edge, end_edge):
                w = get(weight, x * num_edges + k)
                vote = _vote(votes, x, get(src, k), get(matrix, k), num_children)
                store(u_hat, (k - first_edge) * 16, vote)
                total += w
                sums = fma(w, vote, sums)
            divisor, to = total + least, x * num_parents + j
            mean = multiply(sums, splat(one / divisor, POSE))
            for k in range(first_edge, end_edge):
                deviation = subtract(load(u_hat, (k - first_edge) * 16, POSE), mean)
                squares = fma(get(weight, x * num_edges + k), multiply(deviation, deviation), squares)
            put(mass, to, total)
            store(mu, to * 16, mean)
            store(variance, to * 16, multiply(squares, splat(one / divisor, POSE)))


@compiled
def moments_backward(begin, end, edges, votes, weight, mu, ds, dq, dmass, dweight, dleft, dright):
    """From slopes of mass, of s = sum of w V and of q = sum of w (V - mu)^2: dweight, dleft and dright."""
    indptr, src, matrix, num_children = edges.indptr, edges.src, edges.matrix, edges.num_children
    num_parents, num_edges = len(indptr) - 1, len(src)
    for x in range(begin, end):
        for j in range(num_parents):
            to = x * num_parents + j
            mean, of_sum, of_squares = load(mu, to * 16, POSE), load(ds, to * 16, POSE), load(dq, to * 16, POSE)
            for k in range(get(indptr, j), get(indptr, j + 1)):
                i, w, at = get(src, k), get(matrix, k), x * num_edges + k
                share = get(weight, at)
                vote = _vote(votes, x, i, w, num_children)
                deviation = subtract(vote, mean)
                product = multiply(of_squares, deviation)
                put(dweight, at, get(dmass, to) + dot(of_sum, vote) + dot(product, deviation))
                slope = multiply(splat(share, POSE), fma(2, product, of_sum))
                _vote_backward(slope, votes, dleft, dright, x, i, w, num_children)


@compiled
def distances(begin, end, edges, votes, mu, precision, distance):
    """distance = sum over the 16 numbers of precision (V - mu)^2."""
    indptr, src, matrix, num_children = edges.indptr, edges.src, edges.matrix, edges.num_children
    num_parents, num_edges = len(indptr) - 1, len(src)
    for x in range(begin, end):
        for j in range(num_parents):
            to = (x * num_parents + j) * 16
            mean, of_parent = load(mu, to, POSE), load(precision, to, POSE)
            for k in range(get(indptr, j), get(indptr, j + 1)):
                vote = _vote(votes, x, get(src, k), get(matrix, k), num_children)
                deviation = subtract(vote, mean)
                put(distance, x * num_edges + k, dot(of_parent, multiply(deviation, deviation)))


@compiled
def distances_backward(begin, end, edges, votes, mu, precision, slopes, dmu, dprecision, dleft, dright):
    """From slopes of the distances: those of mu, precision, left and right."""
    indptr, src, matrix, num_children = edges.indptr, edges.src, edges.matrix, edges.num_children
    num_parents, num_edges = len(indptr) - 1, len(src)
    zero = votes.left.dtype.type(0)
    for x in range(begin, end):
        for j in range(num_parents):
            to = (x * num_parents + j) * 16
            mean, of_parent = load(mu, to, POSE), load(precision, to, POSE)
            by_mean, by_precision = splat(zero, POSE), splat(zero, POSE)
            for k in range(get(indptr, j), get(indptr, j + 1)):
                i, w, slope = get(src, k), get(matrix, k), get(slopes, x * num_edges + k)
                deviation = subtract(_vote(votes, x, i, w, num_children), mean)
                by_precision = fma(slope, multiply(deviation, deviation), by_precision)
                of_vote = multiply(splat(slope + slope, POSE), multiply(of_parent, deviation))
                by_mean = subtract(by_mean, of_vote)
                _vote_backward(of_vote, votes, dleft, dright, x, i, w, num_children)
            store(dmu, to, by_mean)
            store(dprecision, to, by_precision)
