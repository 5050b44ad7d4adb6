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
of an edge (prior, c, db) are (E, B) in the order of k. In a tile they are (edges of the block, lanes), with a lane per
image, in vectors of 16. If there is only one image (B = 1, ``single`` is not empty) there is one lane, and 16 edges
make a vector. ``single``, ``height`` and ``width`` are tuples of 0 or 1, P and D integers: what depends on their length
is settled when a kernel is compiled, which takes some seconds for a new P, D or number type and is kept on disk.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .vectors import (
    divide,
    dot,
    dots,
    exponential,
    fetch,
    first,
    fma,
    get,
    larger,
    largest,
    load,
    multiply,
    put,
    spread,
    store,
    store_past_cache,
    subtract,
    total,
)

VECTORS = "e815992d00d8eb24"  # of vectors.py: with it, this file changes and Numba compiles anew
LANES = 16
_VECTOR = (0,) * LANES
_AHEAD, _NEAR = 32, 12  # edges from the one that is worked on to the one whose votes, or parent, are fetched

_inlined = njit(forceinline=True, error_model="numpy")


def _compiled(function):
    try:
        return njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # no folder that can be written to: compile anew in each process
        return njit(function, nogil=True, error_model="numpy")


@_inlined
def _block(i, hi, indptr, room):
    """The end of a block that starts at child i: as many children as ``room`` edges hold, at least one."""
    end = i + 1
    while end < hi and get(indptr, end + 1) - get(indptr, i) <= room:
        end += 1
    return end


@_inlined
def _sizes(shape, single):
    """Images B, images of a tile, edges of a block, lanes; all images are 1, as a constant, if ``single``."""
    batch, tile, room = shape
    if len(single):
        return 1, 1, room, 1
    return batch, tile, room, (tile + LANES - 1) // LANES * LANES


@_inlined
def _tile(room, lanes, like):
    """A number per edge and lane, and room to the end of the last vector."""
    return np.zeros(room * lanes + LANES, like.dtype)


@_inlined
def _fill(tile, begin, end, number):
    for at in range(begin, end, LANES):
        store(tile, at, spread(number, _VECTOR))


@_inlined
def _take(tile, place, numbers):
    """Copy a tile out of numbers (E, B)."""
    _, _, k0, k1, x0, images, batch, lanes = place
    for k in range(k0, k1):
        for x in range(images):
            put(tile, (k - k0) * lanes + x, get(numbers, k * batch + x0 + x))


@_inlined
def _keep(tile, place, numbers):
    """Copy a tile into numbers (E, B)."""
    _, _, k0, k1, x0, images, batch, lanes = place
    for k in range(k0, k1):
        for x in range(images):
            put(numbers, k * batch + x0 + x, get(tile, (k - k0) * lanes + x))


@_inlined
def _multiply(y, iy, x, ix, across, down, w, iw, rows, terms, width):
    """y (rows, D) += X (rows, terms) w (terms, D), four rows at a time: each row of w is loaded once for four products.

    X[row, term] is x[ix + row * across + term * down]: X lies as it is, or turned.
    """
    size = len(width)
    for row in range(0, rows - 3, 4):
        to, at = iy + row * size, ix + row * across
        y0, y1 = load(y, to, width), load(y, to + size, width)
        y2, y3 = load(y, to + 2 * size, width), load(y, to + 3 * size, width)
        for term in range(terms):
            line, x0 = load(w, iw + term * size, width), at + term * down
            y0, y1 = fma(get(x, x0), line, y0), fma(get(x, x0 + across), line, y1)
            y2, y3 = fma(get(x, x0 + 2 * across), line, y2), fma(get(x, x0 + 3 * across), line, y3)
        store(y, to, y0)
        store(y, to + size, y1)
        store(y, to + 2 * size, y2)
        store(y, to + 3 * size, y3)
    for row in range(rows - rows % 4, rows):
        sums = load(y, iy + row * size, width)
        for term in range(terms):
            sums = fma(get(x, ix + row * across + term * down), load(w, iw + term * size, width), sums)
        store(y, iy + row * size, sums)


@_inlined
def _make_votes(votes, place, indptr, wid, u, weight, height, width):
    """The linear votes of a block (edges, lanes, D)."""
    i0, i1, k0, k1, x0, images, batch, lanes = place
    rise, size = len(height), len(width)
    zero = spread(votes.dtype.type(0), width)
    for at in range(0, (k1 - k0) * lanes * size, size):
        store(votes, at, zero)
    for i in range(i0, i1):
        child = (i * batch + x0) * rise
        for k in range(get(indptr, i), get(indptr, i + 1)):
            matrix, row = get(wid, k) * rise * size, (k - k0) * lanes * size
            _multiply(votes, row, u, child, rise, 1, weight, matrix, images, rise, width)


@_inlined
def _add_products(tile, place, votes, parents, at, width):
    """tile += <u_hat, row of the parent>, with the parents' rows (J, B, D) in ``parents`` from ``at`` on."""
    _, _, k0, k1, x0, images, batch, lanes = place
    rows, linear, eid, dst = votes
    size, last = len(width), len(eid) - 1
    for k in range(k0, k1):
        row = ((k - k0) * lanes if linear else get(eid, k) * batch + x0) * size
        parent, to = at + (get(dst, k) * batch + x0) * size, (k - k0) * lanes
        if not linear:
            fetch(rows, (get(eid, min(k + _AHEAD, last)) * batch + x0) * size)
        if lanes == 1:
            fetch(parents, at + get(dst, min(k + _NEAR, last)) * size)
        for x in range(0, images - LANES + 1, LANES):
            store(
                tile, to + x, dots(rows, row + x * size, parents, parent + x * size, load(tile, to + x, _VECTOR), width)
            )
        for x in range(images - images % LANES, images):
            number = dot(load(rows, row + x * size, width), load(parents, parent + x * size, width))
            put(tile, to + x, get(tile, to + x) + number)


@_inlined
def _add_votes(sums, tile, place, votes, width):
    """Each parent's row of sums (J, B, D) += the tile's number times u_hat."""
    _, _, k0, k1, x0, images, batch, lanes = place
    rows, linear, eid, dst = votes
    size, last = len(width), len(eid) - 1
    for k in range(k0, k1):
        row = ((k - k0) * lanes if linear else get(eid, k) * batch + x0) * size
        if not linear:
            fetch(rows, (get(eid, min(k + _AHEAD, last)) * batch + x0) * size)
        if lanes == 1:
            fetch(sums, get(dst, min(k + _NEAR, last)) * size)
        parent, at = (get(dst, k) * batch + x0) * size, (k - k0) * lanes
        for x in range(images):
            to = parent + x * size
            store(sums, to, fma(get(tile, at + x), load(rows, row + x * size, width), load(sums, to, width)))


# The last vector of a child in a tile may reach into the next child's numbers, and that of the last child beyond the
# block: a tile has room for it. So a tile is not changed in place: what is written too far into the other tile, the
# next child overwrites. (Vectors stored in part would do as well, but the processor waits for them when the next child
# is loaded.)


@_inlined
def _softmax(c, b, begin, end, lanes):
    """c = softmax of b over the edges of one child, which are [begin:end] of both."""
    least, zero, one = c.dtype.type(-np.inf), c.dtype.type(0), c.dtype.type(1)
    step = max(lanes, LANES)
    for lane in range(begin, min(begin + step, end), LANES):
        top, whole = spread(least, _VECTOR), spread(zero, _VECTOR)
        for at in range(lane, end, step):
            top = larger(first(end - at, load(b, at, _VECTOR), top), top)
        if lanes == 1:
            top = spread(largest(top), _VECTOR)
        for at in range(lane, end, step):
            share = exponential(subtract(load(b, at, _VECTOR), top))
            whole = fma(one, first(end - at, share, spread(zero, _VECTOR)), whole)
            store(c, at, share)
        whole = spread(one / total(whole), _VECTOR) if lanes == 1 else divide(spread(one, _VECTOR), whole)
        for at in range(lane, end, step):
            store(c, at, multiply(load(c, at, _VECTOR), whole))


@_inlined
def _through_softmax(db, above, c, dc, begin, end, lanes):
    """db = above + c (dc - sum of c dc) over the edges of one child, which are [begin:end] of each."""
    zero, one = spread(c.dtype.type(0), _VECTOR), c.dtype.type(1)
    step = max(lanes, LANES)
    for lane in range(begin, min(begin + step, end), LANES):
        mean = zero
        for at in range(lane, end, step):
            product = multiply(load(c, at, _VECTOR), load(dc, at, _VECTOR))
            mean = fma(one, first(end - at, product, zero), mean)
        if lanes == 1:
            mean = spread(total(mean), _VECTOR)
        for at in range(lane, end, step):
            slope = subtract(load(dc, at, _VECTOR), mean)
            store(db, at, fma(load(c, at, _VECTOR), slope, load(above, at, _VECTOR)))


@_inlined
def _couple(c, b, place, indptr, votes, prior, before, at, width):
    """c = softmax(b), b = prior + <u_hat, before>."""
    i0, i1, k0, k1, _, _, _, lanes = place
    _fill(b, 0, (k1 - k0) * lanes, b.dtype.type(0))
    if len(prior) > 0:
        _take(b, place, prior)
    if len(before) > 0:
        _add_products(b, place, votes, before, at, width)
    for i in range(i0, i1):
        _softmax(c, b, (get(indptr, i) - k0) * lanes, (get(indptr, i + 1) - k0) * lanes, lanes)


@_inlined
def _couple_equally(c, place, indptr):
    """c = 1 / number of out-edges."""
    i0, i1, k0, _, _, _, _, lanes = place
    for i in range(i0, i1):
        begin, end = get(indptr, i), get(indptr, i + 1)
        if begin < end:
            _fill(c, (begin - k0) * lanes, (end - k0) * lanes, c.dtype.type(1) / c.dtype.type(end - begin))


@_inlined
def _uncouple(db, above, c, dc, place, indptr, votes, ds, at, width):
    """db = above + c (dc - sum over the child's edges of c dc), dc = <u_hat, ds>."""
    i0, i1, k0, k1, _, _, _, lanes = place
    _fill(dc, 0, (k1 - k0) * lanes, dc.dtype.type(0))
    _add_products(dc, place, votes, ds, at, width)
    for i in range(i0, i1):
        begin, end = (get(indptr, i) - k0) * lanes, (get(indptr, i + 1) - k0) * lanes
        _through_softmax(db, above, c, dc, begin, end, lanes)


@_inlined
def _move(to, tile, place):
    _, _, k0, k1, _, _, _, lanes = place
    for at in range(0, (k1 - k0) * lanes, LANES):
        store(to, at, load(tile, at, _VECTOR))


@_compiled
def arrange(lo, hi, graph, u, weight, shape, single, height, width, rows):
    """rows (E, B, D), by child = votes u (E, B, D), in the graph's order."""
    indptr, eid, _, _ = graph
    images, size, last = 1 if len(single) else shape[0], len(width), len(eid) - 1
    for k in range(get(indptr, lo), get(indptr, hi)):
        row, to = get(eid, k) * images * size, k * images * size
        fetch(u, get(eid, min(k + _AHEAD, last)) * images * size)
        for x in range(images):
            store_past_cache(rows, to + x * size, load(u, row + x * size, width))


@_compiled
def iterate(lo, hi, graph, u, weight, shape, single, height, width, prior, before, c, s, uniform):
    """One iteration for children lo:hi: c = softmax(prior + <u_hat, before>), s += c u_hat.

    ``prior`` and ``before`` may be empty, for zero; ``c`` is kept unless empty; ``uniform``: all logits are equal.
    """
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = _sizes(shape, single)
    linear = len(height) > 0
    rows = np.empty(room * lanes * len(width), u.dtype) if linear else u
    votes, coupling, logit = (rows, linear, eid, dst), _tile(room, lanes, u), _tile(room, lanes, u)
    i = lo
    while i < hi:
        end = _block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            if linear:
                _make_votes(rows, place, indptr, wid, u, weight, height, width)
            if uniform:
                _couple_equally(coupling, place, indptr)
            else:
                _couple(coupling, logit, place, indptr, votes, prior, before, 0, width)
            if len(c) > 0:
                _keep(coupling, place, c)
            _add_votes(s, coupling, place, votes, width)
        i = end


@_compiled
def step_back(
    lo, hi, graph, u, weight, shape, single, height, width, prior, before, ds, iterations, c, db_above, db, dv
):
    """Gradient through one iteration r: db = db_above + softmax' <u_hat, ds^r>, dv += db u_hat.

    Given votes: ``c`` of the iteration and ``db_above`` (empty: zero) were kept. Linear votes: both are made anew from
    ``before`` and ``ds``, which hold ``iterations`` from r on (one after the other, each J, B, D). ``db`` is kept, and
    ``dv`` summed, unless empty.
    """
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = _sizes(shape, single)
    linear = len(height) > 0
    rows = np.empty(room * lanes * len(width), u.dtype) if linear else u
    votes, step = (rows, linear, eid, dst), len(ds) // iterations
    coupling, slope = _tile(room, lanes, u), _tile(room, lanes, u)
    change, above = _tile(room, lanes, u), _tile(room, lanes, u)
    i = lo
    while i < hi:
        end = _block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            _fill(above, 0, (place[3] - place[2]) * lanes, u.dtype.type(0))
            if linear:
                _make_votes(rows, place, indptr, wid, u, weight, height, width)
                for r in range(iterations - 1, -1, -1):
                    _couple(coupling, slope, place, indptr, votes, prior, before, r * step, width)
                    _uncouple(change, above, coupling, slope, place, indptr, votes, ds, r * step, width)
                    _move(above, change, place)
            else:
                if len(db_above) > 0:
                    _take(above, place, db_above)
                _take(coupling, place, c)
                _uncouple(change, above, coupling, slope, place, indptr, votes, ds, 0, width)
            if len(db) > 0:
                _keep(change, place, db)
            if len(dv) > 0:
                _add_votes(dv, change, place, votes, width)
        i = end


@_compiled
def gradient(lo, hi, graph, u, weight, shape, single, height, width, c, db, parents, iterations, uniform, du):
    """Given votes: du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1).

    ``parents`` (J, B, 2R - 1, D) has ds^0, ds^1, v^0, ds^2, v^1, ... of a parent side by side: one place in the memory
    instead of 2R - 1. db (E, B) lacks the first iteration, and so does c if ``uniform``.
    """
    indptr, eid, dst, _ = graph
    images, size, rows = 1 if len(single) else shape[0], len(width), 2 * iterations - 1
    last, numbers = len(eid) - 1, len(eid) * images
    skipped = numbers if uniform else 0
    for i in range(lo, hi):
        begin, end = get(indptr, i), get(indptr, i + 1)
        share = u.dtype.type(1) / u.dtype.type(end - begin)
        for k in range(begin, end):
            parent, to, number = get(dst, k) * images * rows * size, get(eid, k) * images * size, k * images
            if len(single):
                ahead = get(dst, min(k + _NEAR, last)) * rows * size
                for row in range(rows):
                    fetch(parents, ahead + row * size)
            for x in range(images):
                above, at = parent + x * rows * size, number + x
                if not uniform:
                    share = get(c, at)
                change = multiply(spread(share, width), load(parents, above, width))
                for r in range(1, iterations):
                    above += 2 * size
                    change = fma(get(c, r * numbers - skipped + at), load(parents, above - size, width), change)
                    change = fma(get(db, (r - 1) * numbers + at), load(parents, above, width), change)
                store_past_cache(du, to + x * size, change)


@_compiled
def linear_gradient(
    lo, hi, graph, u, weight, shape, single, height, width, prior, before, ds, v, iterations, uniform, du, dweight
):
    """Linear votes: du and dweight += what ``gradient`` says of u_hat = u W, with c and db made anew."""
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = _sizes(shape, single)
    step, size = len(ds) // iterations, len(width)
    rows, changes = np.empty(room * lanes * size, u.dtype), np.empty(room * lanes * size, u.dtype)
    votes, turned = (rows, True, eid, dst), np.empty(len(height) * size, u.dtype)
    coupling, slope = _tile(room, lanes, u), _tile(room, lanes, u)
    change, above = _tile(room, lanes, u), _tile(room, lanes, u)
    i = lo
    while i < hi:
        end = _block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            edges = place[3] - place[2]
            _make_votes(rows, place, indptr, wid, u, weight, height, width)
            _fill(above, 0, edges * lanes, u.dtype.type(0))
            for at in range(0, edges * lanes * size, size):
                store(changes, at, spread(u.dtype.type(0), width))
            for r in range(iterations - 1, -1, -1):
                if r == 0 and uniform:
                    _couple_equally(coupling, place, indptr)
                else:
                    _couple(coupling, slope, place, indptr, votes, prior, before, r * step, width)
                _spread_back(changes, coupling, place, dst, ds, r * step, width)
                if r > 0:
                    _uncouple(change, above, coupling, slope, place, indptr, votes, ds, r * step, width)
                    _move(above, change, place)
                    _spread_back(changes, change, place, dst, v, (r - 1) * step, width)
            _onto_children(du, dweight, changes, turned, place, indptr, wid, u, weight, height, width)
        i = end


@_inlined
def _spread_back(changes, tile, place, dst, parents, at, width):
    """changes (edges, lanes, D) += the tile's number times the parent's row."""
    _, _, k0, k1, x0, images, batch, lanes = place
    size = len(width)
    for k in range(k0, k1):
        parent, number = at + (get(dst, k) * batch + x0) * size, (k - k0) * lanes
        for x in range(images):
            to = (number + x) * size
            row = load(parents, parent + x * size, width)
            store(changes, to, fma(get(tile, number + x), row, load(changes, to, width)))


@_inlined
def _onto_children(du, dweight, changes, turned, place, indptr, wid, u, weight, height, width):
    """du += du_hat W^T and dW += u^T du_hat; ``turned`` is room for W^T."""
    i0, i1, k0, _, x0, images, batch, lanes = place
    rise, size = len(height), len(width)
    for i in range(i0, i1):
        child = (i * batch + x0) * rise
        for k in range(get(indptr, i), get(indptr, i + 1)):
            matrix, row = get(wid, k) * rise * size, (k - k0) * lanes * size
            for p in range(rise):
                for d in range(size):
                    put(turned, d * rise + p, get(weight, matrix + p * size + d))
            _multiply(du, child, changes, row, size, 1, turned, 0, images, size, height)
            _multiply(dweight, matrix, u, child, 1, rise, changes, row, rise, images, width)


@_compiled
def agree(lo, hi, graph, u, weight, shape, single, height, width, v, to):
    """to (E, B) = <u_hat, v>."""
    indptr, eid, dst, wid = graph
    batch, tile, room, lanes = _sizes(shape, single)
    linear = len(height) > 0
    rows = np.empty(room * lanes * len(width), u.dtype) if linear else u
    agreement = _tile(room, lanes, u)
    i = lo
    while i < hi:
        end = _block(i, hi, indptr, room)
        for x0 in range(0, batch, tile):
            place = (i, end, get(indptr, i), get(indptr, end), x0, min(tile, batch - x0), batch, lanes)
            if linear:
                _make_votes(rows, place, indptr, wid, u, weight, height, width)
            _fill(agreement, 0, (place[3] - place[2]) * lanes, u.dtype.type(0))
            _add_products(agreement, place, (rows, linear, eid, dst), v, 0, width)
            _keep(agreement, place, to)
        i = end
