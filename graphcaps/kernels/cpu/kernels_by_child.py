"""Numba kernels for the passes of routing over the votes, block by block. `README.md` derives them.

A block is the edges of some neighbouring children, for some of the images. A pass does all work on a block while the
block's votes are in cache. A block's linear votes are made in a buffer. `tiles` contains the code for one block.

prior, c and db are (E, B), sorted by child; before, s, ds and v are (J, B, D). P is () for given votes. It is an
argument of its own, so that Numba leaves out the code for the other kind of votes.
"""

from .arguments import VoteArrays
from .kernel_cache import compiled
from .simd import fma, get, load, prefetch, splat, store, stream, zeros
from .tiles import (
    EDGES_AHEAD,
    EQUAL,
    LANES,
    SOFTMAX,
    add_parents,
    add_votes,
    block_at,
    block_end,
    clear,
    constant,
    copy_tile,
    couple,
    couple_backward,
    couple_equally,
    load_tile,
    make_votes,
    make_votes_backward,
    store_tile,
)


@compiled
def gather_votes(begin, end, edges, votes, sizes, gathered):
    """Copy given votes (E, B, D) from the graph's order into ``gathered`` (E, B, D), sorted by child."""
    eid, u, D = edges.eid, votes.u, votes.D
    images, size, last = 1 if len(sizes.SINGLE) else sizes.batch, len(D), len(eid) - 1
    for k in range(get(edges.indptr, begin), get(edges.indptr, end)):
        row, to = get(eid, k) * images * size, k * images * size
        prefetch(u, get(eid, min(k + EDGES_AHEAD, last)) * images * size)
        for x in range(images):
            stream(gathered, to + x * size, load(u, row + x * size, D))


@compiled
def iterate(begin, end, edges, votes, P, sizes, prior, before, mode, c, s):
    """One iteration: c = softmax(prior + <u_hat, before>), s += c u_hat.

    An empty ``prior`` or ``before`` means zeros. c is filled unless it is empty. ``mode`` is SOFTMAX, or EQUAL or ONE
    for couplings without logits.
    """
    indptr, sizes = edges.indptr, constant(sizes)
    u_hat = zeros(sizes.edges * sizes.lanes * len(votes.D), votes.u) if len(P) > 0 else votes.u
    of_block = VoteArrays(u_hat, votes.weight, votes.P, votes.D)
    tile = sizes.edges * sizes.lanes + LANES
    coupling, logit = zeros(tile, votes.u), zeros(tile, votes.u)
    child = begin
    while child < end:
        stop = block_end(child, end, indptr, sizes.edges)
        for image in range(0, sizes.batch, sizes.images):
            block = block_at(child, stop, image, indptr, sizes)
            if len(P) > 0:
                make_votes(u_hat, block, edges, votes)
            if mode != SOFTMAX:
                couple_equally(coupling, block, indptr, mode)
            else:
                couple(coupling, logit, block, edges, of_block, prior, before, 0)
            if len(c) > 0:
                store_tile(coupling, block, c)
            add_votes(s, coupling, block, edges, of_block)
        child = stop


@compiled
def iterate_backward(
    begin, end, edges, votes, P, sizes, prior, before, c, ds, db_above, v, iterations, mode, adds, db, dv, du, dweight
):
    """The gradient through one iteration: db = db_above + softmax' <u_hat, ds>, dv += db u_hat.

    An empty output isn't computed, and an empty ``db_above``, the next iteration's db, means zeros. Given votes need c.
    Linear votes recompute both: ``before`` and ``ds`` hold the rows of ``iterations`` iterations, one after the other,
    and ``adds`` says whether the next iteration's logits contain an iteration's. If du isn't empty, the gradient
    through all of these is added to du and dweight. `votes_gradient` has the formula for du_hat.
    """
    indptr, sizes, D, like = edges.indptr, constant(sizes), votes.D, votes.u
    step, size, last = len(ds) // iterations, len(D), len(du) > 0
    numbers = sizes.edges * sizes.lanes
    u_hat = zeros(numbers * size, like) if len(P) > 0 else like
    du_hat = zeros(numbers * size, like) if len(P) > 0 else like
    of_block, transposed = VoteArrays(u_hat, votes.weight, votes.P, D), zeros(len(P) * size, like)
    coupling, slope = zeros(numbers + LANES, like), zeros(numbers + LANES, like)
    change, above = zeros(numbers + LANES, like), zeros(numbers + LANES, like)
    child = begin
    while child < end:
        stop = block_end(child, end, indptr, sizes.edges)
        for image in range(0, sizes.batch, sizes.images):
            block = block_at(child, stop, image, indptr, sizes)
            clear(above, block)
            if len(P) > 0:
                make_votes(u_hat, block, edges, votes)
                for at in range(0, (block.edge_end - block.edge_begin) * sizes.lanes * size if last else 0, size):
                    store(du_hat, at, splat(like.dtype.type(0), D))
            elif len(db_above) > 0:
                load_tile(above, block, db_above)
            for r in range(iterations - 1, -1, -1):
                if len(P) == 0:
                    load_tile(coupling, block, c)
                elif last and r == 0 and mode != SOFTMAX:
                    couple_equally(coupling, block, indptr, mode)
                else:
                    couple(coupling, slope, block, edges, of_block, prior, before, r * step)
                if len(P) > 0 and last:
                    add_parents(du_hat, coupling, block, edges.dst, ds, r * step, D)
                if r > 0 or not last:
                    couple_backward(change, above, coupling, slope, block, edges, of_block, ds, r * step)
                    if len(P) > 0 and adds:
                        copy_tile(above, change, block)
                if len(P) > 0 and last and r > 0:
                    add_parents(du_hat, change, block, edges.dst, v, (r - 1) * step, D)
            if len(P) > 0 and last:
                make_votes_backward(du, dweight, du_hat, transposed, block, edges, votes)
            if len(db) > 0:
                store_tile(change, block, db)
            if len(dv) > 0:
                add_votes(dv, change, block, edges, of_block)
        child = stop


@compiled
def votes_gradient(begin, end, edges, votes, sizes, c, db, parents, iterations, mode, bend, du):
    """For given votes, du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1) + bend u_hat.

    ``parents`` (J, B, 2R - 1, D) holds each parent's ds^0, ds^1, v^0, ds^2, v^1, ... side by side, so that an edge
    reads one place in memory instead of 2R - 1. db doesn't contain the first iteration, and neither does c if ``mode``
    is EQUAL. An empty ``bend`` (J, B) means zeros.
    """
    indptr, eid, dst, D = edges.indptr, edges.eid, edges.dst, votes.D
    single = len(sizes.SINGLE) > 0
    images, size, rows = 1 if single else sizes.batch, len(D), 2 * iterations - 1
    last, numbers = len(eid) - 1, len(eid) * images
    skipped = numbers if mode == EQUAL else 0
    for i in range(begin, end):
        first_edge, end_edge = get(indptr, i), get(indptr, i + 1)
        share = votes.u.dtype.type(1) / votes.u.dtype.type(end_edge - first_edge)
        for k in range(first_edge, end_edge):
            parent, to, number = get(dst, k) * images * rows * size, get(eid, k) * images * size, k * images
            if single:
                ahead = get(dst, min(k + EDGES_AHEAD, last)) * rows * size
                for row in range(rows):
                    prefetch(parents, ahead + row * size)
            for x in range(images):
                above, at = parent + x * rows * size, number + x
                if mode != EQUAL:
                    share = get(c, at)
                change = share * load(parents, above, D)
                for r in range(1, iterations):
                    above += 2 * size
                    change = fma(get(c, r * numbers - skipped + at), load(parents, above - size, D), change)
                    change = fma(get(db, (r - 1) * numbers + at), load(parents, above, D), change)
                if len(bend) > 0:
                    change = fma(get(bend, get(dst, k) * images + x), load(votes.u, to + x * size, D), change)
                stream(du, to + x * size, change)
