"""Triton kernels for routing on complete graphs. `dense.py` launches them; `../cpu/README.md` derives the formulas.

The logits of iteration r are prior + <u_hat, w>, where the query w depends only on the sums of earlier iterations. So a
pass needs only w. For a tile of M images and IT children, it computes the logits of one parent after another, twice:
first for lse, the logarithm of the softmax's denominator, then for the sum of c u_hat. No logits are kept.

Linear votes are never built. With n = (i, p), the matrices of a tile for one parent are x (IT * P, D). The agreement is
the sum over p of (w x^T) u, and the sum of c u_hat is (c u) x. Given votes are read as x (M, IT, D). The difference,
LINEAR, is in `_tile`, `_agreement`, `_weighted` and `_add`.

Nothing is added atomically: each program stores its own sums, and `finish` and `finish_back` add them in a fixed order.
Capitals are constants of the compiler: flags, and sizes. M, IT, P and D are powers of two, P and D at least CHILD_DIM
and DIM; what is beyond the true sizes is masked. ``stride0`` and ``stride1`` are the strides of matrices (by type and
parent) or of given votes (by edge and image), and ``edge0`` and ``edge1`` those of the prior (by edge and image).

Triton compiles a kernel again for numbers that are 1 and for multiples of 16, except those in ``do_not_specialize``: so
a smaller last batch needs no new kernel.
"""

# There is no `from __future__ import annotations`, because Triton 3.0's interpreter can't read annotations as strings.
import triton
import triton.language as tl


@triton.jit
def _tile(u, children, parents, images, group, stride0, stride1,
          LINEAR: tl.constexpr, M: tl.constexpr, IT: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
          CHILD_DIM: tl.constexpr, DIM: tl.constexpr):  # fmt: skip
    """The children u (M, IT * P); offsets and masks of u, of x for parent 0 and of a parent's rows (M, D); child, image
    and mask of numbers (M, IT). Given votes have no u."""
    b, first = tl.program_id(1).to(tl.int64) * M + tl.arange(0, M), tl.program_id(0).to(tl.int64) * IT
    child, d = first + tl.arange(0, IT), tl.arange(0, D)
    of_n, p = first + tl.arange(0, IT * P) // P, tl.arange(0, IT * P) % P
    real = (of_n < children) & (p < CHILD_DIM)
    at_u, in_u = ((of_n * images)[None, :] + b[:, None]) * CHILD_DIM + p[None, :], (b < images)[:, None] & real[None, :]
    if LINEAR:
        uf = tl.load(u + at_u, mask=in_u, other=0.0).to(tl.float32)
        at = (of_n // group * stride0 + p * DIM)[:, None] + d[None, :]
        there = real[:, None] & (d < DIM)[None, :]
    else:
        uf = 0.0
        at = ((child * parents * stride0)[None, :] + (b * stride1)[:, None])[:, :, None] + d[None, None, :]
        there = (b < images)[:, None, None] & (child < children)[None, :, None] & (d < DIM)[None, None, :]
    rows, in_rows = b[:, None] * DIM + d[None, :], (b < images)[:, None] & (d < DIM)[None, :]
    inside = (b < images)[:, None] & (child < children)[None, :]
    return uf, at_u, in_u, at, there, rows, in_rows, child[None, :], b[:, None], inside


@triton.jit
def _spread(c, M: tl.constexpr, IT: tl.constexpr, P: tl.constexpr):
    """(M, IT) -> (M, IT * P): each child's number for all of its components."""
    return tl.reshape(tl.broadcast_to(c[:, :, None], (M, IT, P)), (M, IT * P))


@triton.jit
def _agreement(x, u, row, LINEAR: tl.constexpr, M: tl.constexpr, IT: tl.constexpr, P: tl.constexpr, DOT: tl.constexpr):
    """<u_hat, row> (M, IT) for vectors ``row`` (M, D) of a parent; and row x^T, which `_add` uses."""
    if LINEAR:
        along = tl.dot(row.to(x.dtype), tl.trans(x), input_precision=DOT)
        return along, tl.sum(tl.reshape(along * u, (M, IT, P)), 2)
    else:
        return row, tl.sum(x.to(tl.float32) * row[:, None, :], 2)


@triton.jit
def _weighted(x, u, c, LINEAR: tl.constexpr, M: tl.constexpr, IT: tl.constexpr, P: tl.constexpr, DOT: tl.constexpr):
    """The sum over the tile's children of c u_hat (M, D)."""
    if LINEAR:
        return tl.dot((_spread(c, M, IT, P) * u).to(x.dtype), x, input_precision=DOT)
    else:
        return tl.sum(c[:, :, None] * x.to(tl.float32), 1)


@triton.jit
def _add(du, total, x, u, c, row, along,
         LINEAR: tl.constexpr, M: tl.constexpr, IT: tl.constexpr, P: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """Add the term c row of du_hat: to du and dW (``total``); or for given votes to du_hat (``total``)."""
    if LINEAR:
        c = _spread(c, M, IT, P)
        total += tl.dot(tl.trans((c * u).to(x.dtype)), row.to(x.dtype), input_precision=DOT)
        return du + c * along, total
    else:
        return du, total + c[:, :, None] * row[:, None, :]


@triton.jit(do_not_specialize=["images"])
def iterate(u, votes, prior, query, ds, lse, mean, c, parts,
            children, parents, images, group, stride0, stride1, edge0, edge1,
            QUERY: tl.constexpr, BACK: tl.constexpr, SUMS: tl.constexpr, COUPLING: tl.constexpr, PRIOR: tl.constexpr,
            LINEAR: tl.constexpr, M: tl.constexpr, IT: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
            CHILD_DIM: tl.constexpr, DIM: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """One iteration: store lse (I, B) and the tile's share of s in parts (tiles, J, B, D); with COUPLING also c (E, B).

    With BACK, read lse and ds (J, B, D); store mean (I, B), which is the sum of c dc over a child's out-edges, and with
    SUMS the tile's share of dw, the sum of db u_hat. QUERY: whether there is a query (J, B, D). PRIOR: whether the
    prior differs between edges.
    """
    uf, at_u, in_u, at, there, rows, in_rows, child, b, inside = _tile(
        u, children, parents, images, group, stride0, stride1, LINEAR, M, IT, P, D, CHILD_DIM, DIM)  # fmt: skip
    step = stride1 if LINEAR else stride0
    total = tl.zeros((M, IT), tl.float32)
    top = tl.load(lse + child * images + b, mask=inside, other=0.0) if BACK else total - 3e38
    even = 1 / parents + 0 * tl.load(prior)  # NaN if the prior is infinite or NaN
    for sweep in tl.static_range(0 if QUERY or PRIOR else 1, 2 if SUMS else 1):
        for j in range(parents):
            x = tl.load(votes + at + j * step, mask=there, other=0.0)
            logit = tl.zeros((M, IT), tl.float32)
            if PRIOR:
                of_edge = (child * parents + j) * edge0 + b * edge1
                logit += tl.load(prior + of_edge, mask=inside, other=0.0)
            if QUERY:
                w = tl.load(query + rows + j * images * DIM, mask=in_rows, other=0.0)
                along, agreement = _agreement(x, uf, w, LINEAR, M, IT, P, DOT)
                logit += agreement
            if BACK:
                row = tl.load(ds + rows + j * images * DIM, mask=in_rows, other=0.0)
                along, dc = _agreement(x, uf, row, LINEAR, M, IT, P, DOT)
            if sweep == 0:
                if BACK:
                    total += tl.exp(logit - top) * dc
                else:
                    new = tl.maximum(top, logit)
                    total = total * tl.exp(top - new) + tl.exp(logit - new)
                    top = new
            else:
                factor = tl.exp(logit - top) if QUERY or PRIOR else logit + even
                if BACK:
                    factor *= dc - total
                part = _weighted(x, uf, factor, LINEAR, M, IT, P, DOT)
                tile = (tl.program_id(0).to(tl.int64) * parents + j) * images * DIM
                tl.store(parts + tile + rows, part, mask=in_rows)
                if COUPLING:
                    tl.store(c + (child * parents + j) * images + b, factor, mask=inside)
        if sweep == 0:
            if BACK:
                tl.store(mean + child * images + b, total, mask=inside)
            else:
                top += tl.log(total)
                tl.store(lse + child * images + b, top, mask=inside)


@triton.jit(do_not_specialize=["images"])
def gradient(u, votes, prior, queries, ds, lse, mean, bend, du, dweight, dprior,
             children, parents, images, group, stride0, stride1, edge0, edge1,
             R: tl.constexpr, BEND: tl.constexpr, DPRIOR: tl.constexpr, PRIOR: tl.constexpr, LINEAR: tl.constexpr,
             M: tl.constexpr, IT: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
             CHILD_DIM: tl.constexpr, DIM: tl.constexpr, DOT: tl.constexpr):  # fmt: skip
    """The gradient through all R iterations: of children and matrices, or of given votes; with DPRIOR of the prior.

    du_hat is the sum over r of c ds + db w, plus bend u_hat with BEND. ``dweight`` (image tiles, I, J, P, D) has a
    matrix for each child, also if children share matrices.
    """
    uf, at_u, in_u, at, there, rows, in_rows, child, b, inside = _tile(
        u, children, parents, images, group, stride0, stride1, LINEAR, M, IT, P, D, CHILD_DIM, DIM)  # fmt: skip
    step, size = stride1 if LINEAR else stride0, images * DIM
    of_u = tl.zeros((M, IT * P), tl.float32)
    for j in range(parents):
        x = tl.load(votes + at + j * step, mask=there, other=0.0)
        prior_logit, db = tl.zeros((M, IT), tl.float32), tl.zeros((M, IT), tl.float32)
        if PRIOR:
            of_edge = (child * parents + j) * edge0 + b * edge1
            prior_logit += tl.load(prior + of_edge, mask=inside, other=0.0)
        total = tl.zeros((IT * P, D), tl.float32) if LINEAR else tl.zeros((M, IT, D), tl.float32)
        for r in tl.static_range(R):
            row = tl.load(ds + rows + (r * parents + j) * size, mask=in_rows, other=0.0)
            along, dc = _agreement(x, uf, row, LINEAR, M, IT, P, DOT)
            logit, c = prior_logit, prior_logit + 1 / parents
            if r > 0:
                w = tl.load(queries + rows + ((r - 1) * parents + j) * size, mask=in_rows, other=0.0)
                along_w, agreement = _agreement(x, uf, w, LINEAR, M, IT, P, DOT)
                logit += agreement
            kept = ((r if PRIOR else r - 1) * children + child) * images + b  # iteration 0 has no lse without a prior
            if r > 0 or PRIOR:
                c = tl.exp(logit - tl.load(lse + kept, mask=inside, other=0.0))
            of_u, total = _add(of_u, total, x, uf, c, row, along, LINEAR, M, IT, P, DOT)
            if r > 0 or DPRIOR:
                of_r = c * (dc - tl.load(mean + kept, mask=inside, other=0.0))
                db += of_r
            if r > 0:
                of_u, total = _add(of_u, total, x, uf, of_r, w, along_w, LINEAR, M, IT, P, DOT)
        if LINEAR:
            n = tl.arange(0, IT * P)
            of_n = tl.program_id(0).to(tl.int64) * IT + n // P
            matrix = ((tl.program_id(1) * children + of_n) * parents + j) * CHILD_DIM + n % P
            tl.store(dweight + matrix[:, None] * DIM + tl.arange(0, D)[None, :], total, mask=there)
        else:
            if BEND:
                total += tl.load(bend + j * images + b, mask=b < images, other=0.0)[:, :, None] * x.to(tl.float32)
            tl.store(du + at + j * step, total, mask=there)
        if DPRIOR:
            tl.store(dprior + (child * parents + j) * images + b, db, mask=inside)
    if LINEAR:
        tl.store(du + at_u, of_u, mask=in_u)


@triton.jit
def _sum_of_parts(parts, tiles, rows, at, mask, dim, M: tl.constexpr, TILES: tl.constexpr, D: tl.constexpr):
    """The sum over tiles of parts (tiles, rows, D) at the offsets ``at`` (M, D) of one tile."""
    total = tl.zeros((TILES, M, D), tl.float32)
    for begin in range(0, tiles, TILES):
        tile = (begin + tl.arange(0, TILES))[:, None, None]
        total += tl.load(parts + tile.to(tl.int64) * rows * dim + at[None], mask=(tile < tiles) & mask[None], other=0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["rows"])
def finish(parts, s, out, before, ratio, tiles, rows, dim,
           DIRECTIONS: tl.constexpr, ADD: tl.constexpr, M: tl.constexpr, TILES: tl.constexpr,
           D: tl.constexpr):  # fmt: skip
    """Add up s (rows, D); store in ``out`` squash(s), plus ``before`` with ADD, or with DIRECTIONS ratio s / |s|."""
    row, d = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M), tl.arange(0, D)
    at, mask = row[:, None] * dim + d[None, :], (row < rows)[:, None] & (d < dim)[None, :]
    x = _sum_of_parts(parts, tiles, rows, at, mask, dim, M, TILES, D)
    n = tl.sqrt(tl.sum(x * x, 1))
    scale = n / (1 + n * n)
    if DIRECTIONS:
        scale = tl.load(ratio + row, mask=row < rows, other=0.0) / tl.where(n > 1e-12, n, 1.0)
    y = x * scale[:, None]
    if ADD:
        y += tl.load(before + at, mask=mask, other=0.0)
    tl.store(s + at, x, mask=mask)
    tl.store(out + at, y, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def finish_back(parts, s, ratio, dw, dratio, grad, ds, tiles, rows, dim,
                PARTS: tl.constexpr, ADD: tl.constexpr, GRAD: tl.constexpr, DIRECTIONS: tl.constexpr,
                M: tl.constexpr, TILES: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """Store ds (rows, D), the gradient of an iteration's s, from dw, the gradient of what `finish` made of s.

    dw is the sum of the parts (PARTS) and of what ``dw`` holds (ADD), and the sum is stored there. With DIRECTIONS it
    is the sum of the parts, and ADD is whether to add to ``dratio``. With GRAD, ``grad`` is added to ds.
    """
    row, d = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M), tl.arange(0, D)
    at, mask = row[:, None] * dim + d[None, :], (row < rows)[:, None] & (d < dim)[None, :]
    x, dy = tl.load(s + at, mask=mask, other=0.0), tl.zeros((M, D), tl.float32)
    n = tl.sqrt(tl.sum(x * x, 1))
    if PARTS:
        dy += _sum_of_parts(parts, tiles, rows, at, mask, dim, M, TILES, D)
    if ADD and not DIRECTIONS:
        dy += tl.load(dw + at, mask=mask, other=0.0)
    if DIRECTIONS:
        length = tl.where(n > 1e-12, n, 1.0)
        along = tl.sum(dy * x, 1) / length
        scale = tl.load(ratio + row, mask=row < rows, other=0.0) / length
        slope = tl.where(n > 1e-12, -scale * along / length, 0.0)
        if ADD:
            along += tl.load(dratio + row, mask=row < rows, other=0.0)
        tl.store(dratio + row, along, mask=row < rows)
    else:
        if PARTS:
            tl.store(dw + at, dy, mask=mask)
        scale = n / (1 + n * n)
        slope = (1 - n * n) / (1 + n * n) / (1 + n * n) / tl.where(n > 0, n, 1.0) * tl.sum(x * dy, 1)
    dx = dy * scale[:, None] + x * slope[:, None]
    if GRAD:
        dx += tl.load(grad + at, mask=mask, other=0.0)
    tl.store(ds + at, dx, mask=mask)
