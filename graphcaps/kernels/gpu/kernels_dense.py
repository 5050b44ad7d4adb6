"""Triton kernels for routing on complete graphs. `dense.py` launches them; `../cpu/README.md` derives the formulas.

The logits of iteration r are prior + <u_hat, w>, where the query w depends only on the sums of earlier iterations. So a
pass needs only w. For a tile of M images and IT children, it computes the logits of one parent after another, twice:
first for lse, the logarithm of the softmax's denominator, then for the sum of c u_hat. No logits are kept.

Linear votes are never built. With n = (p, i), the matrices of a tile for one parent are x (P * IT, D). The agreement is
the sum over p of (w x^T) u, and the sum of c u_hat is (c u) x. Given votes are read as x (M, IT, D). In n, the children
come last, so that a thread has all p of a child in its registers, and adds them up alone.

Nothing is added atomically: each program stores its own sums, and `finish` and `finish_back` add them in a fixed order.
S is `dense.Sizes`. ``stride0`` and ``stride1`` are the strides of matrices (by child and parent) or of given votes (by
edge and image), and ``edge0`` and ``edge1`` those of the prior (by edge and image).

Triton compiles a kernel again for numbers that are 1 and for multiples of 16, except those in ``do_not_specialize``: so
a smaller last batch needs no new kernel.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .kernels_rule import next_query, next_query_backward

ROWS, TILES = tl.constexpr(8), tl.constexpr(32)  # `finish` adds up this many rows and tiles at a time


class Tile(NamedTuple):
    """The children of a tile, and its offsets and masks. Those of x and of rows are for parent 0."""

    u: tl.tensor  # (M, P * IT), or 0 for given votes
    at_u: tl.tensor
    in_u: tl.tensor
    at_x: tl.tensor  # (P * IT, D), or (M, IT, D) for given votes
    in_x: tl.tensor
    rows: tl.tensor  # (M, D): the place of a parent's vectors, which are (J, B, D)
    in_rows: tl.tensor
    child: tl.tensor  # (1, IT)
    image: tl.tensor  # (M, 1)
    inside: tl.tensor  # (M, IT)


@triton.jit
def tile_of(u, children, parents, images, stride0, stride1, S: tl.constexpr):
    b, first = tl.program_id(1).to(tl.int64) * S.M + tl.arange(0, S.M), tl.program_id(0).to(tl.int64) * S.IT
    child, d, n = first + tl.arange(0, S.IT), tl.arange(0, S.D), tl.arange(0, S.IT * S.P)
    of_n, p = first + n % S.IT, n // S.IT
    real = (of_n < children) & (p < S.CHILD_DIM)
    at_u, in_u = (of_n * images + b[:, None]) * S.CHILD_DIM + p, (b < images)[:, None] & real
    inside, in_row = (b < images)[:, None] & (child < children), d < S.DIM
    if S.LINEAR:
        children_of_tile = tl.load(u + at_u, mask=in_u, other=0.0).to(tl.float32)
        at_x = (of_n * stride0 + p * S.DIM)[:, None] + d
        in_x = real[:, None] & in_row
    else:
        children_of_tile = 0.0
        at_x = (child * parents * stride0 + (b * stride1)[:, None])[:, :, None] + d
        in_x = inside[:, :, None] & in_row
    rows, in_rows = b[:, None] * S.DIM + d, (b < images)[:, None] & in_row
    return Tile(children_of_tile, at_u, in_u, at_x, in_x, rows, in_rows, child[None, :], b[:, None], inside)


@triton.jit
def prior_of(prior, tile, parents, j, edge0, edge1, S: tl.constexpr):
    """Return the prior's logits (M, IT) of the edges to parent j, or zeros without PRIOR."""
    at = (tile.child * parents + j) * edge0 + tile.image * edge1
    return tl.load(prior + at, mask=tile.inside & S.PRIOR, other=0.0)


@triton.jit
def agreement(x, tile, vectors, at, S: tl.constexpr):
    """Load row ``at`` (M, D) of ``vectors``. Return it, <u_hat, row> (M, IT), and row x^T, which `add` uses."""
    row = tl.load(vectors + tile.rows + at * S.DIM, mask=tile.in_rows, other=0.0)
    if S.LINEAR:
        along = tl.dot(row.to(x.dtype), tl.trans(x), input_precision=S.DOT)
        return row, tl.sum(tl.reshape(along * tile.u, S.M, S.P, S.IT), 1), along
    else:
        return row, tl.sum(x.to(tl.float32) * row[:, None, :], 2), row


@triton.jit
def spread(c, S: tl.constexpr):
    """(M, IT) -> (M, P * IT): each child's number for all of its components."""
    return tl.reshape(tl.broadcast_to(c[:, None, :], S.M, S.P, S.IT), S.M, S.P * S.IT)


@triton.jit
def weighted(x, tile, c, S: tl.constexpr):
    """Return the sum over the tile's children of c u_hat (M, D)."""
    if S.LINEAR:
        return tl.dot((spread(c, S) * tile.u).to(x.dtype), x, input_precision=S.DOT)
    else:
        return tl.sum(c[:, :, None] * x.to(tl.float32), 1)


@triton.jit
def add(du, total, x, tile, c, row, along, S: tl.constexpr):
    """Add the term c row of du_hat: to du and dW (``total``); or for given votes to du_hat (``total``)."""
    if S.LINEAR:
        c = spread(c, S)
        total += tl.dot(tl.trans((c * tile.u).to(x.dtype)), row.to(x.dtype), input_precision=S.DOT)
        return du + c * along, total
    else:
        return du, total + c[:, :, None] * row[:, None, :]


@triton.jit(do_not_specialize=["images"])
def iterate(
    u, votes, prior, children, parents, images, stride0, stride1, edge0, edge1, S: tl.constexpr,
    lse, query=None, parts=None, c=None, ds=None, mean=None,
):  # fmt: skip
    """One iteration: store lse (I, B) and the tile's share of s in parts (tiles, J, B, D); unless it is None, c (E, B).

    With ds (J, B, D), read lse; store mean (I, B), which is the sum of c dc over a child's out-edges, and unless parts
    is None the tile's share of dw, the sum of db u_hat. The query (J, B, D) is None in the first iteration.
    """
    M: tl.constexpr = S.M  # Triton 3.6 refuses fields of S within tuples
    IT: tl.constexpr = S.IT
    tile = tile_of(u, children, parents, images, stride0, stride1, S)
    step, at_child = stride1 if S.LINEAR else stride0, tile.child * images + tile.image
    total = tl.zeros((M, IT), tl.float32)
    top = total - 3e38 if ds is None else tl.load(lse + at_child, mask=tile.inside, other=0.0)
    even = 1 / parents + 0 * tl.load(prior)  # NaN if the prior is infinite or NaN
    for sweep in tl.static_range(1 if query is None and not S.PRIOR else 0, 1 if parts is None else 2):
        for number in range(parents):
            j = tl.cast(number, tl.int64)  # offsets of large tensors don't fit in 32 bits
            x = tl.load(votes + tile.at_x + j * step, mask=tile.in_x, other=0.0)
            logit = prior_of(prior, tile, parents, j, edge0, edge1, S)
            if query is not None:
                _, along_query, _ = agreement(x, tile, query, j * images, S)
                logit += along_query
            if ds is not None:
                _, dc, _ = agreement(x, tile, ds, j * images, S)
            if sweep == 0:
                if ds is not None:
                    total += tl.exp(logit - top) * dc
                else:
                    new = tl.maximum(top, logit)
                    total = total * tl.exp(top - new) + tl.exp(logit - new)
                    top = new
            else:
                factor = logit + even if query is None and not S.PRIOR else tl.exp(logit - top)
                if ds is not None:
                    factor *= dc - total
                at = (tl.program_id(0).to(tl.int64) * parents + j) * images * S.DIM
                tl.store(parts + at + tile.rows, weighted(x, tile, factor, S), mask=tile.in_rows)
                if c is not None:
                    tl.store(c + (tile.child * parents + j) * images + tile.image, factor, mask=tile.inside)
        if sweep == 0:
            if ds is not None:
                tl.store(mean + at_child, total, mask=tile.inside)
            else:
                top += tl.log(total)
                tl.store(lse + at_child, top, mask=tile.inside)


@triton.jit(do_not_specialize=["images"])
def gradient(
    u, votes, prior, children, parents, images, stride0, stride1, edge0, edge1, S: tl.constexpr,
    lse, queries, ds, mean, du, dweight, R: tl.constexpr, bend=None, dprior=None,
):  # fmt: skip
    """The gradient through all R iterations: of children and matrices, or of given votes; and unless None of the prior.

    du_hat is the sum over r of c ds + db w, plus bend u_hat unless ``bend`` is None. ``dweight`` is (image tiles, I, J,
    P, D).
    """
    tile = tile_of(u, children, parents, images, stride0, stride1, S)
    step, of_u = stride1 if S.LINEAR else stride0, tl.zeros_like(tile.u) if S.LINEAR else 0.0
    for number in range(parents):
        j = tl.cast(number, tl.int64)
        x = tl.load(votes + tile.at_x + j * step, mask=tile.in_x, other=0.0)
        prior_logit, db = prior_of(prior, tile, parents, j, edge0, edge1, S), 0.0
        total = tl.zeros_like(x).to(tl.float32)  # it becomes dW, or du_hat for given votes
        for r in tl.static_range(R):
            row, dc, along = agreement(x, tile, ds, (r * parents + j) * images, S)
            logit, c = prior_logit, prior_logit + 1 / parents
            if r > 0:
                w, along_query, along_w = agreement(x, tile, queries, ((r - 1) * parents + j) * images, S)
                logit += along_query
            # Without a prior, iteration 0 has no lse.
            kept = ((r if S.PRIOR else r - 1) * children + tile.child) * images + tile.image
            if r > 0 or S.PRIOR:
                c = tl.exp(logit - tl.load(lse + kept, mask=tile.inside, other=0.0))
            of_u, total = add(of_u, total, x, tile, c, row, along, S)
            if r > 0 or dprior is not None:
                of_r = c * (dc - tl.load(mean + kept, mask=tile.inside, other=0.0))
                db += of_r
            if r > 0:
                of_u, total = add(of_u, total, x, tile, of_r, w, along_w, S)
        if S.LINEAR:
            n = tl.arange(0, S.IT * S.P)
            of_n = tl.program_id(0).to(tl.int64) * S.IT + n % S.IT
            matrix = ((tl.program_id(1).to(tl.int64) * children + of_n) * parents + j) * S.CHILD_DIM + n // S.IT
            tl.store(dweight + matrix[:, None] * S.DIM + tl.arange(0, S.D), total, mask=tile.in_x)
        else:
            if bend is not None:
                factor = tl.load(bend + j * images + tile.image, mask=tile.image < images, other=0.0)
                total += factor[:, :, None] * x.to(tl.float32)
            tl.store(du + tile.at_x + j * step, total, mask=tile.in_x)
        if dprior is not None:
            tl.store(dprior + (tile.child * parents + j) * images + tile.image, db, mask=tile.inside)
    if S.LINEAR:
        tl.store(du + tile.at_u, of_u, mask=tile.in_u)


@triton.jit
def rows_of(rows, dim, D: tl.constexpr):
    """Return a program's rows, a mask of those that exist, and offsets and a mask of their numbers (ROWS, D)."""
    row, d = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    return row, row < rows, row[:, None] * dim + d, (row < rows)[:, None] & (d < dim)


@triton.jit
def sum_of_parts(parts, tiles, rows, at, mask, dim, D: tl.constexpr):
    """Return the sum over tiles of parts (tiles, rows, D) at the offsets ``at`` (ROWS, D) of one tile."""
    total = tl.zeros((TILES, ROWS, D), tl.float32)
    for begin in range(0, tiles, TILES):
        tile = (begin + tl.arange(0, TILES))[:, None, None]
        total += tl.load(parts + tile.to(tl.int64) * rows * dim + at[None], mask=(tile < tiles) & mask[None], other=0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["rows"])
def finish(tiles, rows, dim, D: tl.constexpr, parts, s, out, before=None, ratio=None):
    """Add up s (rows, D). Store in ``out`` squash(s), plus ``before`` unless it is None, or with a ratio (rows,) the
    query ratio s / |s|."""
    row, inside, at, mask = rows_of(rows, dim, D)
    x, lengths = sum_of_parts(parts, tiles, rows, at, mask, dim, D), 0.0
    y = 0.0 if before is None else tl.load(before + at, mask=mask, other=0.0)
    if ratio is not None:
        lengths = tl.load(ratio + row, mask=inside, other=0.0)
    tl.store(s + at, x, mask=mask)
    tl.store(out + at, next_query(x, y, lengths, ratio is None), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def finish_back(tiles, rows, dim, D: tl.constexpr, s, ds, parts=None, dw=None, ratio=None, dratio=None, grad=None):
    """Store ds (rows, D), the gradient of an iteration's s, from the gradient of what `finish` made of s.

    That is the sum of the parts and of dw, which is stored in dw if there are parts. ``dratio`` is added to. ``grad``
    is added to ds. Each of these may be None.
    """
    row, inside, at, mask = rows_of(rows, dim, D)
    x, dy, lengths = tl.load(s + at, mask=mask, other=0.0), tl.zeros((ROWS, D), tl.float32), 0.0
    if parts is not None:
        dy += sum_of_parts(parts, tiles, rows, at, mask, dim, D)
    if dw is not None:
        dy += tl.load(dw + at, mask=mask, other=0.0)
        if parts is not None:
            tl.store(dw + at, dy, mask=mask)
    if ratio is not None:
        lengths = tl.load(ratio + row, mask=inside, other=0.0)
    dx, along = next_query_backward(x, dy, lengths, ratio is None)
    if ratio is not None:
        tl.store(dratio + row, along + tl.load(dratio + row, mask=inside, other=0.0), mask=inside)
    if grad is not None:
        dx += tl.load(grad + at, mask=mask, other=0.0)
    tl.store(ds + at, dx, mask=mask)
