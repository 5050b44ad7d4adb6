"""Numba kernels for dynamic and spherical routing of votes that are stored image by image; `README.md` derives both.

On a complete graph, an image's votes (I, J, D) are contiguous and often fit into a core's own cache. So the kernels run
all iterations of an image before the next image, and read its votes from memory once. A block is LANES children: a
vector has one number per child, and a tile has one vector per parent. If LANES doesn't divide I, the last block
overlaps the one before. Children in both are added to the sums only once; their stored values are written twice.

u is (B, I, J, D) and s is (B, R, J, D). c is (B, R - 1, J, I), without the first iteration, whose couplings are 1 / J.
``ratio`` (B, J) is kappa / rho. For dynamic routing it is empty. ``votes_at``, ``sums_at`` and ``c_at`` are indices.
"""

import math

from ...algorithms.rule import MIN_NORM
from .kernel_cache import compiled
from .parts import inlined
from .simd import dots, fma, get, load, reduce_sum, select_first, splat, store, stream, zeros
from .tiles import LANES, VECTOR, softmax


@compiled
def images_forward(begin, end, u, D, children, parents, iterations, ratio, c, s):
    """Add the sums of all iterations of the images begin:end to s, which starts at zero. Fill c unless it is empty."""
    row, numbers = parents * len(D), parents * children
    tile, before, nothing = zeros(parents * LANES, u), zeros(row, u), splat(u.dtype.type(0), VECTOR)
    for image in range(begin, end):
        for at in range(0, row, len(D)):
            store(before, at, splat(u.dtype.type(0), D))
        for r in range(iterations):
            sums_at, c_at = (image * iterations + r) * row, (image * (iterations - 1) + r - 1) * numbers
            for block in range(0, children, LANES):
                child = min(block, children - LANES)
                votes_at = (image * children + child) * row
                if r == 0:
                    equal = splat(u.dtype.type(1) / u.dtype.type(parents), VECTOR)
                    for j in range(parents):
                        store(tile, j * LANES, equal)
                else:
                    couple(tile, u, votes_at, before, parents, D)
                for j in range(parents):
                    coupling = load(tile, j * LANES, VECTOR)
                    if r > 0 and len(c) > 0:
                        store(c, c_at + j * children + child, coupling)
                    store(tile, j * LANES, select_first(block - child, nothing, coupling))
                add_block(s, sums_at, tile, u, votes_at, parents, D)
            for j in range(parents):
                total, towards = load(s, sums_at + j * len(D), D), j * len(D)
                n = norm(total)
                if len(ratio) == 0:
                    factor = n / (u.dtype.type(1) + n * n)
                    store(before, towards, fma(factor, total, load(before, towards, D)))
                else:
                    factor = get(ratio, image * parents + j) * inverse(n, u.dtype.type(1))
                    store(before, towards, factor * total)


@compiled
def images_backward(begin, end, u, D, children, parents, iterations, ratio, per_square, c, s, ds, du, dratio):
    """Compute du and dratio from ds (B, J, D), the gradient of the last sums.

    dratio starts at zero, and is empty for dynamic routing. ``per_square`` (B, J), ratio / sum of |u_hat|^2, gives the
    part of du that comes from ratio. ``of_parents`` (J, 2 R - 1, D) holds each parent's ds^0, ds^1, x^0, ds^2, x^1, ...
    side by side. b^r is <u_hat, x^(r-1)>, plus b^(r-1) in dynamic routing.
    """
    size, one = len(D), u.dtype.type(1)
    row, rows, numbers = parents * size, 2 * iterations - 1, parents * children
    of_parents, dx = zeros(row * rows, u), zeros(row, u)
    tile, db, nothing = zeros(parents * LANES, u), zeros(iterations * numbers, u), splat(u.dtype.type(0), VECTOR)
    for image in range(begin, end):
        c_at = image * (iterations - 1) * numbers
        for j in range(parents):
            store(of_parents, (j * rows + max(0, rows - 2)) * size, load(ds, image * row + j * size, D))
            store(dx, j * size, splat(u.dtype.type(0), D))
        for r in range(iterations - 1, 0, -1):
            of_r = (r - 1) * numbers
            for block in range(0, children, LANES):
                child = min(block, children - LANES)
                votes_at = (image * children + child) * row
                mean = nothing
                for j in range(parents):
                    dc = dots(u, votes_at + j * size, row, of_parents, (j * rows + 2 * r - 1) * size, 0, VECTOR, D)
                    mean = fma(load(c, c_at + of_r + j * children + child, VECTOR), dc, mean)
                    store(tile, j * LANES, dc)
                for j in range(parents):
                    at = of_r + j * children + child
                    slope = load(tile, j * LANES, VECTOR) - mean
                    change = load(c, c_at + at, VECTOR) * slope
                    if len(ratio) == 0 and r < iterations - 1:
                        change = load(db, at + numbers, VECTOR) + change
                    store(db, at, change)
                    store(tile, j * LANES, select_first(block - child, nothing, change))
                add_block(dx, 0, tile, u, votes_at, parents, D)
            for j in range(parents):
                total = load(s, ((image * iterations + r - 1) * parents + j) * size, D)
                slope, n = load(dx, j * size, D), norm(total)
                along, per_n = reduce_sum(total * slope), inverse(n, one)
                if len(ratio) == 0:  # x = n / (1 + n^2) s
                    factor = n / (one + n * n)
                    bend = (one - n * n) / (one + n * n) / (one + n * n) * per_n * along
                else:  # x = ratio / n s
                    at = image * parents + j
                    factor = get(ratio, at) * per_n
                    bend = -factor * per_n * per_n * along
                    store(dratio, at, get(dratio, at) + along * per_n)
                first = j * rows * size
                store(of_parents, first + 2 * r * size, factor * total)
                below = fma(bend, total, factor * slope)
                store(of_parents, first + max(0, 2 * r - 3) * size, below)
                store(dx, j * size, splat(u.dtype.type(0), D))
        for block in range(0, children, LANES):
            child = min(block, children - LANES)
            for j in range(parents):
                first, to = j * rows * size, ((image * children + child) * parents + j) * size
                bend = one - one
                if len(ratio) > 0:
                    bend = -get(dratio, image * parents + j) * get(per_square, image * parents + j)
                for x in range(LANES):
                    change = one / u.dtype.type(parents) * load(of_parents, first, D)
                    if len(ratio) > 0:
                        change = fma(bend, load(u, to + x * row, D), change)
                    for r in range(1, iterations):
                        at, back = (r - 1) * numbers + j * children + child + x, first + (2 * r - 1) * size
                        change = fma(get(c, c_at + at), load(of_parents, back, D), change)
                        change = fma(get(db, at), load(of_parents, back + size, D), change)
                    stream(du, to + x * row, change)


@inlined
def couple(tile, u, votes_at, before, parents, width):
    """tile = softmax over parents of <u_hat, before>, for the block whose votes start at ``votes_at``."""
    size = len(width)
    for j in range(parents):
        store(tile, j * LANES, dots(u, votes_at + j * size, parents * size, before, j * size, 0, VECTOR, width))
    softmax(tile, tile, 0, parents * LANES, LANES)


@inlined
def add_block(sums, at, tile, u, votes_at, parents, width):
    """sums += the tile's numbers times the block's votes. The sums (J, D) start at ``at``."""
    size, step = len(width), parents * len(width)
    for j in range(parents):
        even, odd, vote = load(sums, at + j * size, width), splat(u.dtype.type(0), width), votes_at + j * size
        for x in range(j * LANES, (j + 1) * LANES, 2):
            even = fma(get(tile, x), load(u, vote, width), even)
            odd = fma(get(tile, x + 1), load(u, vote + step, width), odd)
            vote += 2 * step
        store(sums, at + j * size, even + odd)


@inlined
def norm(vector):
    return math.sqrt(reduce_sum(vector * vector))


@inlined
def inverse(n, one):
    """1 / n, or 0 if a sum of length n is too short to have a direction."""
    return one - one if n <= MIN_NORM else one / n
