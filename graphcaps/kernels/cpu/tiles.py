"""The code that processes one block: the edges of neighbouring children, for some of the images.

A tile holds one number per edge and image of a block, in vectors of 16. An edge's lanes are its images, rounded up to
whole vectors. With a single image, an edge has one lane and a vector holds 16 edges. A tile is long enough for its last
vector. Here b, c and their gradients are tiles. All functions are inlined into the kernels of `kernels_by_child`.
"""

import numpy as np

from .arguments import Block, Sizes
from .parts import inlined
from .simd import fma, get, load, maximum, prefetch, reduce_max, reduce_sum, select_first, splat, store
from .simd_math import exp
from .simd_rows import dots

LANES = 16
VECTOR = (None,) * LANES
SOFTMAX, EQUAL, ONE = 0, 1, 2  # modes of coupling: softmax of the logits, 1 / number of the child's edges, or 1
EDGES_AHEAD = 32  # an edge's vote and parent are prefetched this many edges before it is worked on


@inlined
def constant(sizes):
    """Return the sizes. For a single image they become compile-time constants."""
    single = len(sizes.SINGLE) > 0
    batch, images, lanes = (1, 1, 1) if single else (sizes.batch, sizes.images, sizes.lanes)
    return Sizes(batch, images, sizes.edges, lanes, sizes.SINGLE)


@inlined
def block_end(child, end, indptr, most):
    """Return the end of the block that starts at this child: one child, or several with at most ``most`` edges."""
    stop = child + 1
    while stop < end and get(indptr, stop + 1) - get(indptr, child) <= most:
        stop += 1
    return stop


@inlined
def block_at(child, stop, image, indptr, sizes):
    """Return the block of children child:stop that starts at this image."""
    images = min(sizes.images, sizes.batch - image)
    begin, end = get(indptr, child), get(indptr, stop)
    return Block(child, stop, begin, end, image, images, sizes.batch, sizes.lanes)


@inlined
def fill(tile, begin, end, number):
    for at in range(begin, end, LANES):
        store(tile, at, splat(number, VECTOR))


@inlined
def clear(tile, block):
    fill(tile, 0, (block.edge_end - block.edge_begin) * block.lanes, tile.dtype.type(0))


@inlined
def load_tile(tile, block, numbers):
    """Copy the block's part of ``numbers`` (E, B) into the tile."""
    for k in range(block.edge_begin, block.edge_end):
        row, at = (k - block.edge_begin) * block.lanes, k * block.batch + block.image_begin
        for x in range(block.images):
            store(tile, row + x, get(numbers, at + x))


@inlined
def store_tile(tile, block, numbers):
    """Copy the tile into the block's part of ``numbers`` (E, B)."""
    for k in range(block.edge_begin, block.edge_end):
        row, at = (k - block.edge_begin) * block.lanes, k * block.batch + block.image_begin
        for x in range(block.images):
            store(numbers, at + x, get(tile, row + x))


@inlined
def copy_tile(to, tile, block):
    for at in range(0, (block.edge_end - block.edge_begin) * block.lanes, LANES):
        store(to, at, load(tile, at, VECTOR))


@inlined
def add_matrix_product(y, iy, x, ix, row_stride, term_stride, w, iw, rows, terms, width):
    """y (rows, D) += X (rows, terms) w (terms, D), four rows at a time: a row of w is loaded once for four products.

    X[row, term] is x[ix + row * row_stride + term * term_stride], so X may be transposed in memory.
    """
    size = len(width)
    for row in range(0, rows - 3, 4):
        to, at = iy + row * size, ix + row * row_stride
        y0, y1 = load(y, to, width), load(y, to + size, width)
        y2, y3 = load(y, to + 2 * size, width), load(y, to + 3 * size, width)
        for term in range(terms):
            line, x0 = load(w, iw + term * size, width), at + term * term_stride
            y0, y1 = fma(get(x, x0), line, y0), fma(get(x, x0 + row_stride), line, y1)
            y2, y3 = fma(get(x, x0 + 2 * row_stride), line, y2), fma(get(x, x0 + 3 * row_stride), line, y3)
        store(y, to, y0)
        store(y, to + size, y1)
        store(y, to + 2 * size, y2)
        store(y, to + 3 * size, y3)
    for row in range(rows - rows % 4, rows):
        sums = load(y, iy + row * size, width)
        for term in range(terms):
            sums = fma(get(x, ix + row * row_stride + term * term_stride), load(w, iw + term * size, width), sums)
        store(y, iy + row * size, sums)


@inlined
def make_votes(u_hat, block, edges, votes):
    """Fill u_hat (edges, lanes, D) with the linear votes of a block."""
    indptr, matrix, u, weight, D = edges.indptr, edges.matrix, votes.u, votes.weight, votes.D
    child_dim, parent_dim = len(votes.P), len(D)
    zero = splat(u_hat.dtype.type(0), D)
    for at in range(0, (block.edge_end - block.edge_begin) * block.lanes * parent_dim, parent_dim):
        store(u_hat, at, zero)
    for i in range(block.child_begin, block.child_end):
        child = (i * block.batch + block.image_begin) * child_dim
        for k in range(get(indptr, i), get(indptr, i + 1)):
            w, row = get(matrix, k) * child_dim * parent_dim, (k - block.edge_begin) * block.lanes * parent_dim
            add_matrix_product(u_hat, row, u, child, child_dim, 1, weight, w, block.images, child_dim, D)


@inlined
def places(k, block, edges, votes, parents, offset):
    """Return edge k's index in a tile, in u_hat and in ``parents`` (J, B, D), whose rows start at ``offset``.

    Also prefetch the votes and the parent of a later edge.
    """
    eid, dst, batch, size = edges.eid, edges.dst, block.batch, len(votes.D)
    at, ahead = (k - block.edge_begin) * block.lanes, min(k + EDGES_AHEAD, len(eid) - 1)
    row = at if len(votes.P) > 0 else get(eid, k) * batch + block.image_begin
    if len(votes.P) == 0:
        prefetch(votes.u, (get(eid, ahead) * batch + block.image_begin) * size)
    if block.lanes == 1:
        prefetch(parents, offset + get(dst, ahead) * size)
    return at, row * size, offset + (get(dst, k) * batch + block.image_begin) * size


@inlined
def add_agreement(tile, block, edges, votes, parents, offset):
    """tile += <u_hat, the parent's row>. The rows (J, B, D) start at ``offset`` in ``parents``."""
    u_hat, D, size = votes.u, votes.D, len(votes.D)
    for k in range(block.edge_begin, block.edge_end):
        at, row, parent = places(k, block, edges, votes, parents, offset)
        for x in range(0, block.images - LANES + 1, LANES):
            agreement = dots(u_hat, row + x * size, size, parents, parent + x * size, size, VECTOR, D)
            store(tile, at + x, agreement + load(tile, at + x, VECTOR))
        for x in range(block.images - block.images % LANES, block.images):
            number = reduce_sum(load(u_hat, row + x * size, D) * load(parents, parent + x * size, D))
            store(tile, at + x, get(tile, at + x) + number)


@inlined
def add_votes(sums, tile, block, edges, votes):
    """Add each edge's u_hat, times its number in the tile, to its parent's row of ``sums`` (J, B, D)."""
    D, size = votes.D, len(votes.D)
    for k in range(block.edge_begin, block.edge_end):
        at, row, parent = places(k, block, edges, votes, sums, 0)
        for x in range(block.images):
            to = parent + x * size
            store(sums, to, fma(get(tile, at + x), load(votes.u, row + x * size, D), load(sums, to, D)))


# A child's last vector may extend into the next child's numbers, or beyond the block's end, where a tile has room. So
# the functions below read one tile and write another, in which the next child overwrites the surplus numbers.


@inlined
def softmax(c, b, begin, end, lanes):
    """c = softmax of b over the edges of one child, at begin:end in both tiles."""
    least, zero, one = c.dtype.type(-np.inf), c.dtype.type(0), c.dtype.type(1)
    step = max(lanes, LANES)
    for lane in range(begin, min(begin + step, end), LANES):
        top, total = splat(least, VECTOR), splat(zero, VECTOR)
        for at in range(lane, end, step):
            top = maximum(select_first(end - at, load(b, at, VECTOR), top), top)
        if lanes == 1:
            top = splat(reduce_max(top), VECTOR)
        for at in range(lane, end, step):
            raised = exp(load(b, at, VECTOR) - top)
            total = select_first(end - at, raised, splat(zero, VECTOR)) + total
            store(c, at, raised)
        share = splat(one / reduce_sum(total), VECTOR) if lanes == 1 else one / total
        for at in range(lane, end, step):
            store(c, at, load(c, at, VECTOR) * share)


@inlined
def softmax_backward(db, above, c, dc, begin, end, lanes):
    """db = above + c (dc - sum of c dc) over the edges of one child, at begin:end in each tile."""
    zero = splat(c.dtype.type(0), VECTOR)
    step = max(lanes, LANES)
    for lane in range(begin, min(begin + step, end), LANES):
        mean = zero
        for at in range(lane, end, step):
            product = load(c, at, VECTOR) * load(dc, at, VECTOR)
            mean = select_first(end - at, product, zero) + mean
        if lanes == 1:
            mean = splat(reduce_sum(mean), VECTOR)
        for at in range(lane, end, step):
            slope = load(dc, at, VECTOR) - mean
            store(db, at, fma(load(c, at, VECTOR), slope, load(above, at, VECTOR)))


@inlined
def couple(c, b, block, edges, votes, prior, before, offset):
    """b = prior + <u_hat, before>, c = softmax(b). The rows of ``before`` start at ``offset``."""
    clear(b, block)
    if len(prior) > 0:
        load_tile(b, block, prior)
    if len(before) > 0:
        add_agreement(b, block, edges, votes, before, offset)
    for i in range(block.child_begin, block.child_end):
        begin, end = get(edges.indptr, i) - block.edge_begin, get(edges.indptr, i + 1) - block.edge_begin
        softmax(c, b, begin * block.lanes, end * block.lanes, block.lanes)


@inlined
def couple_equally(c, block, indptr, mode):
    """c = 1 / number of the child's edges, or 1 if ``mode`` is ONE."""
    for i in range(block.child_begin, block.child_end):
        begin, end = get(indptr, i) - block.edge_begin, get(indptr, i + 1) - block.edge_begin
        if begin < end:
            shares = 1 if mode == ONE else end - begin
            fill(c, begin * block.lanes, end * block.lanes, c.dtype.type(1) / c.dtype.type(shares))


@inlined
def couple_backward(db, above, c, dc, block, edges, votes, ds, offset):
    """db = above + c (dc - sum over the child's edges of c dc), dc = <u_hat, ds>. Rows of ds start at ``offset``."""
    clear(dc, block)
    add_agreement(dc, block, edges, votes, ds, offset)
    for i in range(block.child_begin, block.child_end):
        begin, end = get(edges.indptr, i) - block.edge_begin, get(edges.indptr, i + 1) - block.edge_begin
        softmax_backward(db, above, c, dc, begin * block.lanes, end * block.lanes, block.lanes)


@inlined
def add_parents(du_hat, tile, block, dst, parents, offset, width):
    """du_hat (edges, lanes, D) += each edge's number in the tile times its parent's row. Rows start at ``offset``."""
    size = len(width)
    for k in range(block.edge_begin, block.edge_end):
        parent = offset + (get(dst, k) * block.batch + block.image_begin) * size
        number = (k - block.edge_begin) * block.lanes
        for x in range(block.images):
            to = (number + x) * size
            row = load(parents, parent + x * size, width)
            store(du_hat, to, fma(get(tile, number + x), row, load(du_hat, to, width)))


@inlined
def make_votes_backward(du, dweight, du_hat, transposed, block, edges, votes):
    """du += du_hat W^T and dW += u^T du_hat. ``transposed`` is a buffer for W^T."""
    indptr, matrix, u, weight, P, D = edges.indptr, edges.matrix, votes.u, votes.weight, votes.P, votes.D
    child_dim, parent_dim, images = len(P), len(D), block.images
    for i in range(block.child_begin, block.child_end):
        child = (i * block.batch + block.image_begin) * child_dim
        for k in range(get(indptr, i), get(indptr, i + 1)):
            w, row = get(matrix, k) * child_dim * parent_dim, (k - block.edge_begin) * block.lanes * parent_dim
            for p in range(child_dim):
                for d in range(parent_dim):
                    store(transposed, d * child_dim + p, get(weight, w + p * parent_dim + d))
            add_matrix_product(du, child, du_hat, row, parent_dim, 1, transposed, 0, images, parent_dim, P)
            add_matrix_product(dweight, w, u, child, 1, child_dim, du_hat, row, child_dim, images, D)
