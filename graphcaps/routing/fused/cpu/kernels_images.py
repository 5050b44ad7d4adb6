"""Dynamic and spherical routing of given votes that lie image by image, for Numba; `fused/README.md` derives both.

On a complete graph an image's votes (I, J, D) are one piece of memory, often small enough for a processor's own cache.
So all iterations of an image are made one after the other, and its votes are read from memory once. A block is LANES
children: a vector has a number of each, and J such vectors are a tile. The last block reaches back to its full width.
There the children that the block before had have couplings of 0, and what is kept of them is written a second time.

u is (B, I, J, D); c (B, R - 1, J, I), without the first iteration, whose couplings are 1 / J; s (B, R, J, D).
``scale`` (B, J) is kappa / rho, or empty for dynamic routing. One image follows the other.
"""

from __future__ import annotations

import math

from .kernel_cache import compiled
from .parts import inlined
from .simd import (
    divide,
    dot,
    dots_with,
    exp,
    fma,
    get,
    load,
    maximum,
    multiply,
    put,
    select_first,
    splat,
    store,
    store_nontemporal,
    subtract,
    zeros,
)
from .tiles import LANES, VECTOR

SHORTEST = 1e-12  # a sum that is no longer has no direction


@compiled
def route_images(begin, end, u, D, children, parents, iterations, scale, c, s):
    """The sums s of all iterations, and the couplings c unless empty; of the images begin:end."""
    size, zero, one = len(D), u.dtype.type(0), u.dtype.type(1)
    row, numbers = parents * size, parents * children
    b, before = zeros(parents * LANES, u), zeros(row, u)
    for image in range(begin, end):
        votes, sums, kept = image * children * row, image * iterations * row, image * (iterations - 1) * numbers
        for at in range(0, row, size):
            store(before, at, splat(zero, D))
        for r in range(iterations):
            for block in range(0, children, LANES):
                child = min(block, children - LANES)
                if r > 0:
                    top = splat(zero, VECTOR)
                    for j in range(parents):
                        logit = dots_with(u, votes + child * row + j * size, row, load(before, j * size, D), VECTOR)
                        top = maximum(logit, top) if j > 0 else logit
                        store(b, j * LANES, logit)
                    total = splat(zero, VECTOR)
                    for j in range(parents):
                        raised = exp(subtract(load(b, j * LANES, VECTOR), top))
                        total = fma(one, raised, total)
                        store(b, j * LANES, raised)
                    share = divide(splat(one, VECTOR), total)
                    for j in range(parents):
                        coupling = multiply(load(b, j * LANES, VECTOR), share)
                        if len(c) > 0:
                            store(c, kept + ((r - 1) * parents + j) * children + child, coupling)
                        store(b, j * LANES, select_first(block - child, splat(zero, VECTOR), coupling))
                else:
                    equal = splat(one / u.dtype.type(parents), VECTOR)
                    for j in range(parents):
                        store(b, j * LANES, select_first(block - child, splat(zero, VECTOR), equal))
                add_block(s, sums + r * row, b, u, votes + child * row, parents, D)
            for j in range(parents):
                total = load(s, sums + r * row + j * size, D)
                n = length(total)
                if len(scale) > 0:
                    towards = zero if n <= SHORTEST else get(scale, image * parents + j) / n
                    store(before, j * size, multiply(splat(towards, D), total))
                else:
                    store(before, j * size, fma(n / (one + n * n), total, load(before, j * size, D)))


@inlined
def length(vector):
    return math.sqrt(dot(vector, vector))


@inlined
def add_block(sums, at, tile, u, votes, parents, width):
    """Each parent's row of sums (J, D) from ``at`` on += the tile's numbers times the votes of a block."""
    size, one, zero = len(width), u.dtype.type(1), splat(u.dtype.type(0), width)
    for j in range(parents):
        even, odd = load(sums, at + j * size, width), zero
        vote, step = votes + j * size, parents * size
        for x in range(j * LANES, (j + 1) * LANES, 2):
            even = fma(get(tile, x), load(u, vote, width), even)
            odd = fma(get(tile, x + 1), load(u, vote + step, width), odd)
            vote += 2 * step
        store(sums, at + j * size, fma(one, even, odd))


@compiled
def images_backward(begin, end, u, D, children, parents, iterations, scale, c, s, ds, du, dscale):
    """The gradients du and dscale (empty for dynamic routing) from that of the last sums, ds (B, J, D)."""
    size, zero, one = len(D), u.dtype.type(0), u.dtype.type(1)
    row, rows, numbers = parents * size, 2 * iterations - 1, parents * children
    # of a parent ds^0, ds^1, x^0, ds^2, x^1, ... side by side, where <u_hat, x^(r-1)> is a part of b^r
    of_parents, dx = zeros(row * rows, u), zeros(row, u)
    tile, db = zeros(parents * LANES, u), zeros(iterations * numbers, u)
    for image in range(begin, end):
        votes, sums, kept = image * children * row, image * iterations * row, image * (iterations - 1) * numbers
        for j in range(parents):
            store(of_parents, (j * rows + max(0, rows - 2)) * size, load(ds, image * row + j * size, D))
            store(dx, j * size, splat(zero, D))
        for r in range(iterations - 1, 0, -1):
            for block in range(0, children, LANES):
                child = min(block, children - LANES)
                mean = splat(zero, VECTOR)
                for j in range(parents):
                    slope = load(of_parents, (j * rows + 2 * r - 1) * size, D)
                    dc = dots_with(u, votes + child * row + j * size, row, slope, VECTOR)
                    mean = fma(load(c, kept + ((r - 1) * parents + j) * children + child, VECTOR), dc, mean)
                    store(tile, j * LANES, dc)
                for j in range(parents):
                    at = j * children + child
                    slope = subtract(load(tile, j * LANES, VECTOR), mean)
                    change = multiply(load(c, kept + (r - 1) * numbers + at, VECTOR), slope)
                    if len(scale) == 0 and r < iterations - 1:
                        change = fma(one, load(db, r * numbers + at, VECTOR), change)
                    store(db, (r - 1) * numbers + at, change)
                    store(tile, j * LANES, select_first(block - child, splat(zero, VECTOR), change))
                add_block(dx, 0, tile, u, votes + child * row, parents, D)
            for j in range(parents):
                total, slope = load(s, sums + (r - 1) * row + j * size, D), load(dx, j * size, D)
                n = length(total)
                along, nn = dot(total, slope), n * n
                if len(scale) > 0:
                    number = get(scale, image * parents + j)
                    towards = zero if n <= SHORTEST else one / n
                    put(dscale, image * parents + j, get(dscale, image * parents + j) + along * towards)
                    factor = number * towards
                    bend = -factor * towards * towards * along
                    x = multiply(splat(factor, D), total)
                else:
                    factor = n / (one + nn)
                    bend = zero if n == zero else (one - nn) / (one + nn) / (one + nn) / n * along
                    x = multiply(splat(factor, D), total)
                below = fma(bend, total, multiply(splat(factor, D), slope))
                store(of_parents, (j * rows + 2 * r) * size, x)
                store(of_parents, (j * rows + max(0, 2 * r - 3)) * size, below)
                store(dx, j * size, splat(zero, D))
        equal = one / u.dtype.type(parents)
        for block in range(0, children, LANES):
            child = min(block, children - LANES)
            for j in range(parents):
                at, above = j * children + child, j * rows * size
                for x in range(LANES):
                    change = multiply(splat(equal, D), load(of_parents, above, D))
                    for r in range(1, iterations):
                        number, back = (r - 1) * numbers + at + x, above + (2 * r - 1) * size
                        change = fma(get(c, kept + number), load(of_parents, back, D), change)
                        change = fma(get(db, number), load(of_parents, back + size, D), change)
                    store_nontemporal(du, votes + ((child + x) * parents + j) * size, change)
