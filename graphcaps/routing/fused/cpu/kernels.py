"""Dynamic routing in R passes over the votes, children by children, for Numba.

A pass goes over blocks of neighbouring children and tiles of images. All that one iteration needs of a block, its
agreement with the parents of the iterations before, the softmax over each child's out-edges and its share of the next
sums, is done while its votes are in cache: one read of the votes per iteration. Linear votes (P > 0) of a block and
tile are made in a buffer.

Logits are not kept: b^r = prior + <u_hat, v^0 + ... + v^(r-1)>, one product with ``before``, the sum of earlier v. For
the gradient of given votes, couplings c and logit gradients db are kept from pass to pass; of linear votes, they are
made anew from the votes in the buffer.

Arrays are flat and child-major: k counts the edges sorted by child, indptr[i]:indptr[i + 1] are those of child i,
eid[k] is the edge in the graph's order (where its votes stand), dst[k] its parent and wid[k] its weight matrix. Numbers
of an edge (prior, c, db) are (E, B) in the order of k. ``single``, ``height`` and ``width`` are tuples of 0 or 1, P and
D integers: what depends on their length is settled when a kernel is compiled, which takes some seconds for a new P, D
or number type and is kept on disk. `tiles` has what is done to one block and tile.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .simd import fetch, fma, get, load, multiply, spread, store, store_past_cache
from .tiles import (
    AHEAD,
    COUPLED,
    EQUAL,
    NEAR,
    add_products,
    add_votes,
    block,
    couple,
    couple_equally,
    fill,
    keep,
    make_votes,
    move,
    new_tile,
    onto_children,
    sizes,
    spread_back,
    take,
    uncouple,
)

INLINED = "7bcdd61a3c696941"  # checksum of simd.py and tiles.py: a change there changes this file


def compiled(function):
    """A kernel as machine code, kept on disk where that can be written."""
    try:
        return njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # no folder that can be written to: compile anew in each process
        return njit(function, nogil=True, error_model="numpy")


@compiled
def arrange(lo, hi, graph, u, weight, shape, single, height, width, rows):
    """rows (E, B, D), by child = votes u (E, B, D), in the graph's order."""
    indptr, eid, _, _ = graph
    images, size, last = 1 if len(single) else shape[0], len(width), len(eid) - 1
    for k in range(get(indptr, lo), get(indptr, hi)):
        row, to = get(eid, k) * images * size, k * images * size
        fetch(u, get(eid, min(k + AHEAD, last)) * images * size)
        for x in range(images):
            store_past_cache(rows, to + x * size, load(u, row + x * size, width))


@compiled
def iterate(lo, hi, graph, u, weight, shape, single, height, width, prior, before, c, s, start):
    """One iteration for children lo:hi: c = softmax(prior + <u_hat, before>), s += c u_hat.

    ``prior`` and ``before`` may be empty, for zero; ``c`` is kept unless empty; ``start`` is COUPLED, or
    which couplings there are without logits.
    """
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = sizes(shape, single)
    linear = len(height) > 0
    rows = np.empty(room * lanes * len(width), u.dtype) if linear else u
    votes, coupling, logit = (rows, linear, eid, dst), new_tile(room, lanes, u), new_tile(room, lanes, u)
    i = lo
    while i < hi:
        end = block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            if linear:
                make_votes(rows, place, indptr, wid, u, weight, height, width)
            if start != COUPLED:
                couple_equally(coupling, place, indptr, start)
            else:
                couple(coupling, logit, place, indptr, votes, prior, before, 0, width)
            if len(c) > 0:
                keep(coupling, place, c)
            add_votes(s, coupling, place, votes, width)
        i = end


@compiled
def step_back(
    lo, hi, graph, u, weight, shape, single, height, width, prior, before, ds, iterations, c, db_above, db, dv
):
    """Gradient through one iteration r: db = db_above + softmax' <u_hat, ds^r>, dv += db u_hat.

    Given votes: ``c`` of the iteration and ``db_above`` (empty: zero) were kept. Linear votes: both are made anew from
    ``before`` and ``ds``, which hold ``iterations`` from r on (one after the other, each J, B, D). ``db`` is kept, and
    ``dv`` summed, unless empty.
    """
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = sizes(shape, single)
    linear = len(height) > 0
    rows = np.empty(room * lanes * len(width), u.dtype) if linear else u
    votes, step = (rows, linear, eid, dst), len(ds) // iterations
    coupling, slope = new_tile(room, lanes, u), new_tile(room, lanes, u)
    change, above = new_tile(room, lanes, u), new_tile(room, lanes, u)
    i = lo
    while i < hi:
        end = block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            fill(above, 0, (place[3] - place[2]) * lanes, u.dtype.type(0))
            if linear:
                make_votes(rows, place, indptr, wid, u, weight, height, width)
                for r in range(iterations - 1, -1, -1):
                    couple(coupling, slope, place, indptr, votes, prior, before, r * step, width)
                    uncouple(change, above, coupling, slope, place, indptr, votes, ds, r * step, width)
                    move(above, change, place)
            else:
                if len(db_above) > 0:
                    take(above, place, db_above)
                take(coupling, place, c)
                uncouple(change, above, coupling, slope, place, indptr, votes, ds, 0, width)
            if len(db) > 0:
                keep(change, place, db)
            if len(dv) > 0:
                add_votes(dv, change, place, votes, width)
        i = end


@compiled
def gradient(lo, hi, graph, u, weight, shape, single, height, width, c, db, parents, iterations, start, du):
    """Given votes: du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1).

    ``parents`` (J, B, 2R - 1, D) has ds^0, ds^1, v^0, ds^2, v^1, ... of a parent side by side: one place in the memory
    instead of 2R - 1. db (E, B) lacks the first iteration, and so does c if ``start`` is EQUAL.
    """
    indptr, eid, dst, _ = graph
    images, size, rows = 1 if len(single) else shape[0], len(width), 2 * iterations - 1
    last, numbers = len(eid) - 1, len(eid) * images
    skipped = numbers if start == EQUAL else 0
    for i in range(lo, hi):
        begin, end = get(indptr, i), get(indptr, i + 1)
        share = u.dtype.type(1) / u.dtype.type(end - begin)
        for k in range(begin, end):
            parent, to, number = get(dst, k) * images * rows * size, get(eid, k) * images * size, k * images
            if len(single):
                ahead = get(dst, min(k + NEAR, last)) * rows * size
                for row in range(rows):
                    fetch(parents, ahead + row * size)
            for x in range(images):
                above, at = parent + x * rows * size, number + x
                if start != EQUAL:
                    share = get(c, at)
                change = multiply(spread(share, width), load(parents, above, width))
                for r in range(1, iterations):
                    above += 2 * size
                    change = fma(get(c, r * numbers - skipped + at), load(parents, above - size, width), change)
                    change = fma(get(db, (r - 1) * numbers + at), load(parents, above, width), change)
                store_past_cache(du, to + x * size, change)


@compiled
def linear_gradient(
    lo, hi, graph, u, weight, shape, single, height, width, prior, before, ds, v, iterations, start, du, dweight
):
    """Linear votes: du and dweight += what ``gradient`` says of u_hat = u W, with c and db made anew."""
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = sizes(shape, single)
    step, size = len(ds) // iterations, len(width)
    rows, changes = np.empty(room * lanes * size, u.dtype), np.empty(room * lanes * size, u.dtype)
    votes, turned = (rows, True, eid, dst), np.empty(len(height) * size, u.dtype)
    coupling, slope = new_tile(room, lanes, u), new_tile(room, lanes, u)
    change, above = new_tile(room, lanes, u), new_tile(room, lanes, u)
    i = lo
    while i < hi:
        end = block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            edges = place[3] - place[2]
            make_votes(rows, place, indptr, wid, u, weight, height, width)
            fill(above, 0, edges * lanes, u.dtype.type(0))
            for at in range(0, edges * lanes * size, size):
                store(changes, at, spread(u.dtype.type(0), width))
            for r in range(iterations - 1, -1, -1):
                if r == 0 and start != COUPLED:
                    couple_equally(coupling, place, indptr, start)
                else:
                    couple(coupling, slope, place, indptr, votes, prior, before, r * step, width)
                spread_back(changes, coupling, place, dst, ds, r * step, width)
                if r > 0:
                    uncouple(change, above, coupling, slope, place, indptr, votes, ds, r * step, width)
                    move(above, change, place)
                    spread_back(changes, change, place, dst, v, (r - 1) * step, width)
            onto_children(du, dweight, changes, turned, place, indptr, wid, u, weight, height, width)
        i = end


@compiled
def agree(lo, hi, graph, u, weight, shape, single, height, width, v, to):
    """to (E, B) = <u_hat, v>."""
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = sizes(shape, single)
    linear = len(height) > 0
    rows = np.empty(room * lanes * len(width), u.dtype) if linear else u
    agreement = new_tile(room, lanes, u)
    i = lo
    while i < hi:
        end = block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            if linear:
                make_votes(rows, place, indptr, wid, u, weight, height, width)
            fill(agreement, 0, (place[3] - place[2]) * lanes, u.dtype.type(0))
            add_products(agreement, place, (rows, linear, eid, dst), v, 0, width)
            keep(agreement, place, to)
        i = end
