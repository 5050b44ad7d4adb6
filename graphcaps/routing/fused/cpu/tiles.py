"""What the passes of `kernels` do to one tile: the edges of neighbouring children, for some of the images.

A tile holds a number per edge of the block and lane, with a lane per image, in vectors of 16. If there is only one
image (``single`` is not empty) there is one lane, and 16 edges make a vector.

``place`` says where a tile is: children i0 to i1, their edges k0 to k1, the first image and the number of images, the
images of the batch and the lanes. ``votes`` are the rows of votes, whether they are made for this tile (else they are
(E, B, D) in the graph's order), and the graph's eid and dst. All functions are compiled into the kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .simd import (
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
    subtract,
    total,
)

LANES = 16
VECTOR = (0,) * LANES
COUPLED, EQUAL, WHOLE = 0, 1, 2  # the first couplings: by the logits, an equal share of the child, or all of it each
AHEAD, NEAR = 32, 12  # edges from the one that is worked on to the one whose votes, or parent, are fetched

inlined = njit(forceinline=True, error_model="numpy")


@inlined
def block(i, hi, indptr, room):
    """The end of a block that starts at child i: as many children as ``room`` edges hold, at least one."""
    end = i + 1
    while end < hi and get(indptr, end + 1) - get(indptr, i) <= room:
        end += 1
    return end


@inlined
def sizes(shape, single):
    """Images B, images of a tile, edges of a block, lanes; all images are 1, as a constant, if ``single``."""
    batch, tile, room = shape
    if len(single):
        return 1, 1, room, 1
    return batch, tile, room, (tile + LANES - 1) // LANES * LANES


@inlined
def new_tile(room, lanes, like):
    """A number per edge and lane, and room to the end of the last vector."""
    return np.zeros(room * lanes + LANES, like.dtype)


@inlined
def fill(tile, begin, end, number):
    for at in range(begin, end, LANES):
        store(tile, at, spread(number, VECTOR))


@inlined
def take(tile, place, numbers):
    """Copy a tile out of numbers (E, B)."""
    _, _, k0, k1, x0, images, batch, lanes = place
    for k in range(k0, k1):
        for x in range(images):
            put(tile, (k - k0) * lanes + x, get(numbers, k * batch + x0 + x))


@inlined
def keep(tile, place, numbers):
    """Copy a tile into numbers (E, B)."""
    _, _, k0, k1, x0, images, batch, lanes = place
    for k in range(k0, k1):
        for x in range(images):
            put(numbers, k * batch + x0 + x, get(tile, (k - k0) * lanes + x))


@inlined
def add_matrix_product(y, iy, x, ix, across, down, w, iw, rows, terms, width):
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


@inlined
def make_votes(votes, place, indptr, wid, u, weight, height, width):
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
            add_matrix_product(votes, row, u, child, rise, 1, weight, matrix, images, rise, width)


@inlined
def add_products(tile, place, votes, parents, at, width):
    """tile += <u_hat, row of the parent>, with the parents' rows (J, B, D) in ``parents`` from ``at`` on."""
    _, _, k0, k1, x0, images, batch, lanes = place
    rows, linear, eid, dst = votes
    size, last = len(width), len(eid) - 1
    for k in range(k0, k1):
        row = ((k - k0) * lanes if linear else get(eid, k) * batch + x0) * size
        parent, to = at + (get(dst, k) * batch + x0) * size, (k - k0) * lanes
        if not linear:
            fetch(rows, (get(eid, min(k + AHEAD, last)) * batch + x0) * size)
        if lanes == 1:
            fetch(parents, at + get(dst, min(k + NEAR, last)) * size)
        for x in range(0, images - LANES + 1, LANES):
            store(
                tile, to + x, dots(rows, row + x * size, parents, parent + x * size, load(tile, to + x, VECTOR), width)
            )
        for x in range(images - images % LANES, images):
            number = dot(load(rows, row + x * size, width), load(parents, parent + x * size, width))
            put(tile, to + x, get(tile, to + x) + number)


@inlined
def add_votes(sums, tile, place, votes, width):
    """Each parent's row of sums (J, B, D) += the tile's number times u_hat."""
    _, _, k0, k1, x0, images, batch, lanes = place
    rows, linear, eid, dst = votes
    size, last = len(width), len(eid) - 1
    for k in range(k0, k1):
        row = ((k - k0) * lanes if linear else get(eid, k) * batch + x0) * size
        if not linear:
            fetch(rows, (get(eid, min(k + AHEAD, last)) * batch + x0) * size)
        if lanes == 1:
            fetch(sums, get(dst, min(k + NEAR, last)) * size)
        parent, at = (get(dst, k) * batch + x0) * size, (k - k0) * lanes
        for x in range(images):
            to = parent + x * size
            store(sums, to, fma(get(tile, at + x), load(rows, row + x * size, width), load(sums, to, width)))


# The last vector of a child in a tile may reach into the next child's numbers, and that of the last child beyond the
# block: a tile has room for it. So a tile is not changed in place: what is written too far into the other tile, the
# next child overwrites. (Vectors stored in part would do as well, but the processor waits for them when the next child
# is loaded.)


@inlined
def softmax(c, b, begin, end, lanes):
    """c = softmax of b over the edges of one child, which are [begin:end] of both."""
    least, zero, one = c.dtype.type(-np.inf), c.dtype.type(0), c.dtype.type(1)
    step = max(lanes, LANES)
    for lane in range(begin, min(begin + step, end), LANES):
        top, whole = spread(least, VECTOR), spread(zero, VECTOR)
        for at in range(lane, end, step):
            top = larger(first(end - at, load(b, at, VECTOR), top), top)
        if lanes == 1:
            top = spread(largest(top), VECTOR)
        for at in range(lane, end, step):
            share = exponential(subtract(load(b, at, VECTOR), top))
            whole = fma(one, first(end - at, share, spread(zero, VECTOR)), whole)
            store(c, at, share)
        whole = spread(one / total(whole), VECTOR) if lanes == 1 else divide(spread(one, VECTOR), whole)
        for at in range(lane, end, step):
            store(c, at, multiply(load(c, at, VECTOR), whole))


@inlined
def through_softmax(db, above, c, dc, begin, end, lanes):
    """db = above + c (dc - sum of c dc) over the edges of one child, which are [begin:end] of each."""
    zero, one = spread(c.dtype.type(0), VECTOR), c.dtype.type(1)
    step = max(lanes, LANES)
    for lane in range(begin, min(begin + step, end), LANES):
        mean = zero
        for at in range(lane, end, step):
            product = multiply(load(c, at, VECTOR), load(dc, at, VECTOR))
            mean = fma(one, first(end - at, product, zero), mean)
        if lanes == 1:
            mean = spread(total(mean), VECTOR)
        for at in range(lane, end, step):
            slope = subtract(load(dc, at, VECTOR), mean)
            store(db, at, fma(load(c, at, VECTOR), slope, load(above, at, VECTOR)))


@inlined
def couple(c, b, place, indptr, votes, prior, before, at, width):
    """c = softmax(b), b = prior + <u_hat, before>."""
    i0, i1, k0, k1, _, _, _, lanes = place
    fill(b, 0, (k1 - k0) * lanes, b.dtype.type(0))
    if len(prior) > 0:
        take(b, place, prior)
    if len(before) > 0:
        add_products(b, place, votes, before, at, width)
    for i in range(i0, i1):
        softmax(c, b, (get(indptr, i) - k0) * lanes, (get(indptr, i + 1) - k0) * lanes, lanes)


@inlined
def couple_equally(c, place, indptr, start):
    """c = 1 / number of out-edges, or 1 if ``start`` is WHOLE."""
    i0, i1, k0, _, _, _, _, lanes = place
    for i in range(i0, i1):
        begin, end = get(indptr, i), get(indptr, i + 1)
        if begin < end:
            shares = 1 if start == WHOLE else end - begin
            fill(c, (begin - k0) * lanes, (end - k0) * lanes, c.dtype.type(1) / c.dtype.type(shares))


@inlined
def uncouple(db, above, c, dc, place, indptr, votes, ds, at, width):
    """db = above + c (dc - sum over the child's edges of c dc), dc = <u_hat, ds>."""
    i0, i1, k0, k1, _, _, _, lanes = place
    fill(dc, 0, (k1 - k0) * lanes, dc.dtype.type(0))
    add_products(dc, place, votes, ds, at, width)
    for i in range(i0, i1):
        begin, end = (get(indptr, i) - k0) * lanes, (get(indptr, i + 1) - k0) * lanes
        through_softmax(db, above, c, dc, begin, end, lanes)


@inlined
def move(to, tile, place):
    _, _, k0, k1, _, _, _, lanes = place
    for at in range(0, (k1 - k0) * lanes, LANES):
        store(to, at, load(tile, at, VECTOR))


@inlined
def spread_back(changes, tile, place, dst, parents, at, width):
    """changes (edges, lanes, D) += the tile's number times the parent's row."""
    _, _, k0, k1, x0, images, batch, lanes = place
    size = len(width)
    for k in range(k0, k1):
        parent, number = at + (get(dst, k) * batch + x0) * size, (k - k0) * lanes
        for x in range(images):
            to = (number + x) * size
            row = load(parents, parent + x * size, width)
            store(changes, to, fma(get(tile, number + x), row, load(changes, to, width)))


@inlined
def onto_children(du, dweight, changes, turned, place, indptr, wid, u, weight, height, width):
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
            add_matrix_product(du, child, changes, row, size, 1, turned, 0, images, size, height)
            add_matrix_product(dweight, matrix, u, child, 1, rise, changes, row, rise, images, width)
